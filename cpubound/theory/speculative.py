"""Speculative decoding: a draft of k tokens, then one pass of the target over k + 1.

Expected tokens of a pass after Leviathan et al. 2023, "Fast Inference from Transformers via
Speculative Decoding", equation 1: each token is accepted with probability α, independently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cpubound.errors import UsageError

MAX_DRAFT_TOKENS = 64
# Those that are compared for the best.
DRAFT_LENGTHS = range(1, 17)


@dataclass(frozen=True, kw_only=True, slots=True)
class Speculation:
    """What drafting ``draft_tokens`` at an acceptance gives; 1.0 of speed-up is no change."""

    draft_tokens: int
    acceptance: float
    tokens_per_pass: float
    pass_seconds: float
    speed_up: float


def expected_tokens(acceptance: float, draft_tokens: int) -> float:
    """Return the tokens that one pass yields: (1 − α^(k+1)) / (1 − α); k + 1 at α = 1."""
    _check(acceptance, draft_tokens)
    if acceptance == 1:
        return float(draft_tokens + 1)
    return float((1 - acceptance ** (draft_tokens + 1)) / (1 - acceptance))


def speculate(
    acceptance: float,
    draft_tokens: int,
    target_seconds: Callable[[int], float],
    draft_seconds: float,
) -> Speculation:
    """Return the speed-up of drafting ``draft_tokens`` over plain decoding.

    ``target_seconds`` gives the time of the target's pass over so many tokens of one sequence;
    ``draft_seconds`` is the draft's time for one token (0 for a look-up of n-grams).
    """
    tokens = expected_tokens(acceptance, draft_tokens)
    seconds = target_seconds(draft_tokens + 1) + draft_tokens * draft_seconds
    return Speculation(
        draft_tokens=draft_tokens,
        acceptance=acceptance,
        tokens_per_pass=tokens,
        pass_seconds=seconds,
        speed_up=tokens * target_seconds(1) / seconds,
    )


def best_draft_length(
    acceptance: float,
    target_seconds: Callable[[int], float],
    draft_seconds: float,
) -> Speculation:
    """Return the draft length of the greatest speed-up, the shortest of equals."""
    return max(
        (speculate(acceptance, k, target_seconds, draft_seconds) for k in DRAFT_LENGTHS),
        key=lambda found: found.speed_up,
    )


def break_even_acceptance(
    draft_tokens: int, target_seconds: Callable[[int], float], draft_seconds: float
) -> float | None:
    """Return the acceptance at which drafting costs what it saves; None if it never pays.

    0 when it pays even if no draft token is ever accepted (a pass that costs nothing more).
    """

    def gains(acceptance: float) -> bool:
        return speculate(acceptance, draft_tokens, target_seconds, draft_seconds).speed_up >= 1

    if not gains(1.0):
        return None
    low, high = 0.0, 1.0
    if gains(low):
        return low
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if gains(middle) else (middle, high)
    return high


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeculationOutlook:
    """What drafting gives at several acceptances, and what the times it rests on are."""

    draft: str
    draft_tokens: int
    context_tokens: int
    target_seconds: float  # one token of the target
    pass_seconds: float  # the target's pass over draft_tokens + 1
    draft_seconds: float  # one token of the draft
    break_even: float | None  # None: it never pays at this length
    chosen: tuple[Speculation, ...]  # at draft_tokens, for each acceptance
    best: tuple[Speculation, ...]  # at the best length, for each acceptance
    basis: str  # where the times are from


def look_ahead(
    draft: str,
    target_seconds: Callable[[int], float],
    draft_seconds: float,
    *,
    draft_tokens: int,
    acceptances: Sequence[float],
    context_tokens: int,
    basis: str,
) -> SpeculationOutlook:
    """Return what speculative decoding gives; see ``speculate`` for the two times."""
    return SpeculationOutlook(
        draft=draft,
        draft_tokens=draft_tokens,
        context_tokens=context_tokens,
        target_seconds=target_seconds(1),
        pass_seconds=target_seconds(draft_tokens + 1),
        draft_seconds=draft_seconds,
        break_even=break_even_acceptance(draft_tokens, target_seconds, draft_seconds),
        chosen=tuple(
            speculate(acceptance, draft_tokens, target_seconds, draft_seconds)
            for acceptance in acceptances
        ),
        best=tuple(
            best_draft_length(acceptance, target_seconds, draft_seconds)
            for acceptance in acceptances
        ),
        basis=basis,
    )


def _check(acceptance: float, draft_tokens: int) -> None:
    if not 0 <= acceptance <= 1:
        raise UsageError(f"an acceptance is a share ({acceptance:g}): give 0 … 1")
    if not 1 <= draft_tokens <= MAX_DRAFT_TOKENS:
        raise UsageError(
            f"a draft has 1 … {MAX_DRAFT_TOKENS} tokens ({draft_tokens}): give --k in that range"
        )
