"""Runs on machines of published reports: a model, what was seen, and a profile that fits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from builders import GB, build_engine, build_machine, build_profile, take_setting

from cpubound.advise.case import Case, ModelCase
from cpubound.advise.engines import find_engine
from cpubound.model.resolve import resolve_model
from cpubound.model.values import ModelSpec
from cpubound.setting import Setting

MODEL = "llama-3.1-8b:Q4_0"


@cache
def spec_of(model: str) -> ModelSpec:
    return resolve_model(model)


def case_of(model: str = MODEL, **setting: Any) -> ModelCase:
    return ModelCase(spec=spec_of(model), setting=Setting(**setting))


def rates_for(model: str, by_threads: Mapping[int, float]) -> dict[str, dict[int, float]]:
    """Engine rates at which every matrix of a model together takes 1 / tok/s."""
    matrices = case_of(model).traffic.matrices
    total = sum(matrices.values())
    types = {name for name, _ in matrices}
    return {name: {t: total * rate for t, rate in by_threads.items()} for name in types}


def build_case(
    *,
    model: str = MODEL,
    observed: float = 10.0,
    threads: int = 4,
    predicted: Mapping[int, float] | None = None,
    bandwidth: Mapping[int, float] | None = None,
    rates: Mapping[str, Mapping[int, float]] | None = None,
    machine: Mapping[str, Any] | None = None,
    profile: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
    features: tuple[str, ...] = ("AVX2", "FMA", "F16C"),
    attention: Mapping[tuple[str, str, bool], float] | None = None,
    per_product_s: float = 0.0,
    seconds: Mapping[str, float] | None = None,
    program: str = "llama.cpp",
    **changes: Any,
) -> Case:
    """A run of ``model``.

    ``predicted`` gives the tok/s of the weights by threads, or ``rates`` the engine's bytes/s by
    type; ``seconds`` those of other keys; ``bandwidth`` is what reading gives, by default what
    ``predicted`` moves.
    """
    if rates is None:
        rates = rates_for(model, predicted or {1: 3.0, 2: 6.0, 4: 10.0})
    counts = sorted({t for row in rates.values() for t in row})
    if bandwidth is None:
        bandwidth = {t: max(row[t] for row in rates.values() if t in row) for t in counts}
    measured = build_engine(
        rates, per_product_s=per_product_s, attention=attention, seconds=seconds
    )
    cpus = (machine or {}).get("cpus", max(counts))
    setting, rest = take_setting({"threads": threads, **changes})
    return Case(
        spec=spec_of(model),
        setting=setting,
        profile=build_profile(
            bandwidth,
            msgspec.structs.replace(measured, features=features, **(engine or {})),
            **{
                "machine": build_machine(
                    cpus, **{k: v for k, v in (machine or {}).items() if k != "cpus"}
                ),
                **(profile or {}),
            },
        ),
        engine=find_engine(program),
        model_argument=model,
        observed_tokens_per_s=observed,
        **rest,
    )


__all__ = ["GB", "build_case", "case_of", "rates_for", "spec_of"]
