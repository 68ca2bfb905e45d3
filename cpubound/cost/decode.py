"""How long one decode step takes: profile + traffic -> Prediction. Pure arithmetic.

t(T, d) = Σ over matrices  bytes / R(type, row length, tokens, T)
        −  what the last-level cache keeps (of a step of one token)
        + KV bytes / attention rate(T) + bytes of recurrent state / state rate(T)
        + overhead(T) per step, per matrix product and per layer of experts

The rates are those measured through llama.cpp (``engine``), else those that our own kernels
let expect of it (``kernel``), else there is only bytes over read bandwidth (``ceiling``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cpubound.cost.batch_rates import product_rate
from cpubound.cost.estimated_engine import (
    estimate_engine,
    kernel_noise,
    standing_assumptions,
    standing_error,
)
from cpubound.cost.kernel_form import KernelForm
from cpubound.cost.memory_shares import memory_share
from cpubound.cost.rates import (
    attention_rate,
    engine_cost,
    memory_shares_at,
    state_rate,
    weight_rate,
    weights_bandwidth,
)
from cpubound.cost.terms import Part, name_bound, part_from_rate, shorten, sum_parts
from cpubound.cost.values import Prediction, SecondsByPart
from cpubound.errors import ProfileError, UsageError
from cpubound.model.values import AttentionRead, ModelTraffic
from cpubound.profile.values import EngineCalibration, EngineCost, MachineProfile

# Two-sided 90 % of a normal distribution.
NORMAL_90 = 1.645
# llama.cpp reached 1 / 2.9 (IQ4_XS) to 1 / 1.16 (F16) of bytes over bandwidth on models of
# 1 B and more; a prediction with nothing but the bandwidth spans just that.
CEILING_LOW_SHARE = 1 / 2.9
# What a cell shares with no probe, and what the machine moves between calibration and use beyond
# its own noise: with it the 90 % interval held 96 % of 210 held-out cells, and 93 % of 210 earlier
# ones (AMD EPYC Zen 4 virtual machine, 2026-11-30; python -m calibrate accuracy, seeds 8 … 10 and
# 5 … 7, and python -m calibrate pooled). On one thread, where the machine moves by 1.4 %, errors
# were 2.7 % in the median: 0.035 is what is left of them as a standard deviation.
FORM_RELATIVE_ERROR = 0.035
# A median distance over the standard deviation of a normal distribution.
NORMAL_MEDIAN = 0.6745
# Small operators were measured on other shapes than they are used for.
OVERHEAD_RELATIVE_ERROR = 0.2
# … and on another machine, where only our kernels were. A judgement.
KERNEL_OVERHEAD_ERROR = 0.4
# As FORM_RELATIVE_ERROR, for rates estimated from our own kernels: with it the 90 % interval held
# 96 % of 140 held-out cells, whose rates were estimated as they stood in the other of two
# calibrations (AMD EPYC Zen 4 virtual machine, 2026-11-30; python -m calibrate own_kernels).
KERNEL_FORM_ERROR = 0.10


@dataclass(frozen=True, kw_only=True, slots=True)
class StepParts:
    """One decode step taken apart, with the basis and the read bandwidth that it rests on."""

    basis: str
    engine: EngineCalibration | None  # its rates: measured, estimated from our kernels, or none
    bandwidth: float
    weights: Part
    attention: Part
    overhead: Part

    @property
    def seconds(self) -> SecondsByPart:
        return SecondsByPart(
            weights=self.weights.seconds,
            attention=self.attention.seconds,
            overhead=self.overhead.seconds,
        )


def predict_decode(
    profile: MachineProfile,
    traffic: ModelTraffic,
    threads: int,
    forms: Mapping[str, KernelForm] | None = None,
) -> Prediction:
    """Predict the median decode speed at a thread count, of all sequences of the batch together.

    Parameters
    ----------
    profile : what the machine can do.
    traffic : what one decode step of the model moves, at its depth and settings.
    threads : decode threads, at least 1.
    forms : how llama.cpp stands to our kernels, instead of the shipped ones.

    Raises
    ------
    UsageError : threads below 1.
    ProfileError : the profile holds no read bandwidth.
    """
    return _assemble(profile, traffic, threads, split_step(profile, traffic, threads, forms))


def split_step(
    profile: MachineProfile,
    traffic: ModelTraffic,
    threads: int,
    forms: Mapping[str, KernelForm] | None = None,
) -> StepParts:
    """Predict the seconds of weights, attention and overhead; raises as ``predict_decode``."""
    if threads < 1:
        raise UsageError(f"threads must be at least 1 ({threads})")
    bandwidth = weights_bandwidth(profile, threads)
    if bandwidth is None:
        raise ProfileError("the profile has no read bandwidth: run `cpubound calibrate` again")
    basis, engine = _choose_basis(profile, traffic, threads, forms)
    if engine is None:
        weights, attention, overhead = _ceiling_parts(traffic, bandwidth)
    else:
        weights, attention, overhead = _engine_parts(engine, traffic, threads, bandwidth)
    if basis == "kernel":
        assumptions = (*standing_assumptions(profile, forms), *weights.assumptions)
        weights = replace(weights, assumptions=assumptions)
        overhead = replace(overhead, error=KERNEL_OVERHEAD_ERROR * overhead.seconds)
    return StepParts(
        basis=basis,
        engine=engine,
        bandwidth=bandwidth,
        weights=weights,
        attention=attention,
        overhead=overhead,
    )


def ceiling_seconds(traffic: ModelTraffic, bandwidth: float) -> float:
    """Return bytes over bandwidth: the textbook formula."""
    return traffic.total_bytes / bandwidth


def _choose_basis(
    profile: MachineProfile,
    traffic: ModelTraffic,
    threads: int,
    forms: Mapping[str, KernelForm] | None,
) -> tuple[str, EngineCalibration | None]:
    """Take the deepest level that covers at least nine tenths of the weight bytes."""
    weight_bytes = {t: n for t, n in traffic.by_type.items() if n}
    total = sum(weight_bytes.values())

    def covers(engine: EngineCalibration) -> bool:
        known = {t for t in weight_bytes if weight_rate(engine, t, 1, threads) is not None}
        return sum(weight_bytes[t] for t in known) >= 0.9 * total

    if profile.engine is not None and covers(profile.engine):
        return "engine", profile.engine
    estimated = estimate_engine(profile, threads, forms)
    if estimated is not None and covers(estimated):
        return "kernel", estimated
    return "ceiling", None


def _engine_parts(
    engine: EngineCalibration, traffic: ModelTraffic, threads: int, bandwidth: float
) -> tuple[Part, Part, Part]:
    cost = engine_cost(engine, threads)
    weights = products_part(engine, traffic, threads, bandwidth)
    if traffic.batch == 1:
        shares = memory_shares_at(engine, threads)
        weights = shorten(weights, memory_share(traffic.matrices, shares) * cost.cache_saved_s)
    attention = sum_parts(
        [_attention_part(engine, traffic, read, threads, bandwidth) for read in traffic.attention]
        + [state_part(engine, traffic, threads, bandwidth)]
    )
    seconds = overhead_seconds(cost, traffic)
    return weights, attention, Part(seconds=seconds, error=OVERHEAD_RELATIVE_ERROR * seconds)


def products_part(
    engine: EngineCalibration, traffic: ModelTraffic, threads: int, bandwidth: float
) -> Part:
    """Return the time of the matrix products, before what the last-level cache keeps."""
    return sum_parts(
        [
            part_from_rate(read.n_bytes, product_rate(engine, read, threads), read.type, bandwidth)
            for read in traffic.products
        ]
    )


def state_part(
    engine: EngineCalibration, traffic: ModelTraffic, threads: int, bandwidth: float
) -> Part:
    """Return the time of the recurrent operators of all sequences."""
    n_bytes = traffic.state_read_bytes + traffic.state_write_bytes
    rate = state_rate(engine, traffic.state_kind, threads)
    return part_from_rate(n_bytes, rate, "recurrent state", bandwidth)


def overhead_seconds(cost: EngineCost, traffic: ModelTraffic) -> float:
    """Return what a step costs whatever its bytes."""
    return (
        cost.seconds_per_token
        + cost.seconds_per_product * traffic.matrix_products
        + cost.seconds_per_expert_layer * traffic.expert_layers
    )


def _attention_part(
    engine: EngineCalibration,
    traffic: ModelTraffic,
    read: AttentionRead,
    threads: int,
    bandwidth: float,
) -> Part:
    n_bytes = traffic.batch * (read.k_bytes + read.v_bytes)
    if traffic.flash_attn and read.cells:
        n_bytes = n_bytes * read.touched_cells // read.cells
    rate = attention_rate(
        engine,
        traffic.kv_type_k,
        traffic.kv_type_v,
        traffic.flash_attn,
        read.head_dim_k,
        threads,
        read.query_heads,
    )
    flash = "on" if traffic.flash_attn else "off"
    name = f"attention with {traffic.kv_type_k}:{traffic.kv_type_v} KV, flash-attn {flash},"
    return part_from_rate(n_bytes, rate, name, bandwidth)


def _ceiling_parts(traffic: ModelTraffic, bandwidth: float) -> tuple[Part, Part, Part]:
    kv_bytes = traffic.kv_read_bytes + traffic.kv_write_bytes
    kv_bytes += traffic.state_read_bytes + traffic.state_write_bytes
    attention = kv_bytes / bandwidth
    weights = ceiling_seconds(traffic, bandwidth) - attention
    return (
        Part(seconds=weights, error=0, memory_seconds=weights),
        Part(seconds=attention, error=0, memory_seconds=attention),
        Part(),
    )


def seconds_interval(
    profile: MachineProfile, basis: str, seconds: float, error: float
) -> tuple[float, float]:
    """Return the 90 % interval of predicted seconds whose rates have a standard error."""
    if not seconds:
        return 0.0, 0.0
    noise = profile.noise.spread / NORMAL_90
    if basis == "ceiling":
        return seconds / (1 + NORMAL_90 * noise), seconds / CEILING_LOW_SHARE
    # How far two halves of the samples lay apart is how far a later run may lie.
    if basis == "engine" and profile.engine is not None:
        form = math.hypot(FORM_RELATIVE_ERROR, profile.engine.residual)
        halves = profile.engine.noise
    else:
        form = math.hypot(KERNEL_FORM_ERROR, standing_error(profile))
        halves = kernel_noise(profile)
    if halves:
        noise = halves / NORMAL_MEDIAN
    # In the logarithm, so that a wide interval never reaches zero.
    width = NORMAL_90 * math.sqrt(noise**2 + (error / seconds) ** 2 + form**2)
    return math.exp(-width) * seconds, math.exp(width) * seconds


def _assemble(
    profile: MachineProfile,
    traffic: ModelTraffic,
    threads: int,
    step: StepParts,
) -> Prediction:
    weights, attention, overhead = step.weights, step.attention, step.overhead
    by_part = step.seconds
    error = math.hypot(weights.error, attention.error, overhead.error)
    fastest, slowest = seconds_interval(profile, step.basis, by_part.total, error)
    fast_ratio = engine_cost(profile.engine, threads).fast_time_ratio if profile.engine else 1.0
    memory = profile.machine.usable_memory_bytes
    return Prediction(
        model=traffic.model,
        quant_label=traffic.quant_label,
        threads=threads,
        depth_tokens=traffic.depth_tokens,
        n_ctx=traffic.n_ctx,
        batch=traffic.batch,
        kv_type_k=traffic.kv_type_k,
        kv_type_v=traffic.kv_type_v,
        flash_attn=traffic.flash_attn,
        tokens_per_s=traffic.batch / by_part.total,
        low=traffic.batch / slowest,
        high=traffic.batch / fastest,
        fast_tokens_per_s=traffic.batch / (by_part.total * fast_ratio),
        ceiling_tokens_per_s=traffic.batch / ceiling_seconds(traffic, step.bandwidth),
        bound=name_bound(weights, attention, overhead, otherwise="kernel"),
        basis=step.basis,
        bytes_per_token=traffic.total_bytes // traffic.batch,
        file_bytes=traffic.file_bytes,
        resident_bytes=traffic.resident_bytes,
        seconds=by_part,
        memory_seconds=weights.memory_seconds + attention.memory_seconds,
        fits_in_memory=None if memory is None else traffic.resident_bytes <= memory,
        assumptions=(
            *traffic.assumptions,
            *weights.assumptions,
            *attention.assumptions,
            *profile_assumptions(profile, threads),
        ),
    )


def profile_assumptions(profile: MachineProfile, threads: int) -> tuple[str, ...]:
    """Return what a profile itself makes a prediction assume at a thread count."""
    found = []
    if profile.noise.note is not None:
        found.append(profile.noise.note)
    if profile.fitted_to is not None:
        found.append(f"nothing was measured on that machine: rates fitted to {profile.fitted_to}")
    most = profile.machine.effective_cpus
    if threads > most and profile.fitted_to is not None:
        found.append(f"no row used more than {most} threads")
    elif threads > most:
        found.append(
            f"{threads} threads are more than the {most} effective CPUs: expect less than predicted"
        )
    return tuple(found)
