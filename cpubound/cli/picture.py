"""The option ``--plot``: checked before any work, written after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cpubound.cli.output import check_new_file, save_file

Function = TypeVar("Function", bound=Callable[..., Any])


def plot_option(what: str) -> Callable[[Function], Function]:
    """Add --plot, which draws ``what``."""
    return click.option(
        "--plot", "plot_path", metavar="FILE.svg|png", help=f"Draw {what} (extra: plot)."
    )


def check_picture(plot_path: str | None, *, force: bool) -> None:
    """Raise before any work if the picture could not be drawn or written.

    Raises
    ------
    UsageError : a file is in the way, or its suffix is neither .svg nor .png.
    MachineError : matplotlib is missing.
    """
    if plot_path is None:
        return
    from cpubound.report.figures import check_suffix, require_matplotlib

    check_new_file(Path(plot_path), force=force)
    check_suffix(Path(plot_path).suffix)
    require_matplotlib()


def write_picture(plot_path: str | None, draw: Callable[[str], bytes], *, force: bool) -> None:
    """Write what ``draw``, given the suffix, returns; do nothing without a path."""
    if plot_path is None:
        return
    path = Path(plot_path)
    save_file(path, draw(path.suffix), force=force)
