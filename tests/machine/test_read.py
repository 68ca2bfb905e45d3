"""cpubound.machine.read: whole machines, against what lscpu and hwloc say of the same files."""

from __future__ import annotations

import os
import platform
import random
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from fake_machine import FakeMachine, build_server, read_archive
from kept import EXPECTED_MACHINES, TOPOLOGIES

from cpubound.errors import UsageError
from cpubound.machine.read import read_linux, read_machine
from cpubound.machine.values import Machine
from cpubound.units import format_binary_bytes


def read_cpus(mask: str) -> tuple[int, ...]:
    bits = int(mask.replace("0x", "").replace(",", ""), 16)
    return tuple(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


@pytest.fixture(scope="module")
def machines() -> dict[str, Machine]:
    paths = {name: TOPOLOGIES / f"{name}.tar.xz" for name in EXPECTED_MACHINES}
    return {name: read_linux(read_archive(path)) for name, path in paths.items()}


@pytest.mark.parametrize("name", EXPECTED_MACHINES)
def test_a_snapshot_agrees_with_hwloc(machines: dict[str, Machine], name: str) -> None:
    machine, hwloc = machines[name], EXPECTED_MACHINES[name]["hwloc"]
    counts = {
        "PU": len(machine.online_cpus),
        "Core": machine.physical_cores,
        "Package": machine.packages,
        "NUMANode": len(machine.numa_nodes),
    }
    for cache in machine.caches:
        if cache.type != "instruction":
            key = f"L{cache.level}Cache"
            counts[key] = (counts.get(key) or 0) + cache.instances
    expected = {key: value for key, value in hwloc.items() if key not in ("allowed", "online")}
    assert counts == expected
    assert machine.online_cpus == read_cpus(hwloc["online"])
    assert machine.allowed_cpus == read_cpus(hwloc["allowed"])


@pytest.mark.parametrize(
    "name", [name for name in EXPECTED_MACHINES if "lscpu" in EXPECTED_MACHINES[name]]
)
def test_a_snapshot_agrees_with_lscpu(machines: dict[str, Machine], name: str) -> None:
    machine, lscpu = machines[name], EXPECTED_MACHINES[name]["lscpu"]
    sockets = int(lscpu["Socket(s)"])
    assert len(machine.logical_cpus) == int(lscpu["CPU(s)"])
    assert machine.threads_per_core == int(lscpu["Thread(s) per core"])
    assert machine.physical_cores == int(lscpu["Core(s) per socket"]) * sockets
    assert machine.packages == sockets
    assert machine.cpu_model == lscpu["Model name"]
    assert machine.hypervisor == lscpu.get("Hypervisor vendor")
    if "NUMA node(s)" in lscpu:
        assert len(machine.numa_nodes) == int(lscpu["NUMA node(s)"])
    letters = {"data": "d", "instruction": "i", "unified": ""}
    for key in (key for key in lscpu if key.endswith(" cache")):
        rows = [c for c in machine.caches if f"L{c.level}{letters[c.type]} cache" == key]
        total = format_binary_bytes(sum((c.size_bytes or 0) * c.instances for c in rows))
        count = sum(c.instances for c in rows)
        assert f"{total} ({count} instance{'s' * (count > 1)})" == lscpu[key]


def test_the_hybrid_snapshot_has_six_fast_cores_and_eight_slow_ones(
    machines: dict[str, Machine],
) -> None:
    machine = machines["20em64t-hybrid-1p6c2t+2ca4co1t"]
    assert [(kind.kind, kind.cpus) for kind in machine.core_kinds] == [
        ("performance", tuple(range(12))),
        ("efficiency", tuple(range(12, 20))),
    ]
    assert machine.performance_cpus == tuple(range(12))


def test_a_cpuset_of_six_makes_six_effective_cpus(machines: dict[str, Machine]) -> None:
    assert machines["32amd64-4s2n4c-cgroup2"].effective_cpus == 6


@pytest.mark.parametrize("name", ["2arm-2c", "vbox-win"])
def test_a_snapshot_unpacked_on_disk_is_read_alike(
    machines: dict[str, Machine], tmp_path: Path, name: str
) -> None:
    with tarfile.open(TOPOLOGIES / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="tar")
    assert read_machine(tmp_path / name) == machines[name]


def test_every_machine_survives_being_written_and_read(tmp_path: Path) -> None:
    machine = read_machine(build_server(tmp_path, packages=2, cores=2, threads=2).folder)
    assert msgspec.json.decode(msgspec.json.encode(machine), type=Machine) == machine


def test_a_snapshot_of_1024_cpus_is_described() -> None:
    machine = read_linux(build_server(None, packages=4, cores=128, threads=2).root)
    assert len(machine.online_cpus) == machine.effective_cpus == 1024
    assert (machine.physical_cores, machine.packages, machine.threads_per_core) == (512, 4, 2)
    assert machine.last_level_cache_bytes == 4 * 2**25
    assert machine.memory_bytes == 4 * 64 * 2**30


def test_a_machine_without_sysfs_is_described_by_its_cpuinfo(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write_cpuinfo(
        [
            {"processor": cpu, "model name": "unknown", "physical id": 0, "core id": cpu,
             "flags": "fpu tsc lm avx2"}
            for cpu in range(2)
        ]
    )  # fmt: skip
    machine = read_machine(tmp_path)
    assert machine.online_cpus == machine.allowed_cpus == (0, 1)
    assert (machine.physical_cores, machine.packages, machine.effective_cpus) == (2, 1, 2)
    assert machine.architecture == "x86_64"
    assert machine.caches == ()
    assert machine.memory_bytes is None
    assert [node.cpus for node in machine.numa_nodes] == [(0, 1)]


def test_an_empty_snapshot_has_one_cpu_and_nothing_else(tmp_path: Path) -> None:
    machine = read_machine(FakeMachine(tmp_path).folder)
    assert machine.online_cpus == (0,)
    assert machine.effective_cpus == 1
    assert machine.physical_cores is machine.cpu_model is None


def test_a_snapshot_never_shows_the_machine_it_is_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(*arguments: Any) -> Any:
        raise AssertionError("asked the running machine")

    for module, name in ((os, "sched_getaffinity"), (os, "cpu_count"), (os, "sysconf"),
                         (platform, "machine"), (psutil, "virtual_memory")):  # fmt: skip
        monkeypatch.setattr(module, name, forbid, raising=False)
    read_machine(build_server(tmp_path, packages=1, cores=2, threads=1).folder)


GARBAGE = (
    b"", b"\0", b"-1", b"0", b"9" * 30, b"0-16383", b"0-99999999", b"ffffffff," * 400, b"\xff\xfe",
    b"nan", b"max max", b"5000 -5", b"A" * 5000, b":::", b"0::/../..\n1:cpu:/", b"cpu a b c d",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_a_machine_whose_files_are_garbled_is_still_described(tmp_path: Path, seed: int) -> None:
    fake = build_server(tmp_path, packages=2, cores=2, threads=2)
    fake.write("/proc/self/mountinfo", "25 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    for path in ("/proc/self/cgroup", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"):
        fake.write(path)
    for name in ("cpu.max", "memory.max", "cpuset.cpus.effective", "cpu.stat"):
        fake.write(f"/sys/fs/cgroup/{name}")
    dice = random.Random(seed)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for path in dice.sample(files, dice.choice([2, 20, len(files)])):
        path.write_bytes(dice.choice(GARBAGE))
    machine = read_machine(tmp_path)
    assert machine.effective_cpus >= 1
    assert set(machine.allowed_cpus) <= set(machine.online_cpus) <= set(machine.logical_cpus)
    assert msgspec.json.decode(msgspec.json.encode(machine), type=Machine) == machine


@pytest.mark.parametrize("make", ["missing", "file", "empty"])
def test_a_sysroot_that_is_none_is_a_usage_error(tmp_path: Path, make: str) -> None:
    path = tmp_path / make
    if make == "file":
        path.write_text("")
    elif make == "empty":
        path.mkdir()
    with pytest.raises(UsageError, match=str(path)):
        read_machine(path)


@pytest.mark.skipif(platform.system() != "Linux", reason="needs Linux")
def test_this_machine_agrees_with_psutil_and_the_kernel() -> None:
    machine = read_machine()
    assert len(machine.online_cpus) == psutil.cpu_count(logical=True)
    assert set(machine.allowed_cpus) == os.sched_getaffinity(0)
    assert machine.memory_bytes == psutil.virtual_memory().total
    assert 1 <= machine.effective_cpus <= len(machine.allowed_cpus)
    assert sorted(cpu for core in machine.core_cpus for cpu in core) in (
        [],
        list(machine.online_cpus),
    )
