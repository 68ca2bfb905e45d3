"""Contents of a report on a small machine, as pages and charts are tested with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
from builders import GB, build_engine, build_machine, build_measurement, build_profile

from cpubound import api
from cpubound.advise.values import Finding
from cpubound.cli.report import gather
from cpubound.profile.values import (
    MachineProfile,
    MemoryLevel,
    PeakRate,
    SaturationPoint,
    WorkingSetPoint,
    judge_noise,
)
from cpubound.report.page.contents import ReportContents
from cpubound.validation.cells import Cell, Validation, summarize

TYPES = ("F16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q4_0", "Q3_K", "Q2_K", "IQ4_XS")
MODEL = "llama-3.2-1b"


def full_profile(**changes: Any) -> MachineProfile:
    """A profile with everything that a chart is drawn of."""
    rates = {t: {1: 9.0 * GB + n * GB / 2, 2: 17.0 * GB + n * GB} for n, t in enumerate(TYPES)}
    batches = {f"bytes:{name}@{tokens}": tokens**0.7 / (17.0 * GB) for name in TYPES
               for tokens in (2, 16, 64)}  # fmt: skip
    profile = build_profile(
        {1: 20.0 * GB, 2: 30.0 * GB, 4: 30.5 * GB},
        build_engine(
            rates,
            per_token_s=1e-4,
            per_product_s=1e-5,
            attention={("f16", "f16", True): 5.0 * GB, ("f16", "f16", False): 8.0 * GB},
            seconds=batches,
        ),
        machine=build_machine(4),
        saturation=(SaturationPoint(kernel="read", threads=2),),
        noise=judge_noise((*(1 + 0.01 * ((7 * n) % 5 - 2) for n in range(40)), 0.5), 60.0),
        working_sets=tuple(
            WorkingSetPoint(
                working_set_bytes=2**power, bytes_per_s=4e11 / (power - 12), latency_s=1e-9 * power
            )
            for power in range(13, 28)
        ),
        levels=(
            MemoryLevel(level=1, capacity_bytes=32768, size_bytes=49152, bytes_per_s=4e11,
                        latency_s=1e-9),
        ),
        peak=(
            PeakRate(dtype="int8", isa="avx2", threads=4, flops_per_s=1e12,
                     samples_flops_per_s=(1e12,)),
        ),
    )  # fmt: skip
    own = build_measurement(4, 28.0 * GB, kernel="gemv_q8_0", flops_per_pass=240_000_000)
    return msgspec.structs.replace(profile, **{"bandwidth": (*profile.bandwidth, own), **changes})


def build_contents(
    models: Sequence[str] = (MODEL,),
    profile: MachineProfile | None = None,
    *,
    is_checked: bool = True,
    **options: Any,
) -> ReportContents:
    """What ``report`` gathers about models on the small machine."""
    profile = profile or full_profile()
    return gather(
        models,
        options.get("quant"),
        options.get("depths", (0, 4096)),
        options.get("target"),
        profile,
        (observed(profile),) if is_checked else (),
    )


def observed(profile: MachineProfile, models: Sequence[str] = (MODEL,)) -> Validation:
    """Two file types of each model, observed a few per cent beside their predictions."""
    cells = []
    for place, name in enumerate(f"{m}:{t}" for m in models for t in ("Q4_0", "Q8_0")):
        p = api.predict(name, profile=profile)
        rate = p.tokens_per_s * (0.96 + 0.02 * place)
        cells.append(
            Cell(
                prediction=p,
                observed_tokens_per_s=rate,
                samples_s=(0.98 / rate, 1 / rate, 1.03 / rate),
                relative_error=p.tokens_per_s / rate - 1,
                paired_error=None,
                inside=p.low <= rate <= p.high,
                naive_tokens_per_s=p.ceiling_tokens_per_s,
                naive_error=p.ceiling_tokens_per_s / rate - 1,
                noise_floor=0.01,
                reference_bytes_per_s=None,
            )
        )
    return Validation(cells=tuple(cells), summary=summarize(cells), engine="fake 1")


def renamed(contents: ReportContents, name: str) -> ReportContents:
    """The contents with this name for every model, file type, CPU, warning and finding."""
    replace = msgspec.structs.replace

    def with_name(p: Any) -> Any:
        return replace(p, model=name, quant_label=name[:40])

    return dataclasses.replace(
        contents,
        profile=replace(
            contents.profile,
            machine=replace(contents.profile.machine, cpu_model=name),
            warnings=(name,),
        ),
        summary=tuple(map(with_name, contents.summary)),
        models=tuple(
            dataclasses.replace(
                model,
                table=tuple(map(with_name, model.table[:2])),
                curves=tuple(map(with_name, model.curves[:5])),
                settings=tuple(map(with_name, model.settings)),
                prompts=tuple(map(with_name, model.prompts)),
                batches=tuple(map(with_name, model.batches)),
            )
            for model in contents.models
        ),
        findings=(Finding(code="x", severity="warning", evidence={}, message=name, remedy=name),),
        made_by=name,
    )


def drawn_rows(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Every row of data in a specification."""
    tables = [*spec.get("datasets", {}).values(), spec.get("data", {}).get("values", [])]
    return [row for rows in tables for row in rows]
