"""Why a model runs as fast as it does: an observed rate taken apart beside its prediction."""

from __future__ import annotations

import math

from msgspec import structs

from cpubound.advise.case import Case, ModelCase, require_rate
from cpubound.advise.diagnosis import BatchCeiling, Diagnosis, PartOfStep, SecondsOfGap
from cpubound.advise.findings import find_machine_findings
from cpubound.advise.registry import REST_RULES, find_file_findings, find_run_findings, order
from cpubound.advise.rules.observation import find_unexplained
from cpubound.advise.rules.published import find_far_below_peak
from cpubound.advise.values import ERROR, WARNING, Finding
from cpubound.cost.transfer import own_kernel_rate
from cpubound.errors import ProfileError
from cpubound.machine.values import Machine
from cpubound.model.values import ModelTraffic
from cpubound.profile.values import MachineProfile
from cpubound.theory.analysis import last_context_of, ridge_of
from cpubound.theory.budget import Roofs
from cpubound.theory.presets import Preset
from cpubound.theory.ridge import largest_batch
from cpubound.theory.source import ModelSource
from cpubound.units import format_decimal_bytes, format_rate

MINE = "mine"
# The precision of which published peaks are taken.
_PUBLISHED_PRECISION = "bf16"
# Findings whose effect is not in the prediction: each may be why a run is below it.
_EXPLAINS = {
    "quota-oversubscribed": "configuration",
    "too-many-threads": "configuration",
    "hybrid-cores": "configuration",
    "odd-thread-count": "configuration",
    "numa-placement": "configuration",
    "slow-build": "configuration",
    "not-resident": "memory",
    "graph-bound": "overhead",
    "throttled": "configuration",
}
# Findings whose effect the prediction holds already: another setting is predicted faster.
_SETTINGS = ("too-many-threads", "hybrid-cores", "kv-quant-on-cpu", "slow-flash-attention")


def diagnose_run(case: Case, notes: tuple[str, ...] = ()) -> Diagnosis:
    """Take an observed rate on a calibrated machine apart.

    Parameters
    ----------
    notes : said beside the findings, such as where the rate was read from.

    Raises
    ------
    UsageError : an observed rate that is no positive number, or a setting that cannot be.
    ProfileError : the profile holds no read bandwidth.
    """
    require_rate(case.observed_tokens_per_s)
    bandwidth = case.bandwidth
    if bandwidth is None:
        raise ProfileError("the profile has no read bandwidth: run `cpubound calibrate` again")
    findings = find_run_findings(case)
    precision, peak = _measured_peak(case.profile, case.traffic)
    plain = _describe(
        case,
        observed=case.observed_tokens_per_s,
        machine=MINE,
        title=case.machine.cpu_model or case.machine.architecture,
        roofs=Roofs(bytes_per_s=bandwidth, flops_per_s=peak),
        precision=precision,
        memory_bytes=case.machine.usable_memory_bytes,
    )
    plain = structs.replace(
        plain, engine=case.engine.name, threads=case.setting.threads, findings=findings, notes=notes
    )
    return _beside_prediction(plain, case) if case.is_predictable else _without_prediction(plain)


def diagnose_published(
    case: ModelCase,
    observed_tokens_per_s: float,
    preset: Preset,
    notes: tuple[str, ...] = (),
) -> Diagnosis:
    """Hold an observed rate against the published peaks of a machine.

    Parameters
    ----------
    notes : said beside the findings.

    Raises
    ------
    UsageError : an observed rate that is no positive number, or a setting that cannot be.
    """
    observed = require_rate(observed_tokens_per_s)
    peak = preset.flops_per_s.get(_PUBLISHED_PRECISION)
    plain = _describe(
        case,
        observed=observed,
        machine=preset.name,
        title=preset.title,
        roofs=Roofs(bytes_per_s=preset.peak_bytes_per_s, flops_per_s=peak),
        precision=None if peak is None else _PUBLISHED_PRECISION,
        memory_bytes=preset.memory_bytes,
    )
    found = (
        _above_peak(plain),
        find_far_below_peak(plain),
        _too_large(case.traffic, preset),
        *find_file_findings(case),
    )
    findings = order(found)
    is_impossible = any(finding.code == "impossible" for finding in findings)
    return structs.replace(
        plain,
        measured_bytes_per_s=preset.measured_bytes_per_s,
        findings=findings,
        notes=notes,
        gap="impossible" if is_impossible else None,
    )


def kernel_ceiling_tokens_per_s(case: Case) -> float | None:
    """Return what cpubound's own kernels would reach, None if a type was not measured."""
    bandwidth = case.bandwidth
    by_type = {n: b for n, b in case.traffic.by_type.items() if n != "F32"}
    rates = {name: own_kernel_rate(case.profile, name, case.setting.threads) for name in by_type}
    if bandwidth is None or not by_type or None in rates.values():
        return None
    seconds = sum(n / rate for name, n in by_type.items() if (rate := rates[name]))
    rest = case.traffic.total_bytes - sum(by_type.values())
    return case.setting.batch / (seconds + rest / bandwidth)


def _describe(
    case: ModelCase,
    *,
    observed: float,
    machine: str,
    title: str,
    roofs: Roofs,
    precision: str | None,
    memory_bytes: float | None,
) -> Diagnosis:
    """Return what needs nothing but bytes, bandwidth and peak rate."""
    traffic, setting = case.traffic, case.setting
    steps_per_s = observed / setting.batch
    parts = {
        "weights": traffic.weights_read_bytes + traffic.embedding_row_bytes,
        "kv_cache": traffic.kv_read_bytes + traffic.kv_write_bytes,
        "state": traffic.state_read_bytes + traffic.state_write_bytes,
    }
    implied = traffic.total_bytes * steps_per_s
    return Diagnosis(
        model=traffic.model,
        quant_label=traffic.quant_label,
        machine=machine,
        machine_title=title,
        engine=None,
        setting=setting,
        threads=None,
        observed_tokens_per_s=observed,
        bytes_per_step=traffic.total_bytes,
        implied_bytes_per_s=implied,
        table=tuple(
            PartOfStep(part=name, bytes_per_step=n, implied_bytes_per_s=n * steps_per_s)
            for name, n in parts.items()
            if n or name == "weights"
        ),
        ceiling_bytes_per_s=roofs.bytes_per_s,
        ceiling_tokens_per_s=setting.batch * roofs.bytes_per_s / traffic.total_bytes,
        share_of_ceiling=implied / roofs.bytes_per_s,
        batch_ceiling=_batch_ceiling(case, roofs, precision, memory_bytes),
    )


def _batch_ceiling(
    case: ModelCase, roofs: Roofs, precision: str | None, memory_bytes: float | None
) -> BatchCeiling:
    setting = case.setting
    source = ModelSource(case.spec, setting)
    ridge = ridge_of(source.work(setting.depth_tokens), roofs)
    n_star = last_context_of(source, roofs)
    most = None
    if memory_bytes is not None:
        cells = max(setting.depth_tokens, (setting.allocated_context_tokens or 0) - 1)
        most = largest_batch(
            memory_bytes, source.resident_weight_bytes(), source.sequence_resident_bytes(cells)
        )
    return BatchCeiling(
        ridge_batch=_finite(ridge),
        can_be_compute_bound=None if ridge is None else not math.isinf(ridge),
        n_star_tokens=_finite(n_star),
        n_star_exists=None if n_star is None else not math.isinf(n_star),
        largest_batch=_finite(most),
        compute_precision=precision,
    )


def _beside_prediction(plain: Diagnosis, case: Case) -> Diagnosis:
    p, observed, best = case.prediction, case.observed_tokens_per_s, case.best
    kernels = kernel_ceiling_tokens_per_s(case)
    findings = _with_reasons(plain.findings, case)
    return structs.replace(
        plain,
        kernel_ceiling_tokens_per_s=kernels,
        share_of_kernel_ceiling=None if kernels is None else observed / kernels,
        predicted_tokens_per_s=p.tokens_per_s,
        low=p.low,
        high=p.high,
        basis=p.basis,
        share_of_prediction=observed / p.tokens_per_s,
        inside=p.low <= observed <= p.high,
        best_threads=best.setting.threads,
        best_tokens_per_s=best.tokens_per_s,
        seconds=_seconds_of_gap(case, plain.ceiling_bytes_per_s),
        gap=_name_gap(case, findings),
        findings=findings,
        notes=(*plain.notes, *p.assumptions),
    )


def _without_prediction(plain: Diagnosis) -> Diagnosis:
    codes = {finding.code for finding in plain.findings}
    gap = "impossible" if "impossible" in codes else "memory" if "not-resident" in codes else None
    note = (
        f"no prediction: batches were not measured, so that {plain.setting.batch} sequences at "
        "once are held against bandwidth only"
    )
    return structs.replace(plain, gap=gap, notes=(*plain.notes, note))


def _seconds_of_gap(case: Case, bandwidth: float) -> SecondsOfGap:
    traffic, seconds = case.traffic, case.prediction.seconds
    cache_bytes = traffic.kv_read_bytes + traffic.state_read_bytes + traffic.state_write_bytes
    # Flash-attention skips masked cells, and caches keep a little: less than bytes / bandwidth.
    cache = min(cache_bytes / bandwidth, seconds.attention)
    weights = min((traffic.total_bytes - cache_bytes) / bandwidth, seconds.weights)
    return SecondsOfGap(
        memory=weights + cache,
        kernel=seconds.weights - weights,
        attention=seconds.attention - cache,
        overhead=seconds.overhead,
        unexplained=case.setting.batch / case.observed_tokens_per_s - seconds.total,
    )


def _explaining(findings: tuple[Finding, ...]) -> frozenset[str]:
    """Return the codes that may be why a run is below its prediction."""
    return frozenset(f.code for f in findings if f.code in _EXPLAINS and f.severity in _SERIOUS)


_SERIOUS = (ERROR, WARNING)


def _with_reasons(findings: tuple[Finding, ...], case: Case) -> tuple[Finding, ...]:
    """Add, to a run that is slow, the machine's own warnings and what is left unexplained."""
    if not case.is_slow:
        return findings
    machine = case.machine
    if case.machine_now is not None and all(f.code != "stale-profile" for f in findings):
        machine = case.machine_now
    warnings = _machine_warnings(machine)
    if any(f.code == "quota-oversubscribed" for f in findings):
        warnings.pop("quota-below-cpus", None)
    # What was so when the machine was calibrated is in the prediction already.
    since = warnings.keys() - _machine_warnings(case.machine).keys()
    rest = find_unexplained(case, _explaining(findings) | since)
    return order((*findings, rest, *warnings.values()))


def _machine_warnings(machine: Machine) -> dict[str, Finding]:
    return {f.code: f for f in find_machine_findings(machine) if f.severity == WARNING}


def _name_gap(case: Case, findings: tuple[Finding, ...]) -> str:
    codes = {finding.code for finding in findings}
    if "impossible" in codes:
        return "impossible"
    # Under a quota that runs out memory is never the limit, however the numbers fall.
    if "quota-oversubscribed" in codes:
        return "configuration"
    if case.is_slow:
        explaining = [f.code for f in findings if f.code in _explaining(findings)]
        if explaining:
            return _EXPLAINS[explaining[0]]
        return "unexplained" if codes & REST_RULES.keys() else "disturbance"
    if case.is_within and any(f.code in _SETTINGS and f.severity == WARNING for f in findings):
        return "configuration"
    return case.prediction.bound


def _measured_peak(
    profile: MachineProfile, traffic: ModelTraffic
) -> tuple[str | None, float | None]:
    """Return the measured peak rate at the precision that the model's kernels compute in.

    llama.cpp multiplies quantised weights as 8-bit integers, others in floating point.
    """
    main = next(iter(traffic.by_type), "F32")
    floating = main in ("F32", "F16", "BF16")
    kinds = ("fp32", "bf16", "fp16") if floating else ("int8",)
    rates = [rate for rate in profile.peak if rate.dtype in kinds]
    best = max(rates, key=lambda rate: rate.flops_per_s, default=None)
    return (None, None) if best is None else (best.dtype, best.flops_per_s)


def _above_peak(plain: Diagnosis) -> Finding | None:
    if plain.share_of_ceiling <= 1:
        return None
    return Finding(
        code="impossible",
        severity=ERROR,
        evidence={
            "implied_bytes_per_s": plain.implied_bytes_per_s,
            "most_possible_bytes_per_s": plain.ceiling_bytes_per_s,
            "bytes_per_token": plain.bytes_per_step / plain.setting.batch,
        },
        message=(
            f"the rate would move {format_rate(plain.implied_bytes_per_s)}, "
            f"{plain.share_of_ceiling:.2g} times the peak of {plain.machine_title}: the inputs "
            "contradict each other"
        ),
        remedy=(
            "check the file type, the batch (--batch: is the rate that of all sequences?), the "
            "number of devices, and that no draft model was used"
        ),
    )


def _too_large(traffic: ModelTraffic, preset: Preset) -> Finding | None:
    memory = preset.memory_bytes
    if memory is None or traffic.resident_bytes <= memory:
        return None
    return Finding(
        code="not-resident",
        severity=WARNING,
        evidence={"resident_bytes": traffic.resident_bytes, "memory_bytes": memory},
        message=(
            f"{format_decimal_bytes(traffic.resident_bytes)} do not fit into the "
            f"{format_decimal_bytes(memory)} of one {preset.title}: it ran on several, or partly "
            "elsewhere"
        ),
        remedy="compare the rate with the bandwidth of all devices together",
    )


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value
