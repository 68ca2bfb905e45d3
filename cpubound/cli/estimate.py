"""``cpubound predict --machine``: estimates for a machine that nobody measured."""

from __future__ import annotations

from collections.abc import Sequence


def print_estimates(
    words: str,
    model: str,
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
    """Print what was understood of the words, and a row for each file type, depth and thread count.

    A catalogue model without a file type takes its usual one.
    """
    from cpubound.api.estimating import estimate, usable_cores
    from cpubound.cli.output import print_result
    from cpubound.machine.described import describe_machine
    from cpubound.model.resolve import resolve_model, resolve_models
    from cpubound.report import estimates as report

    machine = describe_machine(words)
    specs = [resolve_model(model)] if quant is None else resolve_models(model, quant)
    found = [
        one
        for spec in specs
        for depth in depths
        for one in estimate(
            machine,
            spec,
            threads=threads,
            depth=depth,
            n_ctx=n_ctx,
            kv_type=kv_type,
            flash_attn=flash_attn,
        )
    ]
    print_result(
        report.estimate_document(model, machine, found),
        report.estimate_table(found),
        style=style,
        json_path=json_path,
        force=force,
        before=report.machine_line(machine, usable_cores(machine)),
        after=report.estimate_notes(machine),
        csv_table=report.estimate_rows(found),
    )
