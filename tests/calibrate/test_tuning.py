"""The tuning experiment with a made-up engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import GB, build_engine, build_machine, build_profile
from fakes import FakeRunner

from calibrate.tuning import (
    MIN_PASSES,
    ROUNDS_PER_VISIT,
    TuningCell,
    grid_document,
    grid_settings,
    grid_summary,
    grid_table,
    plan_cells,
    run_grid,
)
from cpubound.engine.values import RunSettings
from cpubound.profile.values import MachineProfile

ATTENTION = {
    ("f16", "f16", True): 4.0 * GB,
    ("f16", "f16", False): 8.0 * GB,
    ("q8_0", "q8_0", True): 1.0 * GB,
}


def make_profile() -> MachineProfile:
    rates = {1: 10.0 * GB, 2: 20.0 * GB}
    return build_profile(
        {1: 25.0 * GB, 2: 50.0 * GB},
        build_engine({"Q8_0": rates, "F16": rates}, attention=ATTENTION),
        machine=build_machine(2),
    )


def make_cells(tmp_path: Path) -> list[TuningCell]:
    return list(plan_cells(make_profile(), "smollm2-135m:Q8_0", (0, 1024), tmp_path / "m.gguf"))


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TuningCell]:
    monkeypatch.setattr("calibrate.tuning.write_model", lambda _spec, _path: None)
    return make_cells(tmp_path)


def seconds_of(settings: RunSettings) -> float:
    """Two threads halve the time; flash-attention costs a tenth, a quantised cache a half."""
    factor = (
        1.5 if settings.setting.kv_type_k == "q8_0" else 1.1 if settings.setting.flash_attn else 1.0
    )
    return factor / settings.setting.threads


def test_the_grid_is_all_that_llama_cpp_allows() -> None:
    found = {(s.threads, s.kv_type_k, s.flash_attn) for s in grid_settings((1, 2), 0)}
    assert found == {
        (threads, kv, flash)
        for threads in (1, 2)
        for kv, flash in (("f16", True), ("f16", False), ("q8_0", True))
    }


def test_every_setting_runs_equally_often_and_every_sample_is_kept(
    cells: list[TuningCell],
) -> None:
    runner = FakeRunner(seconds_per_step=seconds_of)
    passes = run_grid(cells, runner, seconds=0.0, seed=1)
    assert passes == MIN_PASSES
    runs = MIN_PASSES * ROUNDS_PER_VISIT
    assert {len(t.runs_s) for cell in cells for t in cell.grid} == {runs}
    assert len(runner.runs) == runs * sum(len(cell.grid) for cell in cells)
    document = grid_document(make_profile(), cells)
    kept = [run for c in document["cells"] for row in c["grid"] for run in row["runs_s"]]
    assert sum(map(len, kept)) == sum(run.tokens for run in runner.runs)


def test_a_choice_that_is_the_best_has_no_regret(cells: list[TuningCell]) -> None:
    run_grid(cells, FakeRunner(seconds_per_step=seconds_of), seconds=0.0, seed=1)
    deep = next(cell for cell in cells if cell.depth_tokens == 1024)
    assert (deep.chosen.threads, deep.chosen.flash_attn) == (2, False)
    assert deep.regret == deep.split_regret == 0


def test_a_regret_is_what_the_choice_loses_against_the_best(cells: list[TuningCell]) -> None:
    # On this engine one thread is twice as fast as the two that the profile speaks for.
    runner = FakeRunner(seconds_per_step=lambda s: float(s.setting.threads))
    run_grid(cells, runner, seconds=0.0, seed=1)
    assert all(cell.regret == pytest.approx(0.5) for cell in cells)
    assert all(cell.split_regret == pytest.approx(0.5) for cell in cells)
    assert "0 of 2 choices within 3 %" in grid_summary(cells, 2)
    assert grid_table(cells).rows[0][6] == "50.0 %"
