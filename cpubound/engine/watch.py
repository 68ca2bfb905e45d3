"""Watch the engine while it runs: what it waits for, and who takes what it needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import TracebackType

import msgspec

from cpubound import stats
from cpubound.engine.pauses import paused_share, usual_seconds
from cpubound.machine.activity import (
    Counters,
    ProcessTime,
    cpus_used_between,
    read_counters,
    read_process_times,
)
from cpubound.machine.files import CpuSet, Root

SAMPLE_S = 0.5
_NAMED = 5  # programs


class LiveFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen while a model decoded; what the system does not tell is None.

    Faults, reads and waiting are those of the engine's process, ``steal_share``,
    ``memory_stall_share`` and ``swapped_bytes`` the machine's.
    """

    threads: int
    seconds: float
    tokens: int
    tokens_per_s: float  # median; by the clock where a quota makes pauses
    drift: float  # of the rate: second half of the runs against the first
    minor_faults_per_token: float | None = None
    major_faults_per_token: float | None = None
    storage_bytes_per_token: float | None = None  # read from disks by the engine
    file_bytes: int | None = None
    resident_bytes: int | None = None  # of the file, after the run
    quota_periods: int | None = None
    throttled_periods: int | None = None
    steal_share: float | None = None  # of all CPU time
    wait_share: float | None = None  # of the threads' time: ready, without a CPU
    memory_stall_share: float | None = None  # of the time
    swapped_bytes: int | None = None
    throttle_events: int | None = None
    clock_hz: float | None = None  # median over the run
    clock_drift: float | None = None  # second half against the first
    highest_clock_hz: float | None = None  # that the CPUs can reach
    other_cpus: float | None = None  # used by other programs, on average
    other_programs: dict[str, float] = msgspec.field(default_factory=dict)  # name -> CPUs
    read_bytes_per_s: float | None = None  # bandwidth just before and after
    calibrated_bytes_per_s: float | None = None  # the same when the profile was measured


@dataclass(kw_only=True)
class Watch:
    """Reads counters at the start, every half second, and at the end of its ``with`` block."""

    read: Callable[[], Counters]
    read_processes: Callable[[], dict[tuple[int, float], ProcessTime]] = read_process_times
    samples: list[Counters] = field(default_factory=list)
    processes: list[dict[tuple[int, float], ProcessTime]] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self.processes.append(self.read_processes())
        self.samples.append(self.read())
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self.samples.append(self.read())
        self.processes.append(self.read_processes())

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.samples.append(self.read())


def watch_process(pid: int, cpus: CpuSet, root: Root | None = None) -> Watch:
    """Return a watch over a process; ``cpus`` are those whose clocks are read."""
    place = root or Root()
    return Watch(read=lambda: read_counters(place, pid, cpus))


def live_facts(
    runs_s: Sequence[Sequence[float]],
    threads: int,
    samples: Sequence[Counters],
    processes: Sequence[dict[tuple[int, float], ProcessTime]],
    *,
    without: Collection[int],
) -> LiveFacts:
    """Sum up a watch over runs, given the seconds of every token.

    Parameters
    ----------
    runs_s : of each run in order, at least one with one token.
    samples : counters, the first from before and the last from after the runs.
    without : numbers of processes that are not other programs: the engine and this one.
    """
    first, last = samples[0], samples[-1]
    seconds = last.at_s - first.at_s
    tokens = [s for run in runs_s for s in run]
    waited = _grown(first.wait_s, last.wait_s)
    stalled = _grown(first.memory_stall_s, last.memory_stall_s)
    before, after = first.machine, last.machine
    periods = _whole(_grown(first.quota_periods, last.quota_periods))
    throttled = _whole(_grown(before.throttled_periods, after.throttled_periods))
    clocks = [s.machine.mean_khz * 1e3 for s in samples if s.machine.mean_khz is not None]
    others = cpus_used_between(processes[0], processes[-1], seconds, without=without)
    return LiveFacts(
        threads=threads,
        seconds=seconds,
        tokens=len(tokens),
        tokens_per_s=1 / usual_seconds(tokens, paused_share(periods, throttled)),
        drift=stats.relative_drift([1 / stats.median(run) for run in runs_s]),
        minor_faults_per_token=_per(first.minor_faults, last.minor_faults, len(tokens)),
        major_faults_per_token=_per(first.major_faults, last.major_faults, len(tokens)),
        storage_bytes_per_token=_per(first.read_bytes, last.read_bytes, len(tokens)),
        quota_periods=periods,
        throttled_periods=throttled,
        steal_share=_share(
            _grown(before.steal_s, after.steal_s), _grown(before.total_s, after.total_s)
        ),
        wait_share=_share(waited, threads * seconds),
        memory_stall_share=_share(stalled, seconds),
        swapped_bytes=_whole(_grown(first.swapped_bytes, last.swapped_bytes)),
        throttle_events=_whole(_grown(before.throttle_events, after.throttle_events)),
        clock_hz=stats.median(clocks) if clocks else None,
        clock_drift=stats.relative_drift(clocks) if len(clocks) >= 4 else None,
        other_cpus=sum(others.values()),
        other_programs=dict(list(others.items())[:_NAMED]),
    )


def _grown(before: float | None, after: float | None) -> float | None:
    """Return how much a counter grew; None if either is unknown, or it went back."""
    if before is None or after is None or after < before:
        return None
    return after - before


def _per(before: float | None, after: float | None, count: int) -> float | None:
    grown = _grown(before, after)
    return None if grown is None else grown / count


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
