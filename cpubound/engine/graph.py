"""Count the bytes that the operators of a decode step span, in llama.cpp's own graph.

llama.cpp shows every operator to ``cb_eval`` before it computes it. Whether a source is a
weight, a cache or an activation is told by the use of the buffer it lies in. The struct is
``ggml_tensor`` of ggml/include/ggml.h, llama.cpp commit 0c1e57098bba.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

from cpubound.engine.values import GraphCount

WEIGHTS = 1  # enum ggml_backend_buffer_usage
COMPUTE = 2
# These only rename memory: nothing is computed.
VIEWS = frozenset({"NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"})
# Operators that write into the memory of this source, which is thus not read.
_DESTINATIONS = {"CPY": 1, "SET_ROWS": 2}


class GraphTensor(ctypes.Structure):
    """``ggml_tensor``."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("extents", ctypes.c_int64 * 4),
        ("strides", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("sources", ctypes.c_void_p * 10),
        ("view_source", ctypes.c_void_p),
        ("view_offset", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
        ("extra", ctypes.c_void_p),
        ("padding", ctypes.c_char * 8),
    )


class GraphReader:
    """Says of the tensors of a graph what ggml knows about them."""

    def __init__(self, ggml: ctypes.CDLL) -> None:
        self._usage = ggml.ggml_backend_buffer_get_usage
        self._usage.argtypes = [ctypes.c_void_p]
        self._op_name = ggml.ggml_op_name
        self._op_name.restype = ctypes.c_char_p

    def operator(self, node: GraphTensor) -> str:
        """Return the name of a node's operator."""
        return str(self._op_name(node.op).decode())

    def use(self, tensor: GraphTensor) -> int:
        """Return what the buffer of a tensor is for: WEIGHTS, COMPUTE, or a cache."""
        buffer = root_of(tensor).buffer
        # A tensor without a buffer is an activation that shares another's memory.
        return int(self._usage(buffer)) if buffer else COMPUTE


class GraphCounter:
    """Sums what the operators shown to ``observe`` read and write, once started."""

    def __init__(self, ggml: ctypes.CDLL) -> None:
        self._reader = GraphReader(ggml)
        self._type_size = ggml.ggml_type_size
        self._type_size.restype = ctypes.c_size_t
        self._block_size = ggml.ggml_blck_size
        self._block_size.restype = ctypes.c_int64
        self._counting = False
        self.start()
        self._counting = False

    def start(self) -> None:
        """Forget what was counted and count from here on."""
        self._counting = True
        self._weights: Counter[str] = Counter()
        self._operators: Counter[str] = Counter()
        self._rows = 0
        self._cache_read = 0
        self._cache_write = 0

    def result(self) -> GraphCount:
        """Return what was counted since ``start``."""
        return GraphCount(
            weight_bytes=sum(self._weights.values()),
            row_bytes=self._rows,
            cache_read_bytes=self._cache_read,
            cache_write_bytes=self._cache_write,
            nodes=sum(self._operators.values()),
            weights=dict(self._weights),
            operators=dict(self._operators),
        )

    def observe(self, address: int, ask: bool, _user_data: object) -> bool:
        """Take one operator; never asks llama.cpp to stop there, so that nothing is split."""
        if self._counting and ask:
            self._count(GraphTensor.from_address(address))
        return not ask

    def _count(self, node: Any) -> None:
        operator = self._reader.operator(node)
        if operator in VIEWS:
            return
        self._operators[operator] += 1
        sources = [GraphTensor.from_address(a) if a else None for a in node.sources]
        for index, source in enumerate(sources):
            if source is None or index == _DESTINATIONS.get(operator):
                continue
            use = self._reader.use(source)
            if use == COMPUTE:
                continue
            n_bytes = self._bytes_read(operator, index, source, sources)
            if use != WEIGHTS:
                self._cache_read += n_bytes
            elif operator == "GET_ROWS":
                self._rows += n_bytes
            else:
                self._weights[root_of(source).name.decode()] += n_bytes
        if self._reader.use(node) not in (WEIGHTS, COMPUTE):
            self._cache_write += self._bytes_written(operator, node, sources)

    def _bytes_read(self, operator: str, index: int, source: Any, sources: list[Any]) -> int:
        whole = self._n_bytes(source.type, _elements(source))
        if operator == "MUL_MAT_ID" and index == 0:
            experts = int(source.extents[2])
            return whole // experts * min(experts, _elements(sources[2]))
        if operator == "ADD_ID" and index == 1:
            rows = int(source.extents[1])
            return whole // rows * min(rows, _elements(sources[2]))
        if operator == "GET_ROWS" and index == 0:
            return self._n_bytes(source.type, source.extents[0] * _elements(sources[1]))
        if operator == "SSM_SCAN" and index == 0:
            # One state per sequence, named by the ids.
            return whole // int(source.extents[3]) * _elements(sources[6])
        return whole

    def _bytes_written(self, operator: str, node: Any, sources: list[Any]) -> int:
        written = sources[0] if operator == "SET_ROWS" else node
        return self._n_bytes(node.type, _elements(written))

    def _n_bytes(self, type_id: int, elements: int) -> int:
        return int(elements * self._type_size(type_id) // self._block_size(type_id))


def root_of(tensor: Any) -> Any:
    """Return the tensor whose memory a view shows, or the tensor itself."""
    while tensor.view_source:
        tensor = GraphTensor.from_address(tensor.view_source)
    return tensor


def _elements(tensor: Any) -> int:
    count = 1
    for extent in tensor.extents:
        count *= int(extent)
    return count
