"""The advice of ``tune`` as text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from cpubound.advise.tune.values import (
    Advice,
    Choice,
    FileTypeRate,
    Recommendation,
    TargetAdvice,
    Verification,
    Verified,
)
from cpubound.advise.values import Finding
from cpubound.foreign import showing
from cpubound.report.document import to_document
from cpubound.report.predictions import format_depth
from cpubound.report.tables import Table
from cpubound.setting import F16
from cpubound.units import format_decimal_bytes, format_percent, format_significant

_WIDTH = 100
_CONTEXT_LIMITS = {
    "rate": "beyond it falls below",
    "training": "what it was trained for",
    "memory": "more does not fit into memory",
}


def advice_document(advice: Advice, findings: Sequence[Finding] = ()) -> dict[str, Any]:
    """Return ``cpubound.advice/1``; ``findings`` are those of the machine."""
    return {
        "schema": "cpubound.advice/1",
        **to_document(advice),
        "findings": to_document(findings),
    }


def advice_text(advice: Advice) -> str:
    """Return the answer, the reasons, what the defaults cost, and the commands."""
    faster = advice.verification.commands if advice.verification is not None else {}
    commands = (faster or advice.recommendation.commands).items()
    # Commands have lines of their own, and nothing in them that could not be pasted.
    return _screen(advice, {name: command.split("\n") for name, command in commands})


@showing()
def _screen(advice: Advice, commands: Mapping[str, Sequence[str]]) -> str:
    r = advice.recommendation
    where = "an empty context" if advice.depth_tokens == 0 else _context(advice.depth_tokens)
    lines = [
        _headline(r),
        f"  expected  {format_significant(r.tokens_per_s)} tok/s "
        f"[{format_significant(r.low)}, {format_significant(r.high)}] with {where}",
        *_labelled("why", r.reasons),
        *_labelled("costs", _costs(advice)),
    ]
    if advice.target is not None:
        lines += _labelled("target", _target(advice.target, advice.depth_tokens))
    if advice.verification is not None:
        lines += ["", *_verification(advice, advice.verification)]
    lines.append("")
    for name, (first, *rest) in commands.items():
        lines += [f"  {name:<18}{first}", *(" " * 20 + line for line in rest)]
    if advice.verification is None:
        lines.append("Estimated from the profile. Confirm in a minute:  add --verify")
    lines += [f"Note: {assumption}." for assumption in advice.assumptions]
    return "\n".join(lines)


def advice_table(advice: Advice) -> Table:
    """Return everything that was considered, a row each."""
    rows = tuple(
        (
            str(c.setting.threads),
            _on_off(c.setting.flash_attn),
            ":".join(c.setting.kv_types),
            format_significant(c.tokens_per_s),
            format_significant(c.low),
            format_significant(c.high),
        )
        for c in advice.table
    )
    columns = ("threads", "flash-attn", "KV", "tok/s", "low", "high")
    return Table(columns=columns, rows=rows, right=frozenset(columns) - {"flash-attn", "KV"})


def _headline(r: Recommendation) -> str:
    kv = "" if r.setting.kv_types == F16 else f", KV {':'.join(r.setting.kv_types)}"
    return (
        f"Use {_threads(r.setting.threads)} for decode, {r.batch_threads} for prompts, "
        f"flash-attention {_on_off(r.setting.flash_attn)}{kv}."
    )


def _costs(advice: Advice) -> Iterable[str]:
    """Say what each program's own setting gives, once for those that agree."""
    names: dict[Choice, list[str]] = {}
    for name, choice in advice.defaults.items():
        names.setdefault(choice, []).append(name)
    for choice, mine in names.items():
        yield _cost(" and ".join(mine), choice, advice)


def _cost(names: str, choice: Choice, advice: Advice) -> str:
    chosen = advice.recommendation.tokens_per_s
    gain = chosen / choice.tokens_per_s - 1
    own = choice.setting
    setting = f"{names} by default ({_threads(own.threads)}, flash-attn {_on_off(own.flash_attn)})"
    if own.threads > advice.effective_cpus:
        return (
            f"{setting}: far less than {format_significant(chosen)} tok/s; more threads than the "
            f"{advice.effective_cpus} that can run at once stall each other"
        )
    if abs(gain) < 0.005:
        return f"{setting} is as fast"
    return (
        f"{setting}: {format_significant(choice.tokens_per_s)} → {format_significant(chosen)} "
        f"tok/s, {format_percent(gain, 0)}"
    )


def _target(target: TargetAdvice, depth_tokens: int) -> Iterable[str]:
    wanted = f"{format_significant(target.tokens_per_s)} tok/s"
    where = "empty" if depth_tokens == 0 else f"at {format_depth(depth_tokens)}"
    if target.file_type is not None:
        yield f"{wanted} ({where}): {_file_type(target.file_type)} is the largest file that does"
    elif target.file_types:
        best = max(target.file_types, key=lambda row: row.tokens_per_s)
        yield f"{wanted} ({where}): no common file type does; nearest is {_file_type(best)}"
    if target.context_tokens is None:
        yield f"this file does not give {wanted} even with an empty context"
    elif target.context_limit is not None:
        yield (
            f"this file gives {wanted} up to {target.context_tokens} tokens of context "
            f"({_CONTEXT_LIMITS[target.context_limit]})"
        )


def _file_type(row: FileTypeRate) -> str:
    return (
        f"{row.quant_label} ({format_decimal_bytes(row.file_bytes)}, "
        f"{format_significant(row.tokens_per_s)} tok/s with {_threads(row.threads)})"
    )


def _verification(advice: Advice, v: Verification) -> Iterable[str]:
    yield f"Verified through {v.engine}: {v.rounds} rounds, interleaved"
    for row in v.rows:
        programs = [name for name in row.names if name in advice.defaults]
        whose = f"   ({', '.join(programs)})" if programs else ""
        rate = f"{format_significant(row.tokens_per_s):>6} tok/s"
        yield f"  {_setting(row):<28}{rate}   {_gain(row)}{whose}"
    yield from (f"  not run: {name}, which would stall" for name in v.left_out)
    yield from (f"  {warning}" for warning in v.warnings)
    yield _confirmation(v)


def _setting(row: Verified) -> str:
    kv = "" if row.setting.kv_types == F16 else f", KV {row.setting.kv_type_k}"
    mapped = "" if row.mmap else ", not mapped"
    return (
        f"{_threads(row.setting.threads)}, flash-attn {_on_off(row.setting.flash_attn)}{kv}{mapped}"
    )


def _gain(row: Verified) -> str:
    if "tune" in row.names:
        return "chosen"
    return (
        f"choice {format_percent(row.gain, 0)} "
        f"[{format_percent(row.gain_low, 0)}, {format_percent(row.gain_high, 0)}]"
    )


def _confirmation(v: Verification) -> str:
    """Say whether anything ran faster than the choice by more than its rounds vary."""
    best = v.faster
    if best is None:
        return "Confirmed: nothing that ran was faster than the choice beyond the spread of rounds."
    return (
        f"Not confirmed: {_setting(best)} was {1 / (1 + best.gain):.2f} times as fast; set as "
        "below, or calibrate again."
    )


def _context(depth_tokens: int) -> str:
    return f"{format_depth(depth_tokens)} tokens of context"


def _threads(count: int) -> str:
    return f"{count} thread" if count == 1 else f"{count} threads"


def _labelled(label: str, texts: Iterable[str]) -> list[str]:
    """Put a label before the first line; long texts go on under their own start."""
    lines = [line for text in texts for line in wrap(text, _WIDTH - 14, subsequent_indent="  ")]
    return [f"  {label if n == 0 else '':<10}{line}" for n, line in enumerate(lines)]


def _on_off(state: bool) -> str:
    return "on" if state else "off"
