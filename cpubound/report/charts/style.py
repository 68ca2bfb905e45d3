"""What every chart shares: its parts, its colours, where labels go, plain ticks.

A chart is drawn by Vega-Lite, in a page and in a file alike. Definitions name no colour: they name
a series or a style, and a palette says what each looks like, so that a page can turn dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from cpubound.report.tables import Table

if TYPE_CHECKING:
    import altair

# Lines of one panel: more cannot be told from each other.
MOST_LINES = 6
# Of a panel in pixels of 1/96 inch, and what labels take on its right.
HEIGHT = 260
LABEL_WIDTH = 84
# An entry of a legend.
LEGEND_PIXELS = 160
_LABEL_GAP = 13.0
_LABEL_LIMIT = 150
_ROW_HEIGHT = 26
# Lines differ in dash as well as in colour, points in shape.
DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 2], [12, 4])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
# Plain wheel and drag scroll the page.
SHIFT_WHEEL = "wheel![event.shiftKey]"
SHIFT_DRAG = "[pointerdown[event.shiftKey], window:pointerup] > window:pointermove!"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"


@dataclass(frozen=True, kw_only=True, slots=True)
class Palette:
    """Colours by what they are for; ``series`` are those of lines, bars and points in order."""

    ink: str
    quiet: str
    grid: str
    surface: str
    series: tuple[str, ...]


# Okabe and Ito (2008), darkened until text in them reads on white (contrast of 4.5).
PAPER = Palette(
    ink="#1b1f27",
    quiet="#565e6c",
    grid="#e3e6eb",
    surface="#ffffff",
    series=("#0068a8", "#b84a00", "#007a58", "#a34c80", "#8a6000", "#4a5160"),
)
# Style sheets set these: a page changes its colours without drawing anew.
PAGE = Palette(
    ink="var(--ink)",
    quiet="var(--quiet)",
    grid="var(--grid)",
    surface="var(--surface)",
    series=tuple(f"var(--series-{place + 1})" for place in range(MOST_LINES)),
)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Panels that answer one question, and their numbers as a table.

    ``name`` is an identifier, ``caption`` says in a sentence what the marks are, ``label_width``
    is what names of lines take on the right of a panel, in pixels; ``is_square`` panels are as
    high as they are wide.
    """

    name: str
    title: str
    panels: tuple[altair.Chart | altair.LayerChart, ...]
    caption: str
    table: Table
    label_width: int = 0
    is_square: bool = False


def config(palette: Palette) -> dict[str, Any]:
    """Return the Vega-Lite configuration of a palette."""
    return {
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "padding": {"left": 4, "top": 4, "right": 8, "bottom": 4},
        "title": {
            "anchor": "start",
            "fontSize": 13,
            "fontWeight": 600,
            "offset": 10,
            "color": palette.ink,
        },
        "axis": {
            "gridColor": palette.grid,
            "domainColor": palette.quiet,
            "tickColor": palette.quiet,
            "labelColor": palette.ink,
            "titleColor": palette.quiet,
            "titleFontWeight": "normal",
            "labelFontSize": 11,
            "titleFontSize": 11,
            "labelOverlap": "greedy",
            "labelSeparation": 6,
            "labelLimit": _LABEL_LIMIT,
        },
        "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
        "axisX": {"grid": False},
        "legend": {
            "labelColor": palette.ink,
            "titleColor": palette.quiet,
            "labelFontSize": 11,
            "symbolStrokeWidth": 2,
            "orient": "top",
            "title": None,
            "labelLimit": _LABEL_LIMIT,
        },
        "range": {"category": list(palette.series), "symbol": list(SHAPES)},
        "mark": {"color": palette.series[0]},
        "line": {"strokeWidth": 2.2},
        "style": {
            "reference": {"color": palette.quiet, "strokeDash": [4, 3], "strokeWidth": 1.2},
            "note": {"color": palette.quiet, "fontSize": 11, "limit": 220},
            "roof": {"color": palette.ink, "strokeWidth": 1.8},
            "band": {"color": palette.quiet, "fillOpacity": 0.15},
            "error": {"color": palette.ink, "strokeWidth": 1.2},
            "plain": {"color": palette.ink, "fontSize": 11, "limit": 220},
            "inside": {"color": palette.surface, "fontSize": 11, "fontWeight": 600},
        },
    }


def chart_of(rows: Sequence[Mapping[str, Any]]) -> altair.Chart:
    """Return a chart of these rows that has no mark yet."""
    import altair

    return altair.Chart({"values": list(rows)})


def panel_height(rows: int) -> int:
    """Return the height of a panel of bars."""
    return _ROW_HEIGHT * max(rows, 1)


def choose_lines(names: Iterable[str], keep: str | None = None) -> tuple[str, ...]:
    """Return at most six names: evenly through their order, the first, the last and ``keep``."""
    ordered = list(dict.fromkeys(names))
    if len(ordered) <= MOST_LINES:
        return tuple(ordered)
    others = [name for name in ordered if name != keep]
    count = MOST_LINES - (len(others) < len(ordered))
    step = (len(others) - 1) / (count - 1)
    chosen = {others[round(place * step)] for place in range(count)} | {keep}
    return tuple(name for name in ordered if name in chosen)


def spread_labels(ends: Mapping[str, float], top: float) -> dict[str, float]:
    """Return where on the axis each line's label goes: near its end, but never over another's.

    Parameters
    ----------
    ends : the last value of each line.
    top : the end of a linear axis from zero that is ``HEIGHT`` pixels high.
    """
    gap = _LABEL_GAP * top / HEIGHT
    names = sorted(ends, key=lambda name: ends[name])
    values = [ends[name] for name in names]
    # Pushed up by those below, and down by those above: between the two each has its room.
    up = list(accumulate(values, lambda below, value: max(value, below + gap)))
    down = list(accumulate(reversed(values), lambda above, value: min(value, above - gap)))
    places = [(a + b) / 2 for a, b in zip(up, reversed(down), strict=True)]
    return dict(zip(names, places, strict=True))


def log_ticks(low: float, high: float, steps: Sequence[int] = (1, 2, 5)) -> list[float]:
    """Return the values of a logarithmic axis that are written: 1, 2, 5, 10, … within the range."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def binary_ticks(low: float, high: float, factor: int = 8) -> list[float]:
    """Return powers of ``factor`` within the range, for sizes."""
    first = math.ceil(math.log(low, factor) - 1e-9)
    last = math.floor(math.log(high, factor) + 1e-9)
    return [float(factor) ** power for power in range(first, last + 1)]
