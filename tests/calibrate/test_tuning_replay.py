"""The choice of threads replayed on a made-up series."""

from __future__ import annotations

import pytest
from builders import build_traffic

from calibrate.published import PublishedRow, Series
from calibrate.tuning_replay import groups, replay_group, replay_summary, replay_table
from cpubound.cost.kernel_priors import kernel_priors


def make_series(rates: dict[int, float]) -> Series:
    traffic = build_traffic({"Q4_0": 4 * 10**9})
    rows = tuple(
        PublishedRow(model="m", quant="Q4_0", threads=t, tokens_per_s=rate, traffic=traffic)
        for t, rate in rates.items()
    )
    return Series(name="made up", cpu="CPU", isa="x86", engine="llama.cpp", rows=rows)


def test_only_rows_with_four_thread_counts_are_replayed() -> None:
    assert len(list(groups(make_series({1: 2.0, 2: 4.0, 4: 8.0, 8: 9.0})))) == 1
    assert list(groups(make_series({1: 2.0, 2: 4.0, 4: 8.0}))) == []


def test_the_rows_chosen_among_are_not_in_the_fit() -> None:
    rates = {1: 2.5, 2: 5.0, 4: 8.5, 8: 9.0, 16: 9.0, 32: 9.0}
    series = make_series(rates)
    found = list(replay_group(series, series.rows, kernel_priors("x86")))
    assert [set(r.rates) for r in found] == [{1, 4, 16}, {2, 8, 32}]
    # Absurd rates among the rows chosen among change nothing of the choice.
    absurd = make_series({**rates, 1: 500.0, 4: 500.0, 16: 500.0})
    again = next(replay_group(absurd, absurd.rows, kernel_priors("x86")))
    assert again.chosen == found[0].chosen


def test_a_saturated_series_loses_less_than_all_threads_would() -> None:
    counts = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
    rates = {t: min(4.0 * t, 9.0) for t in counts} | {64: 8.0, 128: 7.0}
    series = make_series(rates)
    found = list(replay_group(series, series.rows, kernel_priors("x86")))
    for replay in found:
        assert replay.chosen < max(replay.rates)
        assert replay.regret < 0.03
    assert found[1].most_threads_regret == pytest.approx(1 - 7.0 / 9.0)
    assert "2 within 3 %" in replay_summary(found)
    assert len(replay_table(found).rows) == 2
