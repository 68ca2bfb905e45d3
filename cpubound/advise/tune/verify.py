"""The proof of the advice: interleaved real runs of the choice, its neighbours and the defaults."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from cpubound import stats
from cpubound.advise.tune.choice import flash_options
from cpubound.advise.tune.values import Advice, Verification, Verified
from cpubound.cost.values import Prediction
from cpubound.engine.pauses import PauseCounter, pause_warnings, usual_seconds
from cpubound.engine.runner import Runner
from cpubound.engine.values import RunSettings
from cpubound.setting import F16, Setting
from cpubound.validation.cells import tokens_for

MIN_ROUNDS = 3
# Tokens that a context must have room for behind the depth.
_TOKENS_ROOM = 65

Predict = Callable[[Setting], Prediction]


@dataclass(kw_only=True)
class Candidate:
    """A setting to run, whose it is, and what was seen of it."""

    names: tuple[str, ...]
    setting: Setting
    mmap: bool
    prediction: Prediction
    runs_s: list[tuple[float, ...]] = field(default_factory=list)


def plan_candidates(
    advice: Advice, predict: Predict
) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """Return what to run: the choice first, then neighbours and defaults, each setting once.

    Also what is left out: defaults of more threads than effective CPUs.
    """
    chosen = advice.recommendation.setting
    mmap = advice.recommendation.load_mode != "none"
    names: dict[tuple[Setting, bool], list[str]] = {(chosen, mmap): ["tune"]}
    for setting in _neighbours(advice, chosen):
        names.setdefault((setting, mmap), []).append(_difference(chosen, setting))
    if not mmap:
        names.setdefault((chosen, True), []).append("mapped")
    left_out = []
    for name, default in advice.defaults.items():
        threads = default.setting.threads
        if threads > advice.effective_cpus:
            left_out.append(f"{name}'s default ({threads} threads on {advice.effective_cpus} CPUs)")
            continue
        names.setdefault((default.setting, True), []).append(name)
    candidates = tuple(
        Candidate(names=tuple(mine), setting=setting, mmap=mapped, prediction=predict(setting))
        for (setting, mapped), mine in names.items()
    )
    return candidates, tuple(left_out)


def verify(
    advice: Advice,
    predict: Predict,
    runner: Runner,
    model_path: str,
    *,
    seconds: float,
    seed: int,
    progress: Callable[[str, float], None] = lambda _stage, _done: None,
    count_pauses: Callable[[], PauseCounter] = PauseCounter,
) -> Verification:
    """Run the candidates in shuffled rounds, at least three, until the time is over.

    The gain over a setting is the median over rounds of the ratio within the round, so that
    what the machine does between rounds falls out. ``count_pauses`` starts counting those that
    a CPU quota makes: then all is by the clock.

    Raises
    ------
    EngineCrashed, ModelFileError : from the runner.
    """
    candidates, left_out = plan_candidates(advice, predict)
    order = random.Random(seed)
    for candidate in candidates:  # loads, fills the cache, warms up: not counted
        _run(runner, model_path, candidate, tokens=2)
    started = time.monotonic()
    rounds = 0
    pauses = count_pauses()
    while rounds < MIN_ROUNDS or time.monotonic() - started < seconds:
        for candidate in order.sample(candidates, len(candidates)):
            tokens = tokens_for(1 / candidate.prediction.tokens_per_s)
            candidate.runs_s.append(_run(runner, model_path, candidate, tokens=tokens))
        rounds += 1
        progress("verify", min(1.0, (time.monotonic() - started) / max(seconds, 1e-9)))
    identity = runner.identity()
    share = pauses.share()
    rows = [_verified(candidate, candidates[0], share) for candidate in candidates]
    rows.sort(key=lambda row: -row.tokens_per_s)
    return Verification(
        engine=f"{identity.name} {identity.version}",
        rounds=rounds,
        rows=tuple(rows),
        left_out=left_out,
        warnings=pause_warnings(share),
    )


def _run(
    runner: Runner, model_path: str, candidate: Candidate, *, tokens: int
) -> tuple[float, ...]:
    room = candidate.setting.depth_tokens + _TOKENS_ROOM
    return runner.run(
        RunSettings(
            model_path=model_path,
            setting=replace(candidate.setting, allocated_context_tokens=room),
            tokens=tokens,
            mmap=candidate.mmap,
        )
    ).samples_s


def _verified(candidate: Candidate, chosen: Candidate, paused_share: float) -> Verified:
    ratios = [
        usual_seconds(theirs, paused_share) / usual_seconds(mine, paused_share)
        for mine, theirs in zip(chosen.runs_s, candidate.runs_s, strict=True)
    ]
    return Verified(
        names=candidate.names,
        setting=candidate.setting,
        mmap=candidate.mmap,
        predicted_tokens_per_s=candidate.prediction.tokens_per_s,
        tokens_per_s=1 / usual_seconds([t for run in candidate.runs_s for t in run], paused_share),
        gain=stats.median(ratios) - 1,
        gain_low=stats.quantile(ratios, 0.25) - 1,
        gain_high=stats.quantile(ratios, 0.75) - 1,
        runs_s=tuple(candidate.runs_s),
    )


def _neighbours(advice: Advice, chosen: Setting) -> list[Setting]:
    """Return the next thread counts and the other state of flash-attention."""
    counts = sorted({c.setting.threads for c in advice.table})
    here = counts.index(chosen.threads)
    found = [
        replace(chosen, threads=count)
        for count in counts[max(here - 1, 0) : here] + counts[here + 1 : here + 2]
    ]
    if len(flash_options(chosen.kv_types)) > 1:
        found.append(replace(chosen, flash_attn=not chosen.flash_attn))
    if chosen.kv_types != F16:
        found.append(replace(chosen, kv_type_k="f16", kv_type_v="f16"))
    return found


def _difference(chosen: Setting, other: Setting) -> str:
    if other.threads != chosen.threads:
        return "fewer threads" if other.threads < chosen.threads else "more threads"
    if other.kv_type_k != chosen.kv_type_k:
        return "F16 cache"
    return f"flash-attention {'on' if other.flash_attn else 'off'}"
