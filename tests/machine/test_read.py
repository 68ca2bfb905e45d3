"""cpubound.machine.read: whole machines, against what lscpu and hwloc say of the same files."""

from __future__ import annotations

import os
import platform
import random
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest
from fake_machine import CPU, FakeMachine, build_server, read_archive
from kept import EXPECTED_MACHINES, TOPOLOGIES

from cpubound.errors import UsageError
from cpubound.machine.read import read_linux, read_machine, read_portable
from cpubound.machine.values import Machine
from cpubound.units import format_binary_bytes

GARBAGE = (
    b"", b"\0", b"-1", b"0", b"9" * 30, b"0-16383", b"0-99999999", b"ffffffff," * 400, b"\xff\xfe",
    b"nan", b"max max", b"5000 -5", b"A" * 5000, b":::", b"0::/../..\n1:cpu:/", b"cpu a b c d",
)  # fmt: skip


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


def test_a_quota_of_half_a_cpu_leaves_one_effective_cpu(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=1, cores=4, threads=1)
    fake.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory")
    fake.write("/sys/fs/cgroup/cpu.max", "50000 100000")
    fake.write("/sys/fs/cgroup/memory.max", 2**28)
    machine = read_linux(fake.root)
    assert (machine.quota_cpus, machine.effective_cpus) == (0.5, 1)
    assert machine.usable_memory_bytes == 2**28


def test_both_versions_of_cgroups_side_by_side_both_count(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=1, cores=4, threads=1)
    fake.write(
        "/proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    )
    fake.write("/proc/self/cgroup", "3:cpuset:/job\n1:cpu:/a/b\n0::/slice\n")
    fake.write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", 150_000)
    fake.write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", 100_000)
    fake.write("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", -1)
    fake.write("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", 100_000)
    fake.write("/sys/fs/cgroup/cpuset/job/cpuset.cpus", "1-3")
    fake.write("/sys/fs/cgroup/unified/slice/memory.max", 2**30)
    machine = read_linux(fake.root)
    assert machine.allowed_cpus == (1, 2, 3)
    assert (machine.quota_cpus, machine.effective_cpus) == (1.5, 1)
    assert machine.memory_limit_bytes == 2**30


def test_clocks_are_read_from_policies_where_the_links_to_them_are_lost(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=1, cores=4, threads=1)
    for number, cpus, khz in ((0, "0 1", 4_800_000), (2, "2 3", 2_400_000)):
        folder = f"{CPU}/cpufreq/policy{number}"
        fake.write(f"{folder}/related_cpus", cpus)
        fake.write(f"{folder}/cpuinfo_max_freq", khz)
        fake.write(f"{folder}/scaling_governor", "powersave")
    machine = read_linux(fake.root)
    assert [(k.kind, k.cpus, k.max_khz) for k in machine.core_kinds] == [
        ("performance", (0, 1), 4_800_000),
        ("efficiency", (2, 3), 2_400_000),
    ]
    assert machine.governor == "powersave"


def test_new_riscv_kernels_tell_the_extensions_of_each_hart(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write_cpuinfo(
        [
            {"processor": n, "hart": n, "isa": "rv64imafdc", "mmu": "sv39",
             "uarch": "sophgo,sg2042", "hart isa": "rv64imafdcv_zfh"}
            for n in range(2)
        ]
    )  # fmt: skip
    machine = read_linux(fake.root)
    assert machine.architecture == "riscv64"
    assert set(machine.isa_flags) == {"v", "zfh"}
    assert machine.cpu_model == "sophgo,sg2042"


def test_a_virtual_machine_of_one_socket_for_each_cpu_is_described_as_it_says(
    tmp_path: Path,
) -> None:
    machine = read_linux(build_server(tmp_path, packages=8, cores=1, threads=1).root)
    assert (machine.packages, machine.physical_cores, machine.threads_per_core) == (8, 8, 1)
    assert machine.effective_cpus == 8


def test_a_container_whose_sysfs_is_masked_has_what_proc_tells(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.make_folder("/sys/devices/system/cpu")
    fake.write_cpuinfo([{"processor": n, "model name": "Some CPU"} for n in range(4)])
    fake.write("/proc/self/status", "Cpus_allowed_list:\t0-1\n")
    fake.write("/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 524288 kB")
    machine = read_linux(fake.root)
    assert machine.online_cpus == (0, 1, 2, 3)
    assert machine.effective_cpus == 2
    assert machine.physical_cores is None
    assert machine.memory_bytes == 2**30


def refuse(*arguments: Any, **names: Any) -> Any:
    raise NotImplementedError("not on this platform")


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 12)
    monkeypatch.setattr(psutil.Process, "cpu_affinity", refuse, raising=False)
    return monkeypatch


def test_what_psutil_gives_is_taken_and_the_rest_is_unknown(macos: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total=2**35, available=2**34)
    macos.setattr(psutil, "virtual_memory", lambda: memory)
    machine = read_machine()
    assert machine.operating_system == "Darwin"
    assert machine.architecture == "arm64"
    assert machine.allowed_cpus == machine.online_cpus == tuple(range(12))
    assert (machine.physical_cores, machine.threads_per_core) == (12, 1)
    assert (machine.memory_bytes, machine.memory_available_bytes) == (2**35, 2**34)
    assert machine.effective_cpus == 12
    assert machine.packages is machine.quota_cpus is machine.governor is None
    assert machine.caches == machine.core_kinds == ()


def test_an_affinity_that_the_platform_tells_is_heeded(macos: pytest.MonkeyPatch) -> None:
    macos.setattr(psutil.Process, "cpu_affinity", lambda self: [1, 3], raising=False)
    machine = read_portable()
    assert machine.allowed_cpus == (1, 3)
    assert machine.effective_cpus == 2


def test_a_psutil_that_refuses_everything_breaks_nothing(macos: pytest.MonkeyPatch) -> None:
    macos.setattr(psutil, "cpu_count", lambda logical=True: None)
    macos.setattr(psutil, "virtual_memory", refuse)
    macos.setattr(psutil, "sensors_battery", refuse, raising=False)
    machine = read_portable()
    assert machine.online_cpus == (0,)
    assert machine.memory_bytes is machine.on_battery is machine.physical_cores is None


@pytest.mark.parametrize("plugged", [True, False])
def test_the_battery_is_asked(macos: pytest.MonkeyPatch, plugged: bool) -> None:
    battery = SimpleNamespace(power_plugged=plugged)
    macos.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert read_portable().on_battery is not plugged
