"""Predicted prompts, and prompts beside observations, as tables and lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cpubound.cost.values import PromptPrediction
from cpubound.foreign import showing
from cpubound.profile.values import MachineProfile
from cpubound.report.document import cell_document
from cpubound.report.predictions import profile_reference
from cpubound.report.tables import Block, Table
from cpubound.units import format_percent, format_significant

if TYPE_CHECKING:
    from cpubound.validation.prompts import PromptCell, PromptValidation


def prompt_table(predictions: Sequence[PromptPrediction]) -> Table:
    """Return one row for each prompt: speed, and how long until the answer begins."""
    several = len({p.model for p in predictions}) > 1
    rows = tuple(
        (
            f"{p.model} {p.quant_label}" if several else p.quant_label,
            str(p.setting.threads),
            str(p.prompt_tokens),
            _speed(p),
            f"{format_significant(p.time_to_first_token_s)} s",
            p.bound,
        )
        for p in predictions
    )
    first = "model" if several else "file type"
    return Table(
        columns=(first, "threads", "prompt", "tok/s read", "first token after", "limited by"),
        rows=rows,
        right=frozenset({"threads", "prompt"}),
    )


@showing()
def prompt_blocks(predictions: Sequence[PromptPrediction]) -> tuple[Block, ...]:
    """Return the table of prompts and what it means; nothing without a prompt."""
    return (prompt_table(predictions), prompt_note(predictions)) if predictions else ()


@showing()
def prompt_note(predictions: Sequence[PromptPrediction]) -> str:
    """Say what binds a prompt, so that its speed is not taken for that of the answer."""
    best = max(predictions, key=lambda p: p.operations / p.seconds)
    per_token = best.operations / best.prompt_tokens / 1e9
    return (
        f"A prompt is bound by computing ({per_token:.3g} GFLOP a token, "
        f"{best.operations / best.seconds / 1e9:.0f} GFLOP/s here), the answer by memory and "
        "kernels: their speeds are two numbers."
    )


def prompt_validation_document(
    profile: MachineProfile, validation: PromptValidation
) -> dict[str, Any]:
    """Return ``cpubound.prompt_validation/1``."""
    return {
        "schema": "cpubound.prompt_validation/1",
        "profile": profile_reference(profile),
        "engine": validation.engine,
        "cells": [cell_document(cell) for cell in validation.cells],
        "summary": msgspec.to_builtins(validation.summary),
        "noise": msgspec.to_builtins(profile.noise),
    }


def prompt_validation_table(validation: PromptValidation) -> Table:
    """Return one row for each prompt: predicted, observed, error."""
    several = len({c.prediction.model for c in validation.cells}) > 1
    columns = (
        *(("model",) if several else ()),
        "quant",
        "threads",
        "depth",
        "prompt",
        "predicted tok/s",
        "observed (n)",
        "error",
        "inside",
        "noise",
    )
    return Table(
        columns=columns,
        rows=tuple(_row(cell, several) for cell in validation.cells),
        right=frozenset({"threads", "depth", "prompt", "error", "noise"}),
    )


@showing()
def prompt_validation_summary(validation: PromptValidation) -> str:
    """Return the line under the table."""
    s = validation.summary
    floor = "" if s.noise_floor is None else f"; noise floor {s.noise_floor * 100:.1f} %"
    return (
        f"Prompts: {round(s.coverage * s.cells)} of {s.cells} inside the interval; median |error| "
        f"{s.median_abs_error * 100:.1f} %, worst {s.max_abs_error * 100:.1f} %{floor}."
    )


def _row(cell: PromptCell, several: bool) -> tuple[str, ...]:
    p = cell.prediction
    return (
        *((p.model,) if several else ()),
        p.quant_label,
        str(p.setting.threads),
        str(p.setting.depth_tokens),
        str(p.prompt_tokens),
        _speed(p),
        f"{format_significant(cell.observed_tokens_per_s)} ({len(cell.samples_s)})",
        format_percent(cell.relative_error),
        "yes" if cell.inside else "no",
        "–" if cell.noise_floor is None else f"±{cell.noise_floor * 100:.1f} %",
    )


def _speed(p: PromptPrediction) -> str:
    low = format_significant(p.prompt_tokens / p.high_s)
    high = format_significant(p.prompt_tokens / p.low_s)
    return f"{format_significant(p.tokens_per_s)} [{low}, {high}]"
