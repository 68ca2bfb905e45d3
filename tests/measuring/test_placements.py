from __future__ import annotations

import pytest
from builders import build_machine
from fake_machine import build_server, read_archive
from kept import EXPECTED_MACHINES, TOPOLOGIES

from cpubound.machine.read import read_linux
from cpubound.machine.values import Cache, CoreKind, Machine, NumaNode
from cpubound.measuring.placements import (
    allowed_cores,
    cache_groups,
    landmark_counts,
    list_placements,
    plan_node_pairs,
    plan_teams,
    reachable_cache_bytes,
)
from cpubound.measuring.threads import thread_counts
from cpubound.units import MIB


def last_level(*groups: tuple[int, ...]) -> tuple[Cache, ...]:
    return (
        Cache(
            level=3,
            type="unified",
            size_bytes=32 * MIB,
            instances=len(groups),
            shared_cpus=groups,
        ),
    )


def ccx_machine() -> Machine:
    """One package, two cache groups of four cores, two threads each (CPU n and n + 8)."""
    return build_machine(
        16,
        core_cpus=tuple((n, n + 8) for n in range(8)),
        threads_per_core=2,
        physical_cores=8,
        caches=last_level((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
    )


def hybrid_machine() -> Machine:
    """Six fast cores of two threads (0-11) and eight slow ones (12-19) under one cache."""
    return build_machine(
        20,
        core_cpus=(
            *((n, n + 1) for n in range(0, 12, 2)),
            *((n,) for n in range(12, 20)),
        ),
        core_kinds=(
            CoreKind(kind="performance", cpus=tuple(range(12)), max_khz=4_700_000),
            CoreKind(kind="efficiency", cpus=tuple(range(12, 20)), max_khz=3_500_000),
        ),
        caches=last_level(tuple(range(20))),
    )


def two_sockets() -> Machine:
    """Two packages of 32 cores and two threads, numbered as firmware does."""
    return read_linux(build_server(None, packages=2, cores=32, threads=2).root)


def named(machine: Machine) -> dict[str, tuple[int, ...]]:
    return {placement.name: placement.order for placement in list_placements(machine)}


def test_a_plain_machine_has_one_placement_and_nothing_beside_its_curve() -> None:
    machine = build_machine(4)
    assert named(machine) == {"compact": (0, 1, 2, 3)}
    assert plan_teams(machine, (1, 2, 3, 4)) == ()
    assert plan_node_pairs(machine) == ()


def test_compact_fills_a_cache_group_before_the_next_and_spread_takes_turns() -> None:
    orders = named(ccx_machine())
    assert orders["compact"][:8] == (0, 1, 2, 3, 4, 5, 6, 7)
    assert orders["spread"][:8] == (0, 4, 1, 5, 2, 6, 3, 7)
    assert orders["siblings"][:4] == (0, 8, 1, 9)


def test_siblings_are_measured_on_one_core_and_on_one_cache_group() -> None:
    teams = [t for t in plan_teams(ccx_machine(), range(1, 17)) if t.placement == "siblings"]
    assert [team.cpus for team in teams] == [(0, 8), (0, 8, 1, 9, 2, 10, 3, 11)]


def test_fast_and_slow_cores_are_measured_apart_and_together() -> None:
    machine = hybrid_machine()
    orders = named(machine)
    assert orders["performance"] == (0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11)
    assert orders["efficiency"] == tuple(range(12, 20))
    assert orders["compact"][:14] == (0, 2, 4, 6, 8, 10, *range(12, 20))
    assert "spread" not in orders
    teams = plan_teams(machine, thread_counts(machine))
    sizes = {(team.placement, len(team.cpus)) for team in teams}
    assert {("performance", 12), ("efficiency", 8), ("efficiency", 1)} <= sizes
    # Six fast cores are the beginning of the main curve, fourteen cores a point of it.
    assert ("performance", 6) not in sizes
    assert 14 in thread_counts(machine)


def test_interleaved_numbers_do_not_make_a_compact_team_straddle_nodes() -> None:
    even, odd = (0, 2, 4, 6), (1, 3, 5, 7)
    machine = build_machine(
        8,
        package_cpus=(even, odd),
        numa_nodes=(NumaNode(id=0, cpus=even), NumaNode(id=1, cpus=odd)),
        caches=last_level(even, odd),
    )
    orders = named(machine)
    assert orders["compact"] == (*even, *odd)
    assert orders["spread"] == (0, 1, 2, 3, 4, 5, 6, 7)


def test_spread_takes_turns_over_nodes_first_and_over_cache_groups_within_each() -> None:
    machine = build_machine(
        8,
        numa_nodes=(NumaNode(id=0, cpus=(0, 1, 2, 3)), NumaNode(id=1, cpus=(4, 5, 6, 7))),
        caches=last_level((0, 1), (2, 3), (4, 5), (6, 7)),
    )
    assert named(machine)["spread"] == (0, 4, 2, 6, 1, 5, 3, 7)


def test_the_node_matrix_reads_every_node_from_every_node() -> None:
    pairs = plan_node_pairs(two_sockets())
    assert [(p.cpu_node, p.memory_node) for p in pairs] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(len(pair.cpus) == 32 for pair in pairs)
    assert pairs[1].touch_cpu == 32
    assert set(pairs[2].cpus) == set(range(32, 64))


def test_nodes_without_cpus_or_without_memory_own_no_memory_to_read() -> None:
    machine = build_machine(
        4,
        numa_nodes=(
            NumaNode(id=0, cpus=(0, 1), memory_bytes=2**30),
            NumaNode(id=1, cpus=(2, 3), memory_bytes=0),
            NumaNode(id=8, cpus=(), memory_bytes=2**34),
        ),
    )
    pairs = plan_node_pairs(machine)
    assert [(p.cpu_node, p.memory_node) for p in pairs] == [(0, 0), (1, 0)]


def test_many_nodes_are_measured_alone_and_from_the_first_unless_thorough() -> None:
    nodes = tuple(NumaNode(id=n, cpus=(2 * n, 2 * n + 1)) for n in range(8))
    machine = build_machine(16, numa_nodes=nodes)
    assert len(plan_node_pairs(machine)) == 8 + 7
    assert len(plan_node_pairs(machine, thorough=True)) == 64


def test_a_cpuset_leaves_only_its_cpus_in_every_plan() -> None:
    machine = build_machine(
        16,
        allowed_cpus=(2, 3, 10, 13),
        effective_cpus=4,
        core_cpus=tuple((n, n + 8) for n in range(8)),
        caches=last_level((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
    )
    assert set(allowed_cores(machine)) == {(2, 10), (3,), (13,)}
    for placement in list_placements(machine):
        assert set(placement.order) == {2, 3, 10, 13}
    for team in plan_teams(machine, (1, 2, 3, 4)):
        assert set(team.cpus) <= {2, 3, 10, 13}


def test_no_team_is_larger_than_what_a_quota_lets_run() -> None:
    machine = build_machine(
        16, quota_cpus=2.0, effective_cpus=2, core_cpus=tuple((n, n + 8) for n in range(8))
    )
    assert all(len(team.cpus) <= 2 for team in plan_teams(machine, (1, 2)))


def test_a_buffer_must_exceed_the_caches_its_threads_can_fill() -> None:
    machine = ccx_machine()
    assert len(cache_groups(machine)) == 2
    assert reachable_cache_bytes(machine, (0,)) == 32 * MIB
    assert reachable_cache_bytes(machine, (0, 1, 9)) == 32 * MIB
    assert reachable_cache_bytes(machine, (0, 4)) == 64 * MIB
    assert reachable_cache_bytes(machine, None) == 64 * MIB
    assert reachable_cache_bytes(build_machine(2), (0,)) is None


def test_landmarks_are_the_cores_of_every_group() -> None:
    assert landmark_counts(two_sockets()) == (32, 64)
    assert landmark_counts(ccx_machine()) == (4, 8)
    assert set(landmark_counts(hybrid_machine())) == {6, 8, 14}


def check_plans(machine: Machine) -> None:
    allowed = set(machine.allowed_cpus)
    counts = thread_counts(machine)
    assert counts[0] == 1
    assert counts[-1] == machine.effective_cpus
    compact = list_placements(machine)[0].order
    assert sorted(compact) == sorted(allowed)
    teams = plan_teams(machine, counts)
    assert len({frozenset(team.cpus) for team in teams}) == len(teams)
    for team in teams:
        assert 1 <= len(team.cpus) == len(set(team.cpus)) <= machine.effective_cpus
        assert set(team.cpus) <= allowed
    for pair in plan_node_pairs(machine, thorough=True):
        assert pair.cpus
        assert set(pair.cpus) <= allowed
        assert pair.touch_cpu in allowed


@pytest.mark.parametrize("name", EXPECTED_MACHINES)
def test_every_snapshot_can_be_planned(name: str) -> None:
    check_plans(read_linux(read_archive(TOPOLOGIES / f"{name}.tar.xz")))


@pytest.mark.parametrize(
    "machine",
    [
        build_machine(1),
        build_machine(2, allowed_cpus=(1,), effective_cpus=1),
        build_machine(4, core_cpus=(), physical_cores=None, packages=None),
        build_machine(4, package_cpus=((0,), (1,), (2,), (3,)), packages=4),
        build_machine(1024),
        ccx_machine(),
        hybrid_machine(),
        two_sockets(),
    ],
    ids=["one", "cpuset", "no sysfs", "lying sysfs", "1024", "ccx", "hybrid", "two sockets"],
)
def test_every_kind_of_machine_can_be_planned(machine: Machine) -> None:
    check_plans(machine)
