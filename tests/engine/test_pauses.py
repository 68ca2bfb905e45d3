"""The pauses of a CPU quota are time: by the counters of the scheduler, never by a clock."""

from __future__ import annotations

import pytest

from cpubound.engine.pauses import PAUSED_SHARE, PauseCounter, pause_warnings, usual_seconds


def quota_run(quota: float, step_s: float, steps: int) -> tuple[list[float], float]:
    """Decode one step after another under a quota as CFS gives it: time of each, share paused.

    One thread uses up the quota of a period, and stands still until the next one.
    """
    period_s = 0.1
    slice_s, now, used, periods = quota * period_s, 0.0, 0.0, 0
    times = []
    for _ in range(steps):
        start, left = now, step_s
        while left > 1e-12:
            run = min(left, slice_s - used)
            now, used, left = now + run, used + run, left - run
            if used >= slice_s - 1e-12:
                periods, used = periods + 1, 0.0
                now = periods * period_s
        times.append(now - start)
    return times, 1.0 if periods else 0.0


@pytest.mark.parametrize("quota", [0.1, 0.25, 0.5, 0.9])
def test_under_a_quota_the_seconds_of_a_token_are_those_of_the_clock(quota: float) -> None:
    times, share = quota_run(quota, 0.001, 5000)
    assert usual_seconds(times, share) == pytest.approx(0.001 / quota, rel=0.02)
    assert usual_seconds(times, 0.0) == pytest.approx(0.001)  # what the median says


def test_without_pauses_the_seconds_are_the_median() -> None:
    assert usual_seconds([1.0, 1.0, 10.0], 0.0) == 1.0
    assert usual_seconds([1.0, 1.0, 10.0], PAUSED_SHARE / 2) == 1.0
    assert usual_seconds([1.0, 1.0, 10.0], PAUSED_SHARE) == 4.0


def test_the_share_is_of_the_periods_since_counting_began() -> None:
    counts = iter([(100, 90), (200, 140)])
    assert PauseCounter(lambda: next(counts)).share() == 0.5


@pytest.mark.parametrize(
    "counts",
    [[(None, None), (5, 5)], [(5, 5), (None, None)], [(5, 5), (5, 5)], [(9, 9), (1, 1)]],
)
def test_counters_that_say_nothing_are_no_pauses(
    counts: list[tuple[int | None, int | None]],
) -> None:
    reads = iter(counts)
    assert PauseCounter(lambda: next(reads)).share() == 0.0


def test_that_speeds_are_by_the_clock_is_said() -> None:
    assert pause_warnings(0.0) == ()
    assert "50% of the scheduler periods" in pause_warnings(0.5)[0]
