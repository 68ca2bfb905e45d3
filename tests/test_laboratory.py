"""The laboratory's front door: every experiment answers to its name."""

from __future__ import annotations

import pytest

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
