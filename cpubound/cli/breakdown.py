"""``cpubound breakdown``."""

from __future__ import annotations

import click

from cpubound import bounds
from cpubound.cli.options import (
    Integer,
    attention_options,
    one_depth_option,
    output_options,
    profile_option,
    seed_option,
)


@click.command(name="breakdown")
@click.argument("model")
@click.option(
    "--threads",
    "-t",
    type=Integer(1, bounds.THREADS),
    help="Decode threads.  [default: what tune would choose]",
)
@one_depth_option
@attention_options
@click.option(
    "--tokens",
    type=Integer(8, 1_000_000),
    help="Decoded in each of three ways.  [default: what takes 20 seconds in all]",
)
@seed_option
@profile_option
@output_options
def command(
    model: str,
    threads: int | None,
    depth: int,
    kv_type: str,
    flash_attn: bool,
    tokens: int | None,
    seed: int | None,
    profile_path: str | None,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Run MODEL through llama.cpp and show where the time of a token goes, part by part.

    Beside it stands the prediction, if this machine has a profile. A catalogue name is
    synthesised: same shapes and types, random weights.
    """
    from cpubound import api
    from cpubound.cli.output import print_result, warn_beyond_training
    from cpubound.cli.progress import progress_bar
    from cpubound.model.resolve import resolve_model
    from cpubound.profile.file import load_profile
    from cpubound.report import breakdown as report

    profile = load_profile(profile_path) if profile_path else api.saved_profile()
    spec = resolve_model(model)
    warn_beyond_training([spec], depth)
    with progress_bar() as progress:
        breakdown = api.breakdown(
            spec,
            threads=threads,
            depth=depth,
            kv_type=kv_type,
            flash_attn=flash_attn,
            tokens=tokens,
            seed=seed,
            profile=profile,
            progress=progress,
        )
    print_result(
        report.breakdown_document(profile, breakdown),
        report.breakdown_table(breakdown),
        style=style,
        json_path=json_path,
        force=force,
        before=report.breakdown_heading(breakdown),
        after=report.breakdown_notes(breakdown, has_profile=profile is not None),
        csv_table=report.breakdown_rows(breakdown),
    )
