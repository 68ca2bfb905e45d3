"""calibrate.kept_runs: runs on disk, the three sets, judging."""

from __future__ import annotations

import msgspec
import pytest
from kept_run import SECONDS, equations, kept_run

from calibrate import accuracy, kept_runs
from cpubound.errors import ProfileError


def test_a_run_comes_back_as_it_was_written(tmp_path) -> None:
    run = kept_run()
    kept_runs.write_run(run, tmp_path / "run.json.xz")
    (again,) = kept_runs.read_runs([tmp_path])
    assert again.cells == run.cells
    assert again.machine == "AuthenticAMD 26/2"


def test_a_run_read_again_has_the_rates_that_its_probes_give(tmp_path) -> None:
    run = kept_run()
    engine = msgspec.structs.replace(run.profile.engine, tables=(), probes=equations())
    profile = msgspec.structs.replace(run.profile, engine=engine)
    kept_runs.write_run(msgspec.structs.replace(run, profile=profile), tmp_path / "run.json.xz")
    (again,) = kept_runs.read_runs([tmp_path / "run.json.xz"])
    (table,) = again.profile.engine.tables
    assert table.by_key == pytest.approx(SECONDS, rel=1e-4)


def test_a_damaged_run_is_refused(tmp_path) -> None:
    run = kept_run()
    old = msgspec.structs.replace(run.profile, schema="cpubound.profile/1")
    kept_runs.write_run(msgspec.structs.replace(run, profile=old), tmp_path / "run.json.xz")
    with pytest.raises(ProfileError, match=r"cpubound\.profile/1"):
        kept_runs.read_run(tmp_path / "run.json.xz")


def test_a_cell_is_judged_by_its_own_set_only() -> None:
    run = kept_run(set_name="interval")
    assert kept_runs.judge_run(run, sets=("judged",)) == []
    assert len(kept_runs.judge_run(run, sets=("interval",))) == 6


def test_the_error_is_predicted_over_observed_less_one() -> None:
    judged = kept_runs.judge_run(kept_run(errors=(0.05, -0.5)))
    assert [cell.error for cell in judged] == pytest.approx([0.05, -0.5] * 2)
    assert [cell.is_inside for cell in judged] == [True, False] * 2


def test_no_model_stands_in_two_sets_with_one_file_type() -> None:
    cells: dict[tuple, set[str]] = {}
    for name, groups in kept_runs.load_groups().items():
        for group in groups:
            for model in group.models:
                for setting in group.settings(2):
                    cells.setdefault((model, setting), set()).add(name)
    assert [cell for cell, names in cells.items() if len(names) > 1] == []


def test_every_model_of_the_sets_is_unlike_every_probe() -> None:
    specs = [
        accuracy.resolve_model(model)
        for groups in kept_runs.load_groups().values()
        for group in groups
        for model in group.models
    ]
    assert accuracy.shared_shapes(specs) == []


def test_a_run_is_named_by_cpu_and_time() -> None:
    name = accuracy.run_name(kept_run().profile)
    assert name == "authenticamd-26-2-2026-11-30t12-00"
