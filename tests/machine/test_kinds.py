"""cpubound.machine.kinds: performance and efficiency cores."""

from __future__ import annotations

from pathlib import Path

from fake_machine import CPU, FakeMachine, topology_of

from cpubound.machine.caches import read_caches
from cpubound.machine.cpuinfo import read_cpuinfo
from cpubound.machine.kinds import read_core_kinds
from cpubound.machine.values import CoreKind


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
