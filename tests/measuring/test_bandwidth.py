from __future__ import annotations

from contextlib import ExitStack

import pytest
from fake_bench import FakeLab

from cpubound.measuring.bandwidth import (
    BandwidthCell,
    BandwidthRun,
    measure_bandwidth,
    open_references,
)
from cpubound.measuring.buffers import MIN_WORKING_SET_BYTES, working_set_bytes
from cpubound.units import GIB, MIB

RATES = {1: 20e9, 2: 30e9, 4: 33e9}
CELLS = [
    BandwidthCell(
        kernel="read",
        threads=t,
        page_kind=kind,
        cpus=tuple(range(t)),
        working_set_bytes=128 * MIB,
    )
    for kind in ("anon_4k", "anon_2m")
    for t in RATES
]


def measure(
    lab: FakeLab, *, memory_bytes: int, rounds: int = 5, buffers: int = 1, seconds: float = 1000
) -> BandwidthRun:
    return measure_bandwidth(
        CELLS,
        open_bench=lab.open,
        memory_bytes=memory_bytes,
        rounds=rounds,
        buffers=buffers,
        seconds=seconds,
        progress=lambda stage, done: None,
    )


def test_every_cell_gets_every_round_and_keeps_every_sample() -> None:
    lab = FakeLab(bytes_per_s=RATES)
    run = measure(lab, memory_bytes=10 * GIB)
    found = [cell.measurement for cell in run.cells]
    assert [cell.cell for cell in run.cells] == CELLS
    assert all(len(m.samples_s) == 5 for m in found)
    assert found[1].median_bytes_per_s == pytest.approx(30e9)
    assert len(run.order) == 30


def test_the_rounds_are_shared_among_equal_buffers_whose_samples_all_count() -> None:
    lab = FakeLab(bytes_per_s=RATES, buffer_factors=(1.0, 0.7, 0.9))
    run = measure(lab, memory_bytes=10 * GIB, rounds=8, buffers=3)
    cell = run.cells[0]
    assert [len(rates) for rates in cell.buffer_rates] == [3, 3, 2]
    assert cell.buffer_rates[1][0] == pytest.approx(14e9)
    assert len(cell.measurement.samples_s) == 8
    assert cell.measurement.median_bytes_per_s == pytest.approx(18e9)


def test_a_page_kind_the_system_refuses_is_said_and_the_others_are_measured() -> None:
    lab = FakeLab(bytes_per_s=RATES, refuses_pages=("anon_2m",))
    run = measure(lab, memory_bytes=10 * GIB)
    measured = {cell.cell.page_kind for cell in run.cells if cell.buffers}
    assert measured == {"anon_4k"}
    assert len(run.failures) == 3
    assert "read on anon_2m pages with 4 threads was not measured" in run.failures[2]


def test_each_round_visits_all_cells_once_in_changing_order() -> None:
    lab = FakeLab(bytes_per_s=RATES)
    measure(lab, memory_bytes=10 * GIB)
    rounds = [tuple(lab.order[n : n + 6]) for n in range(0, 30, 6)]
    assert all(len(set(visited)) == 6 for visited in rounds)
    assert len(set(rounds)) > 1


def test_no_more_buffers_are_open_than_the_memory_allows() -> None:
    lab = FakeLab(bytes_per_s=RATES)
    run = measure(lab, memory_bytes=300 * MIB)
    assert lab.most_open == 2
    assert all(cell.buffers for cell in run.cells)


def test_when_the_time_is_over_two_rounds_are_done_all_the_same() -> None:
    lab = FakeLab(bytes_per_s=RATES)
    run = measure(lab, memory_bytes=GIB, rounds=50, buffers=3, seconds=-1)
    assert all(len(cell.measurement.samples_s) == 2 for cell in run.cells)


def test_buffers_are_freed_when_interrupted() -> None:
    lab = FakeLab(bytes_per_s=RATES, interrupt_after=7)
    with pytest.raises(KeyboardInterrupt):
        measure(lab, memory_bytes=10 * GIB)
    assert lab.now_open == 0


@pytest.mark.parametrize(
    ("cache", "available", "expected"),
    [
        (32 * MIB, 16 * GIB, 128 * MIB),
        (256 * MIB, 64 * GIB, GIB),
        (256 * MIB, 256 * MIB, 64 * MIB),
        (None, None, MIN_WORKING_SET_BYTES),
        (None, 0, MIB),
    ],
)
def test_the_working_set_is_four_caches_within_a_quarter_of_the_memory(
    cache: int | None, available: int | None, expected: int
) -> None:
    assert working_set_bytes(cache, available, MIN_WORKING_SET_BYTES) == expected


def test_the_reference_takes_the_nearest_thread_count_and_keeps_its_samples() -> None:
    lab = FakeLab(bytes_per_s=RATES)
    with ExitStack() as stack:
        reference = open_references(stack, CELLS[:3], open_bench=lab.open)
        assert reference(2) == pytest.approx(30e9)
        assert reference(64) == pytest.approx(33e9)
        assert reference.relative_samples() == pytest.approx((1.0, 1.0))
