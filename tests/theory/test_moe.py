"""Experts that a batch touches."""

from __future__ import annotations

import math
import random

import pytest

from cpubound.errors import UsageError
from cpubound.theory.moe import ExpertWeights, experts_touched


def test_one_token_touches_the_experts_it_uses_and_a_large_batch_all() -> None:
    assert experts_touched(128, 8, 1) == pytest.approx(8)
    assert experts_touched(128, 8, 64) == pytest.approx(125.9, abs=0.05)
    assert experts_touched(128, 8, math.inf) == 128


def test_the_formula_agrees_with_drawing_experts_at_random() -> None:
    chance = random.Random(7)
    trials = [
        len({expert for _ in range(8) for expert in chance.sample(range(64), 6)})
        for _ in range(2000)
    ]
    assert experts_touched(64, 6, 8) == pytest.approx(sum(trials) / len(trials), rel=0.01)


def test_bytes_of_experts_start_at_the_share_used() -> None:
    weights = ExpertWeights(all_bytes=64e9, share_used=1 / 16)
    assert weights.bytes_at(1) == pytest.approx(4e9)
    assert weights.bytes_at(10_000) == pytest.approx(64e9)


@pytest.mark.parametrize(("experts", "used", "batch"), [(0, 1, 1), (8, 9, 1), (8, 0, 1), (8, 2, 0)])
def test_impossible_mixtures_are_refused(experts: float, used: float, batch: float) -> None:
    with pytest.raises(UsageError):
        experts_touched(experts, used, batch)
