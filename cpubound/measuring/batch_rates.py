"""From the prompts of probes to rates for several tokens at once. Arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cpubound import stats
from cpubound.cost.fit import Fit
from cpubound.measuring.probes import AttentionKey
from cpubound.profile.values import MAX_RELATIVE, BatchRate, ProbeRun, PromptAttentionRate


def batch_rates(prompts: Sequence[ProbeRun], fit: Fit, threads: int) -> tuple[BatchRate, ...]:
    """Return the rates of weights that multiply several tokens, from the batch probes.

    What a step takes beside its weights is what the same probe took for one token, less its
    bytes at the rate of one token; more tokens never make the pass through them shorter.
    A type whose rate for one token is unknown has none.
    """
    by_type: dict[str, dict[int, ProbeRun]] = {}
    for run in prompts:
        if run.is_batch and run.threads == threads and run.prompt_tokens is not None:
            by_type.setdefault(run.type, {})[run.prompt_tokens] = run
    found = []
    for name, by_tokens in by_type.items():
        single = by_tokens.pop(1, None)
        if single is None:
            continue
        weights_s = _weight_seconds(fit, single)
        if not weights_s:
            continue
        other_s = max(_quiet_seconds(single) - weights_s, 0.0)
        n_bytes = sum(n for _, _, n in single.matrices)
        for tokens, run in sorted(by_tokens.items()):
            seconds = _quiet_seconds(run)
            found.append(
                BatchRate(
                    type=name,
                    threads=threads,
                    tokens=tokens,
                    bytes_per_s=n_bytes / max(seconds - other_s, weights_s),
                    relative_error=min(
                        stats.median_standard_error(run.samples_s) / seconds, MAX_RELATIVE
                    ),
                )
            )
    return tuple(found)


def _quiet_seconds(run: ProbeRun) -> float:
    """Return the quartile of the fast samples.

    A prompt is seen in two moments, and computing has two speeds on shared cores, 25 % apart
    here: the median would be of both.
    """
    return stats.quantile(run.samples_s, 0.25)


def _weight_seconds(fit: Fit, run: ProbeRun) -> float | None:
    """Return the fitted time of a run's dense matrices, None if a type has no fitted rate."""
    knots: dict[str, dict[int, float]] = {}
    for (name, columns), seconds in fit.seconds_per_byte.items():
        knots.setdefault(name, {})[columns] = seconds
    total = 0.0
    for name, columns, n_bytes in run.matrices:
        if name not in knots:
            return None
        weights = stats.hat_weights(sorted(knots[name]), columns)
        total += n_bytes * sum(weight * knots[name][knot] for knot, weight in weights.items())
    return total


def prompt_attention_rates(prompts: Sequence[ProbeRun]) -> tuple[PromptAttentionRate, ...]:
    """Return how fast attention computes, from the same prompt behind two depths."""
    by_setting: dict[tuple[AttentionKey, int], dict[int, ProbeRun]] = {}
    for run in prompts:
        if not run.is_batch:
            key = AttentionKey(run.kv_type_k, run.kv_type_v, run.flash_attn, run.head_dim)
            by_setting.setdefault((key, run.threads), {})[run.depth_tokens] = run
    found = []
    for (key, threads), by_depth in by_setting.items():
        near, far = by_depth[min(by_depth)], by_depth[max(by_depth)]
        seconds = _quiet_seconds(far) - _quiet_seconds(near)
        if seconds <= 0:
            continue
        errors_s = [stats.median_standard_error(run.samples_s) for run in (near, far)]
        found.append(
            PromptAttentionRate(
                kv_type_k=key.kv_type_k.upper(),
                kv_type_v=key.kv_type_v.upper(),
                flash_attn=key.flash_attn,
                head_dim=key.head_dim,
                threads=threads,
                flop_per_s=(far.attention_operations - near.attention_operations) / seconds,
                relative_error=min(math.hypot(*errors_s) / seconds, MAX_RELATIVE),
            )
        )
    return tuple(found)
