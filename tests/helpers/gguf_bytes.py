"""GGUF files byte by byte, for tests that need broken ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_FORMATS = {
    U8: "<B",
    I8: "<b",
    U16: "<H",
    I16: "<h",
    U32: "<I",
    I32: "<i",
    F32: "<f",
    BOOL: "<?",
    U64: "<Q",
    I64: "<q",
    F64: "<d",
}


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def scalar(type_: int, value: object) -> bytes:
    if type_ == STRING:
        assert isinstance(value, str | bytes)
        return string(value)
    return struct.pack(_FORMATS[type_], value)


def pair(key: str, type_: int, value: object) -> bytes:
    return string(key) + struct.pack("<I", type_) + scalar(type_, value)


def array(key: str, type_: int, values: Sequence[object], count: int | None = None) -> bytes:
    claimed = len(values) if count is None else count
    head = struct.pack("<IIQ", ARRAY, type_, claimed)
    return string(key) + head + b"".join(scalar(type_, value) for value in values)


@dataclass
class TensorInfo:
    name: str = "token_embd.weight"
    shape: Sequence[int] = (32, 4)
    type_: int = 0
    offset: int = 0
    n_dimensions: int | None = None

    def packed(self) -> bytes:
        dimensions = len(self.shape) if self.n_dimensions is None else self.n_dimensions
        shape = b"".join(struct.pack("<Q", extent % 2**64) for extent in self.shape)
        return (
            string(self.name)
            + struct.pack("<I", dimensions)
            + shape
            + struct.pack("<IQ", self.type_, self.offset)
        )


@dataclass
class GgufBytes:
    """A sound small file unless told otherwise."""

    pairs: list[bytes] = field(
        default_factory=lambda: [pair("general.architecture", STRING, "llama")]
    )
    tensors: list[TensorInfo] = field(default_factory=lambda: [TensorInfo()])
    version: int = 3
    n_pairs: int | None = None
    n_tensors: int | None = None
    alignment: int = 32
    data_bytes: int | None = None

    def header(self) -> bytes:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_pairs = len(self.pairs) if self.n_pairs is None else self.n_pairs
        return (
            b"GGUF"
            + struct.pack("<IQQ", self.version, n_tensors % 2**64, n_pairs % 2**64)
            + b"".join(self.pairs)
            + b"".join(tensor.packed() for tensor in self.tensors)
        )

    def packed(self) -> bytes:
        header = self.header()
        header += bytes(-len(header) % self.alignment)
        data_bytes = 32 * 4 * 4 if self.data_bytes is None else self.data_bytes
        return header + bytes(data_bytes)
