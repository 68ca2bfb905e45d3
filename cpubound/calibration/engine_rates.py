"""From the times of probe cells to the engine's rates and costs. Arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from cpubound import stats
from cpubound.calibration.fit import ExpertsKey, Fit, ProbeTime, StateKey, fit_probe_times
from cpubound.calibration.probes import (
    AttentionKey,
    Probe,
    ProbeCell,
    attention_key,
    probe_traffic,
)
from cpubound.engine.values import EngineIdentity
from cpubound.model.values import ModelTraffic
from cpubound.profile import (
    MAX_RELATIVE,
    AttentionRate,
    BatchRate,
    EngineCalibration,
    EngineCost,
    EngineRate,
    ProbeRun,
    PromptAttentionRate,
    StateRate,
)


@dataclass(kw_only=True)
class MeasuredCell:
    """One (probe, setting, threads) with what was seen of it so far."""

    probe: Probe
    setting: ProbeCell
    threads: int
    tokens: int
    runs_s: list[tuple[float, ...]] = field(default_factory=list)
    references: list[float] = field(default_factory=list)

    @property
    def samples_s(self) -> tuple[float, ...]:
        return tuple(sample for run in self.runs_s for sample in run)


def derive_rates(
    identity: EngineIdentity, cells: Sequence[MeasuredCell], thread_counts: Sequence[int]
) -> EngineCalibration:
    """Fit the rates and costs at each thread count to what the cells took."""
    decoded = [cell for cell in cells if cell.setting.prompt_tokens is None]
    prompts = [cell for cell in cells if cell.setting.prompt_tokens is not None]
    rates: list[EngineRate] = []
    costs: list[EngineCost] = []
    attention: list[AttentionRate] = []
    states: list[StateRate] = []
    batches: list[BatchRate] = []
    prompt_attention: list[PromptAttentionRate] = []
    residuals: list[float] = []
    for threads in thread_counts:
        mine = [cell for cell in decoded if cell.threads == threads]
        if not mine:
            continue
        fit = fit_probe_times([_probe_time(cell) for cell in mine])
        prompted = [cell for cell in prompts if cell.threads == threads]
        rates += _rates(fit, threads)
        attention += _attention_rates(fit, threads)
        states += _state_rates(fit, threads)
        batches += batch_rates(prompted, fit, threads)
        prompt_attention += prompt_attention_rates(prompted, threads)
        costs.append(
            EngineCost(
                threads=threads,
                seconds_per_token=fit.seconds_per_token,
                seconds_per_product=fit.seconds_per_product,
                seconds_per_expert_layer=fit.seconds_per_expert_layer,
                cache_saved_s=fit.cache_saved_s,
                fast_time_ratio=stats.median([_fast_ratio(cell) for cell in mine]),
            )
        )
        residuals += fit.residuals
    return EngineCalibration(
        name=identity.name,
        version=identity.version,
        build=identity.build,
        features=identity.features,
        rates=tuple(rates),
        costs=tuple(costs),
        attention=tuple(attention),
        batch_rates=tuple(batches),
        prompt_attention=tuple(prompt_attention),
        state_rates=tuple(states),
        residual=min(stats.median([abs(r) for r in residuals]), MAX_RELATIVE) if residuals else 0.0,
        noise=_noise_floor(decoded),
        probes=tuple(_probe_run(cell) for cell in cells),
    )


def batch_rates(prompts: Sequence[MeasuredCell], fit: Fit, threads: int) -> list[BatchRate]:
    """Return the rates of weights that multiply several tokens, from the batch probes.

    What a step takes beside its weights is what the same probe took for one token, less its
    bytes at the rate of one token.
    """
    by_type: dict[str, dict[int, MeasuredCell]] = {}
    for cell in prompts:
        if cell.probe.is_batch and cell.setting.prompt_tokens is not None:
            by_type.setdefault(cell.probe.type, {})[cell.setting.prompt_tokens] = cell
    found = []
    for name, cells in by_type.items():
        if 1 not in cells:
            continue
        single = probe_traffic(cells[1].probe, cells[1].setting, 1)
        weights_s = _weight_seconds(fit, single)
        other_s = max(stats.median(cells[1].samples_s) - weights_s, 0.0)
        for tokens, cell in sorted(cells.items()):
            seconds = stats.median(cell.samples_s)
            spread = stats.median_standard_error(cell.samples_s) / seconds
            left_s = max(seconds - other_s, weights_s)
            if tokens > 1:
                found.append(
                    BatchRate(
                        type=name,
                        threads=threads,
                        tokens=tokens,
                        bytes_per_s=single.weights_read_bytes / left_s,
                        relative_error=min(spread, MAX_RELATIVE),
                    )
                )
    return found


def _weight_seconds(fit: Fit, traffic: ModelTraffic) -> float:
    """Return the fitted time of a step's dense matrices."""
    knots: dict[str, dict[int, float]] = {}
    for (name, columns), seconds in fit.seconds_per_byte.items():
        knots.setdefault(name, {})[columns] = seconds
    total = 0.0
    for (name, columns), n_bytes in traffic.bytes_by_columns("matmul").items():
        weights = stats.hat_weights(sorted(knots[name]), columns)
        total += n_bytes * sum(weight * knots[name][knot] for knot, weight in weights.items())
    return total


def prompt_attention_rates(
    prompts: Sequence[MeasuredCell], threads: int
) -> list[PromptAttentionRate]:
    """Return how fast attention computes, from the same prompt behind two depths."""
    by_setting: dict[AttentionKey, dict[int, MeasuredCell]] = {}
    for cell in prompts:
        if not cell.probe.is_batch:
            key = attention_key(cell.setting, _head_dim(cell))
            by_setting.setdefault(key, {})[cell.setting.depth_tokens] = cell
    found = []
    for key, cells in by_setting.items():
        if len(cells) < 2:
            continue
        near, far = cells[min(cells)], cells[max(cells)]
        seconds = stats.median(far.samples_s) - stats.median(near.samples_s)
        operations = _attention_operations(far) - _attention_operations(near)
        if seconds <= 0:
            continue
        errors = [stats.median_standard_error(c.samples_s) for c in (near, far)]
        found.append(
            PromptAttentionRate(
                kv_type_k=key.kv_type_k.upper(),
                kv_type_v=key.kv_type_v.upper(),
                flash_attn=key.flash_attn,
                head_dim=key.head_dim,
                threads=threads,
                flop_per_s=operations / seconds,
                relative_error=min(math.hypot(*errors) / seconds, MAX_RELATIVE),
            )
        )
    return found


def _attention_operations(cell: MeasuredCell) -> float:
    traffic = probe_traffic(cell.probe, cell.setting, cell.tokens)
    return traffic.batch * traffic.attention_operations


def _head_dim(cell: MeasuredCell) -> int:
    traffic = probe_traffic(cell.probe, cell.setting, cell.tokens)
    return max((read.head_dim_k for read in traffic.attention), default=0)


def _probe_time(cell: MeasuredCell) -> ProbeTime:
    traffic = probe_traffic(cell.probe, cell.setting, cell.tokens)
    experts: dict[str, int] = {}
    for (name, _), n_bytes in traffic.bytes_by_columns("experts").items():
        experts[name] = experts.get(name, 0) + n_bytes
    kv_bytes = _kv_bytes(traffic)
    return ProbeTime(
        seconds=stats.median(cell.samples_s),
        matrices=traffic.bytes_by_columns("matmul"),
        attention={attention_key(cell.setting, _head_dim(cell)): kv_bytes} if kv_bytes else {},
        products=traffic.matrix_products,
        experts=experts,
        expert_layers=traffic.expert_layers,
        states={} if traffic.state_kind is None else {traffic.state_kind: _state_bytes(traffic)},
    )


def _kv_bytes(traffic: ModelTraffic) -> int:
    return traffic.kv_touched_bytes if traffic.flash_attn else traffic.kv_read_bytes


def _state_bytes(traffic: ModelTraffic) -> int:
    return traffic.state_read_bytes + traffic.state_write_bytes


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


def _fast_ratio(cell: MeasuredCell) -> float:
    return stats.quantile(cell.samples_s, 0.25) / stats.median(cell.samples_s)


def _noise_floor(cells: Sequence[MeasuredCell]) -> float:
    """Return how well one half of a cell's runs predicts the other: the median over cells."""
    distances = [stats.split_half_distance(cell.runs_s) for cell in cells]
    known = [distance for distance in distances if distance is not None]
    return stats.median(known) if known else 0.0


def _probe_run(cell: MeasuredCell) -> ProbeRun:
    traffic = probe_traffic(cell.probe, cell.setting, cell.tokens)
    return ProbeRun(
        probe=cell.probe.name,
        type=cell.probe.type,
        threads=cell.threads,
        depth_tokens=cell.setting.depth_tokens,
        kv_type_k=cell.setting.kv_type_k,
        kv_type_v=cell.setting.kv_type_v,
        flash_attn=cell.setting.flash_attn,
        matrices=_as_rows(traffic.bytes_by_columns("matmul")),
        kv_bytes=_kv_bytes(traffic),
        products=traffic.matrix_products,
        samples_s=cell.samples_s,
        reference_bytes_per_s=tuple(cell.references),
        experts=_as_rows(traffic.bytes_by_columns("experts")),
        expert_layers=traffic.expert_layers,
        state_kind=traffic.state_kind,
        state_bytes=_state_bytes(traffic),
        prompt_tokens=cell.setting.prompt_tokens,
    )


def _as_rows(by_place: Mapping[tuple[str, int], int]) -> tuple[tuple[str, int, int], ...]:
    return tuple((name, columns, n_bytes) for (name, columns), n_bytes in by_place.items())
