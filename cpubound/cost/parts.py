"""The predicted seconds of a token by the parts that ``breakdown`` measures. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cpubound.cost.batch_rates import product_rate
from cpubound.cost.decode import StepParts, seconds_interval, split_step, state_part
from cpubound.cost.rates import engine_cost
from cpubound.cost.terms import Part, part_from_rate, sum_parts
from cpubound.model.parts import PARTS, part_of_role
from cpubound.model.values import EXPERT_PRODUCTS, ModelTraffic, WeightRead
from cpubound.profile.values import MachineProfile


@dataclass(frozen=True, kw_only=True, slots=True)
class PartPrediction:
    """Predicted seconds of one part with their 90 % interval."""

    seconds: float
    low: float
    high: float


def predict_parts(
    profile: MachineProfile, traffic: ModelTraffic, threads: int
) -> dict[str, PartPrediction]:
    """Predict the seconds of each part; together they are those of ``predict_decode``.

    A part's matrix products carry their cost per product, experts that of a layer of them;
    what a step costs whatever its products is ``rest``. Small operators (norms) are in all of
    these. Raises as ``predict_decode``.
    """
    step = split_step(profile, traffic, threads)
    found: dict[str, list[Part]] = {}
    for part, weights in _split_weights(traffic, threads, step).items():
        found.setdefault(part, []).append(weights)
    state = _state(traffic, threads, step)
    found.setdefault("recurrent", []).append(state)
    if traffic.attention:
        found.setdefault("attention", []).append(_attention(step, state))
    for part, overhead in _split_overhead(traffic, threads, step).items():
        found.setdefault(part, []).append(overhead)
    return {
        part: _with_interval(profile, step.basis, sum_parts(found[part]))
        for part in PARTS
        if part in found and any(p.seconds for p in found[part])
    }


def _state(traffic: ModelTraffic, threads: int, step: StepParts) -> Part:
    if step.engine is not None:
        return state_part(step.engine, traffic, threads, step.bandwidth)
    n_bytes = traffic.state_read_bytes + traffic.state_write_bytes
    return part_from_rate(n_bytes, None, "recurrent state", step.bandwidth)


def _attention(step: StepParts, state: Part) -> Part:
    """Take the recurrent state off what a step counts together with attention.

    Their errors are independent where each has its rate, and one where both are bytes over
    bandwidth.
    """
    both = step.attention
    seconds = max(both.seconds - state.seconds, 0.0)
    if step.engine is not None:
        error = math.sqrt(max(both.error**2 - state.error**2, 0.0))
    else:
        error = both.error * seconds / both.seconds if both.seconds else 0.0
    return Part(seconds=seconds, error=error)


def _with_interval(profile: MachineProfile, basis: str, part: Part) -> PartPrediction:
    low, high = seconds_interval(profile, basis, part.seconds, part.error)
    return PartPrediction(seconds=part.seconds, low=low, high=high)


def _split_weights(traffic: ModelTraffic, threads: int, step: StepParts) -> dict[str, Part]:
    """Share the step's weight seconds out by each matrix's bytes over its own rate."""
    reads: dict[str, list[Part]] = {}
    for read in traffic.weights:
        if step.basis == "ceiling" or read.kind in ("matmul", "experts"):
            seconds = _matrix_part(read, threads, step)
            reads.setdefault(part_of_role(read.role), []).append(seconds)
    sums = {part: sum_parts(parts) for part, parts in reads.items()}
    total = sum(part.seconds for part in sums.values())
    # Below 1 by what the last-level cache keeps from one token to the next.
    scale = step.weights.seconds / total if total else 0.0
    return {
        name: Part(
            seconds=part.seconds * scale,
            error=part.error * scale,
            memory_seconds=part.memory_seconds * scale,
        )
        for name, part in sums.items()
    }


def _matrix_part(read: WeightRead, threads: int, step: StepParts) -> Part:
    rate = None if step.engine is None else product_rate(step.engine, read, threads)
    return part_from_rate(read.n_bytes, rate, read.type, step.bandwidth)


def _split_overhead(traffic: ModelTraffic, threads: int, step: StepParts) -> dict[str, Part]:
    if step.engine is None:
        return {}
    cost = engine_cost(step.engine, threads)
    counts = {"experts": EXPERT_PRODUCTS * traffic.expert_layers}
    for read in traffic.weights:
        if read.kind == "matmul":
            part = part_of_role(read.role)
            counts[part] = counts.get(part, 0) + read.count
    seconds = {part: cost.seconds_per_product * count for part, count in counts.items()}
    seconds["experts"] += cost.seconds_per_expert_layer * traffic.expert_layers
    seconds["rest"] = seconds.get("rest", 0.0) + cost.seconds_per_token
    relative = step.overhead.error / step.overhead.seconds if step.overhead.seconds else 0.0
    return {
        part: Part(seconds=time, error=relative * time, memory_seconds=0)
        for part, time in seconds.items()
    }
