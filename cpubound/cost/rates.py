"""Rates of a profile at any thread count: measured, interpolated, or taken from a neighbour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from cpubound import stats
from cpubound.cost.memory_shares import long_row_seconds, memory_shares
from cpubound.model.quant import quant_type
from cpubound.profile.values import (
    REFERENCE_QUERY_HEADS,
    AttentionRate,
    EngineCalibration,
    EngineCost,
    EngineRate,
    MachineProfile,
    PromptAttentionRate,
    StateRate,
)

# Types whose llama.cpp kernels share their inner loop; the first measured one stands in for
# the others of its row, in time per weight.
KERNEL_FAMILIES: tuple[tuple[str, ...], ...] = (
    ("F32",),
    ("F16", "BF16"),
    ("Q8_0", "Q8_1", "Q8_K"),
    ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4", "IQ4_XS"),
    ("Q4_K", "Q5_K", "Q6_K", "Q3_K", "Q2_K"),
    ("IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_S", "IQ1_M"),
    ("TQ1_0", "TQ2_0"),
)
# How far a neighbour's time per weight may be off: a judgement, not a measurement, and too
# little where one of the two is repacked (on one Zen 4 thread a Q4_1 weight takes twice a Q4_0's).
NEIGHBOUR_RELATIVE_ERROR = 0.20
# Experts of a type taken from its dense matrices: a judgement.
EXPERTS_RELATIVE_ERROR = 0.15
# What our own kernels leave out (barriers, small operators, another kernel's quality): a
# judgement, not a measurement.
KERNEL_RELATIVE_ERROR = 0.15


_AttentionRow = TypeVar("_AttentionRow", AttentionRate, PromptAttentionRate)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """Bytes per second with its relative standard error and what was assumed to get it."""

    bytes_per_s: float
    relative_error: float
    assumption: str | None = None


def interpolate(points: Mapping[int, float], threads: int) -> float:
    """Interpolate a rate between the nearest measured thread counts.

    Below the fewest it falls with the threads, above the most it stays.
    """
    if threads in points:
        return points[threads]
    below = [t for t in points if t < threads]
    above = [t for t in points if t > threads]
    if not below:
        return points[min(above)] * (threads / min(above))
    if not above:
        return points[max(below)]
    low, high = max(below), min(above)
    share = (threads - low) / (high - low)
    return points[low] + share * (points[high] - points[low])


def read_bandwidth(
    profile: MachineProfile, threads: int, page_kind: str = "anon_4k"
) -> float | None:
    """Return the median read bandwidth at a thread count, or None if none was measured."""
    points = {t: m.median_bytes_per_s for t, m in profile.measurements("read", page_kind).items()}
    return interpolate(points, threads) if points else None


def weights_bandwidth(profile: MachineProfile, threads: int) -> float | None:
    """Return the read bandwidth of pages as weights lie on them: mapped from a file.

    Where that was not measured, of 4 KiB pages.
    """
    mapped = read_bandwidth(profile, threads, "file")
    return read_bandwidth(profile, threads) if mapped is None else mapped


def weight_rate(
    engine: EngineCalibration, type_name: str, columns: int, threads: int
) -> Rate | None:
    """Return the engine's rate for a weight type at a row length.

    A type that was not measured takes the rate of a neighbour; None if no type of its kernel
    family was measured.
    """
    return rate_of_family(lambda name: _measured_rate(engine, name, columns, threads), type_name)


def memory_shares_at(engine: EngineCalibration, threads: int) -> dict[str, float]:
    """Return how far memory sets the rate of each measured type, as the fit takes it."""
    types = {row.type for row in engine.rates if row.kind == "matmul"}
    if not types:
        return {}
    return memory_shares({name: _long_row_seconds(engine, name, threads) for name in types})


def own_kernel_rates(profile: MachineProfile, type_name: str) -> dict[int, float]:
    """Return the median rates of cpubound's own GEMV kernel for a type by thread count."""
    points = profile.measurements(f"gemv_{type_name.lower()}", "anon_4k")
    return {threads: m.median_bytes_per_s for threads, m in points.items()}


def kernel_rate(profile: MachineProfile, type_name: str, threads: int) -> Rate | None:
    """Return what cpubound's own GEMV kernel reaches for a type, or for a neighbour type.

    None if no kernel of its family was measured.
    """
    return rate_of_family(lambda name: _measured_kernel(profile, name, threads), type_name)


def expert_rate(
    engine: EngineCalibration, type_name: str, columns: int, threads: int
) -> Rate | None:
    """Return the engine's rate for experts of a type at a row length.

    Where only other types' experts were measured, their rate over that of their dense
    matrices (the median) scales the type's own; where none were, dense matrices stand in.
    """
    experts: dict[str, list[EngineRate]] = {}
    for row in engine.rates:
        if row.kind == "experts":
            experts.setdefault(row.type, []).append(row)
    if type_name in experts:
        return _rate_of(experts[type_name], threads)
    dense = weight_rate(engine, type_name, columns, threads)
    if dense is None:
        return None
    ratios = [
        _rate_of(rows, threads).bytes_per_s / rate.bytes_per_s
        for other, rows in experts.items()
        if (rate := weight_rate(engine, other, columns, threads)) is not None
    ]
    ratio = stats.median(ratios) if ratios else 1.0
    scaled = ", scaled as those of other types" if ratios else ""
    return Rate(
        bytes_per_s=dense.bytes_per_s * ratio,
        relative_error=max(dense.relative_error, EXPERTS_RELATIVE_ERROR),
        assumption=f"experts of {type_name} were not measured: taken from dense matrices{scaled}",
    )


def state_rate(engine: EngineCalibration, kind: str | None, threads: int) -> Rate | None:
    """Return the rate at which a recurrence goes through its state, None if not measured."""
    rows = [row for row in engine.state_rates if row.kind == kind]
    return _rate_of(rows, threads) if rows else None


def attention_rate(
    engine: EngineCalibration,
    kv_type_k: str,
    kv_type_v: str,
    flash_attn: bool,
    head_dim: int,
    threads: int,
    query_heads: float = REFERENCE_QUERY_HEADS,
) -> Rate | None:
    """Return the rate at which attention goes through the cache, None if not measured.

    The nearest measured head size stands in for another; ``query_heads`` share a KV head.
    """
    rows = attention_rows(engine.attention, kv_type_k, kv_type_v, flash_attn, head_dim)
    here = [
        msgspec.structs.replace(row, bytes_per_s=row.bytes_per_s_at(query_heads)) for row in rows
    ]
    return _rate_of(here, threads) if here else None


def attention_rows(
    rows: Sequence[_AttentionRow],
    kv_type_k: str,
    kv_type_v: str,
    flash_attn: bool,
    head_dim: int,
) -> list[_AttentionRow]:
    """Return the rows of an attention setting at its head size, or the nearest measured."""
    wanted = (kv_type_k.upper(), kv_type_v.upper(), flash_attn)
    mine = [row for row in rows if (row.kv_type_k, row.kv_type_v, row.flash_attn) == wanted]
    sizes = {row.head_dim for row in mine}
    nearest = min(sizes, key=lambda measured: abs(measured - head_dim), default=head_dim)
    return [row for row in mine if row.head_dim == nearest]


def engine_cost(engine: EngineCalibration, threads: int) -> EngineCost:
    """Return the fixed costs at a thread count."""
    if not engine.costs:
        return EngineCost(
            threads=threads, seconds_per_token=0, seconds_per_product=0, fast_time_ratio=1
        )
    return EngineCost(
        threads=threads,
        seconds_per_token=_interpolate_costs(engine, "seconds_per_token", threads),
        seconds_per_product=_interpolate_costs(engine, "seconds_per_product", threads),
        cache_saved_s=_interpolate_costs(engine, "cache_saved_s", threads),
        seconds_per_expert_layer=_interpolate_costs(engine, "seconds_per_expert_layer", threads),
        fast_time_ratio=_interpolate_costs(engine, "fast_time_ratio", threads),
    )


def _interpolate_costs(engine: EngineCalibration, field: str, threads: int) -> float:
    points = {cost.threads: float(getattr(cost, field)) for cost in engine.costs}
    return _interpolate_falling(points, threads)


def _interpolate_falling(points: Mapping[int, float], threads: int) -> float:
    """Interpolate what does not grow with the threads: flat below the first count too."""
    if threads < min(points):
        return points[min(points)]
    return interpolate(points, threads)


def _measured_rate(
    engine: EngineCalibration, type_name: str, columns: int, threads: int
) -> Rate | None:
    rows = _dense_rows(engine, type_name)
    if not rows:
        return None
    points = {
        count: _rate_at([row for row in rows if row.threads == count], columns)
        for count in {row.threads for row in rows}
    }
    assumption = None
    if threads not in points:
        assumption = f"rate at {threads} threads interpolated from {_counts(points)} threads"
    return Rate(
        bytes_per_s=interpolate(points, threads),
        relative_error=stats.median(
            [row.relative_error for row in rows if row.threads == _nearest(points, threads)]
        ),
        assumption=assumption,
    )


def _dense_rows(engine: EngineCalibration, type_name: str) -> list[EngineRate]:
    return [row for row in engine.rates if row.type == type_name and row.kind == "matmul"]


def _rate_at(rows: Sequence[EngineRate], columns: int) -> float:
    """Interpolate seconds per byte in the logarithm of the row length, flat outside."""
    rates = {row.columns: row.bytes_per_s for row in rows}
    weights = stats.hat_weights(sorted(rates), columns)
    return 1 / sum(weight / rates[knot] for knot, weight in weights.items())


def _long_row_seconds(engine: EngineCalibration, type_name: str, threads: int) -> float:
    mine = _dense_rows(engine, type_name)
    nearest = min({row.threads for row in mine}, key=lambda count: abs(count - threads))
    return long_row_seconds({r.columns: 1 / r.bytes_per_s for r in mine if r.threads == nearest})


def _measured_kernel(profile: MachineProfile, type_name: str, threads: int) -> Rate | None:
    points = own_kernel_rates(profile, type_name)
    if not points:
        return None
    return Rate(bytes_per_s=interpolate(points, threads), relative_error=KERNEL_RELATIVE_ERROR)


def rate_of_family(measured: Callable[[str], Rate | None], type_name: str) -> Rate | None:
    """Return the rate of a type itself, else the time per weight of the nearest of its family."""
    rate = measured(type_name)
    if rate is not None:
        return rate
    family = next((f for f in KERNEL_FAMILIES if type_name in f), ())
    place = family.index(type_name) if family else 0
    for other in sorted(family, key=lambda name: abs(family.index(name) - place)):
        rate = measured(other)
        if rate is not None:
            scale = quant_type(type_name).bits_per_weight / quant_type(other).bits_per_weight
            return Rate(
                bytes_per_s=rate.bytes_per_s * scale,
                relative_error=max(NEIGHBOUR_RELATIVE_ERROR, rate.relative_error),
                assumption=f"{type_name} was not measured: time per weight taken from {other}",
            )
    return None


def _rate_of(rows: Sequence[AttentionRate | EngineRate | StateRate], threads: int) -> Rate:
    points = {row.threads: row.bytes_per_s for row in rows}
    return Rate(
        bytes_per_s=interpolate(points, threads),
        relative_error=max(row.relative_error for row in rows),
    )


def _nearest(points: Mapping[int, float], threads: int) -> int:
    return min(points, key=lambda count: abs(count - threads))


def _counts(points: Mapping[int, float]) -> str:
    return ", ".join(str(t) for t in sorted(points))
