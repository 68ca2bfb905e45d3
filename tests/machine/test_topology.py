"""cpubound.machine.topology: CPUs, cores, packages and nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import CPU, NODE, FakeMachine, build_server

from cpubound.machine.cpuinfo import read_cpuinfo
from cpubound.machine.topology import Topology, read_numa_nodes, read_topology
from cpubound.machine.values import NumaNode


def read(fake: FakeMachine) -> Topology:
    return read_topology(fake.root, read_cpuinfo(fake.root))


def nodes_of(fake: FakeMachine, memory_bytes: int | None = None) -> tuple[NumaNode, ...]:
    return read_numa_nodes(fake.root, read(fake), memory_bytes)


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


def test_nodes_without_cpus_or_memory_are_listed(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=1, cores=2, threads=1)
    fake.add_node(0, [0, 1], 0)
    fake.add_node(8, [], 1024)
    fake.write(f"{NODE}/has_cpu", "0")
    assert nodes_of(fake) == (
        NumaNode(id=0, cpus=(0, 1), memory_bytes=0),
        NumaNode(id=8, cpus=(), memory_bytes=2**20),
    )


def test_a_node_mask_without_a_list_is_read_and_cut_to_real_cpus(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("0-1")
    fake.write(f"{NODE}/node0/cpumap", "ffffffff")
    assert nodes_of(fake)[0].cpus == (0, 1)


def test_a_node_that_claims_the_cpus_of_another_is_left_out(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)  # a firmware that lists every CPU in every node
    fake.set_cpus("0-3")
    fake.add_node(0, range(4), 2048)
    fake.add_node(1, range(4), 1024)
    fake.add_node(2, [], 4096)
    assert [node.id for node in nodes_of(fake)] == [0, 2]


def test_the_memory_of_graphics_cards_is_no_node(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("0")
    fake.add_node(0, [0], 2048)
    fake.add_node(255, [], 2048)
    fake.write("/proc/driver/nvidia/gpus/0004:04:00.0/numa_status", "Node: 255\nNUMA: online")
    assert [node.id for node in nodes_of(fake)] == [0]


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


def test_a_kernel_without_numa_has_one_node_with_everything(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("0-1")
    assert nodes_of(fake, 123) == (NumaNode(id=0, cpus=(0, 1), memory_bytes=123),)
