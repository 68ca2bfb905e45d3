"""``cpubound compare``."""

from __future__ import annotations

import click

from cpubound.cli.options import (
    attention_options,
    depth_option,
    output_options,
    refuse_too_many,
    refuse_without,
    threads_option,
)


@click.command(name="compare")
@click.argument("profile_a", metavar="A.json")
@click.argument("profile_b", metavar="B.json")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--quant", metavar="T[,T…]|all", help="File types of a catalogue model.")
@threads_option
@depth_option
@attention_options
@output_options
def command(
    profile_a: str,
    profile_b: str,
    models: tuple[str, ...],
    quant: str | None,
    threads: tuple[int, ...] | None,
    depth: tuple[int, ...],
    kv_type: str,
    flash_attn: bool,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Compare two profiles: what differs, and what it means for MODELs.

    Before and after a firmware update, or two machines to rent.
    """
    from cpubound import api
    from cpubound.cli.output import print_result
    from cpubound.model.resolve import resolve_model, resolve_models
    from cpubound.profile.file import load_profile
    from cpubound.report import comparison as report

    if not models:
        refuse_without("MODEL", "--quant", "--threads", "--depth", "--kv-type", "--flash-attn")
    refuse_too_many(models, threads, depth)
    a, b = load_profile(profile_a), load_profile(profile_b)
    specs = [
        spec
        for model in models
        for spec in ([resolve_model(model)] if quant is None else resolve_models(model, quant))
    ]
    found = api.compare(
        a,
        b,
        specs,
        threads=threads,
        depths=depth,
        kv_type=kv_type,
        flash_attn=flash_attn,
    )
    print_result(
        report.comparison_document(a, b, found),
        report.model_table(found.models) if found.models else report.rate_table(found.rates),
        style="table" if style == "markdown" else style,
        json_path=json_path,
        force=force,
        text=report.comparison_text(found, style),
    )
