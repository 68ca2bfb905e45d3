"""cpubound.cli.termination: SIGTERM ends a command in order."""

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
from cpubound.cli.termination import Terminated, interrupt_on_sigterm
from cpubound.profile.file import save_profile

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends SIGTERM")

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


@pytest.mark.parametrize(
    "command",
    [("breakdown",), ("validate", "-t", "1"), ("tune", "--verify"), ("diagnose", "--live")],
)
def test_a_terminated_command_leaves_no_file_and_no_process(
    tmp_path: Path, command: tuple[str, ...]
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
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, "")
    assert err.strip() == "cpubound: terminated"
    assert list(temporary.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(place.read_text()), 0)


def test_sigterm_is_an_interrupt_inside_and_as_before_outside() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), interrupt_on_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_sigterm_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with interrupt_on_sigterm():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_command_that_ends_leaves_the_handler_as_it_was() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main(["--version"]) == 0
    assert signal.getsignal(signal.SIGTERM) == before
