"""cpubound.machine.memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import FakeMachine

from cpubound.machine.files import Root
from cpubound.machine.memory import read_load_average, read_memory, read_steal_fraction

MEMINFO = """\
MemTotal:       32489496 kB
MemFree:        28118332 kB
MemAvailable:   28934524 kB
HugePages_Total:      12
HugePages_Free:       10
Hugepagesize:       2048 kB
"""


def test_meminfo_is_in_kibibytes(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/meminfo", MEMINFO)
    memory = read_memory(fake.root, "x86_64")
    assert memory.total_bytes == 32489496 * 1024
    assert memory.available_bytes == 28934524 * 1024
    assert memory.huge_page_size_bytes == 2**21
    assert (memory.huge_pages_total, memory.huge_pages_free) == (12, 10)


def test_without_meminfo_the_nodes_are_added_up(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.add_node(0, [0], 1024)
    fake.add_node(1, [], 2048)
    fake.add_node(2, [], None)
    assert read_memory(fake.root, "x86_64").total_bytes == 3 * 2**20


def test_nothing_known_is_none(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/meminfo", "MemTotal: lots")
    memory = read_memory(fake.root, "aarch64")
    assert memory.total_bytes is memory.available_bytes is memory.page_size_bytes is None
    assert memory.transparent_huge_pages is None


@pytest.mark.parametrize("mode", ["always", "madvise", "never"])
def test_the_mode_of_transparent_huge_pages_stands_in_brackets(tmp_path: Path, mode: str) -> None:
    fake = FakeMachine(tmp_path)
    modes = "always madvise never".replace(mode, f"[{mode}]")
    fake.write("/sys/kernel/mm/transparent_hugepage/enabled", modes)
    assert read_memory(fake.root, "x86_64").transparent_huge_pages == mode


def test_the_page_size_of_a_snapshot_is_noted_or_follows_from_the_architecture(
    tmp_path: Path,
) -> None:
    fake = FakeMachine(tmp_path)
    assert read_memory(fake.root, "x86_64").page_size_bytes == 4096
    fake.write("/proc/hwloc-nofile-info", "PageSize: 65536")
    assert read_memory(fake.root, "ppc64").page_size_bytes == 65536


def test_the_live_page_size_is_a_power_of_two() -> None:
    size = read_memory(Root(), "x86_64").page_size_bytes
    assert size is not None
    assert size >= 4096
    assert size & (size - 1) == 0


def test_steal_is_the_eighth_of_the_cpu_times(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/stat", "cpu  10 0 10 70 0 0 0 10 3 0\ncpu0 1 2 3 4 5 6 7 8")
    assert read_steal_fraction(fake.root) == 0.1


@pytest.mark.parametrize("line", ["cpu  1 2 3", "cpu", "", "intr 5", "cpu 0 0 0 0 0 0 0 0"])
def test_a_kernel_that_does_not_count_steal_leaves_it_unknown(tmp_path: Path, line: str) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/stat", line)
    assert read_steal_fraction(fake.root) is None


@pytest.mark.parametrize(
    ("text", "load"), [("1.36 0.9 0.5 1/99 7", 1.36), ("nan", None), ("", None)]
)
def test_the_load_of_the_last_minute_comes_first(
    tmp_path: Path, text: str, load: float | None
) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/loadavg", text)
    assert read_load_average(fake.root) == load
