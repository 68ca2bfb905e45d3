"""What all pictures share: figures, series, captions, and the bytes of the file.

matplotlib is the extra ``plot`` and imported only here, inside functions. Series differ in
marker and line as well as in colour, so that a grey print can be read; the colours are those of
Okabe and Ito (2008).
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cpubound.errors import MachineError, UsageError
from cpubound.trust import standing_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Nine beside seven colours: a pair of both comes again only after 63.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
LINES = ("-", "--", "-.", ":")
HATCHES = ("", "//", "..")
_CAPTION_COLUMNS = 15  # characters for each inch of width


def check_suffix(suffix: str) -> str:
    """Return ``svg`` or ``png``; raises ``UsageError`` for another suffix."""
    if suffix.lower() not in SUFFIXES:
        given = suffix if suffix[1:].isalnum() and len(suffix) < 8 else "no such suffix"
        raise UsageError(f"a picture is a .svg or a .png file ({given}): rename the file")
    return suffix.lower().removeprefix(".")


def require_matplotlib() -> None:
    """Raise ``MachineError`` with the line that installs matplotlib if it is missing."""
    try:
        # It reads settings from a matplotlibrc in the current folder, code in them included.
        with standing_in(Path(__file__).parent):
            import matplotlib.figure  # noqa: F401
            from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: F401
    except ImportError as error:
        raise MachineError(
            f"pictures need matplotlib ({error}): pip install 'cpubound[plot]'"
        ) from error


def new_figure(suffix: str) -> tuple[Figure, Axes]:
    """Return a figure with one pair of axes."""
    figure, (axes,) = new_panels(suffix, 1, width=8)
    return figure, axes


def new_panels(suffix: str, count: int, *, width: float = 12) -> tuple[Figure, tuple[Axes, ...]]:
    """Return a figure with axes side by side, ``width`` inches in all.

    Raises
    ------
    UsageError : another suffix than .svg or .png.
    MachineError : matplotlib is missing.
    """
    check_suffix(suffix)
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = tuple(figure.add_subplot(1, count, place + 1) for place in range(count))
    for axes in panels:
        axes.grid(True, which="major", linewidth=0.4, alpha=0.6)
        axes.set_axisbelow(True)
    return figure, panels


def draw_series(
    axes: Axes, values: Mapping[int, float], label: str, place: int, line: int | None = None
) -> None:
    """Draw one line with markers; ``place`` chooses colour and marker, ``line`` the line."""
    axes.plot(
        list(values),
        list(values.values()),
        marker=cycle(MARKERS, place),
        linestyle=cycle(LINES, place if line is None else line),
        color=cycle(COLOURS, place),
        label=label,
    )


def finish(figure: Figure, caption: str, suffix: str) -> bytes:
    """Write the caption under the figure and return the file's bytes."""
    columns = round(_CAPTION_COLUMNS * figure.get_figwidth())
    figure.supxlabel("\n".join(textwrap.wrap(caption, columns)), fontsize="x-small")
    buffer = io.BytesIO()
    # No date in the file: the same figures give the same bytes.
    kind = check_suffix(suffix)
    metadata = {"Date": None} if kind == "svg" else {}
    with warnings.catch_warnings():
        # A name may have characters that no font here draws: they become boxes.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


def cycle(choices: Sequence[str], place: int) -> str:
    """Return a choice, from the start again after the last."""
    return choices[place % len(choices)]
