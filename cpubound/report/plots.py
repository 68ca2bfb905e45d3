"""Pictures: rooflines, saturation, context, predicted against observed, the time of a token.

Each function returns the file's bytes as SVG or PNG, by its suffix. matplotlib is the extra
``plot`` and imported only here, inside functions. Series differ in marker and line as well as
in colour, so that a grey print can be read; the colours are those of Okabe and Ito (2008).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cpubound.errors import MachineError, UsageError
from cpubound.prediction.values import Prediction
from cpubound.profile import MachineProfile, find_saturation
from cpubound.report.roofline_document import MachineLine
from cpubound.theory.analysis import Roofline
from cpubound.units import GB
from cpubound.validation import Validation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")
# What the sources of a machine are called under a picture.
_CAPTIONS = {"peak": "Bandwidth", "measured": "Bandwidth", "flops": "FLOP/s"}
HATCHES = ("", "//", "..")


def plot_roofline(roofline: Roofline, machine: MachineLine, *, suffix: str) -> bytes:
    """Draw the roofs and this model's operators at each batch, at the longest context.

    Raises
    ------
    UsageError : another suffix than .svg or .png, or no peak rate to draw a roof of.
    MachineError : matplotlib is missing.
    """
    peak = roofline.roofs.flops_per_s
    if peak is None:
        raise UsageError(
            "a roofline needs a peak rate and none is known for this machine: give --peak-flops"
        )
    figure, axes = _new_figure(suffix)
    longest = max(point.context_tokens for point in roofline.points)
    points = [point for point in roofline.points if point.context_tokens == longest]
    bandwidth = roofline.roofs.bytes_per_s
    intensities = [work.intensity for point in points for work in point.operators]
    ridge = peak / bandwidth
    low = min(*intensities, 1.0) / 2
    high = max(*intensities, ridge) * 4
    axes.loglog([low, ridge, high], [low * bandwidth, peak, peak], color="black", linewidth=1.5)
    names = list(dict.fromkeys(work.name for point in points for work in point.operators))
    for place, point in enumerate(points):
        marks = {work.name: work.intensity for work in point.operators}
        for name, intensity in marks.items():
            axes.plot(
                intensity,
                min(peak, intensity * bandwidth),
                marker=_cycle(MARKERS, names.index(name)),
                color=_cycle(COLOURS, place),
                # Outlines, smaller for each further batch: what coincides stays visible.
                markersize=max(15 - 4 * place, 5),
                markerfacecolor="none",
                markeredgewidth=1.5,
                linestyle="none",
            )
    for place, point in enumerate(points):
        axes.plot([], [], color=_cycle(COLOURS, place), linewidth=4, label=f"batch {point.batch}")
    for place, name in enumerate(names):
        axes.plot(
            [],
            [],
            color="grey",
            marker=_cycle(MARKERS, place),
            mfc="none",
            linestyle="none",
            label=name,
        )
    axes.annotate(
        f"ridge: {ridge:.0f} FLOP/byte",
        (ridge, peak),
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
    )
    axes.set_ylim(top=peak * 2.5)
    axes.set_xlabel("arithmetic intensity (FLOP/byte)")
    axes.set_ylabel("attainable rate (FLOP/s)")
    axes.set_title(f"{roofline.model} {roofline.quant_label}, {longest} tokens of context")
    axes.legend(fontsize="small", loc="lower right")
    used = ("measured",) if machine.peak_bytes_per_s is None else ("peak", "flops")
    caption = (
        f"{machine.title}: bandwidth {machine.bandwidth_origin}, peak {machine.peak_origin}. "
        + " ".join(
            f"{_CAPTIONS[key]}: {source}." for key, source in machine.sources.items() if key in used
        )
    )
    return _finish(figure, caption, suffix)


def plot_saturation(profile: MachineProfile, *, suffix: str) -> bytes:
    """Draw bandwidth against threads for each kernel and page kind, the knee marked."""
    figure, axes = _new_figure(suffix)
    from matplotlib.ticker import MaxNLocator

    series = sorted({(m.kernel, m.page_kind) for m in profile.bandwidth})
    for place, (kernel, page_kind) in enumerate(series):
        rows = profile.measurements(kernel, page_kind)
        rates = {threads: row.median_bytes_per_s / GB for threads, row in rows.items()}
        _draw_series(axes, rates, f"{kernel}, {page_kind}", place)
        knee = find_saturation(rows.values())
        if knee is not None and len(rates) > 1:
            axes.axvline(knee, color=_cycle(COLOURS, place), linewidth=0.8, linestyle=":")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("threads")
    axes.set_ylabel("bandwidth (GB/s), median of samples")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
    caption = (
        f"{_cpu(profile)}, profile of {profile.created[:10]} ({profile.noise.verdict}). "
        "Dotted: fewest threads within 3 % of the best."
    )
    return _finish(figure, caption, suffix)


def plot_contexts(
    predictions: Sequence[Prediction], profile: MachineProfile, *, suffix: str
) -> bytes:
    """Draw predicted tokens per second against the context, with its interval."""
    figure, axes = _new_figure(suffix)
    series: dict[tuple[str, int], list[Prediction]] = {}
    for prediction in predictions:
        series.setdefault((prediction.quant_label, prediction.threads), []).append(prediction)
    for place, ((label, threads), rows) in enumerate(series.items()):
        ordered = sorted(rows, key=lambda row: row.depth_tokens)
        depths = [row.depth_tokens for row in ordered]
        rates = {row.depth_tokens: row.tokens_per_s for row in ordered}
        _draw_series(axes, rates, f"{label}, {threads} threads", place)
        axes.fill_between(
            depths,
            [row.low for row in ordered],
            [row.high for row in ordered],
            color=_cycle(COLOURS, place),
            alpha=0.15,
        )
    axes.set_xlabel("context (tokens in the cache)")
    axes.set_ylabel("decode speed (token/s)")
    axes.set_ylim(bottom=0)
    axes.set_title(", ".join(dict.fromkeys(row.model for row in predictions)))
    axes.legend(fontsize="small")
    caption = f"Predicted, with 90 % intervals, for {_cpu(profile)}."
    return _finish(figure, caption, suffix)


def plot_validation(validation: Validation, *, suffix: str) -> bytes:
    """Draw predicted against observed tokens per second; on the diagonal both agree."""
    figure, axes = _new_figure(suffix)
    cells = validation.cells
    by_label: dict[str, list[Any]] = {}
    for cell in cells:
        by_label.setdefault(cell.prediction.quant_label, []).append(cell)
    for place, (label, rows) in enumerate(by_label.items()):
        predicted = [row.prediction.tokens_per_s for row in rows]
        axes.errorbar(
            [row.observed_tokens_per_s for row in rows],
            predicted,
            yerr=(
                [row.prediction.tokens_per_s - row.prediction.low for row in rows],
                [row.prediction.high - row.prediction.tokens_per_s for row in rows],
            ),
            marker=_cycle(MARKERS, place),
            color=_cycle(COLOURS, place),
            linestyle="none",
            label=label,
        )
    rates = [cell.observed_tokens_per_s for cell in cells]
    rates += [cell.prediction.tokens_per_s for cell in cells]
    ends = [min(rates) * 0.8, max(rates) * 1.25]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("observed (token/s)")
    axes.set_ylabel("predicted (token/s)")
    axes.legend(fontsize="small")
    return _finish(figure, "Bars: 90 % intervals of the prediction; line: equal.", suffix)


def plot_token_time(
    predictions: Sequence[Prediction], profile: MachineProfile, *, suffix: str
) -> bytes:
    """Draw where the time of a token goes, a bar for each prediction."""
    figure, axes = _new_figure(suffix)
    labels = [f"{p.quant_label}, {p.threads} thr, {p.depth_tokens} tok" for p in predictions]
    left = [0.0] * len(predictions)
    for place, part in enumerate(("weights", "attention", "overhead")):
        times = [getattr(p.seconds, part) * 1e3 for p in predictions]
        axes.barh(
            labels,
            times,
            left=left,
            color=_cycle(COLOURS, place),
            hatch=_cycle(HATCHES, place),
            edgecolor="white",
            label=part,
        )
        left = [a + b for a, b in zip(left, times, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("time of a token (ms)")
    axes.legend(fontsize="small")
    return _finish(figure, f"Predicted for {_cpu(profile)}.", suffix)


def check_suffix(suffix: str) -> str:
    """Return ``svg`` or ``png``; raises ``UsageError`` for another suffix."""
    if suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"a picture is a .svg or a .png file ({suffix or 'no suffix'}): rename the file"
        )
    return suffix.lower().removeprefix(".")


def _new_figure(suffix: str) -> tuple[Figure, Axes]:
    check_suffix(suffix)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MachineError(
            f"pictures need matplotlib ({error}): pip install 'cpubound[plot]'"
        ) from error
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(True, which="major", linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _draw_series(axes: Axes, values: Mapping[int, float], label: str, place: int) -> None:
    axes.plot(
        list(values),
        list(values.values()),
        marker=_cycle(MARKERS, place),
        linestyle=_cycle(LINES, place),
        color=_cycle(COLOURS, place),
        label=label,
    )


def _finish(figure: Figure, caption: str, suffix: str) -> bytes:
    import textwrap

    figure.supxlabel("\n".join(textwrap.wrap(caption, 120)), fontsize="x-small")
    buffer = io.BytesIO()
    # No date in the file: the same figures give the same bytes.
    kind = check_suffix(suffix)
    metadata = {"Date": None} if kind == "svg" else {}
    figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


def _cycle(choices: Sequence[str], place: int) -> str:
    return choices[place % len(choices)]


def _cpu(profile: MachineProfile) -> str:
    return profile.machine.cpu_model or profile.machine.architecture
