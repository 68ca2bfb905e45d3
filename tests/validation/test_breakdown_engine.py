"""breakdown through llama.cpp itself: parts of real graphs, and the command from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import tiny_model

from cpubound.cli import main
from cpubound.engine import LlamaCppRunner, find_runner
from cpubound.engine.synth import write_model
from cpubound.engine.values import RunSettings
from cpubound.model.gguf import read_gguf
from cpubound.model.parts import bytes_by_part
from cpubound.model.traffic import compute_traffic
from cpubound.setting import Setting

# One of each kind: dense, mixture, hybrid, recurrent alone, without a cache, latent attention.
KINDS = (
    "llama-dense.gguf",
    "qwen3moe-moe.gguf",
    "granitehybrid-dense.gguf",
    "mamba-dense.gguf",
    "llada-dense.gguf",
    "deepseek2-moe.gguf",
)

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(find_runner() is None, reason="llama-cpp-python is not installed"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, runner: LlamaCppRunner) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_model(tiny_model("Q4_0"), path, quantize=runner.quantize)
    return path


@pytest.mark.parametrize("name", KINDS)
def test_the_parts_of_the_graph_are_those_that_move_bytes(
    runner: LlamaCppRunner, tiny_models: Path, name: str
) -> None:
    path = tiny_models / name
    for depth in (0, 40):
        settings = RunSettings(
            model_path=str(path), setting=Setting(threads=1, depth_tokens=depth), tokens=3
        )
        times = runner.time_parts(settings)
        moved = bytes_by_part(compute_traffic(read_gguf(path), Setting(depth_tokens=depth)))
        # Attention without a cache moves nothing of its own.
        assert set(times.looks) - set(moved) <= {"attention"}
        assert set(moved) <= set(times.looks)
        assert all(len(samples) == 3 for samples in times.seconds.values())
        assert all(s >= 0 for samples in times.seconds.values() for s in samples)


def test_looking_at_every_operator_finds_the_same_parts(
    runner: LlamaCppRunner, model: Path
) -> None:
    settings = RunSettings(
        model_path=str(model), setting=Setting(threads=1, flash_attn=False), tokens=2
    )
    coarse, fine = (runner.time_parts(settings, by_operator=b) for b in (False, True))
    assert set(coarse.seconds) == set(fine.seconds)
    assert sum(fine.looks.values()) > sum(coarse.looks.values())
    assert len(fine.outside_s) == 2


def test_an_unobserved_run_goes_on_beside_an_observed_one(
    runner: LlamaCppRunner, model: Path
) -> None:
    settings = RunSettings(
        model_path=str(model), setting=Setting(threads=1, flash_attn=False), tokens=2
    )
    runner.time_parts(settings)
    assert len(runner.run(settings).samples_s) == 2
    runner.close_model(str(model))
    assert runner.time_parts(settings).looks["output"] == 1


def test_the_command_shows_the_parts_of_a_model(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path))
    code = main(
        ["breakdown", str(model), "--threads", "1", "--depth", "20", "--tokens", "16",
         "--json", str(tmp_path / "b.json")]
    )  # fmt: skip
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert "FFN" in captured.out
    assert "No profile" in captured.out
    document = json.loads((tmp_path / "b.json").read_text())
    assert document["depth_tokens"] == 20
    assert document["tokens"] == 16
    parts = {part["part"]: part for part in document["parts"]}
    assert sum(p["seconds"] for p in parts.values()) == pytest.approx(document["seconds_per_token"])
    assert parts["ffn"]["n_bytes"] > parts["attention"]["n_bytes"] > 0


def test_more_threads_than_cpus_are_refused(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path))
    assert main(["breakdown", str(model), "--threads", "4096"]) == 2
    assert "effective CPUs" in capsys.readouterr().err
