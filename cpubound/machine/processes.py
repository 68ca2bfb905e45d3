"""Who else uses the CPUs: the processor time of other processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessTime:
    """The processor time that a process has used so far."""

    name: str
    cpu_s: float


def read_process_times() -> dict[tuple[int, float], ProcessTime]:
    """Read the time of every process that may be seen, by its number and its start."""
    import psutil

    found = {}
    for process in psutil.process_iter(["pid", "name", "create_time", "cpu_times"]):
        seen = process.info
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
