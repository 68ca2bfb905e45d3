"""The options ``--plot`` and ``--plot-width``: checked before any work, drawn after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cpubound.cli.options import FiniteRange
from cpubound.cli.output import check_new_file, save_file

if TYPE_CHECKING:
    from cpubound.report.charts.style import Chart

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_WIDTH_MM = 180


def plot_option(what: str) -> Callable[[Function], Function]:
    """Add --plot, which draws ``what``, and --plot-width."""

    def add(function: Function) -> Function:
        function = click.option(
            "--plot-width",
            type=FiniteRange(40, 1000),
            default=DEFAULT_WIDTH_MM,
            show_default=True,
            metavar="MM",
            help="How wide to draw it, in millimetres.",
        )(function)
        return click.option(
            "--plot",
            "plot_path",
            metavar="FILE.svg|png|pdf",
            help=f"Draw {what} (extra: report).",
        )(function)

    return add


def check_picture(plot_path: str | None, *, force: bool) -> None:
    """Raise before any work if the picture could not be drawn or written.

    Raises
    ------
    UsageError : a file is in the way, or its suffix is none that is drawn.
    MachineError : a package that draws is missing.
    """
    if plot_path is None:
        return
    from cpubound.report.charts.files import check_suffix, require_charts

    check_new_file(Path(plot_path), force=force)
    check_suffix(Path(plot_path).suffix)
    require_charts()


def write_picture(
    plot_path: str | None, width_mm: float, make: Callable[[], Chart], *, force: bool
) -> None:
    """Write the chart that ``make`` returns; do nothing without a path."""
    if plot_path is None:
        return
    from cpubound.report.charts.files import draw

    path = Path(plot_path)
    save_file(path, draw(make(), path.suffix, width_mm), force=force)
