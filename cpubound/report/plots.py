"""Pictures: rooflines, saturation, predictions, predicted against observed.

Each function returns the file's bytes as SVG or PNG, by its suffix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cpubound.cost.law import find_saturation
from cpubound.cost.values import Prediction
from cpubound.errors import UsageError
from cpubound.foreign import showing
from cpubound.profile.values import MachineProfile
from cpubound.report.figures import (
    COLOURS,
    HATCHES,
    MARKERS,
    cycle,
    draw_series,
    finish,
    new_figure,
    new_panels,
)
from cpubound.report.markup import picture_text
from cpubound.report.predictions import format_depth
from cpubound.report.roofline_document import MachineLine
from cpubound.theory.analysis import Roofline
from cpubound.units import GB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cpubound.validation.cells import Validation

# What the sources of a machine are called under a picture.
_CAPTIONS = {"peak": "Bandwidth", "measured": "Bandwidth", "flops": "FLOP/s"}
_PAGES = {
    "anon_4k": "4 KiB pages",
    "anon_2m": "2 MiB pages",
    "file": "mapped file",
}
# With more curves than this their intervals would cover one another.
_MOST_INTERVALS = 4


@showing(picture_text)
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
    figure, axes = new_figure(suffix)
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
                marker=cycle(MARKERS, names.index(name)),
                color=cycle(COLOURS, place),
                # Outlines, smaller for each further batch: what coincides stays visible.
                markersize=max(15 - 4 * place, 5),
                markerfacecolor="none",
                markeredgewidth=1.5,
                linestyle="none",
            )
    for place, point in enumerate(points):
        axes.plot([], [], color=cycle(COLOURS, place), linewidth=4, label=f"batch {point.batch}")
    for place, name in enumerate(names):
        axes.plot(
            [],
            [],
            color="grey",
            marker=cycle(MARKERS, place),
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
    return finish(figure, caption, suffix)


@showing(picture_text)
def plot_saturation(profile: MachineProfile, *, suffix: str) -> bytes:
    """Draw bandwidth against threads: kernels that move memory, and products by weight type.

    Each curve's knee, the fewest threads within 3 % of its best, has a ring around it.
    """
    series = sorted({(m.kernel, m.page_kind) for m in profile.bandwidth})
    products = [key for key in series if key[0].startswith("gemv_")]
    memory = [key for key in series if key not in products]
    groups = {"memory": memory, "products, by type of the weights": products}
    filled = {title: group for title, group in groups.items() if group}
    figure, panels = new_panels(suffix, len(filled), width=6 + 3 * len(filled))
    for axes, (title, group) in zip(panels, filled.items(), strict=True):
        axes.set_title(title)
        _draw_saturation(axes, profile, group)
    top = 1.05 * max(axes.get_ylim()[1] for axes in panels)
    for axes in panels:
        axes.set_ylim(0, top)
    panels[0].set_ylabel("bandwidth (GB/s), median of samples")
    caption = (
        f"{_cpu(profile)}, profile of {profile.created[:10]} ({profile.noise.verdict}). "
        "Ring: fewest threads within 3 % of the curve's best."
    )
    return finish(figure, caption, suffix)


@showing(picture_text)
def plot_predictions(
    curves: Sequence[Prediction],
    predictions: Sequence[Prediction],
    profile: MachineProfile,
    *,
    suffix: str,
) -> bytes:
    """Draw tokens per second against the context, and where the time of a token goes.

    Parameters
    ----------
    curves : the same file types and thread counts at several depths, for the left panel.
    predictions : a bar each in the right panel.
    """
    figure, (left, right) = new_panels(suffix, 2)
    figure.suptitle(", ".join(dict.fromkeys(row.model for row in predictions)))
    _draw_contexts(left, curves)
    _draw_token_time(right, predictions)
    basis = ", ".join(dict.fromkeys(row.basis for row in predictions))
    shaded = " Shaded: 90 % intervals." if _shows_intervals(curves) else ""
    caption = (
        f"Predicted for {_cpu(profile)} (profile of {profile.created[:10]}, "
        f"{profile.noise.verdict}; basis: {basis}).{shaded}"
    )
    return finish(figure, caption, suffix)


@showing(picture_text)
def plot_validation(validation: Validation, profile: MachineProfile, *, suffix: str) -> bytes:
    """Draw predicted against observed tokens per second; on the diagonal both agree."""
    figure, axes = new_figure(suffix)
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
            marker=cycle(MARKERS, place),
            color=cycle(COLOURS, place),
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
    axes.set_title(", ".join(dict.fromkeys(cell.prediction.model for cell in cells)))
    caption = (
        f"Predicted from the profile of {profile.created[:10]} of {_cpu(profile)}, observed "
        f"through {validation.engine}. Bars: 90 % intervals of the prediction; line: equal."
    )
    return finish(figure, caption, suffix)


def _cpu(profile: MachineProfile) -> str:
    return profile.machine.cpu_model or profile.machine.architecture


def _draw_saturation(
    axes: Axes, profile: MachineProfile, series: Iterable[tuple[str, str]]
) -> None:
    from matplotlib.ticker import MaxNLocator

    for place, (kernel, page_kind) in enumerate(series):
        rows = profile.measurements(kernel, page_kind)
        rates = {threads: row.median_bytes_per_s / GB for threads, row in rows.items()}
        draw_series(axes, rates, _kernel_name(kernel, page_kind), place)
        if len(rates) > 1:
            knee = find_saturation({t: row.median_bytes_per_s for t, row in rows.items()})
            axes.plot(
                knee,
                rates[knee],
                marker="o",
                markersize=14,
                markerfacecolor="none",
                markeredgecolor=cycle(COLOURS, place),
                linestyle="none",
            )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("threads")
    axes.margins(x=0.08)
    axes.legend(fontsize="small", loc="lower right")


def _kernel_name(kernel: str, page_kind: str) -> str:
    name = f"{kernel.removeprefix('gemv_').upper()} weights" if "gemv_" in kernel else kernel
    return f"{name}, {_PAGES.get(page_kind, page_kind)}"


def _draw_contexts(axes: Axes, predictions: Sequence[Prediction]) -> None:
    series: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        series.setdefault(_label(prediction), []).append(prediction)
    # Colour and marker tell the file type, the line how it is run; all three if there is one type.
    types = list(dict.fromkeys(row.quant_label for row in predictions))
    ways = list(dict.fromkeys((row.setting.threads, row.setting.batch) for row in predictions))
    for label, rows in series.items():
        ordered = sorted(rows, key=lambda row: row.setting.depth_tokens)
        line = ways.index((rows[0].setting.threads, rows[0].setting.batch))
        place = types.index(rows[0].quant_label) if len(types) > 1 else line
        rates = {row.setting.depth_tokens: row.tokens_per_s for row in ordered}
        draw_series(axes, rates, label, place, line)
        if _shows_intervals(predictions):
            axes.fill_between(
                [row.setting.depth_tokens for row in ordered],
                [row.low for row in ordered],
                [row.high for row in ordered],
                color=cycle(COLOURS, place),
                alpha=0.15,
            )
    axes.set_xlabel("context (tokens in the cache)")
    axes.set_ylabel("decode speed (token/s)")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")


def _shows_intervals(predictions: Iterable[Prediction]) -> bool:
    return len({_label(row) for row in predictions}) <= _MOST_INTERVALS


def _draw_token_time(axes: Axes, predictions: Sequence[Prediction]) -> None:
    labels = [f"{_label(p)}, {_context(p.setting.depth_tokens)}" for p in predictions]
    left = [0.0] * len(predictions)
    for place, part in enumerate(("weights", "attention", "overhead")):
        times = [getattr(p.seconds, part) * 1e3 for p in predictions]
        axes.barh(
            labels,
            times,
            left=left,
            color=cycle(COLOURS, place),
            hatch=cycle(HATCHES, place),
            edgecolor="white",
            label=part,
        )
        left = [a + b for a, b in zip(left, times, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("time of a token (ms)")
    axes.legend(fontsize="small")


def _label(p: Prediction) -> str:
    batch = f", batch {p.setting.batch}" if p.setting.batch > 1 else ""
    return f"{p.quant_label}, {p.setting.threads} thread{'s' * (p.setting.threads > 1)}{batch}"


def _context(depth: int) -> str:
    return f"{format_depth(depth)} context" if depth else "empty"
