"""A breakdown as a table, as JSON, and as the lines around the table."""

from __future__ import annotations

from typing import Any

from cpubound.foreign import showing
from cpubound.profile.values import MachineProfile
from cpubound.report.document import to_document
from cpubound.report.predictions import format_depth, profile_reference
from cpubound.report.tables import Table, plain_cell
from cpubound.units import (
    format_count,
    format_decimal_bytes,
    format_percent,
    format_rate,
    format_seconds,
    format_significant,
)
from cpubound.validation.breakdown import NORMAL_90, Breakdown, PartCost

PART_NAMES = {
    "attention_projections": "attention projections",
    "attention": "attention (KV cache)",
    "ffn": "FFN",
    "experts": "experts",
    "recurrent": "recurrent layers",
    "output": "output matrix",
    "norm": "norms",
    "rest": "rest",
}
_DASH = "–"


def breakdown_document(profile: MachineProfile | None, breakdown: Breakdown) -> dict[str, Any]:
    """Return ``cpubound.breakdown/1``."""
    return {
        "schema": "cpubound.breakdown/1",
        **to_document(breakdown),
        "profile": None if profile is None else profile_reference(profile),
        "tokens_per_s": breakdown.tokens_per_s,
        "slow_parts": list(breakdown.slow_parts),
    }


@showing()
def breakdown_heading(breakdown: Breakdown) -> str:
    """Return the line above the table."""
    setting = breakdown.setting
    flash = "on" if setting.flash_attn else "off"
    context = f"{format_depth(setting.depth_tokens)} tokens of context"
    return (
        f"{breakdown.model} {breakdown.quant_label} through {breakdown.engine}: "
        f"{format_count(setting.threads, 'thread')}, "
        f"{context if setting.depth_tokens else 'empty context'}, flash-attention {flash}\n"
        f"  {format_significant(breakdown.tokens_per_s)} tok/s, "
        f"{format_seconds(breakdown.seconds_per_token)} a token"
    )


def breakdown_table(breakdown: Breakdown) -> Table:
    """Return a row for each part, the costliest first."""
    ordered = sorted(breakdown.parts, key=lambda cost: -cost.seconds)
    rows = [_row(cost) for cost in ordered]
    predicted = [cost.predicted_s for cost in ordered if cost.predicted_s is not None]
    rows.append(
        (
            "together",
            format_decimal_bytes(sum(cost.n_bytes for cost in ordered)),
            _milliseconds(breakdown.seconds_per_token),
            "100 %",
            format_rate(sum(c.n_bytes for c in ordered) / breakdown.seconds_per_token),
            _milliseconds(sum(predicted)) if predicted else _DASH,
            f"{breakdown.seconds_per_token / sum(predicted):.2f}" if predicted else _DASH,
            "",
        )
    )
    return Table(
        columns=("part", "bytes", "time (ms)", "share", "rate", "predicted (ms)", "ratio", ""),
        rows=tuple(rows),
        right=frozenset({"bytes", "share", "rate", "ratio"}),
    )


def breakdown_rows(breakdown: Breakdown) -> Table:
    """Return the parts with plain numbers, for CSV."""
    columns = PartCost.__struct_fields__
    rows = tuple(
        tuple(plain_cell(getattr(cost, name)) for name in columns) for cost in breakdown.parts
    )
    return Table(columns=columns, rows=rows)


@showing()
def breakdown_notes(breakdown: Breakdown, *, has_profile: bool) -> str:
    """Say what is slower than it should be, and what observing cost."""
    return "\n".join((*_verdicts(breakdown, has_profile), _looking(breakdown)))


def _verdicts(breakdown: Breakdown, has_profile: bool) -> list[str]:
    if not has_profile:
        return ["No profile, so no prediction beside it: run `cpubound calibrate`."]
    by_part = {cost.part: cost for cost in breakdown.parts}
    slow = [by_part[part] for part in breakdown.slow_parts]
    if not slow:
        return ["No part is slower than its prediction's interval allows."]
    lines = [
        f"Slower than it should be: {PART_NAMES[cost.part]}, {_time(cost)} ms where "
        f"{_predicted(cost)} ms was predicted."
        for cost in slow
    ]
    compared = [cost for cost in breakdown.parts if cost.ratio is not None and cost.n_bytes]
    if len(compared) > 1 and all((cost.ratio or 0) > 1.1 for cost in compared):
        lines.append(
            "Every part is slow: the machine gives less than when it was calibrated "
            "(cpubound doctor, cpubound calibrate)."
        )
    return lines


def _looking(breakdown: Breakdown) -> str:
    look = breakdown.looking
    return (
        f"Observing {look.looks} times a token changed its time by "
        f"{format_percent(look.slowdown - 1)}: "
        f"{look.look_s * 1e6:.1f} ± {NORMAL_90 * look.look_error_s * 1e6:.1f} µs an observation "
        f"are subtracted, and the parts scaled by {look.correction:.3f} ± "
        f"{NORMAL_90 * look.correction_error:.3f} to the unobserved time."
    )


def _row(cost: PartCost) -> tuple[str, ...]:
    has_rate = cost.bytes_per_s is not None and cost.part not in ("norm", "rest")
    return (
        PART_NAMES[cost.part],
        format_decimal_bytes(cost.n_bytes) if cost.n_bytes else _DASH,
        _time(cost),
        f"{cost.share * 100:.1f} %",
        format_rate(cost.bytes_per_s or 0) if has_rate else _DASH,
        _predicted(cost),
        _DASH if cost.ratio is None else f"{cost.ratio:.2f}",
        "slow" if cost.is_slow else "",
    )


def _time(cost: PartCost) -> str:
    return f"{_milliseconds(cost.seconds)} ± {_milliseconds(NORMAL_90 * cost.error_s)}"


def _predicted(cost: PartCost) -> str:
    if cost.predicted_s is None:
        return _DASH
    low, high = cost.predicted_low_s or 0.0, cost.predicted_high_s or 0.0
    return f"{_milliseconds(cost.predicted_s)} [{_milliseconds(low)}, {_milliseconds(high)}]"


def _milliseconds(seconds: float) -> str:
    """Write milliseconds to a microsecond at most, with three digits where there are as many."""
    milliseconds = seconds * 1e3
    return f"{milliseconds:.3f}" if milliseconds < 1 else format_significant(milliseconds)
