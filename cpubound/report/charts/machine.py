"""Charts of a machine: bandwidth by threads, by working set, and how much it moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cpubound import stats
from cpubound.cost.law import fit_law, law_band
from cpubound.errors import UsageError
from cpubound.foreign import showing
from cpubound.kernels.values import Measurement
from cpubound.profile.values import MachineProfile, WorkingSetPoint
from cpubound.report.charts.style import (
    DASHES,
    HEIGHT,
    LABEL_WIDTH,
    Chart,
    binary_ticks,
    chart_of,
    choose_lines,
    log_ticks,
    spread_labels,
)
from cpubound.report.predictions import profile_source
from cpubound.report.profile import bandwidth_table
from cpubound.report.tables import Table
from cpubound.units import (
    GB,
    format_binary_bytes,
    format_significant,
)

if TYPE_CHECKING:
    import altair

PAGES = {
    "anon_4k": "4 KiB pages",
    "anon_2m": "2 MiB pages",
    "file": "mapped file",
}
_CURVE_POINTS = 48
# Samples of one thread count are drawn beside one another within this share of a count.
_SCATTER = 0.09
_FENCE = 1.5  # interquartile ranges beyond the quartiles: Tukey's outliers
_BYTES_LABEL = (
    "datum.value < 1048576 ? datum.value / 1024 + ' KiB' : "
    "datum.value < 1073741824 ? datum.value / 1048576 + ' MiB' : "
    "datum.value / 1073741824 + ' GiB'"
)


@showing()
def chart_scaling(profile: MachineProfile) -> Chart:
    """Draw bandwidth against threads: every sample, the law fitted to the medians, its band.

    Raises
    ------
    UsageError : the profile holds no bandwidth.
    """
    series = list(dict.fromkeys((m.kernel, m.page_kind) for m in profile.bandwidth))
    products = [key for key in series if key[0].startswith("gemv_")]
    groups = {
        "Reading memory, GB/s": [key for key in series if key not in products],
        "Our products, by type of the weights, GB/s": products,
    }
    filled = {title: keys for title, keys in groups.items() if keys}
    if not filled:
        raise UsageError("the profile holds no bandwidth: run `cpubound calibrate` again")
    point = next((s for s in profile.saturation if s.kernel == "read"), None)
    knee = None
    counts = profile.measurements("read", "anon_4k")
    if point is not None and counts and point.threads < max(counts):
        knee = point.threads
    panels = tuple(
        _scaling_panel(profile, keys, title, knee if keys is not products else None)
        for title, keys in filled.items()
    )
    return Chart(
        name="scaling",
        label_width=LABEL_WIDTH,
        title="Bandwidth against threads",
        panels=panels,
        caption="Dots: samples. Lines: the law of saturation fitted to their medians; bands: 90 % "
        "of its fits to resampled samples. "
        + (
            f"Every thread up to {max(counts, default=1)} adds bandwidth."
            if knee is None
            else "Dashed: the fewest threads within 3 % of the best."
        )
        + f" From {profile_source(profile)}.",
        table=bandwidth_table(profile),
    )


def _scaling_panel(
    profile: MachineProfile, series: Sequence[tuple[str, str]], title: str, knee: int | None
) -> altair.LayerChart:
    import altair as alt

    named = {_kernel_name(kernel, page_kind): (kernel, page_kind) for kernel, page_kind in series}
    names = choose_lines(named)
    rows = {name: profile.measurements(*named[name]) for name in names}
    dots = [dot for place, name in enumerate(names) for dot in _dots(name, place, rows[name])]
    curves = [row for name in names for row in _curve(name, rows[name])]
    top = 1.06 * max(dot["rate"] for dot in dots)
    counts = sorted({t for found in rows.values() for t in found})
    x_scale = alt.Scale(domain=[counts[0] - 0.2, counts[-1] + 0.2], nice=False, zero=False)
    x_axis = alt.Axis(title="threads", values=counts, format="d")
    x = alt.X("threads:Q", axis=x_axis, scale=x_scale)
    y_scale = alt.Scale(domain=[0, top])
    y = alt.Y("rate:Q", title=None, scale=y_scale)
    color = alt.Color("name:N", scale=alt.Scale(domain=names, range="category"), legend=None)
    dash_scale = alt.Scale(domain=names, range=list(DASHES[: len(names)]))
    tooltip = [
        alt.Tooltip("name:N", title="what"),
        alt.Tooltip("count:Q", title="threads"),
        alt.Tooltip("rate:Q", title="GB/s", format=".3~r"),
    ]
    layers = []
    if curves:
        base = chart_of(curves)
        low = alt.Y("low:Q", title=None, scale=y_scale)
        layers.append(base.mark_area(opacity=0.14).encode(x=x, y=low, y2="high:Q", color=color))
        dash = alt.StrokeDash("name:N", scale=dash_scale, legend=None)
        layers.append(base.mark_line().encode(x=x, y=y, color=color, strokeDash=dash))
    samples = chart_of(dots).mark_point(filled=True, size=16, opacity=0.5)
    layers.append(samples.encode(x=x, y=y, color=color, tooltip=tooltip))
    if knee is not None:
        mark = chart_of([{"threads": knee, "rate": 0, "text": f"saturates at {knee}"}])
        layers.append(mark.mark_rule(style="reference").encode(x=x))
        layers.append(
            mark.mark_text(style="note", align="right", dx=-5, dy=-6).encode(
                x=x, y=y, text="text:N"
            )
        )
    ends = {name: found[max(found)].median_bytes_per_s / GB for name, found in rows.items()}
    labels = [
        {"name": name, "threads": counts[-1] + 0.2, "rate": place}
        for name, place in spread_labels(ends, top).items()
    ]
    text = chart_of(labels).mark_text(
        align="left", dx=6, fontSize=11, fontWeight=600, limit=LABEL_WIDTH
    )
    layers.append(text.encode(x=x, y=y, text="name:N", color=color))
    panel: altair.LayerChart = alt.layer(*layers).properties(title=title, height=HEIGHT)
    return panel


def _dots(name: str, place: int, rows: Mapping[int, Measurement]) -> Iterator[dict[str, Any]]:
    """Yield every sample, a little beside its thread count so that none hides another."""
    for threads, row in rows.items():
        for number, seconds in enumerate(row.samples_s):
            aside = ((number * 0.618) % 1 - 0.5 + (place - 2.5) * 0.3) * _SCATTER
            yield {
                "name": name,
                "threads": round(threads + aside, 4),
                "count": threads,
                "rate": row.bytes_per_pass / seconds / GB,
            }


def _curve(name: str, rows: Mapping[int, Measurement]) -> list[dict[str, Any]]:
    """Return the law and its band between the first and the last thread count measured."""
    if len(rows) < 2:
        return []
    samples = {t: [m.bytes_per_pass / s for s in m.samples_s] for t, m in rows.items()}
    law = fit_law({"": {t: m.median_bytes_per_s for t, m in rows.items()}})
    first, last = min(rows), max(rows)
    counts = [first + (last - first) * n / (_CURVE_POINTS - 1) for n in range(_CURVE_POINTS)]
    band = law_band(samples, counts)
    return [
        {"name": name, "threads": count, "rate": law.rate("", count) / GB,
         "low": low / GB, "high": high / GB}
        for count, (low, high) in zip(counts, band, strict=True)
    ]  # fmt: skip


def _kernel_name(kernel: str, page_kind: str) -> str:
    if kernel.startswith("gemv_"):
        return kernel.removeprefix("gemv_").upper()
    pages = PAGES.get(page_kind, page_kind)
    return pages if kernel == "read" else f"{kernel}, {pages}"


@showing()
def chart_working_sets(profile: MachineProfile) -> Chart:
    """Draw what one thread reads, and how long a load takes, by the size of what it goes through.

    Raises
    ------
    UsageError : the profile holds no working sets.
    """
    points = profile.working_sets
    if not points:
        raise UsageError("the profile holds no working sets: run `cpubound calibrate` again")
    rates = {p.working_set_bytes: p.bytes_per_s / GB for p in points if p.bytes_per_s}
    latencies = {p.working_set_bytes: p.latency_s * 1e9 for p in points if p.latency_s}
    levels = {f"L{v.level}": v.size_bytes for v in profile.levels if v.size_bytes}
    panels = tuple(
        _working_set_panel(values, levels, title, unit)
        for values, title, unit in (
            (rates, "One thread reads, GB/s", "GB/s"),
            (latencies, "A load takes, ns", "ns"),
        )
        if values
    )
    return Chart(
        name="working-sets",
        title="Caches and memory",
        panels=panels,
        caption="Dashed: the sizes of the caches as the system tells them.",
        table=_working_set_table(points),
    )


def _working_set_panel(
    values: Mapping[int, float], levels: Mapping[str, int], title: str, unit: str
) -> altair.LayerChart:
    import altair as alt

    sizes = sorted(values)
    low, high = min(values.values()) / 1.5, max(values.values()) * 1.5
    rows = [
        {"size": size, "value": values[size], "text": format_binary_bytes(size)} for size in sizes
    ]
    x = alt.X(
        "size:Q",
        scale=alt.Scale(type="log", base=2, domain=[sizes[0], sizes[-1]], nice=False),
        axis=alt.Axis(
            title="working set", values=binary_ticks(sizes[0], sizes[-1]), labelExpr=_BYTES_LABEL
        ),
    )
    y = alt.Y(
        "value:Q",
        title=None,
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
        axis=alt.Axis(values=log_ticks(low, high), format="~r"),
    )
    tooltip = [
        alt.Tooltip("text:N", title="working set"),
        alt.Tooltip("value:Q", title=unit, format=".3~r"),
    ]
    base = chart_of(rows)
    marks = [
        {"size": size, "value": high, "text": name}
        for name, size in levels.items()
        if sizes[0] <= size <= sizes[-1]
    ]
    bounds = chart_of(marks)
    panel: altair.LayerChart = alt.layer(
        bounds.mark_rule(style="reference").encode(x=x),
        bounds.mark_text(style="note", align="left", baseline="top", dx=4, dy=2).encode(
            x=x, y=y, text="text:N"
        ),
        base.mark_line().encode(x=x, y=y),
        base.mark_point(filled=True, size=40, opacity=1).encode(x=x, y=y, tooltip=tooltip),
    ).properties(title=title, height=HEIGHT)
    return panel


def _working_set_table(points: Sequence[WorkingSetPoint]) -> Table:
    columns = ("working set", "GB/s", "ns a load")
    rows = tuple(
        (
            format_binary_bytes(p.working_set_bytes),
            "–" if p.bytes_per_s is None else format_significant(p.bytes_per_s / GB),
            "–" if p.latency_s is None else format_significant(p.latency_s * 1e9),
        )
        for p in points
    )
    return Table(columns=columns, rows=rows, right=frozenset(columns))


@showing()
def chart_noise(profile: MachineProfile) -> Chart:
    """Draw every sample of the reference kernel in order, those far from the rest marked.

    Raises
    ------
    UsageError : the profile holds no such samples.
    """
    import altair as alt

    samples = profile.noise.relative_samples
    if not samples:
        raise UsageError("the profile holds no samples of noise: run `cpubound calibrate` again")
    low, high = fences(samples)
    kinds = ["within", "far from the rest"]
    rows: list[dict[str, Any]] = [
        {"n": place + 1, "value": value, "kind": kinds[not low <= value <= high]}
        for place, value in enumerate(samples)
    ]
    far = [row for row in rows if row["kind"] == kinds[1]]
    bottom, top = min(samples) * 0.97, max(samples) * 1.03
    scale = alt.Scale(domain=[bottom, top], nice=False, zero=False)
    y = alt.Y("value:Q", title=None, scale=scale, axis=alt.Axis(format=".0%"))
    x_axis = alt.Axis(title="samples, in the order they were taken", format="d", tickMinStep=1)
    x = alt.X("n:Q", axis=x_axis, scale=alt.Scale(domain=[0, len(samples) + 1], nice=False))
    base = chart_of(rows)
    band = chart_of([{"low": low, "high": high}])
    panel = alt.layer(
        band.mark_rect(style="band").encode(y=alt.Y("low:Q", title=None, scale=scale), y2="high:Q"),
        base.mark_line(strokeWidth=0.8, opacity=0.5).encode(x=x, y=y),
        base.mark_point(filled=True, size=34, opacity=1).encode(
            x=x,
            y=y,
            color=alt.Color("kind:N", scale=alt.Scale(domain=kinds, range="category")),
            shape=alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range="symbol")),
            tooltip=[
                alt.Tooltip("n:Q", title="sample"),
                alt.Tooltip("value:Q", title="of the median", format=".1%"),
                alt.Tooltip("kind:N", title="is"),
            ],
        ),
    ).properties(title="Read bandwidth over its median", height=HEIGHT - 60)
    columns = ("sample", "of the median", "")
    return Chart(
        name="noise",
        title="How much the machine moved",
        panels=(panel,),
        caption=f"The same read kernel over {profile.noise.seconds:.0f} s: "
        f"{profile.noise.verdict}, ±{profile.noise.spread * 100:.0f} %. Marked: {len(far)} of "
        f"{len(rows)} samples, more than 1.5 interquartile ranges beyond the quartiles (shaded).",
        table=Table(
            columns=columns,
            rows=tuple(
                (str(row["n"]), f"{row['value'] * 100:.1f} %", str(row["kind"])) for row in rows
            ),
            right=frozenset(columns[:2]),
        ),
    )


def fences(samples: Sequence[float]) -> tuple[float, float]:
    """Return Tukey's fences: samples beyond are outliers.

    Source: Tukey, Exploratory Data Analysis (1977).
    """
    low, high = stats.quantile(samples, 0.25), stats.quantile(samples, 0.75)
    reach = _FENCE * (high - low)
    return low - reach, high + reach
