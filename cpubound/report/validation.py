"""A validation as a table, as JSON, and as its summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cpubound.foreign import showing
from cpubound.profile.values import MachineProfile
from cpubound.report.document import cell_document
from cpubound.report.predictions import format_depth, format_interval, profile_reference
from cpubound.report.tables import Table
from cpubound.units import format_percent, format_significant
from cpubound.validation.cells import (
    Cell,
    Validation,
    byte_budget_shares,
    last_batch_on_budget,
)


def validation_document(profile: MachineProfile, validation: Validation) -> dict[str, Any]:
    """Return ``cpubound.validation/1``."""
    return {
        "schema": "cpubound.validation/1",
        "profile": profile_reference(profile),
        "engine": validation.engine,
        "cells": [cell_document(cell) for cell in validation.cells],
        "summary": msgspec.to_builtins(validation.summary),
        "noise": msgspec.to_builtins(profile.noise),
    }


def validation_table(validation: Validation) -> Table:
    """Return one row for each cell: predicted, observed, error, and what the naive figure says."""
    several = len({c.prediction.model for c in validation.cells}) > 1
    batches = len({c.prediction.setting.batch for c in validation.cells}) > 1
    rows = tuple(_row(cell, several, batches) for cell in validation.cells)
    columns = (
        *(("model",) if several else ()),
        "quant",
        "threads",
        "depth",
        *(("batch",) if batches else ()),
        "predicted",
        "observed (n)",
        "error",
        "inside",
        "noise",
        "bytes/bandwidth says",
    )
    return Table(
        columns=columns, rows=rows, right=frozenset({"threads", "depth", "batch", "error", "noise"})
    )


@showing()
def validation_summary(validation: Validation) -> str:
    """Return the lines under the table."""
    s = validation.summary
    inside = round(s.coverage * s.cells)
    floor = "" if s.noise_floor is None else f"; noise floor {_percent(s.noise_floor)}"
    lines = [
        f"{inside} of {s.cells} inside the interval; median |error| "
        f"{_percent(s.median_abs_error)}, worst {_percent(s.max_abs_error)}{floor}; "
        f"bytes/bandwidth {_percent(s.naive_median_abs_error)}."
    ]
    if s.noise_floor is not None and s.noise_floor > 0.08:
        ratio = s.median_abs_error / s.noise_floor
        lines.append(
            "The machine is too noisy to judge by per cent: one half of the runs predicts the "
            f"other no better; error / noise floor = {ratio:.2f}."
        )
    lines += _byte_budget_lines(validation.cells)
    lines += [f"Warning: {warning}." for warning in validation.warnings]
    return "\n".join(lines)


def _byte_budget_lines(cells: Sequence[Cell]) -> list[str]:
    """Say for each model and setting up to which batch llama.cpp follows its bytes."""
    groups: dict[tuple[str, str, int, int], list[Cell]] = {}
    for cell in cells:
        p = cell.prediction
        key = (p.model, p.quant_label, p.setting.threads, p.setting.depth_tokens)
        groups.setdefault(key, []).append(cell)
    lines = []
    for (model, label, threads, depth), mine in groups.items():
        shares = byte_budget_shares(mine)
        if len(shares) < 2:
            continue
        last = last_batch_on_budget(shares) or 1
        kept = ", ".join(f"{batch}: {share * 100:.0f} %" for batch, share in shares.items())
        lines.append(
            f"{model} {label}, {threads} threads at {format_depth(depth)}: follows its bytes up to "
            f"batch {last} (share of the gain that bytes promise: {kept})."
        )
    return lines


def _row(cell: Cell, several: bool, batches: bool) -> tuple[str, ...]:
    p = cell.prediction
    naive = f"{format_significant(cell.naive_tokens_per_s)} ({format_percent(cell.naive_error, 0)})"
    return (
        *((p.model,) if several else ()),
        p.quant_label,
        str(p.setting.threads),
        format_depth(p.setting.depth_tokens),
        *((str(p.setting.batch),) if batches else ()),
        format_interval(p),
        f"{format_significant(cell.observed_tokens_per_s)} ({len(cell.samples_s)})",
        format_percent(cell.relative_error),
        "yes" if cell.inside else "no",
        "–" if cell.noise_floor is None else f"±{cell.noise_floor * 100:.1f} %",
        naive,
    )


def _percent(fraction: float) -> str:
    return f"{fraction * 100:.1f} %"
