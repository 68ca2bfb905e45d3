"""The llama-bench runner, with stand-ins for the binary that say what it would say."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import run_settings

from cpubound.engine.llama_bench import LlamaBenchRunner, find_llama_bench
from cpubound.engine.values import RunSettings
from cpubound.errors import (
    EngineCrashed,
    EngineUnavailable,
    MachineError,
    ModelFileError,
    UsageError,
)

# An entry as llama-bench writes it (commit 0c1e57098), shortened by fields not read here.
ENTRY = {
    "build_commit": "0c1e57098",
    "build_number": 4711,
    "cpu_info": "AMD EPYC",
    "n_threads": 2,
    "flash_attn": 0,
    "n_prompt": 0,
    "n_gen": 16,
    "n_depth": 0,
    "avg_ns": 1000,
    "samples_ns": [1600000000, 3200000000],
    "samples_ts": [10.0, 5.0],
}
NEW_VERSION = "version: 0.5.0-dev (build 4711, commit 0c1e57098)"
RUN_OPTIONS = ["-n", "16", "-r", "3", "-t", "2", "-fa", "0", "-ctk", "f16", "-ctv", "f16"]


@pytest.fixture
def bench(tmp_path: Path):
    """Make a runner whose binary answers with the given lines of Python."""

    def make(run: str = f"print({json.dumps([ENTRY])!r})", version: str = NEW_VERSION, **options):
        script = tmp_path / "llama-bench"
        script.write_text(
            f"#!{sys.executable}\n"
            "import json, os, signal, sys\n"
            f"with open({str(tmp_path / 'calls')!r}, 'a') as calls:\n"
            "    calls.write(json.dumps(sys.argv[1:]) + '\\n')\n"
            "if sys.argv[1] == '--version':\n"
            f"    sys.exit(print({version!r}, file=sys.stderr))\n"
            "if sys.argv[1] == '--help':\n"
            "    sys.exit(print('-lm, --load-mode <auto|none>'))\n"
            f"{run}\n"
        )
        script.chmod(0o755)
        return LlamaBenchRunner(script, **options)

    return make


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF")
    return str(path)


def settings(model: str, **changes: Any) -> RunSettings:
    return run_settings(model, **{"threads": 2, "tokens": 16, "flash_attn": False, **changes})


def calls(tmp_path: Path) -> list[list[str]]:
    return [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


def test_samples_are_seconds_per_token_of_each_repetition(bench, model) -> None:
    seen = bench().run(settings(model))
    assert seen.samples_s == (0.1, 0.2)
    assert (seen.engine.name, seen.engine.version, seen.engine.build) == (
        "llama-bench",
        "4711",
        "0c1e57098",
    )


def test_the_settings_become_options(bench, model, tmp_path: Path) -> None:
    bench().run(settings(model))
    assert calls(tmp_path)[-1] == ["-o", "json", "-m", model, "-ngl", "0", "-p", "0", *RUN_OPTIONS]


def test_options_that_not_every_build_has_are_given_only_when_needed(
    bench, model, tmp_path: Path
) -> None:
    at = settings(
        model,
        depth_tokens=512,
        flash_attn=True,
        kv_type_k="q8_0",
        kv_type_v="q8_0",
        mmap=False,
        repack=False,
    )
    bench(repetitions=7).run(at)
    options = calls(tmp_path)[-1]
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert given["-d"] == "512"
    assert given["-fa"] == "1"
    assert given["-ctk"] == given["-ctv"] == "q8_0"
    assert given["-lm"] == "none"
    assert given["--repack"] == "0"
    assert given["-r"] == "7"


@pytest.mark.parametrize(
    ("said", "version", "build"),
    [
        (NEW_VERSION, "4711", "0c1e57098"),
        ("version: 5000 (abcdef12)\nbuilt with gcc", "5000", "abcdef12"),
    ],
)
def test_the_build_is_what_the_binary_says(bench, said: str, version: str, build: str) -> None:
    identity = bench(version=said).identity()
    assert (identity.version, identity.build) == (version, build)


def test_a_binary_that_does_not_say_its_build_is_known_by_its_digest(bench) -> None:
    identity = bench(version="error: invalid parameter for argument: --version").identity()
    assert identity.version == "unknown"
    assert len(identity.build) == 16


def test_the_process_is_pinned_and_ours_is_not(bench, model, tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    cpu = min(before)
    out = tmp_path / "mask"
    run = (
        f"open({str(out)!r}, 'w').write(str(sorted(os.sched_getaffinity(0))))\n"
        f"print({json.dumps([ENTRY])!r})"
    )
    bench(run).run(settings(model, cpus=(cpu,)))
    assert out.read_text() == f"[{cpu}]"
    assert os.sched_getaffinity(0) == before


def test_it_stands_in_its_own_folder_and_finds_the_model_all_the_same(
    bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "x.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(here)
    out = tmp_path / "folder"
    run = f"open({str(out)!r}, 'w').write(os.getcwd())\nprint({json.dumps([ENTRY])!r})"
    seen = bench(run).run(settings("x.gguf"))
    assert seen.settings.model_path == "x.gguf"
    assert str(here / "x.gguf") in calls(tmp_path)[-1]
    assert out.read_text() == str(tmp_path)


def test_a_bare_name_is_looked_for_on_path_alone(
    bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join(["", "."]))
    with pytest.raises(EngineUnavailable, match="no llama-bench that can be run"):
        LlamaBenchRunner("llama-bench")
    assert find_llama_bench() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert LlamaBenchRunner("llama-bench").identity().version == "4711"
    assert LlamaBenchRunner("./llama-bench").identity().version == "4711"


def test_a_crash_names_the_signal_and_the_last_words(bench, model) -> None:
    run = "print('GGML_ASSERT(x) failed', file=sys.stderr, flush=True)\nos.kill(os.getpid(), 6)"
    with pytest.raises(EngineCrashed, match=r"signal 6; last words: GGML_ASSERT\(x\) failed"):
        bench(run).run(settings(model))


def test_a_refused_model_is_an_input_error(bench, model) -> None:
    run = "print('error: failed to load model x.gguf', file=sys.stderr)\nsys.exit(1)"
    with pytest.raises(ModelFileError, match="refuses the model"):
        bench(run).run(settings(model))


def test_a_missing_model_is_said_before_anything_runs(bench, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such model file"):
        bench().run(settings(str(tmp_path / "none.gguf")))
    assert not (tmp_path / "calls").exists()


def test_another_failure_shows_its_last_line(bench, model) -> None:
    run = "print('error: invalid parameter: -d', file=sys.stderr)\nsys.exit(1)"
    with pytest.raises(MachineError, match="exit code 1; last words: error: invalid parameter"):
        bench(run).run(settings(model))


@pytest.mark.parametrize(
    "said",
    ["", "llama 1B | 12.3 t/s", "[]", "{}", json.dumps([{**ENTRY, "samples_ns": []}])],
    ids=["nothing", "table", "empty", "object", "no samples"],
)
def test_an_answer_without_a_decode_test_is_a_crash(bench, model, said: str) -> None:
    with pytest.raises(EngineCrashed, match="llama-bench's answer"):
        bench(f"print({said!r})").run(settings(model))


def test_a_run_that_does_not_end_is_ended(bench, model) -> None:
    with pytest.raises(EngineCrashed, match="did not end"):
        bench("while True: signal.pause()", timeout_s=1.0).run(settings(model))


def test_several_sequences_are_a_usage_error(bench, model) -> None:
    with pytest.raises(UsageError, match="use the llama-cpp-python engine"):
        bench().run(settings(model, batch=2))


def test_the_context_is_llama_benchs_own(bench, model, tmp_path: Path) -> None:
    bench().run(settings(model, allocated_context_tokens=4096))
    assert "4096" not in calls(tmp_path)[-1]


def test_a_prompt_is_one_sample_however_long(bench, model, tmp_path: Path) -> None:
    entry = {**ENTRY, "n_prompt": 64, "n_gen": 0}
    runner = bench(f"print({json.dumps([entry])!r})")
    observation = runner.run(settings(model, prompt_tokens=64, tokens=2))
    assert observation.samples_s == (1.6, 3.2)
    assert calls(tmp_path)[-1][5:11] == ["0", "-p", "64", "-n", "0", "-r"]


def test_a_build_without_an_option_is_one_clear_error(bench, model) -> None:
    old = "sys.exit(print('error: invalid parameter for argument: -d', file=sys.stderr) or 1)"
    with pytest.raises(EngineUnavailable, match=r"does not know an option \(build 4711, -d\)"):
        bench(old).run(settings(model, depth_tokens=512))


def test_a_path_that_is_no_binary_is_no_engine(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="no llama-bench that can be run"):
        LlamaBenchRunner(tmp_path / "llama-bench")


def test_a_binary_of_another_machine_is_no_engine(tmp_path: Path) -> None:
    path = tmp_path / "llama-bench"
    path.write_bytes(b"\x7fELF of another kind")
    path.chmod(0o755)
    with pytest.raises(EngineUnavailable, match="made for this machine"):
        LlamaBenchRunner(path).identity()
