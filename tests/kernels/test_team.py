"""Threads of a team start together, stop together, and never hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from cpubound import _kernels as native
from cpubound.errors import MachineError
from cpubound.kernels.run import open_kernel
from cpubound.kernels.table import table_rows
from cpubound.kernels.team import WorkerTeam

READ = next(row for row in table_rows() if row.spec.name == "read").index
BARRIER = next(row for row in table_rows() if row.spec.name == "barrier").index


@pytest.fixture
def team():
    opened = []

    def open_team(threads: int) -> WorkerTeam:
        opened.append(WorkerTeam(threads))
        return opened[-1]

    yield open_team
    for each in opened:
        each.close()


def test_results_come_back_in_the_order_of_the_threads(team) -> None:
    assert team(5).call(lambda rank: rank * rank) == [0, 1, 4, 9, 16]


@pytest.mark.parametrize("threads", [1, 2, 3, 2 * (os.cpu_count() or 1) + 1])
def test_more_threads_than_cores_pass_every_barrier(team, threads: int) -> None:
    workers = team(threads)
    operands = native.Operands(BARRIER, [], 0)
    runs = workers.call(lambda _: workers.native.run(operands, 0, 0, 200))
    assert len(runs) == threads
    assert all(run is not None for run in runs)


def test_a_thread_returns_only_when_the_slowest_is_done(team) -> None:
    workers = team(2)
    operands = native.Operands(READ, [np.zeros(100_000, np.uint64)], 100_000)

    def run(rank: int) -> tuple[int, int]:
        _, end_ns, _ = workers.native.run(operands, 0, 100_000, 50 * rank)
        return end_ns, time.monotonic_ns()

    (_, idle_back_ns), (busy_end_ns, _) = workers.call(run)
    assert busy_end_ns <= idle_back_ns


def test_an_exception_in_one_thread_frees_the_others_and_is_raised(team) -> None:
    workers = team(2)
    operands = native.Operands(BARRIER, [], 0)

    def fail_or_wait(rank: int) -> object:
        if rank == 0:
            raise ZeroDivisionError("on purpose")
        return workers.native.run(operands, 0, 0, 1)

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        workers.call(fail_or_wait)
    with pytest.raises(MachineError, match="was stopped"):
        workers.call(lambda rank: rank)


def test_stopping_frees_a_thread_that_waits_alone() -> None:
    alone = native.Team(2)
    operands = native.Operands(BARRIER, [], 0)
    results = []
    thread = threading.Thread(target=lambda: results.append(alone.run(operands, 0, 0, 1)))
    thread.start()
    alone.stop()
    thread.join(10)
    assert results == [None]
    assert alone.stopped


def test_stopping_ends_a_run_between_two_passes() -> None:
    alone = native.Team(1)
    operands = native.Operands(READ, [np.zeros(100, np.uint64)], 100)
    results = []
    thread = threading.Thread(target=lambda: results.append(alone.run(operands, 0, 100, 10**15)))
    thread.start()
    alone.stop()
    thread.join(10)
    assert results == [None]


def test_a_team_needs_a_thread() -> None:
    with pytest.raises(ValueError, match="team of 0 threads"):
        native.Team(0)


def test_a_refused_thread_is_a_machine_error_and_leaves_none_behind(monkeypatch) -> None:
    before = threading.active_count()
    start = threading.Thread.start

    def refuse_the_third(self: threading.Thread) -> None:
        if threading.active_count() >= before + 2:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse_the_third)
    with pytest.raises(MachineError, match="4 asked for"):
        WorkerTeam(4)
    assert threading.active_count() == before


def test_closing_twice_is_harmless(team) -> None:
    workers = team(2)
    workers.close()
    workers.close()


def test_refused_affinity_leaves_threads_unpinned_and_says_so(monkeypatch) -> None:
    def refuse(_pid: int, _cpus: set[int]) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    with open_kernel("read", threads=2, working_set_bytes=1 << 16) as bench:
        assert bench.cpus is None
        assert bench.measurement([bench.sample()]).cpus is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_threads_are_pinned_where_asked_and_the_caller_is_not(team) -> None:
    before = os.sched_getaffinity(0)
    cpu = max(before)
    workers = team(2)
    assert workers.pin([cpu, cpu]) == (cpu, cpu)
    assert workers.call(lambda _: os.sched_getaffinity(0)) == [{cpu}, {cpu}]
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_ends_a_long_measurement() -> None:
    code = """
import sys
from cpubound.kernels.run import open_kernel
with open_kernel("read", threads=2, working_set_bytes=1 << 20) as bench:
    bench.sample()
    print("ready", flush=True)
    while True:
        bench.sample()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0
