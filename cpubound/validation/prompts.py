"""Predicted times of prompts beside observed ones."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import structs

from cpubound import stats
from cpubound.cost.predict import predict_prompt
from cpubound.cost.values import PromptPrediction
from cpubound.engine.pauses import PauseCounter, pause_warnings, usual_seconds
from cpubound.engine.runner import Runner
from cpubound.engine.values import RunSettings
from cpubound.model.traffic import compute_traffic, prompt_steps
from cpubound.model.values import ModelSpec
from cpubound.profile.values import MachineProfile
from cpubound.setting import Setting
from cpubound.validation.cells import Progress

MIN_ROUNDS = 3
# Prompts shorter than this are processed several times in a run.
RUN_SECONDS = 1.0
MAX_REPETITIONS = 5


class PromptCell(msgspec.Struct, frozen=True, kw_only=True):
    """One predicted prompt beside what was observed."""

    prediction: PromptPrediction
    observed_s: float
    observed_tokens_per_s: float
    samples_s: tuple[float, ...]
    relative_error: float  # predicted / observed tok/s − 1
    inside: bool
    noise_floor: float | None


class PromptSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of all prompts together."""

    cells: int
    median_abs_error: float
    max_abs_error: float
    bias: float
    coverage: float
    noise_floor: float | None


class PromptValidation(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about prompts."""

    cells: tuple[PromptCell, ...]
    summary: PromptSummary
    engine: str
    warnings: tuple[str, ...] = ()


@dataclass(kw_only=True)
class PromptToRun:
    """A predicted prompt with the file to run and what was seen of it so far."""

    prediction: PromptPrediction
    model_path: str
    runs_s: list[tuple[float, ...]] = field(default_factory=list)


def plan_prompt(
    profile: MachineProfile,
    spec: ModelSpec,
    model_path: str,
    setting: Setting,
    prompt_tokens: int,
) -> PromptToRun:
    """Predict the prompt that a run will observe."""
    steps = prompt_steps(spec, prompt_tokens, setting)
    behind = structs.replace(setting, depth_tokens=setting.depth_tokens + prompt_tokens)
    after = compute_traffic(spec, behind)
    prediction = predict_prompt(profile, steps, after, setting.threads)
    return PromptToRun(prediction=prediction, model_path=model_path)


def run_prompts(
    cells: Sequence[PromptToRun],
    runner: Runner,
    *,
    seconds: float,
    progress: Progress,
    seed: int = 0,
) -> PromptValidation:
    """Observe every prompt in shuffled rounds until the time is over, at least three times.

    Raises
    ------
    EngineCrashed, ModelFileError : from the runner.
    """
    order = random.Random(seed)
    started = time.monotonic()
    rounds = 0
    pauses = PauseCounter()
    while rounds < MIN_ROUNDS or time.monotonic() - started < seconds:
        for cell in order.sample(list(cells), len(cells)):
            cell.runs_s.append(_observe(cell, runner))
            elapsed = time.monotonic() - started
            progress("validate", min(1.0, elapsed / max(seconds, 1e-9)))
        rounds += 1
    share = pauses.share()
    done = tuple(_compare(cell, share) for cell in cells)
    identity = runner.identity()
    return PromptValidation(
        cells=done,
        summary=summarize_prompts(done),
        engine=f"{identity.name} {identity.version}",
        warnings=pause_warnings(share),
    )


def summarize_prompts(cells: Sequence[PromptCell]) -> PromptSummary:
    """Return the errors of at least one prompt together."""
    errors = [cell.relative_error for cell in cells]
    floors = [cell.noise_floor for cell in cells if cell.noise_floor is not None]
    return PromptSummary(
        cells=len(cells),
        median_abs_error=stats.median([abs(error) for error in errors]),
        max_abs_error=max(abs(error) for error in errors),
        bias=stats.median(errors),
        coverage=sum(cell.inside for cell in cells) / len(cells),
        noise_floor=stats.median(floors) if floors else None,
    )


def _observe(cell: PromptToRun, runner: Runner) -> tuple[float, ...]:
    p = cell.prediction
    repetitions = max(1, min(MAX_REPETITIONS, round(RUN_SECONDS / p.seconds)))
    observation = runner.run(
        RunSettings(
            model_path=cell.model_path,
            setting=p.setting,
            tokens=repetitions,
            prompt_tokens=p.prompt_tokens,
        )
    )
    return observation.samples_s


def _compare(cell: PromptToRun, paused_share: float) -> PromptCell:
    p = cell.prediction
    samples = tuple(sample for run in cell.runs_s for sample in run)
    observed_s = usual_seconds(samples, paused_share)
    return PromptCell(
        prediction=p,
        observed_s=observed_s,
        observed_tokens_per_s=p.prompt_tokens / observed_s,
        samples_s=samples,
        relative_error=observed_s / p.seconds - 1,
        inside=p.low_s <= observed_s <= p.high_s,
        noise_floor=stats.split_half_distance(cell.runs_s),
    )
