"""Answers to what-if questions as a table, and their place in the JSON of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cpubound.cost.what_if import WhatIf
from cpubound.foreign import showing
from cpubound.profile.values import MachineProfile
from cpubound.report.document import to_document
from cpubound.report.predictions import (
    format_depth,
    format_interval,
    prediction_document,
)
from cpubound.report.tables import Table
from cpubound.units import format_percent


def what_if_document(
    model: str, profile: MachineProfile, answers: Sequence[WhatIf]
) -> dict[str, Any]:
    """Return ``cpubound.predictions/1`` of the predictions as they are, with ``what_if``."""
    before = list(dict.fromkeys(answer.before for answer in answers))
    document = prediction_document(model, profile, before)
    return {**document, "what_if": to_document(answers)}


def what_if_table(answers: Sequence[WhatIf]) -> Table:
    """Return a row for each change."""
    rows = tuple(
        (
            answer.change,
            _setting(answer),
            format_interval(answer.before),
            format_interval(answer.after),
            format_percent(answer.gain, 0),
            answer.after.bound,
        )
        for answer in answers
    )
    columns = ("what if", "of", "tok/s now", "tok/s then", "change", "then limited by")
    return Table(columns=columns, rows=rows, right=frozenset({"change"}))


@showing()
def what_if_notes(answers: Sequence[WhatIf]) -> str:
    """Return what has to be said of the answers, once each."""
    notes = dict.fromkeys(f"{a.change}: {a.note}." for a in answers if a.note)
    # Repeats where the change leaves a prediction's own assumptions as they were.
    assumptions = dict.fromkeys(f"Note: {text}." for a in answers for text in a.after.assumptions)
    return "\n".join([*notes, *assumptions])


def _setting(answer: WhatIf) -> str:
    p = answer.before
    where = "empty" if p.setting.depth_tokens == 0 else f"at {format_depth(p.setting.depth_tokens)}"
    return f"{p.quant_label}, {p.setting.threads} thr, {where}"
