"""Charts of a model: its speed, where a token's time goes, prompts, batches, memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cpubound.cost.values import Prediction, PromptPrediction
from cpubound.foreign import showing
from cpubound.model.ftype import DEFAULT_FILE_TYPE
from cpubound.profile.values import MachineProfile
from cpubound.report.charts.lines import Axis, LinePoint, draw_lines
from cpubound.report.charts.style import LABEL_WIDTH, Chart, chart_of, choose_lines, panel_height
from cpubound.report.predictions import format_depth, format_interval, profile_source
from cpubound.report.prompts import prompt_table
from cpubound.report.tables import Table
from cpubound.report.traffic import format_kv_types
from cpubound.units import GIB, format_binary_bytes, format_count, format_significant

PARTS = ("weights", "attention", "overhead")
# A setting of the cache: K, V and flash-attention.
CacheSetting = tuple[str, str, bool]


@showing()
def chart_contexts(curves: Sequence[Prediction], target: float | None = None) -> Chart:
    """Draw decode speed against the context, a line for each way of running the model.

    ``curves`` are the same file types, threads and batches at several depths; ``target`` is a
    wanted rate in token/s.
    """
    name = _line_namer(curves)
    lines = _lines(curves, name, _speed_point)
    wanted = {} if target is None else {f"wanted: {format_significant(target)} token/s": target}
    panel = draw_lines(
        lines,
        title="Decode speed, token/s",
        unit="token/s",
        axis=context_axis(curves),
        references=wanted,
    )
    return Chart(
        name="contexts",
        label_width=LABEL_WIDTH,
        title="How fast it decodes",
        panels=(panel,),
        caption="Bands hold the speed of nine runs in ten." + _left_out(curves, name, lines),
        table=context_table(curves, name),
    )


@showing()
def chart_settings(predictions: Sequence[Prediction]) -> Chart:
    """Draw decode speed against the context for each setting of the cache, of one file type."""
    lines = _lines(predictions, format_cache_setting, _speed_point)
    panel = draw_lines(
        lines,
        title="Decode speed, token/s",
        unit="token/s",
        axis=context_axis(predictions),
    )
    first = predictions[0]
    return Chart(
        name="settings",
        label_width=LABEL_WIDTH,
        title="Which setting wins where",
        panels=(panel,),
        caption=f"{first.quant_label}. {describe_winners(predictions)}",
        table=context_table(predictions, format_cache_setting),
    )


@showing()
def chart_predictions(
    curves: Sequence[Prediction], predictions: Sequence[Prediction], profile: MachineProfile
) -> Chart:
    """Draw decode speed against the context, and where the time of the predictions goes.

    Parameters
    ----------
    curves : the same file types and thread counts at several depths.
    predictions : a bar each, in a panel for each depth.
    """
    speed, time = chart_contexts(curves), chart_token_time(predictions)
    names = ", ".join(dict.fromkeys(p.model for p in predictions))
    return replace(
        speed,
        title=names,
        panels=(*speed.panels, *time.panels),
        caption=f"{speed.caption} Predicted for {profile_source(profile)}; basis: "
        f"{', '.join(dict.fromkeys(p.basis for p in predictions))}.",
    )


@showing()
def describe_winners(predictions: Sequence[Prediction]) -> str:
    """Say from which context on which setting of the cache is the fastest."""
    winners: list[tuple[int, str]] = []
    for depth in sorted({p.setting.depth_tokens for p in predictions}):
        here = [p for p in predictions if p.setting.depth_tokens == depth]
        best = format_cache_setting(max(here, key=lambda p: p.tokens_per_s))
        if not winners or winners[-1][1] != best:
            winners.append((depth, best))
    first, *others = winners
    if not others:
        return f"Fastest at every context: {first[1]}."
    changes = ", ".join(f"{name} from {format_depth(depth)}" for depth, name in others)
    return f"Fastest: {first[1]} with an empty context, {changes}."


def format_cache_setting(p: Prediction) -> str:
    """Name a setting of the cache: ``F16, FA off``."""
    return f"{format_kv_types(p.setting)}, FA {'on' if p.setting.flash_attn else 'off'}"


@showing()
def chart_token_time(predictions: Sequence[Prediction]) -> Chart:
    """Draw where the time of a step goes: a panel for each depth, a bar for each way of running."""
    import altair as alt

    name = _line_namer(predictions)
    bars = list(dict.fromkeys(name(p) for p in predictions))
    longest = max(p.seconds.total for p in predictions) * 1e3 * 1.12
    panels = []
    for depth in sorted({p.setting.depth_tokens for p in predictions}):
        here = [p for p in predictions if p.setting.depth_tokens == depth]
        rows = [
            {"name": name(p), "part": part, "order": place, "ms": getattr(p.seconds, part) * 1e3}
            for p in here
            for place, part in enumerate(PARTS)
        ]
        totals = [{"name": name(p), "ms": p.seconds.total * 1e3} for p in here]
        x = alt.X("ms:Q", title="ms", scale=alt.Scale(domain=[0, longest]))
        y = alt.Y("name:N", title=None, sort=bars, scale=alt.Scale(domain=bars))
        parts = chart_of(rows).mark_bar(height={"band": 0.72}).encode(
            x=x,
            y=y,
            color=alt.Color("part:N", scale=alt.Scale(domain=list(PARTS), range="category")),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("name:N", title="of"),
                alt.Tooltip("part:N", title="part"),
                alt.Tooltip("ms:Q", title="ms", format=".3~r"),
            ],
        )  # fmt: skip
        sums = chart_of(totals).mark_text(style="plain", align="left", dx=5)
        title = f"Time of a token, {format_context(depth)}"
        panels.append(
            alt.layer(
                parts, sums.encode(x=x, y=y, text=alt.Text("ms:Q", format=".3~r"))
            ).properties(title=title, height=panel_height(len(bars)))
        )
    columns = ("", "context", *(f"{part} ms" for part in PARTS), "total ms")
    table = Table(
        columns=columns,
        rows=tuple(
            (
                name(p),
                format_context(p.setting.depth_tokens),
                *(format_significant(getattr(p.seconds, part) * 1e3) for part in PARTS),
                format_significant(p.seconds.total * 1e3),
            )
            for p in predictions
        ),
        right=frozenset(columns[2:]),
    )
    return Chart(
        name="token-time",
        title="Where a token's time goes",
        panels=tuple(panels),
        caption="Weights: reading and multiplying them. Attention: the cache, which grows with the "
        "context. Overhead: what every step and every product costs.",
        table=table,
    )


@showing()
def chart_prompts(prompts: Sequence[PromptPrediction]) -> Chart:
    """Draw how long a prompt takes until the answer begins."""
    lines = {
        "first token": [
            LinePoint(
                x=p.prompt_tokens,
                y=p.time_to_first_token_s,
                low=p.low_s + p.time_to_first_token_s - p.seconds,
                high=p.high_s + p.time_to_first_token_s - p.seconds,
                details=f"{format_significant(p.tokens_per_s)} token/s read",
            )
            for p in prompts
        ]
    }
    panel = draw_lines(
        lines,
        title="Time to the first token, s",
        unit="s",
        axis=_count_axis("tokens of the prompt", [p.prompt_tokens for p in prompts]),
    )
    first = prompts[0]
    return Chart(
        name="prompts",
        label_width=LABEL_WIDTH,
        title="How long a prompt takes",
        panels=(panel,),
        caption=f"{first.quant_label}, {format_count(first.setting.threads, 'thread')}, "
        "an empty cache before it.",
        table=prompt_table(prompts),
    )


@showing()
def chart_batches(predictions: Sequence[Prediction]) -> Chart:
    """Draw what many users together and each of them get, by how many there are."""
    ordered = sorted(predictions, key=lambda p: p.setting.batch)
    total = [
        LinePoint(x=p.setting.batch, y=p.tokens_per_s, low=p.low, high=p.high, details=_threads(p))
        for p in ordered
    ]
    each = [
        LinePoint(x=point.x, y=point.y / point.x, low=_per(point.low, point.x),
                  high=_per(point.high, point.x), details=point.details)
        for point in total
    ]  # fmt: skip
    axis = Axis(
        title="users at once",
        ticks=[p.setting.batch for p in ordered],
        is_logarithmic=True,
    )
    order = ("together", "each")
    panels = tuple(
        draw_lines({name: points}, title=title, unit="token/s", axis=axis, order=order)
        for name, title, points in (
            ("together", "All users together, token/s", total),
            ("each", "Each user, token/s", each),
        )
    )
    columns = ("users", "together token/s", "each token/s", "limited by")
    rows = tuple(
        (
            str(p.setting.batch),
            format_interval(p),
            format_significant(p.tokens_per_s / p.setting.batch),
            p.bound,
        )
        for p in ordered
    )
    first = ordered[0]
    return Chart(
        name="batches",
        label_width=LABEL_WIDTH,
        title="Several users at once",
        panels=panels,
        caption=f"{first.quant_label}, {format_count(first.setting.threads, 'thread')}, each with "
        f"{format_context(first.setting.depth_tokens)}.",
        table=Table(columns=columns, rows=rows, right=frozenset(columns[:3])),
    )


@showing()
def chart_memory(curves: Sequence[Prediction], memory_bytes: int | None) -> Chart:
    """Draw the memory that weights and cache take against the context, under what there is."""
    name = _line_namer(curves)
    lines = _lines(
        curves, name, lambda p: LinePoint(x=p.setting.depth_tokens, y=p.resident_bytes / GIB)
    )
    levels = (
        {}
        if memory_bytes is None
        else {f"this machine: {format_binary_bytes(memory_bytes)}": memory_bytes / GIB}
    )
    panel = draw_lines(
        lines,
        title="Memory needed, GiB",
        unit="GiB",
        axis=context_axis(curves),
        references=levels,
    )
    return Chart(
        name="memory",
        label_width=LABEL_WIDTH,
        title="How much memory it needs",
        panels=(panel,),
        caption="Weights, cache and recurrent state; programs need a little more."
        + _left_out(curves, name, lines),
        table=context_table(curves, name, lambda p: format_binary_bytes(p.resident_bytes)),
    )


def context_axis(predictions: Sequence[Prediction]) -> Axis:
    """Return the axis of contexts, written in thousands (of 1024) where they are such."""
    depths = sorted({p.setting.depth_tokens for p in predictions})
    step = max(1, 1 << max(depths[-1].bit_length() - 3, 0))
    ticks = [float(tick) for tick in range(0, depths[-1] + 1, step)]
    label = "datum.value % 1024 ? datum.value : datum.value ? datum.value / 1024 + 'k' : 'empty'"
    return Axis(title="context, tokens in the cache", ticks=ticks, label=label)


def format_context(depth: int) -> str:
    """Name a context: ``an empty context``, ``8k of context``."""
    return f"{format_depth(depth)} of context" if depth else "an empty context"


def _speed_point(p: Prediction) -> LinePoint:
    """Return a decode speed at its context, with its interval."""
    return LinePoint(
        x=p.setting.depth_tokens, y=p.tokens_per_s, low=p.low, high=p.high, details=_threads(p)
    )


def _lines(
    predictions: Sequence[Prediction],
    name: Callable[[Prediction], str],
    point: Callable[[Prediction], LinePoint],
) -> Mapping[str, list[LinePoint]]:
    """Return the points of at most six lines, each in the order of the context."""
    main = next((name(p) for p in predictions if p.quant_label == DEFAULT_FILE_TYPE), None)
    chosen = choose_lines((name(p) for p in predictions), keep=main)
    ordered = sorted(predictions, key=lambda p: p.setting.depth_tokens)
    return {line: [point(p) for p in ordered if name(p) == line] for line in chosen}


def _line_namer(predictions: Sequence[Prediction]) -> Callable[[Prediction], str]:
    """Return how a prediction's line is named: by what is not the same in all of them."""
    several_models = len({p.model for p in predictions}) > 1
    labels = {p.quant_label for p in predictions}
    # Threads that were chosen anew at each depth make no line of their own.
    by_depth: dict[tuple[str, str, int, int], set[int]] = {}
    for p in predictions:
        place = (p.model, p.quant_label, p.setting.depth_tokens, p.setting.batch)
        by_depth.setdefault(place, set()).add(p.setting.threads)
    several_threads = any(len(counts) > 1 for counts in by_depth.values())
    several_batches = len({p.setting.batch for p in predictions}) > 1

    def name(p: Prediction) -> str:
        parts = [p.model] if several_models else []
        parts += [p.quant_label] if len(labels) > 1 or not (parts or several_threads) else []
        parts += [format_count(p.setting.threads, "thread")] if several_threads else []
        parts += [f"batch {p.setting.batch}"] if several_batches else []
        return ", ".join(parts)

    return name


def _left_out(
    curves: Sequence[Prediction], name: Callable[[Prediction], str], lines: Mapping[str, object]
) -> str:
    missing = [line for line in dict.fromkeys(name(p) for p in curves) if line not in lines]
    return f" Only in the table: {', '.join(missing)}." if missing else ""


def context_table(
    predictions: Sequence[Prediction],
    name: Callable[[Prediction], str],
    cell: Callable[[Prediction], str] = format_interval,
) -> Table:
    """Return a row for each context and a column for each line."""
    names = list(dict.fromkeys(name(p) for p in predictions))
    found = {(p.setting.depth_tokens, name(p)): cell(p) for p in predictions}
    rows = tuple(
        (format_context(depth), *(found.get((depth, column), "–") for column in names))
        for depth in sorted({p.setting.depth_tokens for p in predictions})
    )
    return Table(columns=("context", *names), rows=rows, right=frozenset(names))


def _count_axis(title: str, counts: Sequence[int]) -> Axis:
    return Axis(title=title, ticks=sorted(set(counts)))


def _threads(p: Prediction) -> str:
    return format_count(p.setting.threads, "thread")


def _per(value: float | None, count: float) -> float | None:
    return None if value is None else value / count
