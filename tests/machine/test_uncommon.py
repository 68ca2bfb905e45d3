"""cpubound.machine: formats of old kernels, other architectures and containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import CPU, FakeMachine, build_server

from cpubound.machine.files import parse_cpu_list
from cpubound.machine.limits import read_limits
from cpubound.machine.modules import EDAC_FOLDER, SMBIOS_ENTRIES, read_memory_modules
from cpubound.machine.power import read_power
from cpubound.machine.read import read_linux

CPUS = frozenset(range(4))


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-14:2", set(range(0, 15, 2))),
        ("0-31:2/8", {0, 1, 8, 9, 16, 17, 24, 25}),
        ("1-3,8-12:4", {1, 2, 3, 8, 12}),
        ("5-5:3", {5}),
        ("0-9:0", None),
        ("0-9:3/2", None),
        ("0-9:1/0", None),
        ("0-9:", None),
        ("4:2", None),
        ("0-99999:2", None),
    ],
)
def test_a_cpu_list_may_have_strides(text: str, cpus: set[int] | None) -> None:
    assert parse_cpu_list(text) == cpus


def test_the_oldest_kernels_say_the_affinity_as_a_mask(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/self/status", "Name: x\nCpus_allowed:\t00000000,0000000a\n")
    assert read_limits(fake.root, CPUS).allowed == {1, 3}


def test_a_container_of_version_1_shows_the_limit_above_it_in_its_statistics(
    tmp_path: Path,
) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup c rw,memory")
    fake.write("/proc/self/cgroup", "4:memory:/docker/abc")
    fake.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    fake.write(
        "/sys/fs/cgroup/memory/memory.stat",
        "cache 1024\nhierarchical_memory_limit 268435456\ntotal_cache 1024",
    )
    assert read_limits(fake.root, CPUS).memory_limit_bytes == 2**28


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


def test_old_amd_kernels_switch_boost_for_each_cpu_under_another_name(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for cpu in CPUS:
        fake.write(f"{CPU}/cpu{cpu}/cpufreq/cpb", 0)
    assert read_power(fake.root, CPUS).boost is False


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


def test_memory_devices_are_read_from_the_files_of_the_dmi_driver(tmp_path: Path) -> None:
    body = bytearray(0x54)
    body[0:4] = bytes((17, 0x54, 0, 0))
    body[0x0A:0x0C] = (64).to_bytes(2, "little")
    body[0x0C:0x0E] = (16 * 1024).to_bytes(2, "little")
    body[0x10], body[0x12] = 1, 0x22
    body[0x15:0x17] = (4800).to_bytes(2, "little")
    body[0x20:0x22] = (4800).to_bytes(2, "little")
    fake = FakeMachine(tmp_path)
    for number, name in enumerate((b"DIMM_A1", b"DIMM_B1")):
        fake.write(f"{SMBIOS_ENTRIES}/17-{number}/raw", bytes(body) + name + b"\0\0")
    modules = read_memory_modules(fake.root)
    assert [(m.locator, m.type, m.size_bytes) for m in modules] == [
        ("DIMM_A1", "DDR5", 2**34),
        ("DIMM_B1", "DDR5", 2**34),
    ]
    assert modules[0].transfers_per_s == 4_800_000_000


def test_kernels_before_3_6_count_rows_of_chips(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write(f"{EDAC_FOLDER}/mc0/csrow0/size_mb", 8192)
    fake.write(f"{EDAC_FOLDER}/mc0/csrow0/mem_type", "Registered-DDR3")
    fake.write(f"{EDAC_FOLDER}/mc0/csrow1/size_mb", 0)
    (module,) = read_memory_modules(fake.root)
    assert (module.type, module.size_bytes, module.channel) == ("DDR3", 2**33, None)


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
