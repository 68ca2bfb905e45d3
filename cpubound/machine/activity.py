"""What the machine did up to now, as counters: two readings tell what disturbed a measurement."""

from __future__ import annotations

import os
from dataclasses import dataclass

from cpubound.machine.files import CpuSet, Root, parse_integer
from cpubound.machine.limits import read_quota_periods
from cpubound.machine.memory import read_load_average
from cpubound.machine.power import read_throttle_events
from cpubound.machine.topology import CPU_FOLDER

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Clocks differ little among the CPUs of a team, and each file costs the kernel a call to it.
_CLOCKS_READ = 16
_USUAL_TICKS_PER_S = 100


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


def _read_cpu_times(root: Root) -> tuple[float | None, float | None, float | None]:
    """Read the first line of ``/proc/stat``: busy, stolen and total seconds of all CPUs.

    Its fields are user, nice, system, idle, iowait, irq, softirq, steal, in ticks; the guest
    times after them are part of user and nice (``Documentation/filesystems/proc.rst``).
    """
    lines = (root.read_text("/proc/stat") or "").splitlines()
    words = lines[0].split() if lines else []
    if not words or words[0] != "cpu":
        return None, None, None
    ticks = [parse_integer(word) for word in words[1:9]]
    known = [tick for tick in ticks if tick is not None]
    if len(known) < 4 or len(known) != len(ticks):
        return None, None, None
    seconds = [tick / _ticks_per_s(root) for tick in known]
    idle = sum(seconds[3:5])
    steal = seconds[7] if len(seconds) > 7 else None
    return sum(seconds) - idle - (steal or 0.0), steal, sum(seconds)


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
