"""--plot of predict, validate and calibrate: written once, with labels, and never unasked."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import GB, build_engine, build_machine, build_profile, build_traffic, build_validation

from cpubound import api
from cpubound.cli import main
from cpubound.cli.predict import CURVE_POINTS, CURVE_TOKENS, curve_depths
from cpubound.cost.predict import predict_decode
from cpubound.model.resolve import resolve_model
from cpubound.profile.file import save_profile
from cpubound.validation.cells import Validation

PROFILE = build_profile(
    {1: 20.0 * GB, 2: 30.0 * GB},
    build_engine(
        {name: {1: 9.0 * GB, 2: 17.0 * GB} for name in ("Q4_0", "Q4_K", "Q6_K")},
        attention={("f16", "f16", True): 5.0 * GB},
    ),
    machine=build_machine(2),
)
MODEL = "llama-3.2-1b:Q4_K_M"
COMMANDS = {
    "predict": ("predict", MODEL, "--threads", "1,2", "--depth", "0,4096"),
    "validate": ("validate", MODEL),
    "calibrate": ("calibrate", "--quick"),
}
LABELS = {
    "predict": (
        "context, tokens in the cache",
        "Decode speed, token/s",
        "Time of a token, an empty context",
        "Time of a token, 4k of context",
        "2 threads",
        "nine runs in ten",
        "Test CPU",
    ),
    "validate": ("observed, token/s", "Predicted, token/s", "fake 1", "Test CPU"),
    "calibrate": ("threads", "Reading memory, GB/s", "4 KiB pages", "Test CPU"),
}

Run = Callable[..., int]


def validation() -> Validation:
    prediction = predict_decode(PROFILE, build_traffic({"Q4_0": GB}), 2)
    return build_validation(prediction, engine="fake 1")


@pytest.fixture
def worked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand in for what measures, and keep a record of it."""
    done: list[str] = []

    def calibrate(**_: object) -> object:
        done.append("calibrate")
        return PROFILE

    def validate(*_: object, **__: object) -> object:
        done.append("validate")
        return validation()

    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path / "home"))
    save_profile(PROFILE, tmp_path / "home" / "profile.json")
    monkeypatch.setattr(api, "calibrate", calibrate)
    monkeypatch.setattr(api, "validate", validate)
    return done


@pytest.mark.usefixtures("worked")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_picture_has_its_axes_and_its_source(name: str, tmp_path: Path) -> None:
    target = tmp_path / "picture.svg"
    assert main([*COMMANDS[name], "--plot", str(target)]) == 0
    drawn = target.read_text(encoding="utf-8")
    for words in LABELS[name]:
        assert words in drawn


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_in_the_way_is_kept_and_nothing_is_measured(
    name: str, tmp_path: Path, worked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "picture.png"
    target.write_text("mine")
    assert main([*COMMANDS[name], "--plot", str(target)]) == 2
    assert target.read_text() == "mine"
    assert worked == []
    assert "--force" in capsys.readouterr().err
    assert main([*COMMANDS[name], "--plot", str(target), "--force"]) == 0
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", COMMANDS)
def test_another_kind_of_file_is_refused_before_the_work(
    name: str, tmp_path: Path, worked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMANDS[name], "--plot", str(tmp_path / "picture.gif")]) == 2
    assert ".svg, .png or .pdf" in capsys.readouterr().err
    assert worked == []


@pytest.mark.parametrize("name", COMMANDS)
def test_without_what_draws_one_line_says_how_to_get_it_before_the_work(
    name: str,
    tmp_path: Path,
    worked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    assert main([*COMMANDS[name], "--plot", str(tmp_path / "picture.svg")]) == 4
    error = capsys.readouterr().err
    assert "pip install 'cpubound[report]'" in error
    assert error.count("\n") == 1
    assert worked == []


@pytest.mark.usefixtures("worked")
def test_a_folder_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*COMMANDS["predict"], "--plot", str(tmp_path / "none" / "picture.svg")])
    assert code == 4
    assert "choose another place" in capsys.readouterr().err


@pytest.mark.usefixtures("worked")
def test_a_picture_is_as_wide_as_asked_for(tmp_path: Path) -> None:
    widths = []
    for millimetres in ("80", "180"):
        target = tmp_path / f"{millimetres}.svg"
        arguments = (*COMMANDS["calibrate"], "--plot", str(target), "--plot-width", millimetres)
        assert main(arguments) == 0
        found = re.search(r'width="([0-9.]+)"', target.read_text(encoding="utf-8"))
        assert found is not None
        widths.append(float(found[1]))
    assert widths[0] < 0.6 * widths[1]


@pytest.mark.usefixtures("worked")
@pytest.mark.parametrize("extra", [("--fits",), (MODEL, "--what-if", "bandwidth=2x")])
def test_what_is_no_plain_prediction_is_not_drawn(
    extra: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", *extra, "--plot", str(tmp_path / "picture.svg")]) == 2
    assert "--plot draws one MODEL" in capsys.readouterr().err


class TestCurveDepths:
    MODEL = resolve_model(MODEL)

    def test_a_curve_goes_to_the_deepest_context_asked_for(self) -> None:
        depths = curve_depths(self.MODEL, (0, 100, 8000))
        assert (depths[0], depths[-1]) == (0, 8000)
        assert 100 in depths

    def test_a_curve_without_a_context_goes_to_a_usual_one(self) -> None:
        depths = curve_depths(self.MODEL, (0,))
        assert depths[-1] == CURVE_TOKENS
        assert len(depths) == CURVE_POINTS + 1

    def test_a_curve_ends_where_the_model_was_trained_to(self) -> None:
        small = resolve_model("smollm2-135m:Q8_0")
        assert curve_depths(small, (0,))[-1] == small.hyper_parameters["context_length"]
