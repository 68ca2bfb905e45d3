"""Memory devices in the firmware's SMBIOS tables."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from cpubound.machine.channels import find_channel
from cpubound.machine.values import MemoryModule

_MEMORY_DEVICE = 17
_END_OF_TABLE = 127
_MAX_STRUCTURES = 65_536

# DMTF DSP0134 (System Management BIOS), 7.18.2: memory device type.
_NOT_MAIN_MEMORY = {0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x1F}  # ROM, flash and the like
_TYPES = {
    0x12: "DDR",
    0x13: "DDR2",
    0x18: "DDR3",
    0x1A: "DDR4",
    0x1B: "LPDDR",
    0x1C: "LPDDR2",
    0x1D: "LPDDR3",
    0x1E: "LPDDR4",
    0x20: "HBM",
    0x21: "HBM2",
    0x22: "DDR5",
    0x23: "LPDDR5",
    0x24: "HBM3",
}


def parse_memory_modules(table: bytes) -> tuple[MemoryModule, ...]:
    """Read the memory devices (type 17) of an SMBIOS table; damaged ones are left out.

    Source: DMTF DSP0134, section 7.18.
    """
    modules = []
    for kind, body, strings in _structures(table):
        if kind == _MEMORY_DEVICE:
            module = _parse_module(body, strings)
            if module is not None:
                modules.append(module)
    return tuple(modules)


def _structures(table: bytes) -> Iterator[tuple[int, bytes, tuple[str, ...]]]:
    """Yield type, formatted area and strings of each structure while the table makes sense."""
    position = 0
    for _ in range(_MAX_STRUCTURES):
        if position + 4 > len(table):
            return
        kind, length = table[position], table[position + 1]
        end = table.find(b"\0\0", position + length)
        if length < 4 or end < 0 or kind == _END_OF_TABLE:
            return
        words = table[position + length : end].split(b"\0")
        strings = tuple(word.decode("latin-1").strip() for word in words)
        yield kind, table[position : position + length], strings
        position = end + 2


def _parse_module(body: bytes, strings: tuple[str, ...]) -> MemoryModule | None:
    size = _module_size(body)
    kind = body[0x12] if len(body) > 0x12 else None
    if not size or kind in _NOT_MAIN_MEMORY:
        return None  # an empty slot, or the firmware's own chip
    locator, bank = _string(body, 0x10, strings), _string(body, 0x11, strings)
    data_width = _word(body, 0x0A)
    rated = _speed(body, 0x15, 0x54)
    return MemoryModule(
        locator=locator,
        type=None if kind is None else _TYPES.get(kind),
        size_bytes=size,
        transfers_per_s=_speed(body, 0x20, 0x58) or rated,
        rated_transfers_per_s=rated,
        width_bits=None if data_width in (None, 0, 0xFFFF) else data_width,
        channel=find_channel(locator, bank),
    )


def _module_size(body: bytes) -> int | None:
    size = _word(body, 0x0C)
    if size is None or size == 0xFFFF:
        return None
    if size == 0x7FFF:
        extended = _double_word(body, 0x1C)
        return None if extended is None else (extended & 0x7FFF_FFFF) * 2**20
    return (size & 0x7FFF) * (2**10 if size & 0x8000 else 2**20)


def _speed(body: bytes, offset: int, extended_offset: int) -> int | None:
    """Read a speed, given in million transfers a second; 0 is unknown, 0xFFFF see elsewhere."""
    speed = _word(body, offset)
    if speed == 0xFFFF:
        speed = _double_word(body, extended_offset)
    return speed * 1_000_000 if speed else None


def _string(body: bytes, offset: int, strings: tuple[str, ...]) -> str | None:
    index = body[offset] if len(body) > offset else 0
    return strings[index - 1] or None if 0 < index <= len(strings) else None


def _word(body: bytes, offset: int) -> int | None:
    if len(body) < offset + 2:
        return None
    value: int = struct.unpack_from("<H", body, offset)[0]
    return value


def _double_word(body: bytes, offset: int) -> int | None:
    if len(body) < offset + 4:
        return None
    value: int = struct.unpack_from("<I", body, offset)[0]
    return value
