"""``cpubound roofline``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cpubound import bounds
from cpubound.cli.options import (
    FiniteRange,
    Integer,
    IntegerList,
    TokensList,
    attention_options,
    output_options,
    profile_option,
    refuse_too_many,
    refuse_with,
    refuse_without,
)
from cpubound.cli.picture import check_picture, plot_option, write_picture

if TYPE_CHECKING:
    from cpubound.model.values import ModelSpec
    from cpubound.profile.values import MachineProfile
    from cpubound.report.roofline_document import MachineLine
    from cpubound.theory.budget import Roofs
    from cpubound.theory.source import ModelSource
    from cpubound.theory.speculative import SpeculationOutlook

MINE = "mine"
NO_DRAFT_MODEL = "ngram"


class NumberList(click.ParamType):  # type: ignore[type-arg]
    """``0.6,0.8``: numbers in the given order."""

    name = "X[,X…]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(FiniteRange().convert(part, param, ctx) for part in str(value).split(","))


@click.command(name="roofline")
@click.argument("model")
@click.option(
    "--machine",
    default=MINE,
    show_default=True,
    metavar="mine|NAME",
    help="This machine's profile, or a published one: h100-sxm, ddr5-5600-2ch, …",
)
@click.option(
    "--batch",
    "-b",
    type=IntegerList(1, bounds.BATCH),
    default="1,8,64",
    show_default=True,
    help="Sequences decoded together, one or several.",
)
@click.option(
    "--ctx",
    "-c",
    type=TokensList(0, bounds.DEPTH_TOKENS),
    default="0,4096,32768",
    show_default=True,
    help="Tokens in every sequence's cache, one or several.",
)
@click.option("--quant", metavar="T", help="File type of a catalogue model.  [default: Q4_K_M]")
@click.option(
    "--weight-bytes",
    type=FiniteRange(),
    metavar="X",
    help="Bytes of a weight instead of the model's own.",
)
@attention_options
@click.option(
    "--peak-flops", type=FiniteRange(), metavar="X", help="Peak FLOP/s, instead of the machine's."
)
@click.option(
    "--bandwidth", type=FiniteRange(), metavar="X", help="Bytes/s, instead of the machine's."
)
@click.option(
    "--memory", type=FiniteRange(), metavar="X", help="Bytes of memory, instead of the machine's."
)
@click.option(
    "--compute-precision",
    default="bf16",
    show_default=True,
    metavar="T",
    help="What a published machine computes in: its peak depends on it.",
)
@click.option(
    "--draft",
    metavar="MODEL",
    help="Draft model for speculative decoding at the shortest context; ngram costs nothing.",
)
@click.option(
    "--acceptance",
    type=NumberList(),
    default="0.6,0.8",
    show_default=True,
    help="Share of draft tokens accepted, one or several.",
)
@click.option(
    "--k",
    "draft_tokens",
    type=Integer(1, bounds.BATCH),
    default=4,
    show_default=True,
    help="Draft tokens per pass.",
)
@plot_option("the roofline")
@profile_option
@output_options
def command(
    model: str,
    machine: str,
    batch: tuple[int, ...],
    ctx: tuple[int, ...],
    quant: str | None,
    weight_bytes: float | None,
    kv_type: str,
    flash_attn: bool,
    peak_flops: float | None,
    bandwidth: float | None,
    memory: float | None,
    compute_precision: str,
    draft: str | None,
    acceptance: tuple[float, ...],
    draft_tokens: int,
    plot_path: str | None,
    plot_width: float,
    profile_path: str | None,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Show what binds MODEL on a roofline, on this machine or on a published one.

    MODEL is as for predict. These are ceilings of the theory: bytes over bandwidth and FLOPs over
    peak; what this machine really does, predict says.
    """
    from cpubound.cli.output import print_result
    from cpubound.model.resolve import resolve_model
    from cpubound.report import roofline as report
    from cpubound.report.charts.roofs import chart_roofline
    from cpubound.report.roofline_document import roofline_document
    from cpubound.setting import read_setting
    from cpubound.theory.analysis import analyse
    from cpubound.theory.source import ModelSource

    if machine == MINE:
        refuse_without("--machine NAME", "--compute-precision")
    else:
        refuse_with(f"--machine {machine}", "--profile")
    if peak_flops is not None:
        refuse_with("--peak-flops", "--compute-precision")
    if draft is None:
        refuse_without("--draft MODEL", "--acceptance", "--k")
    refuse_too_many(batch, ctx, acceptance)
    check_picture(plot_path, force=force)
    spec = resolve_model(model, quant)
    roofs, line, memory_bytes, profile = _machine(
        machine,
        profile_path,
        compute_precision,
        peak_flops,
        bandwidth,
        memory,
        quantised=_is_quantised(spec),
    )
    setting = read_setting(kv_type=kv_type, flash_attn=flash_attn)
    source = ModelSource(spec, setting, bytes_per_weight=weight_bytes)
    roofline = analyse(source, roofs, batches=batch, contexts=ctx, memory_bytes=memory_bytes)
    outlook = None
    if draft is not None:
        drafter = None if draft == NO_DRAFT_MODEL else ModelSource(resolve_model(draft), setting)
        outlook = _outlook(
            source, drafter, roofs, profile, min(ctx), draft, acceptance, draft_tokens
        )
    print_result(
        roofline_document(roofline, line, outlook),
        report.point_table(roofline),
        style=style,
        json_path=json_path,
        force=force,
        before=report.sections_before(roofline, line),
        after=report.sections_after(roofline, outlook),
        csv_table=report.point_rows(roofline),
        beside=lambda: write_picture(
            plot_path, plot_width, lambda: chart_roofline(roofline, line), force=force
        ),
    )


def _machine(
    name: str,
    profile_path: str | None,
    precision: str,
    peak_flops: float | None,
    bandwidth: float | None,
    memory: float | None,
    *,
    quantised: bool,
) -> tuple[Roofs, MachineLine, float | None, MachineProfile | None]:
    """Return the roofs, how to name them, the memory, and the profile if it is this machine."""
    from dataclasses import replace

    from cpubound.theory.budget import Roofs, require_positive

    if name == MINE:
        roofs, line, memory_bytes, profile = _my_machine(profile_path, quantised)
    else:
        roofs, line, memory_bytes = _published_machine(name, precision, peak_flops)
        profile = None
    if peak_flops is not None:
        roofs = replace(roofs, flops_per_s=peak_flops)
        line = replace(line, peak_origin="given", compute_precision=None)
    if bandwidth is not None:
        roofs = Roofs(bytes_per_s=bandwidth, flops_per_s=roofs.flops_per_s)
        line = replace(line, bandwidth_origin="given")
    if memory is not None:
        memory_bytes = require_positive("a memory's size", memory)
    return roofs, line, memory_bytes, profile


def _my_machine(
    profile_path: str | None, quantised: bool
) -> tuple[Roofs, MachineLine, float | None, MachineProfile]:
    from cpubound.api.limits import current_profile
    from cpubound.errors import ProfileError
    from cpubound.report.roofline_document import MachineLine
    from cpubound.theory.budget import Roofs

    profile = current_profile(profile_path)
    read = profile.measurements("read", "file") or profile.measurements("read", "anon_4k")
    rates = [m.median_bytes_per_s for m in read.values()]
    if not rates:
        raise ProfileError(
            "the profile has no read bandwidth (kernel read): run `cpubound calibrate` again"
        )
    peak = _measured_peak(profile, quantised)
    machine = profile.machine
    line = MachineLine(
        name=MINE,
        title=machine.cpu_model or machine.architecture,
        bandwidth_origin="read, measured by calibrate",
        peak_origin="not known"
        if peak is None
        else f"measured by calibrate, {'8-bit integers' if quantised else 'floating point'}",
        measured_bytes_per_s=max(rates),
        sources={"measured": f"profile of {profile.created[:10]}"},
    )
    roofs = Roofs(bytes_per_s=max(rates), flops_per_s=peak)
    return roofs, line, machine.usable_memory_bytes, profile


def _measured_peak(profile: MachineProfile, quantised: bool) -> float | None:
    """Return the best measured operations per second, None if none were.

    llama.cpp multiplies quantised weights as 8-bit integers, others in floating point.
    """
    kinds = ("int8",) if quantised else ("fp32", "bf16", "fp16")
    return max((row.flops_per_s for row in profile.peak if row.dtype in kinds), default=None)


def _is_quantised(spec: ModelSpec) -> bool:
    by_block: dict[bool, int] = {}
    for tensor in spec.tensors:
        whole = tensor.type.block_size == 1
        by_block[whole] = by_block.get(whole, 0) + tensor.n_bytes
    return by_block.get(False, 0) > by_block.get(True, 0)


def _published_machine(
    name: str, precision: str, peak_flops: float | None
) -> tuple[Roofs, MachineLine, float | None]:
    from cpubound.report.roofline_document import MachineLine
    from cpubound.theory.budget import Roofs
    from cpubound.theory.presets import find_preset

    preset = find_preset(name)
    peak = peak_flops if peak_flops is not None else preset.peak_flops(precision.lower())
    line = MachineLine(
        name=preset.name,
        title=preset.title,
        bandwidth_origin="published peak",
        peak_origin="not known" if peak is None else "published, dense",
        compute_precision=precision.lower() if preset.flops_per_s else None,
        peak_bytes_per_s=preset.peak_bytes_per_s,
        measured_bytes_per_s=preset.measured_bytes_per_s,
        sources=preset.sources,
    )
    roofs = Roofs(bytes_per_s=preset.peak_bytes_per_s, flops_per_s=peak)
    return roofs, line, preset.memory_bytes


def _outlook(
    target: ModelSource,
    draft: ModelSource | None,
    roofs: Roofs,
    profile: MachineProfile | None,
    context: int,
    name: str,
    acceptances: tuple[float, ...],
    draft_tokens: int,
) -> SpeculationOutlook:
    """Return what drafting gives: from rates of several tokens at once where they were measured."""
    from cpubound.cost.rates import measures_batches
    from cpubound.theory.speculative import look_ahead

    if profile is not None and measures_batches(profile.engine):
        basis = "llama.cpp's measured rates for so many tokens at once"

        def target_seconds(tokens: int) -> float:
            return _predicted_seconds(profile, target, context, tokens)

        draft_one = 0.0 if draft is None else _predicted_seconds(profile, draft, context, 1)
    else:
        basis = "from the two roofs"
        if roofs.flops_per_s is None:
            basis += "; the peak rate is not known: a pass counts bytes only and gains are at most"

        def target_seconds(tokens: int) -> float:
            return target.work(context).pass_seconds(tokens, roofs)

        draft_one = 0.0 if draft is None else draft.work(context).pass_seconds(1, roofs)
    return look_ahead(
        name,
        target_seconds,
        draft_one,
        draft_tokens=draft_tokens,
        acceptances=acceptances,
        context_tokens=context,
        basis=basis,
    )


def _predicted_seconds(
    profile: MachineProfile, source: ModelSource, context: int, tokens: int
) -> float:
    """Return the predicted time of a pass over some tokens of one sequence.

    Attention goes through the cache once for each token, as over a batch of sequences.
    """
    from msgspec import structs

    from cpubound import api
    from cpubound.cost.thread_choice import thread_counts
    from cpubound.model.traffic import compute_traffic

    setting = structs.replace(source.setting, depth_tokens=context, batch=tokens)
    traffic = compute_traffic(source.spec, setting)
    (prediction,) = api.predict_at(profile, traffic, (max(thread_counts(profile)),))
    return prediction.seconds.total
