"""Nothing outlives a run: not its processes, not its files, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cpubound.engine import tied

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

# A worker that says it is busy, in native code, for ever.
BUSY = """
import ctypes, os, pathlib, sys
from cpubound.engine import worker
def hang():
    pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
    while True:
        ctypes.CDLL(None).pause()
worker._open_session = hang
worker.main()
"""
PARENT_OF_A_WORKER = f"""
import sys
from cpubound.engine.child import ChildProcess
from cpubound.engine.processes import python_command
from cpubound.engine.protocol import CloseModel
ChildProcess((*python_command({BUSY!r}), sys.argv[1])).ask(CloseModel(model_path="x"))
"""
PARENT_OF_A_BENCH = """
import os, sys
from pathlib import Path
from cpubound.engine.llama_bench import LlamaBenchRunner
bench = Path(sys.argv[1]).with_name("llama-bench")
bench.write_text(f"#!/bin/sh\\necho $$ > {sys.argv[1]}\\nexec sleep 1000\\n")
bench.chmod(0o755)
LlamaBenchRunner(bench).identity()
"""


def wait_until(condition: Callable[[], bool], at_most_s: float = 60.0) -> None:
    deadline = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Gone, or waiting for nothing but to be asked for its exit code."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def written_number(place: Path) -> int | None:
    text = place.read_text() if place.exists() else ""
    return int(text) if text.strip() else None


@pytest.mark.parametrize("code", [PARENT_OF_A_WORKER, PARENT_OF_A_BENCH], ids=["worker", "bench"])
def test_a_process_ends_with_a_parent_that_is_killed(tmp_path: Path, code: str) -> None:
    place = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", code, str(place)]) as parent:
        wait_until(lambda: written_number(place) is not None)
        pid = written_number(place)
        assert pid is not None
        assert not has_ended(pid)
        parent.kill()
    wait_until(lambda: has_ended(pid))


def run_tied(parent: int, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", tied.__file__, str(parent), *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_program_whose_parent_ended_before_it_began_is_not_executed() -> None:
    done = run_tied(os.getpid() + 1, "/bin/echo", "executed")
    assert (done.returncode, done.stdout) == (tied.CANNOT_EXECUTE, "")


def test_a_tied_program_gives_its_own_output_and_exit_code() -> None:
    done = run_tied(os.getpid(), "/bin/sh", "-c", "echo out; echo err >&2; kill -ABRT $$")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGABRT, "out\n", "err\n")


def test_a_tied_program_ignores_no_more_signals_than_it_would() -> None:
    command = ("/bin/grep", "SigIgn", "/proc/self/status")
    plain = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run_tied(os.getpid(), *command).stdout == plain.stdout


# A run with a model's folder and a worker, forked once for each of its lines; the signal comes
# in that line, and a second one a few lines later. Prints each exit code and what was left.
EVERY_GAP = """
import contextlib, os, signal, sys
from pathlib import Path
from cpubound.cli.termination import Ended, ended_by_signals
from cpubound import temporary
from cpubound.engine import child, inprocess, synth
from cpubound.engine.protocol import CloseModel

WORKER = ("/bin/sh", "-c", "echo $$ > $0; while read line; do echo '{\\"type\\":\\"done\\"}'; done")
HERE = {module.__file__ for module in (child, contextlib, inprocess, temporary)}
place, number = Path(sys.argv[1]), int(sys.argv[2])

def command():
    with inprocess.LlamaCppRunner((*WORKER, str(place / "pid"))) as runner:
        with temporary.model_folder(place) as folder:
            with temporary.partial_file(folder / "model.gguf") as output:
                output.write(b"GGUF")
            runner._ask(CloseModel(model_path="x"), object)

def main(lines, second):
    seen = 0
    def trace(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename not in HERE:
            return None
        if event == "line":
            seen += 1
            if seen in (lines, lines + second):
                os.kill(os.getpid(), number)
        return trace
    try:
        with ended_by_signals():
            sys.settrace(trace)
            try:
                command()
            finally:
                sys.settrace(None)
    except Ended as ended:
        sys.exit(ended.exit_code)

lines, code = 0, None
while code != 0:
    lines += 1
    pid = os.fork()
    if pid == 0:
        main(lines, second=1 + lines % 7)
        sys.exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    worker = (place / "pid").read_text().strip() if (place / "pid").exists() else ""
    (place / "pid").unlink(missing_ok=True)
    print(code, worker or "-", len(list(place.iterdir())), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_two_signals_at_any_line_of_a_run_leave_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERY_GAP, str(tmp_path), str(int(number))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(rows) > 100, done.stderr
    assert {code for code, *_ in rows[:-1]} == {str(128 + number)}, done.stderr
    assert {left for *_, left in rows} == {"0"}
    for _, worker, _ in rows:
        wait_until(lambda pid=worker: pid == "-" or has_ended(int(pid)))
