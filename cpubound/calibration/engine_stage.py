"""The engine stage: run the probes through llama.cpp and fit rates and costs to their times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from cpubound import stats
from cpubound.calibration.bandwidth import Progress
from cpubound.calibration.fit import Fit, ProbeTime, fit_probe_times
from cpubound.calibration.plan import Plan
from cpubound.calibration.probes import (
    AttentionKey,
    Probe,
    ProbeCell,
    attention_key,
    probe_traffic,
)
from cpubound.engine.runner import Runner
from cpubound.engine.values import RunSettings
from cpubound.errors import EngineCrashed
from cpubound.model.values import ModelSpec
from cpubound.profile import (
    MAX_RELATIVE,
    AttentionRate,
    EngineCalibration,
    EngineCost,
    EngineRate,
    ProbeRun,
)

# A run is about this long: shorter than the weather of a shared machine, longer than its hiccups.
RUN_SECONDS = 0.2
MIN_TOKENS, MAX_TOKENS = 6, 48
# First guesses of a run's length, before the probe was seen: slow kernels, slower attention.
GUESSED_BYTES_PER_S = 8e9
GUESSED_KV_BYTES_PER_S = 1e9

Reference = Callable[[int], float]
WriteModel = Callable[[ModelSpec, Path], None]


@dataclass(kw_only=True)
class _Cell:
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


def calibrate_engine(
    runner: Runner,
    probes: Sequence[Probe],
    plan: Plan,
    *,
    thread_counts: Sequence[int],
    folder: Path,
    write_model: WriteModel,
    reference: Reference,
    open_bytes: int,
    progress: Progress,
    seed: int = 0,
) -> tuple[EngineCalibration, tuple[str, ...]]:
    """Measure the probes in shuffled rounds and return the engine's rates, and warnings.

    Parameters
    ----------
    folder : where probe files are written; they are removed as soon as nothing needs them.
    reference : gives the read bandwidth right now at a thread count.
    open_bytes : how many bytes of probes may be open at once.

    A probe that crashes the engine is left out with a warning; the rest goes on. At least
    one round is finished; after it the plan's time ends the stage.
    """
    order = random.Random(seed)
    deadline = time.monotonic() + plan.engine_seconds
    cells = [
        _Cell(probe=probe, setting=setting, threads=threads, tokens=_first_tokens(probe, setting))
        for probe in probes
        for setting in probe.cells
        for threads in thread_counts
    ]
    models = _OpenModels(runner, write_model, folder, open_bytes)
    failed: dict[str, str] = {}
    visits = plan.engine_rounds * len(probes)
    visited = 0
    try:
        for round_number in range(plan.engine_rounds):
            for probe in order.sample(list(probes), len(probes)):
                if round_number > 0 and time.monotonic() > deadline:
                    break
                visited += 1
                progress("llama.cpp", visited / visits)
                if probe.name not in failed:
                    mine = [cell for cell in cells if cell.probe is probe]
                    order.shuffle(mine)
                    _visit(runner, models, probe, mine, reference, failed)
    finally:
        models.close()
    seen = [cell for cell in cells if cell.runs_s]
    warnings = tuple(f"probe {name} failed: {reason}" for name, reason in failed.items())
    return _calibration(runner, seen, thread_counts), warnings


def _visit(
    runner: Runner,
    models: _OpenModels,
    probe: Probe,
    cells: Sequence[_Cell],
    reference: Reference,
    failed: dict[str, str],
) -> None:
    try:
        path = models.open(probe)
        for cell in cells:
            before = reference(cell.threads)
            samples = runner.run(_settings(cell, path)).samples_s
            cell.runs_s.append(samples)
            cell.references += [before, reference(cell.threads)]
            cell.tokens = _tokens_for(stats.median(samples))
    except EngineCrashed as error:
        failed[probe.name] = str(error)


def _settings(cell: _Cell, path: Path) -> RunSettings:
    return RunSettings(
        model_path=str(path),
        threads=cell.threads,
        depth_tokens=cell.setting.depth_tokens,
        tokens=cell.tokens,
        n_ctx=cell.setting.depth_tokens + MAX_TOKENS + 1,
        kv_type_k=cell.setting.kv_type_k,
        kv_type_v=cell.setting.kv_type_v,
        flash_attn=cell.setting.flash_attn,
    )


def _first_tokens(probe: Probe, setting: ProbeCell) -> int:
    traffic = probe_traffic(probe, setting, MIN_TOKENS)
    seconds = traffic.weights_read_bytes / GUESSED_BYTES_PER_S
    return _tokens_for(seconds + traffic.kv_touched_bytes / GUESSED_KV_BYTES_PER_S)


def _tokens_for(seconds_per_token: float) -> int:
    return max(MIN_TOKENS, min(MAX_TOKENS, round(RUN_SECONDS / seconds_per_token)))


class _OpenModels:
    """Probe files on disk and open in the engine, within a budget; the longest unused go first."""

    def __init__(
        self, runner: Runner, write_model: WriteModel, folder: Path, budget_bytes: int
    ) -> None:
        self._runner = runner
        self._write = write_model
        self._folder = folder
        self._budget = budget_bytes
        self._open: dict[str, tuple[Path, int]] = {}

    def open(self, probe: Probe) -> Path:
        """Return the probe's file, written if it is not there."""
        if probe.name in self._open:
            self._open[probe.name] = self._open.pop(probe.name)
            return self._open[probe.name][0]
        size = sum(tensor.n_bytes for tensor in probe.spec.tensors)
        while self._open and sum(n for _, n in self._open.values()) + size > self._budget:
            self._drop(next(iter(self._open)))
        path = probe.path(self._folder)
        self._write(probe.spec, path)
        self._open[probe.name] = (path, size)
        return path

    def close(self) -> None:
        for name in list(self._open):
            self._drop(name)

    def _drop(self, name: str) -> None:
        path, _ = self._open.pop(name)
        self._runner.close_model(str(path))
        with suppress(OSError):
            path.unlink()


def _calibration(
    runner: Runner, cells: Sequence[_Cell], thread_counts: Sequence[int]
) -> EngineCalibration:
    identity = runner.identity()
    rates: list[EngineRate] = []
    costs: list[EngineCost] = []
    attention: list[AttentionRate] = []
    residuals: list[float] = []
    runs = [_probe_run(cell) for cell in cells]
    for threads in thread_counts:
        mine = [cell for cell in cells if cell.threads == threads]
        if not mine:
            continue
        fit = fit_probe_times(
            [
                _probe_time(cell, run)
                for cell, run in zip(cells, runs, strict=True)
                if cell.threads == threads
            ]
        )
        rates += _rates(fit, threads)
        attention += _attention_rates(fit, threads)
        costs.append(
            EngineCost(
                threads=threads,
                seconds_per_token=fit.seconds_per_token,
                seconds_per_product=fit.seconds_per_product,
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
        residual=min(stats.median([abs(r) for r in residuals]), MAX_RELATIVE) if residuals else 0.0,
        noise=_noise_floor(cells),
        probes=tuple(runs),
    )


def _probe_time(cell: _Cell, run: ProbeRun) -> ProbeTime:
    head_dim = int(str(cell.probe.spec.hyper_parameters["attention.key_length"]))
    return ProbeTime(
        seconds=stats.median(run.samples_s),
        matrices={(name, columns): n for name, columns, n in run.matrices},
        attention={attention_key(cell.setting, head_dim): run.kv_bytes},
        products=run.products,
    )


def _rates(fit: Fit, threads: int) -> list[EngineRate]:
    return [
        EngineRate(
            type=name,
            threads=threads,
            columns=columns,
            bytes_per_s=1 / seconds,
            relative_error=min(fit.relative_error[name, columns], MAX_RELATIVE),
        )
        for (name, columns), seconds in fit.seconds_per_byte.items()
        if seconds > 0
    ]


def _attention_rates(fit: Fit, threads: int) -> list[AttentionRate]:
    found = []
    for key, seconds in fit.attention_seconds_per_byte.items():
        if seconds <= 0:
            continue
        kv_type_k, kv_type_v, flash_attn, head_dim = cast(AttentionKey, key)
        found.append(
            AttentionRate(
                kv_type_k=kv_type_k.upper(),
                kv_type_v=kv_type_v.upper(),
                flash_attn=flash_attn,
                head_dim=head_dim,
                threads=threads,
                bytes_per_s=1 / seconds,
                relative_error=min(fit.relative_error[key], MAX_RELATIVE),
            )
        )
    return found


def _fast_ratio(cell: _Cell) -> float:
    return stats.quantile(cell.samples_s, 0.25) / stats.median(cell.samples_s)


def _noise_floor(cells: Sequence[_Cell]) -> float:
    """Return how well one half of a cell's runs predicts the other: the median over cells."""
    distances = [stats.split_half_distance(cell.runs_s) for cell in cells]
    known = [distance for distance in distances if distance is not None]
    return stats.median(known) if known else 0.0


def _probe_run(cell: _Cell) -> ProbeRun:
    traffic = probe_traffic(cell.probe, cell.setting, cell.tokens)
    flash = cell.setting.flash_attn
    kv_bytes = traffic.kv_touched_bytes if flash else traffic.kv_read_bytes
    return ProbeRun(
        probe=cell.probe.name,
        type=cell.probe.type,
        threads=cell.threads,
        depth_tokens=cell.setting.depth_tokens,
        kv_type_k=cell.setting.kv_type_k,
        kv_type_v=cell.setting.kv_type_v,
        flash_attn=cell.setting.flash_attn,
        matrices=tuple((t, columns, n) for (t, columns), n in traffic.matrices.items()),
        kv_bytes=kv_bytes,
        products=traffic.matrix_products,
        samples_s=cell.samples_s,
        reference_bytes_per_s=tuple(cell.references),
    )
