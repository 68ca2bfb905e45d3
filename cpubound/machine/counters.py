"""Counters that a running process moves, beside those of the machine it runs on."""

from __future__ import annotations

import mmap
import re
import time
from dataclasses import dataclass

from cpubound.machine.activity import Activity, read_activity
from cpubound.machine.files import CpuSet, Root, parse_integer
from cpubound.machine.limits import read_quota_periods

_TOTAL = re.compile(r"^some .*\btotal=([0-9]{1,19})\b", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Counters:
    """What the kernel had counted at a moment; what it does not tell is None.

    ``wait_s`` is the time in which threads of the process were ready and had no CPU,
    ``memory_stall_s`` that in which some task of the machine waited for memory.
    """

    at_s: float  # monotonic
    machine: Activity
    minor_faults: int | None = None
    major_faults: int | None = None
    read_bytes: int | None = None  # from storage
    wait_s: float | None = None
    quota_periods: int | None = None
    memory_stall_s: float | None = None
    swapped_bytes: int | None = None


def read_counters(root: Root, pid: int, cpus: CpuSet) -> Counters:
    """Read the counters of a process and of its machine; ``cpus`` are those whose clock matters.

    A process that is gone, or another user's, has fewer counters or none.
    """
    minor, major = _read_faults(root, pid)
    return Counters(
        at_s=time.monotonic(),
        machine=read_activity(root, cpus),
        minor_faults=minor,
        major_faults=major,
        read_bytes=parse_integer(root.read_fields(f"/proc/{pid}/io").get("read_bytes", "")),
        wait_s=_read_wait(root, pid),
        quota_periods=read_quota_periods(root)[0],
        memory_stall_s=_read_memory_stall(root),
        swapped_bytes=_read_swapped(root),
    )


def _read_faults(root: Root, pid: int) -> tuple[int | None, int | None]:
    """Return minor and major faults: fields 10 and 12 of ``stat`` (proc(5))."""
    text = root.read_text(f"/proc/{pid}/stat") or ""
    # The name, in parentheses, may hold anything.
    words = text.rpartition(")")[2].split()
    if len(words) < 10:
        return None, None
    return parse_integer(words[7]), parse_integer(words[9])


def _read_wait(root: Root, pid: int) -> float | None:
    """Sum what the threads waited on run queues: the second number of ``schedstat``, in ns."""
    folder = f"/proc/{pid}/task"
    waits = []
    for task in root.list_folder(folder):
        words = (root.read_text(f"{folder}/{task}/schedstat") or "").split()
        wait_ns = parse_integer(words[1]) if len(words) == 3 else None
        if wait_ns is not None:
            waits.append(wait_ns)
    return sum(waits) / 1e9 if waits else None


def _read_memory_stall(root: Root) -> float | None:
    """Read pressure stall information, in µs (Documentation/accounting/psi.rst of Linux)."""
    match = _TOTAL.search(root.read_text("/proc/pressure/memory") or "")
    return int(match[1]) / 1e6 if match else None


def _read_swapped(root: Root) -> int | None:
    """Read what was moved to and from swap since the machine started."""
    rows = [line.split() for line in (root.read_text("/proc/vmstat") or "").splitlines()]
    pages = [
        number
        for row in rows
        if len(row) == 2 and row[0] in ("pswpin", "pswpout")
        if (number := parse_integer(row[1])) is not None
    ]
    return sum(pages) * mmap.PAGESIZE if len(pages) == 2 else None
