"""Speculative decoding: expected tokens, best length, break-even."""

from __future__ import annotations

import random

import pytest

from cpubound.errors import UsageError
from cpubound.theory.speculative import (
    best_draft_length,
    break_even_acceptance,
    expected_tokens,
    look_ahead,
    speculate,
)


def memory_bound(tokens: int) -> float:
    """A pass costs the same for any number of tokens."""
    return 1.0


def compute_bound(tokens: int) -> float:
    """Each token costs as much as the first."""
    return float(tokens)


def test_expected_tokens_are_the_sum_of_the_powers_of_the_acceptance() -> None:
    for acceptance in (0.0, 0.3, 0.6, 0.8, 0.99):
        series = sum(acceptance**i for i in range(5))
        assert expected_tokens(acceptance, 4) == pytest.approx(series)
    assert expected_tokens(1.0, 4) == 5


def test_expected_tokens_agree_with_drawing_acceptances() -> None:
    chance = random.Random(3)
    total = 0
    for _ in range(20000):
        total += 1
        for _ in range(4):
            if chance.random() >= 0.7:
                break
            total += 1
    assert expected_tokens(0.7, 4) == pytest.approx(total / 20000, rel=0.01)


def test_a_free_draft_and_a_free_pass_give_all_expected_tokens() -> None:
    found = speculate(0.8, 4, memory_bound, 0.0)
    assert found.speed_up == pytest.approx(expected_tokens(0.8, 4)) == pytest.approx(3.3616)


def test_where_compute_binds_drafting_loses_and_never_pays() -> None:
    assert speculate(0.8, 4, compute_bound, 0.0).speed_up < 1
    assert break_even_acceptance(4, compute_bound, 0.1) is None


def test_break_even_is_where_cost_and_gain_meet() -> None:
    acceptance = break_even_acceptance(4, memory_bound, 0.1)
    assert acceptance is not None
    assert speculate(acceptance, 4, memory_bound, 0.1).speed_up == pytest.approx(1)
    assert break_even_acceptance(4, memory_bound, 0.0) == 0


def test_the_best_length_grows_with_the_acceptance() -> None:
    short = best_draft_length(0.4, memory_bound, 0.1)
    long = best_draft_length(0.9, memory_bound, 0.1)
    assert short.draft_tokens < long.draft_tokens
    rates = [speculate(0.9, k, memory_bound, 0.1).speed_up for k in range(1, 17)]
    assert long.speed_up == max(rates)


def test_the_outlook_keeps_the_times_it_rests_on() -> None:
    outlook = look_ahead(
        "tiny", memory_bound, 0.1, draft_tokens=4, acceptances=(0.5, 0.9),
        context_tokens=0, basis="test",
    )  # fmt: skip
    assert [row.acceptance for row in outlook.chosen] == [0.5, 0.9]
    assert all(b.speed_up >= c.speed_up for b, c in zip(outlook.best, outlook.chosen, strict=True))
    assert (outlook.target_seconds, outlook.pass_seconds, outlook.draft_seconds) == (1, 1, 0.1)


@pytest.mark.parametrize(("acceptance", "k"), [(-0.1, 4), (1.1, 4), (0.5, 0), (0.5, 1000)])
def test_impossible_settings_are_refused(acceptance: float, k: int) -> None:
    with pytest.raises(UsageError):
        expected_tokens(acceptance, k)
