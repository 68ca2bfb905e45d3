"""Rates of weights that multiply several tokens at once, and of attention over a prompt.

A step of n tokens reads the weights once and multiplies each row n times. On a CPU compute
soon binds, at a rate of its own for each type: llama.cpp changes its kernel with n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from cpubound import stats
from cpubound.cost.rates import (
    Rate,
    attention_rows,
    expert_rate,
    interpolate,
    rate_of_family,
    weight_rate,
)
from cpubound.model.values import WeightRead
from cpubound.profile.values import EngineCalibration, PromptAttentionRate

# Beside the spread of the samples: rows of another length, shapes of another size. A
# judgement; docs/accuracy.md has the held-out errors.
BATCH_RELATIVE_ERROR = 0.05
# Of experts whose several tokens take as long as if each came alone. A judgement.
EXPERT_BATCH_RELATIVE_ERROR = 0.10
# Of a batch whose cost nobody measured.
UNMEASURED_BATCH_ERROR = 0.5


def product_rate(engine: EngineCalibration, read: WeightRead, threads: int) -> Rate | None:
    """Return the rate at which a product goes through its weights, for its number of tokens.

    None if neither the type nor a neighbour was measured.
    """
    of_one_token = expert_rate if read.kind == "experts" else weight_rate
    single = of_one_token(engine, read.type, read.columns, threads)
    if read.tokens <= 1 or single is None:
        return single
    if read.kind == "experts":
        # MUL_MAT_ID goes through an expert once for each of its tokens, repacked or not: gemv in
        # repack.cpp (forward_mul_mat_id), vec_dot of one column in ggml-cpu.c (0c1e57098bba).
        return replace(
            single,
            bytes_per_s=single.bytes_per_s / read.tokens,
            relative_error=math.hypot(single.relative_error, EXPERT_BATCH_RELATIVE_ERROR),
        )

    def measured(name: str) -> Rate | None:
        first = of_one_token(engine, name, read.columns, threads)
        return None if first is None else _batch_rate(engine, name, first, read.tokens, threads)

    several = rate_of_family(measured, read.type)
    if several is None:
        return replace(
            single,
            relative_error=UNMEASURED_BATCH_ERROR,
            assumption=f"batches of {read.type} were not measured: taken as free",
        )
    return several


def prompt_attention_rate(
    engine: EngineCalibration,
    kv_type_k: str,
    kv_type_v: str,
    flash_attn: bool,
    head_dim: int,
    threads: int,
) -> PromptAttentionRate | None:
    """Return how fast attention computes over a prompt, None if not measured.

    The nearest measured head size stands in for another.
    """
    mine = attention_rows(engine.prompt_attention, kv_type_k, kv_type_v, flash_attn, head_dim)
    if not mine:
        return None
    return msgspec.structs.replace(
        mine[0],
        threads=threads,
        flop_per_s=interpolate({row.threads: row.flop_per_s for row in mine}, threads),
        relative_error=max(row.relative_error for row in mine),
    )


def _batch_rate(
    engine: EngineCalibration, type_name: str, single: Rate, tokens: float, threads: int
) -> Rate | None:
    """Interpolate between one token and the measured numbers of them, at a thread count."""
    rows = [row for row in engine.batch_rates if row.type == type_name]
    if not rows:
        return None
    measured = {
        count: interpolate({r.threads: r.bytes_per_s for r in rows if r.tokens == count}, threads)
        for count in {row.tokens for row in rows}
    }
    # More tokens never make the pass through the weights shorter.
    rates = {count: min(rate, single.bytes_per_s) for count, rate in measured.items()}
    spread = stats.median([row.relative_error for row in rows])
    return Rate(
        bytes_per_s=_rate_at({**rates, 1: single.bytes_per_s}, tokens),
        relative_error=math.hypot(single.relative_error, spread, BATCH_RELATIVE_ERROR),
        assumption=single.assumption,
    )


def _rate_at(rates: Mapping[int, float], tokens: float) -> float:
    """Interpolate in both logarithms; beyond the largest number the time grows as the tokens."""
    knots = sorted(rates)
    if tokens >= knots[-1]:
        return rates[knots[-1]] * knots[-1] / tokens
    upper = next(place for place, knot in enumerate(knots) if knot > tokens)
    low, high = knots[upper - 1], knots[upper]
    share = math.log(tokens / low) / math.log(high / low)
    return float(rates[low] ** (1 - share) * rates[high] ** share)
