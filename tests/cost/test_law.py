from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from kept import published_rates

from cpubound import stats
from cpubound.cost.law import (
    Law,
    MemoryLaw,
    coarse_counts,
    find_knee,
    find_saturation,
    fit_law,
    next_count,
    rate_with_memory,
    saturate,
)

GB = 1e9
MEMORY = MemoryLaw(limit_bytes_per_s=50.0 * GB, sharpness=3.0)


def law_of(thread: float, limit: float, sharpness: float = 3.0) -> Law:
    return Law(
        thread_bytes_per_s={"read": thread},
        limit_bytes_per_s=limit,
        sharpness=sharpness,
        residual=0.0,
    )


def curve(law: Law, counts: range | tuple[int, ...]) -> dict[int, float]:
    return {count: law.rate("read", count) for count in counts}


def refine(rate: Callable[[int], float], limit: int, *landmarks: int) -> dict[int, float]:
    """Measure a made-up machine as the adaptive plan does."""
    rates = {count: rate(count) for count in coarse_counts(limit, landmarks)}
    while (count := next_count(rates)) is not None:
        assert count not in rates
        rates[count] = rate(count)
    return rates


@pytest.mark.parametrize("sharpness", [1.0, 2.0, 3.0, 6.0])
@pytest.mark.parametrize("thread", [4e9, 12e9])
def test_the_fit_gives_back_the_law_that_made_the_points(thread: float, sharpness: float) -> None:
    made = law_of(thread, 68e9, sharpness)
    found = fit_law({"read": curve(made, (1, 2, 4, 8, 16, 32))})
    assert found.sharpness == pytest.approx(sharpness, rel=0.06)
    assert found.thread_bytes_per_s["read"] == pytest.approx(thread, rel=0.03)
    assert found.limit_bytes_per_s == pytest.approx(68e9, rel=0.03)
    assert found.residual < 0.01


def test_a_curve_without_a_limit_has_none() -> None:
    found = fit_law({"read": {1: 5e9, 2: 10e9, 4: 20e9, 8: 40e9}})
    assert found.rate("read", 16) == pytest.approx(80e9, rel=0.02)


def test_a_flat_curve_is_its_limit_at_every_count() -> None:
    found = fit_law({"read": {1: 30e9, 2: 30e9, 4: 30e9}})
    assert found.rate("read", 3) == pytest.approx(30e9, rel=0.01)
    assert found.rate("read", 64) == pytest.approx(30e9, rel=0.01)


def test_one_count_says_the_rate_of_one_thread_only() -> None:
    found = fit_law({"read": {1: 7e9}})
    assert found.thread_bytes_per_s["read"] == pytest.approx(7e9)
    assert math.isinf(found.limit_bytes_per_s)


def test_a_slow_kernel_lends_the_limit_of_the_fast_one() -> None:
    fast, slow = law_of(20e9, 60e9), law_of(5e9, 60e9)
    found = fit_law({"read": curve(fast, (1, 2, 4, 8)), "gemv": {1: slow.rate("read", 1)}})
    assert found.rate("gemv", 16) == pytest.approx(slow.rate("read", 16), rel=0.04)


@pytest.mark.parametrize("rates", [{}, {1: 0.0}, {1: math.nan}, {0: 1e9}])
def test_points_without_a_rate_are_refused(rates: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        fit_law({"read": rates})


@pytest.mark.parametrize("series", ["S03-quant-x-threads-Zen4", "S03r-quant-x-threads-Zen4-R4"])
def test_eight_quant_types_of_a_published_machine_share_limit_and_sharpness(series: str) -> None:
    curves: dict[str, dict[int, float]] = {}
    for row in published_rates():
        if row["series"] == series and row["tg_tok_s"] and row["file_GiB"]:
            rate = float(row["file_GiB"]) * 2**30 * float(row["tg_tok_s"])
            curves.setdefault(row["quant"], {})[int(row["threads"])] = rate
    assert len(curves) == 8
    found = fit_law(curves)
    assert found.limit_bytes_per_s == pytest.approx(68e9, rel=0.03)
    assert found.sharpness == pytest.approx(3.0, rel=0.2)
    errors = [abs(found.rate(n, t) / r - 1) for n, c in curves.items() for t, r in c.items()]
    assert stats.median(errors) < 0.025
    assert stats.quantile(errors, 0.9) < 0.045


def test_the_knee_is_the_smallest_count_within_three_per_cent_of_the_best() -> None:
    assert find_saturation({1: 20.0, 2: 30.0, 3: 36.0, 4: 36.5}) == 3
    assert find_saturation({1: 20.0, 2: 36.5, 3: 36.0, 4: 30.0}) == 2


def test_quiet_samples_pin_the_knee_down() -> None:
    made = law_of(10e9, 60e9)
    samples = {t: [[made.rate("read", t)] * 4] * 3 for t in range(1, 17)}
    knee = find_knee(samples)
    assert knee.low <= knee.threads <= knee.high
    assert knee.high - knee.low <= 1
    assert knee.threads == find_saturation(curve(made, range(1, 17)))


def test_noise_widens_the_interval_and_it_holds_the_true_knee() -> None:
    made = law_of(10e9, 60e9)
    true = find_saturation(curve(made, range(1, 17)))
    inside = widths = 0
    for seed in range(20):
        order = random.Random(seed)
        samples = {}
        for t in range(1, 17):
            buffers = [order.gauss(1, 0.05) for _ in range(3)]
            samples[t] = [
                [made.rate("read", t) * buffer * order.gauss(1, 0.03) for _ in range(6)]
                for buffer in buffers
            ]
        knee = find_knee(samples, draws=40)
        inside += knee.low <= true <= knee.high
        widths += knee.high - knee.low
    assert inside >= 16
    assert widths > 20


def test_a_curve_that_falls_again_is_judged_by_its_points_not_by_the_law() -> None:
    rates = {1: 10e9, 2: 20e9, 4: 40e9, 8: 80e9, 16: 40e9, 32: 20e9}
    knee = find_knee({t: [[rate] * 3] for t, rate in rates.items()})
    assert (knee.low, knee.threads, knee.high) == (8, 8, 8)


def test_coarse_counts_double_and_take_landmarks_in() -> None:
    assert coarse_counts(1) == (1,)
    assert coarse_counts(6) == (1, 2, 4, 6)
    assert coarse_counts(128) == (1, 2, 4, 8, 16, 32, 64, 128)
    assert coarse_counts(96, (12, 48)) == (1, 2, 4, 8, 12, 16, 32, 48, 64, 96)
    assert coarse_counts(96, (30, 500)) == (1, 2, 4, 8, 16, 30, 64, 96)


@pytest.mark.parametrize("limit", [12, 24, 64, 96, 128, 192, 384, 1024])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("sharpness", [1.5, 3.0, 8.0])
def test_refining_finds_the_knee_of_a_many_core_machine_in_few_measurements(
    limit: int, share: float, sharpness: float
) -> None:
    made = law_of(400e9 / (share * limit), 400e9, sharpness)
    rates = refine(lambda t: made.rate("read", t), limit)
    true = find_saturation(curve(made, range(1, limit + 1)))
    assert abs(find_saturation(rates) - true) <= max(1, 0.07 * true)
    assert len(rates) <= math.log2(limit) + 10


def test_refining_finds_a_best_between_the_coarse_counts() -> None:
    """Past 40 threads the rate falls, as where siblings or slow cores join."""
    rates = refine(lambda t: 5e9 * t if t <= 40 else 200e9 * (40 / t) ** 0.5, 128)
    assert 37 <= find_saturation(rates) <= 44
    assert len(rates) <= 17


def test_refining_a_noisy_curve_ends() -> None:
    made = law_of(10e9, 200e9)
    for seed in range(50):
        order = random.Random(seed)
        rates = refine(lambda t, o=order: made.rate("read", t) * o.uniform(0.8, 1.2), 256)
        assert len(rates) <= 40


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0, 16.0])
@pytest.mark.parametrize("factor", [0.5, 1.5, 4.0])
def test_a_rate_follows_the_law_of_threads_when_memory_changes(
    sharpness: float, factor: float
) -> None:
    cores, limit = 60.0 * GB, 50.0 * GB

    def law_of_threads(memory: float) -> float:
        return float((cores**-sharpness + memory**-sharpness) ** (-1 / sharpness))

    law = MemoryLaw(limit_bytes_per_s=limit, sharpness=sharpness)
    faster = rate_with_memory(law_of_threads(limit), factor, law)
    assert faster == pytest.approx(law_of_threads(factor * limit), rel=1e-9)


def test_a_rate_at_the_limit_scales_with_memory_and_one_far_below_does_not() -> None:
    assert rate_with_memory(50.0 * GB, 2.0, MEMORY) == pytest.approx(100.0 * GB)
    assert rate_with_memory(70.0 * GB, 2.0, MEMORY) == pytest.approx(140.0 * GB)
    assert rate_with_memory(5.0 * GB, 2.0, MEMORY) == pytest.approx(5.0 * GB, rel=1e-3)


def test_without_a_limit_in_sight_a_rate_stays_what_it_is() -> None:
    law = MemoryLaw(limit_bytes_per_s=math.inf, sharpness=3.0)
    assert rate_with_memory(50.0 * GB, 2.0, law) == 50.0 * GB


@pytest.mark.parametrize("sharpness", [0.5, 3.0, 16.0])
@pytest.mark.parametrize("alone", [1e-3, 1e9, 1e10, 1e15])
def test_shared_memory_never_gives_more_than_either_bound(alone: float, sharpness: float) -> None:
    shared = float(saturate(alone, 1e10, sharpness))
    assert 0 < shared <= min(alone, 1e10)
    assert shared == pytest.approx(law_of(alone, 1e10, sharpness).rate("read", 1))
    if alone == 1e10:
        assert shared == pytest.approx(1e10 * 2 ** (-1 / sharpness))
