"""The laboratory's front door: every experiment answers to its name."""

from __future__ import annotations

import pytest

from calibrate import kept_runs
from calibrate.__main__ import EXPERIMENTS, STANDARD_SET, main


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_takes_its_options_from_the_command(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"python -m calibrate {name}" in capsys.readouterr().out


def test_the_standard_set_is_made_of_experiments() -> None:
    assert set(STANDARD_SET) <= set(EXPERIMENTS)


def test_an_unknown_experiment_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alchemy"]) == 2
    assert "alchemy" in capsys.readouterr().err


def test_the_judged_set_has_at_least_fifty_cells() -> None:
    judged = kept_runs.load_groups()["judged"]
    assert sum(len(group.models) * len(group.settings(2)) for group in judged) >= 50


def test_a_group_leaves_out_threads_that_the_machine_does_not_have() -> None:
    group = kept_runs.Group(models=("m",), threads=(1, 2, 64), depths=(0, 512))
    assert [s.threads for s in group.settings(2)] == [1, 1, 2, 2]
