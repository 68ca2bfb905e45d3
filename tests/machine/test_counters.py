"""cpubound.machine.counters, residency and processes: what a run moves, and who else runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_machine import FakeMachine

from cpubound.machine import residency
from cpubound.machine.counters import Counters, read_counters
from cpubound.machine.files import Root
from cpubound.machine.processes import ProcessTime, cpus_used_between, read_process_times
from cpubound.machine.residency import count_resident_bytes

CPUS = frozenset({0, 1})


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


linux = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the page cache is asked of Linux"
)


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
    monkeypatch.setattr(residency, "_PIECE_BYTES", 64 * 1024)
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
