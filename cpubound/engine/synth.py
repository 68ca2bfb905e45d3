"""Write a loadable GGUF file of any shape and file type, filled with valid random weights.

The speed of decoding depends on the shapes and types of the tensors, not on what they
hold, as long as the values are finite, the blocks' scales spread as a trained model's
(``scale_spread``) and, in a mixture, the router's choices vary. So a tile of blocks is
quantised once per type and written over and over. A tile has a prime number of blocks:
rows, heads and experts then start at different places in it and do not repeat one another.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from cpubound.engine.gguf_writer import header_bytes, tensor_offsets
from cpubound.engine.inprocess import LlamaCppRunner, open_runner
from cpubound.errors import MachineError, ModelFileError, UsageError
from cpubound.model.values import HyperParameter, ModelSpec, QuantType, Tensor
from cpubound.temporary import partial_file
from cpubound.units import format_decimal_bytes

# Primes near 2**18 elements, by block size.
_TILE_BLOCKS = {1: 262139, 32: 8191, 64: 4093, 128: 2039, 256: 1021}
_CHUNK_BYTES = 4 << 20
_PHASE_STEP = 7919  # a prime: tensors start at different places in their tile
# Norms bring activations back to 1, so that one deviation does for every width.
_WEIGHT_SCALE = 0.02
_FLOATS = ("F32", "F16", "BF16", "F64")


class Quantize(Protocol):
    """Random blocks of a type, quantised by ggml; ``scale`` is the weights' deviation."""

    def __call__(self, quant: QuantType, blocks: int, *, scale: float, seed: int) -> bytes: ...


def write_model(
    spec: ModelSpec,
    path: str | os.PathLike[str],
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    quantize: Quantize | None = None,
) -> None:
    """Write a model's shape as one GGUF file with random weights and an empty vocabulary.

    Parameters: the model; the file, replaced if it exists; a seed; ``progress``, called
    with bytes written and bytes in all; ``quantize``, ggml's quantiser (by default that of
    a llama.cpp child started for this file, if a tensor needs it).

    Memory does not grow with the file: some MiB for each tensor type. The file appears
    under its name when it is complete; what was written is removed on any error.

    Raises
    ------
    MachineError : not enough disk space, or the file cannot be written.
    EngineUnavailable : a tensor is quantised and there is no llama-cpp-python.
    UsageError : the place is taken by what is not a file.
    ModelFileError : the model has no tensors or no vocabulary size.
    """
    target = Path(path)
    if not spec.tensors or not spec.vocabulary_size:
        raise ModelFileError(f"nothing to write ({spec.name}): the model names no tensors")
    if target.exists() and not target.is_file():
        raise UsageError(f"cannot write the model ({target}): not a regular file; name a new one")
    header = header_bytes(file_metadata(spec), spec.tensors)
    total = len(header) + tensor_offsets(spec.tensors)[1]
    _check_space(target, total)
    with _errors_named(target), partial_file(target) as output, _Tiles(seed, quantize) as tiles:
        output.write(header)
        written = len(header)
        for index, tensor in enumerate(spec.tensors):
            padding = -tensor.n_bytes % 32
            for piece in _pieces(tiles.chunk(tensor), tensor, index):
                output.write(piece)
                written += len(piece)
                if progress is not None:
                    progress(written, total)
            output.write(bytes(padding))
            written += padding
        if progress is not None:
            progress(total, total)


def file_metadata(spec: ModelSpec) -> dict[str, HyperParameter]:
    """Return the keys that llama.cpp needs in a file of this model, with an empty vocabulary."""
    metadata: dict[str, HyperParameter] = {
        "general.architecture": spec.architecture,
        "general.name": spec.name,
        "general.quantization_version": 2,
        # LLAMA_VOCAB_TYPE_NONE: only the size counts (src/llama-vocab.cpp, 0c1e57098bba).
        "tokenizer.ggml.model": "no_vocab",
        f"{spec.architecture}.vocab_size": spec.vocabulary_size or 0,
    }
    if spec.file_type is not None:
        metadata["general.file_type"] = spec.file_type
    for key, value in spec.hyper_parameters.items():
        metadata.setdefault(f"{spec.architecture}.{key}", value)
    return metadata


def _check_space(target: Path, needed: int) -> None:
    try:
        free = shutil.disk_usage(target.resolve().parent).free
    except OSError as error:
        raise MachineError(
            f"cannot write the model ({target}): {error.strerror}; name a folder that exists"
        ) from error
    if free < needed:
        raise MachineError(
            f"not enough disk space ({target.resolve().parent}): the model needs "
            f"{format_decimal_bytes(needed)} and {format_decimal_bytes(free)} are free; "
            f"free {format_decimal_bytes(needed - free)} or name another folder"
        )


@contextmanager
def _errors_named(target: Path) -> Iterator[None]:
    """Make of the system's errors one that names the model's file."""
    try:
        yield
    except OSError as error:
        advice = "free some space" if error.errno == errno.ENOSPC else "name another folder"
        raise MachineError(f"cannot write the model ({target}): {error.strerror}; {advice}") from (
            error
        )


def _pieces(chunk: bytes, tensor: Tensor, index: int) -> Iterator[memoryview]:
    """Cut a tensor's bytes out of its repeated tile, from a place of its own."""
    view = memoryview(chunk)
    blocks = len(chunk) // tensor.type.block_bytes
    start = index * _PHASE_STEP % blocks * tensor.type.block_bytes
    left = tensor.n_bytes
    while left:
        piece = view[start : start + left]
        yield piece
        left -= len(piece)
        start = 0


class _Tiles:
    """The repeated tile of each type and kind of value, made when first asked for."""

    def __init__(self, seed: int, quantize: Quantize | None) -> None:
        self._seed = seed
        self._quantize = quantize
        self._runner_of_our_own = None if quantize else _LazyRunner()
        self._chunks: dict[tuple[str, str], bytes] = {}

    def __enter__(self) -> _Tiles:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._runner_of_our_own is not None:
            self._runner_of_our_own.close()

    def chunk(self, tensor: Tensor) -> bytes:
        """Return whole tiles, some MiB in all, for a tensor."""
        kind = _kind_of_value(tensor)
        key = (tensor.type.name, kind)
        if key not in self._chunks:
            tile = self._tile(tensor.type, kind)
            self._chunks[key] = tile * max(1, _CHUNK_BYTES // len(tile))
        return self._chunks[key]

    def _tile(self, quant: QuantType, kind: str) -> bytes:
        blocks = _TILE_BLOCKS[quant.block_size]
        if quant.name in _FLOATS:
            return _float_tile(quant.name, kind, blocks, self._seed)
        if quant.name.startswith("I") and quant.block_size == 1:
            return bytes(quant.block_bytes * blocks)
        quantize = self._quantize or self._runner_of_our_own
        assert quantize is not None
        return quantize(quant, blocks, scale=_WEIGHT_SCALE, seed=self._seed)


class _LazyRunner:
    """A llama.cpp child that is started only if something has to be quantised."""

    def __init__(self) -> None:
        self._runner: LlamaCppRunner | None = None

    def __call__(self, quant: QuantType, blocks: int, *, scale: float, seed: int) -> bytes:
        if self._runner is None:
            self._runner = open_runner()
        return self._runner.quantize(quant, blocks, scale=scale, seed=seed)

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()


def _kind_of_value(tensor: Tensor) -> str:
    """Choose values that keep activations finite: norms and scales one, biases zero."""
    name = tensor.name
    if name.endswith((".bias", "attn_sinks.weight")):
        return "zero"
    if name.endswith("ssm_a"):
        return "minus one"  # a state that decays
    if (
        "norm" in name
        or name.startswith(("rope_f", "rope_freqs"))
        or ".rope_f" in name
        or name.endswith((".scale", "ssm_d"))
    ):
        return "one"
    return "random"


def _float_tile(type_name: str, kind: str, elements: int, seed: int) -> bytes:
    import numpy as np

    if kind == "random":
        values = np.random.default_rng(seed).standard_normal(elements, dtype=np.float32)
        values *= _WEIGHT_SCALE
    else:
        values = np.full(elements, {"zero": 0, "one": 1, "minus one": -1}[kind], dtype=np.float32)
    if type_name == "BF16":
        # The upper half of a float32, rounded to nearest.
        return ((values.view(np.uint32) + 0x8000) >> 16).astype("<u2").tobytes()
    return values.astype({"F32": "<f4", "F16": "<f2", "F64": "<f8"}[type_name]).tobytes()
