"""Where the time of a token goes, measured, with the cost of observation subtracted.

A run is decoded three ways in turn: unobserved, observed at the end of each part of a layer, and
observed at every operator. The last two differ in the number of observations only, so their
difference gives what one costs; the first gives the time that the parts, less their
observations, are scaled to.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from cpubound import stats
from cpubound.cost.values import PartPrediction
from cpubound.engine.runner import Runner
from cpubound.engine.values import PartTimes, RunSettings
from cpubound.model.parts import PARTS, bytes_by_part
from cpubound.model.values import ModelTraffic
from cpubound.setting import Setting

ROUNDS = 8
# What the standard choice of tokens takes altogether.
BUDGET_S = 20.0
MIN_TOKENS, MAX_TOKENS = 3 * ROUNDS, 64 * ROUNDS
# Two-sided 90 % of a normal distribution.
NORMAL_90 = 1.645
# A part that costs less of a token than this is not worth a name.
_WORTH_NAMING = 0.03

Progress = Callable[[str, float], None]


class PartTimer(Runner, Protocol):
    """A runner that can look into a step."""

    def time_parts(self, settings: RunSettings, *, by_operator: bool = False) -> PartTimes:
        """Time the parts of every decode step."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """One run each way: seconds of the steps unobserved, by part, and by operator."""

    unobserved_s: tuple[float, ...]
    by_part: PartTimes
    by_operator: PartTimes


class Looking(msgspec.Struct, frozen=True, kw_only=True):
    """What observing cost and how well that is known; errors are standard errors.

    ``slowdown`` is the time of an observed token over that of an unobserved one,
    ``correction`` the factor that brings the parts, less their looks, to the latter: 1 where the
    cost of observation explains the whole difference.
    """

    looks: int  # for each token
    look_s: float
    look_error_s: float
    slowdown: float
    correction: float
    correction_error: float


class PartCost(msgspec.Struct, frozen=True, kw_only=True):
    """The measured time of one part of a token, beside its prediction where there is one."""

    part: str
    n_bytes: int
    seconds: float
    error_s: float  # standard error
    share: float  # of the token
    bytes_per_s: float | None  # None for a part that moves nothing
    predicted_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    ratio: float | None = None  # measured over predicted
    is_slow: bool = False  # slower than its interval allows, and by a share worth naming


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a token goes. The parts add up to ``seconds_per_token``."""

    model: str
    quant_label: str
    setting: Setting
    engine: str
    tokens: int  # decoded each way
    seconds_per_token: float  # median, unobserved
    looking: Looking
    parts: tuple[PartCost, ...]

    @property
    def tokens_per_s(self) -> float:
        return 1 / self.seconds_per_token

    @property
    def slow_parts(self) -> tuple[str, ...]:
        """The parts that are slower than they should be, the costliest first."""
        slow = [cost for cost in self.parts if cost.is_slow]
        return tuple(
            cost.part for cost in sorted(slow, key=lambda c: (c.predicted_s or 0) - c.seconds)
        )


def run_rounds(
    runner: PartTimer,
    settings: RunSettings,
    *,
    tokens: int | None,
    progress: Progress,
    seed: int = 0,
) -> tuple[Round, ...]:
    """Decode a setting in each of the three ways, in turn and in random order.

    Parameters
    ----------
    settings : its ``tokens`` are not used.
    tokens : decoded each way altogether; by default what takes about ``BUDGET_S``.

    Raises what the runner raises.
    """
    first = runner.run(msgspec.structs.replace(settings, tokens=2))
    if tokens is None:
        tokens = tokens_within(BUDGET_S, min(first.samples_s))
    here = msgspec.structs.replace(settings, tokens=tokens_per_round(tokens))
    order = random.Random(seed)
    rounds = []
    for number in range(ROUNDS):
        seen: dict[str, PartTimes] = {}
        unobserved: tuple[float, ...] = ()
        for way in order.sample(("unobserved", "by_part", "by_operator"), 3):
            if way == "unobserved":
                unobserved = runner.run(here).samples_s
            else:
                seen[way] = runner.time_parts(here, by_operator=way == "by_operator")
        rounds.append(Round(unobserved_s=unobserved, **seen))
        progress("breakdown", (number + 1) / ROUNDS)
    return tuple(rounds)


def tokens_within(budget_s: float, seconds_per_token: float) -> int:
    """Return how many tokens, decoded three ways, take about a time."""
    return max(MIN_TOKENS, min(MAX_TOKENS, round(budget_s / (3 * seconds_per_token))))


def tokens_per_round(tokens: int) -> int:
    """Return the tokens of one run; at least two, so that a median is none of one."""
    return max(2, math.ceil(tokens / ROUNDS))


def take_apart(
    traffic: ModelTraffic,
    rounds: Sequence[Round],
    predicted: Mapping[str, PartPrediction],
    *,
    setting: Setting,
    engine: str,
) -> Breakdown:
    """Correct at least one round's parts for the looks and set them beside their prediction.

    Parameters
    ----------
    traffic : what a step moves at the mean depth of the run.
    setting : of the run, at the depth where it starts.
    predicted : by part; empty without a profile.
    """
    token_s = stats.median([s for r in rounds for s in r.unobserved_s])
    looking = _cost_of_looking(rounds)
    moved = bytes_by_part(traffic)
    costs = tuple(
        _part_cost(part, share, error, token_s, moved.get(part, 0), predicted.get(part))
        for part, (share, error) in _shares(rounds, looking).items()
    )
    return Breakdown(
        model=traffic.model,
        quant_label=traffic.quant_label,
        setting=setting,
        engine=engine,
        tokens=sum(len(r.unobserved_s) for r in rounds),
        seconds_per_token=token_s,
        looking=looking,
        parts=costs,
    )


def _cost_of_looking(rounds: Sequence[Round]) -> Looking:
    looks = sum(rounds[0].by_part.looks.values())
    more = sum(rounds[0].by_operator.looks.values()) - looks
    differences = [_step_s(r.by_operator) - _step_s(r.by_part) for r in rounds]
    per_look = [difference / more for difference in differences] if more else [0.0]
    look_s = max(stats.median(per_look), 0.0)
    unobserved = [stats.median(r.unobserved_s) for r in rounds]
    observed = [_step_s(r.by_part) for r in rounds]
    corrections = [
        u / max(o - looks * look_s, u / 2) for u, o in zip(unobserved, observed, strict=True)
    ]
    return Looking(
        looks=looks,
        look_s=look_s,
        look_error_s=stats.median_standard_error(per_look),
        slowdown=stats.median([o / u for u, o in zip(unobserved, observed, strict=True)]),
        correction=stats.median(corrections),
        correction_error=stats.median_standard_error(corrections),
    )


def _shares(rounds: Sequence[Round], looking: Looking) -> dict[str, tuple[float, float]]:
    """Return each part's share of a token with its standard error; the shares add up to 1.

    Shares, taken in each round by itself, do not move with the machine's speed as seconds do.
    """
    by_round = [_corrected_seconds(r.by_part, looking.look_s) for r in rounds]
    samples = {
        part: [seconds.get(part, 0.0) / sum(seconds.values()) for seconds in by_round]
        for part in PARTS
        if any(part in seconds for seconds in by_round)
    }
    medians = {part: stats.median(shares) for part, shares in samples.items()}
    total = sum(medians.values())
    looks = rounds[0].by_part.looks
    observed_s = stats.median([_step_s(r.by_part) for r in rounds])
    return {
        part: (
            medians[part] / total,
            math.hypot(
                stats.median_standard_error(shares),
                looks.get(part, 0) * looking.look_error_s / observed_s,
            ),
        )
        for part, shares in samples.items()
    }


def _corrected_seconds(times: PartTimes, look_s: float) -> dict[str, float]:
    """Return the median seconds of each part less its looks; what lies outside is ``rest``."""
    seconds = {
        part: max(stats.median(samples) - times.looks[part] * look_s, 0.0)
        for part, samples in times.seconds.items()
    }
    seconds["rest"] = seconds.get("rest", 0.0) + max(stats.median(times.outside_s), 0.0)
    return seconds


def _step_s(times: PartTimes) -> float:
    """Return the median seconds of a whole observed step."""
    return stats.median(
        [sum(parts) for parts in zip(*times.seconds.values(), times.outside_s, strict=True)]
    )


def _part_cost(
    part: str,
    share: float,
    share_error: float,
    token_s: float,
    n_bytes: int,
    predicted: PartPrediction | None,
) -> PartCost:
    seconds, error_s = share * token_s, share_error * token_s
    cost = PartCost(
        part=part,
        n_bytes=n_bytes,
        seconds=seconds,
        error_s=error_s,
        share=share,
        bytes_per_s=n_bytes / seconds if n_bytes and seconds else None,
    )
    if predicted is None:
        return cost
    excess = seconds - predicted.seconds
    return msgspec.structs.replace(
        cost,
        predicted_s=predicted.seconds,
        predicted_low_s=predicted.low,
        predicted_high_s=predicted.high,
        ratio=seconds / predicted.seconds,
        is_slow=seconds - NORMAL_90 * error_s > predicted.high and excess > _WORTH_NAMING * token_s,
    )
