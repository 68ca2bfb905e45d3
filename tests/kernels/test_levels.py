"""Levels of the memory hierarchy are found in a sweep, and only where they are."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from cpubound.errors import UsageError
from cpubound.kernels.clock import measure_clock_step
from cpubound.kernels.levels import find_levels, sweep_working_sets, working_set_sizes
from cpubound.units import KIB, MIB

SIZES = working_set_sizes(8 * KIB, 256 * MIB)

# A desktop's read bandwidth by level: 32 KiB, 1 MiB and 32 MiB of cache, then memory.
CAPACITIES = (32 * KIB, 1 * MIB, 32 * MIB)
RATES = (200e9, 110e9, 70e9, 25e9)


def staircase(size: int) -> float:
    return RATES[sum(size > capacity for capacity in CAPACITIES)]


def rates_of(levels) -> list[float]:
    return [level.value for level in levels]


def test_sizes_are_geometric_and_keep_both_ends() -> None:
    assert SIZES[0] == 8 * KIB
    assert SIZES[-1] == 256 * MIB
    assert all(1.3 < b / a < 1.6 for a, b in pairwise(SIZES))
    assert all(size % 64 == 0 for size in SIZES)
    assert working_set_sizes(4096, 4096) == (4096,)


@pytest.mark.parametrize("bad", [(0, 10, 2), (20, 10, 2), (1, 10, 0)])
def test_sizes_that_make_no_sweep_are_refused(bad: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match="no sizes between"):
        working_set_sizes(*bad)


def test_a_staircase_gives_its_steps_with_their_capacities() -> None:
    levels = find_levels(SIZES, [staircase(size) for size in SIZES])
    assert rates_of(levels) == list(RATES)
    for level, capacity in zip(levels[:-1], CAPACITIES, strict=True):
        assert capacity / 1.5 < level.largest_bytes <= capacity
    assert levels[0].smallest_bytes == SIZES[0]
    assert levels[-1].largest_bytes == SIZES[-1]


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_some_percent_moves_no_level(seed: int) -> None:
    noise = random.Random(seed)
    values = [staircase(size) * (1 - 0.04 * noise.random()) for size in SIZES]
    assert rates_of(find_levels(SIZES, values)) == pytest.approx(RATES, rel=0.05)


def test_latency_rises_from_level_to_level() -> None:
    values = [1 / staircase(size) for size in SIZES]
    assert rates_of(find_levels(SIZES, values)) == pytest.approx([1 / rate for rate in RATES])


def test_the_slope_between_two_levels_is_no_level() -> None:
    values = [100.0] * 8 + [70.0, 50.0, 35.0] + [25.0] * 8
    levels = find_levels(SIZES[: len(values)], values)
    assert rates_of(levels) == [100.0, 25.0]


def test_a_dent_in_a_level_does_not_cut_it_in_two() -> None:
    values = [100.0] * 6 + [60.0] + [100.0] * 6
    levels = find_levels(SIZES[: len(values)], values)
    assert [(level.smallest_bytes, level.largest_bytes) for level in levels] == [
        (SIZES[0], SIZES[len(values) - 1])
    ]


def test_what_is_alike_everywhere_is_one_level() -> None:
    assert rates_of(find_levels(SIZES, [30e9] * len(SIZES))) == [30e9]
    assert rates_of(find_levels(SIZES[:1], [30e9])) == [30e9]


def test_a_sweep_that_lacks_a_value_is_refused() -> None:
    with pytest.raises(UsageError, match="2 sizes, 1 values"):
        find_levels([64, 128], [1.0])
    with pytest.raises(UsageError, match="above zero"):
        find_levels([64], [0.0])


@pytest.mark.parametrize("kernel", ["read", "latency"])
def test_a_sweep_measures_every_size_and_keeps_every_sample(kernel: str) -> None:
    sizes = (8 * KIB, 16 * KIB, 64 * KIB)
    measured = sweep_working_sets(kernel, sizes, rounds=2, isa="portable")
    assert [m.working_set_bytes for m in measured] == list(sizes)
    assert {m.kernel for m in measured} == {kernel}
    assert all(len(m.samples_s) >= 4 for m in measured)
    assert all(sample > 0 for m in measured for sample in m.samples_s)


def test_the_clock_of_the_kernels_tells_short_times_apart() -> None:
    assert 0 < measure_clock_step() < 1e-3
