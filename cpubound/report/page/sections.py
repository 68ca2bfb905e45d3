"""The parts of a report's page in their order: words, charts, tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap

from cpubound import stats
from cpubound.advise.tune.values import Advice
from cpubound.advise.values import Finding
from cpubound.cost.rates import measured_types
from cpubound.errors import CpuboundError
from cpubound.foreign import showing
from cpubound.profile.values import MachineProfile
from cpubound.report.charts import checks, comparison, machine, models, roofs
from cpubound.report.charts.style import Chart
from cpubound.report.comparison import comparison_verdict, largest_differences
from cpubound.report.machine import machine_table
from cpubound.report.page.contents import ComparisonContents, ModelContents, ReportContents
from cpubound.report.predictions import (
    BOUNDS,
    basis_note,
    format_depth,
    format_interval,
    profile_source,
)
from cpubound.report.tables import Table
from cpubound.report.traffic import format_kv_types
from cpubound.setting import F16
from cpubound.units import format_count, format_decimal_bytes, format_percent, format_significant

# Rows that say what differs.
MOST_DIFFERENCES = 10
_UNCHECKED = (
    "Nothing was run to check them: `cpubound validate MODEL --json FILE` does, and "
    "`cpubound report --validation FILE` shows it here."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One part of the page; ``commands`` are lines to paste by the program that they are for."""

    name: str
    title: str
    text: tuple[str, ...] = ()
    tables: tuple[tuple[str, Table], ...] = ()
    charts: tuple[Chart, ...] = ()
    findings: tuple[Finding, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the page opens with: a figure, what it is of, and what else must be known."""

    figure: str
    unit: str
    sentence: str
    notes: tuple[str, ...]


@showing()
def answer(contents: ReportContents) -> Answer:
    """Return the answer to the first question: how fast is the first model here?"""
    profile = contents.profile
    cpu = profile.machine.cpu_model or profile.machine.architecture
    notes = [] if profile.noise.note is None else [f"Note: {profile.noise.note}."]
    first = contents.summary[0]
    low, high = format_significant(first.low), format_significant(first.high)
    fits = " It does not fit into this machine's memory." if first.fits_in_memory is False else ""
    sentence = (
        f"{first.model} {first.quant_label} on this {cpu}, with "
        f"{format_count(first.setting.threads, 'thread')} and "
        f"{models.format_context(first.setting.depth_tokens)}. "
        f"Nine runs in ten give {low} to {high} tokens per second.{fits}"
    )
    if contents.target is not None:
        notes.insert(0, _target_note(contents))
    notes.insert(0, basis_note(contents.summary))
    return Answer(
        figure=format_significant(first.tokens_per_s),
        unit="tok/s",
        sentence=sentence,
        notes=tuple(notes),
    )


@showing()
def comparison_answer(contents: ComparisonContents) -> Answer:
    """Return the answer of a comparison: how much faster B is than A."""
    found = contents.comparison
    changes = [m.change for m in found.models] or [r.change for r in found.rates]
    figure = format_percent(stats.median(changes), 0) if changes else "–"
    of_what = "decode speed" if found.models else "measured rates"
    return Answer(
        figure=figure,
        unit=f"{of_what} of B over A",
        sentence=comparison_verdict(found),
        notes=tuple(
            f"{name}: {profile_source(profile)}."
            for name, profile in (("A", contents.a), ("B", contents.b))
        ),
    )


@showing()
def comparison_sections(contents: ComparisonContents) -> list[Section]:
    """Return the differences first, then the same charts laid over each other."""
    a, b = contents.a, contents.b
    rates = comparison.chart_both_rates(a, b)
    speeds = [
        replace(chart, name=f"{chart.name}-{place}")
        for place, chart in enumerate(starmap(comparison.chart_both_contexts, contents.curves))
    ]
    return [
        Section(
            name="differences",
            title="What differs",
            tables=(("What differs", largest_differences(contents.comparison, MOST_DIFFERENCES)),),
        ),
        *(
            [Section(name="speed", title="How fast they are", charts=tuple(speeds))]
            if speeds
            else []
        ),
        Section(
            name="machine",
            title="What was measured",
            charts=(comparison.chart_both_read(a, b), *([] if rates is None else [rates])),
        ),
    ]


@showing()
def sections(contents: ReportContents) -> list[Section]:
    """Return every part that the contents can fill."""
    found = [_summary(contents)] if len(contents.summary) > 1 else []
    several = len(contents.models) > 1
    for place, model in enumerate(contents.models):
        found += _model_sections(contents, model, f"-{place + 1}" if several else "")
    return [*found, *_machine_sections(contents), _check_section(contents)]


def _target_note(contents: ReportContents) -> str:
    wanted = format_significant(contents.target or 0.0)
    enough = [
        p
        for model in contents.models
        for p in model.table
        if p.setting.depth_tokens == 0
        and p.tokens_per_s >= (contents.target or 0.0)
        and p.fits_in_memory is not False
    ]
    if not enough:
        return f"Nothing here gives {wanted} tok/s."
    best = max(enough, key=lambda p: p.file_bytes)
    return (
        f"The largest file that gives {wanted} tok/s: {best.model} {best.quant_label}, "
        f"{format_significant(best.tokens_per_s)} tok/s."
    )


def _summary(contents: ReportContents) -> Section:
    rows = tuple(
        (
            p.model,
            p.quant_label,
            format_decimal_bytes(p.file_bytes),
            str(p.setting.threads),
            "too big" if p.fits_in_memory is False else format_interval(p),
            BOUNDS[p.bound],
        )
        for p in contents.summary
    )
    columns = ("model", "file type", "size", "threads", "tok/s [90 % interval]", "limited by")
    table = Table(columns=columns, rows=rows, right=frozenset(columns[2:5]))
    shown = len(contents.models)
    text = "With an empty context, each with its best number of threads."
    if 0 < shown < len(contents.summary):
        text += f" The first {shown} are shown in full below."
    return Section(name="models", title="Models", text=(text,), tables=(("Models", table),))


def _model_sections(contents: ReportContents, model: ModelContents, mark: str) -> Iterable[Section]:
    name = model.table[0].model
    title = f": {name}" if mark else ""
    depths = sorted({p.setting.depth_tokens for p in model.table})
    bars = [p for p in model.table if p.setting.depth_tokens in (depths[0], depths[-1])]
    speed = [_named(models.chart_contexts(model.curves, contents.target), mark)]
    if len({models.format_cache_setting(p) for p in model.settings}) > 1:
        speed.append(_named(models.chart_settings(model.settings), mark))
    yield Section(
        name=f"speed{mark}",
        title=f"How fast it is{title}",
        text=(f"{name}, token/s with 90 % intervals, each with its best number of threads.",),
        tables=(("File types and contexts", _speed_table(model)),),
        charts=tuple(speed),
    )
    yield Section(
        name=f"time{mark}",
        title=f"Where the time goes{title}",
        charts=(_named(models.chart_token_time(bars), mark),),
    )
    memory = contents.profile.machine.usable_memory_bytes
    many = [models.chart_memory(model.curves, memory)]
    if model.prompts:
        many.append(models.chart_prompts(model.prompts))
    if len(model.batches) > 1:
        many.append(models.chart_batches(model.batches))
    yield Section(
        name=f"more{mark}",
        title=f"Memory, prompts, several users{title}",
        charts=tuple(_named(chart, mark) for chart in many),
    )
    if model.advice is not None:
        yield _advice_section(model.advice, mark, title)


def _speed_table(model: ModelContents) -> Table:
    """Return a row for each file type and a column for each context."""
    depths = sorted({p.setting.depth_tokens for p in model.table})
    found = {(p.quant_label, p.setting.depth_tokens): p for p in model.table}
    labels = list(dict.fromkeys(p.quant_label for p in model.table))
    heads = tuple("empty" if depth == 0 else f"at {format_depth(depth)}" for depth in depths)
    rows = []
    for label in labels:
        mine = [found[label, depth] for depth in depths]
        limits = ", ".join(dict.fromkeys(BOUNDS[p.bound] for p in mine))
        size = format_decimal_bytes(mine[0].file_bytes)
        cells = ("too big" if p.fits_in_memory is False else format_interval(p) for p in mine)
        rows.append((label, size, *cells, limits))
    return Table(
        columns=("file type", "size", *heads, "limited by"),
        rows=tuple(rows),
        right=frozenset({"size", *heads}),
    )


def _advice_section(advice: Advice, mark: str, title: str) -> Section:
    r = advice.recommendation
    kv = "" if r.setting.kv_types == F16 else f", KV {format_kv_types(r.setting)}"
    first = (
        f"Use {format_count(r.setting.threads, 'thread')} for decode, "
        f"{r.batch_threads} for prompts, "
        f"flash-attention {'on' if r.setting.flash_attn else 'off'}{kv}, with "
        f"{models.format_context(advice.depth_tokens)}: {format_significant(r.tokens_per_s)} tok/s "
        f"[{format_significant(r.low)}, {format_significant(r.high)}]."
    )
    return Section(
        name=f"set{mark}",
        title=f"What to set{title}",
        text=(first, f"Why: {'; '.join(r.reasons)}."),
        commands=tuple(r.commands.items()),
    )


def _machine_sections(contents: ReportContents) -> Iterable[Section]:
    profile = contents.profile
    yield Section(
        name="machine",
        title="This machine",
        tables=(("What it is", machine_table(profile.machine, ())),),
        charts=_charts(
            partial(machine.chart_scaling, profile), partial(machine.chart_working_sets, profile)
        ),
    )
    if profile.engine is not None and measured_types(profile.engine):
        yield Section(
            name="roofs",
            title="What the machine allows, and what llama.cpp reaches",
            charts=_charts(
                partial(roofs.chart_rates, profile), partial(roofs.chart_roofs, profile)
            ),
        )
    yield Section(
        name="findings",
        title="What slows it, and what to do",
        text=() if contents.findings else ("Nothing found that would slow it down.",),
        findings=contents.findings,
    )


def _check_section(contents: ReportContents) -> Section:
    """Return predicted against observed, and how much the machine moved meanwhile."""
    validations = tuple(
        _named(checks.chart_validation(v, contents.profile), f"-{n}" if n else "")
        for n, v in enumerate(contents.validations)
    )
    return Section(
        name="checks",
        title="How good the predictions are",
        text=(
            *(() if validations else (_UNCHECKED,)),
            *(f"Warning: {warning}." for warning in contents.profile.warnings),
        ),
        charts=(*validations, *_charts(partial(machine.chart_noise, contents.profile))),
    )


def _charts(*makers: Callable[[], Chart]) -> tuple[Chart, ...]:
    """Return the charts that the profile can fill."""
    found = []
    for make in makers:
        try:
            found.append(make())
        except CpuboundError:
            continue
    return tuple(found)


def _named(chart: Chart, mark: str) -> Chart:
    """Return the chart under a name that no other of the page has."""
    return replace(chart, name=f"{chart.name}{mark}") if mark else chart


@showing()
def source_rows(contents: ReportContents | ComparisonContents) -> list[tuple[str, str]]:
    """Return how the report was made: command, day, and the profiles' versions."""
    profiles = [("profile", contents.profile)] if isinstance(contents, ReportContents) else [
        ("A", contents.a), ("B", contents.b)
    ]  # fmt: skip
    return [
        ("made by", contents.made_by),
        ("on", contents.made),
        *(
            (name, f"{profile_source(profile)}, cpubound {profile.cpubound_version}, "
             f"{_engine(profile)}")
            for name, profile in profiles
        ),
    ]  # fmt: skip


def _engine(profile: MachineProfile) -> str:
    engine = profile.engine
    return "without an engine" if engine is None else f"{engine.name} {engine.version}"
