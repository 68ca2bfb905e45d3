from __future__ import annotations

import pytest
from builders import build_machine

from cpubound.machine.values import Cache, CoreKind
from cpubound.measuring.threads import placement, thread_counts


def test_small_machines_are_measured_at_every_count() -> None:
    assert thread_counts(build_machine(6)) == (1, 2, 3, 4, 5, 6)


def test_counts_above_eight_double_until_the_knee_is_looked_for() -> None:
    assert thread_counts(build_machine(64)) == (1, 2, 4, 8, 16, 32, 64)


def test_the_quota_caps_the_counts() -> None:
    machine = build_machine(16, quota_cpus=2.5, effective_cpus=2)
    assert thread_counts(machine) == (1, 2)


def test_the_cores_of_a_cache_group_a_package_and_a_core_kind_are_always_counts() -> None:
    cores = tuple((2 * n, 2 * n + 1) for n in range(24))
    groups = tuple(tuple(range(start, start + 24)) for start in (0, 24))
    machine = build_machine(
        48,
        core_cpus=cores,
        physical_cores=24,
        package_cpus=(tuple(range(48)),),
        caches=(
            Cache(level=3, type="unified", size_bytes=1 << 25, instances=2, shared_cpus=groups),
        ),
        core_kinds=(
            CoreKind(kind="performance", cpus=tuple(range(34))),
            CoreKind(kind="efficiency", cpus=tuple(range(34, 48))),
        ),
    )
    assert {12, 24, 17, 7, 48} <= set(thread_counts(machine))


def test_threads_go_to_cores_first_and_to_siblings_last() -> None:
    machine = build_machine(4, core_cpus=((0, 2), (1, 3)))
    assert placement(machine, 2) == (0, 1)
    assert placement(machine, 4) == (0, 1, 2, 3)


def test_fast_cores_come_first() -> None:
    machine = build_machine(
        4,
        core_kinds=(
            CoreKind(kind="efficiency", cpus=(0, 1), max_khz=2_000_000),
            CoreKind(kind="performance", cpus=(2, 3), max_khz=4_000_000),
        ),
    )
    assert placement(machine, 2) == (2, 3)


def test_only_allowed_cpus_are_used() -> None:
    machine = build_machine(8, allowed_cpus=(3, 5))
    assert placement(machine, 2) == (3, 5)


def test_more_threads_than_allowed_cpus_are_not_pinned() -> None:
    assert placement(build_machine(2), 3) is None


@pytest.mark.parametrize("cpus", [1, 2, 9, 128, 1024])
def test_counts_are_sorted_unique_and_reach_both_ends(cpus: int) -> None:
    counts = thread_counts(build_machine(cpus))
    assert counts == tuple(sorted(set(counts)))
    assert counts[0] == 1
    assert counts[-1] == cpus
