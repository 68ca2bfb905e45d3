"""calibrate.own_kernels: predictions without llama.cpp beside what was observed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from kernel_profiles import measured

from calibrate import own_kernels
from calibrate.accuracy import Group
from calibrate.kept_runs import Run, read_runs
from calibrate.kernel_form import fit_form
from cpubound.profile.file import save_profile

GROUP = Group(models=("llama-3.2-1b:Q4_K_M", "llama-3.2-3b:Q4_K_M"), threads=(1, 2))


def run_of(name: str, factor: float, observed: float) -> Run:
    return Run(name=name, profile=measured(factor), observed=(observed,) * 4)


def test_a_run_is_predicted_by_how_llama_cpp_stood_in_the_others() -> None:
    runs = [run_of("slow", 0.4, 50.0), run_of("fast", 0.8, 60.0)]
    judged = own_kernels.judge_runs(runs, [GROUP])
    forms = {"x86": fit_form([runs[1].profile])}
    expected = own_kernels.predict_group(runs[0].profile, GROUP, forms)
    assert judged["slow"] == [(prediction, 50.0) for prediction in expected]
    # The slow one by the fast one's standing, and the reverse.
    for (slow, _), (fast, _) in zip(judged["slow"], judged["fast"], strict=True):
        assert slow.basis == fast.basis == "kernel"
        assert slow.tokens_per_s > 1.2 * fast.tokens_per_s
    assert [len(judged[name]) for name in ("slow", "T = 1", "all")] == [4, 4, 8]


def test_the_table_counts_errors_and_what_lies_inside() -> None:
    (prediction, *_), *_ = own_kernels.judge_runs(
        [run_of("a", 0.8, 1.0), run_of("b", 0.8, 1.0)], [GROUP]
    ).values()
    one = msgspec.structs.replace(prediction[0], tokens_per_s=10.0, low=8.0, high=12.0)
    table = own_kernels.error_table({"all": [(one, 10.0), (one, 12.5), (one, 5.0)]})
    assert table.rows == (("all", "3", "20.0 %", "92.0 %", "+0.0 %", "33 %", "40 %"),)


def test_runs_are_read_as_the_experiment_left_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_profile(measured(), tmp_path / "profile-0.json")
    cells = [{"observed_tokens_per_s": 5.0}]
    (tmp_path / "validation-0.json").write_bytes(msgspec.json.encode({"cells": cells}))
    (run,) = read_runs(tmp_path)
    assert run.observed == (5.0,)
    assert run.profile == measured()
    assert own_kernels.main([str(tmp_path)]) == 2
    assert "give two runs" in capsys.readouterr().err
