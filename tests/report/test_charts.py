"""Charts: their marks are the values, their labels can be read, their files are what they say."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import MODEL, build_contents, drawn_rows, full_profile, observed

from cpubound.cost.law import law_band
from cpubound.errors import UsageError
from cpubound.model.resolve import resolve_model
from cpubound.report.charts import checks, machine, models, roofs
from cpubound.report.charts.files import draw, file_spec
from cpubound.report.charts.style import (
    HEIGHT,
    MOST_LINES,
    PAGE,
    PAPER,
    Chart,
    binary_ticks,
    choose_lines,
    config,
    log_ticks,
    spread_labels,
)
from cpubound.report.page.contents import ReportContents
from cpubound.report.roofline_document import MachineLine
from cpubound.theory.analysis import Roofline, analyse
from cpubound.theory.budget import Roofs
from cpubound.theory.source import ModelSource

PROFILE = full_profile()
LINE = MachineLine(
    name="test",
    title="Test machine",
    bandwidth_origin="given",
    peak_origin="given",
    peak_bytes_per_s=60e9,
    sources={"peak": "data sheet of the test"},
)


@pytest.fixture(scope="module")
def contents() -> ReportContents:
    return build_contents(profile=PROFILE)


def roofline(flops_per_s: float | None = 1e12) -> Roofline:
    source = ModelSource(resolve_model("llama-3.2-1b:Q4_0"))
    found = Roofs(bytes_per_s=60e9, flops_per_s=flops_per_s)
    return analyse(source, found, batches=(1, 8), contexts=(0, 4096))


def all_charts(contents: ReportContents) -> list[Chart]:
    model = contents.models[0]
    return [
        machine.chart_scaling(PROFILE),
        machine.chart_working_sets(PROFILE),
        machine.chart_noise(PROFILE),
        roofs.chart_rates(PROFILE),
        roofs.chart_roofs(PROFILE),
        roofs.chart_roofline(roofline(), LINE),
        models.chart_contexts(model.curves, 20.0),
        models.chart_settings(model.settings),
        models.chart_token_time(model.table),
        models.chart_prompts(model.prompts),
        models.chart_batches(model.batches),
        models.chart_memory(model.curves, 16 * 10**9),
        models.chart_predictions(model.curves, model.table, PROFILE),
        checks.chart_validation(observed(PROFILE), PROFILE),
    ]


def rows_of(chart: Chart) -> list[dict[str, Any]]:
    return [row for panel in chart.panels for row in drawn_rows(panel.to_dict())]


def test_every_chart_draws_and_tells_its_units_and_numbers(contents: ReportContents) -> None:
    for chart in all_charts(contents):
        svg = draw(chart, ".svg", 180).decode()
        assert svg.count("<path") > 5, chart.name
        assert chart.title.split(",")[0] in svg
        assert chart.table.rows
        assert chart.caption.endswith(".")


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".SVG", b"<svg")]
)
def test_a_file_is_of_the_kind_that_its_name_says_and_always_the_same(
    suffix: str, start: bytes
) -> None:
    chart = machine.chart_noise(PROFILE)
    first = draw(chart, suffix, 80)
    assert first.startswith(start)
    if suffix != ".pdf":  # it holds the time of its making
        assert first == draw(chart, suffix, 80)


@pytest.mark.parametrize("suffix", ["", ".bmp", ".svgz"])
def test_other_kinds_of_files_are_refused(suffix: str) -> None:
    with pytest.raises(UsageError, match=r"\.svg, \.png or \.pdf"):
        draw(machine.chart_noise(PROFILE), suffix, 180)


@pytest.mark.parametrize("width_mm", [80, 180])
def test_a_picture_is_about_as_wide_as_asked_for(width_mm: int, contents: ReportContents) -> None:
    for chart in all_charts(contents):
        svg = draw(chart, ".svg", width_mm).decode()
        found = re.search(r'width="([0-9.]+)"', svg)
        assert found is not None
        assert float(found[1]) == pytest.approx(width_mm * 96 / 25.4, rel=0.15), chart.name


def test_panels_stand_below_one_another_where_the_width_is_small() -> None:
    chart = machine.chart_working_sets(PROFILE)
    assert file_spec(chart, 180)["columns"] == 2
    assert file_spec(chart, 80)["columns"] == 1


def test_lines_are_at_most_six_and_the_usual_file_type_is_among_them(
    contents: ReportContents,
) -> None:
    chart = models.chart_contexts(contents.models[0].curves)
    names = {row["name"] for row in rows_of(chart)}
    assert len(names) == MOST_LINES
    assert {"F16", "Q4_K_M", "Q2_K"} <= names
    left_out = {p.quant_label for p in contents.models[0].curves} - names
    assert all(name in chart.caption for name in left_out)
    assert {*chart.table.columns} >= left_out


def test_a_line_goes_through_the_predictions_with_their_intervals(
    contents: ReportContents,
) -> None:
    curves = contents.models[0].curves
    drawn = {
        (row["name"], row["x"]): row
        for row in rows_of(models.chart_contexts(curves))
        if "low" in row
    }
    for p in curves:
        if (p.quant_label, p.setting.depth_tokens) in drawn:
            row = drawn[p.quant_label, p.setting.depth_tokens]
            assert (row["y"], row["low"], row["high"]) == (p.tokens_per_s, p.low, p.high)


def test_a_wanted_rate_is_a_line_with_its_name(contents: ReportContents) -> None:
    chart = models.chart_contexts(contents.models[0].curves, 12.5)
    assert "wanted: 12.5 token/s" in draw(chart, ".svg", 180).decode()


def test_threads_that_were_asked_for_are_lines_and_those_chosen_are_not(
    contents: ReportContents,
) -> None:
    from cpubound import api

    one_each = [api.predict(f"{MODEL}:Q4_0", threads=t, profile=PROFILE) for t in (1, 2)]
    assert {row["name"] for row in rows_of(models.chart_contexts(one_each))} == {
        "1 thread",
        "2 threads",
    }


def test_the_winner_of_each_context_is_said(contents: ReportContents) -> None:
    said = models.describe_winners(contents.models[0].settings)
    fastest = max(
        (p for p in contents.models[0].settings if p.setting.depth_tokens == 4096),
        key=lambda p: p.tokens_per_s,
    )
    assert models.format_cache_setting(fastest) in said


def test_bars_of_a_token_add_up_to_its_time(contents: ReportContents) -> None:
    table = contents.models[0].table
    chart = models.chart_token_time(table)
    assert len(chart.panels) == 2
    parts = [row["ms"] for row in rows_of(chart) if "part" in row]
    assert sum(parts) == pytest.approx(sum(p.seconds.total for p in table) * 1e3)


def test_each_user_gets_a_share_of_what_all_get(contents: ReportContents) -> None:
    chart = models.chart_batches(contents.models[0].batches)
    together, each = (panel.to_dict() for panel in chart.panels)
    totals, shares = (
        next(rows for rows in panel["datasets"].values() if "low" in rows[0])
        for panel in (together, each)
    )
    assert [row["y"] for row in shares] == [row["y"] / row["x"] for row in totals]


def test_every_sample_of_bandwidth_is_a_dot() -> None:
    dots = [row for row in rows_of(machine.chart_scaling(PROFILE)) if "count" in row]
    assert len(dots) == sum(len(m.samples_s) for m in PROFILE.bandwidth)


def test_a_knee_is_marked_only_where_more_threads_were_measured() -> None:
    assert any("saturates at 2" in str(row) for row in rows_of(machine.chart_scaling(PROFILE)))
    shorter = full_profile(bandwidth=PROFILE.bandwidth[:2])
    assert "saturates" not in str(rows_of(machine.chart_scaling(shorter)))


def test_one_thread_count_of_one_sample_is_drawn_without_a_law() -> None:
    import msgspec

    one = msgspec.structs.replace(PROFILE.bandwidth[0], samples_s=(0.005,))
    chart = machine.chart_scaling(msgspec.structs.replace(PROFILE, bandwidth=(one,)))
    assert b"<svg" in draw(chart, ".svg", 180)
    assert not any("low" in row for row in rows_of(chart))


def test_samples_far_from_the_rest_are_marked() -> None:
    rows = [row for row in rows_of(machine.chart_noise(PROFILE)) if "kind" in row]
    assert [row["value"] for row in rows if row["kind"] == "far from the rest"] == [0.5]
    assert len(rows) == len(PROFILE.noise.relative_samples)


def test_measured_points_are_operations_over_the_bytes_read() -> None:
    rows = [row for row in rows_of(roofs.chart_roofs(PROFILE)) if "kind" in row]
    own = next(row for row in rows if row["kind"] == "our kernels")
    m = PROFILE.measurements("gemv_q8_0", "anon_4k")[4]
    assert own["intensity"] == m.flops_per_pass / m.bytes_per_pass
    assert own["gflops"] == pytest.approx(m.median_flops_per_s / 1e9)


def test_a_roofline_names_operators_batches_and_sources() -> None:
    svg = draw(roofs.chart_roofline(roofline(), LINE), ".svg", 180).decode()
    for words in ("batch 8", "norms", "4096 tokens", "data sheet of the test", "ridge at 17"):
        assert words in svg


def test_a_roof_without_a_peak_rate_is_refused() -> None:
    with pytest.raises(UsageError, match="--peak-flops"):
        roofs.chart_roofline(roofline(None), LINE)


def test_predicted_stands_against_observed_on_equal_scales() -> None:
    validation = observed(PROFILE)
    chart = checks.chart_validation(validation, PROFILE)
    points = [row for row in rows_of(chart) if "error" in row]
    assert [row["observed"] for row in points] == [
        cell.observed_tokens_per_s for cell in validation.cells
    ]
    for row in points:
        assert row["low"] <= row["predicted"] <= row["high"]
        assert row["slow"] <= row["observed"] <= row["fast"]
    scales = re.findall(r"'domain': (\[[^\]]+\])", str(chart.panels[0].to_dict()["layer"][1]))
    assert len(set(scales)) == 1
    assert chart.is_square


def test_colours_are_told_only_by_the_palette(contents: ReportContents) -> None:
    for chart in all_charts(contents):
        for panel in chart.panels:
            assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgb\(", str(panel.to_dict()["layer"]))
    assert "var(--" in str(config(PAGE))
    assert "var(--" not in str(config(PAPER))


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=4), st.floats(0, 100), min_size=1, max_size=MOST_LINES
    )
)
def test_labels_never_cover_each_other_and_keep_their_order(ends: dict[str, float]) -> None:
    places = spread_labels(ends, 100.0)
    ordered = sorted(places.values())
    gap = 12.9 * 100.0 / HEIGHT
    assert all(b - a >= gap for a, b in itertools.pairwise(ordered))
    names = sorted(ends, key=lambda name: ends[name])
    assert [places[name] for name in names] == ordered


def test_labels_that_have_room_stay_where_their_lines_end() -> None:
    ends = {"a": 10.0, "b": 50.0, "c": 90.0}
    assert spread_labels(ends, 100.0) == ends


@given(st.lists(st.text(max_size=3), min_size=1, max_size=30, unique=True), st.data())
def test_lines_that_are_chosen_have_the_ends_and_the_one_to_keep(
    names: list[str], data: st.DataObject
) -> None:
    keep = data.draw(st.sampled_from(names))
    chosen = choose_lines(names, keep)
    assert len(chosen) <= MOST_LINES
    assert keep in chosen
    assert {names[0], names[-1]} <= {*chosen} | {keep}
    assert [name for name in names if name in chosen] == list(chosen)


def test_ticks_are_plain_numbers_within_the_axis() -> None:
    assert log_ticks(4.5, 120) == [5, 10, 20, 50, 100]
    assert log_ticks(0.3, 12, (1,)) == [1, 10]
    assert binary_ticks(8192, 2**27) == [2**15, 2**18, 2**21, 2**24, 2**27]


def test_the_band_of_a_law_holds_the_law_of_its_samples() -> None:
    samples = {1: [10.0, 10.2, 9.8, 10.1], 2: [19.0, 19.5, 18.5, 19.2], 4: [30.0, 31.0, 29.0, 30.5]}
    band = law_band(samples, (1, 2, 4))
    for (low, high), rates in zip(band, samples.values(), strict=True):
        assert min(rates) * 0.95 <= low <= high <= max(rates) * 1.05
    exact = law_band({t: [r[0]] for t, r in samples.items()}, (1, 2, 4))
    assert all(low == high for low, high in exact)
