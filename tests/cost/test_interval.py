"""cpubound.cost.interval: how wide nine tenths of the runs lie."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubound import stats
from cpubound.cost.interval import (
    DEEP_TOKENS,
    NORMAL_90,
    FormErrors,
    read_form_errors,
    read_table,
    seconds_interval,
)

NONE = FormErrors(faster=0.0, slower=0.0)
SHARE = st.floats(0, 3)


def test_without_any_error_the_interval_is_the_prediction() -> None:
    assert seconds_interval(2.0, 0.0, 0.0, NONE) == (2.0, 2.0)
    assert seconds_interval(0.0, 0.5, 0.5, NONE) == (0.0, 0.0)


def test_each_error_alone_has_its_width() -> None:
    form = FormErrors(faster=0.1, slower=0.3)
    assert seconds_interval(1.0, 0.0, 0.0, form) == pytest.approx(
        (math.exp(-NORMAL_90 * 0.1), math.exp(NORMAL_90 * 0.3))
    )
    assert seconds_interval(1.0, 0.2, 0.0, NONE)[1] == pytest.approx(math.exp(NORMAL_90 * 0.2))


def test_halves_of_normal_samples_tell_the_spread_of_one_of_them() -> None:
    """The median distance of two halves gives back the deviation that made them."""
    order = random.Random(3)
    distances = [abs(order.gauss(0, 0.05) - order.gauss(0, 0.05)) for _ in range(4000)]
    low, high = seconds_interval(1.0, 0.0, stats.median(distances), NONE)
    assert math.log(high) == pytest.approx(NORMAL_90 * 0.05, rel=0.06)
    assert low == pytest.approx(1 / high)


@given(seconds=st.floats(1e-9, 1e4), rates=SHARE, halves=SHARE, faster=SHARE, slower=SHARE)
def test_the_prediction_lies_inside_and_no_time_reaches_zero(
    seconds: float, rates: float, halves: float, faster: float, slower: float
) -> None:
    low, high = seconds_interval(seconds, rates, halves, FormErrors(faster=faster, slower=slower))
    assert 0 < low <= seconds * (1 + 1e-12)
    assert seconds * (1 - 1e-12) <= high < math.inf


@pytest.mark.parametrize("basis", ["engine", "kernel"])
def test_the_shipped_table_knows_every_case(basis: str) -> None:
    for threads, depth in itertools.product((1, 2, 64), (0, DEEP_TOKENS - 1, DEEP_TOKENS, 10**6)):
        found = read_form_errors(basis, threads, depth)
        assert 0 < found.faster < 1
        assert 0 < found.slower < 1


def test_threads_and_depth_choose_the_row() -> None:
    table = read_table()["engine"]
    assert read_form_errors("engine", 1, 0) == table["one_thread"]["shallow"]
    assert read_form_errors("engine", 2, DEEP_TOKENS - 1) == table["several_threads"]["shallow"]
    assert read_form_errors("engine", 2, DEEP_TOKENS) == table["several_threads"]["deep"]
