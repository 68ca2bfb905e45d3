from __future__ import annotations

from collections.abc import Sequence

import pytest
from builders import build_machine
from fake_bench import FakeLab

from cpubound.kernels.values import Measurement
from cpubound.machine.values import Cache, Machine
from cpubound.measuring.core_stage import (
    CoreFindings,
    CoreInstruments,
    measure_cores,
    name_levels,
)
from cpubound.profile.values import WorkingSetPoint
from cpubound.units import KIB, MIB

# A made-up hierarchy: capacity, bytes per second, seconds of a load.
LEVELS = (
    (32 * KIB, 200e9, 1e-9),
    (MIB, 120e9, 4e-9),
    (32 * MIB, 80e9, 20e-9),
    (2**60, 25e9, 100e-9),
)


def level_at(size: int) -> tuple[int, float, float]:
    return next(level for level in LEVELS if size <= level[0])


def sweep(kernel: str, sizes: Sequence[int], rounds: int, isa: str | None) -> list[Measurement]:
    found = []
    for size in sizes:
        _, rate, latency = level_at(size)
        lines = max(1, size // 64)
        seconds = size / rate if kernel == "read" else latency * lines
        found.append(
            Measurement(
                kernel=kernel,
                isa="portable",
                threads=1,
                cpus=(0,),
                page_kind="anon_2m",
                working_set_bytes=size,
                bytes_per_pass=size,
                units_per_thread=lines,
                samples_s=(seconds * 1.1, seconds),
            )
        )
    return found


def with_caches(*sizes: int | None) -> Machine:
    return build_machine(
        2,
        caches=tuple(
            Cache(level=n, type="data" if n == 1 else "unified", size_bytes=size, instances=1)
            for n, size in enumerate(sizes, 1)
        ),
    )


def measure(lab: FakeLab, seconds: float = 100.0, sizes_per_octave: int = 1) -> CoreFindings:
    return measure_cores(
        with_caches(32 * KIB, MIB, 32 * MIB),
        (1, 2),
        open_bench=lab.open,
        instruments=CoreInstruments(sweep=sweep, peak_kernels=("peak_fp32",), clock_step_s=2e-8),
        largest_bytes=256 * MIB,
        sizes_per_octave=sizes_per_octave,
        read_isa="avx2",
        seconds=seconds,
        progress=lambda stage, done: None,
        clock=lab.clock,
    )


def points() -> tuple[WorkingSetPoint, ...]:
    return tuple(
        WorkingSetPoint(
            working_set_bytes=2**n, bytes_per_s=level_at(2**n)[1], latency_s=level_at(2**n)[2]
        )
        for n in range(13, 29)
    )


def test_levels_have_the_capacity_bandwidth_and_latency_that_made_them() -> None:
    levels = measure(FakeLab(bytes_per_s={1: 1e9, 2: 2e9})).levels
    assert [level.level for level in levels] == [1, 2, 3, 0]
    assert [level.size_bytes for level in levels] == [32 * KIB, MIB, 32 * MIB, None]
    for level, (capacity, rate, latency) in zip(levels, LEVELS, strict=True):
        assert level.bytes_per_s == pytest.approx(rate)
        assert level.latency_s == pytest.approx(latency)
        if level.capacity_bytes is not None:
            assert capacity / 2 < level.capacity_bytes <= capacity


def test_levels_are_numbered_in_order_where_the_system_knows_no_caches() -> None:
    levels = name_levels(points(), build_machine(2))
    assert [level.level for level in levels] == [1, 2, 3, 0]
    assert {level.size_bytes for level in levels} == {None}


def test_a_cache_of_which_only_a_part_is_ours_is_known_by_its_number() -> None:
    """A neighbour holds half of the last cache, and firmware leaves one size out."""
    levels = name_levels(points(), with_caches(32 * KIB, None, 64 * MIB))
    assert [level.level for level in levels] == [1, 2, 3, 0]
    assert [level.size_bytes for level in levels] == [32 * KIB, None, 64 * MIB, None]


def test_too_few_points_are_no_levels() -> None:
    assert name_levels((), build_machine(2)) == ()
    assert name_levels(points()[:1], build_machine(2)) == ()


def test_barriers_and_compute_rates_are_measured_at_every_count() -> None:
    found = measure(FakeLab(bytes_per_s={1: 1e9, 2: 1e9}))
    assert [barrier.threads for barrier in found.barriers] == [1, 2]
    assert found.barriers[0].seconds == pytest.approx(1e-9)
    assert [(p.dtype, p.threads) for p in found.peak] == [("fp32", 1), ("fp32", 2)]
    assert found.peak[1].flops_per_s == pytest.approx(2 * found.peak[0].flops_per_s)
    assert found.timer_resolution_s == 2e-8
    assert found.warnings == ()


def test_when_the_time_is_over_what_is_left_is_said() -> None:
    found = measure(FakeLab(bytes_per_s={1: 1e9, 2: 1e9}, sample_s=1.0), seconds=7.0)
    assert len(found.barriers) + len(found.peak) == 2
    assert "no time left" in found.warnings[0]


def test_a_plan_may_leave_the_levels_out() -> None:
    found = measure(FakeLab(bytes_per_s={1: 1e9, 2: 1e9}), sizes_per_octave=0)
    assert found.levels == found.working_sets == ()
    assert found.barriers


def test_a_refused_kernel_leaves_the_others() -> None:
    found = measure(FakeLab(bytes_per_s={1: 1e9, 2: 1e9}, refuses_pages=("anon_4k",)))
    assert found.barriers == found.peak == ()
    assert found.levels
    assert any("barrier with 1 threads was not measured" in w for w in found.warnings)
