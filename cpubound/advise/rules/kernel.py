"""Rules about kernels and builds; each gives a finding or None."""

from __future__ import annotations

import math

from cpubound.advise.case import Case
from cpubound.advise.values import INFO, WARNING, Finding
from cpubound.cost.predict import weights_bandwidth
from cpubound.cost.rates import measured_types, weight_rate
from cpubound.cost.thread_choice import TOLERANCE
from cpubound.model.quant import quant_type
from cpubound.units import format_decimal_bytes, format_rate

# Types whose dot product is llama.cpp's portable C code (ggml/src/ggml-cpu/arch-fallback.h and
# arch/x86/quants.c at 0c1e57098bba). An architecture that is not here is unknown.
_SCALAR_TYPES = {
    "x86_64": ("Q2_0",),
    "aarch64": (),
    "riscv64": ("NVFP4", "Q2_0"),
    "ppc64le": ("NVFP4", "Q1_0", "Q2_0", "TQ1_0", "TQ2_0", "IQ1_M"),
    "loongarch64": ("TQ1_0", "TQ2_0", "IQ1_M", "MXFP4", "NVFP4", "Q1_0", "Q2_0"),
}
_SCALAR_WITHOUT_AVX2 = ("TQ1_0", "TQ2_0")
# From the reports: scalar types were 5 to 100 times slower than others in time per weight, and
# no vector code measured in this project's profiles is 5 times slower than another's.
_SCALAR_RATIO = 5.0
# Instructions that decide llama.cpp's speed, as /proc/cpuinfo and as a build names them.
_BUILD_FLAGS = {
    "avx2": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "asimddp": "DOTPROD",
    "i8mm": "MATMUL_INT8",
}
# What a build must name for a type to be repacked at load, where the rows divide by 8
# (ggml_repack_get_optimal_repack_type, ggml/src/ggml-cpu/repack.cpp at 0c1e57098bba).
_REPACKED = {
    "Q4_0": ("AVX2", "DOTPROD", "MATMUL_INT8"),
    "Q4_K": ("AVX2", "DOTPROD", "MATMUL_INT8"),
    "IQ4_NL": ("AVX2", "DOTPROD"),
    "MXFP4": ("AVX2", "DOTPROD"),
    "Q2_K": ("AVX512",),
    "Q5_K": ("DOTPROD", "MATMUL_INT8"),
    "Q6_K": ("DOTPROD", "MATMUL_INT8"),
    "Q8_0": ("DOTPROD", "MATMUL_INT8"),
    "Q1_0": ("DOTPROD", "MATMUL_INT8"),
}
# A type of so much of the size is a choice of about the same quality: a judgement.
_SIMILAR_BITS = 0.85
# A judgement: below a tenth of a token, waiting better is not worth trying.
_OVERHEAD_SHARE = 0.1


def main_type(case: Case) -> str | None:
    """Return the tensor type that most of the bytes read are of."""
    return next(iter(case.traffic.by_type), None)


def build_features(case: Case) -> tuple[str, ...]:
    """Return the features of the build that ran, else of the one that was calibrated."""
    engine = case.profile.engine
    if case.features is not None:
        return case.features
    return () if engine is None else engine.features


def seconds_per_weight(case: Case, type_name: str, threads: int) -> float | None:
    """Return the engine's time per weight of a type, None if it was not measured."""
    engine = case.profile.engine
    if engine is None or type_name not in _measured_types(case):
        return None
    rate = weight_rate(engine, type_name, _main_columns(case), threads)
    return None if rate is None else quant_type(type_name).bits_per_weight / 8 / rate.bytes_per_s


def find_kernel_bound(case: Case) -> Finding | None:
    """Find a type whose kernel, not memory, sets the speed at these threads."""
    type_name, engine, bandwidth = main_type(case), case.profile.engine, _best_bandwidth(case)
    if case.prediction.bound != "kernel" or type_name is None or bandwidth is None:
        return None
    if engine is None:
        return None
    rate = weight_rate(engine, type_name, _main_columns(case), case.setting.threads)
    if rate is None:
        return None
    needed = math.ceil(bandwidth / (rate.bytes_per_s / case.setting.threads))
    faster = _faster_type(case, type_name)
    evidence: dict[str, float] = {
        "bytes_per_s": rate.bytes_per_s,
        "read_bytes_per_s": bandwidth,
        "threads": case.setting.threads,
        "threads_to_reach_memory": needed,
    }
    cost, other = None, ""
    if faster is not None:
        name, ratio = faster
        cost = _gain_of_type(case, type_name, ratio)
        evidence["faster_type_time_ratio"] = ratio
        is_larger = quant_type(name).bits_per_weight > quant_type(type_name).bits_per_weight
        crossover = crossover_threads(case, type_name, name) if is_larger else None
        if crossover is not None:
            evidence["crossover_threads"] = crossover
        until = "" if crossover is None else f" below {crossover} threads"
        other = f"; {name} is {'larger and ' if is_larger else ''}faster{until}"
    threads = min(needed, case.machine.effective_cpus)
    remedies = []
    if case.setting.threads < threads:
        remedies.append(f"use {case.engine.threads_setting(threads)}")
    if faster is not None:
        remedies.append(f"take {faster[0]}")
    return Finding(
        code="kernel-bound",
        severity=INFO,
        evidence=evidence,
        message=(
            f"the {type_name} kernel reads {format_rate(rate.bytes_per_s)} of the "
            f"{format_rate(bandwidth)} that memory gives: it takes {needed} threads to reach "
            f"memory{other}"
        ),
        cost_tokens_per_s=cost,
        remedy=" or ".join(remedies) or "nothing to set: only faster or more cores would help",
    )


def crossover_threads(case: Case, smaller: str, larger: str) -> int | None:
    """Return the fewest threads at which the smaller type is the faster one, None if never.

    A kernel is taken to grow with its threads from the rate seen here until memory ends it.
    """
    engine, bandwidth = case.profile.engine, _best_bandwidth(case)
    if engine is None or bandwidth is None:
        return None
    columns = _main_columns(case)
    small = weight_rate(engine, smaller, columns, case.setting.threads)
    large = weight_rate(engine, larger, columns, case.setting.threads)
    if small is None or large is None:
        return None

    def seconds(name: str, bytes_per_s: float, threads: int) -> float:
        reached = min(bytes_per_s / case.setting.threads * threads, bandwidth)
        return quant_type(name).bits_per_weight / reached

    most = max(case.machine.effective_cpus, case.setting.threads)
    return next(
        (
            t
            for t in range(case.setting.threads, most + 1)
            if seconds(smaller, small.bytes_per_s, t) < seconds(larger, large.bytes_per_s, t)
        ),
        None,
    )


def find_no_simd_kernel(case: Case) -> Finding | None:
    """Find a type that llama.cpp computes in scalar code."""
    type_name = main_type(case)
    if type_name is None:
        return None
    is_listed = type_name in _scalar_types(case)
    here = seconds_per_weight(case, type_name, case.setting.threads)
    others = {
        name: seconds
        for name in _measured_types(case) - {type_name}
        if (seconds := seconds_per_weight(case, name, case.setting.threads)) is not None
    }
    best = min(others, key=lambda name: others[name], default=None)
    ratio = here / others[best] if here is not None and best is not None else None
    if not is_listed and (ratio is None or ratio < _SCALAR_RATIO):
        return None
    how = "" if ratio is None else f", and takes {ratio:.0f} times as long per weight as {best}"
    return Finding(
        code="no-simd-kernel",
        severity=WARNING,
        evidence={"listed_as_scalar": float(is_listed)}
        | ({} if ratio is None else {"time_ratio": ratio}),
        message=f"{type_name} has no vector code on {case.machine.architecture}{how}",
        cost_tokens_per_s=None if ratio is None else _gain_of_type(case, type_name, 1 / ratio),
        remedy=f"take {best or 'Q4_0 or Q8_0'} instead",
    )


def find_slow_build(case: Case) -> Finding | None:
    """Find a llama.cpp that was built without instructions that the CPU has."""
    built = {feature.upper() for feature in build_features(case)}
    flags, asked = case.machine.isa_flags, case.asked_features
    missing = [
        name
        for flag, name in _BUILD_FLAGS.items()
        if flag in flags and name not in built and (asked is None or name in asked)
    ]
    if not built or not missing:
        return None
    calibrated = case.profile.engine.features if case.profile.engine is not None else ()
    is_only_the_run = case.features is not None and set(missing) <= set(calibrated)
    predicted = case.prediction.tokens_per_s
    factor = predicted / case.observed_tokens_per_s
    if is_only_the_run and case.is_slow:
        how = f"the build that was calibrated gives {factor:.1f} times as much"
    else:
        how = "reports say that it costs a factor of 3 to 5"
    return Finding(
        code="slow-build",
        severity=WARNING,
        evidence={"missing_features": len(missing)}
        | ({"factor": factor} if is_only_the_run else {}),
        message=(
            f"this llama.cpp was built without {', '.join(missing)}, which the CPU has: {how}"
        ),
        cost_tokens_per_s=max(predicted - case.observed_tokens_per_s, 0.0)
        if is_only_the_run
        else None,
        remedy="build it on this machine: cmake -B build -DGGML_NATIVE=ON && cmake --build build",
    )


def find_repack(case: Case) -> Finding | None:
    """Find repacking that costs load time and memory where memory is the limit anyway."""
    built = {feature.upper() for feature in build_features(case)}
    if "REPACK" not in built or case.prediction.bound != "memory":
        return None
    repacked = {
        name: n_bytes
        for name, n_bytes in case.traffic.by_type.items()
        if built.intersection(_REPACKED.get(name, ()))
    }
    if not repacked:
        return None
    copied = sum(t.n_bytes for t in case.spec.tensors if t.type.name in repacked)
    memory = case.machine.usable_memory_bytes
    needed = case.traffic.resident_bytes + copied
    is_tight = memory is not None and needed > memory
    return Finding(
        code="repack",
        severity=WARNING if is_tight else INFO,
        evidence={"repacked_bytes": copied, "resident_bytes": case.traffic.resident_bytes},
        message=(
            f"{', '.join(repacked)} weights are repacked at load, into a second copy of up to "
            f"{format_decimal_bytes(copied)}{', for which there is no room' if is_tight else ''}; "
            "where memory is the limit, decode gains next to nothing (prompts still do)"
        ),
        cost_tokens_per_s=0.0,
        remedy="--no-repack loads faster and keeps the weights in the page cache only",
    )


def find_wait_policy(case: Case) -> Finding | None:
    """Find an OpenMP build whose waiting between operators is a large part of a token."""
    seconds = case.prediction.seconds
    if "OPENMP" not in build_features(case) or case.setting.threads < 2:
        return None
    if seconds.overhead < _OVERHEAD_SHARE * seconds.total:
        return None
    share = seconds.overhead / seconds.total
    return Finding(
        code="wait-policy",
        severity=INFO,
        evidence={
            "overhead_share": share,
            "without_overhead_tokens_per_s": 1 / (seconds.total - seconds.overhead),
        },
        message=(
            f"{share:.0%} of a token is overhead and waiting, and this build waits as OpenMP does: "
            "it ignores --poll (on one board the policy was worth 8 %)"
        ),
        remedy="try OMP_WAIT_POLICY=active before the command, where nothing else needs the cores",
    )


def find_page_size(case: Case) -> Finding | None:
    """Find large pages that change what memory gives, as measured here."""
    small = case.profile.measurements("read", "anon_4k").get(case.setting.threads)
    large = case.profile.measurements("read", "anon_2m").get(case.setting.threads)
    if small is None or large is None:
        return None
    factor = large.median_bytes_per_s / small.median_bytes_per_s
    if abs(math.log(factor)) < math.log1p(max(TOLERANCE, case.profile.noise.spread)):
        return None
    is_faster = factor > 1
    seconds, memory = case.prediction.seconds.total, case.prediction.memory_seconds
    gain = 1 / (seconds - memory * (1 - 1 / factor)) - 1 / seconds
    return Finding(
        code="page-size",
        severity=INFO,
        evidence={
            "small_page_bytes_per_s": small.median_bytes_per_s,
            "large_page_bytes_per_s": large.median_bytes_per_s,
        },
        message=(
            f"large pages read {format_rate(large.median_bytes_per_s)} here and small ones "
            f"{format_rate(small.median_bytes_per_s)} with {case.setting.threads} threads "
            f"({factor - 1:+.0%}); weights mapped from a file sit on small pages"
        ),
        cost_tokens_per_s=max(gain, 0.0),
        remedy=(
            "try --no-mmap with  echo always | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
            if is_faster
            else "keep mmap, and large pages off:  "
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
        ),
    )


def _measured_types(case: Case) -> frozenset[str]:
    engine = case.profile.engine
    return frozenset(measured_types(engine)) if engine is not None else frozenset()


def _scalar_types(case: Case) -> tuple[str, ...]:
    architecture, flags = case.machine.architecture, case.machine.isa_flags
    listed = _SCALAR_TYPES.get(architecture, ())
    if architecture == "x86_64" and flags and "avx2" not in flags:
        return (*listed, *_SCALAR_WITHOUT_AVX2)
    return listed


def _main_columns(case: Case) -> int:
    """Return the row length of the matrices that most of the bytes read are of."""
    return max(case.traffic.weights, key=lambda weight: weight.n_bytes).columns


def _best_bandwidth(case: Case) -> float | None:
    counts = case.profile.measurements("read", "anon_4k")
    rates = [weights_bandwidth(case.profile, threads) for threads in counts]
    return max((rate for rate in rates if rate is not None), default=None)


def _faster_type(case: Case, type_name: str) -> tuple[str, float] | None:
    """Return the fastest measured type that is not much smaller, and its share of the time."""
    here = seconds_per_weight(case, type_name, case.setting.threads)
    if here is None:
        return None
    bits = quant_type(type_name).bits_per_weight
    times = {
        name: seconds / here
        for name in _measured_types(case)
        if name != type_name
        and quant_type(name).bits_per_weight >= _SIMILAR_BITS * bits
        and (seconds := seconds_per_weight(case, name, case.setting.threads)) is not None
    }
    best = min(times, key=lambda name: times[name], default=None)
    return None if best is None or times[best] > 1 - TOLERANCE else (best, times[best])


def _gain_of_type(case: Case, type_name: str, time_ratio: float) -> float:
    """Return the tok/s gained if the weights of a type took ``time_ratio`` of their time."""
    seconds = case.prediction.seconds
    share = case.traffic.by_type[type_name] / sum(case.traffic.by_type.values())
    better = seconds.total - seconds.weights * share * (1 - time_ratio)
    return 1 / better - 1 / seconds.total
