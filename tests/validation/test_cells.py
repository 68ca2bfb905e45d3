from __future__ import annotations

import pytest
from builders import GB, build_engine, build_profile, build_traffic
from fakes import FakeRunner, tiny_model
from observed import PROFILE, cell, observe

from cpubound.cost.predict import predict_decode
from cpubound.engine.values import RunSettings
from cpubound.model.traffic import compute_traffic
from cpubound.report.document import cell_document
from cpubound.setting import Setting
from cpubound.stats import split_half_distance
from cpubound.validation.cells import (
    CellToRun,
    plan_cell,
    run_cells,
    tokens_for,
)


def test_an_exact_prediction_has_no_error_and_lies_inside() -> None:
    runner = FakeRunner(seconds_per_step=lambda s: 0.1 / s.setting.threads)
    validation = observe([cell(1), cell(2)], runner)
    assert [c.relative_error for c in validation.cells] == pytest.approx([0, 0])
    assert validation.summary.coverage == 1.0
    assert validation.summary.noise_floor == pytest.approx(0)
    assert validation.cells[0].naive_error == pytest.approx(1.0)


def test_a_wrong_prediction_has_its_error_and_lies_outside() -> None:
    validation = observe([cell(2)], FakeRunner(seconds_per_step=lambda s: 0.1))
    assert validation.cells[0].relative_error == pytest.approx(1.0)
    assert validation.summary.coverage == 0.0
    assert validation.summary.bias == pytest.approx(1.0)


def test_every_cell_is_run_three_times_whatever_the_budget() -> None:
    runner = FakeRunner(seconds_per_step=lambda s: 0.1)
    observe([cell(1), cell(2), cell(1, "other.gguf")], runner)
    assert len(runner.runs) == 9
    assert {r.setting.threads for r in runner.runs} == {1, 2}


def test_models_that_do_not_fit_together_are_closed_between_runs() -> None:
    runner = FakeRunner(seconds_per_step=lambda s: 0.1)
    run_cells(
        [cell(1), cell(1, "other.gguf")],
        runner,
        None,
        seconds=0.0,
        open_bytes=10**9,
        progress=lambda stage, done: None,
    )
    assert runner.open_models == set()


def test_the_bandwidth_seen_beside_the_run_explains_a_memory_bound_gap() -> None:
    fast = build_engine({"Q4_0": {2: 29.0 * GB}})
    profile = build_profile({2: 30.0 * GB}, fast)
    prediction = predict_decode(profile, build_traffic({"Q4_0": 29 * 10**8}), 2)
    slow_cell = CellToRun(
        prediction=prediction, model_path="m", bandwidth_bytes_per_s=30.0 * GB, tokens=8
    )
    validation = observe([slow_cell], FakeRunner(seconds_per_step=lambda s: 0.2), 15.0 * GB)
    assert validation.cells[0].relative_error == pytest.approx(1.0)
    assert validation.cells[0].paired_error == pytest.approx(0.0)


def test_split_halves_of_alternating_runs_show_the_noise_floor() -> None:
    assert split_half_distance([(1.0,), (1.1,), (1.0,), (1.1,)]) == pytest.approx(1 - 1 / 1.1)
    assert split_half_distance([(1.0,)]) is None


def test_a_cell_is_predicted_at_the_mean_depth_of_its_run_and_named_by_its_start() -> None:
    # Behind 500 tokens the cache spans 512 cells, in the middle of 64 more 768.
    spec = tiny_model("Q4_0")
    seen: list[RunSettings] = []
    planned = plan_cell(PROFILE, spec, "m.gguf", Setting(threads=1, depth_tokens=500))
    assert planned.prediction.setting.depth_tokens == 500
    middle = compute_traffic(spec, Setting(depth_tokens=500 + planned.tokens // 2))
    assert planned.prediction.seconds == predict_decode(PROFILE, middle, 1).seconds
    start = compute_traffic(spec, Setting(depth_tokens=500))
    assert planned.prediction.seconds != predict_decode(PROFILE, start, 1).seconds
    runner = FakeRunner(seconds_per_step=lambda s: seen.append(s) or 0.01)  # type: ignore[func-returns-value]
    observe([planned], runner)
    assert seen[0].setting.depth_tokens == 500
    assert seen[0].tokens == planned.tokens


def test_a_run_takes_about_a_second() -> None:
    assert tokens_for(0.05) == 20
    assert tokens_for(10.0) == 8
    assert tokens_for(1e-4) == 64


def test_a_cell_of_the_document_holds_the_predictions_fields_beside_its_own() -> None:
    validation = observe([cell(1)], FakeRunner(seconds_per_step=lambda s: 0.1))
    document = cell_document(validation.cells[0])
    assert set(document) >= {
        "tokens_per_s", "low", "high", "basis", "observed_tokens_per_s", "samples_s",
        "relative_error", "paired_error", "inside", "naive_tokens_per_s", "naive_error",
    }  # fmt: skip
