"""How much of a file is in memory, by ``mincore``."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterable
from pathlib import Path

# Asked for in pieces: one byte of answer for each page.
_PIECE_BYTES = 1 << 30


def count_resident_bytes(paths: Iterable[str | Path]) -> int | None:
    """Count the bytes of some files that are in the page cache.

    None where the system does not say: not Linux, no such file, or a file that is neither
    ours nor writable (the kernel then answers that all of it is resident, mm/mincore.c).
    """
    if not sys.platform.startswith("linux"):
        return None
    total = 0
    for path in paths:
        resident = _count_resident(os.fspath(path))
        if resident is None:
            return None
        total += resident
    return total


def _count_resident(path: str) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        is_told = status.st_uid == os.geteuid() or os.access(path, os.W_OK)
        if not is_told:
            return None
        return sum(
            _count_piece(descriptor, start, min(_PIECE_BYTES, status.st_size - start))
            for start in range(0, status.st_size, _PIECE_BYTES)
        )
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def _count_piece(descriptor: int, start: int, length: int) -> int:
    """Ask for one piece; a private mapping that nothing touches shows the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.PAGESIZE
    answer = (ctypes.c_ubyte * -(-length // page))()
    with mmap.mmap(descriptor, length, access=mmap.ACCESS_COPY, offset=start) as piece:
        first = ctypes.c_char.from_buffer(piece)
        failed = libc.mincore(
            ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(length), answer
        )
        del first  # else the mapping cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    pages = bytes(answer)
    resident = (len(pages) - pages.count(0)) * page
    # The last page may reach beyond the end of the file.
    return min(resident, length)
