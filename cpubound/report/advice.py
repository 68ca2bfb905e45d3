"""The advice of ``tune`` as text and JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from cpubound.advise.tune import Advice, Choice
from cpubound.report.predictions import format_depth
from cpubound.report.tables import Table
from cpubound.units import format_percent, format_significant


def advice_document(advice: Advice) -> dict[str, Any]:
    """Return ``cpubound.advice/1``."""
    return {
        "schema": "cpubound.advice/1",
        "model": advice.model,
        "recommendation": msgspec.to_builtins(advice.recommendation),
        "table": [msgspec.to_builtins(choice) for choice in advice.table],
        "defaults": {name: msgspec.to_builtins(c) for name, c in advice.defaults.items()},
        "findings": [],
    }


def advice_text(advice: Advice, depth: int) -> str:
    """Return the answer, the reasons, what the defaults cost, and the commands."""
    r = advice.recommendation
    flash = "on" if r.flash_attn else "off"
    where = "an empty context" if depth == 0 else f"{format_depth(depth)} tokens of context"
    lines = [
        f"Use {_threads(r.threads)} for decode, {r.batch_threads} for prompts, "
        f"flash-attention {flash}.",
        f"  expected  {format_significant(r.tokens_per_s)} tok/s "
        f"[{format_significant(r.low)}, {format_significant(r.high)}] with {where}",
    ]
    lines += [_labelled("why", n, reason) for n, reason in enumerate(r.reasons)]
    lines += [
        _labelled("costs", n, _cost(name, choice, r.tokens_per_s))
        for n, (name, choice) in enumerate(advice.defaults.items())
    ]
    lines.append("")
    lines += [f"  {name:<18}{command}" for name, command in r.commands.items()]
    lines.append("Estimated from the profile.")
    return "\n".join(lines)


def advice_table(advice: Advice) -> Table:
    """Return everything that was considered, a row each."""
    rows = tuple(
        (
            str(c.threads),
            "on" if c.flash_attn else "off",
            format_significant(c.tokens_per_s),
            format_significant(c.low),
            format_significant(c.high),
        )
        for c in advice.table
    )
    columns = ("threads", "flash-attn", "tok/s", "low", "high")
    return Table(columns=columns, rows=rows, right=frozenset(columns) - {"flash-attn"})


def _threads(count: int) -> str:
    return f"{count} thread" if count == 1 else f"{count} threads"


def _labelled(label: str, number: int, text: str) -> str:
    return f"  {label if number == 0 else '':<10}{text}"


def _cost(name: str, choice: Choice, chosen: float) -> str:
    flash = "on" if choice.flash_attn else "off"
    gain = chosen / choice.tokens_per_s - 1
    setting = f"{name}'s own default ({_threads(choice.threads)}, flash-attention {flash})"
    if abs(gain) < 0.005:
        return f"{setting} is as fast"
    return (
        f"{setting}: {format_significant(choice.tokens_per_s)} → {format_significant(chosen)} "
        f"tok/s, {format_percent(gain, 0)}"
    )
