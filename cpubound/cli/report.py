"""``cpubound report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cpubound import bounds
from cpubound.cli.options import (
    FiniteRange,
    IntegerList,
    profile_option,
    refuse_too_many,
    refuse_with,
)

if TYPE_CHECKING:
    from cpubound.advise.tune.values import Advice
    from cpubound.cost.values import Prediction
    from cpubound.model.values import ModelSpec
    from cpubound.profile.values import MachineProfile
    from cpubound.report.page.contents import ComparisonContents, ModelContents, ReportContents
    from cpubound.validation.cells import Validation

# Models that are shown with all their charts; more are rows of one table.
SHOWN_IN_FULL = 4
DEPTHS = (0, 4096, 16384)
PROMPTS = (128, 512, 1024, 2048, 4096)
BATCHES = (1, 2, 4, 8, 16, 32)
# What each of many users has in the cache.
BATCH_DEPTH = 1024


@click.command(name="report")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option(
    "--html",
    "html_path",
    type=click.Path(path_type=Path),
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="Where to write the page.",
)
@click.option(
    "--quant", metavar="T[,T…]", help="File types of catalogue models.  [default: the common ones]"
)
@click.option(
    "--depth",
    "-d",
    "depths",
    type=IntegerList(0, bounds.DEPTH_TOKENS),
    help="Tokens already in the cache.  [default: 0,4096,16384, within what it was trained for]",
)
@click.option(
    "--target", type=FiniteRange(0, min_open=True), metavar="TOKS", help="A rate that is wanted."
)
@click.option(
    "--validation",
    "validation_paths",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="What `validate --json FILE` wrote; may be repeated.",
)
@click.option(
    "--compare",
    nargs=2,
    metavar="A.json B.json",
    help="Two saved profiles: what differs, and their charts laid over each other.",
)
@profile_option
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(
    models: tuple[str, ...],
    html_path: Path,
    quant: str | None,
    depths: tuple[int, ...] | None,
    target: float | None,
    validation_paths: tuple[Path, ...],
    compare: tuple[str, str] | None,
    profile_path: str | None,
    force: bool,
) -> None:
    """Write what is known of this machine, and of MODELs on it, as one page to send.

    One HTML file with charts and their numbers, from the saved profile; nothing is measured.
    It opens without a network. Without a MODEL it is about the machine and well-known models.
    """
    from cpubound.cli.output import check_new_file, save_file
    from cpubound.cli.terminal import say
    from cpubound.profile.file import load_profile
    from cpubound.report.charts.files import require_charts
    from cpubound.report.page.render import render_comparison, render_report
    from cpubound.validation.file import read_validation

    if compare is not None:
        refuse_with("--compare", "--target", "--validation", "--profile")
    refuse_too_many(models, depths)
    check_new_file(html_path, force=force)
    require_charts()
    if compare is not None:
        a, b = map(load_profile, compare)
        page = render_comparison(gather_comparison(models, quant, depths, a, b))
    else:
        profile = load_profile(profile_path)
        validations = tuple(read_validation(path) for path in validation_paths)
        page = render_report(gather(models, quant, depths, target, profile, validations))
    save_file(html_path, page.encode(), force=force)
    say(f"Written: {html_path} ({len(page.encode()) / 1e6:.1f} MB). Open it in a browser.")


def gather(
    models: Sequence[str],
    quant: str | None,
    depths: Sequence[int] | None,
    target: float | None,
    profile: MachineProfile,
    validations: tuple[Validation, ...] = (),
) -> ReportContents:
    """Predict everything that a report shows.

    Raises
    ------
    UsageError, InputError : a model that cannot be read.
    """
    import datetime

    from cpubound import api
    from cpubound.advise.findings import find_machine_findings
    from cpubound.cli.calibrate import WELL_KNOWN
    from cpubound.model.resolve import resolve_models
    from cpubound.report.page.contents import ReportContents

    names = models or tuple(name for _, name in WELL_KNOWN)
    found = [resolve_models(name, quant) for name in names]
    return ReportContents(
        profile=profile,
        findings=find_machine_findings(profile.machine),
        summary=tuple(api.predict(usual_type(specs), profile=profile) for specs in found),
        models=tuple(
            gather_model(specs, depths, profile)
            for specs in (found[:SHOWN_IN_FULL] if models else ())
        ),
        validations=validations,
        target=target,
        made_by=" ".join(("cpubound report", *models)),
        made=datetime.date.today().isoformat(),
    )


def gather_comparison(
    models: Sequence[str],
    quant: str | None,
    depths: Sequence[int] | None,
    a: MachineProfile,
    b: MachineProfile,
) -> ComparisonContents:
    """Predict each model at its usual file type on both machines.

    Raises
    ------
    UsageError, InputError : a model that cannot be read.
    """
    import datetime

    from cpubound import api
    from cpubound.cli.predict import curve_depths
    from cpubound.model.resolve import resolve_models
    from cpubound.report.page.contents import ComparisonContents

    specs = [usual_type(resolve_models(name, quant)) for name in models]

    def curve(spec: ModelSpec, profile: MachineProfile) -> tuple[Prediction, ...]:
        contexts = curve_depths(spec, depths or (0,))
        return tuple(api.predict(spec, depth=depth, profile=profile) for depth in contexts)

    return ComparisonContents(
        a=a,
        b=b,
        comparison=api.compare(a, b, specs),
        curves=tuple((curve(spec, a), curve(spec, b)) for spec in specs[:SHOWN_IN_FULL]),
        made_by=" ".join(("cpubound report --compare A.json B.json", *models)),
        made=datetime.date.today().isoformat(),
    )


def gather_model(
    specs: Sequence[ModelSpec], depths: Sequence[int] | None, profile: MachineProfile
) -> ModelContents:
    """Predict one model at its file types, contexts, settings, prompts and batches."""
    from cpubound import api
    from cpubound.cli.predict import curve_depths
    from cpubound.cost.rates import measured_attention, measures_batches
    from cpubound.model.hyper import HyperParameters
    from cpubound.report.page.contents import ModelContents
    from cpubound.setting import F16

    usual = usual_type(specs)
    trained = HyperParameters(usual).integer("context_length", bounds.DEPTH_TOKENS)
    asked = depths or tuple(depth for depth in DEPTHS if depth <= trained)
    contexts = curve_depths(usual, asked)
    has_batches = measures_batches(profile.engine)
    attention = () if profile.engine is None else measured_attention(profile.engine)
    caches = dict.fromkeys((k.lower(), v.lower(), flash) for k, v, flash, _ in attention)
    return ModelContents(
        table=tuple(
            api.predict(spec, depth=depth, profile=profile) for spec in specs for depth in asked
        ),
        curves=tuple(
            api.predict(spec, depth=depth, profile=profile) for spec in specs for depth in contexts
        ),
        settings=tuple(
            api.predict(usual, depth=d, kv_type=f"{k}:{v}", flash_attn=flash, profile=profile)
            for k, v, flash in sorted(caches, key=lambda cache: (cache[:2] != F16, cache))
            for d in contexts
        ),
        prompts=tuple(
            api.predict_prompt(usual, tokens, profile=profile)
            for tokens in PROMPTS
            if has_batches and tokens <= trained
        ),
        batches=tuple(
            api.predict(usual, depth=min(BATCH_DEPTH, trained), batch=batch, profile=profile)
            for batch in BATCHES
            if has_batches
        ),
        advice=_advice(usual, asked[len(asked) // 2], profile),
    )


def usual_type(specs: Sequence[ModelSpec]) -> ModelSpec:
    """Return the model at the file type that most people take, else at the first."""
    from cpubound.model.ftype import DEFAULT_FILE_TYPE
    from cpubound.model.label import quant_label

    return next((spec for spec in specs if quant_label(spec) == DEFAULT_FILE_TYPE), specs[0])


def _advice(spec: ModelSpec, depth: int, profile: MachineProfile) -> Advice | None:
    """Return what to set, None for a model that does not fit into memory."""
    from cpubound import api
    from cpubound.errors import MachineError

    try:
        return api.tune(spec, depth=depth, profile=profile)
    except MachineError:
        return None
