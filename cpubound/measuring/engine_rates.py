"""From the records of probe runs to the engine's rates and costs. Arithmetic only."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from cpubound import stats
from cpubound.cost.fit import ExpertsKey, Fit, ProbeTime, StateKey, fit_probe_times
from cpubound.engine.values import EngineIdentity
from cpubound.measuring.batch_rates import batch_rates, prompt_attention_rates
from cpubound.measuring.probes import AttentionKey
from cpubound.profile.values import (
    MAX_RELATIVE,
    AttentionRate,
    EngineCalibration,
    EngineCost,
    EngineRate,
    ProbeRun,
    StateRate,
)


def derive_rates(
    identity: EngineIdentity,
    runs: Sequence[ProbeRun],
    *,
    noise: float,
    equation: Callable[[ProbeRun], ProbeTime] | None = None,
) -> EngineCalibration:
    """Fit the rates and costs at each thread count to what the probes took.

    Parameters
    ----------
    noise : how far two halves of a cell's runs lay apart, kept with the rates.
    equation : another form of the model than ``probe_time``, for an ablation.

    A saved profile's ``engine.probes`` give its rates again.
    """
    as_equation = equation or probe_time
    decoded = [run for run in runs if run.prompt_tokens is None]
    rates: list[EngineRate] = []
    costs: list[EngineCost] = []
    attention: list[AttentionRate] = []
    states: list[StateRate] = []
    residuals: list[float] = []
    fits: dict[int, Fit] = {}
    for threads in sorted({run.threads for run in decoded}):
        mine = [run for run in decoded if run.threads == threads]
        fit = fits[threads] = fit_probe_times([as_equation(run) for run in mine])
        rates += _rates(fit, threads)
        attention += _attention_rates(fit, threads)
        states += _state_rates(fit, threads)
        costs.append(
            EngineCost(
                threads=threads,
                seconds_per_token=fit.seconds_per_token,
                seconds_per_product=fit.seconds_per_product,
                seconds_per_expert_layer=fit.seconds_per_expert_layer,
                cache_saved_s=fit.cache_saved_s,
                fast_time_ratio=stats.median([_fast_ratio(run) for run in mine]),
            )
        )
        residuals += fit.residuals
    prompts = [run for run in runs if run.prompt_tokens is not None]
    return EngineCalibration(
        name=identity.name,
        version=identity.version,
        build=identity.build,
        features=identity.features,
        rates=tuple(rates),
        costs=tuple(costs),
        attention=tuple(attention),
        batch_rates=tuple(row for t, fit in fits.items() for row in batch_rates(prompts, fit, t)),
        prompt_attention=prompt_attention_rates(prompts),
        state_rates=tuple(states),
        residual=min(stats.median([abs(r) for r in residuals]), MAX_RELATIVE) if residuals else 0.0,
        noise=noise,
        probes=tuple(runs),
    )


def probe_time(run: ProbeRun) -> ProbeTime:
    """Return the equation that a decoded probe gives the fit."""
    experts: dict[str, int] = {}
    for name, _, n_bytes in run.experts:
        experts[name] = experts.get(name, 0) + n_bytes
    key = AttentionKey(run.kv_type_k, run.kv_type_v, run.flash_attn, run.head_dim)
    return ProbeTime(
        seconds=stats.median(run.samples_s),
        matrices={(name, columns): n_bytes for name, columns, n_bytes in run.matrices},
        attention={key: run.kv_bytes} if run.kv_bytes else {},
        query_heads=run.query_heads,
        products=run.products,
        experts=experts,
        expert_layers=run.expert_layers,
        states={} if run.state_kind is None else {run.state_kind: run.state_bytes},
    )


def _rates(fit: Fit, threads: int) -> list[EngineRate]:
    places: dict[tuple[str, int, str], tuple[float, Hashable]] = {
        (name, columns, "matmul"): (seconds, (name, columns))
        for (name, columns), seconds in fit.seconds_per_byte.items()
    }
    for key, seconds in fit.other_seconds_per_byte.items():
        if isinstance(key, ExpertsKey):
            places[key.type, 1, "experts"] = seconds, key
    return [
        EngineRate(
            type=name,
            threads=threads,
            columns=columns,
            bytes_per_s=1 / seconds,
            relative_error=min(fit.relative_error[key], MAX_RELATIVE),
            kind=kind,
        )
        for (name, columns, kind), (seconds, key) in places.items()
        if seconds > 0
    ]


def _attention_rates(fit: Fit, threads: int) -> list[AttentionRate]:
    found = []
    for key, seconds in fit.other_seconds_per_byte.items():
        if seconds <= 0 or not isinstance(key, AttentionKey):
            continue
        found.append(
            AttentionRate(
                kv_type_k=key.kv_type_k.upper(),
                kv_type_v=key.kv_type_v.upper(),
                flash_attn=key.flash_attn,
                head_dim=key.head_dim,
                threads=threads,
                bytes_per_s=1 / seconds,
                relative_error=min(fit.relative_error[key], MAX_RELATIVE),
                query_share=fit.query_share[key],
            )
        )
    return found


def _state_rates(fit: Fit, threads: int) -> list[StateRate]:
    return [
        StateRate(
            kind=key.kind,
            threads=threads,
            bytes_per_s=1 / seconds,
            relative_error=min(fit.relative_error[key], MAX_RELATIVE),
        )
        for key, seconds in fit.other_seconds_per_byte.items()
        if isinstance(key, StateKey) and seconds > 0
    ]


def _fast_ratio(run: ProbeRun) -> float:
    return stats.quantile(run.samples_s, 0.25) / stats.median(run.samples_s)
