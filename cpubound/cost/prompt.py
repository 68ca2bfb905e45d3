"""How long a prompt takes: profile + traffic of its batches -> PromptPrediction. Pure arithmetic.

    t = Σ over physical batches of n tokens
        Σ over matrices  bytes / R(type, n, T)  +  operations of attention / rate(T)
        + what a step costs whatever its bytes

A decode step is bound by memory; a prompt, whose every weight is used for hundreds of tokens,
by computing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from cpubound.cost.batch_rates import prompt_attention_rate
from cpubound.cost.decode import (
    OVERHEAD_RELATIVE_ERROR,
    overhead_seconds,
    predict_decode,
    products_part,
    profile_assumptions,
    seconds_interval,
    state_part,
)
from cpubound.cost.rates import attention_rate, engine_cost, weights_bandwidth
from cpubound.cost.terms import Part, name_bound, part_from_rate, sum_parts
from cpubound.cost.values import PromptPrediction, SecondsByPart
from cpubound.errors import ProfileError, UsageError
from cpubound.model.values import AttentionRead, ModelTraffic
from cpubound.profile.values import EngineCalibration, MachineProfile


def predict_prompt(
    profile: MachineProfile,
    steps: Sequence[ModelTraffic],
    step_after: ModelTraffic,
    threads: int,
) -> PromptPrediction:
    """Predict how long a prompt takes.

    Parameters
    ----------
    steps : the traffic of its physical batches (``model.traffic.prompt_steps``), at least one.
    step_after : the traffic of the first decode step behind it.
    threads : batch threads, at least 1.

    Raises
    ------
    UsageError : threads below 1.
    ProfileError : the profile holds no rates of llama.cpp for several tokens at once.
    """
    if threads < 1:
        raise UsageError(f"threads must be at least 1 ({threads})")
    engine, bandwidth = profile.engine, weights_bandwidth(profile, threads)
    if engine is None or not engine.batch_rates or bandwidth is None:
        raise ProfileError(
            "the profile has no rates for prompts: run `cpubound calibrate` with llama.cpp again"
        )
    cost = engine_cost(engine, threads)
    weights = sum_parts([products_part(engine, step, threads, bandwidth) for step in steps])
    attention = sum_parts(
        [
            part
            for step in steps
            for part in (
                *(_attention(engine, step, read, threads, bandwidth) for read in step.attention),
                state_part(engine, step, threads, bandwidth),
            )
        ]
    )
    fixed = sum(overhead_seconds(cost, step) for step in steps)
    overhead = Part(seconds=fixed, error=OVERHEAD_RELATIVE_ERROR * fixed)
    parts = SecondsByPart(
        weights=weights.seconds, attention=attention.seconds, overhead=overhead.seconds
    )
    error = math.hypot(weights.error, attention.error, overhead.error)
    low_s, high_s = seconds_interval(profile, "engine", parts.total, error)
    first, tokens = steps[0], sum(step.batch for step in steps)
    memory = profile.machine.usable_memory_bytes
    return PromptPrediction(
        model=first.model,
        quant_label=first.quant_label,
        threads=threads,
        prompt_tokens=tokens,
        depth_tokens=step_after.depth_tokens - tokens,
        kv_type_k=first.kv_type_k,
        kv_type_v=first.kv_type_v,
        flash_attn=first.flash_attn,
        seconds=parts.total,
        low_s=low_s,
        high_s=high_s,
        tokens_per_s=tokens / parts.total,
        time_to_first_token_s=parts.total
        + 1 / predict_decode(profile, step_after, threads).tokens_per_s,
        operations=sum(_operations(step) for step in steps),
        bound=name_bound(weights, attention, overhead, otherwise="compute"),
        parts=parts,
        fits_in_memory=None if memory is None else first.resident_bytes <= memory,
        assumptions=tuple(
            dict.fromkeys(
                (
                    *first.assumptions,
                    *weights.assumptions,
                    *attention.assumptions,
                    *profile_assumptions(profile, threads),
                )
            )
        ),
    )


def _attention(
    engine: EngineCalibration,
    step: ModelTraffic,
    read: AttentionRead,
    threads: int,
    bandwidth: float,
) -> Part:
    setting = (step.kv_type_k, step.kv_type_v, step.flash_attn, read.head_dim_k, threads)
    rate = prompt_attention_rate(engine, *setting)
    operations = step.batch * read.operations(step.flash_attn)
    if rate is not None:
        seconds = operations / rate.flop_per_s
        return Part(seconds=seconds, error=rate.relative_error * seconds)
    kv_bytes = step.batch * (read.k_bytes + read.v_bytes)
    name = f"attention of prompts with {step.kv_type_k}:{step.kv_type_v} KV"
    decoded = attention_rate(engine, *setting, read.query_heads)
    part = part_from_rate(kv_bytes, decoded, name, bandwidth)
    if decoded is None:
        return part
    note = f"{name} was not measured: taken as if each token were decoded, an upper bound"
    return replace(part, assumptions=(*part.assumptions, note))


def _operations(step: ModelTraffic) -> int:
    products = sum(2 * w.rows * w.columns * w.count * w.tokens for w in step.products)
    return round(products) + step.batch * step.attention_operations
