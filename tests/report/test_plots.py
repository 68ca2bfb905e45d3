"""Pictures: files of the right kind, with units, legend and sources; honest without matplotlib."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from builders import GB, build_engine, build_profile, build_traffic, build_validation

from cpubound.cli import main
from cpubound.cost.predict import predict_decode
from cpubound.errors import MachineError, UsageError
from cpubound.model.resolve import resolve_model
from cpubound.report import plots
from cpubound.report.roofline_document import MachineLine
from cpubound.theory.analysis import Roofline, analyse
from cpubound.theory.budget import Roofs
from cpubound.theory.source import ModelSource

PROFILE = build_profile(
    {1: 20.0 * GB, 2: 30.0 * GB, 4: 30.5 * GB},
    build_engine({"Q4_0": {1: 9.0 * GB, 2: 17.0 * GB, 4: 20.0 * GB}}),
)
LINE = MachineLine(
    name="test",
    title="Test machine",
    bandwidth_origin="given",
    peak_origin="given",
    peak_bytes_per_s=60e9,
    sources={"peak": "data sheet of the test"},
)


def roofline(flops_per_s: float | None = 1e12) -> Roofline:
    source = ModelSource(resolve_model("llama-3.2-1b:Q4_0"))
    roofs = Roofs(bytes_per_s=60e9, flops_per_s=flops_per_s)
    return analyse(source, roofs, batches=(1, 8), contexts=(0, 4096))


@pytest.mark.usefixtures("with_matplotlib")
def test_a_roofline_names_units_operators_batches_and_sources() -> None:
    svg = plots.plot_roofline(roofline(), LINE, suffix=".svg").decode()
    for words in (
        "FLOP/byte",
        "FLOP/s",
        "batch 8",
        "attention over the cache",
        "4096 tokens",
        "data sheet of the test",
        "ridge: 17",
    ):
        assert words in svg


@pytest.mark.usefixtures("with_matplotlib")
def test_the_same_figures_give_the_same_picture_in_png() -> None:
    first = plots.plot_roofline(roofline(), LINE, suffix=".png")
    assert first.startswith(b"\x89PNG")
    assert first == plots.plot_roofline(roofline(), LINE, suffix=".PNG")


@pytest.mark.usefixtures("with_matplotlib")
def test_other_pictures_carry_their_units() -> None:
    predictions = [
        predict_decode(PROFILE, build_traffic({"Q4_0": GB}, depth_tokens=depth), 2)
        for depth in (0, 4096)
    ]
    saturation = plots.plot_saturation(PROFILE, suffix=".svg").decode()
    assert "bandwidth (GB/s)" in saturation
    assert "threads" in saturation
    drawn = plots.plot_predictions(predictions, predictions, PROFILE, suffix=".svg").decode()
    for words in (
        "decode speed (token/s)",
        "tokens in the cache",
        "time of a token (ms)",
        "overhead",
        "test-model",
        "Q4_0, 2 threads, 4k context",
        "Test CPU",
    ):
        assert words in drawn


@pytest.mark.usefixtures("with_matplotlib")
def test_predicted_stands_against_observed() -> None:
    prediction = predict_decode(PROFILE, build_traffic({"Q4_0": GB}), 2)
    validation = build_validation(prediction, engine="test")
    svg = plots.plot_validation(validation, PROFILE, suffix=".svg").decode()
    assert "observed (token/s)" in svg
    assert "predicted (token/s)" in svg
    assert "Q4_0" in svg


def test_a_roof_without_a_peak_rate_is_refused() -> None:
    with pytest.raises(UsageError, match="--peak-flops"):
        plots.plot_roofline(roofline(None), LINE, suffix=".svg")


@pytest.mark.parametrize("suffix", ["", ".pdf", ".svgz"])
def test_other_kinds_of_files_are_refused(suffix: str) -> None:
    with pytest.raises(UsageError, match=r"\.svg or a \.png"):
        plots.plot_roofline(roofline(), LINE, suffix=suffix)


def test_without_matplotlib_the_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MachineError, match=r"pip install 'cpubound\[plot\]'"):
        plots.plot_roofline(roofline(), LINE, suffix=".svg")


@pytest.mark.usefixtures("with_matplotlib")
def test_the_command_draws_and_never_replaces_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "roof.svg"
    arguments = ("roofline", "llama-3.2-1b:Q4_0", "--machine", "h100-sxm", "--plot", str(target))
    assert main(arguments) == 0
    drawn = target.read_bytes()
    assert b"<svg" in drawn
    assert main(arguments) == 2
    assert target.read_bytes() == drawn
    assert "--force" in capsys.readouterr().err
