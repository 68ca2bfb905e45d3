"""The engine stage: run the probes through llama.cpp and fit rates and costs to their times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from cpubound import stats
from cpubound.engine.runner import Runner
from cpubound.engine.values import RunSettings
from cpubound.errors import EngineUnavailable, MachineError, ModelFileError
from cpubound.measuring.bandwidth import Progress
from cpubound.measuring.engine_rates import derive_rates
from cpubound.measuring.plan import Plan
from cpubound.measuring.probe_runs import MeasuredCell
from cpubound.measuring.probes import Probe, ProbeCell, probe_traffic
from cpubound.model.values import ModelSpec
from cpubound.profile.values import EngineCalibration

# A run is about this long: shorter than the weather of a shared machine, longer than its hiccups.
RUN_SECONDS = 0.15
MIN_TOKENS, MAX_TOKENS = 6, 48
# Within one physical batch of llama.cpp.
MAX_PROMPT_TOKENS, MAX_PROMPT_REPETITIONS = 512, 4
# First guesses of a run's length, before the probe was seen: slow kernels, slower attention.
GUESSED_BYTES_PER_S = 8e9
GUESSED_KV_BYTES_PER_S = 1e9

Reference = Callable[[int], float]
WriteModel = Callable[[ModelSpec, Path], None]


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

    A probe that crashes the engine, or that it refuses, is left out with a warning; the rest
    goes on. At least one round is finished; after it the plan's time ends the stage.
    """
    order = random.Random(seed)
    deadline = time.monotonic() + plan.engine_seconds
    cells = [
        MeasuredCell(
            probe=probe, setting=setting, threads=threads, tokens=_first_tokens(probe, setting)
        )
        for probe in probes
        for setting in probe.cells
        for threads in _thread_counts(probe, setting, plan, thread_counts)
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
                if probe.name not in failed and _is_due(probe, round_number):
                    mine = [cell for cell in cells if cell.probe is probe]
                    order.shuffle(mine)
                    _visit(runner, models, probe, mine, reference, failed)
    finally:
        models.close()
    seen = [cell for cell in cells if cell.runs_s]
    warnings = tuple(f"probe {name} failed: {reason}" for name, reason in failed.items())
    records = [cell.record() for cell in seen]
    return derive_rates(runner.identity(), records, noise=_noise_floor(seen)), warnings


def _visit(
    runner: Runner,
    models: _OpenModels,
    probe: Probe,
    cells: Sequence[MeasuredCell],
    reference: Reference,
    failed: dict[str, str],
) -> None:
    path = models.open(probe)
    try:
        for cell in cells:
            if cell.setting.prompt_tokens is not None:
                # Bound by computing: the memory's weather beside it says nothing.
                cell.runs_s.append(runner.run(_settings(cell, path)).samples_s)
                continue
            cell.references.append(reference(cell.threads))
            samples = runner.run(_settings(cell, path)).samples_s
            cell.runs_s.append(samples)
            cell.tokens = _tokens_for(stats.median(samples))
    except EngineUnavailable:
        raise
    except (MachineError, ModelFileError) as error:
        failed[probe.name] = str(error)


def _thread_counts(
    probe: Probe, setting: ProbeCell, plan: Plan, thread_counts: Sequence[int]
) -> list[int]:
    """Return where a setting is measured: prompts, which scale with threads, at the ends."""
    if setting.prompt_tokens is None:
        return list(thread_counts)
    fewest, most = min(thread_counts), max(thread_counts)
    of_the_fewest = (1, *plan.batch_tokens_fewest)
    if fewest == most or (probe.is_batch and setting.prompt_tokens not in of_the_fewest):
        return [most]
    return [fewest, most]


def _is_due(probe: Probe, round_number: int) -> bool:
    return probe.rounds is None or round_number < probe.rounds


def _settings(cell: MeasuredCell, path: Path) -> RunSettings:
    prompt = cell.setting.prompt_tokens is not None
    deepest = max(setting.depth_tokens for setting in cell.probe.cells)
    return RunSettings(
        model_path=str(path),
        threads=cell.threads,
        depth_tokens=cell.setting.depth_tokens,
        tokens=cell.tokens,
        prompt_tokens=cell.setting.prompt_tokens,
        all_logits=cell.probe.is_batch,
        # One context serves all depths of a probe: making one costs more than a run.
        n_ctx=deepest + (MAX_PROMPT_TOKENS if prompt else MAX_TOKENS + 1),
        kv_type_k=cell.setting.kv_type_k,
        kv_type_v=cell.setting.kv_type_v,
        flash_attn=cell.setting.flash_attn,
    )


def _first_tokens(probe: Probe, setting: ProbeCell) -> int:
    """Return the tokens of a run, or how often a prompt is processed: short ones more often."""
    if setting.prompt_tokens is not None:
        return max(1, MAX_PROMPT_REPETITIONS - setting.prompt_tokens // 16)
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


def _noise_floor(cells: Sequence[MeasuredCell]) -> float:
    """Return how well one half of a cell's runs predicts the other: the median over cells."""
    decoded = [cell for cell in cells if cell.setting.prompt_tokens is None]
    distances = [stats.split_half_distance(cell.runs_s) for cell in decoded]
    known = [distance for distance in distances if distance is not None]
    return stats.median(known) if known else 0.0
