"""Charts that hold one thing against another: predicted and observed."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cpubound import stats
from cpubound.foreign import showing
from cpubound.profile.values import MachineProfile
from cpubound.report.charts.style import (
    MOST_LINES,
    SHIFT_DRAG,
    SHIFT_WHEEL,
    Chart,
    chart_of,
    log_ticks,
)
from cpubound.report.predictions import profile_source
from cpubound.report.validation import validation_table
from cpubound.validation.cells import Cell, Validation

NEAR = 0.10
_SQUARE = 340  # pixels
_OTHERS = "others"


@showing()
def chart_validation(validation: Validation, profile: MachineProfile) -> Chart:
    """Draw predicted against observed token/s, both with their intervals, on equal scales."""
    import altair as alt

    cells = validation.cells
    several = len({cell.prediction.model for cell in cells}) > 1
    labels = [c.prediction.model if several else c.prediction.quant_label for c in cells]
    common = [name for name, _ in Counter(labels).most_common(MOST_LINES)]
    if len(set(labels)) > MOST_LINES:
        common[-1] = _OTHERS
    rows = [
        _row(cell, label if label in common else _OTHERS)
        for cell, label in zip(cells, labels, strict=True)
    ]
    values = [row[key] for row in rows for key in ("observed", "predicted", "low", "high")]
    low, high = min(values) * 0.85, max(values) * 1.18
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    ticks = log_ticks(low, high)
    x_axis = alt.Axis(title="observed, token/s", values=ticks, format="~r")
    x = alt.X("observed:Q", scale=scale, axis=x_axis)
    y = alt.Y("predicted:Q", scale=scale, title=None, axis=alt.Axis(values=ticks, format="~r"))
    ends = [
        {"observed": end, "predicted": end, "low": end * (1 - NEAR), "high": end * (1 + NEAR)}
        for end in (low, high)
    ]
    diagonal = chart_of(ends)
    base = chart_of(rows)
    color_scale = alt.Scale(domain=common, range="category")
    zoom = alt.selection_interval(
        bind="scales", zoom=SHIFT_WHEEL, translate=SHIFT_DRAG, name="zoom"
    )
    color = alt.Color("kind:N", scale=color_scale)
    panel = alt.layer(
        diagonal.mark_area(style="band", clip=True).encode(
            x=x, y=alt.Y("low:Q", scale=scale, title=None), y2="high:Q"
        ),
        diagonal.mark_line(style="roof", strokeWidth=1, clip=True).encode(x=x, y=y),
        base.mark_rule(opacity=0.55, clip=True).encode(
            x=x, y=alt.Y("low:Q", scale=scale, title=None), y2="high:Q", color=color
        ),
        base.mark_rule(opacity=0.55, clip=True).encode(
            x=alt.X("slow:Q", scale=scale), x2="fast:Q", y=y, color=color
        ),
        base.mark_point(filled=True, size=52, opacity=0.9, clip=True).encode(
            x=x,
            y=y,
            color=color,
            shape=alt.Shape("kind:N", scale=alt.Scale(domain=common, range="symbol")),
            tooltip=[
                alt.Tooltip("name:N", title="run"),
                alt.Tooltip("observed:Q", title="observed", format=".3~r"),
                alt.Tooltip("predicted:Q", title="predicted", format=".3~r"),
                alt.Tooltip("low:Q", title="at least", format=".3~r"),
                alt.Tooltip("high:Q", title="at most", format=".3~r"),
                alt.Tooltip("error:N", title="error"),
            ],
        ).add_params(zoom),
    ).properties(title="Predicted, token/s", height=_SQUARE)  # fmt: skip
    summary = validation.summary
    return Chart(
        name="validation",
        is_square=True,
        title="Predicted against observed",
        panels=(panel,),
        caption=f"{round(summary.coverage * summary.cells)} of {summary.cells} inside the 90 % "
        f"interval, median error {summary.median_abs_error * 100:.1f} %. Vertical: the "
        "prediction's interval; level: nine tenths of the samples; shaded: within 10 %. "
        f"Predicted from {profile_source(profile)}, observed through {validation.engine}.",
        table=validation_table(validation),
    )


def _row(cell: Cell, kind: str) -> dict[str, Any]:
    p = cell.prediction
    rates = [p.setting.batch / seconds for seconds in cell.samples_s]
    return {
        "kind": kind,
        "name": f"{p.model} {p.quant_label}, {p.setting.threads} thr, "
        f"{p.setting.depth_tokens} in the cache",
        "observed": cell.observed_tokens_per_s,
        "slow": stats.quantile(rates, 0.05),
        "fast": stats.quantile(rates, 0.95),
        "predicted": p.tokens_per_s,
        "low": p.low,
        "high": p.high,
        "error": f"{cell.relative_error * 100:+.1f} %".replace("-", "−"),
    }
