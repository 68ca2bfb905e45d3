"""``cpubound tune``."""

from __future__ import annotations

from pathlib import Path

import click

from cpubound.cli.options import (
    FiniteRange,
    one_depth_option,
    output_options,
    profile_option,
    refuse_without,
    seed_option,
)

DEFAULT_SECONDS = 40.0


@click.command(name="tune")
@click.argument("model")
@one_depth_option
@click.option(
    "--kv-type",
    metavar="T|K:V",
    help="Type of the KV cache.  [default: the fastest of those measured]",
)
@click.option(
    "--target",
    type=FiniteRange(0, min_open=True),
    metavar="TOKS",
    help="Also find the file type and the context that give this many tok/s.",
)
@click.option("--verify", is_flag=True, help="Confirm with a few interleaved real runs.")
@click.option(
    "--seconds",
    type=FiniteRange(1, 86400),
    help=f"How long to verify.  [default: {DEFAULT_SECONDS:g}]",
)
@seed_option
@click.option(
    "--sysroot",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Take the machine's limits from /proc and /sys under DIR.",
)
@profile_option
@output_options
def command(
    model: str,
    depth: int,
    kv_type: str | None,
    target: float | None,
    verify: bool,
    seconds: float | None,
    seed: int | None,
    sysroot: Path | None,
    profile_path: str | None,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Choose threads, CPUs and settings for MODEL, with the reason and the commands.

    From the saved profile, in under a second; --verify runs it.
    """
    from cpubound import api
    from cpubound.advise.findings import find_machine_findings
    from cpubound.api.limits import machine_now
    from cpubound.cli.output import print_result
    from cpubound.cli.progress import progress_bar
    from cpubound.errors import UsageError
    from cpubound.machine.read import read_machine
    from cpubound.model.resolve import resolve_model
    from cpubound.profile.file import load_profile
    from cpubound.report import advice as report

    if not verify:
        refuse_without("--verify", "--seconds", "--seed")
    if verify and sysroot is not None:
        raise UsageError("--verify runs here, --sysroot is another place: leave one out")
    profile = load_profile(profile_path)
    spec = resolve_model(model)
    machine = read_machine(sysroot) if sysroot is not None else machine_now(profile)
    with progress_bar() as progress:
        advice = api.tune(
            spec,
            depth=depth,
            kv_type=kv_type,
            target=target,
            verify_seconds=(seconds or DEFAULT_SECONDS) if verify else None,
            seed=seed,
            profile=profile,
            machine=machine,
            progress=progress,
        )
    print_result(
        report.advice_document(advice, find_machine_findings(machine or profile.machine)),
        report.advice_table(advice),
        style=style,
        json_path=json_path,
        force=force,
        text=report.advice_text(advice),
    )
