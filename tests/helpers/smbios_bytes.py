"""SMBIOS tables byte by byte."""

from __future__ import annotations

import struct

DDR5, LPDDR5, EMPTY = 0x22, 0x23, 0x02
END = bytes([127, 4, 0, 0, 0, 0])


def device(
    *,
    size: int = 0x4000,
    kind: int = DDR5,
    locator: str = "DIMM_A1",
    bank: str = "BANK 0",
    rated: int = 5600,
    configured: int = 5600,
    width: int = 64,
    extended_size: int = 0,
    extended_speed: int = 0,
) -> bytes:
    """A memory device structure of SMBIOS 3.3, as DSP0134 7.18 lays it out."""
    body = struct.pack(
        "<BBHHHHHHBBBBBHHBBBBBIHHHHB",
        17, 0x5C, 0x1100, 0x1000, 0xFFFE, width + 8, width, size, 9, 0, 1, 2, kind, 0,
        rated, 0, 0, 0, 0, 0, extended_size, configured, 0, 0, 0, 0,
    )  # fmt: skip
    body = body.ljust(0x54, b"\0") + struct.pack("<II", extended_speed, extended_speed)
    return body + b"\0".join([locator.encode(), bank.encode()]) + b"\0\0"


def bios() -> bytes:
    return bytes([0, 4, 0, 0]) + b"Vendor\0Version\0\0"
