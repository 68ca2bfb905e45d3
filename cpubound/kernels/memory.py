"""Memory of one page kind, and what kind the system really gave."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from cpubound.errors import MachineError, UsageError
from cpubound.kernels.table import load_native
from cpubound.units import format_binary_bytes

PAGE_KINDS = ("anon_4k", "anon_2m", "file")
# From this share on a mapping counts as made of huge pages; below its complement, of small.
_CLEAR_SHARE = 0.9


def allocate(n_bytes: int, page_kind: str) -> Any:
    """Map memory that no thread has touched yet.

    Parameters
    ----------
    n_bytes : more than zero.
    page_kind : "anon_4k" (huge pages refused), "anon_2m" (huge pages asked for) or "file"
        (a temporary file, mapped; it vanishes with the mapping).

    Returns
    -------
    A ``cpubound._kernels.Memory``.

    Raises
    ------
    MachineError : the system refused.
    UsageError : no such page kind.
    """
    native = load_native()
    if page_kind not in PAGE_KINDS:
        raise UsageError(f"no such page kind ({page_kind}): choose from {', '.join(PAGE_KINDS)}")
    size = format_binary_bytes(n_bytes)
    physical = _physical_bytes()
    if physical is not None and n_bytes > physical:
        raise MachineError(
            f"the buffer is larger than memory ({size} of {format_binary_bytes(physical)}): "
            "use a smaller working set"
        )
    if page_kind == "file":
        return _allocate_file(n_bytes)
    try:
        return native.Memory(
            n_bytes, native.PAGES_HUGE if page_kind == "anon_2m" else native.PAGES_4K
        )
    except OSError as error:
        raise MachineError(
            f"the system refused a buffer ({size}, {error.strerror}): use a smaller working set"
        ) from error


def _allocate_file(n_bytes: int) -> Any:
    native = load_native()
    directory = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile() as file:
            # Reserves the space, so that a full disk is an error here and not a SIGBUS later.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, n_bytes)
            else:
                file.truncate(n_bytes)
            return native.Memory(n_bytes, native.PAGES_FILE, file.fileno())
    except OSError as error:
        raise MachineError(
            f"no room for a file to map ({format_binary_bytes(n_bytes)} in {directory}, "
            f"{error.strerror}): free some space or set TMPDIR"
        ) from error


def obtained_page_kind(memory: Any, asked: str, smaps: Path = Path("/proc/self/smaps")) -> str:
    """Return the page kind of touched memory: "anon_4k", "anon_2m", "anon" or "file".

    Anonymous memory is what the kernel says of its mapping; "anon" is a mixture or unknown. Where
    it says nothing, small pages are taken to be so: large ones were refused for that mapping.
    """
    if asked == "file":
        return asked
    try:
        text = smaps.read_text(encoding="ascii", errors="replace")
    except OSError:
        return asked if asked == "anon_4k" else "anon"
    share = huge_share(text, memory.address, len(memory))
    if share is None:
        return "anon"
    if share >= _CLEAR_SHARE:
        return "anon_2m"
    return "anon_4k" if share <= 1 - _CLEAR_SHARE else "anon"


def huge_share(smaps: str, address: int, n_bytes: int) -> float | None:
    """Return the share of huge pages in the mappings that hold a range, or None.

    Parameters
    ----------
    smaps : the text of ``/proc/PID/smaps`` (``Documentation/filesystems/proc.rst``).
    """
    inside = False
    resident = huge = 0
    for line in smaps.splitlines():
        first = line.split(maxsplit=1)[0] if line.strip() else ""
        if "-" in first and not first.endswith(":"):
            start, end = (int(bound, 16) for bound in first.split("-"))
            inside = start < address + n_bytes and end > address
        elif inside and first == "Rss:":
            resident += int(line.split()[1])
        elif inside and first == "AnonHugePages:":
            huge += int(line.split()[1])
    return huge / resident if resident else None


def _physical_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
