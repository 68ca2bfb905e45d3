"""Two profiles side by side as text, JSON and CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cpubound import stats
from cpubound.advise.compare import Comparison, Difference, ModelDifference, RateDifference
from cpubound.cost.values import Prediction
from cpubound.foreign import showing
from cpubound.profile.values import MachineProfile
from cpubound.report.document import to_document
from cpubound.report.predictions import format_depth, format_interval, profile_reference
from cpubound.report.tables import Block, Table, indent, render_block
from cpubound.units import GB, format_count, format_percent, format_significant

_MAX_TEXT = 34


def comparison_document(
    a: MachineProfile, b: MachineProfile, comparison: Comparison
) -> dict[str, Any]:
    """Return ``cpubound.comparison/1``."""
    return {
        "schema": "cpubound.comparison/1",
        "a": profile_reference(a),
        "b": profile_reference(b),
        **to_document(comparison),
    }


@showing()
def comparison_text(comparison: Comparison, style: str = "table") -> str:
    """Return identity first, then what differs, then what it means for the models."""
    blocks: list[Block] = [comparison_verdict(comparison)]
    if comparison.identity:
        blocks.append(identity_table(comparison.identity))
    if comparison.rates:
        blocks.append(_summary(comparison))
        shown = [r for r in comparison.rates if r.beyond_noise or r.what.startswith("read,")]
        blocks.append(rate_table(shown))
    if comparison.models:
        blocks.append("tok/s [90 % interval] × threads, each at its own best unless given")
        blocks.append(model_table(comparison.models))
    texts = [(block, render_block(block, style)) for block in blocks]
    return "\n\n".join(indent(text) if isinstance(b, Table) else text for b, text in texts)


def largest_differences(comparison: Comparison, most: int) -> Table:
    """Return what differs most, a row each: the machine, then models, then measured rates.

    Of what was measured only what changed by more than the noise, the largest changes first.
    """
    rates = sorted(
        (r for r in comparison.rates if r.beyond_noise), key=lambda r: -abs(math.log1p(r.change))
    )
    rows = [
        *((d.field, *_shorten(d.a, d.b), "") for d in comparison.identity),
        *(
            (f"{m.a.model} {m.a.quant_label}, tok/s", format_significant(m.a.tokens_per_s),
             format_significant(m.b.tokens_per_s), format_percent(m.change, 0))
            for m in comparison.models
        ),
        *(
            (f"{r.what}, {format_count(r.threads, 'thread')}, GB/s", f"{r.a_bytes_per_s / GB:.1f}",
             f"{r.b_bytes_per_s / GB:.1f}", format_percent(r.change, 0))
            for r in rates
        ),
    ]  # fmt: skip
    columns = ("what", "A", "B", "change")
    return Table(columns=columns, rows=tuple(rows[:most]), right=frozenset({"change"}))


def identity_table(differences: Sequence[Difference]) -> Table:
    """Return the fields that differ, a row each."""
    rows = tuple((d.field, *_shorten(d.a, d.b)) for d in differences)
    return Table(columns=("", "A", "B"), rows=rows)


def rate_table(rates: Sequence[RateDifference]) -> Table:
    """Return the measured rates in GB/s, a row each."""
    rows = tuple(
        (
            r.what,
            str(r.threads),
            f"{r.a_bytes_per_s / 1e9:.1f}",
            f"{r.b_bytes_per_s / 1e9:.1f}",
            format_percent(r.change, 0),
            "more than noise" if r.beyond_noise else "noise",
        )
        for r in rates
    )
    columns = ("GB/s", "threads", "A", "B", "change", "")
    return Table(columns=columns, rows=rows, right=frozenset({"threads", "A", "B", "change"}))


def model_table(models: Sequence[ModelDifference]) -> Table:
    """Return the predictions side by side."""
    rows = tuple(
        (
            f"{m.a.model} {m.a.quant_label}",
            "empty"
            if m.a.setting.depth_tokens == 0
            else f"at {format_depth(m.a.setting.depth_tokens)}",
            _cell(m.a),
            _cell(m.b),
            format_percent(m.change, 0),
            "beyond" if m.beyond_intervals else "within",
        )
        for m in models
    )
    columns = ("model", "context", "A", "B", "change", "intervals")
    return Table(columns=columns, rows=rows, right=frozenset({"change"}))


@showing()
def comparison_verdict(comparison: Comparison) -> str:
    """Say whether machine and engine are the same."""
    machine = "The same machine" if comparison.same_machine else "Two machines"
    engine = (
        "the same llama.cpp"
        if comparison.same_engine
        else "another llama.cpp: rates measured through one are not the other's"
    )
    return f"{machine}, {engine}."


def _summary(comparison: Comparison) -> str:
    """Say in one line how rates moved, and how many by more than noise."""
    changes = [r.change for r in comparison.rates]
    beyond = sum(r.beyond_noise for r in comparison.rates)
    return (
        f"Measured rates: {format_percent(stats.median(changes), 0)} (median of {len(changes)}), "
        f"{beyond} changed by more than the noise of "
        f"±{comparison.noise_a * 100:.0f} % and ±{comparison.noise_b * 100:.0f} %.\n"
        "Read bandwidth and those (all of them: --format csv without a MODEL, or --json -):"
    )


def _cell(p: Prediction) -> str:
    return f"{format_interval(p)} ×{p.setting.threads}"


def _shorten(a: str, b: str) -> tuple[str, str]:
    """Keep long lists to the words in which they differ."""
    if max(len(a), len(b)) <= _MAX_TEXT:
        return a, b
    words_a, words_b = a.split(), b.split()
    only_a = [word for word in words_a if word not in words_b]
    only_b = [word for word in words_b if word not in words_a]
    if len(words_a) < 2 or len(words_b) < 2:
        return _cut(a), _cut(b)
    return _cut(" ".join(["…", *only_a])), _cut(" ".join(["…", *only_b]))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
