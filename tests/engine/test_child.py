"""The parent's side of the engine's process, with workers that misbehave."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cpubound.engine.child import ChildProcess
from cpubound.engine.protocol import CloseModel, Done
from cpubound.errors import EngineCrashed, EngineUnavailable, MachineError, ModelFileError

REQUEST = CloseModel(model_path="x.gguf")
ANSWER = 'print(\'{"type":"done"}\', flush=True)'


@pytest.fixture
def child_running(tmp_path: Path):
    """Start a child whose worker is the given lines of Python."""
    children: list[ChildProcess] = []

    def start(code: str, timeout_s: float | None = None) -> ChildProcess:
        script = tmp_path / "worker.py"
        script.write_text(f"import os, signal, sys\n{code}\n")
        children.append(ChildProcess((sys.executable, str(script)), timeout_s=timeout_s))
        return children[-1]

    yield start
    for child in children:
        child.close()


def assert_gone(pid: int) -> None:
    """A process that was waited for is no child of ours any more, not even a zombie."""
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_one_worker_answers_request_after_request(child_running) -> None:
    child = child_running(f"for line in sys.stdin: {ANSWER}")
    assert child.ask(REQUEST) == Done()
    first = child.pid
    assert child.ask(REQUEST) == Done()
    assert child.pid == first


def test_closing_leaves_no_process_behind(child_running) -> None:
    child = child_running(f"for line in sys.stdin: {ANSWER}")
    child.ask(REQUEST)
    pid = child.pid
    child.close()
    assert child.pid is None
    assert_gone(pid)
    child.close()


def test_a_signal_is_named_with_the_last_line_of_the_log(child_running) -> None:
    child = child_running(
        "sys.stderr.write('loading\\n/build/ggml/src/ops.cpp:12: GGML_ASSERT(x) failed\\n\\n')\n"
        "sys.stderr.flush()\n"
        "sys.stdin.readline()\n"
        "os.kill(os.getpid(), signal.SIGABRT)"
    )
    with pytest.raises(EngineCrashed, match=r"SIGABRT; last words: ops.cpp:12: GGML_ASSERT\(x\)"):
        child.ask(REQUEST)
    assert child.pid is None


def test_an_exit_code_is_named(child_running) -> None:
    child = child_running("sys.exit(7)")
    with pytest.raises(EngineCrashed, match=r"exit code 7; last words: none"):
        child.ask(REQUEST)


def test_the_next_request_after_a_crash_gets_a_new_worker(child_running, tmp_path: Path) -> None:
    marker = tmp_path / "crashed"
    child = child_running(
        "from pathlib import Path\n"
        f"marker = Path({str(marker)!r})\n"
        "if not marker.exists():\n"
        "    marker.touch()\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)\n"
        f"for line in sys.stdin: {ANSWER}"
    )
    with pytest.raises(EngineCrashed, match="SIGSEGV"):
        child.ask(REQUEST)
    assert child.ask(REQUEST) == Done()


@pytest.mark.parametrize(
    "answer", ["hello", "{}", '{"type":"tokens"}', '{"type":"nothing of ours"}', "\\xff\\xfe"]
)
def test_an_answer_that_is_no_reply_is_a_crash_and_ends_the_worker(
    child_running, answer: str
) -> None:
    child = child_running(f"for line in sys.stdin: print({answer!r}, flush=True)")
    with pytest.raises(EngineCrashed, match="what is no reply"):
        child.ask(REQUEST)
    assert child.pid is None


def test_a_worker_that_closed_its_answers_says_itself_how_it_ended(child_running) -> None:
    child = child_running(
        "sys.stderr.write('ImportError: no such name\\n'); sys.stderr.flush()\n"
        "os.close(1); import platform, decimal; os._exit(1)"
    )
    with pytest.raises(EngineCrashed, match="exit code 1; last words: ImportError: no such name"):
        child.ask(REQUEST)


def test_a_worker_that_closed_its_answers_and_goes_on_is_ended(
    child_running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cpubound.engine.child._END_S", 0.05)
    child = child_running("os.close(1); signal.pause()")
    with pytest.raises(EngineCrashed, match="SIGKILL"):
        child.ask(REQUEST)
    assert child.pid is None


def test_half_a_line_is_a_crash(child_running) -> None:
    child = child_running("sys.stdin.readline(); print('{\"type\":', end='', flush=True)")
    with pytest.raises(EngineCrashed, match="exit code 0"):
        child.ask(REQUEST)


def test_a_worker_that_never_answers_is_ended(child_running) -> None:
    child = child_running("while True: sys.stdin.readline()", timeout_s=0.2)
    with pytest.raises(EngineCrashed, match=r"did not answer \(0\.2 s\)"):
        child.ask(REQUEST)
    assert child.pid is None


def test_an_interrupt_ends_the_worker_and_is_passed_on(
    child_running, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = child_running(f"for line in sys.stdin: {ANSWER}")
    child.ask(REQUEST)
    pid = child.pid

    class Interrupted:
        def readline(self) -> bytes:
            raise KeyboardInterrupt

        def close(self) -> None:
            pipe.close()

    pipe = child._process.stdout
    monkeypatch.setattr(child._process, "stdout", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        child.ask(REQUEST)
    assert_gone(pid)
    assert child.ask(REQUEST) == Done()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("model_file", ModelFileError),
        ("machine", MachineError),
        ("unavailable", EngineUnavailable),
        ("a kind of tomorrow", MachineError),
    ],
)
def test_a_failure_raises_the_class_it_names(child_running, kind: str, expected) -> None:
    reply = f'{{"type":"failure","kind":"{kind}","message":"it broke"}}'
    child = child_running(f"for line in sys.stdin: print({reply!r}, flush=True)")
    with pytest.raises(expected, match="it broke"):
        child.ask(REQUEST)


def test_a_missing_binding_names_the_line_that_installs_it(child_running) -> None:
    reply = '{"type":"failure","kind":"unavailable","message":"No module named llama_cpp"}'
    child = child_running(f"for line in sys.stdin: print({reply!r}, flush=True)")
    with pytest.raises(EngineUnavailable, match=r"pip install 'cpubound\[engine\]'"):
        child.ask(REQUEST)


def test_a_command_that_cannot_be_started_is_no_engine(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="cannot be started"):
        ChildProcess((str(tmp_path / "nothing"),)).ask(REQUEST)
