"""Threads that wait for work, each pinned to a CPU, and never hang."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from cpubound.errors import MachineError
from cpubound.kernels.table import load_native

Result = TypeVar("Result")

# How long the main thread waits before it looks for a signal.
_POLL_S = 0.1


class WorkerTeam:
    """Threads that call a function once each, side by side, and hand back its results.

    An exception in one of them, or one that reaches the waiting thread (Ctrl-C), stops the
    native team: every thread leaves its barrier, and the team can only be closed.
    """

    def __init__(self, threads: int) -> None:
        self.native: Any = load_native().Team(threads)
        self._jobs: list[queue.SimpleQueue[Callable[[int], object] | None]] = [
            queue.SimpleQueue() for _ in range(threads)
        ]
        self._results: queue.SimpleQueue[tuple[int, object, BaseException | None]] = (
            queue.SimpleQueue()
        )
        self._threads = [
            threading.Thread(target=self._work, args=(rank,), daemon=True)
            for rank in range(threads)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:
            self.close()
            raise MachineError(
                f"the system refused a thread ({threads} asked for): use fewer threads"
            ) from error

    def call(self, function: Callable[[int], Result]) -> list[Result]:
        """Run ``function(rank)`` in every thread and return the results by rank.

        Raises the first exception of a worker.
        """
        if self.native.stopped:
            raise MachineError("the measurement was stopped: open the kernel again")
        for jobs in self._jobs:
            jobs.put(function)
        results: dict[int, Any] = {}
        failure: BaseException | None = None
        try:
            while len(results) < len(self._threads):
                try:
                    rank, result, error = self._results.get(timeout=_POLL_S)
                except queue.Empty:
                    continue
                results[rank] = result
                failure = failure or error
        except BaseException:
            self.native.stop()
            raise
        if failure is not None:
            raise failure
        return [results[rank] for rank in range(len(self._threads))]

    def pin(self, cpus: Sequence[int]) -> tuple[int, ...] | None:
        """Bind each thread to its CPU; None, and no thread bound, where the system refuses."""
        if not hasattr(os, "sched_setaffinity"):
            return None
        allowed = os.sched_getaffinity(0)
        if all(self.call(lambda rank: _set_affinity({cpus[rank]}))):
            return tuple(cpus)
        self.call(lambda _: _set_affinity(allowed))
        return None

    def close(self) -> None:
        """Stop what runs and wait for the threads to end."""
        self.native.stop()
        for jobs in self._jobs:
            jobs.put(None)
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_POLL_S)

    def _work(self, rank: int) -> None:
        while (job := self._jobs[rank].get()) is not None:
            try:
                self._results.put((rank, job(rank), None))
            except BaseException as error:
                self.native.stop()
                self._results.put((rank, None, error))


def _set_affinity(cpus: set[int]) -> bool:
    try:
        os.sched_setaffinity(0, cpus)
    except OSError:
        return False
    return True
