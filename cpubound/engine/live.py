"""Decode a model and watch the engine while it does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from cpubound import stats
from cpubound.engine.runner import Runner
from cpubound.engine.values import RunSettings
from cpubound.engine.watch import LiveFacts, Watch, live_facts
from cpubound.machine.activity import count_resident_bytes

RUN_SECONDS = 1.0
MIN_TOKENS, MAX_TOKENS = 8, 64
MIN_RUNS = 3
_REFERENCES = 3

Progress = Callable[[str, float], None]
Reference = Callable[[int], float]


class LocalRunner(Runner, Protocol):
    """A runner whose engine is a process of this machine."""

    @property
    def pid(self) -> int | None:
        """The number of the process, None when none runs."""
        ...


def watch_decode(
    runner: LocalRunner,
    settings: RunSettings,
    *,
    seconds: float,
    start_watch: Callable[[int], Watch],
    reference: Reference | None,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> LiveFacts:
    """Decode at a setting until the time is over, after one run that is not watched.

    Parameters
    ----------
    settings : its ``tokens`` are not used: a run takes about a second.
    seconds : how long to watch; three runs whatever they take.
    start_watch : given the engine's process number, a watch to run under.
    reference : measures read bandwidth at a thread count, bytes/s; before and after.

    Raises what the runner raises.
    """
    first = runner.run(msgspec.structs.replace(settings, tokens=MIN_TOKENS))
    tokens = max(MIN_TOKENS, min(MAX_TOKENS, round(RUN_SECONDS / stats.median(first.samples_s))))
    here = msgspec.structs.replace(settings, tokens=tokens)
    bandwidth = _measure(reference, settings.setting.threads)
    runs_s: list[tuple[float, ...]] = []
    pid = runner.pid or 0
    started = clock()
    with start_watch(pid) as watch:
        while len(runs_s) < MIN_RUNS or clock() - started < seconds:
            runs_s.append(runner.run(here).samples_s)
            progress("watching", min(1.0, (clock() - started) / seconds))
    bandwidth += _measure(reference, settings.setting.threads)
    facts = live_facts(
        runs_s,
        settings.setting.threads,
        watch.samples,
        watch.processes,
        without={pid, os.getpid()},
    )
    return msgspec.structs.replace(
        facts, read_bytes_per_s=stats.median(bandwidth) if bandwidth else None
    )


def add_residency(facts: LiveFacts, paths: Sequence[str], file_bytes: int) -> LiveFacts:
    """Add how much of the model's files is in memory now."""
    return msgspec.structs.replace(
        facts, file_bytes=file_bytes, resident_bytes=count_resident_bytes(paths)
    )


def _measure(reference: Reference | None, threads: int) -> list[float]:
    return [] if reference is None else [reference(threads) for _ in range(_REFERENCES)]
