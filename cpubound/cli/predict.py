"""``cpubound predict``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cpubound.cli.options import (
    FiniteRange,
    attention_options,
    batch_option,
    depth_option,
    n_ctx_option,
    output_options,
    profile_option,
    prompt_option,
    refuse_too_many,
    threads_option,
)
from cpubound.cli.picture import check_picture, plot_option, write_picture
from cpubound.llama_facts import N_UBATCH

if TYPE_CHECKING:
    from cpubound.model.values import ModelSpec, ModelTraffic
    from cpubound.report.charts.style import Chart

# A curve over contexts, where none is asked for.
CURVE_TOKENS = 16384
CURVE_POINTS = 8


@click.command(name="predict")
@click.argument("model", required=False)
@click.option("--local", is_flag=True, help="Predict every model file found on this machine.")
@click.option("--fits", is_flag=True, help="List the catalogue's models that fit this machine.")
@click.option(
    "--target", type=FiniteRange(0), help="With --local or --fits: at least this many tok/s."
)
@click.option(
    "--quant",
    metavar="T[,T…]|all",
    help="File types of a catalogue model.  [default: the common ones]",
)
@click.option(
    "--what-if",
    "changes",
    multiple=True,
    metavar="NAME=VALUE[,…]",
    help="What would change: bandwidth=1.5x, channels=2, memory=DDR5-6400x2, quant=Q4_0, "
    "kv=q8_0, threads=8, depth=8192 or flash-attn=off; may be repeated.",
)
@click.option(
    "--machine",
    metavar="WORDS",
    help="Estimate for another machine: a CPU's name or a rented type, with cores and memory where "
    'those do not tell: "epyc 9654, 48 cores, ddr5-4800-12ch".',
)
@threads_option
@depth_option
@batch_option
@prompt_option
@n_ctx_option
@attention_options
@profile_option
@plot_option("speed against context, and where the time of a token goes")
@output_options
def command(
    model: str | None,
    local: bool,
    fits: bool,
    target: float | None,
    quant: str | None,
    changes: tuple[str, ...],
    machine: str | None,
    threads: tuple[int, ...] | None,
    depth: tuple[int, ...],
    batch: tuple[int, ...],
    prompt: tuple[int, ...] | None,
    n_ctx: int | None,
    kv_type: str,
    flash_attn: bool,
    profile_path: str | None,
    plot_path: str | None,
    plot_width: float,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Say how fast MODEL will decode on this machine, before it is run.

    MODEL is a .gguf file, a catalogue name with an optional file type (llama-3.1-8b:Q4_K_M), a
    folder, a Hugging Face config.json, or ollama:NAME.
    """
    from cpubound import api
    from cpubound.api.limits import current_profile
    from cpubound.cli.output import note, print_result
    from cpubound.errors import UsageError
    from cpubound.model.resolve import resolve_models
    from cpubound.report import predictions as report
    from cpubound.report.prompts import prompt_blocks

    if machine is not None:
        others = (local, fits, changes, prompt, profile_path, plot_path, batch != (1,), target)
        if model is None or any(others):
            raise UsageError(
                "--machine takes a MODEL, --quant, --threads, --depth and attention: leave the "
                "other options out"
            )
        from cpubound.cli.estimate import print_estimates

        print_estimates(
            machine,
            model,
            quant=quant,
            threads=threads,
            depths=depth,
            n_ctx=n_ctx,
            kv_type=kv_type,
            flash_attn=flash_attn,
            style=style,
            json_path=json_path,
            force=force,
        )
        return
    profile = current_profile(profile_path, note)
    if [model is not None, local, fits].count(True) != 1:
        raise UsageError("give one of MODEL, --local and --fits (cpubound predict --help)")
    if model is not None and target is not None:
        raise UsageError("--target goes with --local or --fits: leave it out")
    if model is None and changes:
        raise UsageError("--what-if needs a MODEL: leave --local and --fits out")
    if (model is None or changes) and plot_path:
        raise UsageError("--plot draws one MODEL as it is: leave the others out")
    check_picture(plot_path, force=force)
    if prompt and style == "csv":
        raise UsageError("CSV holds one table: leave --prompt out, or take --format json")
    if (model is None or changes) and (batch != (1,) or prompt):
        raise UsageError("--batch and --prompt go with a MODEL alone: leave them out")
    if model is None:
        if quant is not None or threads is not None or len(depth) > 1:
            raise UsageError(
                "--local and --fits choose types and threads and take one depth: "
                "leave --quant and --threads out"
            )
        from cpubound.cli.survey import catalogue_specs, local_specs, print_survey

        found = api.survey(
            local_specs() if local else catalogue_specs(profile.machine.usable_memory_bytes),
            depth=depth[0],
            n_ctx=n_ctx,
            kv_type=kv_type,
            flash_attn=flash_attn,
            profile=profile,
        )
        print_survey(
            profile,
            tuple(p for p in found if target is None or p.tokens_per_s >= target),
            title="models found here" if local else "models that fit",
            style=style,
            json_path=json_path,
            force=force,
        )
        return
    refuse_too_many(threads, depth, batch, changes)
    if changes:
        from cpubound.cli.what_if import print_answers

        print_answers(
            profile,
            model,
            changes,
            quant=quant,
            threads=threads,
            depths=depth,
            n_ctx=n_ctx,
            kv_type=kv_type,
            flash_attn=flash_attn,
            style=style,
            json_path=json_path,
            force=force,
        )
        return
    specs = resolve_models(model, quant)
    steps = sum(-(-length // N_UBATCH) for length in prompt or ())
    refuse_too_many(specs, threads, depth, batch, range(steps))

    def traffic(spec: ModelSpec, tokens: int, sequences: int) -> ModelTraffic:
        return api.inspect_model(
            spec, depth=tokens, n_ctx=n_ctx, batch=sequences, kv_type=kv_type, flash_attn=flash_attn
        )

    chosen_threads = threads
    if threads is None:
        deepest = traffic(specs[0], max(depth), max(batch))
        threads = (api.predict_best(profile, deepest).setting.threads,)
    predictions = [
        p
        for spec in specs
        for tokens in depth
        for sequences in batch
        for p in api.predict_at(profile, traffic(spec, tokens, sequences), threads)
    ]
    prompts = [
        api.predict_prompt(
            spec,
            length,
            threads=count,
            depth=tokens,
            kv_type=kv_type,
            flash_attn=flash_attn,
            profile=profile,
        )
        for spec in specs
        for tokens in depth
        for count in chosen_threads or (None,)
        for length in prompt or ()
    ]
    notes = report.prediction_notes(predictions, validation_name(model, specs))
    if len(predictions) == 1:
        notes = f"{report.prediction_detail(predictions[0])}\n{notes}"
    beyond = report.beyond_training(specs, max(depth) + max(prompt or (0,)))
    if beyond:
        notes = f"{notes}\n{beyond}"

    def make_chart() -> Chart:
        from cpubound.report.charts.models import chart_predictions

        curves = [
            p
            for spec in specs
            for tokens in curve_depths(spec, depth)
            for sequences in batch
            for p in api.predict_at(profile, traffic(spec, tokens, sequences), threads)
        ]
        return chart_predictions(curves, predictions, profile)

    print_result(
        report.prediction_document(model, profile, predictions, prompts),
        report.prediction_table(predictions),
        style=style,
        json_path=json_path,
        force=force,
        before=report.prediction_heading(predictions[0].model, profile),
        after=(notes, *prompt_blocks(prompts)),
        csv_table=report.prediction_rows(predictions),
        beside=lambda: write_picture(plot_path, plot_width, make_chart, force=force),
    )


def curve_depths(spec: ModelSpec, asked: Sequence[int]) -> tuple[int, ...]:
    """Return the contexts at which a curve is drawn: to the deepest asked for, or to 16k.

    Never beyond the training length, unless asked for.
    """
    from cpubound.model.hyper import HyperParameters

    trained = HyperParameters(spec).integer("context_length", CURVE_TOKENS)
    end = max(asked) or max(min(trained, CURVE_TOKENS), 1)
    steps = (end * step // CURVE_POINTS for step in range(CURVE_POINTS + 1))
    return tuple(sorted({*asked, *steps}))


def validation_name(model: str, specs: Sequence[ModelSpec]) -> str:
    """Return the argument that would check one of the predictions."""
    if len(specs) == 1 or ":" in model:
        return model
    return f"{model}:Q4_K_M"
