"""Predictions as a table, as JSON, and as the lines around the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cpubound.cost.values import Prediction, PromptPrediction
from cpubound.foreign import shell_word, showing
from cpubound.model.values import ModelSpec
from cpubound.profile.values import MachineProfile
from cpubound.report.document import to_document
from cpubound.report.tables import Table
from cpubound.setting import Setting
from cpubound.units import (
    format_decimal_bytes,
    format_percent,
    format_seconds,
    format_significant,
)

_BASIS = {
    "engine": "measured through llama.cpp per quant type",
    "kernel": "estimated from cpubound's own kernels; llama.cpp was not measured",
    "ceiling": "bytes over read bandwidth only; llama.cpp was not measured: an upper bound",
}
BOUNDS = {
    "memory": "memory",
    "kernel": "kernel",
    "attention": "attention",
    "overhead": "overheads",
}


def prediction_document(
    model: str,
    profile: MachineProfile,
    predictions: Sequence[Prediction],
    prompts: Sequence[PromptPrediction] = (),
) -> dict[str, Any]:
    """Return ``cpubound.predictions/1``."""
    return {
        "schema": "cpubound.predictions/1",
        "model": model,
        "profile": profile_reference(profile),
        "predictions": to_document(predictions),
        "prompts": to_document(prompts),
    }


def profile_reference(profile: MachineProfile) -> dict[str, Any]:
    """Return what identifies a profile in another document."""
    engine = profile.engine
    return {
        "cpu_model": profile.machine.cpu_model,
        "created": profile.created,
        "noise": profile.noise.verdict,
        "engine": None if engine is None else f"{engine.name} {engine.version}",
    }


def prediction_table(predictions: Sequence[Prediction]) -> Table:
    """Return a row for each file type and a column for each setting."""
    settings = list(dict.fromkeys(p.setting for p in predictions))
    labels = list(dict.fromkeys((p.model, p.quant_label) for p in predictions))
    by_place = {((p.model, p.quant_label), p.setting): p for p in predictions}
    several_models = len({p.model for p in predictions}) > 1
    rows = []
    for label in labels:
        mine = [by_place[label, s] for s in settings if (label, s) in by_place]
        name = f"{label[0]} {label[1]}" if several_models else label[1]
        cells = [format_interval(by_place.get((label, s))) for s in settings]
        size = format_decimal_bytes(mine[0].file_bytes)
        memory = format_decimal_bytes(max(p.resident_bytes for p in mine))
        rows.append((name, size, memory, *cells, _limits(mine)))
    headings = [_heading(s) for s in settings]
    first = "model" if several_models else "file type"
    return Table(
        columns=(first, "size", "memory", *headings, "limited by"),
        rows=tuple(rows),
        right=frozenset({"size", "memory"}),
    )


def prediction_rows(predictions: Sequence[Prediction]) -> Table:
    """Return one row for each prediction with plain numbers, for CSV."""
    columns = (
        "model",
        "quant_label",
        "threads",
        "depth_tokens",
        "batch",
        "kv_type_k",
        "kv_type_v",
        "flash_attn",
        "tokens_per_s",
        "low",
        "high",
        "fast_tokens_per_s",
        "ceiling_tokens_per_s",
        "bound",
        "basis",
        "bytes_per_token",
    )
    documents = [to_document(p) for p in predictions]
    rows = tuple(tuple(_plain(document[name]) for name in columns) for document in documents)
    return Table(columns=columns, rows=rows)


@showing()
def profile_source(profile: MachineProfile) -> str:
    """Say which profile figures are from: of which machine, of which day, how quiet it was."""
    machine = profile.machine.cpu_model or profile.machine.architecture
    rests_on = f"fitted to {profile.fitted_to}" if profile.fitted_to else profile.noise.verdict
    return f"{machine} (profile of {profile.created[:10]}, {rests_on})"


@showing()
def prediction_heading(model: str, profile: MachineProfile) -> str:
    """Return the line above the table."""
    return f"{model} on {profile_source(profile)}\n  tok/s [90 % interval]"


@showing()
def prediction_notes(predictions: Sequence[Prediction], validate_model: str) -> str:
    """Return the lines under the table: basis, assumptions, how to check."""
    lines = _basis_lines(predictions)
    too_big = list(dict.fromkeys(p.quant_label for p in predictions if p.fits_in_memory is False))
    if too_big:
        lines.append(f"Does not fit into this machine's memory: {', '.join(too_big)}.")
    lines += [f"Note: {a}." for a in dict.fromkeys(a for p in predictions for a in p.assumptions)]
    lines.append(f"Check it:  cpubound validate {shell_word(validate_model)}")
    return "\n".join(lines)


@showing()
def beyond_training(specs: Sequence[ModelSpec], tokens: int) -> str:
    """Say which of the models were trained for fewer tokens than are asked for."""
    lengths = {spec.name: spec.hyper_parameters.get("context_length") for spec in specs}
    short = {n: c for n, c in lengths.items() if isinstance(c, int) and 0 < c < tokens}
    return "\n".join(
        f"Note: {name} was trained for {trained} tokens: expect nonsense beyond them."
        for name, trained in short.items()
    )


@showing()
def basis_note(predictions: Sequence[Prediction]) -> str:
    """Say what the numbers rest on, without naming which of many models."""
    return "\n".join(f"Basis: {_BASIS[b]}." for b in dict.fromkeys(p.basis for p in predictions))


def _basis_lines(predictions: Sequence[Prediction]) -> list[str]:
    """Say once what the numbers rest on, or for which file types where it differs."""
    labels: dict[str, dict[str, None]] = {}
    for p in predictions:
        labels.setdefault(p.basis, {})[p.quant_label] = None
    if len(labels) == 1:
        return [f"Basis: {_BASIS[next(iter(labels))]}."]
    return [f"Basis of {', '.join(names)}: {_BASIS[b]}." for b, names in labels.items()]


def format_interval(p: Prediction | None) -> str:
    """Return ``10.4 [10.0, 10.7]``, or a dash."""
    if p is None:
        return "–"
    low, high = format_significant(p.low), format_significant(p.high)
    return f"{format_significant(p.tokens_per_s)} [{low}, {high}]"


@showing()
def prediction_detail(p: Prediction) -> str:
    """Return where the time of one token goes, as three lines."""
    total = p.seconds.total
    parts = (
        ("weights", p.seconds.weights),
        ("attention", p.seconds.attention),
        ("overhead", p.seconds.overhead),
    )
    shares = " · ".join(
        f"{name} {format_seconds(seconds)} ({seconds / total * 100:.0f} %)"
        for name, seconds in parts
    )
    gap = p.tokens_per_s / p.ceiling_tokens_per_s - 1
    subject, each = ("A token", "It") if p.setting.batch == 1 else ("A step", "A token")
    together = "" if p.setting.batch == 1 else _each_sequence(p) + "\n"
    return together + "\n".join(
        (
            f"{subject} takes {format_seconds(total)}: {shares}",
            f"{each} moves {format_decimal_bytes(p.bytes_per_token)}; bytes over bandwidth would "
            f"be {format_significant(p.ceiling_tokens_per_s)} tok/s, this is "
            f"{format_percent(gap, 0)}",
            f"On a quiet machine (fast quartile): {format_significant(p.fast_tokens_per_s)} tok/s",
        )
    )


def _each_sequence(p: Prediction) -> str:
    return (
        f"{p.setting.batch} sequences together: each gets "
        f"{format_significant(p.tokens_per_s / p.setting.batch)} tok/s"
    )


def _heading(setting: Setting) -> str:
    depth, batch = setting.depth_tokens, setting.batch
    together = "" if batch == 1 else f", batch {batch}"
    where = "empty" if depth == 0 else f"at {format_depth(depth)}"
    return f"{setting.threads} thr, {where}{together}"


def format_depth(depth: int) -> str:
    """Return a depth as people write it: 8192 is ``8k``."""
    return f"{depth // 1024}k" if depth and depth % 1024 == 0 else str(depth)


def _limits(predictions: Sequence[Prediction]) -> str:
    """Name what binds, in the order of the columns, each once."""
    return ", ".join(dict.fromkeys(BOUNDS[p.bound] for p in predictions))


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
