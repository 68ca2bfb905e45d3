"""Many models on one machine: a table, fastest first."""

from __future__ import annotations

from collections.abc import Sequence

from cpubound.cost.values import Prediction
from cpubound.report.predictions import format_interval
from cpubound.report.tables import Table
from cpubound.units import format_binary_bytes, format_decimal_bytes


def survey_table(predictions: Sequence[Prediction]) -> Table:
    """Return one row for each model and file type."""
    rows = tuple(
        (
            p.model,
            p.quant_label,
            format_decimal_bytes(p.file_bytes),
            format_binary_bytes(p.resident_bytes),
            str(p.setting.threads),
            format_interval(p),
            p.bound,
        )
        for p in predictions
    )
    columns = ("model", "file type", "size", "memory", "threads", "tok/s", "limited by")
    return Table(columns=columns, rows=rows, right=frozenset({"size", "memory", "threads"}))
