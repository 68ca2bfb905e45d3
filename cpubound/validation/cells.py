"""Predictions beside observations: run the engine, compare, and say how large the noise was."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import structs

from cpubound import stats
from cpubound.cost.predict import predict_decode, read_bandwidth
from cpubound.cost.values import Prediction
from cpubound.engine.pauses import PauseCounter, pause_warnings, usual_seconds
from cpubound.engine.runner import Runner
from cpubound.engine.values import EngineIdentity, RunSettings
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelSpec
from cpubound.profile.values import MachineProfile
from cpubound.setting import Setting

# A run is short, so that many of them sample the machine's noise.
RUN_SECONDS = 1.0
MIN_TOKENS, MAX_TOKENS = 8, 64
MIN_ROUNDS = 3
# From here down llama.cpp no longer follows its bytes.
BYTE_BUDGET_SHARE = 0.9

Reference = Callable[[int], float]
Progress = Callable[[str, float], None]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One prediction beside what was observed."""

    prediction: Prediction
    observed_tokens_per_s: float
    samples_s: tuple[float, ...]
    relative_error: float  # predicted / observed − 1
    paired_error: float | None  # corrected for the bandwidth seen beside the run
    inside: bool
    naive_tokens_per_s: float
    naive_error: float
    noise_floor: float | None  # one half of the runs predicting the other
    reference_bytes_per_s: float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of all cells together."""

    cells: int
    median_abs_error: float
    p95_abs_error: float
    max_abs_error: float
    bias: float
    coverage: float
    median_relative_width: float
    noise_floor: float | None
    paired_median_abs_error: float | None
    naive_median_abs_error: float


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """What ``validate`` found."""

    cells: tuple[Cell, ...]
    summary: Summary
    engine: str
    warnings: tuple[str, ...] = ()


@dataclass(kw_only=True)
class CellToRun:
    """A prediction with the file to run and what was seen of it so far."""

    prediction: Prediction
    model_path: str
    bandwidth_bytes_per_s: float | None  # of the profile, at these threads
    tokens: int
    runs_s: list[tuple[float, ...]] = field(default_factory=list)
    references: list[float] = field(default_factory=list)


def plan_cell(
    profile: MachineProfile, spec: ModelSpec, model_path: str, setting: Setting
) -> CellToRun:
    """Predict a cell at the mean depth of the run that will observe it.

    A run of n tokens from depth d lies at d + n/2 on average; the cell keeps d as its depth.
    """
    room = setting.depth_tokens + MAX_TOKENS + 1
    setting = structs.replace(setting, allocated_context_tokens=room)

    def predict_at(depth: int) -> Prediction:
        traffic = compute_traffic(spec, structs.replace(setting, depth_tokens=depth))
        return predict_decode(profile, traffic, setting.threads)

    tokens = tokens_for(predict_at(setting.depth_tokens).seconds.total)
    prediction = predict_at(setting.depth_tokens + tokens // 2)
    return CellToRun(
        prediction=structs.replace(prediction, setting=setting),
        model_path=model_path,
        bandwidth_bytes_per_s=read_bandwidth(profile, setting.threads),
        tokens=tokens,
    )


def tokens_for(seconds_per_token: float) -> int:
    """Return how many tokens make a run of about a second."""
    return max(MIN_TOKENS, min(MAX_TOKENS, round(RUN_SECONDS / seconds_per_token)))


def byte_budget_shares(cells: Sequence[Cell]) -> dict[int, float]:
    """Return, for each batch, how much of the gain over one sequence its bytes would give is seen.

    Parameters
    ----------
    cells : of one model, thread count and depth, one of them of one sequence.

    Bytes over bandwidth say that a batch multiplies the speed until the caches' bytes weigh;
    below 1 something else binds: computing, on CPUs.
    """
    single = next((cell for cell in cells if cell.prediction.setting.batch == 1), None)
    if single is None:
        return {}
    return {
        cell.prediction.setting.batch: (cell.observed_tokens_per_s / single.observed_tokens_per_s)
        / (cell.naive_tokens_per_s / single.naive_tokens_per_s)
        for cell in sorted(cells, key=lambda cell: cell.prediction.setting.batch)
    }


def last_batch_on_budget(shares: Mapping[int, float]) -> int | None:
    """Return the largest batch up to which every one keeps nine tenths of its byte budget."""
    kept = None
    for batch, share in sorted(shares.items()):
        if share < BYTE_BUDGET_SHARE:
            break
        kept = batch
    return kept


def run_cells(
    cells: Sequence[CellToRun],
    runner: Runner,
    reference: Reference | None,
    *,
    seconds: float,
    open_bytes: int,
    progress: Progress,
    seed: int = 0,
    count_pauses: Callable[[], PauseCounter] = PauseCounter,
) -> Validation:
    """Observe every cell in shuffled rounds until the time is over, and compare.

    Parameters
    ----------
    seconds : the budget; every cell is run at least three times whatever it takes.
    open_bytes : models whose files together are larger are closed before the next is opened.
    count_pauses : starts counting those that a CPU quota makes: then speeds are by the clock.

    Raises
    ------
    EngineCrashed, ModelFileError : from the runner.
    """
    order = random.Random(seed)
    started = time.monotonic()
    paths = list(dict.fromkeys(cell.model_path for cell in cells))
    keep_open = sum({c.model_path: c.prediction.file_bytes for c in cells}.values()) <= open_bytes
    rounds = 0
    pauses = count_pauses()
    while rounds < MIN_ROUNDS or time.monotonic() - started < seconds:
        for path in order.sample(paths, len(paths)):
            mine = [cell for cell in cells if cell.model_path == path]
            for cell in order.sample(mine, len(mine)):
                _observe(cell, runner, reference)
            if not keep_open:
                runner.close_model(path)
            elapsed = time.monotonic() - started
            progress("validate", min(1.0, elapsed / max(seconds, 1e-9)))
        rounds += 1
    share = pauses.share()
    done = tuple(_compare(cell, share) for cell in cells)
    identity = runner.identity()
    return Validation(
        cells=done,
        summary=summarize(done),
        engine=f"{identity.name} {identity.version}",
        warnings=pause_warnings(share),
    )


def _observe(cell: CellToRun, runner: Runner, reference: Reference | None) -> None:
    p = cell.prediction
    if reference is not None:
        cell.references.append(reference(p.setting.threads))
    observation = runner.run(
        RunSettings(model_path=cell.model_path, setting=p.setting, tokens=cell.tokens)
    )
    cell.runs_s.append(observation.samples_s)
    if reference is not None:
        cell.references.append(reference(p.setting.threads))


def _compare(cell: CellToRun, paused_share: float) -> Cell:
    p = cell.prediction
    samples = tuple(sample for run in cell.runs_s for sample in run)
    observed = p.setting.batch / usual_seconds(samples, paused_share)
    seen = stats.median(cell.references) if cell.references else None
    return Cell(
        prediction=p,
        observed_tokens_per_s=observed,
        samples_s=samples,
        relative_error=p.tokens_per_s / observed - 1,
        paired_error=_paired_error(p, observed, cell.bandwidth_bytes_per_s, seen),
        inside=p.low <= observed <= p.high,
        naive_tokens_per_s=p.ceiling_tokens_per_s,
        naive_error=p.ceiling_tokens_per_s / observed - 1,
        noise_floor=stats.split_half_distance(cell.runs_s),
        reference_bytes_per_s=seen,
    )


def _paired_error(
    p: Prediction, observed: float, profile_bandwidth: float | None, seen: float | None
) -> float | None:
    if profile_bandwidth is None or seen is None:
        return None
    slower = profile_bandwidth / seen - 1
    corrected = p.seconds.total + p.memory_seconds * slower
    return p.setting.batch / corrected / observed - 1


def summarize(cells: Sequence[Cell]) -> Summary:
    """Return the errors of at least one cell together."""
    errors = [cell.relative_error for cell in cells]
    absolute = [abs(error) for error in errors]
    floors = [cell.noise_floor for cell in cells if cell.noise_floor is not None]
    paired = [abs(cell.paired_error) for cell in cells if cell.paired_error is not None]
    return Summary(
        cells=len(cells),
        median_abs_error=stats.median(absolute),
        p95_abs_error=stats.quantile(absolute, 0.95),
        max_abs_error=max(absolute),
        bias=stats.median(errors),
        coverage=sum(cell.inside for cell in cells) / len(cells),
        median_relative_width=stats.median(
            [(c.prediction.high - c.prediction.low) / c.prediction.tokens_per_s for c in cells]
        ),
        noise_floor=stats.median(floors) if floors else None,
        paired_median_abs_error=stats.median(paired) if paired else None,
        naive_median_abs_error=stats.median([abs(cell.naive_error) for cell in cells]),
    )


def warn_of_other_build(
    profile: MachineProfile, validation: Validation, engine: EngineIdentity
) -> Validation:
    """Say so where the profile was measured through another engine or build than was run."""
    measured = profile.engine
    if measured is None or (measured.name, measured.build) == (engine.name, engine.build):
        return validation
    warning = (
        f"predictions are for {measured.name} {measured.version} (build {measured.build[:12]}), "
        f"observed was {engine.name} {engine.version} (build {engine.build[:12]})"
    )
    return structs.replace(validation, warnings=(*validation.warnings, warning))
