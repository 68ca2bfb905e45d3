"""Charts of two profiles, A and B, laid over each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cpubound import stats
from cpubound.cost.values import Prediction
from cpubound.foreign import showing
from cpubound.kernels.values import Measurement
from cpubound.profile.values import MachineProfile
from cpubound.report.charts.lines import Axis, LinePoint, draw_lines
from cpubound.report.charts.models import context_axis, context_table
from cpubound.report.charts.style import LABEL_WIDTH, Chart, chart_of, panel_height
from cpubound.report.tables import Table
from cpubound.report.type_rates import type_rates
from cpubound.units import GB, format_percent, format_significant

NAMES = ("A", "B")
_MOST_TICKS = 12


@showing()
def chart_both_read(a: MachineProfile, b: MachineProfile) -> Chart:
    """Draw the read bandwidth of both against threads, with nine tenths of their samples."""
    both = {name: p.measurements("read", "anon_4k") for name, p in zip(NAMES, (a, b), strict=True)}
    measured = {name: rows for name, rows in both.items() if rows}
    counts = sorted({threads for rows in measured.values() for threads in rows})
    panel = draw_lines(
        {name: [_read_point(row) for row in rows.values()] for name, rows in measured.items()},
        title="Reading memory, GB/s",
        unit="GB/s",
        axis=Axis(title="threads", ticks=counts if len(counts) <= _MOST_TICKS else counts[::2]),
        order=NAMES,
    )
    columns = ("threads", *(f"{name} GB/s" for name in NAMES))
    rows = tuple(
        (str(count), *(_read_cell(both[name].get(count)) for name in NAMES)) for count in counts
    )
    return Chart(
        name="both-read",
        label_width=LABEL_WIDTH,
        title="Bandwidth against threads",
        panels=(panel,),
        caption="Medians; bands: nine tenths of the samples.",
        table=Table(columns=columns, rows=rows, right=frozenset(columns)),
    )


def _read_point(row: Measurement) -> LinePoint:
    rates = [row.bytes_per_pass / seconds / GB for seconds in row.samples_s]
    return LinePoint(
        x=row.threads,
        y=row.median_bytes_per_s / GB,
        low=stats.quantile(rates, 0.05),
        high=stats.quantile(rates, 0.95),
    )


def _read_cell(row: Measurement | None) -> str:
    return "–" if row is None else format_significant(row.median_bytes_per_s / GB)


@showing()
def chart_both_rates(a: MachineProfile, b: MachineProfile) -> Chart | None:
    """Draw llama.cpp's rate of each type in both, None where one of them has none."""
    import altair as alt

    found: dict[str, Mapping[str, float]] = {}
    for name, profile in zip(NAMES, (a, b), strict=True):
        threads = max(profile.engine.threads, default=0) if profile.engine is not None else 0
        rates = type_rates(profile, threads) if threads else ()
        found[name] = {rate.type: rate.bytes_per_s / GB for rate in rates}
    types = [name for name in found["A"] if name in found["B"]]
    if not types:
        return None
    rows = [
        {"type": type_name, "name": name, "rate": found[name][type_name]}
        for type_name in types
        for name in NAMES
    ]
    bars = (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X("rate:Q", title="GB/s"),
            y=alt.Y("type:N", title=None, scale=alt.Scale(domain=types)),
            yOffset=alt.YOffset("name:N", scale=alt.Scale(domain=NAMES)),
            color=alt.Color("name:N", scale=alt.Scale(domain=NAMES, range="category")),
            tooltip=[
                alt.Tooltip("type:N", title="type"),
                alt.Tooltip("name:N", title="profile"),
                alt.Tooltip("rate:Q", title="GB/s", format=".3~r"),
            ],
        )
        .properties(
            title="Weights, GB/s",
            height=panel_height(len(types)),
        )
    )
    columns = ("type", *(f"{name} GB/s" for name in NAMES), "change")
    table = Table(
        columns=columns,
        rows=tuple(
            (
                name,
                *(format_significant(found[side][name]) for side in NAMES),
                format_percent(found["B"][name] / found["A"][name] - 1, 0),
            )
            for name in types
        ),
        right=frozenset(columns[1:]),
    )
    return Chart(
        name="both-rates",
        title="llama.cpp's rate by type of the weights",
        panels=(bars,),
        caption="Each at the most threads that it was measured with.",
        table=table,
    )


@showing()
def chart_both_contexts(a: Sequence[Prediction], b: Sequence[Prediction]) -> Chart:
    """Draw one model's decode speed against the context in both."""
    curves = dict(zip(NAMES, (a, b), strict=True))
    sides = {id(p): name for name, predictions in curves.items() for p in predictions}
    everything = (*a, *b)
    panel = draw_lines(
        {
            name: [
                LinePoint(x=p.setting.depth_tokens, y=p.tokens_per_s, low=p.low, high=p.high)
                for p in sorted(predictions, key=lambda p: p.setting.depth_tokens)
            ]
            for name, predictions in curves.items()
        },
        title="Decode speed, token/s",
        unit="token/s",
        axis=context_axis(everything),
        order=NAMES,
    )
    first = a[0]
    return Chart(
        name="both-contexts",
        label_width=LABEL_WIDTH,
        title=f"{first.model} {first.quant_label}",
        panels=(panel,),
        caption="Bands hold the speed of nine runs in ten, each with its best number of threads.",
        table=context_table(everything, lambda p: sides[id(p)]),
    )
