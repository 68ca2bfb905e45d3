"""``cpubound predict --what-if``: answers beside the prediction as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cpubound.profile.values import MachineProfile


def print_answers(
    profile: MachineProfile,
    model: str,
    changes: Sequence[str],
    *,
    quant: str | None,
    threads: Sequence[int] | None,
    depths: Sequence[int],
    n_ctx: int | None,
    kv_type: str,
    flash_attn: bool,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Print a row for each change of each model, thread count and depth.

    A catalogue model without a file type takes its usual one.
    """
    from cpubound import api
    from cpubound.cli.output import print_result
    from cpubound.model.resolve import resolve_model, resolve_models
    from cpubound.report import what_if as report
    from cpubound.report.predictions import prediction_heading

    specs = [resolve_model(model)] if quant is None else resolve_models(model, quant)
    answers = [
        answer
        for spec in specs
        for depth in depths
        for count in threads or (None,)
        for answer in api.what_if(
            spec,
            changes,
            threads=count,
            depth=depth,
            n_ctx=n_ctx,
            kv_type=kv_type,
            flash_attn=flash_attn,
            profile=profile,
        )
    ]
    print_result(
        report.what_if_document(model, profile, answers),
        report.what_if_table(answers),
        style=style,
        json_path=json_path,
        force=force,
        before=prediction_heading(answers[0].before.model, profile),
        after=report.what_if_notes(answers),
    )
