"""``cpubound diagnose``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cpubound import bounds
from cpubound.cli.options import (
    FiniteRange,
    Integer,
    Tokens,
    n_ctx_option,
    output_options,
    profile_option,
    refuse_with,
    refuse_without,
)

if TYPE_CHECKING:
    from cpubound.advise.diagnosis import Diagnosis

LIVE_SECONDS = 15.0


@click.command(name="diagnose")
@click.argument("model")
@click.option(
    "--observed",
    "-o",
    type=FiniteRange(),
    metavar="TOKS",
    help="The rate of generation that was seen.",
)
@click.option(
    "--from-log",
    "log_path",
    metavar="FILE",
    help="Read it from what llama.cpp's programs, llama-bench, Ollama or LM Studio printed.",
)
@click.option(
    "--live", is_flag=True, help="Run it here and look while it runs: faults, quota, who else runs."
)
@click.option(
    "--seconds",
    type=FiniteRange(1, 86400),
    help=f"With --live: how long to look.  [default: {LIVE_SECONDS:g}]",
)
@click.option(
    "--run",
    type=Integer(1, bounds.ROWS),
    metavar="N",
    help="Which run of the log, if it holds several.",
)
@click.option(
    "--threads",
    "-t",
    type=Integer(1, bounds.THREADS),
    help="Decode threads of the run.  [default: the log's, or the engine's own]",
)
@click.option(
    "--depth",
    "--ctx",
    "-d",
    type=Tokens(0, bounds.DEPTH_TOKENS),
    help="Tokens in the cache, the mean over the run.  [default: the log's, or 0]",
)
@n_ctx_option
@click.option(
    "--batch",
    "-b",
    type=Integer(1, bounds.BATCH),
    default=1,
    show_default=True,
    help="Sequences decoded at once; the rate is that of all together.",
)
@click.option("--kv-type", metavar="T|K:V", help="Type of the KV cache.  [default: f16]")
@click.option(
    "--flash-attn",
    "-fa",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="Flash-attention; auto is what the log says, or the engine does by itself.",
)
@click.option(
    "--engine",
    metavar="NAME",
    help="What ran it: llama.cpp, llama-bench, llama-cpp-python, ollama, lm-studio.",
)
@click.option(
    "--machine",
    default="mine",
    show_default=True,
    metavar="mine|NAME",
    help="This machine's profile, or a published one: h100-sxm, ddr5-5600-2ch, …",
)
@profile_option
@click.option("--verbose", "-v", is_flag=True, help="Show what there is nothing to do about too.")
@output_options
def command(
    model: str,
    observed: float | None,
    log_path: str | None,
    live: bool,
    seconds: float | None,
    run: int | None,
    threads: int | None,
    depth: int | None,
    n_ctx: int | None,
    batch: int,
    kv_type: str | None,
    flash_attn: str,
    engine: str | None,
    machine: str,
    profile_path: str | None,
    verbose: bool,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Say why MODEL ran as fast as it did, what that implies, and what would help.

    MODEL is as for predict.
    """
    from cpubound import api
    from cpubound.cli.progress import progress_bar
    from cpubound.errors import UsageError
    from cpubound.profile.file import load_profile

    if not live:
        refuse_without("--live", "--seconds")
        if log_path is None:
            refuse_without("--from-log FILE", "--run")
    if machine != "mine":
        refuse_with(f"--machine {machine}", "--profile", "--threads", "--engine")
    profile = None if profile_path is None else load_profile(profile_path)
    if live:
        given = (observed, log_path, run, n_ctx, engine)
        if any(value is not None for value in given) or batch != 1 or machine != "mine":
            raise UsageError(
                "--live runs one sequence here through llama-cpp-python: leave --observed, "
                "--from-log, --run, --n-ctx, --engine, --batch and --machine out"
            )
        with progress_bar() as progress:
            diagnosis = api.diagnose_live(
                model,
                threads=threads,
                depth=depth or 0,
                kv_type=kv_type or "f16",
                flash_attn=flash_attn != "off",
                seconds=seconds or LIVE_SECONDS,
                profile=profile,
                progress=progress,
            )
        _print(diagnosis, verbose=verbose, style=style, json_path=json_path, force=force)
        return
    diagnosis = api.diagnose(
        model,
        observed=observed,
        log=log_path,
        run=run,
        threads=threads,
        depth=depth,
        n_ctx=n_ctx,
        batch=batch,
        kv_type=kv_type,
        flash_attn=None if flash_attn == "auto" else flash_attn == "on",
        engine=engine,
        machine=machine,
        profile=profile,
    )
    _print(diagnosis, verbose=verbose, style=style, json_path=json_path, force=force)


def _print(
    diagnosis: Diagnosis, *, verbose: bool, style: str, json_path: str | None, force: bool
) -> None:
    from cpubound.cli.output import print_result
    from cpubound.report import diagnosis as report

    print_result(
        report.diagnosis_document(diagnosis),
        report.diagnosis_table(diagnosis),
        style=style,
        json_path=json_path,
        force=force,
        text=report.diagnosis_text(diagnosis, verbose=verbose),
    )
