"""cpubound.machine.topology: CPUs, cores, packages, kinds of cores and caches."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import CPU, FakeMachine, build_server, topology_of

from cpubound.machine.cpu import read_cpuinfo
from cpubound.machine.topology import (
    Topology,
    read_caches,
    read_core_kinds,
    read_topology,
)
from cpubound.machine.values import Cache, CoreKind


def read(fake: FakeMachine) -> Topology:
    return read_topology(fake.root, read_cpuinfo(fake.root))


@pytest.mark.parametrize("lists", [True, False], ids=["lists and masks", "only masks"])
def test_a_server_has_its_cores_packages_and_threads(tmp_path: Path, lists: bool) -> None:
    topology = read(build_server(tmp_path, packages=2, cores=4, threads=2, lists=lists))
    assert topology.online == topology.present == frozenset(range(16))
    assert len(topology.cores) == 8
    assert topology.packages == (
        frozenset({0, 1, 2, 3, 8, 9, 10, 11}),
        frozenset({4, 5, 6, 7, 12, 13, 14, 15}),
    )
    assert topology.threads_per_core == 2
    assert frozenset({1, 9}) in topology.cores


def test_new_kernels_name_the_sets_core_cpus_and_package_cpus(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("0-3")
    for cpu in range(4):
        pair = {cpu & 2, cpu | 1}
        fake.add_cpu(cpu, siblings=pair, package_cpus=range(4), old_names=False)
    assert read(fake).cores == (frozenset({0, 1}), frozenset({2, 3}))
    assert len(read(fake).packages) == 1


def test_lists_without_masks_are_enough(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("0-1")
    for cpu in range(2):
        fake.add_cpu(cpu, siblings=[0, 1], package_cpus=[0, 1], masks=False)
    assert read(fake).threads_per_core == 2


def test_an_offline_cpu_counts_as_logical_only(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=1, cores=2, threads=2)
    fake.set_cpus("0-2", present="0-3")
    topology = read(fake)
    assert topology.present == {0, 1, 2, 3}
    assert topology.cores == (frozenset({0, 2}), frozenset({1}))
    assert topology.threads_per_core == 2


def test_a_core_whose_cpus_are_all_offline_is_not_counted(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=2, cores=1, threads=1)
    fake.set_cpus("0", present="0-1")
    assert len(read(fake).cores) == len(read(fake).packages) == 1


def test_without_lists_the_switch_of_each_cpu_says_whether_it_is_online(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for cpu in range(4):
        fake.add_cpu(cpu, siblings=[cpu], package_cpus=range(4))
    fake.write(f"{CPU}/cpu1/online", 1)
    fake.write(f"{CPU}/cpu2/online", 0)
    fake.write(f"{CPU}/cpu3/online", 1)
    topology = read(fake)
    assert topology.present == {0, 1, 2, 3}
    assert topology.online == {0, 1, 3}


def test_a_snapshot_of_some_cpus_has_only_those_online(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=1, cores=2, threads=1)
    fake.set_cpus("0-39")
    assert read(fake).online == {0, 1}
    assert len(read(fake).present) == 40


def test_sparse_cpu_numbers_are_kept(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("6-7,10-11,1000")
    for cpu in (6, 7, 10, 11, 1000):
        fake.add_cpu(cpu, siblings=[cpu], package_cpus=[cpu], width=1024)
    topology = read(fake)
    assert topology.online == {6, 7, 10, 11, 1000}
    assert len(topology.packages) == 5


def test_packages_without_a_number_are_told_by_their_sets(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)  # POWER7: every package is -1
    fake.set_cpus("0-7")
    for cpu in range(8):
        core = range(cpu & 4, (cpu & 4) + 4)
        fake.add_cpu(cpu, siblings=core, package_cpus=core, core_id=cpu & 4, package_id=-1)
    assert len(read(fake).packages) == 2
    assert read(fake).threads_per_core == 4


def test_two_halves_with_one_package_number_are_one_package(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)  # cluster-on-die on old kernels
    fake.set_cpus("0-3")
    for cpu in range(4):
        half = range(cpu & 2, (cpu & 2) + 2)
        fake.add_cpu(cpu, siblings=[cpu], package_cpus=half, package_id=0)
    assert read(fake).packages == (frozenset(range(4)),)


def test_s390_numbers_the_packages_of_each_book_anew(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("0-1")
    for cpu in range(2):
        fake.add_cpu(cpu, siblings=[cpu], package_cpus=[cpu], package_id=0)
        fake.write(f"{CPU}/cpu{cpu}/topology/book_id", cpu)
    assert len(read(fake).packages) == 2


def test_s390_says_its_threads_itself(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("0")
    fake.add_cpu(0, siblings=[0], package_cpus=[0])
    fake.write("/proc/cpuinfo", "vendor_id : IBM/S390\nmax thread id : 1\n")
    assert read(fake).threads_per_core == 2


def test_without_topology_folders_the_identifiers_in_cpuinfo_are_used(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write_cpuinfo(
        [{"processor": cpu, "physical id": cpu // 4, "core id": cpu // 2 % 2} for cpu in range(8)]
    )
    topology = read(fake)
    assert topology.online == frozenset(range(8))
    assert len(topology.packages) == 2
    assert len(topology.cores) == 4
    assert topology.threads_per_core == 2


def test_a_cpuinfo_that_only_counts_leaves_the_cores_unknown(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)  # gVisor on Arm: no sysfs, no identifiers
    fake.write_cpuinfo([{"processor": cpu} for cpu in range(3)])
    topology = read(fake)
    assert topology.online == {0, 1, 2}
    assert topology.cores == topology.packages == ()
    assert topology.threads_per_core is None


def test_proc_stat_counts_cpus_when_nothing_else_does(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/stat", "cpu  1 2 3\ncpu0 1\ncpu3 1\nintr 5")
    assert read(fake).online == {0, 3}


def test_garbled_sets_leave_each_cpu_alone_and_never_twice(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("0-3")
    fake.write(f"{CPU}/cpu0/topology/thread_siblings", "zzz")
    fake.add_cpu(1, siblings=[1, 2])
    fake.add_cpu(2, siblings=[2, 3])
    fake.add_cpu(3, siblings=[0])
    cores = read(fake).cores
    assert sorted(cpu for core in cores for cpu in core) == [0, 1, 2, 3]


def test_a_cpu_without_a_topology_folder_is_a_core_of_its_own_in_no_package(
    tmp_path: Path,
) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("0-2")
    for cpu in range(2):
        fake.add_cpu(cpu, siblings=[0, 1], package_cpus=[0, 1])
    fake.write(f"{CPU}/cpu2/uevent")
    topology = read(fake)
    assert topology.cores == (frozenset({0, 1}), frozenset({2}))
    assert topology.packages == (frozenset({0, 1}),)


def test_the_first_cpus_of_a_machine_may_be_offline(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=2, cores=4, threads=1)
    fake.set_cpus("2-6", present="0-7")
    topology = read(fake)
    assert [sorted(package) for package in topology.packages] == [[2, 3], [4, 5, 6]]
    assert len(topology.cores) == 5


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


def kinds_of(fake: FakeMachine, cpus: int) -> tuple[CoreKind, ...]:
    online = frozenset(range(cpus))
    caches = read_caches(fake.root, topology_of(cpus))
    return read_core_kinds(fake.root, read_cpuinfo(fake.root), online, caches)


def names_of(fake: FakeMachine, cpus: int) -> list[tuple[str, tuple[int, ...]]]:
    return [(kind.kind, kind.cpus) for kind in kinds_of(fake, cpus)]


def set_speeds(fake: FakeMachine, *khz: int) -> None:
    for cpu, value in enumerate(khz):
        fake.write(f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq", value)


def test_without_any_difference_cores_are_uniform(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    assert kinds_of(fake, 2) == (CoreKind(kind="uniform", cpus=(0, 1)),)
    set_speeds(fake, 5_000_000, 5_000_000)
    assert kinds_of(fake, 2) == (CoreKind(kind="uniform", cpus=(0, 1), max_khz=5_000_000),)


def test_favoured_cores_of_one_kind_are_not_a_kind_of_their_own(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    set_speeds(fake, 5_000_000, 5_200_000, 4_900_000, 4_600_000)
    assert [name for name, _ in names_of(fake, 4)] == ["uniform"]


def test_the_kernel_tells_intels_kinds_by_their_counters(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/sys/devices/cpu_core/cpus", "0-1")
    fake.write("/sys/devices/cpu_atom/cpus", "2-3")
    assert names_of(fake, 4) == [("performance", (0, 1)), ("efficiency", (2, 3))]


def test_counters_of_one_kind_only_or_of_some_cpus_tell_nothing(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/sys/devices/cpu_core/cpus", "0-1")
    assert [name for name, _ in names_of(fake, 2)] == ["uniform"]
    fake.write("/sys/devices/cpu_atom/cpus", "2")
    assert [name for name, _ in names_of(fake, 4)] == ["uniform"]


def test_the_scheduler_knows_the_capacity_of_arm_cores(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for cpu, capacity in enumerate([410, 410, 780, 780, 1024]):
        fake.write(f"{CPU}/cpu{cpu}/cpu_capacity", capacity)
    set_speeds(fake, 2_000_000, 2_000_000, 2_800_000, 2_800_000, 3_200_000)
    assert kinds_of(fake, 5) == (
        CoreKind(kind="performance", cpus=(4,), max_khz=3_200_000),
        CoreKind(kind="performance", cpus=(2, 3), max_khz=2_800_000),
        CoreKind(kind="efficiency", cpus=(0, 1), max_khz=2_000_000),
    )


def test_equal_capacities_are_one_kind(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for cpu in range(2):
        fake.write(f"{CPU}/cpu{cpu}/cpu_capacity", 1024)
    assert [name for name, _ in names_of(fake, 2)] == ["uniform"]


def test_arm_part_numbers_tell_little_cores(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)  # a Raspberry-like board without capacities
    parts = ["0xd05", "0xd05", "0xd0b"]
    fake.write_cpuinfo(
        [{"processor": n, "CPU implementer": "0x41", "CPU part": p} for n, p in enumerate(parts)]
    )
    assert names_of(fake, 3) == [("performance", (2,)), ("efficiency", (0, 1))]


def test_two_large_arm_parts_are_told_apart_by_their_speed(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    parts = ["0xd81", "0xd82"]
    fake.write_cpuinfo(
        [{"processor": n, "CPU implementer": "0x41", "CPU part": p} for n, p in enumerate(parts)]
    )
    set_speeds(fake, 2_000_000, 3_300_000)
    assert names_of(fake, 2) == [("performance", (1,)), ("efficiency", (0,))]


def test_a_smaller_first_cache_and_a_lower_clock_mark_efficiency_cores(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for cpu, size in enumerate(["48K", "32K"]):
        fake.add_cache(cpu, 0, level=1, kind="Data", size=size, shared=[cpu])
    set_speeds(fake, 5_500_000, 4_900_000)
    assert names_of(fake, 2) == [("performance", (0,)), ("efficiency", (1,))]


def test_a_smaller_first_cache_alone_marks_nothing(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for cpu, size in enumerate(["48K", "32K"]):
        fake.add_cache(cpu, 0, level=1, kind="Data", size=size, shared=[cpu])
    set_speeds(fake, 5_000_000, 5_000_000)
    assert [name for name, _ in names_of(fake, 2)] == ["uniform"]


def test_a_much_lower_clock_alone_marks_efficiency_cores(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)  # Zen 4 and Zen 4c: same caches, same threads
    set_speeds(fake, 5_100_000, 4_900_000, 3_500_000, 3_500_000)
    assert names_of(fake, 4) == [("performance", (0, 1)), ("efficiency", (2, 3))]


def test_a_clock_that_some_cpus_lack_tells_nothing(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    set_speeds(fake, 5_000_000)
    assert kinds_of(fake, 2) == (CoreKind(kind="uniform", cpus=(0, 1), max_khz=5_000_000),)
