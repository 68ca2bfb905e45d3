"""cpubound.cli.termination: a signal ends a command in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import standard_profile

from cpubound.cli import main
from cpubound.cli.termination import Ended, ended_by_signals
from cpubound.profile.file import save_profile

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")

# A command whose engine, once it has the synthetic file, names itself in a file and hangs.
SCRIPT = """
import sys
import cpubound.engine
from cpubound.cli import main
from cpubound.engine import LlamaCppRunner

worker = '''
import os, pathlib, sys
sys.stdin.readline()
place = pathlib.Path(sys.argv[1])
part = place.with_suffix(".part")
part.write_text(str(os.getpid()))
part.rename(place)
sys.stdin.read()
'''
cpubound.engine.find_runner = lambda: LlamaCppRunner
cpubound.engine.open_runner = lambda: LlamaCppRunner(
    (sys.executable, "-c", worker, sys.argv[1])
)
sys.exit(main(sys.argv[2:]))
"""
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 256,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def handlers():
    """Put back what a test leaves ignored, as a command does until its process ends."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    "command",
    [("breakdown",), ("validate", "-t", "1"), ("tune", "--verify"), ("diagnose", "--live")],
)
@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "hung up")],
)
def test_a_command_that_a_signal_ends_leaves_no_file_and_no_process(
    tmp_path: Path, command: tuple[str, ...], number: signal.Signals, code: int, word: str
) -> None:
    temporary, place = tmp_path / "temporary", tmp_path / "pid"
    temporary.mkdir()
    save_profile(standard_profile(), tmp_path / "home" / "profile.json")
    environment = {
        **os.environ,
        "CPUBOUND_HOME": str(tmp_path / "home"),
        "TMPDIR": str(temporary),
    }
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    arguments = [command[0], f"{tmp_path / 'config.json'}:F16", *command[1:]]
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(place), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        while process.poll() is None and not place.exists():
            time.sleep(0.01)
        assert [path.suffix for path in temporary.rglob("*.gguf")] == [".gguf"]
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert err.strip() == f"cpubound: {word}"
    assert list(temporary.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(place.read_text()), 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_follow_the_first_do_not_cut_short_what_tidies_up(
    number: signal.Signals,
) -> None:
    tidied = []
    with pytest.raises(Ended) as raised, ended_by_signals():
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            tidied.append("files")
    signal.raise_signal(signal.SIGHUP)
    assert tidied == ["files"]
    assert raised.value.exit_code == 128 + number


def test_what_tidying_up_raises_does_not_replace_the_signal() -> None:
    with pytest.raises(Ended) as raised, ended_by_signals():
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            raise OSError("the terminal is gone")
    assert raised.value.exit_code == 129


def test_an_error_without_a_signal_stays_what_it_is() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(OSError, match="disk"), ended_by_signals():
        raise OSError("disk")
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_python_drops_in_a_callback_leaves_the_next_one_its_effect() -> None:
    class Callback:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    reached = False
    with pytest.raises(Ended) as raised, ended_by_signals():
        Callback()
        reached = True
        signal.raise_signal(signal.SIGTERM)
    assert reached
    assert raised.value.exit_code == 143


def test_a_handler_that_is_not_pythons_own_stays() -> None:
    seen = []
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
    assert seen == [signal.SIGTERM]


def test_a_command_that_ends_leaves_the_handlers_as_they_were() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert main(["--version"]) == 0
    assert before == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
