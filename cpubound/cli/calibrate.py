"""``cpubound calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cpubound.cli.options import engine_option, output_options, refuse_with, refuse_without
from cpubound.cli.picture import check_picture, plot_option, write_picture

if TYPE_CHECKING:
    from cpubound.cost.values import Prediction
    from cpubound.profile.values import MachineProfile

# Models that most people know, from a phone's to a server's.
WELL_KNOWN = (
    ("Llama-3.2-1B", "llama-3.2-1b"),
    ("SmolLM3-3B", "smollm3-3b"),
    ("Qwen3-4B", "qwen3-4b"),
    ("Gemma-3-4B", "gemma-3-4b"),
    ("Llama-3.1-8B", "llama-3.1-8b"),
    ("Qwen3-30B-A3B (3.3B active)", "qwen3-30b-a3b"),
)
FILE_TYPES = ("Q4_K_M", "Q8_0")


@click.command(name="calibrate")
@click.option("--quick", is_flag=True, help="Under 20 seconds: fewer quant types and rounds.")
@click.option("--thorough", is_flag=True, help="Some ten minutes: more buffers and rounds.")
@click.option("--no-engine", is_flag=True, help="Measure the memory only, not llama.cpp.")
@engine_option
@click.option("--types", metavar="T[,T…]", help="Quant types to measure.  [default: the plan's]")
@click.option("--out", metavar="FILE", help="Save here.  [default: the profile of this machine]")
@click.option(
    "--from",
    "bench_path",
    metavar="FILE",
    help="Measure nothing: fit what llama-bench printed elsewhere. Needs --out.",
)
@click.option("--model", "models", multiple=True, help="A model that --from's rows are of.")
@click.option("--cpu", metavar="NAME", help="The CPU of --from's rows, where they do not tell.")
@plot_option("bandwidth against threads")
@output_options
def command(
    quick: bool,
    thorough: bool,
    no_engine: bool,
    engine_path: str | None,
    types: str | None,
    out: str | None,
    bench_path: str | None,
    models: tuple[str, ...],
    cpu: str | None,
    plot_path: str | None,
    plot_width: float,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Measure this machine, and llama.cpp on it, and save the profile.

    Takes about two minutes. Run nothing else meanwhile. With --from the profile is of a
    machine that cpubound never ran on: a few rows of llama-bench from there are enough for
    predictions with wide intervals (predict --profile).
    """
    from cpubound import api
    from cpubound.cli.output import print_result, refuse_in_the_way, take_all
    from cpubound.cli.progress import progress_bar
    from cpubound.cli.saving import Save
    from cpubound.profile.file import profile_document
    from cpubound.profile.keeping import ENGINE
    from cpubound.report.charts.machine import chart_scaling
    from cpubound.report.fitted_profile import fitted_table, fitted_text
    from cpubound.report.profile import bandwidth_table, profile_text

    if out is not None:
        refuse_in_the_way(Path(out), force=force)
    check_picture(plot_path, force=force)
    if bench_path is not None:
        refuse_with(
            "--from", "--quick", "--thorough", "--no-engine", "--engine", "--types", "--plot"
        )
        profile = _fit_file(bench_path, models, cpu, out)
        save = Save(out)
        save(profile, True)
        take_all(
            save.check,
            lambda: print_result(
                profile_document(profile),
                fitted_table(profile),
                style=style,
                json_path=json_path,
                force=force,
                text=fitted_text(profile, str(save.place)),
            ),
        )
        return
    refuse_without("--from FILE", "--model", "--cpu")
    if no_engine:
        refuse_with("--no-engine", "--engine", "--types")
    save = Save(out, without=(ENGINE,) if no_engine else ())
    save.check_place(force=force)
    try:
        with progress_bar() as progress:
            profile = api.calibrate(
                quick=quick,
                thorough=thorough,
                engine=not no_engine,
                types=tuple(types.split(",")) if types else None,
                engine_path=engine_path,
                progress=progress,
                keep=save,
            )
    except BaseException:
        save.tell_early()
        raise
    take_all(
        save.check,
        lambda: print_result(
            profile_document(profile),
            bandwidth_table(profile),
            style=style,
            json_path=json_path,
            force=force,
            text=f"{profile_text(profile, expected_rates(profile))}\n\n{save.sentence} "
            "Next:  cpubound predict MODEL.gguf   ·   cpubound tune MODEL.gguf",
            beside=lambda: write_picture(
                plot_path, plot_width, lambda: chart_scaling(profile), force=force
            ),
        ),
    )


def _fit_file(
    bench_path: str, models: tuple[str, ...], cpu: str | None, out: str | None
) -> MachineProfile:
    """Fit a llama-bench file; it must not become the profile of this machine unasked."""
    from cpubound.errors import UsageError
    from cpubound.model.resolve import resolve_model
    from cpubound.validation.bench_files import calibrate_from

    if out is None:
        raise UsageError(
            "rows of another machine do not make this one's profile: say where with --out FILE"
        )
    return calibrate_from(bench_path, models=[resolve_model(name) for name in models], cpu=cpu)


def expected_rates(
    profile: MachineProfile,
) -> list[tuple[str, list[Prediction | None]]]:
    """Predict the well-known models at their usual file types."""
    from cpubound import api
    from cpubound.errors import CpuboundError
    from cpubound.model.catalog import catalog_model

    rows: list[tuple[str, list[Prediction | None]]] = []
    for label, name in WELL_KNOWN:
        row: list[Prediction | None] = []
        for file_type in FILE_TYPES:
            try:
                row.append(api.predict(catalog_model(name, file_type), profile=profile))
            except CpuboundError:
                row.append(None)
        rows.append((label, row))
    return rows
