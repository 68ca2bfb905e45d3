"""Read a validation that was written as JSON: the document ``cpubound.validation/1``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from cpubound.errors import InputError, UsageError
from cpubound.validation.cells import Cell, Summary, Validation

SCHEMA = "cpubound.validation/1"
MAX_FILE_BYTES = 64 * 2**20


class _Document(msgspec.Struct):
    schema: str
    engine: str
    cells: list[dict[str, Any]]
    summary: Summary


def read_validation(path: Path) -> Validation:
    """Read what ``validate --json`` wrote.

    Raises
    ------
    InputError : a file that cannot be read, or is no such document.
    """
    remedy = "give a file that `cpubound validate --json FILE` wrote"
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path} is no validation (too large): {remedy}")
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
        if document.schema != SCHEMA:
            raise InputError(f"{path} is no validation (schema {document.schema!r}): {remedy}")
        cells = tuple(_cell(row) for row in document.cells)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): {remedy}") from error
    except (msgspec.DecodeError, ValueError, UsageError) as error:
        raise InputError(f"{path} is no validation ({error}): {remedy}") from error
    if not cells:
        raise InputError(f"{path} holds no run: {remedy}")
    return Validation(cells=cells, summary=document.summary, engine=document.engine)


def _cell(row: dict[str, Any]) -> Cell:
    """Take a prediction and its setting back out of a cell (``document.cell_document``)."""
    setting = {**row, "allocated_context_tokens": row.get("n_ctx")}
    cell = msgspec.convert({**row, "prediction": {**row, "setting": setting}}, Cell)
    p = cell.prediction
    rates = (cell.observed_tokens_per_s, p.tokens_per_s, p.low, p.high, *cell.samples_s)
    if not cell.samples_s or not all(math.isfinite(rate) and rate > 0 for rate in rates):
        raise ValueError("a run with rates or times that are not positive")
    return cell
