"""``cpubound tune``."""

from __future__ import annotations

import click

from cpubound.cli.options import MAX_DEPTH, output_options, profile_option


@click.command(name="tune")
@click.argument("model")
@click.option(
    "--depth",
    "-d",
    type=click.IntRange(0, MAX_DEPTH),
    default=0,
    show_default=True,
    help="Tokens already in the cache.",
)
@click.option("--kv-type", metavar="T|K:V", default="f16", show_default=True)
@profile_option
@output_options
def command(
    model: str,
    depth: int,
    kv_type: str,
    profile_path: str | None,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Choose decode threads and settings for MODEL, with the reason and the commands."""
    from cpubound import api
    from cpubound.cli.output import print_result
    from cpubound.model.resolve import resolve_model
    from cpubound.profile import load_profile
    from cpubound.report import advice as report

    profile = load_profile(profile_path)
    spec = resolve_model(model)
    advice = api.tune(spec, depth=depth, kv_type=kv_type, profile=profile)
    print_result(
        report.advice_document(advice),
        report.advice_table(advice),
        style=style,
        json_path=json_path,
        force=force,
        text=report.advice_text(advice, depth),
    )
