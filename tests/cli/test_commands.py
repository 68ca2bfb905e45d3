"""The command line from outside: output, exit codes, one-line errors, files left alone."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import standard_profile
from fakes import tiny_model, zero_blocks

from cpubound.cli import COMMANDS, main
from cpubound.engine.synth import write_model
from cpubound.errors import EngineUnavailable
from cpubound.profile.file import load_profile, save_profile

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path / "home"))
    save_profile(standard_profile(), tmp_path / "home" / "profile.json")
    return tmp_path / "home"


@pytest.fixture
def run(home: Path, invoke: Run) -> Run:
    return invoke


def assert_one_line_error(err: str) -> None:
    assert err.startswith("cpubound: error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_predict_prints_a_row_for_each_common_file_type(run: Run) -> None:
    code, out, err = run("predict", "llama-3.1-8b", "--threads", "1,2", "--depth", "0,4096")
    assert (code, err) == (0, "")
    for name in ("F16", "Q8_0", "Q4_K_M", "Q2_K"):
        assert any(line.startswith(name) for line in out.splitlines())
    assert "1 thr, empty" in out
    assert "2 thr, at 4k" in out
    assert "cpubound validate llama-3.1-8b:Q4_K_M" in out


def test_predict_says_when_a_context_is_longer_than_the_model_was_trained_for(run: Run) -> None:
    _, out, _ = run("predict", "smollm2-135m:Q8_0", "-t", "2", "--depth", "8000")
    assert "trained for" not in out
    _, out, _ = run("predict", "smollm2-135m:Q8_0", "-t", "2", "--depth", "20000")
    assert "trained for 8192 tokens" in out


@pytest.mark.parametrize(
    "command", [("breakdown", "-d", "9000"), ("validate", "-d", "0,8000", "-p", "500")]
)
def test_a_run_beyond_the_training_is_said_before_it_begins(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise EngineUnavailable("not run")

    for name in ("breakdown", "validate_prompts"):
        monkeypatch.setattr(f"cpubound.api.{name}", refuse)
    code, out, err = run(command[0], "smollm2-135m:Q8_0", *command[1:])
    assert (code, out) == (4, "")
    assert err.startswith("Note: smollm2-135m was trained for 8192 tokens")
    _, _, err = run(command[0], "smollm2-135m:Q8_0", "-d", "7000", *command[3:])
    assert "trained" not in err


def test_prompts_are_refused_where_one_table_is_all_there_is(run: Run) -> None:
    code, _, err = run("predict", "llama-3.2-1b:Q4_0", "--prompt", "64", "--format", "csv")
    assert code == 2
    assert "CSV holds one table" in err


def test_predict_prints_the_document_of_the_contract(run: Run) -> None:
    code, out, _ = run("predict", "llama-3.2-1b:Q4_0", "-t", "2", "--json", "-")
    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "cpubound.predictions/1"
    row = document["predictions"][0]
    assert set(row) >= {
        "model", "quant_label", "threads", "depth_tokens", "n_ctx", "batch", "kv_type_k",
        "kv_type_v",
        "flash_attn", "tokens_per_s", "low", "high", "fast_tokens_per_s", "ceiling_tokens_per_s",
        "bound", "basis", "bytes_per_token", "seconds", "fits_in_memory", "assumptions",
    }  # fmt: skip
    assert set(row["seconds"]) == {"weights", "attention", "overhead"}
    assert row["low"] < row["tokens_per_s"] < row["high"]


def test_csv_has_plain_numbers_and_markdown_a_pipe_table(run: Run) -> None:
    _, out, _ = run("predict", "llama-3.2-1b:Q4_0", "-t", "1,2", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["threads"] for row in rows] == ["1", "2"]
    assert float(rows[1]["tokens_per_s"]) > float(rows[0]["tokens_per_s"])
    _, out, _ = run("predict", "llama-3.2-1b:Q4_0", "--format", "markdown")
    assert any(line.startswith("| file type") for line in out.splitlines())


def test_json_is_written_beside_the_table_and_never_over_a_file(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    code, out, _ = run("predict", "llama-3.2-1b:Q4_0", "--json", str(target))
    assert code == 0
    assert "Q4_0" in out
    first = target.read_text()
    code, _, err = run("predict", "llama-3.2-1b:Q8_0", "--json", str(target))
    assert code == 2
    assert "--force" in err
    assert target.read_text() == first
    code, _, _ = run("predict", "llama-3.2-1b:Q8_0", "--json", str(target), "--force")
    assert code == 0
    assert target.read_text() != first


def test_what_fits_is_listed_fastest_first_and_above_a_target(run: Run) -> None:
    code, out, _ = run("predict", "--fits", "--target", "5", "--format", "csv")
    assert code == 0
    rates = [float(row["tokens_per_s"]) for row in csv.DictReader(io.StringIO(out))]
    assert len(rates) > 20
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] >= 5


def test_models_found_here_are_predicted_from_their_headers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache" / "llama.cpp"
    folder.mkdir(parents=True)
    write_model(tiny_model("Q4_0"), folder / "tiny.gguf", quantize=zero_blocks)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("LLAMA_CACHE", "HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    code, out, _ = run("predict", "--local")
    assert code == 0
    assert "tiny     Q4_0" in out
    assert run("predict")[0] == 2
    assert run("predict", "llama-3.2-1b", "--fits")[0] == 2


def test_tune_names_threads_reasons_and_commands(run: Run) -> None:
    code, out, _ = run("tune", "llama-3.2-1b:Q4_0", "--depth", "4096")
    assert code == 0
    assert out.startswith("Use 2 threads for decode")
    assert "flash-attention off" in out
    for program in ("llama-server", "llama-cli", "llama-bench", "llama-cpp-python", "ollama"):
        assert program in out
    _, out, _ = run("tune", "llama-3.2-1b:Q4_0", "--json", "-")
    document = json.loads(out)
    assert document["schema"] == "cpubound.advice/1"
    assert {"recommendation", "table", "findings"} <= set(document)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("predict", "no-such-model-7b"), 2, "no-such-model-7b"),
        (("predict", "missing.gguf"), 3, "missing.gguf"),
        (("predict", "llama-3.2-1b", "--threads", "0"), 2, "0"),
        (("predict", "llama-3.2-1b", "--threads", "two"), 2, "two"),
        (("predict", "llama-3.2-1b", "--depth", "-5"), 2, "-5"),
        (("predict", "llama-3.2-1b", "--quant", "Q9_X"), 2, "Q9_X"),
        (("predict", "llama-3.2-1b", "--kv-type", "f99"), 2, "f99"),
        (("predict", "llama-3.2-1b", "--profile", "nowhere.json"), 3, "nowhere.json"),
        (("validate", "llama-3.2-1b:Q4_0", "--threads", "3"), 2, "effective CPUs"),
        (("frobnicate",), 2, "frobnicate"),
        (("predict",), 2, "MODEL"),
        (("calibrate", "--types", "Q9_9"), 2, "Q9_9"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_right_code(
    run: Run, arguments: tuple[str, ...], code: int, words: str
) -> None:
    got, out, err = run(*arguments)
    assert got == code
    assert out == ""
    assert words in err
    assert_one_line_error(err)


@pytest.mark.parametrize(
    "content", [b"", b"GG", b"<!DOCTYPE html><html>", b"GGUF", b"GGUF" + b"\xff" * 60]
)
def test_a_file_that_is_no_model_is_named_and_refused(
    run: Run, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    for command in ("predict", "inspect", "tune", "validate"):
        code, _, err = run(command, str(path))
        assert code == 3
        assert "model.gguf" in err
        assert_one_line_error(err)


def test_a_profile_that_is_damaged_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"schema": "cpubound.profile/1", "machine": 3}')
    code, _, err = run("predict", "llama-3.2-1b", "--profile", str(path))
    assert code == 3
    assert_one_line_error(err)


def test_a_token_of_seconds_is_written_without_an_exponent(run: Run) -> None:
    _, out, _ = run("predict", "llama-3.3-70b:F16", "--depth", "100000")
    line = next(line for line in out.splitlines() if line.startswith("A token takes"))
    assert "e+" not in line
    assert re.match(r"A token takes [\d.]+ s: weights [\d.]+ s ", line)


def test_more_threads_than_cpus_are_predicted_with_a_note(run: Run) -> None:
    code, out, _ = run("predict", "llama-3.2-1b:Q4_0", "--threads", "16")
    assert code == 0
    assert "more than the 2 effective CPUs" in out


def test_a_model_too_big_for_memory_is_said_and_not_run(run: Run) -> None:
    code, out, _ = run("predict", "llama-3.3-70b:Q8_0")
    assert code == 0
    assert "not fit" in out
    code, _, err = run("validate", "llama-3.3-70b:Q8_0")
    assert code == 4
    assert_one_line_error(err)


def test_a_missing_engine_is_named_with_the_line_that_installs_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *a: None if name == "llama_cpp" else real(name, *a),
    )
    for arguments in (("calibrate",), ("validate", "llama-3.2-1b:Q4_0")):
        code, _, err = run(*arguments)
        assert code == 4
        assert "pip install" in err
        assert "cpubound[engine]" in err
        assert_one_line_error(err)


def test_calibrate_finds_an_unwritable_place_before_it_measures(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    measured: list[object] = []
    monkeypatch.setattr("cpubound.api.calibrate", lambda **options: measured.append(options))
    code, _, err = run("calibrate", "--out", str(tmp_path / "file" / "profile.json"))
    assert code == 4
    assert "--out" in err
    assert measured == []


def test_a_name_no_file_can_have_is_one_line(run: Run) -> None:
    name = "a" * 300
    for arguments in (
        ("predict", name),
        ("tune", name),
        ("predict", "llama-3.2-1b", "--json", name),
    ):
        code, _, err = run(*arguments)
        assert code in (2, 3)
        assert_one_line_error(err)


def test_a_newline_in_a_name_does_not_break_the_line(run: Run) -> None:
    _, _, err = run("predict", "no\nsuch")
    assert_one_line_error(err)


@pytest.mark.skipif(os.name != "posix", reason="named pipes of POSIX")
def test_pipes_and_devices_are_no_profiles_and_no_places_for_results(
    run: Run, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero"):
        code, _, err = run("predict", "llama-3.2-1b", "--profile", path)
        assert code == 3
        assert_one_line_error(err)
    for arguments in (
        ("predict", "llama-3.2-1b:Q4_0", "--force", "--json", str(pipe)),
        ("synth", "smollm2-135m:F16", "--force", "-o", str(pipe)),
    ):
        code, _, err = run(*arguments)
        assert code == 2
        assert_one_line_error(err)
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full of Linux")
def test_output_that_has_no_room_or_no_place_is_one_line(home: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            cpubound("predict", "llama-3.2-1b"), stdout=full, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    assert done.returncode == 4
    assert_one_line_error(done.stderr)
    closed = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m cpubound predict llama-3.2-1b >&-"],
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert closed.returncode == 4
    assert_one_line_error(closed.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "--fits", "--quant", "Q4_0"),
        ("predict", "--fits", "--threads", "1"),
        ("predict", "--fits", "--target", "nan"),
        ("predict", "llama-3.2-1b", "--target", "5"),
        ("predict", "llama-3.2-1b:Q4_0", "--quant", "Q8_0"),
        ("validate", "llama-3.2-1b:Q4_0", "--seconds", "nan"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    run: Run, arguments: tuple[str, ...]
) -> None:
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert_one_line_error(err)


@pytest.mark.parametrize(
    ("arguments", "ignored", "because"),
    [
        (("calibrate", "--no-engine", "--types", "Q4_0"), "--types", "--no-engine"),
        (("calibrate", "--no-engine", "--engine", "x"), "--engine", "--no-engine"),
        (("calibrate", "--from", "x", "--out", "y", "--quick"), "--quick", "--from"),
        (("calibrate", "--model", "llama-3.2-1b"), "--model", "--from"),
        (("compare", "{home}", "{home}", "--depth", "9"), "--depth", "MODEL"),
        (("diagnose", "llama-3.2-1b", "-o", "5", "--run", "2"), "--run", "--from-log"),
        (("diagnose", "llama-3.2-1b", "-o", "5", "--seconds", "2"), "--seconds", "--live"),
        (
            ("diagnose", "llama-3.2-1b", "-o", "5", "--machine", "h100-sxm", "-t", "2"),
            "--threads",
            "--machine h100-sxm",
        ),
        (("doctor", "--list", "--model", "llama-3.2-1b"), "--model", "--list"),
        (("roofline", "llama-3.2-1b", "--k", "3"), "--k", "--draft"),
        (("roofline", "llama-3.2-1b", "--acceptance", "0.6"), "--acceptance", "--draft"),
        (
            ("roofline", "llama-3.2-1b", "--compute-precision", "fp8"),
            "--compute-precision",
            "--machine NAME",
        ),
        (
            ("roofline", "llama-3.2-1b", "--machine", "h100-sxm", "--profile", "{home}"),
            "--profile",
            "--machine h100-sxm",
        ),
        (("tune", "llama-3.2-1b", "--seed", "3"), "--seed", "--verify"),
        (("validate", "--from", "x", "-t", "2"), "--threads", "--from"),
        (("validate", "--from", "x", "--seconds", "60"), "--seconds", "--from"),
        (("validate", "llama-3.2-1b", "-p", "9", "--engine", "x"), "--engine", "--prompt"),
        (("validate", "llama-3.2-1b", "-p", "9", "-b", "2"), "--batch", "--prompt"),
    ],
)
def test_an_option_that_another_would_ignore_is_refused_by_both_names(
    run: Run, home: Path, arguments: tuple[str, ...], ignored: str, because: str
) -> None:
    profile = str(home / "profile.json")
    code, out, err = run(*(argument.format(home=profile) for argument in arguments))
    assert (code, out) == (2, "")
    assert err.startswith(f"cpubound: error: {ignored} ")
    assert because in err
    assert_one_line_error(err)


def test_several_ignored_options_are_named_together(run: Run) -> None:
    _, _, err = run("calibrate", "--no-engine", "--types", "Q4_0", "--engine", "x")
    assert "--engine and --types would change nothing with --no-engine" in err
    _, _, err = run("roofline", "llama-3.2-1b", "--k", "3", "--acceptance", "0.5")
    assert "--acceptance and --k go with --draft MODEL: add that, or leave them out" in err


def test_defaults_are_no_options_given(run: Run) -> None:
    assert run("roofline", "llama-3.2-1b:Q4_0")[0] == 0
    assert run("doctor", "--list")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "llama-3.2-1b:Q4_0"),
        ("validate", "llama-3.2-1b:Q4_0"),
        ("inspect", "llama-3.2-1b:Q4_0"),
        ("roofline", "llama-3.2-1b:Q4_0"),
        ("diagnose", "llama-3.2-1b:Q4_0", "--observed", "5"),
    ],
)
def test_every_command_takes_the_same_batches(run: Run, arguments: tuple[str, ...]) -> None:
    for batch in ("0", "65537"):
        code, _, err = run(*arguments, "--batch", batch)
        assert code == 2
        assert f"{batch} is outside 1 … 65536" in err
    _, _, err = run(*arguments, "--batch", "many")
    assert "'many' is no whole number" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "llama-3.2-1b:Q4_0"),
        ("validate", "llama-3.2-1b:Q4_0"),
        ("diagnose", "llama-3.2-1b:Q4_0", "--observed", "5"),
    ],
)
def test_more_sequences_than_llama_cpp_decodes_together_are_refused(
    run: Run, arguments: tuple[str, ...]
) -> None:
    code, out, err = run(*arguments, "--batch", "257")
    assert (code, out) == (2, "")
    assert "batch out of range (257): llama.cpp decodes at most 256 together" in err
    assert_one_line_error(err)


def test_theory_and_bytes_go_beyond_what_llama_cpp_decodes_together(run: Run) -> None:
    assert run("inspect", "llama-3.2-1b:Q4_0", "--batch", "512")[0] == 0
    arguments = ("--machine", "h100-sxm", "--batch", "512")
    assert run("roofline", "llama-3.2-1b:Q4_0", *arguments)[0] == 0
    assert run("diagnose", "llama-3.2-1b:Q4_0", "--observed", "900", *arguments)[0] == 0


def test_tune_needs_no_flash_attention_switch_for_a_quantised_cache(run: Run) -> None:
    code, out, _ = run("tune", "llama-3.2-1b:Q4_0", "--kv-type", "q8_0")
    assert code == 0
    assert "flash-attention on" in out


def test_tune_refuses_a_model_that_does_not_fit(run: Run) -> None:
    code, _, err = run("tune", "llama-3.3-70b:Q8_0")
    assert code == 4
    assert_one_line_error(err)


def test_debug_shows_the_traceback(home: Path) -> None:
    from cpubound.errors import CpuboundError

    with pytest.raises(CpuboundError):
        main(("predict", "missing.gguf", "--debug"))


def test_every_command_has_help_and_shows_its_defaults(run: Run) -> None:
    _, out, _ = run("--help")
    for name in COMMANDS:
        assert f"  {name}" in out
        code, text, _ = run(name, "--help")
        assert code == 0
        assert "Usage" in text


def cpubound(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cpubound", *arguments]


def test_the_version_comes_from_a_real_process() -> None:
    done = subprocess.run(cpubound("--version"), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("cpubound 0.")
    assert done.stderr == ""


def test_a_reader_that_goes_away_is_no_traceback(home: Path) -> None:
    with subprocess.Popen(
        cpubound("predict", "llama-3.2-1b"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


def test_calibrating_the_memory_saves_a_profile_that_predict_uses(tmp_path: Path) -> None:
    environment = {**os.environ, "CPUBOUND_HOME": str(tmp_path)}
    done = subprocess.run(
        cpubound("calibrate", "--quick", "--no-engine", "--json", "-"),
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.returncode == 0
    assert json.loads(done.stdout)["schema"] == "cpubound.profile/2"
    profile = load_profile(tmp_path / "profile.json")
    assert profile.bandwidth
    done = subprocess.run(
        cpubound("predict", "llama-3.2-1b:Q4_0"),
        capture_output=True, text=True, env=environment, check=True,
    )  # fmt: skip
    assert "upper bound" in done.stdout or "own kernels" in done.stdout


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads in /proc of Linux")
@pytest.mark.parametrize("after_s", [0.0, 0.5, 2.0])
def test_an_interrupt_at_any_moment_of_measuring_exits_with_130_and_leaves_the_older_profile(
    home: Path, after_s: float
) -> None:
    before = (home / "profile.json").read_bytes()
    with subprocess.Popen(
        cpubound("calibrate", "--no-engine", "--force"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "CPUBOUND_HOME": str(home)},
    ) as process:  # fmt: skip
        # Measuring begins with the first thread of a team. While modules are imported Python
        # itself may drop an interrupt, in a callback of its import locks.
        tasks = Path(f"/proc/{process.pid}/task")
        while process.poll() is None and len(list(tasks.iterdir())) < 2:
            time.sleep(0.01)
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1:] in (["cpubound: interrupted"], [])
    assert (home / "profile.json").read_bytes() == before
