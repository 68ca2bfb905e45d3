"""Tolerant readers of ``/proc`` and ``/sys``: what is missing or garbled is ``None``."""

from __future__ import annotations

import os
import re
import stat
from functools import lru_cache
from pathlib import Path

from cpubound import bounds

CpuSet = frozenset[int]

# Linux kernels are built for at most 8,192 CPUs; a larger number is a damaged file.
MAX_CPUS = 16_384
_RANGE = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7})(?::([0-9]{1,7})(?:/([0-9]{1,7}))?)?)?")
_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})")
_SIZE = re.compile(r"([0-9]{1,15})\s*([KMGTkmgt]?)(?:i?[Bb])?")
_SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@lru_cache(maxsize=4096)
def parse_cpu_list(text: str) -> CpuSet | None:
    """Read a CPU list as the kernel writes it (``0-3,8``) or takes it (``0-14:2``, ``0-31:2/8``).

    An empty list is an empty set. Returns None for anything else: garbage, a range that
    runs backwards, a number that no kernel supports. Nothing large is ever built.
    """
    cpus: set[int] = set()
    text = text.strip().strip("\0")
    if not text:
        return frozenset()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return None
        first = int(match[1])
        last = int(match[2]) if match[2] is not None else first
        # "A-B:S" is every S-th; "A-B:U/G" the first U of every G.
        used, group = (
            (1, int(match[3] or 1)) if match[4] is None else (int(match[3]), int(match[4]))
        )
        if last < first or last >= MAX_CPUS or not 1 <= used <= group:
            return None
        cpus.update(cpu for cpu in range(first, last + 1) if (cpu - first) % group < used)
    return frozenset(cpus)


@lru_cache(maxsize=4096)
def parse_cpu_mask(text: str) -> CpuSet | None:
    """Read a CPU mask as the kernel writes it (``00000000,0000f06f``), lowest CPU last.

    Returns None for garbage and for a mask longer than any kernel's.
    """
    words = text.strip().removeprefix("0x").split(",")
    if any(not re.fullmatch(r"[0-9a-fA-F]+", word) for word in words):
        return None
    # Groups after the first are padded, so joining them keeps their places.
    digits = "".join(words).lstrip("0")
    if len(digits) * 4 > MAX_CPUS:
        return None
    bits = bin(int(digits or "0", 16))[:1:-1]
    return frozenset(cpu for cpu, bit in enumerate(bits) if bit == "1")


def parse_integer(text: str) -> int | None:
    """Read one decimal or ``0x`` integer; None if it is anything else."""
    text = text.strip()
    return int(text, 0 if "x" in text.lower() else 10) if _INTEGER.fullmatch(text) else None


def parse_size(text: str) -> int | None:
    """Read a size in bytes with a binary unit (``32K``, ``16384 kB``); None if not one."""
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _SIZE_UNITS[match[2].upper()] if match else None


def parse_fields(text: str) -> dict[str, str]:
    """Read ``key: value`` lines; the first of equal keys counts, other lines are skipped."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, found, value = line.partition(":")
        if found:
            fields.setdefault(key.strip(), value.strip())
    return fields


class Root:
    """The file system that facts are read from: the running one or a snapshot of another.

    Paths are absolute, as on the machine itself. Under a snapshot a symbolic link that
    leads outside is not followed: a snapshot never shows the machine it is read on.
    """

    def __init__(self, sysroot: Path | None = None) -> None:
        self.is_live = sysroot is None
        self._top = "" if sysroot is None else os.path.realpath(sysroot).rstrip("/")
        self._inside: dict[str, bool] = {}

    def read_bytes(self, path: str) -> bytes | None:
        """Read a regular file, at most 8 MiB of it."""
        full = self._top + path
        if not self._may_read(full):
            return None
        try:
            # Without O_NONBLOCK a named pipe in a snapshot would wait for ever.
            handle = os.open(full, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except (OSError, ValueError):
            return None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            return _read_all(handle)
        except OSError:
            return None
        finally:
            os.close(handle)

    def read_text(self, path: str) -> str | None:
        """Read a file as text without the white space around it."""
        content = self.read_bytes(path)
        return None if content is None else content.decode("utf-8", "replace").strip()

    def read_integer(self, path: str) -> int | None:
        """Read a file that holds one integer."""
        text = self.read_text(path)
        return None if text is None else parse_integer(text)

    def read_size(self, path: str) -> int | None:
        """Read a file that holds one size."""
        text = self.read_text(path)
        return None if text is None else parse_size(text)

    def read_cpu_list(self, path: str) -> CpuSet | None:
        """Read a file that holds a CPU list."""
        text = self.read_text(path)
        return None if text is None else parse_cpu_list(text)

    def read_cpu_mask(self, path: str) -> CpuSet | None:
        """Read a file that holds a CPU mask."""
        text = self.read_text(path)
        return None if text is None else parse_cpu_mask(text)

    def read_cpus(self, folder: str, *names: str) -> CpuSet | None:
        """Read the first usable of several CPU sets: ``NAME_list`` beside the mask ``NAME``."""
        for name in names:
            # Old kernels have only the mask.
            cpus = self.read_cpu_mask(f"{folder}/{name}")
            if cpus is None:
                cpus = self.read_cpu_list(f"{folder}/{name}_list")
            if cpus:
                return cpus
        return None

    def read_fields(self, path: str) -> dict[str, str]:
        """Read a file of ``key: value`` lines; empty if there is none."""
        return parse_fields(self.read_text(path) or "")

    def list_folder(self, path: str) -> tuple[str, ...]:
        """List the names in a folder, sorted; empty if there is none."""
        full = self._top + path
        if not self._may_read(full):
            return ()
        try:
            return tuple(sorted(os.listdir(full)))  # noqa: PTH208 (names, not paths)
        except (OSError, ValueError):
            return ()

    def list_numbers(self, path: str, prefix: str) -> tuple[int, ...]:
        """List the numbers N of the entries ``PREFIXN`` of a folder, in order."""
        numbers = []
        for name in self.list_folder(path):
            digits = name.removeprefix(prefix)
            if digits != name and digits.isascii() and digits.isdigit() and len(digits) < 8:
                numbers.append(int(digits))
        return tuple(sorted(n for n in numbers if n < MAX_CPUS))

    def exists(self, path: str) -> bool:
        """Say whether a path exists."""
        full = self._top + path
        try:
            return self._may_read(full) and os.path.exists(full)  # noqa: PTH110 (speed)
        except ValueError:
            return False

    def _may_read(self, full: str) -> bool:
        if self.is_live:
            return True
        try:
            folder, _, name = full.rpartition("/")
            if folder not in self._inside:
                real = os.path.realpath(folder)
                self._inside[folder] = self._contains(real) and os.path.isdir(real)  # noqa: PTH112
            if self._inside[folder] and (name == ".." or os.path.islink(full)):  # noqa: PTH114
                return self._contains(os.path.realpath(full))
            return self._inside[folder]
        except (OSError, ValueError):
            return False  # a name that cannot be one: too long, or with a NUL in it

    def _contains(self, real: str) -> bool:
        return real == self._top or real.startswith(self._top + "/")


def _read_all(handle: int) -> bytes:
    chunks = []
    left = bounds.MACHINE_FILE_BYTES
    while left > 0:
        chunk = os.read(handle, min(left, 2**16))
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)
