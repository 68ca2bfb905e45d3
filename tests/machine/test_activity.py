"""cpubound.machine.activity."""

from __future__ import annotations

import mmap
import os
import platform
from pathlib import Path

import pytest
from fake_machine import CPU, FakeMachine

from cpubound.machine.activity import Activity, read_activity
from cpubound.machine.files import Root

CPUS = frozenset({0, 1})


def test_nothing_known_is_none(tmp_path: Path) -> None:
    assert read_activity(FakeMachine(tmp_path).root, CPUS) == Activity()


def test_idle_and_stolen_time_are_not_busy_and_guests_count_once(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/stat", "cpu  100 20 30 800 50 5 15 40 60 7\ncpu0 1 1 1 1 1 1 1 1 0 0")
    activity = read_activity(fake.root, CPUS)
    assert activity.busy_s == pytest.approx(1.70)
    assert activity.steal_s == pytest.approx(0.40)
    assert activity.total_s == pytest.approx(10.60)


@pytest.mark.parametrize("text", ["", "cpu", "cpu a b c d", "intr 5", "cpu 1 2 3"])
def test_a_garbled_stat_tells_nothing(tmp_path: Path, text: str) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/stat", text)
    assert read_activity(fake.root, CPUS).busy_s is None


def test_a_stat_of_an_old_kernel_has_no_stolen_time(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/stat", "cpu  100 0 100 800")
    activity = read_activity(fake.root, CPUS)
    assert activity.steal_s is None
    assert activity.busy_s == pytest.approx(2.0)


def test_heat_clock_quota_and_load_are_read(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for cpu in CPUS:
        fake.write(f"{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count", 3)
        fake.write(f"{CPU}/cpu{cpu}/cpufreq/scaling_cur_freq", 2_000_000 + cpu * 1_000_000)
    fake.write("/proc/loadavg", "1.50 1.0 1.0 1/200 300")
    fake.write("/sys/fs/cgroup/cgroup.controllers", "cpu")
    fake.write("/sys/fs/cgroup/cpu.stat", "usage_usec 5\nnr_periods 10\nnr_throttled 4")
    activity = read_activity(fake.root, CPUS)
    assert activity.throttle_events == 6
    assert activity.mean_khz == 2_500_000
    assert activity.load_average == 1.5
    assert activity.throttled_periods == 4


@pytest.mark.skipif(platform.system() != "Linux", reason="needs Linux")
def test_this_process_uses_cpu_time_and_faults_pages() -> None:
    before = read_activity(Root(), frozenset(os.sched_getaffinity(0)))
    # Memory of its own: an allocator's may have been touched before.
    with mmap.mmap(-1, os.sysconf("SC_PAGE_SIZE") * 500) as memory:
        memory[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * 500
    after = read_activity(Root(), frozenset(os.sched_getaffinity(0)))
    assert before.own_s is not None
    assert after.own_s is not None
    assert after.own_s >= before.own_s > 0
    assert before.page_faults is not None
    assert after.page_faults is not None
    assert after.page_faults - before.page_faults >= 400
