"""What the engine's child uses of llama.cpp's libraries besides models. Child process only."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
from pathlib import Path

import llama_cpp
import llama_cpp.llama_cpp as llama

from cpubound.engine.protocol import Quantize
from cpubound.engine.scale_spread import DEVIATION_SPREAD, RUN_WEIGHTS, lognormal_factors
from cpubound.engine.values import EngineIdentity
from cpubound.errors import MachineError

# llama.cpp begins a line with the functions it comes from.
_FUNCTION = re.compile(r"^(\w+: )+(error loading model: )?(\w+: )*")
_WARN, _ERROR, _CONTINUED = 3, 4, 5  # enum ggml_log_level


class Log:
    """Keeps the errors that llama.cpp logs, and passes warnings on to stderr."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._level = 0
        self._callback = llama.llama_log_callback(self._receive)
        llama.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _receive(self, level: int, text: bytes | None, _user_data: object) -> None:
        if level != _CONTINUED:
            self._level = level
        if self._level not in (_WARN, _ERROR) or not text:
            return
        line = text.decode("utf-8", "replace")
        os.write(2, text)
        if self._level == _ERROR and line.strip():
            self.errors.append(line.strip())

    def reason(self) -> str:
        """Return why the last request failed, in llama.cpp's words."""
        reasons = [_FUNCTION.sub("", line) for line in self.errors]
        # A later line repeats the first in general words ("failed to load model").
        return reasons[0] if reasons else "llama.cpp gives no reason"


def read_identity() -> EngineIdentity:
    """Name the binding: its version, what its libraries are, and their build features.

    The build is a digest of ggml's version and commit, the features, and the sizes of the
    libraries. Their content would not do: it holds the random folder they were built in.
    """
    ggml = ggml_library()
    ggml.ggml_version.restype = ggml.ggml_commit.restype = ctypes.c_char_p
    info = llama.llama_print_system_info()
    parts = [ggml.ggml_version(), ggml.ggml_commit(), info]
    for library in sorted(library_folder().iterdir()):
        if library.suffix in (".so", ".dylib", ".dll"):
            parts.append(f"{library.name} {library.stat().st_size}".encode())
    features = []
    for part in info.decode().replace(":", "|").split("|"):
        name, _, value = part.partition("=")
        if value.strip() == "1":
            features.append(name.strip())
    return EngineIdentity(
        name="llama-cpp-python",
        version=llama_cpp.__version__,
        build=hashlib.sha256(b"\n".join(parts)).hexdigest()[:16],
        features=tuple(features),
    )


def quantize(request: Quantize) -> bytes:
    """Quantise random weights, spread as a trained matrix's, into the blocks of one row."""
    import numpy as np

    ggml = ggml_library()
    elements = request.blocks * request.block_size
    weights = np.random.default_rng(request.seed).standard_normal(elements, dtype=np.float32)
    runs = -(-elements // RUN_WEIGHTS)
    deviations = request.scale * lognormal_factors(runs, DEVIATION_SPREAD, request.seed)
    weights *= np.repeat(deviations, RUN_WEIGHTS)[:elements]
    blocks = ctypes.create_string_buffer(request.blocks * request.block_bytes)
    # A flat importance matrix: some IQ types refuse to do without.
    importance = np.ones(elements, dtype=np.float32)
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    written = ggml.ggml_quantize_chunk(
        ctypes.c_int(request.type_id),
        weights.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
        blocks,
        ctypes.c_int64(0),
        ctypes.c_int64(1),
        ctypes.c_int64(elements),
        importance.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
    )
    if written != len(blocks.raw):
        raise MachineError(
            f"ggml quantises a block to another size (type {request.type_id}): "
            "use the llama.cpp version that cpubound was made for"
        )
    return blocks.raw


def library_folder() -> Path:
    """Return the folder of the binding's shared libraries."""
    return Path(llama_cpp.__file__).parent / "lib"


def ggml_library() -> ctypes.CDLL:
    """Return ggml's base library, whose functions the binding does not wrap."""
    for pattern in ("libggml-base.so", "libggml-base.dylib", "ggml-base.dll"):
        path = library_folder() / pattern
        if path.exists():
            return ctypes.CDLL(str(path))
    raise MachineError(
        f"no ggml library beside the binding ({library_folder()}): "
        "install the engine again with pip install --force-reinstall 'cpubound[engine]'"
    )
