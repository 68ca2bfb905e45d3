from __future__ import annotations

from typing import Any

import msgspec
import pytest
from builders import build_machine
from fake_bench import FakeLab
from fake_machine import build_server

from cpubound.cost.law import find_saturation
from cpubound.errors import MachineError
from cpubound.machine.read import read_linux
from cpubound.machine.values import Cache, CoreKind, Machine, NumaNode
from cpubound.measuring.memory_stage import MemoryFindings, measure_memory
from cpubound.measuring.plan import load_plan
from cpubound.units import GIB, MIB

STANDARD = load_plan("standard")
# A page fault costs a quarter of a microsecond, and opening tries the kernel's variants.
TOUCH_BYTES_PER_S = 0.5e9
SAMPLE_S = 0.012


def measure(
    machine: Machine, lab: FakeLab, plan: str = "standard", **changes: Any
) -> MemoryFindings:
    return measure_memory(
        machine,
        msgspec.structs.replace(load_plan(plan), **changes),
        open_bench=lab.open,
        progress=lambda stage, done: None,
        clock=lab.clock,
    )


def law(thread: float, limit: float, threads: int) -> float:
    return ((thread * threads) ** -3 + limit**-3) ** (-1 / 3)


def genoa(packages: int = 1) -> Machine:
    """A server of 96 cores a package: twelve cache groups of eight cores, two threads each."""
    cores = 96 * packages
    return build_machine(
        2 * cores,
        core_cpus=tuple((n, n + cores) for n in range(cores)),
        physical_cores=cores,
        threads_per_core=2,
        package_cpus=tuple(
            tuple(c + h * cores for h in (0, 1) for c in range(96 * p, 96 * p + 96))
            for p in range(packages)
        ),
        numa_nodes=tuple(
            NumaNode(
                id=p,
                cpus=tuple(c + h * cores for h in (0, 1) for c in range(96 * p, 96 * p + 96)),
                memory_bytes=384 * GIB,
            )
            for p in range(packages)
        ),
        caches=(
            Cache(
                level=3,
                type="unified",
                size_bytes=32 * MIB,
                instances=cores // 8,
                shared_cpus=tuple(
                    tuple(c + h * cores for h in (0, 1) for c in range(8 * g, 8 * g + 8))
                    for g in range(cores // 8)
                ),
            ),
        ),
        memory_bytes=384 * GIB * packages,
        memory_available_bytes=300 * GIB * packages,
    )


def genoa_rate(cpus: tuple[int, ...], cores: int) -> float:
    """Each cache group is good for 60 GB/s, each package for 420; siblings add nothing."""
    used = {cpu % cores for cpu in cpus}
    groups: dict[int, int] = {}
    for core in used:
        groups[core // 8] = groups.get(core // 8, 0) + 1
    by_package: dict[int, float] = {}
    for group, threads in groups.items():
        package = group // 12
        by_package[package] = by_package.get(package, 0.0) + law(25e9, 60e9, threads)
    return sum(law(rate, 420e9, 1) for rate in by_package.values())


@pytest.mark.parametrize("packages", [1, 2])
@pytest.mark.parametrize("plan", ["standard", "quick"])
def test_a_machine_of_many_cores_is_measured_within_a_minute(packages: int, plan: str) -> None:
    machine = genoa(packages)
    lab = FakeLab(
        bytes_per_s=lambda cpus: genoa_rate(cpus, 96 * packages),
        sample_s=SAMPLE_S,
        touch_bytes_per_s=TOUCH_BYTES_PER_S,
    )
    found = measure(machine, lab, plan)
    assert lab.now_s <= 60
    compact = next(s for s in found.saturation if s.kernel == "read" and s.placement == "compact")
    curve = {
        t: genoa_rate(tuple(range(min(t, 96 * packages))), 96 * packages)
        for t in range(1, 192 * packages + 1)
    }
    true = find_saturation(curve)
    assert abs(compact.threads - true) <= 0.07 * true
    assert compact.low is not None
    assert compact.high is not None
    assert compact.low <= compact.threads <= compact.high
    assert len(found.thread_counts) <= 18


def test_spread_threads_saturate_a_machine_of_cache_groups_sooner() -> None:
    lab = FakeLab(
        bytes_per_s=lambda cpus: genoa_rate(cpus, 96),
        sample_s=SAMPLE_S,
        touch_bytes_per_s=TOUCH_BYTES_PER_S,
    )
    found = measure(genoa(), lab)
    knees = {s.placement: s.threads for s in found.saturation if s.kernel == "read"}
    assert knees["spread"] < knees["compact"]
    compact = {m.threads: m for m in found.bandwidth if m.kernel == "read"}
    spread = {m.threads: m for m in found.placements if m.placement == "spread"}
    assert spread[16].median_bytes_per_s > 2 * compact[16].median_bytes_per_s
    assert {m.placement for m in found.placements} == {"spread", "siblings"}


def test_every_kernel_of_the_plan_has_a_knee_on_a_large_machine() -> None:
    lab = FakeLab(bytes_per_s=lambda cpus: genoa_rate(cpus, 96), sample_s=SAMPLE_S)
    found = measure(genoa(), lab)
    assert {s.kernel for s in found.saturation} == set(STANDARD.kernels)
    assert {m.page_kind for m in found.bandwidth if m.kernel == "read"} == {
        "anon_4k",
        "anon_2m",
        "file",
    }
    assert found.warnings == ()


def test_what_there_is_no_time_for_is_left_out_and_said() -> None:
    lab = FakeLab(bytes_per_s=lambda cpus: genoa_rate(cpus, 96), sample_s=0.2)
    found = measure(genoa(), lab, many_core_seconds=5.0)
    assert found.bandwidth
    assert any("no time left to measure" in warning for warning in found.warnings)


def test_small_machines_are_measured_at_every_count_on_every_kind_of_page() -> None:
    lab = FakeLab(bytes_per_s={1: 20e9, 2: 30e9, 3: 36e9, 4: 36.5e9})
    found = measure(build_machine(4), lab, "quick")
    assert found.thread_counts == (1, 2, 3, 4)
    assert len(found.bandwidth) == 12
    assert found.saturation[0].threads == 3
    assert found.placements == found.nodes == ()


def test_the_node_matrix_is_read_from_each_node_in_memory_touched_on_the_other() -> None:
    machine = read_linux(build_server(None, packages=2, cores=2, threads=1).root)
    machine = msgspec.structs.replace(machine, memory_available_bytes=64 * GIB)
    lab = FakeLab(bytes_per_s=lambda cpus: 10e9 * len(cpus))
    found = measure(machine, lab, "quick")
    assert [(m.cpu_node, m.memory_node) for m in found.nodes] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [m.cpus for m in found.nodes] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    assert {row[3] for row in lab.opened} == {None, 0, 2}


def test_fast_and_slow_cores_are_measured_apart() -> None:
    machine = build_machine(
        6,
        core_kinds=(
            CoreKind(kind="performance", cpus=(0, 1)),
            CoreKind(kind="efficiency", cpus=(2, 3, 4, 5)),
        ),
    )
    lab = FakeLab(bytes_per_s=lambda cpus: sum(12e9 if c < 2 else 5e9 for c in cpus))
    found = measure(machine, lab, "quick")
    slow = {m.threads: m for m in found.placements if m.placement == "efficiency"}
    assert slow[1].cpus == (2,)
    assert slow[4].median_bytes_per_s == pytest.approx(20e9)


def test_further_buffers_are_opened_while_one_more_moves_the_estimate() -> None:
    steady = FakeLab(bytes_per_s={1: 20e9, 2: 30e9}, sample_s=SAMPLE_S, touch_bytes_per_s=1e9)
    moving = FakeLab(
        bytes_per_s={1: 20e9, 2: 30e9},
        sample_s=SAMPLE_S,
        touch_bytes_per_s=1e9,
        buffer_factors=(1.0, 0.7, 1.2, 0.8, 1.1, 0.9, 1.3),
    )
    plan = {"kernels": ("read",), "stable_seconds": 3.0}
    measure(build_machine(2), steady, **plan)
    found = measure(build_machine(2), moving, **plan)
    assert len(steady.opened) == STANDARD.bandwidth_buffers * 6
    assert len(moving.opened) > len(steady.opened)
    assert max(map(len, found.buffer_medians)) > STANDARD.bandwidth_buffers


def test_repeating_ends_with_its_time_where_nothing_settles() -> None:
    lab = FakeLab(
        bytes_per_s={1: 20e9},
        sample_s=SAMPLE_S,
        touch_bytes_per_s=1e9,
        buffer_factors=tuple(1 + 0.5 * (n * 37 % 11) / 11 for n in range(97)),
    )
    measure(build_machine(1), lab, kernels=("read",), stable_seconds=5.0)
    assert lab.now_s < 12


def test_a_machine_that_gives_no_file_to_map_is_measured_on_other_pages() -> None:
    lab = FakeLab(bytes_per_s={1: 20e9, 2: 30e9}, refuses_pages=("file",))
    found = measure(build_machine(2), lab, "quick")
    assert {m.page_kind for m in found.bandwidth} == {"anon_4k", "anon_2m"}
    assert any("read on file pages" in warning for warning in found.warnings)


def test_a_machine_that_gives_no_memory_at_all_is_one_error() -> None:
    lab = FakeLab(bytes_per_s={1: 20e9}, refuses_pages=("anon_4k", "anon_2m", "file"))
    with pytest.raises(MachineError, match="the read bandwidth cannot be measured"):
        measure(build_machine(1), lab, "quick")


def test_little_memory_makes_small_buffers_within_its_quarter() -> None:
    lab = FakeLab(bytes_per_s={1: 20e9, 2: 30e9})
    machine = build_machine(
        2, memory_limit_bytes=256 * MIB, memory_available_bytes=200 * MIB, memory_bytes=16 * GIB
    )
    found = measure(machine, lab)
    assert {m.working_set_bytes for m in found.bandwidth} == {50 * MIB}
    assert lab.most_open == 1


def test_refused_pinning_and_other_pages_are_said_once_each() -> None:
    lab = FakeLab(bytes_per_s={1: 20e9, 2: 30e9}, refuses_pinning=True, given_pages="anon_4k")
    warnings = measure(build_machine(2), lab).warnings
    assert sum("could not be pinned" in w for w in warnings) == 1
    assert "anon_2m pages were asked for, anon_4k were given" in warnings


def test_a_cpu_that_goes_offline_meanwhile_is_said_and_the_measurement_goes_on() -> None:
    """Its threads can no longer be pinned when the next buffer is opened."""
    lab = FakeLab(bytes_per_s={1: 20e9, 2: 30e9})

    def unplug(stage: str, done: float) -> None:
        lab.refuses_pinning = True

    found = measure_memory(
        build_machine(2), load_plan("quick"), open_bench=lab.open, progress=unplug, clock=lab.clock
    )
    assert len(found.bandwidth) == 6
    assert any("could not be pinned" in warning for warning in found.warnings)
