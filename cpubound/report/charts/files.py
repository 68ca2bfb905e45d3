"""A chart as a file: SVG, PNG or PDF of a width in millimetres."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from textwrap import wrap
from typing import Any

from cpubound.errors import MachineError, UsageError
from cpubound.report.charts.style import LEGEND_PIXELS, PAPER, Chart, config

SUFFIXES = (".svg", ".png", ".pdf")
_PIXELS_PER_MM = 96 / 25.4
# Panels stand side by side where each is at least so wide.
_PANEL_PIXELS = 300
_GAP = 24
# What ticks take on the left.
_AXIS_PIXELS = 40
_PNG_SCALE = 3
# Of a character of a caption, on average.
_CHARACTER_PIXELS = 6.2
_TITLE_PIXELS = 9.0  # the same of a title


def check_suffix(suffix: str) -> str:
    """Return ``svg``, ``png`` or ``pdf``; raises ``UsageError`` for another suffix."""
    if suffix.lower() not in SUFFIXES:
        given = suffix if suffix[1:].isalnum() and len(suffix) < 8 else "no such suffix"
        raise UsageError(f"a picture is a .svg, .png or .pdf file ({given}): rename the file")
    return suffix.lower().removeprefix(".")


def require_charts() -> None:
    """Raise ``MachineError`` with the line that installs the extra if a package is missing."""
    try:
        import altair  # noqa: F401
        import jinja2  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise MachineError(f"charts need {error.name}: pip install 'cpubound[report]'") from error


def draw(chart: Chart, suffix: str, width_mm: float) -> bytes:
    """Return the bytes of a chart's file; the same chart gives the same bytes.

    Raises
    ------
    UsageError : another suffix than .svg, .png or .pdf.
    """
    import vl_convert

    writers: Mapping[str, Callable[[dict[str, Any]], Any]] = {
        "svg": vl_convert.vegalite_to_svg,
        "pdf": vl_convert.vegalite_to_pdf,
        "png": lambda spec: vl_convert.vegalite_to_png(spec, scale=_PNG_SCALE),
    }
    written = writers[check_suffix(suffix)](file_spec(chart, width_mm))
    return written.encode() if isinstance(written, str) else bytes(written)


def file_spec(chart: Chart, width_mm: float) -> dict[str, Any]:
    """Return one specification of all panels, beside or below one another as the width allows."""
    import altair

    width = width_mm * _PIXELS_PER_MM
    columns = min(len(chart.panels), max(1, int((width + _GAP) // (_PANEL_PIXELS + _GAP))))
    panel_width = round((width - _GAP * (columns - 1)) / columns - chart.label_width - _AXIS_PIXELS)
    size = {"width": panel_width, **({"height": panel_width} if chart.is_square else {})}
    panels = [panel.properties(**size) for panel in chart.panels]
    joined = altair.concat(*panels, columns=columns, spacing=_GAP).resolve_scale(
        color="independent", shape="independent", strokeDash="independent"
    )
    spec: dict[str, Any] = (joined if len(panels) > 1 else panels[0]).to_dict()
    spec["config"] = config(PAPER) | {"background": PAPER.surface}
    spec["config"]["legend"]["columns"] = max(1, panel_width // LEGEND_PIXELS)
    lines = wrap(chart.title, round(width / _TITLE_PIXELS))
    heading = {"text": lines, "fontSize": 15, "offset": 14, "anchor": "start"}
    notes = wrap(chart.caption, round(width / _CHARACTER_PIXELS))
    subtitle = {"subtitle": notes, "subtitleColor": PAPER.quiet, "subtitleFontSize": 11}
    if len(panels) == 1:
        subtitle["subtitle"] = [*notes, "", spec["title"]]
    spec["title"] = heading | subtitle
    return spec
