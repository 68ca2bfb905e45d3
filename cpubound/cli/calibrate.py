"""``cpubound calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cpubound.cli.options import engine_option, output_options, refuse_with, refuse_without
from cpubound.cli.picture import check_picture, plot_option, write_picture
from cpubound.cli.terminal import say
from cpubound.foreign import visible

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
    from cpubound.cli.output import check_new_file, print_result
    from cpubound.cli.progress import progress_bar
    from cpubound.profile.file import profile_document
    from cpubound.report.charts.machine import chart_scaling
    from cpubound.report.fitted_profile import fitted_table, fitted_text
    from cpubound.report.profile import bandwidth_table, profile_text

    if out is not None:
        check_new_file(Path(out), force=force)
    check_place(out)
    check_picture(plot_path, force=force)
    if bench_path is not None:
        refuse_with(
            "--from", "--quick", "--thorough", "--no-engine", "--engine", "--types", "--plot"
        )
        profile = _fit_file(bench_path, models, cpu, out)
        save(profile, out)
        print_result(
            profile_document(profile),
            fitted_table(profile),
            style=style,
            json_path=json_path,
            force=force,
            text=fitted_text(profile, str(out)),
        )
        return
    refuse_without("--from FILE", "--model", "--cpu")
    if no_engine:
        refuse_with("--no-engine", "--engine", "--types")
    with progress_bar() as progress:
        profile = api.calibrate(
            quick=quick,
            thorough=thorough,
            engine=not no_engine,
            types=tuple(types.split(",")) if types else None,
            engine_path=engine_path,
            progress=progress,
            keep_partial=lambda partial: _keep(partial, out),
        )
    place = save(profile, out)
    named = "the profile of this machine" if out is None else visible(place)
    text = (
        f"{profile_text(profile, expected_rates(profile))}\n\nSaved as {named}. "
        "Next:  cpubound predict MODEL.gguf   ·   cpubound tune MODEL.gguf"
    )
    write_picture(plot_path, plot_width, lambda: chart_scaling(profile))
    print_result(
        profile_document(profile),
        bandwidth_table(profile),
        style=style,
        json_path=json_path,
        force=force,
        text=text,
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


def save(profile: MachineProfile, out: str | None) -> Path:
    """Save a profile where it was asked for, or as this machine's."""
    from cpubound.profile.file import save_default_profile, save_profile

    if out is None:
        return save_default_profile(profile)
    save_profile(profile, Path(out))
    return Path(out)


def check_place(out: str | None) -> None:
    """Raise before two minutes are spent if the profile cannot be saved."""
    from cpubound.profile.file import check_writable, default_profile_path

    check_writable(Path(out) if out is not None else default_profile_path())


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


def _keep(partial: MachineProfile, out: str | None) -> None:
    place = save(partial, out)
    say(f"cpubound: what was measured so far is saved ({visible(str(place))})", err=True)
