"""Read one GGUF file's header: metadata and the list of tensors, nothing of the data.

The reader trusts nothing the file claims: every count and length is compared with the
bytes that are left before it is used, what is long is stepped over, and memory stays
within a window of the file whatever is in it. Format: ggml/src/gguf.cpp and docs/gguf.md
of llama.cpp, commit 0c1e57098bba.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from cpubound import bounds
from cpubound.errors import ModelFileError
from cpubound.model.gguf.source import Source
from cpubound.model.gguf.strings import skip_strings
from cpubound.model.quant import is_known_type_id, quant_type, unknown_quant_type
from cpubound.model.values import QuantType, Tensor

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
MAX_KEY_BYTES = 512
MAX_TENSOR_NAME_BYTES = 63  # GGML_MAX_NAME counts the closing zero
MAX_DIMENSIONS = 4
# Longer values (chat templates, token scores) say nothing about traffic.
MAX_KEPT_STRING_BYTES = 4096
MAX_KEPT_ARRAY = 4096
MAX_ARRAY_NESTING = 4

WINDOW_BYTES = 2**18

_SCALARS = {
    0: Struct("<B"),
    1: Struct("<b"),
    2: Struct("<H"),
    3: Struct("<h"),
    4: Struct("<I"),
    5: Struct("<i"),
    6: Struct("<f"),
    7: Struct("<?"),
    10: Struct("<Q"),
    11: Struct("<q"),
    12: Struct("<d"),
}
_STRING = 8
_ARRAY = 9
_U32 = _SCALARS[4]
_U64 = _SCALARS[10]
_SHAPES = tuple(Struct(f"<{n}Q") for n in range(1, MAX_DIMENSIONS + 1))

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class LongArray:
    """An array of the metadata that was stepped over."""

    count: int


MetadataValue = Scalar | tuple[int | float | bool, ...] | LongArray | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufHeader:
    """What the header of one file holds.

    ``metadata`` has every key; strings too long to matter are None, arrays of strings
    and long arrays a ``LongArray``. ``data_offset`` is where tensor data begin.
    """

    source: str
    version: int
    metadata: dict[str, MetadataValue]
    tensors: tuple[Tensor, ...]
    alignment: int
    data_offset: int
    size: int | None  # of the file
    warnings: tuple[str, ...] = ()


class _Cursor:
    """A position in a source, with a window of its bytes."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._window = b""
        self._start = 0
        self.position = 0
        self._may_step_into = bounds.MODEL_ENTRIES
        self._may_keep_bytes = bounds.KEPT_METADATA_BYTES
        self.end = bounds.MODEL_HEADER_BYTES if source.size is None else source.size

    def fail(
        self, what: str, what_to_do: str = "download it again", *, code: str | None = None
    ) -> ModelFileError:
        where = f"{self._source.name}, byte {self.position}"
        evidence = {"byte": self.position} if code else None
        return ModelFileError(f"{what} ({where}): {what_to_do}", code=code, evidence=evidence)

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def _refill(self, length: int) -> int:
        """Have ``length`` bytes from the position on in the window; return where."""
        at = self.position - self._start
        if at >= 0 and at + length <= len(self._window):
            return at
        if length > self.remaining:
            raise self.fail(
                f"the file ends inside its header: {length} bytes are needed, "
                f"{max(self.remaining, 0)} are left",
                code="truncated",
            )
        self._window = self._source.read(self.position, max(length, WINDOW_BYTES))
        self._start = self.position
        if len(self._window) < length:
            raise self.fail("the file ends inside its header", code="truncated")
        return 0

    def unpack(self, scalar: Struct) -> int:
        value: int = self.unpack_all(scalar)[0]
        return value

    def unpack_all(self, layout: Struct) -> tuple[int, ...]:
        at = self._refill(layout.size)
        self.position += layout.size
        return layout.unpack_from(self._window, at)

    def take(self, length: int) -> bytes:
        at = self._refill(length)
        self.position += length
        return self._window[at : at + length]

    def skip(self, length: int) -> None:
        if length > self.remaining:
            raise self.fail(f"a value of {length} bytes is claimed where {self.remaining} are left")
        self._move(self.position + length)

    def _move(self, position: int) -> None:
        if position > bounds.MODEL_HEADER_BYTES:
            raise self.fail(f"the header is longer than {bounds.MODEL_HEADER_BYTES} bytes")
        self.position = position

    def may_keep(self, n_bytes: int) -> bool:
        """Tell whether a value of that size may be built, and count it if so."""
        if n_bytes > self._may_keep_bytes:
            return False
        self._may_keep_bytes -= n_bytes
        return True

    def count_array(self, key: str) -> None:
        """Count an array inside an array: each is a step of its own, however short."""
        self._may_step_into -= 1
        if self._may_step_into < 0:
            raise self.fail(f"the metadata key {quoted(key)} nests too many arrays")

    def string(self, limit: int, what: str) -> str:
        length = self.unpack(_U64)
        if length > limit or length > self.remaining:
            raise self.fail(f"{what} of {length} bytes is claimed")
        return self.take(length).decode("utf-8", "replace")

    def skip_strings(self, count: int) -> None:
        while count:
            at = self._refill(8)
            at, count = skip_strings(self._window, at, count)
            if at < 0 or self._start + at > self.end:
                raise self.fail("a string in an array is longer than the file")
            self._move(self._start + at)


def parse_header(source: Source) -> GgufHeader:
    """Parse the header of one GGUF file.

    Raises ``ModelFileError``, saying what is wrong and at which byte, for anything that
    is not a sound GGUF file of version 2 or 3, little-endian.
    """
    cursor = _Cursor(source)
    _check_magic(cursor, source)
    version = _read_version(cursor)
    n_tensors = _read_count(cursor, "tensors", 24)
    n_pairs = _read_count(cursor, "metadata entries", 13)
    metadata: dict[str, MetadataValue] = {}
    for _ in range(n_pairs):
        key = cursor.string(MAX_KEY_BYTES, "a metadata key")
        if not key:
            raise cursor.fail("a metadata key is empty")
        if key in metadata:
            raise cursor.fail(f"the metadata key {quoted(key)} stands twice")
        metadata[key] = _read_value(cursor, key)
    alignment = _alignment(cursor, metadata)
    warnings: list[str] = []
    tensors = _read_tensors(cursor, n_tensors, alignment, warnings)
    data_offset = cursor.position
    if n_tensors:
        data_offset += -data_offset % alignment
    return GgufHeader(
        source=source.name,
        version=version,
        metadata=metadata,
        tensors=tensors,
        alignment=alignment,
        data_offset=data_offset,
        size=source.size,
        warnings=tuple(warnings),
    )


def quoted(text: str) -> str:
    """Write a text from a file on one printable line, in quotes, cut at 80 characters."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")


def _check_magic(cursor: _Cursor, source: Source) -> None:
    start = source.read(0, 512)
    if not start:
        raise ModelFileError(f"the file is empty ({source.name}): download it again")
    if start[:4] == MAGIC:
        cursor.take(4)
        return
    what, what_to_do = _what_it_is(start)
    raise ModelFileError(f"{what} ({source.name}): {what_to_do}", code="not-gguf")


def _what_it_is(start: bytes) -> tuple[str, str]:
    """Return what a file is that is not GGUF, and what to do about it."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    give_gguf = "give a GGUF file, or convert this with llama.cpp's convert_hf_to_gguf.py"
    if start.startswith(b"version https://git-lfs"):
        return f"this is a Git LFS pointer{_lfs_size(start)}, not the file", "run git lfs pull"
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "this is a web page saved by a failed download", "fetch the file itself"
    if not start.strip(b"\0"):
        return "the file begins with zeros: its download did not finish", "download it again"
    if start[:4] in (b"lmgg", b"fmgg", b"tjgg", b"algg"):
        return "this is a GGML file from before GGUF, which llama.cpp no longer reads", give_gguf
    if start[:4] == b"PK\x03\x04":
        return "this is a zip archive or a PyTorch checkpoint, not a GGUF file", give_gguf
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 2**32:
        return "this is a safetensors file, not a GGUF file", give_gguf
    if text.startswith((b"{", b"[")):
        return "this is a JSON text, not a GGUF file", give_gguf
    begins = f"this is not a GGUF file: it begins with {start[:4]!r} in place of {MAGIC!r}"
    return begins, "give a GGUF model file"


def _lfs_size(pointer: bytes) -> str:
    size = next((line[5:] for line in pointer.split(b"\n") if line.startswith(b"size ")), b"")
    return f" to a file of {int(size)} bytes" if size.isdigit() and len(size) < 20 else ""


def _read_version(cursor: _Cursor) -> int:
    version = cursor.unpack(_U32)
    if version in (2, 3):
        return version
    if version & 0xFFFF == 0 and version:
        raise cursor.fail(
            "this is a big-endian GGUF file", "convert it with gguf_convert_endian.py"
        )
    if version <= 1:
        raise cursor.fail(
            f"GGUF version {version} is no longer read by llama.cpp", "convert the model again"
        )
    raise cursor.fail(
        f"GGUF version {version} is newer than this reader (2 and 3)", "upgrade cpubound"
    )


def _read_count(cursor: _Cursor, what: str, least_bytes: int) -> int:
    """Read a count of entries that take at least ``least_bytes`` each."""
    count = cursor.unpack(_U64)
    if count > bounds.MODEL_ENTRIES or count * least_bytes > cursor.remaining:
        raise cursor.fail(f"{count} {what} are claimed where {cursor.remaining} bytes are left")
    return count


def _read_value(cursor: _Cursor, key: str) -> MetadataValue:
    type_ = cursor.unpack(_U32)
    scalar = _SCALARS.get(type_)
    if scalar is not None:
        return cursor.unpack(scalar)
    if type_ == _STRING:
        return _read_string(cursor)
    if type_ == _ARRAY:
        return _read_array(cursor, key)
    raise _unknown_value_type(cursor, key, type_)


def _unknown_value_type(cursor: _Cursor, key: str, type_: int) -> ModelFileError:
    return cursor.fail(f"the metadata key {quoted(key)} has the unknown value type {type_}")


def _read_string(cursor: _Cursor) -> str | None:
    length = cursor.unpack(_U64)
    if length > MAX_KEPT_STRING_BYTES or not cursor.may_keep(length):
        cursor.skip(length)
        return None
    return cursor.take(length).decode("utf-8", "replace")


def _read_array(cursor: _Cursor, key: str, nesting: int = 0) -> MetadataValue:
    type_ = cursor.unpack(_U32)
    count = cursor.unpack(_U64)
    scalar = _SCALARS.get(type_)
    if scalar is not None:
        wanted = count <= MAX_KEPT_ARRAY and not key.startswith("tokenizer.")
        if wanted and cursor.may_keep(32 * count):
            data = cursor.take(count * scalar.size)
            return tuple(value for (value,) in scalar.iter_unpack(data))
        cursor.skip(count * scalar.size)
        return LongArray(count)
    least_bytes = {_STRING: 8, _ARRAY: 12}.get(type_)
    if least_bytes is None:
        raise _unknown_value_type(cursor, key, type_)
    if count * least_bytes > cursor.remaining:
        raise cursor.fail(f"the metadata key {quoted(key)} claims {count} values")
    if type_ == _STRING:
        cursor.skip_strings(count)
        return LongArray(count)
    if nesting >= MAX_ARRAY_NESTING or count > bounds.MODEL_ENTRIES:
        raise cursor.fail(f"the metadata key {quoted(key)} nests arrays too deeply")
    for _ in range(count):
        cursor.count_array(key)
        _read_array(cursor, key, nesting + 1)
    return LongArray(count)


def _alignment(cursor: _Cursor, metadata: dict[str, MetadataValue]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise cursor.fail(f"the alignment {alignment!r} is not a power of two")
    return alignment


def _read_tensors(
    cursor: _Cursor, count: int, alignment: int, warnings: list[str]
) -> tuple[Tensor, ...]:
    tensors: dict[str, Tensor] = {}
    unknown: dict[int, int] = {}
    for _ in range(count):
        name = cursor.string(MAX_TENSOR_NAME_BYTES, "a tensor name")
        if name in tensors:
            raise cursor.fail(f"the tensor {quoted(name)} stands twice")
        shape = _read_shape(cursor, name)
        quant = _read_tensor_type(cursor, name, shape)
        if quant.block_bytes == 0:
            unknown[quant.id] = unknown.get(quant.id, 0) + 1
        offset = cursor.unpack(_U64)
        if offset % alignment:
            raise cursor.fail(
                f"the data of tensor {quoted(name)} begin at {offset}, "
                f"which is not a multiple of {alignment}"
            )
        tensors[name] = Tensor(name=name, type=quant, shape=shape, offset=offset)
    for id_, n_tensors in unknown.items():
        warnings.append(
            f"{n_tensors} tensors have type {id_} ({unknown_quant_type(id_).name}), "
            "which this llama.cpp does not read: their bytes are not counted"
        )
    return tuple(tensors.values())


def _read_shape(cursor: _Cursor, name: str) -> tuple[int, ...]:
    n_dimensions = cursor.unpack(_U32)
    if not 1 <= n_dimensions <= MAX_DIMENSIONS:
        raise cursor.fail(f"the tensor {quoted(name)} has {n_dimensions} dimensions")
    shape = cursor.unpack_all(_SHAPES[n_dimensions - 1])
    elements = 1
    for extent in shape:
        elements *= extent
    if elements == 0:
        raise cursor.fail(f"the tensor {quoted(name)} has a dimension of zero: {shape}")
    if max(shape) >= 2**63 or elements >= 2**63:
        raise cursor.fail(f"the tensor {quoted(name)} has an impossible shape: {shape}")
    return shape


def _read_tensor_type(cursor: _Cursor, name: str, shape: tuple[int, ...]) -> QuantType:
    id_ = cursor.unpack(_U32)
    if not is_known_type_id(id_):
        return unknown_quant_type(id_)
    quant = quant_type(id_)
    if shape[0] % quant.block_size:
        raise cursor.fail(
            f"the tensor {quoted(name)} has rows of {shape[0]}, "
            f"not a multiple of the {quant.block_size} in a block of {quant.name}"
        )
    return quant
