"""cpubound.machine.activity: what a run moves, who else runs, what is in memory."""

from __future__ import annotations

import mmap
import os
import platform
from pathlib import Path

import pytest
from fake_machine import CPU, FakeMachine

from cpubound.machine.activity import (
    Activity,
    Counters,
    ProcessTime,
    count_resident_bytes,
    cpus_used_between,
    read_activity,
    read_counters,
    read_load_average,
    read_process_times,
    read_steal_fraction,
)
from cpubound.machine.files import Root

CPUS = frozenset({0, 1})

linux = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the page cache is asked of Linux"
)


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


def stat_line(name: str) -> str:
    """A line of /proc/PID/stat with 1234 minor and 5 major faults."""
    return f"42 ({name}) R 1 42 42 0 -1 4194304 1234 99 5 7 250 50 0 0 20 0 3 0 100 0 0"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/42/stat", stat_line("worker"))
    fake.write("/proc/42/io", "rchar: 9\nread_bytes: 8192\nwrite_bytes: 0")
    fake.write("/proc/42/task/42/schedstat", "5000000000 1500000000 77")
    fake.write("/proc/42/task/43/schedstat", "5000000000 500000000 12")
    fake.write(
        "/proc/pressure/memory",
        "some avg10=1.00 avg60=0.50 avg300=0.10 total=2500000\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=100",
    )
    fake.write("/proc/vmstat", "pgpgin 4\npswpin 3\npswpout 7")
    fake.write("/proc/stat", "cpu 100 0 50 800 10 0 0 40 0 0")
    return fake


def test_the_counters_of_a_process_are_read(machine: FakeMachine) -> None:
    seen = read_counters(machine.root, 42, CPUS)
    assert (seen.minor_faults, seen.major_faults) == (1234, 5)
    assert seen.read_bytes == 8192
    assert seen.wait_s == pytest.approx(2.0)
    assert seen.memory_stall_s == pytest.approx(2.5)
    assert seen.swapped_bytes is not None
    assert seen.swapped_bytes % 10 == 0
    assert seen.machine.steal_s is not None


@pytest.mark.parametrize("name", ["a) R 9 9 (b", "x y", ")", ""])
def test_a_program_may_have_any_name(machine: FakeMachine, name: str) -> None:
    machine.write("/proc/42/stat", stat_line(name))
    assert read_counters(machine.root, 42, CPUS).minor_faults == 1234


def test_a_process_that_is_gone_has_no_counters(machine: FakeMachine) -> None:
    seen = read_counters(machine.root, 43, CPUS)
    assert seen.minor_faults is seen.major_faults is seen.read_bytes is seen.wait_s is None
    assert seen.memory_stall_s == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/proc/42/stat", "42 (worker) R 1"),
        ("/proc/42/stat", b"\xff\xfe\x00garbage"),
        ("/proc/42/io", "read_bytes: many"),
        ("/proc/42/task/42/schedstat", "1 x 3"),
        ("/proc/pressure/memory", "some total="),
        ("/proc/vmstat", "pswpin 3"),
        ("/proc/vmstat", "pswpin\npswpout 1 2"),
    ],
)
def test_garbled_files_are_unknown_not_errors(
    machine: FakeMachine, path: str, content: object
) -> None:
    machine.write(path, content)
    assert isinstance(read_counters(machine.root, 42, CPUS), Counters)


def test_an_empty_machine_tells_nothing(tmp_path: Path) -> None:
    seen = read_counters(FakeMachine(tmp_path).root, 1, CPUS)
    assert seen.memory_stall_s is None
    assert seen.swapped_bytes is None
    assert seen.quota_periods is None


def test_counters_of_this_process_never_go_back() -> None:
    first = read_counters(Root(), os.getpid(), CPUS)
    last = read_counters(Root(), os.getpid(), CPUS)
    assert last.at_s >= first.at_s
    if first.minor_faults is not None and last.minor_faults is not None:
        assert last.minor_faults >= first.minor_faults


@linux
def test_a_file_just_written_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"x" * 300_001)
    assert count_resident_bytes([path]) == 300_001


@linux
def test_a_file_with_a_hole_that_was_never_read_is_not(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(10 * 2**20)
    assert count_resident_bytes([path]) == 0
    with path.open("rb") as file:
        file.read(1)
    resident = count_resident_bytes([path])
    assert resident is not None
    assert 0 < resident < 10 * 2**20 + 1


@linux
def test_shards_are_counted_together_and_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cpubound.machine.activity._PIECE_BYTES", 64 * 1024)
    paths = [tmp_path / "a", tmp_path / "b", tmp_path / "empty"]
    for path, size in zip(paths, (200_000, 64 * 1024, 0), strict=True):
        path.write_bytes(b"y" * size)
    assert count_resident_bytes(paths) == 200_000 + 64 * 1024


def test_a_missing_file_and_a_folder_are_unknown(tmp_path: Path) -> None:
    assert count_resident_bytes([tmp_path / "none"]) is None
    assert count_resident_bytes([tmp_path]) is None


@linux
def test_of_a_file_that_is_not_ours_the_kernel_tells_nothing_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shared"
    path.write_bytes(b"z")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert count_resident_bytes([path]) is None


def times(**cpu_s: float) -> dict[tuple[int, float], ProcessTime]:
    return {
        (int(name.split("_")[1]), 1.0): ProcessTime(name=name.split("_")[0], cpu_s=seconds)
        for name, seconds in cpu_s.items()
    }


def test_programs_are_ordered_by_the_cpus_they_used() -> None:
    before = times(editor_1=10.0, build_2=5.0, idle_3=7.0)
    after = times(editor_1=11.0, build_2=14.0, idle_3=7.0, build_4=1.0)
    used = cpus_used_between(before, after, 10.0, without=())
    assert list(used.items()) == [("build", pytest.approx(1.0)), ("editor", pytest.approx(0.1))]


def test_the_engine_itself_is_no_other_program() -> None:
    used = cpus_used_between(times(engine_1=0.0), times(engine_1=20.0), 10.0, without={1})
    assert used == {}


def test_a_number_that_was_given_to_another_process_starts_anew() -> None:
    before = {(1, 1.0): ProcessTime(name="old", cpu_s=50.0)}
    after = {(1, 2.0): ProcessTime(name="new", cpu_s=2.0)}
    assert cpus_used_between(before, after, 10.0, without=()) == {"new": pytest.approx(0.2)}


def test_no_time_gives_no_use() -> None:
    assert cpus_used_between(times(a_1=1.0), times(a_1=2.0), 0.0, without=()) == {}


def test_this_process_is_among_those_read() -> None:
    assert os.getpid() in {pid for pid, _ in read_process_times()}


def test_where_the_system_hides_its_processes_there_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without /proc psutil takes the first word of an empty line."""

    def fail(_attributes: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr("psutil.process_iter", fail)
    assert read_process_times() == {}
