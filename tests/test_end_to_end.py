"""The whole job on a real model through the real llama.cpp, as a person would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cpubound.engine import LlamaCppRunner
from cpubound.engine.values import RunSettings
from cpubound.model.gguf import read_gguf
from cpubound.model.traffic import compute_traffic
from cpubound.setting import Setting

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        not Path(os.environ.get("CPUBOUND_TEST_MODEL", "")).is_file(),
        reason="CPUBOUND_TEST_MODEL names no file",
    ),
]


@pytest.fixture(scope="module")
def model() -> Path:
    return Path(os.environ["CPUBOUND_TEST_MODEL"]).resolve()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calibrate once, quickly, into a folder of its own."""
    folder = tmp_path_factory.mktemp("home")
    done = run(folder, "calibrate", "--quick", "--types", "Q4_1,Q8_0")
    assert done.returncode == 0, done.stderr
    assert "expected decode" in done.stdout
    return folder


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cpubound", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CPUBOUND_HOME": str(home)},
    )


def test_the_saved_profile_names_the_engine_and_its_rates(home: Path) -> None:
    document = json.loads((home / "profile.json").read_text())
    assert document["engine"]["name"] == "llama-cpp-python"
    tables = document["engine"]["tables"]
    assert tables
    assert all({"bytes:Q4_1", "bytes:Q8_0", "token"} <= set(table["keys"]) for table in tables)
    assert all(probe["samples_s"] for probe in document["engine"]["probes"])


def test_a_prediction_of_the_real_model_rests_on_the_engine(home: Path, model: Path) -> None:
    done = run(home, "predict", str(model), "--json", "-")
    assert done.returncode == 0, done.stderr
    (prediction,) = json.loads(done.stdout)["predictions"]
    assert prediction["basis"] == "engine"
    assert prediction["quant_label"] == "Q4_1"


def test_validation_runs_the_real_model_and_a_synthetic_one(home: Path, model: Path) -> None:
    done = run(
        home, "validate", str(model), "smollm2-135m:Q8_0", "--threads", "1", "--seconds", "1",
        "--json", "-",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert len(document["cells"]) == 2
    for cell in document["cells"]:
        assert cell["observed_tokens_per_s"] > 0
        assert len(cell["samples_s"]) >= 24
    assert document["summary"]["cells"] == 2


def test_tune_answers_for_the_real_model(home: Path, model: Path) -> None:
    done = run(home, "tune", str(model))
    assert done.returncode == 0, done.stderr
    assert str(model) in done.stdout


@pytest.mark.parametrize("depth", [1, 300])
@pytest.mark.parametrize("flash_attn", [False, True])
def test_bytes_by_rule_are_the_bytes_in_llama_cpps_graph(
    model: Path, depth: int, flash_attn: bool
) -> None:
    traffic = compute_traffic(
        read_gguf(model),
        Setting(depth_tokens=depth, allocated_context_tokens=depth + 256, flash_attn=flash_attn),
    )
    with LlamaCppRunner() as runner:
        count = runner.count_graph(
            RunSettings(
                model_path=str(model),
                setting=Setting(
                    threads=1,
                    depth_tokens=depth,
                    allocated_context_tokens=depth + 256,
                    flash_attn=flash_attn,
                ),
            )
        )
    assert traffic.weights_read_bytes == pytest.approx(count.weight_bytes, rel=0.003)
    assert traffic.embedding_row_bytes == count.row_bytes
    assert traffic.kv_read_bytes == pytest.approx(count.cache_read_bytes, rel=0.01)
    assert traffic.kv_write_bytes == pytest.approx(count.cache_write_bytes, rel=0.01)
