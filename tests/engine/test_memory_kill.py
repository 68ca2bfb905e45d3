"""llama.cpp that the system kills because memory ran out: the parent lives and says so."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_machine import FakeMachine

from cpubound.engine.processes import MemoryKills
from cpubound.machine.files import Root
from cpubound.machine.limits import read_memory_kills

KILLED = -signal.SIGKILL if hasattr(signal, "SIGKILL") else -9
LIMIT_BYTES = 96 * 2**20

# In the group, so that its children are too: an engine that takes all memory there is.
PARENT = """
import os, sys
from pathlib import Path
from cpubound.engine.child import ChildProcess
from cpubound.engine.processes import python_command
from cpubound.engine.protocol import CloseModel
from cpubound.errors import EngineCrashed

Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
child = ChildProcess(python_command('''
from cpubound.engine import worker
def take_all():
    taken = []
    while True:
        taken.append(bytearray(b"x") * 2**20)
worker._open_session = take_all
worker.main()
'''))
try:
    child.ask(CloseModel(model_path="x"))
except EngineCrashed as error:
    print(error)
"""


def kills(*counts: int | None) -> MemoryKills:
    reads = iter(counts)
    return MemoryKills(lambda: next(reads))


def test_a_kill_that_the_system_counted_is_one_for_memory() -> None:
    assert kills(3, 4).explain(KILLED) == "it was killed for memory"
    assert kills(3, 3).explain(KILLED) is None


def test_where_the_system_does_not_count_a_kill_may_be_one_for_memory() -> None:
    assert "as the system does where memory runs out" in str(kills(None, None).explain(KILLED))


@pytest.mark.parametrize("code", [0, 1, -6, -11])
def test_another_end_is_none_for_memory(code: int) -> None:
    assert kills(3, 4).explain(code) is None


def test_kills_are_read_of_the_group_and_of_the_machine(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    assert read_memory_kills(Root(machine.folder)) is None
    machine.write("/proc/vmstat", "pgfault 7\noom_kill 2")
    assert read_memory_kills(Root(machine.folder)) == 2
    machine.write("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    machine.write("/proc/self/cgroup", "0::/box")
    machine.write("/sys/fs/cgroup/box/memory.events", "oom 9\noom_kill 5\noom_group_kill 1")
    assert read_memory_kills(Root(machine.folder)) == 7


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with little memory, of whichever version; made as root only."""
    for parent, limit in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        group = Path(parent, f"cpubound-test-{os.getpid()}")
        with contextlib.suppress(OSError):
            group.mkdir()
            try:
                (group / limit).write_text(str(LIMIT_BYTES))
                yield group
            finally:
                group.rmdir()
            return
    pytest.skip("control groups cannot be made here")


def test_an_engine_that_takes_all_memory_is_killed_and_that_is_said(small_group: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PARENT, str(small_group)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "llama.cpp ended inside a run (it was killed for memory;" in done.stdout


def test_the_limit_of_a_real_group_is_read(small_group: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; "
        "Path(sys.argv[1], 'cgroup.procs').write_text(str(os.getpid())); "
        "from cpubound.machine.read import read_machine; "
        "print(read_machine().memory_limit_bytes)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(small_group)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == LIMIT_BYTES
