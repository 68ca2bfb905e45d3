"""Panels of lines: each with its band, its points to point at, and its name at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpubound.report.charts.style import DASHES, HEIGHT, LABEL_WIDTH, chart_of, spread_labels

if TYPE_CHECKING:
    import altair

_HEADROOM = 1.06


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePoint:
    """A point of a line; ``low`` … ``high`` its interval, ``details`` what else pointing shows."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    details: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A horizontal axis: what it counts, which values are written, and how.

    ``label`` is a Vega expression of ``datum.value``, None for the plain number.
    """

    title: str
    ticks: Sequence[float]
    label: str | None = None
    is_logarithmic: bool = False


def draw_lines(
    lines: Mapping[str, Sequence[LinePoint]],
    *,
    title: str,
    unit: str,
    axis: Axis,
    references: Mapping[str, float] | None = None,
    order: Sequence[str] | None = None,
) -> altair.LayerChart:
    """Draw lines over one axis from zero up.

    Parameters
    ----------
    lines : at most six, by name.
    unit : of the values, for what pointing shows.
    references : horizontal lines by what is written on them.
    order : names in the order of colours; by default that of ``lines``.
    """
    import altair as alt

    names = list(order or lines)
    levels = references or {}
    ends = {name: points[-1].y for name, points in lines.items()}
    highest = [point.high or point.y for points in lines.values() for point in points]
    top = _HEADROOM * max(*highest, *levels.values(), 0.0)
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "x": point.x,
            "y": point.y,
            "low": point.low,
            "high": point.high,
            "details": point.details,
        }
        for name, points in lines.items()
        for point in points
    ]
    x = _x(axis, [row["x"] for row in rows])
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=[0, top]))
    color = alt.Color("name:N", scale=alt.Scale(domain=names, range="category"), legend=None)
    base = chart_of(rows)
    layers: list[alt.Chart] = []
    if any(row["low"] is not None for row in rows):
        low = alt.Y("low:Q", title=None, scale=alt.Scale(domain=[0, top]))
        band = base.mark_area(opacity=0.14, clip=True)
        layers.append(band.encode(x=x, y=low, y2="high:Q", color=color))
    dash = alt.StrokeDash(
        "name:N", scale=alt.Scale(domain=names, range=list(DASHES[: len(names)])), legend=None
    )
    layers.append(base.mark_line(clip=True).encode(x=x, y=y, color=color, strokeDash=dash))
    tooltip = [
        alt.Tooltip("name:N", title="line"),
        alt.Tooltip("x:Q", title=axis.title, format=","),
        alt.Tooltip("y:Q", title=unit, format=".3~r"),
        *(
            [
                alt.Tooltip("low:Q", title="at least", format=".3~r"),
                alt.Tooltip("high:Q", title="at most", format=".3~r"),
            ]
            if len(layers) > 1
            else []
        ),
        *([alt.Tooltip("details:N", title="with")] if any(row["details"] for row in rows) else []),
    ]
    points = base.mark_point(filled=True, size=34, opacity=1)
    layers.append(points.encode(x=x, y=y, color=color, tooltip=tooltip))
    # Larger than what is seen, for fingers.
    targets = base.mark_point(filled=True, size=420, opacity=0)
    layers.append(targets.encode(x=x, y=y, tooltip=tooltip))
    layers += _references(levels, top, rows, x)
    layers.append(_labels(ends, top, rows, x, color))
    panel: altair.LayerChart = alt.layer(*layers).properties(title=title, height=HEIGHT)
    return panel


def _x(axis: Axis, values: Sequence[float]) -> altair.X:
    import altair as alt

    low, high = min(values), max(values)
    if low == high:
        low, high = low - 0.5 if not axis.is_logarithmic else low / 2, high + 0.5
    shown = alt.Axis(title=axis.title, values=list(axis.ticks), format=",d")
    if axis.label is not None:
        shown = alt.Axis(title=axis.title, values=list(axis.ticks), labelExpr=axis.label)
    scale = alt.Scale(domain=[low, high], nice=False, zero=False)
    if axis.is_logarithmic:
        scale = alt.Scale(type="log", domain=[low, high], nice=False)
    return alt.X("x:Q", axis=shown, scale=scale)


def _references(
    levels: Mapping[str, float], top: float, rows: Sequence[Mapping[str, Any]], x: altair.X
) -> list[altair.Chart]:
    import altair as alt

    if not levels:
        return []
    right = max(row["x"] for row in rows)
    values = [{"text": text, "y": level, "x": right} for text, level in levels.items()]
    base = chart_of(values)
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=[0, top]))
    return [
        base.mark_rule(style="reference").encode(y=y),
        base.mark_text(style="note", align="right", dy=-7).encode(x=x, y=y, text="text:N"),
    ]


def _labels(
    ends: Mapping[str, float],
    top: float,
    rows: Sequence[Mapping[str, Any]],
    x: altair.X,
    color: altair.Color,
) -> altair.Chart:
    """Write each line's name to the right of it."""
    import altair as alt

    right = max(row["x"] for row in rows)
    places = spread_labels(ends, top)
    values = [{"name": name, "x": right, "y": place} for name, place in places.items()]
    marks = chart_of(values).mark_text(
        align="left", baseline="middle", dx=9, fontSize=11, fontWeight=600, limit=LABEL_WIDTH - 12
    )
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=[0, top]))
    labels: altair.Chart = marks.encode(x=x, y=y, text="name:N", color=color)
    return labels
