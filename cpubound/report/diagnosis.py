"""What ``diagnose`` shows: what a rate implies, what explains it, what to do."""

from __future__ import annotations

from typing import Any

from cpubound.advise.diagnosis import BatchCeiling, Diagnosis, SecondsOfGap
from cpubound.advise.values import ERROR, WARNING, Finding
from cpubound.foreign import showing
from cpubound.report.document import to_document
from cpubound.report.findings import finding_lines, wrap_parts
from cpubound.report.live import live_text
from cpubound.report.tables import Table
from cpubound.units import (
    format_count,
    format_decimal_bytes,
    format_rate,
    format_seconds,
    format_significant,
)

_LABEL = 12
_PARTS = {"weights": "weights", "kv_cache": "KV cache", "state": "state"}
_GAPS = {
    "memory": "memory: the rate is as near to its ceiling as this model and setting get",
    "kernel": "the kernels: they take longer than memory needs for the bytes",
    "attention": "attention: it goes through the cache slower than memory gives it",
    "overhead": "overhead: barriers and small operators, not bytes",
    "configuration": "configuration: settings, not the machine",
    "disturbance": "disturbance: something took CPUs or memory while it ran",
    "unexplained": "unexplained by the model, the machine and the settings given",
    "impossible": "none: the claim is impossible",
}
_NOT_RESIDENT = "memory: the model does not fit into it"


def diagnosis_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return ``cpubound.advice/1``; a diagnosis recommends through its findings only."""
    document: dict[str, Any] = {"schema": "cpubound.advice/1", "recommendation": None}
    document |= to_document(diagnosis)
    return document


def diagnosis_table(diagnosis: Diagnosis) -> Table:
    """Return facts and findings as rows of two columns."""
    rows = [(label, text) for label, text in _facts(diagnosis)]
    rows += [
        (f"{finding.severity}: {finding.code}", f"{finding.message}. {finding.remedy}")
        for finding in diagnosis.findings
    ]
    return Table(columns=("fact", "value"), rows=tuple(rows))


@showing()
def diagnosis_text(diagnosis: Diagnosis, *, verbose: bool = False) -> str:
    """Return the screen: the answer, what it rests on, the findings.

    Findings about which nothing can be done are left out unless ``verbose``.
    """
    lines = wrap_parts("", [headline(diagnosis)])
    lines.append("")
    for label, text in _facts(diagnosis):
        lines += wrap_parts(f"{label:<{_LABEL}}", [text])
    lines.append("")
    shown = [f for f in diagnosis.findings if verbose or f.is_actionable]
    lines += finding_lines(shown) or ["Nothing found that would explain more."]
    hidden = len(diagnosis.findings) - len(shown)
    if hidden:
        lines.append(f"With -v: {format_count(hidden, 'fact')} about which there is nothing to do.")
    for note in dict.fromkeys(diagnosis.notes):
        lines += wrap_parts("Note: ", [f"{note}."])
    return "\n".join(lines)


@showing()
def headline(d: Diagnosis) -> str:
    """Return the answer in a line: the rate, its one cause, and the setting that mends it."""
    observed = f"{format_significant(d.observed_tokens_per_s)} tok/s"
    best = max(d.best_tokens_per_s or 0.0, d.predicted_tokens_per_s or 0.0)
    cause = _main_cause(d)
    if d.gap == "impossible":
        return f"{observed} is impossible here: {_gist(cause)}" if cause else observed
    reached = 0.0 if cause is None else d.observed_tokens_per_s + (cause.cost_tokens_per_s or 0.0)
    if cause is not None and reached > d.observed_tokens_per_s:
        of = best or reached
        about = f", about {format_significant(reached)}" if best else ""
        rate = f"{format_significant(d.observed_tokens_per_s)} of {format_significant(of)} tok/s"
        return f"{rate}: {_gist(cause)} → {cause.remedy}{about}"
    if d.predicted_tokens_per_s is None or d.low is None or d.high is None:
        share = _percent(d.share_of_ceiling)
        return f"{observed}: {share} of what bandwidth allows" + (
            "" if cause is None else f"; {_gist(cause)} → {cause.remedy}"
        )
    if d.observed_tokens_per_s > d.high:
        return f"{observed}: faster than the {format_significant(best)} expected"
    expected = format_significant(d.predicted_tokens_per_s)
    if d.observed_tokens_per_s < d.low:
        return f"{observed} where {expected} were expected: slightly low, which may be chance"
    return f"{observed}: as expected ({expected})"


def _main_cause(d: Diagnosis) -> Finding | None:
    """Return the finding that costs most of those that call for a change."""
    serious = [f for f in d.findings if f.severity in (ERROR, WARNING) and f.is_actionable]
    if d.gap == "impossible":
        return next((f for f in serious if f.code == "impossible"), None)
    return max(serious, key=lambda f: f.cost_tokens_per_s or 0.0, default=None)


def _gist(finding: Finding) -> str:
    """Return what a finding says before it says why."""
    return finding.message.partition(": ")[0].partition("; ")[0]


def _facts(d: Diagnosis) -> list[tuple[str, str]]:
    facts = [
        ("run", _run(d)),
        ("observed", _observed(d)),
        ("expected", _expected(d)),
        ("the gap is", _gap(d)),
        ("bytes", " · ".join(_part(d, index) for index in range(len(d.table)))),
        ("share of", _shares(d)),
        (f"a {_step(d)} is", "" if d.seconds is None else _seconds(d.seconds)),
        ("seen live", "" if d.live is None else live_text(d.live)),
        ("batches", _batches(d.batch_ceiling, d.setting.depth_tokens)),
    ]
    return [(label, text) for label, text in facts if text]


def _run(d: Diagnosis) -> str:
    setting = d.setting
    where = "" if d.threads is None else f", {format_count(d.threads, 'thread')} of {d.engine}"
    batch = "" if setting.batch == 1 else f", {setting.batch} sequences at once"
    flash = "on" if setting.flash_attn else "off"
    return (
        f"{d.model} {d.quant_label} on {d.machine_title}{where}{batch}, {setting.depth_tokens} "
        f"tokens of context, KV {':'.join(setting.kv_types)}, flash-attention {flash}"
    )


def _observed(d: Diagnosis) -> str:
    return (
        f"{format_significant(d.observed_tokens_per_s)} tok/s moves "
        f"{format_rate(d.implied_bytes_per_s)}: {_percent(d.share_of_ceiling)} of {_ceiling(d)}"
    )


def _ceiling(d: Diagnosis) -> str:
    if d.threads is not None:
        threads = format_count(d.threads, "thread")
        return f"the {format_rate(d.ceiling_bytes_per_s)} that {threads} can read here"
    measured = ""
    if d.measured_bytes_per_s is not None:
        share = d.implied_bytes_per_s / d.measured_bytes_per_s
        rate = format_rate(d.measured_bytes_per_s)
        measured = f", {_percent(share)} of the {rate} that was measured on one"
    return f"the published peak, {format_rate(d.ceiling_bytes_per_s)}{measured}"


def _expected(d: Diagnosis) -> str:
    if d.predicted_tokens_per_s is None or d.low is None or d.high is None:
        return ""
    text = (
        f"{format_significant(d.predicted_tokens_per_s)} tok/s "
        f"[{format_significant(d.low)}, {format_significant(d.high)}] with "
        f"{format_count(d.threads or 1, 'thread')}"
    )
    if d.best_tokens_per_s is not None and d.best_threads not in (None, d.threads):
        text += f", {format_significant(d.best_tokens_per_s)} with {d.best_threads}"
    return f"{text}; basis: {d.basis}"


def _gap(d: Diagnosis) -> str:
    if d.gap is None:
        return ""
    if d.gap == "memory" and any(finding.code == "not-resident" for finding in d.findings):
        return _NOT_RESIDENT
    return _GAPS[d.gap]


def _part(d: Diagnosis, index: int) -> str:
    part = d.table[index]
    return (
        f"{_PARTS[part.part]} {format_decimal_bytes(part.bytes_per_step)} a "
        f"{_step(d)} ({format_rate(part.implied_bytes_per_s)})"
    )


def _shares(d: Diagnosis) -> str:
    rows = (
        ("bandwidth's ceiling", d.ceiling_tokens_per_s, d.share_of_ceiling),
        ("our own kernels'", d.kernel_ceiling_tokens_per_s, d.share_of_kernel_ceiling),
        ("the prediction", d.predicted_tokens_per_s, d.share_of_prediction),
    )
    return " · ".join(
        f"{name} {format_significant(rate)} tok/s: {_percent(share)}"
        for name, rate, share in rows
        if rate is not None and share is not None
    )


def _step(d: Diagnosis) -> str:
    return "token" if d.setting.batch == 1 else "step"


def _seconds(seconds: SecondsOfGap) -> str:
    parts = (
        ("memory", seconds.memory),
        ("kernel", seconds.kernel),
        ("attention", seconds.attention),
        ("overhead", seconds.overhead),
        ("unexplained", seconds.unexplained),
    )
    total = sum(part for _, part in parts)
    shown = [(name, part) for name, part in parts if abs(part) >= 0.0005 * total]
    terms = " ".join(
        f"{'−' if part < 0 else '+'} {name} {format_seconds(abs(part))}" for name, part in shown
    )
    return f"{format_seconds(total)} = {terms.removeprefix('+ ')}"


def _batches(b: BatchCeiling, depth: int) -> str:
    parts = []
    context = f"at {depth} tokens of context" if depth else "with an empty context"
    if b.can_be_compute_bound is False:
        parts.append(f"no batch is bound by arithmetic {context}")
    elif b.ridge_batch is not None:
        parts.append(f"bound by arithmetic from batch {b.ridge_batch:.0f} on {context}")
    if b.n_star_exists is False:
        parts.append("n*: none")
    elif b.n_star_tokens is not None:
        parts.append(f"n* {b.n_star_tokens:.0f} tokens")
    if b.largest_batch is not None:
        held = (
            "no sequence" if b.largest_batch < 1 else format_count(int(b.largest_batch), "sequence")
        )
        parts.append(f"memory holds {held} of this context")
    if b.compute_precision is None:
        parts.append("the peak rate of this machine is not known, and with it ridge batch and n*")
    return "; ".join(parts)


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.1 else f"{share * 100:.2g} %"
