"""What the machine and a process did up to now: two readings tell what disturbed a measurement.

Counters of the machine, of one process, the processor time of all others, and how much of a
file is in memory.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpubound.machine.files import CpuSet, Root, parse_integer
from cpubound.machine.limits import read_quota_periods
from cpubound.machine.power import read_throttle_events
from cpubound.machine.topology import CPU_FOLDER

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Clocks differ little among the CPUs of a team, and each file costs the kernel a call to it.
_CLOCKS_READ = 16
_USUAL_TICKS_PER_S = 100
_STALL_TOTAL = re.compile(r"^some .*\btotal=([0-9]{1,19})\b", re.MULTILINE)
# Residency is asked in pieces: one byte of answer for each page.
_PIECE_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """Counters since boot, and of this process; None where the system does not tell."""

    busy_s: float | None = None  # CPU time of all programs, without idling and stealing
    steal_s: float | None = None  # CPU time that a hypervisor gave to others
    total_s: float | None = None  # CPU time of all CPUs, idle or not
    own_s: float | None = None  # CPU time of this process and its threads
    throttled_periods: int | None = None
    throttle_events: int | None = None
    mean_khz: float | None = None
    load_average: float | None = None
    preemptions: int | None = None
    page_faults: int | None = None


def read_activity(root: Root, cpus: CpuSet) -> Activity:
    """Read the counters now; ``cpus`` are those whose heat and clock matter."""
    busy, steal, total = _read_cpu_times(root)
    own, preemptions, page_faults = _read_own_use(root)
    return Activity(
        busy_s=busy,
        steal_s=steal,
        total_s=total,
        own_s=own,
        throttled_periods=read_quota_periods(root)[1],
        throttle_events=read_throttle_events(root, cpus),
        mean_khz=_read_mean_khz(root, cpus),
        load_average=read_load_average(root),
        preemptions=preemptions,
        page_faults=page_faults,
    )


def read_steal_fraction(root: Root) -> float | None:
    """Read the share of CPU time since boot that a hypervisor gave to others."""
    ticks = _read_cpu_ticks(root)
    if len(ticks) < 8 or min(ticks) < 0 or not sum(ticks):
        return None
    return ticks[7] / sum(ticks)


def read_load_average(root: Root) -> float | None:
    """Read the mean number of runnable threads over the last minute."""
    words = (root.read_text("/proc/loadavg") or "").split()
    if not words or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", words[0]):
        return None
    return float(words[0])


def _read_cpu_times(root: Root) -> tuple[float | None, float | None, float | None]:
    """Read busy, stolen and total seconds of all CPUs."""
    ticks = _read_cpu_ticks(root)
    if not ticks:
        return None, None, None
    seconds = [tick / _ticks_per_s(root) for tick in ticks]
    idle = sum(seconds[3:5])
    steal = seconds[7] if len(seconds) > 7 else None
    return sum(seconds) - idle - (steal or 0.0), steal, sum(seconds)


def _read_cpu_ticks(root: Root) -> list[int]:
    """Read the first line of ``/proc/stat``, 4 to 8 numbers; empty if it is not as it should be.

    Its fields are user, nice, system, idle, iowait, irq, softirq, steal, in ticks; the guest
    times after them are part of user and nice (``Documentation/filesystems/proc.rst``).
    """
    lines = (root.read_text("/proc/stat") or "").splitlines()
    words = lines[0].split() if lines else []
    if not words or words[0] != "cpu":
        return []
    ticks = [parse_integer(word) for word in words[1:9]]
    known = [tick for tick in ticks if tick is not None]
    return known if 4 <= len(known) == len(ticks) else []


def count_page_faults() -> int | None:
    """Count the page faults of this process so far."""
    return None if resource is None else _count_faults(resource.getrusage(resource.RUSAGE_SELF))


def _read_own_use(root: Root) -> tuple[float | None, int | None, int | None]:
    if not root.is_live or resource is None:
        return None, None, None
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime, use.ru_nivcsw, _count_faults(use)


def _count_faults(use: resource.struct_rusage) -> int:
    return use.ru_minflt + use.ru_majflt


def _read_mean_khz(root: Root, cpus: CpuSet) -> float | None:
    chosen = sorted(cpus)[:_CLOCKS_READ]
    clocks = [root.read_integer(f"{CPU_FOLDER}/cpu{n}/cpufreq/scaling_cur_freq") for n in chosen]
    known = [clock for clock in clocks if clock is not None and clock > 0]
    return sum(known) / len(known) if known else None


def _ticks_per_s(root: Root) -> int:
    try:
        return os.sysconf("SC_CLK_TCK") if root.is_live else _USUAL_TICKS_PER_S
    except (AttributeError, OSError, ValueError):
        return _USUAL_TICKS_PER_S


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
    match = _STALL_TOTAL.search(root.read_text("/proc/pressure/memory") or "")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessTime:
    """The processor time that a process has used so far."""

    name: str
    cpu_s: float


def read_process_times() -> dict[tuple[int, float], ProcessTime]:
    """Read the time of every process that may be seen, by its number and its start.

    None may be where the system hides them.
    """
    import psutil

    found = {}
    seen_processes: list[dict[str, Any]] = []
    with suppress(OSError, IndexError):  # psutil's answer where there is no /proc
        processes = psutil.process_iter(["pid", "name", "create_time", "cpu_times"])
        seen_processes = [process.info for process in processes]
    for seen in seen_processes:
        times = seen["cpu_times"]
        if times is not None and seen["create_time"] is not None:
            key = (seen["pid"], seen["create_time"])
            found[key] = ProcessTime(name=seen["name"] or "?", cpu_s=times.user + times.system)
    return found


def cpus_used_between(
    before: Mapping[tuple[int, float], ProcessTime],
    after: Mapping[tuple[int, float], ProcessTime],
    seconds: float,
    *,
    without: Collection[int],
) -> dict[str, float]:
    """Return how many CPUs each program used on average, the most first.

    Processes of one name count together; ``without`` are the numbers of those left out. What
    ended in between is not seen.
    """
    used: dict[str, float] = {}
    for key, now in after.items():
        earlier = before[key].cpu_s if key in before else 0.0
        if key[0] not in without and seconds > 0 and now.cpu_s > earlier:
            used[now.name] = used.get(now.name, 0.0) + (now.cpu_s - earlier) / seconds
    return dict(sorted(used.items(), key=lambda item: -item[1]))


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
