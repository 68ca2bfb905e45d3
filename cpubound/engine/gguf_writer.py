"""The header of a GGUF file (version 3), as docs/gguf.md of ggml describes it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from cpubound.model.values import HyperParameter, Tensor

ALIGNMENT = 32
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _UINT64 = 4, 5, 6, 7, 8, 9, 10
_FORMATS = {_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f", _BOOL: "<?", _UINT64: "<Q"}
# llama.cpp reads these as float32 and refuses an integer, which a config may well give.
_FLOAT_ENDINGS = (
    "epsilon",
    "freq_base",
    "freq_base_swa",
    "factor",
    "scale",
    "softcapping",
    "clamp_kqv",
    "max_alibi_bias",
    "multiplier",
)


def tensor_offsets(tensors: Sequence[Tensor]) -> tuple[list[int], int]:
    """Return where each tensor starts in the data section, and the section's size."""
    offsets = []
    position = 0
    for tensor in tensors:
        offsets.append(position)
        position = _align(position + tensor.n_bytes)
    return offsets, position


def header_bytes(metadata: Mapping[str, HyperParameter], tensors: Sequence[Tensor]) -> bytes:
    """Write everything before the data section, padded to the alignment."""
    offsets, _ = tensor_offsets(tensors)
    parts = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))]
    for key, value in metadata.items():
        parts += [_string(key), _typed_value(key, value)]
    for tensor, offset in zip(tensors, offsets, strict=True):
        parts.append(_string(tensor.name))
        parts.append(struct.pack("<I", len(tensor.shape)))
        parts.append(struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape))
        parts.append(struct.pack("<IQ", tensor.type.id, offset))
    header = b"".join(parts)
    return header + bytes(_align(len(header)) - len(header))


def _typed_value(key: str, value: HyperParameter) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if isinstance(value, tuple):
        kind = _number_type(key, value)
        numbers = b"".join(struct.pack(_FORMATS[kind], item) for item in value)
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + numbers
    kind = _number_type(key, (value,))
    return struct.pack("<I", kind) + struct.pack(_FORMATS[kind], value)


def _number_type(key: str, values: Iterable[int | float | bool]) -> int:
    values = tuple(values)
    if values and all(isinstance(value, bool) for value in values):
        return _BOOL
    if key.endswith(_FLOAT_ENDINGS) or any(isinstance(value, float) for value in values):
        return _FLOAT32
    if any(value < 0 for value in values):
        return _INT32
    return _UINT64 if any(value >= 1 << 32 for value in values) else _UINT32


def _string(text: str) -> bytes:
    encoded = text.encode("utf-8")
    return struct.pack("<Q", len(encoded)) + encoded


def _align(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT
