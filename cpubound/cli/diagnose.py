"""``cpubound diagnose``."""

from __future__ import annotations

import click

from cpubound.cli.options import (
    MAX_DEPTH,
    MAX_THREADS,
    output_options,
    profile_option,
)

MAX_BATCH = 2**16


@click.command(name="diagnose")
@click.argument("model")
@click.option(
    "--observed", "-o", type=float, metavar="TOKS", help="The rate of generation that was seen."
)
@click.option(
    "--from-log",
    "log_path",
    metavar="FILE",
    help="Read it from what llama.cpp's programs, llama-bench, Ollama or LM Studio printed.",
)
@click.option(
    "--run", type=click.IntRange(1), metavar="N", help="Which run of the log, if it holds several."
)
@click.option(
    "--threads",
    "-t",
    type=click.IntRange(1, MAX_THREADS),
    help="Decode threads of the run.  [default: the log's, or the engine's own]",
)
@click.option(
    "--depth",
    "--ctx",
    "-d",
    type=click.IntRange(0, MAX_DEPTH),
    help="Tokens in the cache, the mean over the run.  [default: the log's, or 0]",
)
@click.option("--n-ctx", type=click.IntRange(1, MAX_DEPTH), help="Cells allocated for the context.")
@click.option(
    "--batch",
    "-b",
    type=click.IntRange(1, MAX_BATCH),
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
@output_options
def command(
    model: str,
    observed: float | None,
    log_path: str | None,
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
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Say why MODEL ran as fast as it did, what that implies, and what would help.

    MODEL is as for predict.
    """
    from cpubound import api
    from cpubound.cli.output import print_result
    from cpubound.profile import load_profile
    from cpubound.report import diagnosis as report

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
        profile=None if profile_path is None else load_profile(profile_path),
    )
    print_result(
        report.diagnosis_document(diagnosis),
        report.diagnosis_table(diagnosis),
        style=style,
        json_path=json_path,
        force=force,
        text=report.diagnosis_text(diagnosis),
    )
