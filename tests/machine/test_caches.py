"""cpubound.machine.caches."""

from __future__ import annotations

from pathlib import Path

from fake_machine import CPU, FakeMachine, build_server, topology_of

from cpubound.machine.caches import read_caches
from cpubound.machine.values import Cache


def rows(fake: FakeMachine, cpus: int) -> list[tuple[int, str, int | None, int]]:
    caches = read_caches(fake.root, topology_of(cpus))
    return [(c.level, c.type, c.size_bytes, c.instances) for c in caches]


def test_a_shared_cache_counts_once_and_a_private_one_for_each_core(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=2, cores=2, threads=2)
    assert rows(fake, 8) == [
        (1, "data", 32768, 4),
        (1, "instruction", 32768, 4),
        (3, "unified", 2**25, 2),
    ]


def test_the_cpus_of_each_instance_are_given(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=2, cores=1, threads=2)
    last = read_caches(fake.root, topology_of(4))[-1]
    assert last == Cache(
        level=3, type="unified", size_bytes=2**25, instances=2, shared_cpus=((0, 2), (1, 3))
    )


def test_only_online_cpus_count(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=2, cores=1, threads=1)
    assert [row[3] for row in rows(fake, 1)] == [1, 1, 1]


def test_sizes_that_differ_are_rows_of_their_own_largest_first(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for cpu, size in enumerate(("32K", "48K", "48K")):
        fake.add_cache(cpu, 0, level=1, kind="Data", size=size, shared=[cpu])
    assert rows(fake, 3) == [(1, "data", 49152, 2), (1, "data", 32768, 1)]


def test_a_cache_listed_twice_for_the_same_cpus_counts_once(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)  # VirtualBox
    fake.add_cache(0, 0, level=1, kind="Data", size="32K", shared=[0])
    fake.add_cache(0, 1, level=1, kind="Data", size="32K", shared=[0])
    assert rows(fake, 1) == [(1, "data", 32768, 1)]


def test_a_cache_without_a_size_or_with_size_zero_is_listed_as_unknown(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.add_cache(0, 0, level=1, kind="Data", size=None, shared=[0])
    fake.add_cache(0, 1, level=2, kind="Unified", size="0K", shared=[0])
    assert rows(fake, 1) == [(1, "data", None, 1), (2, "unified", None, 1)]


def test_a_cache_without_a_map_is_private(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for cpu in range(2):
        fake.add_cache(cpu, 0, level=2, kind="Unified", size="1M", shared=None)
    assert rows(fake, 2) == [(2, "unified", 2**20, 2)]


def test_a_gap_in_the_numbering_hides_nothing(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.add_cache(0, 0, level=1, kind="Data", size="32K", shared=[0])
    fake.add_cache(0, 3, level=3, kind="Unified", size="8M", shared=[0])
    assert [row[0] for row in rows(fake, 1)] == [1, 3]


def test_garbled_entries_are_left_out(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.add_cache(0, 0, level=-1, kind="Data", size="32K", shared=[0])
    fake.add_cache(0, 1, level=1, kind="Mystery", size="32K", shared=[0])
    fake.write(f"{CPU}/cpu0/cache/index2/size", "32K")
    assert rows(fake, 1) == []


def test_sparc_writes_sizes_beside_the_topology(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for cpu in range(2):
        fake.write(f"{CPU}/cpu{cpu}/l1_dcache_size", 16384)
        fake.write(f"{CPU}/cpu{cpu}/l2_cache_size", 4194304)
    assert rows(fake, 2) == [(1, "data", 16384, 2), (2, "unified", 4194304, 2)]


def test_a_cache_with_an_empty_map_belongs_to_the_core(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)  # Itanium
    for cpu in range(4):
        fake.add_cache(cpu, 0, level=3, kind="Unified", size="9M", shared=[])
    topology = topology_of(4, cores=((0, 1), (2, 3)))
    assert [cache.instances for cache in read_caches(fake.root, topology)] == [2]
