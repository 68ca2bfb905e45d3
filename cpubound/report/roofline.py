"""The roofline of a model as tables, and the lines around them."""

from __future__ import annotations

import math

from cpubound.foreign import showing
from cpubound.report.roofline_document import MachineLine, point_document
from cpubound.report.tables import Block, Table, plain_cell
from cpubound.report.traffic import format_kv_types
from cpubound.theory.analysis import Roofline
from cpubound.theory.budget import COMPUTE, binding_roof
from cpubound.theory.speculative import SpeculationOutlook
from cpubound.units import format_decimal_bytes, format_seconds, format_significant

NEVER = "never"
UNKNOWN = "–"


@showing()
def roofline_heading(roofline: Roofline, machine: MachineLine) -> str:
    """Return what is looked at: model, machine, the two roofs and their ridge."""
    roofs = roofline.roofs
    bandwidth = f"{_rate(roofs.bytes_per_s, 'B/s')} ({machine.bandwidth_origin})"
    measured = machine.measured_bytes_per_s
    if measured is not None and measured != roofs.bytes_per_s:
        bandwidth += f", {_rate(measured, 'B/s')} measured"
    lines = [
        f"{roofline.model} {roofline.quant_label} on {machine.title}",
        f"Bandwidth {bandwidth}",
    ]
    if roofs.flops_per_s is None or roofs.machine_balance is None:
        lines.append(
            "Peak FLOP/s not known: what needs it is left out (give --peak-flops to see it)"
        )
    else:
        precision = f" {machine.compute_precision}" if machine.compute_precision else ""
        lines.append(
            f"Peak {_rate(roofs.flops_per_s, 'FLOP/s')}{precision} ({machine.peak_origin}), "
            f"machine balance {format_significant(roofs.machine_balance)} FLOP/byte"
        )
    return "\n".join(lines)


def budget_table(roofline: Roofline) -> Table:
    """Return a row for each context: bytes, decode budget, ridge batch, largest batch."""
    table = Table(
        columns=("context", "bytes/token", "of it KV", "tok/s", "ridge batch", "largest batch"),
        rows=tuple(
            (
                str(budget.context_tokens),
                format_decimal_bytes(budget.n_bytes),
                f"{budget.cache_share * 100:.1f} %",
                format_significant(budget.tokens_per_s),
                _count(budget.ridge_batch),
                _count(budget.largest_batch, without_end="any"),
            )
            for budget in roofline.budgets
        ),
        right=frozenset(
            {"context", "bytes/token", "of it KV", "tok/s", "ridge batch", "largest batch"}
        ),
    )
    return _without_unknown(table)


def point_table(roofline: Roofline) -> Table:
    """Return a row for each batch and context: what binds and what can be expected."""
    columns = (
        "context",
        "batch",
        "FLOP/byte",
        "bound by",
        "of peak FLOP/s",
        "of bandwidth",
        "tok/s",
        "each",
        "fits",
    )
    table = Table(
        columns=columns,
        rows=tuple(
            (
                str(point.context_tokens),
                str(point.batch),
                format_significant(point.intensity),
                point.roof or UNKNOWN,
                _share(point.flops_share),
                _share(point.bandwidth_share),
                format_significant(point.tokens_per_s),
                format_significant(point.sequence_tokens_per_s),
                UNKNOWN
                if point.fits_in_memory is None
                else "yes"
                if point.fits_in_memory
                else "no",
            )
            for point in roofline.points
        ),
        right=frozenset(columns) - {"bound by", "fits"},
    )
    return _without_unknown(table)


def point_rows(roofline: Roofline) -> Table:
    """Return the same rows with plain numbers, for CSV."""
    columns = (
        "model",
        "context_tokens",
        "batch",
        "flops",
        "bytes",
        "intensity",
        "roof",
        "flops_share",
        "bandwidth_share",
        "seconds",
        "tokens_per_s",
        "fits_in_memory",
    )
    rows = []
    for point in roofline.points:
        plain = point_document(roofline, point)
        cells = (roofline.model, *(plain[name] for name in columns[1:]))
        rows.append(tuple(plain_cell(cell) for cell in cells))
    return Table(columns=columns, rows=tuple(rows))


def operator_table(roofline: Roofline) -> Table:
    """Return the intensity of each operator class: a column for each point of the longest context.

    ``c`` marks what is compute-bound.
    """
    longest = max(point.context_tokens for point in roofline.points)
    points = [point for point in roofline.points if point.context_tokens == longest]
    columns = tuple(f"batch {point.batch}" for point in points)
    rows = []
    for place, operator in enumerate(points[0].operators):
        cells = []
        for point in points:
            intensity = point.operators[place].intensity
            mark = " c" if binding_roof(intensity, roofline.roofs) == COMPUTE else ""
            cells.append(format_significant(intensity) + mark)
        rows.append((operator.name, *cells))
    return Table(
        columns=(f"FLOP/byte at {longest} tokens", *columns),
        rows=tuple(rows),
        right=frozenset(columns),
    )


def variant_table(roofline: Roofline) -> Table:
    """Return what smaller weights, a smaller cache and both give."""
    contexts = [budget.context_tokens for budget in roofline.budgets]
    first = contexts[0]
    columns = (
        "bits/weight",
        "KV",
        *(f"tok/s at {context}" for context in contexts),
        f"ridge at {first}",
        "n*",
    )
    table = Table(
        columns=("effect of", *columns),
        rows=tuple(
            (
                variant.name,
                format_significant(variant.weight_bits),
                format_kv_types(variant.setting),
                *(format_significant(rate) for rate in variant.tokens_per_s),
                _count(variant.ridge_batches[0]),
                _count(variant.last_context, without_end="none"),
            )
            for variant in roofline.variants
        ),
        right=frozenset(columns) - {"KV"},
    )
    return _without_unknown(table)


def expert_table(roofline: Roofline) -> Table:
    """Return how many experts of a layer each batch reads."""
    total = roofline.experts[0] if roofline.experts else 0
    return Table(
        columns=("batch", f"experts of {total}", "weights read"),
        rows=tuple(
            (
                str(reads.batch),
                format_significant(reads.experts),
                format_decimal_bytes(reads.weight_bytes),
            )
            for reads in roofline.expert_reads
        ),
        right=frozenset({"batch", f"experts of {total}", "weights read"}),
    )


def speculation_table(outlook: SpeculationOutlook) -> Table:
    """Return the speed-up of drafting for each acceptance, as asked for and at its best."""
    columns = (
        "acceptance",
        "tokens/pass",
        f"speed-up at k={outlook.draft_tokens}",
        "best k",
        "then",
    )
    return Table(
        columns=columns,
        rows=tuple(
            (
                f"{chosen.acceptance:g}",
                format_significant(chosen.tokens_per_pass),
                f"×{chosen.speed_up:.2f}",
                str(best.draft_tokens) if best.speed_up > 1 else "none",
                f"×{max(best.speed_up, 1.0):.2f}",
            )
            for chosen, best in zip(outlook.chosen, outlook.best, strict=True)
        ),
        right=frozenset(columns),
    )


@showing()
def sections_before(roofline: Roofline, machine: MachineLine) -> tuple[Block, ...]:
    """Return what stands above the table of points."""
    return (
        roofline_heading(roofline, machine),
        "Decode at batch 1, and from which batch a step is compute-bound:",
        budget_table(roofline),
        _last_context_line(roofline),
        "Batches:",
    )


@showing()
def sections_after(
    roofline: Roofline, outlook: SpeculationOutlook | None = None
) -> tuple[Block, ...]:
    """Return what stands below the table of points."""
    blocks: list[Block] = [operator_table(roofline)]
    if roofline.variants:
        blocks.append(variant_table(roofline))
    if roofline.expert_reads:
        blocks.append(expert_table(roofline))
    if outlook is not None:
        blocks += [_speculation_lines(outlook), speculation_table(outlook)]
    return (*blocks, "\n".join(_note_lines(roofline)))


def _last_context_line(roofline: Roofline) -> str:
    tokens = roofline.last_context
    if tokens is None:
        return ""
    if math.isinf(tokens):
        return "n*: none; at any context some batch is compute-bound."
    if tokens == 0:
        return "n*: 0; no batch is compute-bound at any context."
    return f"n*: from {tokens:.0f} tokens of context on, no batch is compute-bound."


def _speculation_lines(outlook: SpeculationOutlook) -> str:
    times = (
        f"one token takes {format_seconds(outlook.target_seconds)}, a pass over "
        f"{outlook.draft_tokens + 1} tokens {format_seconds(outlook.pass_seconds)}, "
        f"the draft's token {_seconds(outlook.draft_seconds)}"
    )
    pays = (
        f"no gain possible here with k={outlook.draft_tokens}: it loses even if all is accepted"
        if outlook.break_even is None
        else f"it pays from an acceptance of {outlook.break_even:.2f} on"
    )
    return (
        f"Speculative decoding with {outlook.draft} at {outlook.context_tokens} tokens: {times}; "
        f"{pays}.\nTimes: {outlook.basis}."
    )


def _note_lines(roofline: Roofline) -> list[str]:
    lines = [f"Note: {note}." for note in roofline.notes]
    if roofline.roofs.flops_per_s is None and any(point.batch > 1 for point in roofline.points):
        lines.append(
            "Without a peak rate batches count bytes only: their tok/s are far too high once "
            "compute binds."
        )
    if any(point.roof != COMPUTE for point in roofline.points):
        lines.append(
            "A few per cent of peak FLOP/s are expected where memory binds: judge decode by its "
            "share of bandwidth. A prompt of N tokens is a batch of N."
        )
    lines.append("These are ceilings of the theory, not predictions: `cpubound predict` measures.")
    return lines


def _without_unknown(table: Table) -> Table:
    """Return the table without the columns in which nothing is known."""
    keep = [
        place
        for place in range(len(table.columns))
        if any(row[place] != UNKNOWN for row in table.rows)
    ]
    columns = tuple(table.columns[place] for place in keep)
    return Table(
        columns=columns,
        rows=tuple(tuple(row[place] for place in keep) for row in table.rows),
        right=table.right & frozenset(columns),
    )


def _count(value: float | None, without_end: str = NEVER) -> str:
    if value is None:
        return UNKNOWN
    return without_end if math.isinf(value) else f"{value:,.0f}"


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value * 100:.1f} %"


def _seconds(value: float) -> str:
    return format_seconds(value) if value else "0"


def _rate(value: float, unit: str) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{format_significant(value / factor)} {prefix}{unit}"
    return f"{value:.0f} {unit}"
