"""Charts of rates under roofs: llama.cpp's by type of the weights, and measured points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpubound.cost.interval import NORMAL_90
from cpubound.cost.rates import grid_of, measured_types, table_at, weight_rate
from cpubound.errors import UsageError
from cpubound.foreign import showing
from cpubound.model.quant import quant_type
from cpubound.profile.values import EngineCalibration, MachineProfile
from cpubound.report.charts.style import (
    HEIGHT,
    SHIFT_DRAG,
    SHIFT_WHEEL,
    Chart,
    chart_of,
    log_ticks,
    panel_height,
)
from cpubound.report.profile import USUAL_COLUMNS
from cpubound.report.roofline_document import MachineLine
from cpubound.report.tables import Table
from cpubound.report.type_rates import rate_table, type_rates
from cpubound.theory.analysis import Roofline
from cpubound.units import GB, format_count, format_rate, format_significant

if TYPE_CHECKING:
    import altair

GIGA = 1e9


@showing()
def chart_rates(profile: MachineProfile) -> Chart:
    """Draw llama.cpp's rate of each type under the read bandwidth.

    Raises
    ------
    UsageError : llama.cpp was not measured.
    """
    import altair as alt

    if profile.engine is None or not profile.engine.tables:
        raise UsageError("llama.cpp was not measured: run `cpubound calibrate` with the engine")
    threads = max(profile.engine.threads)
    rates = type_rates(profile, threads)
    order = [rate.type for rate in rates]
    roof = rates[0].roof_bytes_per_s / GB
    rows: list[dict[str, Any]] = [
        {
            "type": rate.type,
            "rate": rate.bytes_per_s / GB,
            "low": rate.bytes_per_s / GB * max(1 - NORMAL_90 * rate.relative_error, 0),
            "high": rate.bytes_per_s / GB * (1 + NORMAL_90 * rate.relative_error),
            "own": None if rate.kernel_bytes_per_s is None else rate.kernel_bytes_per_s / GB,
            "share": f"{rate.share * 100:.0f} %",
            "limit": f"limited by {rate.limit}",
        }
        for rate in rates
    ]
    top = 1.18 * max(roof, *(row["high"] for row in rows), *(row["own"] or 0 for row in rows))
    scale = alt.Scale(domain=[0, top])
    y = alt.Y("type:N", sort=order, title=None, scale=alt.Scale(domain=order))
    base = chart_of(rows)
    x = alt.X("rate:Q", title="GB/s", scale=scale)
    bars = base.mark_bar(height={"band": 0.66}).encode(
        x=x,
        y=y,
        color=alt.Color(
            "limit:N",
            scale=alt.Scale(domain=["limited by memory", "limited by kernel"], range="category"),
        ),
        tooltip=[
            alt.Tooltip("type:N", title="type"),
            alt.Tooltip("rate:Q", title="GB/s", format=".3~r"),
            alt.Tooltip("share:N", title="of the roof"),
            alt.Tooltip("limit:N", title="it is"),
            alt.Tooltip("own:Q", title="our kernel, GB/s", format=".3~r"),
        ],
    )  # fmt: skip
    errors = base.mark_rule(style="error").encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y)
    own = base.mark_tick(style="error", thickness=2.5, height=20).encode(
        x=alt.X("own:Q", scale=scale), y=y
    )
    shares = base.mark_text(style="inside", align="left", dx=6).encode(
        x=alt.XDatum(0, scale=scale), y=y, text="share:N"
    )
    roof_row = chart_of([{"roof": roof, "text": f"roof {roof:.1f}"}])
    roof_x = alt.X("roof:Q", scale=scale)
    line = roof_row.mark_rule(style="reference").encode(x=roof_x)
    name = roof_row.mark_text(style="note", align="left", baseline="bottom", dx=3, y=-2).encode(
        x=roof_x, text="text:N"
    )
    panel = alt.layer(bars, errors, own, shares, line, name).properties(
        title=f"Weights, GB/s at {format_count(threads, 'thread')}",
        height=panel_height(len(order)),
    )
    return Chart(
        name="rates",
        title="llama.cpp's rate by type of the weights",
        panels=(panel,),
        caption="Roof: the bandwidth of reading a mapped file with as many threads; per cent: the "
        "share of it. Thin lines: 90 % intervals; ticks: our own kernels.",
        table=rate_table(rates),
    )


@showing()
def chart_roofs(profile: MachineProfile) -> Chart:
    """Draw measured points under measured roofs: our kernels, llama.cpp alone and in batches.

    Raises
    ------
    UsageError : the profile lacks a bandwidth or a peak rate.
    """
    rates = [m.median_bytes_per_s for m in profile.bandwidth if m.kernel == "read"]
    peaks: dict[str, float] = {}
    for row in profile.peak:
        name = row.dtype.upper()
        peaks[name] = max(row.flops_per_s, peaks.get(name, 0.0))
    if not rates or not peaks:
        raise UsageError("the profile holds no roofs: run `cpubound calibrate` again")
    points = (*_kernel_points(profile), *_engine_points(profile))
    return Chart(
        name="roofs",
        title="Measured points under measured roofs",
        panels=(draw_roofs(max(rates), peaks, points, title="Operations, GFLOP/s"),),
        caption="The slope is memory, level lines are arithmetic by type of number.",
        table=roof_table(points, max(rates), max(peaks.values())),
    )


@showing()
def chart_roofline(roofline: Roofline, machine: MachineLine) -> Chart:
    """Draw what the roofs let each operator of a model reach, at each batch.

    The longest of the contexts is drawn.

    Raises
    ------
    UsageError : no peak rate to draw a roof of.
    """
    bandwidth, peak = roofline.roofs.bytes_per_s, roofline.roofs.flops_per_s
    if peak is None:
        raise UsageError(
            "a roofline needs a peak rate and none is known for this machine: give --peak-flops"
        )
    longest = max(point.context_tokens for point in roofline.points)
    points = tuple(
        RoofPoint(
            kind=f"batch {point.batch}",
            name=work.name,
            intensity=work.intensity,
            flops_per_s=min(peak, work.intensity * bandwidth),
        )
        for point in roofline.points
        if point.context_tokens == longest
        for work in point.operators
    )
    used = ("measured",) if machine.peak_bytes_per_s is None else ("peak", "flops")
    sources = " ".join(f"{text}." for key, text in machine.sources.items() if key in used)
    return Chart(
        name="roofline",
        title=f"{roofline.model} {roofline.quant_label}, {longest} tokens of context",
        panels=(
            draw_roofs(
                bandwidth, {"peak": peak}, points, title="Attainable, GFLOP/s", by_name=True
            ),
        ),
        caption=f"{machine.title}: bandwidth {machine.bandwidth_origin}, peak "
        f"{machine.peak_origin}; ridge at {peak / bandwidth:.0f} operations a byte. {sources}",
        table=roof_table(points, bandwidth, peak),
    )


def draw_roofs(
    bandwidth: float,
    peaks: Mapping[str, float],
    points: Sequence[RoofPoint],
    *,
    title: str,
    by_name: bool = False,
) -> altair.LayerChart:
    """Draw points under a slope of ``bandwidth`` (bytes/s) and level lines of ``peaks`` (FLOP/s).

    Colours tell the kinds of points, shapes too, or ``by_name`` what they are.
    """
    import altair as alt

    highest = max(peaks.values())
    left = min([p.intensity for p in points] or [0.25]) / 1.8
    right = max([p.intensity for p in points] + [highest / bandwidth]) * 3
    bottom = min([p.flops_per_s for p in points] + [left * bandwidth]) / 1.8 / GIGA
    top = highest * 2.2 / GIGA
    x = alt.X(
        "intensity:Q",
        scale=alt.Scale(type="log", domain=[left, right], nice=False),
        axis=alt.Axis(
            title="operations for each byte read", values=log_ticks(left, right), format="~r"
        ),
    )
    y = alt.Y(
        "gflops:Q",
        title=None,
        scale=alt.Scale(type="log", domain=[bottom, top], nice=False),
        axis=alt.Axis(values=log_ticks(bottom, top, (1,)), format=",~r"),
    )
    roofs = [
        {"intensity": x_end, "gflops": min(peak, x_end * bandwidth) / GIGA, "roof": name}
        for name, peak in peaks.items()
        for x_end in (left, peak / bandwidth, right)
    ]
    names = [
        {"intensity": right, "gflops": peak / GIGA, "text": f"{name} {peak / GIGA:,.0f}"}
        for name, peak in peaks.items()
    ]
    slope = {"intensity": left, "gflops": left * bandwidth / GIGA, "text": format_rate(bandwidth)}
    kinds = list(dict.fromkeys(p.kind for p in points))
    rows = [
        {"kind": p.kind, "name": p.name, "intensity": p.intensity, "gflops": p.flops_per_s / GIGA}
        for p in points
    ]
    marks = chart_of(rows)
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range="symbol"))
    if by_name:
        shape = alt.Shape("name:N", scale=alt.Scale(range="symbol"))
    zoom = alt.selection_interval(
        bind="scales", zoom=SHIFT_WHEEL, translate=SHIFT_DRAG, name="zoom"
    )
    layers = [
        chart_of(roofs).mark_line(style="roof", clip=True).encode(x=x, y=y, detail="roof:N"),
        chart_of(names)
        .mark_text(style="note", align="right", dy=-7)
        .encode(x=x, y=y, text="text:N"),
        chart_of([slope])
        .mark_text(style="note", align="left", dx=22, dy=4)
        .encode(x=x, y=y, text="text:N"),
        marks.mark_point(filled=True, size=58, opacity=0.85, clip=True)
        .encode(
            x=x,
            y=y,
            color=alt.Color("kind:N", scale=alt.Scale(domain=kinds, range="category")),
            shape=shape,
            tooltip=[
                alt.Tooltip("name:N", title="what"),
                alt.Tooltip("gflops:Q", title="GFLOP/s", format=".3~r"),
                alt.Tooltip("intensity:Q", title="operations a byte", format=".3~r"),
            ],
        )
        .add_params(zoom),
    ]
    panel: altair.LayerChart = alt.layer(*layers).properties(title=title, height=HEIGHT + 60)
    return panel


def roof_table(points: Sequence[RoofPoint], bandwidth: float, peak: float) -> Table:
    """Return the points as rows, each with its share of the lower of the two roofs."""
    columns = ("what", "operations a byte", "GFLOP/s", "of the roof")
    rows = tuple(
        (
            f"{p.name}, {p.kind}",
            format_significant(p.intensity),
            format_significant(p.flops_per_s / GIGA),
            f"{p.flops_per_s / min(p.intensity * bandwidth, peak) * 100:.0f} %",
        )
        for p in points
    )
    return Table(columns=columns, rows=rows, right=frozenset(columns[1:]))


@dataclass(frozen=True, kw_only=True, slots=True)
class RoofPoint:
    """What a product reaches, and how many operations it does for each byte that it reads."""

    kind: str
    name: str
    intensity: float
    flops_per_s: float


def _kernel_points(profile: MachineProfile) -> Iterator[RoofPoint]:
    """Yield what our own products reach at the most threads."""
    for m in profile.bandwidth:
        most = max(o.threads for o in profile.bandwidth if o.kernel == m.kernel)
        if m.flops_per_pass and m.threads == most:
            name = m.kernel.removeprefix("gemv_").upper()
            yield RoofPoint(
                kind="our kernels",
                name=f"{name}, {format_count(m.threads, 'thread')}",
                intensity=m.flops_per_pass / m.bytes_per_pass,
                flops_per_s=m.median_flops_per_s,
            )


def _engine_points(profile: MachineProfile) -> Iterator[RoofPoint]:
    """Yield what llama.cpp's products reach: of one token, and of several at once."""
    engine = profile.engine
    if engine is None or not engine.tables:
        return
    table = table_at(engine.tables, max(engine.threads))
    if table is None:
        return
    threads = format_count(table.threads, "thread")
    for tokens in (1, *_usual_batches(grid_of(table).tokens)):
        kind = "llama.cpp, 1 token" if tokens == 1 else f"llama.cpp, {tokens} tokens"
        for name in measured_types(engine):
            rate = _batch_rate(engine, name, tokens, table.threads)
            if rate is None:
                continue
            intensity = 2 * tokens * 8 / quant_type(name).bits_per_weight
            yield RoofPoint(
                kind=kind,
                name=f"{name}, {threads}",
                intensity=intensity,
                flops_per_s=intensity * rate,
            )


def _usual_batches(measured: Sequence[int]) -> list[int]:
    """Return one small batch and the largest, so that the chart stays readable."""
    several = [tokens for tokens in measured if tokens > 1]
    return sorted({several[len(several) // 2], several[-1]}) if several else []


def _batch_rate(engine: EngineCalibration, name: str, tokens: int, threads: int) -> float | None:
    """Return the bytes per second of a type's weights for so many tokens at once."""
    if tokens == 1:
        rate = weight_rate(engine, name, USUAL_COLUMNS, threads)
        return None if rate is None else rate.bytes_per_s
    table = table_at(engine.tables, threads)
    seconds = 0.0 if table is None else table.seconds_of(f"bytes:{name}@{tokens}")
    return 1 / seconds if seconds > 0 else None
