"""``cpubound validate``."""

from __future__ import annotations

import click

from cpubound.cli.options import (
    FiniteRange,
    attention_options,
    batch_option,
    depth_option,
    engine_option,
    output_options,
    profile_option,
    prompt_option,
    refuse_too_many,
    refuse_with,
    refuse_without,
    seed_option,
    threads_option,
)
from cpubound.cli.picture import check_picture, plot_option, write_picture

DEFAULT_FILE_TYPES = "Q4_0,Q4_K_M,Q8_0"
# A file of llama-bench holds these.
_OF_A_RUN = (
    "--threads",
    "--depth",
    "--batch",
    "--prompt",
    "--kv-type",
    "--flash-attn",
    "--seconds",
    "--engine",
    "--seed",
)


@click.command(name="validate")
@click.argument("models", nargs=-1, metavar="MODEL...")
@click.option(
    "--quant",
    metavar="T[,T…]",
    help=f"File types of a catalogue model.  [default: {DEFAULT_FILE_TYPES}]",
)
@threads_option
@depth_option
@batch_option
@prompt_option
@attention_options
@click.option(
    "--seconds",
    type=FiniteRange(1, 86400),
    default=60.0,
    show_default=True,
    help="How long to observe; each cell is run at least three times.",
)
@engine_option
@seed_option
@click.option(
    "--from",
    "bench_path",
    metavar="FILE",
    help="Run nothing: compare with what llama-bench printed (json, jsonl, csv or md).",
)
@profile_option
@plot_option("predicted against observed")
@output_options
def command(
    models: tuple[str, ...],
    quant: str | None,
    threads: tuple[int, ...] | None,
    depth: tuple[int, ...],
    batch: tuple[int, ...],
    prompt: tuple[int, ...] | None,
    kv_type: str,
    flash_attn: bool,
    seconds: float,
    engine_path: str | None,
    seed: int | None,
    bench_path: str | None,
    profile_path: str | None,
    plot_path: str | None,
    plot_width: float,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Run MODELs through llama.cpp and show predicted beside observed.

    A catalogue name is synthesised: same shapes and types, random weights. With --prompt
    prompts are processed instead of tokens decoded. With --from nothing is run: the rows of
    a llama-bench file are what was observed, and MODELs are needed only where its names and
    sizes do not tell which models they are of.
    """
    from cpubound import api
    from cpubound.cli.output import print_result, warn_beyond_training
    from cpubound.cli.progress import progress_bar
    from cpubound.errors import UsageError
    from cpubound.model.resolve import file_types_for, resolve_models
    from cpubound.profile.file import load_profile
    from cpubound.report import validation as report
    from cpubound.report.charts.checks import chart_validation
    from cpubound.report.profile import noise_line
    from cpubound.report.prompts import (
        prompt_validation_document,
        prompt_validation_summary,
        prompt_validation_table,
    )

    if bench_path is not None:
        refuse_with("--from", *_OF_A_RUN)
        if not models:
            refuse_without("MODEL", "--quant")
        check_picture(plot_path, force=force)
        _compare_file(
            bench_path, models, quant, profile_path, plot_path, plot_width, style, json_path, force
        )
        return
    if not models:
        raise UsageError("no model given: name one, or give --from FILE")
    if prompt:
        refuse_with("--prompt", "--batch", "--engine", "--plot")
    check_picture(plot_path, force=force)
    profile = load_profile(profile_path)
    refuse_too_many(models, threads, depth, batch, prompt)
    # --quant is for the names among the models; a file has its type.
    named = [model for model in models if file_types_for(model)]
    specs = [
        spec
        for model in models
        for spec in resolve_models(
            model, (quant or DEFAULT_FILE_TYPES) if model in named else None if named else quant
        )
    ]
    warn_beyond_training(specs, max(depth) + max(prompt or (0,)))
    if prompt:
        with progress_bar() as progress:
            prompts = api.validate_prompts(
                specs,
                prompt,
                threads=threads,
                depths=depth,
                kv_type=kv_type,
                flash_attn=flash_attn,
                seconds=seconds,
                seed=seed,
                profile=profile,
                progress=progress,
            )
        print_result(
            prompt_validation_document(profile, prompts),
            prompt_validation_table(prompts),
            style=style,
            json_path=json_path,
            force=force,
            after=prompt_validation_summary(prompts) + noise_line(profile),
        )
        return
    with progress_bar() as progress:
        validation = api.validate(
            specs,
            threads=threads,
            depths=depth,
            batches=batch,
            kv_type=kv_type,
            flash_attn=flash_attn,
            seconds=seconds,
            seed=seed,
            engine_path=engine_path,
            profile=profile,
            progress=progress,
        )
    print_result(
        report.validation_document(profile, validation),
        report.validation_table(validation),
        style=style,
        json_path=json_path,
        force=force,
        after=report.validation_summary(validation) + noise_line(profile),
        beside=lambda: write_picture(
            plot_path, plot_width, lambda: chart_validation(validation, profile), force=force
        ),
    )


def _compare_file(
    bench_path: str,
    models: tuple[str, ...],
    quant: str | None,
    profile_path: str | None,
    plot_path: str | None,
    plot_width: float,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    from cpubound.cli.output import print_result
    from cpubound.model.resolve import resolve_models
    from cpubound.profile.file import load_profile
    from cpubound.report import validation as report
    from cpubound.report.charts.checks import chart_validation
    from cpubound.validation.bench_files import validate_from

    profile = load_profile(profile_path)
    specs = [spec for model in models for spec in resolve_models(model, quant)]
    validation = validate_from(bench_path, profile, models=specs)
    print_result(
        report.validation_document(profile, validation),
        report.validation_table(validation),
        style=style,
        json_path=json_path,
        force=force,
        after=report.validation_summary(validation),
        beside=lambda: write_picture(
            plot_path, plot_width, lambda: chart_validation(validation, profile), force=force
        ),
    )
