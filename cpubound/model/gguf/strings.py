"""Step over the strings of a GGUF array without building them.

A vocabulary is some hundred thousand length-prefixed strings and each length says where
the next begins, so they can only be walked. A compiled twin walks them where it was
built; the walk in Python gives the same answers.
"""

from __future__ import annotations

from struct import Struct

_LENGTH = Struct("<Q")
# Past this a position no longer fits the 64-bit offsets that files have.
_END_OF_ALL_FILES = 0x3FFFFFFFFFFFFFFF


def skip_strings_in_python(window: bytes, position: int, count: int) -> tuple[int, int]:
    """Step over up to ``count`` length-prefixed strings that begin inside ``window``.

    Returns the position after the last string stepped over, which may lie beyond the
    window, and how many are left: those whose length is not wholly in the window. The
    position is -1 where a length is beyond any file.
    """
    last = len(window) - _LENGTH.size
    unpack = _LENGTH.unpack_from
    while count and position <= last:
        length = unpack(window, position)[0]
        if length > _END_OF_ALL_FILES - position:
            return -1, count
        position += 8 + length
        count -= 1
    return position, count


try:
    from cpubound.model.gguf._skip import skip_strings
except ImportError:
    skip_strings = skip_strings_in_python

__all__ = ["skip_strings", "skip_strings_in_python"]
