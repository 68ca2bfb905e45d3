"""Rules about the thread count of a run; each gives a finding or None."""

from __future__ import annotations

from math import gcd

from cpubound.advise.case import Case
from cpubound.advise.values import INFO, WARNING, Finding
from cpubound.cost.thread_choice import TOLERANCE, fewest_threads
from cpubound.cost.values import Prediction
from cpubound.machine.values import Machine, format_cpu_list, format_cpu_mask
from cpubound.units import format_count

# A judgement: the one published series with odd counts (64 cores, 64 heads, flash-attention)
# ran at half speed at 49, 63 and 65 threads and well at 48 and 64; below 16 threads no series
# shows it, and what 50 would do is not known.
_MANY_THREADS = 16
_COMMON_FACTOR = 8


def has_lower_quota(machine: Machine) -> bool:
    """Whether a CPU quota, not the CPUs allowed, limits the threads."""
    return machine.quota_cpus is not None and machine.quota_cpus < len(machine.allowed_cpus)


def find_quota_oversubscribed(case: Case) -> Finding | None:
    """Find more threads than a CPU quota lets run.

    The cost is against what was observed.
    """
    machine = case.machine
    quota, most = machine.quota_cpus, machine.effective_cpus
    if quota is None or not has_lower_quota(machine) or case.setting.threads <= most:
        return None
    better = case.at(threads=most).prediction.tokens_per_s
    evidence = {"threads": case.setting.threads, "quota_cpus": quota, "effective_cpus": most}
    throttled = ""
    if machine.quota_periods and machine.quota_throttled_periods:
        evidence |= {
            "periods": machine.quota_periods,
            "throttled_periods": machine.quota_throttled_periods,
        }
        throttled = f" (it ran out in {machine.quota_throttled_periods} of {machine.quota_periods})"
    return Finding(
        code="quota-oversubscribed",
        severity=WARNING,
        evidence=evidence,
        message=(
            f"{case.setting.threads} threads under a quota of {quota:g} CPUs: it runs out in every "
            f"scheduler period{throttled} and stalls the whole team; memory is not the limit"
        ),
        cost_tokens_per_s=max(better - case.observed_tokens_per_s, 0.0),
        remedy=f"use {case.engine.threads_setting(most, most)}",
    )


def find_too_many_threads(case: Case) -> Finding | None:
    """Find a thread count that loses against a smaller one, or that cannot all run."""
    machine = case.machine
    if case.setting.threads > machine.effective_cpus:
        if has_lower_quota(machine):
            return None  # the quota's own finding
        better = case.at(threads=machine.effective_cpus).prediction
        why = f"but only {format_count(machine.effective_cpus, 'CPU')} to run them"
    else:
        fewer = _with_fewer_threads(case)
        if not fewer or not case.is_gain(fewest_threads(fewer)):
            return None
        better = fewest_threads(fewer)
        why = f"where {better.setting.threads} are faster as measured here"
    return Finding(
        code="too-many-threads",
        severity=WARNING,
        evidence={
            "threads": case.setting.threads,
            "better_threads": better.setting.threads,
            "better_tokens_per_s": better.tokens_per_s,
            "tokens_per_s": case.prediction.tokens_per_s,
        },
        message=f"{case.setting.threads} threads {why}: each step waits for its slowest thread",
        cost_tokens_per_s=_cost(case, better),
        remedy=f"use {case.engine.threads_setting(better.setting.threads)}",
    )


def find_at_ceiling(case: Case) -> Finding | None:
    """Find threads that buy nothing: memory already gives all it has to fewer."""
    bandwidth, machine = case.bandwidth, case.machine
    if case.setting.threads > machine.effective_cpus or bandwidth is None:
        return None
    if case.prediction.bound != "memory" or not case.is_within:
        return None
    fewer = _with_fewer_threads(case)
    if not fewer:
        return None
    enough = fewest_threads(fewer)
    if enough.tokens_per_s < case.prediction.tokens_per_s * (1 - TOLERANCE):
        return None
    return Finding(
        code="at-ceiling",
        severity=INFO,
        evidence={
            "threads": case.setting.threads,
            "enough_threads": enough.setting.threads,
            "enough_tokens_per_s": enough.tokens_per_s,
            "tokens_per_s": case.prediction.tokens_per_s,
            "implied_bytes_per_s": case.implied_bytes_per_s,
            "read_bytes_per_s": bandwidth,
        },
        message=(
            f"{format_count(enough.setting.threads, 'thread')} already saturate memory: the run "
            f"uses {case.implied_bytes_per_s / bandwidth:.0%} of what it can read, and cores that "
            "wait for memory show less than 100 %, which is normal here"
        ),
        cost_tokens_per_s=case.gain(enough),
        remedy=(
            f"use {case.engine.threads_setting(enough.setting.threads)}: as fast, and leaves cores "
            "to other programs"
        ),
    )


def find_hybrid_cores(case: Case) -> Finding | None:
    """Find decode threads that reach beyond the performance cores."""
    machine = case.machine
    if len(machine.core_kinds) < 2:
        return None
    fast = set(machine.performance_cpus) & set(machine.allowed_cpus)
    one_each = sorted(min(core) for core in machine.core_cpus if fast.issuperset(core))
    cpus = one_each or sorted(fast)
    if not cpus or case.setting.threads <= len(cpus):
        return None
    on_fast = [p for t, p in case.predictions_by_threads.items() if t <= len(cpus)]
    was_measured = bool(on_fast) and case.setting.threads in case.measured_threads
    better = fewest_threads(on_fast) if was_measured else None
    if better is not None and not case.is_gain(better):
        return None
    threads = len(cpus) if better is None else better.setting.threads
    setting = case.engine.threads_setting(threads, machine.effective_cpus)
    return Finding(
        code="hybrid-cores",
        severity=WARNING if better is not None else INFO,
        evidence={"threads": case.setting.threads, "performance_cores": len(cpus)}
        | ({} if better is None else {"better_tokens_per_s": better.tokens_per_s}),
        message=(
            f"{case.setting.threads} threads on {len(cpus)} performance cores: slower cores, or a "
            "second thread on a fast one, hold up every step"
        ),
        cost_tokens_per_s=None if better is None else _cost(case, better),
        remedy=f"{'try' if better is None else 'use'} {setting}{_pinning(case, cpus)}",
    )


def find_odd_thread_count(case: Case) -> Finding | None:
    """Find a large thread count that shares no factor with the attention heads."""
    heads = case.hyper.integer("attention.head_count")
    if (
        not case.setting.flash_attn
        or heads < _MANY_THREADS
        or case.setting.threads <= _MANY_THREADS
    ):
        return None
    if gcd(case.setting.threads, heads) > 1:
        return None
    better = next(
        t for t in range(case.setting.threads, 0, -1) if gcd(t, heads) >= min(heads, _COMMON_FACTOR)
    )
    expected = case.at(threads=better).prediction.tokens_per_s
    return Finding(
        code="odd-thread-count",
        severity=WARNING if case.is_clearly_slow else INFO,
        evidence={"threads": case.setting.threads, "heads": heads, "better_threads": better},
        message=(
            f"{case.setting.threads} threads share no factor with {heads} heads; on one 64-core "
            "machine such counts ran at about half the speed of their neighbours"
        ),
        cost_tokens_per_s=expected - case.observed_tokens_per_s if case.is_clearly_slow else None,
        remedy=f"try {case.engine.threads_setting(better)}",
    )


def find_smt(case: Case) -> Finding | None:
    """Find unused second hardware threads where the kernels, not memory, set the speed."""
    machine = case.machine
    cores, per_core = machine.physical_cores, machine.threads_per_core
    if cores is None or per_core is None or per_core < 2 or case.prediction.bound != "kernel":
        return None
    if case.setting.threads != cores or machine.effective_cpus <= cores:
        return None
    if max(case.measured_threads, default=0) > cores:
        return None  # then the profile knows
    return Finding(
        code="smt",
        severity=INFO,
        evidence={"threads": case.setting.threads, "effective_cpus": machine.effective_cpus},
        message=(
            "the kernels set the speed and every core runs one thread; second threads usually "
            "hurt, but have helped where kernels were the limit"
        ),
        remedy=(
            f"try {case.engine.threads_setting(machine.effective_cpus)} and keep what is faster"
        ),
    )


def _with_fewer_threads(case: Case) -> list[Prediction]:
    return [p for t, p in case.predictions_by_threads.items() if t < case.setting.threads]


def _cost(case: Case, better: Prediction) -> float:
    """Return what fewer threads give; with more threads than CPUs the model knows no loss."""
    if case.setting.threads > case.machine.effective_cpus:
        return max(better.tokens_per_s - case.observed_tokens_per_s, 0.0)
    return case.gain(better)


def _pinning(case: Case, cpus: list[int]) -> str:
    """Write what keeps decode threads on CPUs: only llama.cpp's programs take a mask.

    With its own count for prompts, llama.cpp does not hand the mask on (common/common.cpp).
    """
    everyone = format_cpu_mask(case.machine.allowed_cpus)
    if case.engine.name == "llama.cpp":
        return f" -C {format_cpu_mask(cpus)} --cpu-strict 1 -Cb {everyone} --cpu-strict-batch 1"
    if case.engine.name == "llama-bench":
        return f" -C {format_cpu_mask(cpus)} --cpu-strict 1"
    if case.machine.operating_system == "Linux":
        return f", started with taskset -c {format_cpu_list(cpus)}"
    return ""
