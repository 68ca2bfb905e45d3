"""Rules about an observed rate beside its prediction; each gives a finding or None."""

from __future__ import annotations

import math

from cpubound import stats
from cpubound.advise.case import Case
from cpubound.advise.rules.memory import SLOW_MEMORY_SHARE
from cpubound.advise.values import ERROR, INFO, WARNING, Finding
from cpubound.cost.values import Prediction
from cpubound.llama_facts import needs_flash_attn
from cpubound.profile.values import MachineProfile
from cpubound.units import (
    format_binary_bytes,
    format_decimal_bytes,
    format_rate,
    format_significant,
)

# A run whose second half is slower than its first by this much; the report that this rule is
# from fell by a third. A judgement, well above the few per cent that quiet machines show.
_DRIFT = 0.10
_LEAST_SAMPLES = 2


def best_seen_bytes_per_s(profile: MachineProfile) -> float | None:
    """Return the fastest sample of all kernels that only read, at any threads and page kind."""
    rows = [m for m in profile.bandwidth if m.kernel == "read" or m.kernel.startswith("gemv_")]
    return max((row.best_bytes_per_s for row in rows), default=None)


def most_possible_bytes_per_s(profile: MachineProfile) -> float | None:
    """Return what memory cannot exceed: its modules' rate, or what the best sample allows.

    Memory that reads less than 60 % of its modules' rate counts as set up badly, so that a
    sample bounds an unknown rate by its 1 / 0.6.
    """
    best = best_seen_bytes_per_s(profile)
    if best is None:
        return None
    return max(profile.machine.theoretical_bytes_per_s or best / SLOW_MEMORY_SHARE, best)


def from_memory_bytes_per_s(case: Case) -> float:
    """Return what the rate needs from memory, if the last-level cache keeps all it can."""
    cache = case.machine.last_level_cache_bytes or 0
    return (
        max(case.traffic.total_bytes - cache, 0) * case.observed_tokens_per_s / case.setting.batch
    )


def find_impossible(case: Case) -> Finding | None:
    """Find an observed rate that this machine's memory cannot deliver."""
    needed, most = from_memory_bytes_per_s(case), most_possible_bytes_per_s(case.profile)
    best = best_seen_bytes_per_s(case.profile)
    if most is None or best is None or needed <= most:
        return None
    return Finding(
        code="impossible",
        severity=ERROR,
        evidence={
            "implied_bytes_per_s": case.implied_bytes_per_s,
            "best_read_bytes_per_s": best,
            "most_possible_bytes_per_s": most,
            "bytes_per_token": case.traffic.total_bytes / case.setting.batch,
        },
        message=(
            f"{format_significant(case.observed_tokens_per_s)} tok/s would move "
            f"{format_rate(case.implied_bytes_per_s)}, {case.implied_bytes_per_s / best:.1f} times "
            f"the most that was ever read here ({format_rate(best)}), and no cache holds the "
            "model: the inputs contradict each other"
        ),
        remedy=(
            "check that the rate is of generation (not of the prompt), of this model and file "
            "type, on this machine, for one sequence, without a GPU or a draft model"
        ),
    )


def find_above_measured(case: Case) -> Finding | None:
    """Find a rate that needs more bandwidth than calibration saw, but not an impossible one.

    The allowance is twice the noise of the profile: 3.29 standard errors.
    """
    needed, best = from_memory_bytes_per_s(case), best_seen_bytes_per_s(case.profile)
    most = most_possible_bytes_per_s(case.profile)
    if best is None or most is None or needed > most:
        return None
    if needed <= best * math.exp(2 * case.profile.noise.spread):
        return None
    return Finding(
        code="above-measured",
        severity=WARNING,
        evidence={"implied_bytes_per_s": case.implied_bytes_per_s, "best_read_bytes_per_s": best},
        message=(
            f"the rate needs {format_rate(case.implied_bytes_per_s)} where calibration never saw "
            f"more than {format_rate(best)}: the machine was slower then, or the rate is of "
            "something else"
        ),
        remedy="cpubound calibrate (while nothing else runs), then diagnose again",
    )


def find_in_cache(case: Case) -> Finding | None:
    """Find a model so small that a token's reads stay in the cache."""
    cache = case.machine.last_level_cache_bytes
    if cache is None or case.traffic.total_bytes > cache:
        return None
    return Finding(
        code="in-cache",
        severity=INFO,
        evidence={
            "bytes_per_token": case.traffic.total_bytes,
            "cache_bytes": cache,
            "implied_bytes_per_s": case.implied_bytes_per_s,
        },
        message=(
            f"all that a token reads ({format_binary_bytes(case.traffic.total_bytes)}) fits into "
            f"{format_binary_bytes(cache)} of last-level cache: memory's bandwidth is no bound"
        ),
        remedy=f"expect more than predicted; measure it:  cpubound validate {case.model_argument}",
    )


def find_not_resident(case: Case) -> Finding | None:
    """Find a model that does not fit into memory: every token then reads the disk.

    A token takes at least the missing bytes over the disk's bandwidth: of a dense model a
    cache that drops what was used longest ago keeps almost nothing that the next token needs.
    Of a mixture of experts a token needs its active share of them.
    """
    memory, resident = case.machine.usable_memory_bytes, case.traffic.resident_bytes
    if memory is None or resident <= memory:
        return None
    missing = resident - memory
    needed = missing * min(case.traffic.total_bytes / resident, 1.0)
    disk = needed * case.observed_tokens_per_s / case.setting.batch
    return Finding(
        code="not-resident",
        severity=ERROR,
        evidence={
            "resident_bytes": resident,
            "memory_bytes": memory,
            "missing_bytes": missing,
            "implied_disk_bytes_per_s": disk,
        },
        message=(
            f"{format_decimal_bytes(resident)} must stay in memory and there are "
            f"{format_decimal_bytes(memory)}: {format_decimal_bytes(needed)} or more come from "
            f"the disk for every token, {format_decimal_bytes(disk)}/s at this rate"
        ),
        cost_tokens_per_s=_shortfall(case),
        remedy=(
            "take a smaller file type or model, or a shorter context (-c):  cpubound predict --fits"
        ),
    )


def find_throttled(case: Case) -> Finding | None:
    """Find repetitions that got slower and slower: heat, a battery, or a burst that ended."""
    rates = case.samples_tokens_per_s
    if len(rates) < _LEAST_SAMPLES:
        return None
    half = len(rates) // 2
    first, last = stats.median(rates[:half]), stats.median(rates[-half:])
    is_falling = sorted(rates, reverse=True) == list(rates) or len(rates) > 4
    if not is_falling or last >= first * (1 - _DRIFT):
        return None
    return Finding(
        code="throttled",
        severity=WARNING,
        evidence={
            "first_tokens_per_s": first,
            "last_tokens_per_s": last,
            "repetitions": len(rates),
        },
        message=(
            f"the run fell from {format_significant(first)} to {format_significant(last)} tok/s "
            "while it went on: the clock came down (heat, battery, power limit)"
        ),
        cost_tokens_per_s=first - last,
        remedy=(
            "watch it:  cpubound doctor  before and after; cool it, plug it in, use fewer threads"
        ),
    )


def find_numa_placement(case: Case) -> Finding | None:
    """Find a slow run on several memory nodes: the weights may lie on the wrong one."""
    nodes = [node for node in case.machine.numa_nodes if node.cpus]
    if len(nodes) < 2 or not case.is_clearly_slow:
        return None
    predicted = case.prediction.tokens_per_s
    return Finding(
        code="numa-placement",
        severity=WARNING,
        evidence={
            "nodes": len(nodes),
            "tokens_per_s": case.observed_tokens_per_s,
            "predicted_tokens_per_s": predicted,
        },
        message=(
            f"memory has {len(nodes)} nodes and the run gave "
            f"{case.observed_tokens_per_s / predicted:.0%} of the prediction: the weights may all "
            "lie on one node, put there by one loading thread or by an earlier run"
        ),
        cost_tokens_per_s=_shortfall(case),
        remedy=(
            "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches; then run with --numa distribute "
            "--no-repack, or under numactl -N0 -m0 where one node holds the model"
        ),
    )


def find_above_interval(case: Case) -> Finding | None:
    """Find a run that was faster than predicted: another setting, or a quieter machine."""
    p, observed = case.prediction, case.observed_tokens_per_s
    cache = case.machine.last_level_cache_bytes
    is_cached = cache is not None and case.traffic.total_bytes <= cache
    if observed <= p.high or is_cached or find_impossible(case) is not None:
        return None
    others = {
        f"{t} threads": other for t, other in case.predictions_by_threads.items() if other != p
    }
    if case.setting.flash_attn and not needs_flash_attn(case.setting.kv_type_v):
        others["flash-attention off"] = case.at(flash_attn=False).prediction
    if not case.setting.flash_attn:
        others["flash-attention on"] = case.at(flash_attn=True).prediction
    fitting = [name for name, other in others.items() if other.low <= observed <= other.high]
    hint = f" (it would be as predicted with {' or '.join(fitting)})" if fitting else ""
    return Finding(
        code="above-interval",
        severity=INFO,
        evidence=_rates(observed, p) | {"high": p.high},
        message=(
            f"{observed / p.tokens_per_s - 1:.0%} faster than predicted: the run had other "
            f"settings than these{hint}, or the machine was slower when it was calibrated"
        ),
        cost_tokens_per_s=0.0,
        remedy="give the settings of the run (--threads, --depth, --flash-attn, --kv-type)",
    )


def find_graph_bound(case: Case) -> Finding | None:
    """Find recurrent layers in a slow run: their operators may take far longer than their bytes."""
    traffic = case.traffic
    if not traffic.state_read_bytes or not case.is_slow:
        return None
    return Finding(
        code="graph-bound",
        severity=WARNING,
        evidence={
            "state_read_bytes": traffic.state_read_bytes,
            "layers": traffic.layers,
            "time_ratio": case.prediction.tokens_per_s / case.observed_tokens_per_s,
        },
        message=(
            "layers with a recurrent state: their many small operators are not in the bytes, and "
            "such models ran 3 to 5 times slower than these; the prediction is an upper bound"
        ),
        cost_tokens_per_s=_shortfall(case),
        remedy="use a recent llama.cpp, which fuses some of these operators, and measure it",
    )


def find_unexplained(case: Case, explained_by: frozenset[str]) -> Finding | None:
    """Find a shortfall that no other finding explains."""
    if not case.is_slow or explained_by:
        return None
    p, observed = case.prediction, case.observed_tokens_per_s
    share = 1 - observed / p.tokens_per_s
    if not case.is_clearly_slow:
        return Finding(
            code="below-interval",
            severity=INFO,
            evidence=_rates(observed, p),
            message=(
                f"{share:.0%} less than predicted, just under the 90 % interval: one good "
                "prediction in twenty is that high"
            ),
            cost_tokens_per_s=p.tokens_per_s - observed,
            remedy=f"see what the machine gives now:  cpubound validate {case.model_argument}",
        )
    return Finding(
        code="unexplained",
        severity=WARNING,
        evidence=_rates(observed, p),
        message=(
            f"{share:.0%} less than predicted, and neither threads, context nor the model's form "
            "explain it: another program, power saving, heat, or a build without the CPU's "
            "instructions are likely"
        ),
        cost_tokens_per_s=p.tokens_per_s - observed,
        remedy="cpubound doctor; then see what the machine gives now:  cpubound validate "
        + case.model_argument,
    )


def _rates(observed: float, p: Prediction) -> dict[str, float]:
    return {
        "tokens_per_s": observed,
        "predicted_tokens_per_s": p.tokens_per_s,
        "low": p.low,
    }


def _shortfall(case: Case) -> float | None:
    """Return what is missing to the prediction, None where there is none to compare with."""
    if not case.is_predictable:
        return None
    return max(case.prediction.tokens_per_s - case.observed_tokens_per_s, 0.0)
