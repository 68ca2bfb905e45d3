"""cpubound.machine.power."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import CPU, FakeMachine

from cpubound.machine.power import Power, read_power

SUPPLY = "/sys/class/power_supply"

CPUS = frozenset(range(4))


def read(fake: FakeMachine) -> Power:
    return read_power(fake.root, frozenset({0, 1}))


def test_nothing_known_is_none(tmp_path: Path) -> None:
    power = read(FakeMachine(tmp_path))
    assert power == Power(
        governor=None,
        frequency_driver=None,
        energy_preference=None,
        platform_profile=None,
        boost=None,
        on_battery=None,
        throttle_events=None,
    )


def test_settings_that_all_cpus_share_are_named_once(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for cpu in range(2):
        fake.write(f"{CPU}/cpu{cpu}/cpufreq/scaling_governor", "schedutil")
        fake.write(f"{CPU}/cpu{cpu}/cpufreq/scaling_driver", "cppc_cpufreq")
    assert read(fake).governor == "schedutil"
    assert read(fake).frequency_driver == "cppc_cpufreq"


def test_governors_that_differ_are_all_named(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write(f"{CPU}/cpu0/cpufreq/scaling_governor", "powersave")
    fake.write(f"{CPU}/cpu1/cpufreq/scaling_governor", "performance")
    assert read(fake).governor == "performance,powersave"


@pytest.mark.parametrize(
    ("path", "value", "boost"),
    [
        ("intel_pstate/no_turbo", 0, True),
        ("intel_pstate/no_turbo", 1, False),
        ("cpufreq/boost", 1, True),
        ("cpufreq/boost", 0, False),
        ("cpufreq/boost", "maybe", None),
        ("cpu1/cpufreq/boost", 1, True),
        ("cpu1/cpufreq/boost", 0, False),
        ("cpu1/cpufreq/boost", "maybe", None),
    ],
)
def test_boost_is_said_straight_or_the_other_way_round(
    tmp_path: Path, path: str, value: object, boost: bool | None
) -> None:
    fake = FakeMachine(tmp_path)
    fake.write(f"{CPU}/{path}", value)
    assert read(fake).boost is boost


def add_supply(fake: FakeMachine, name: str, kind: str, **files: object) -> None:
    fake.write(f"{SUPPLY}/{name}/type", kind)
    for file, value in files.items():
        fake.write(f"{SUPPLY}/{name}/{file}", value)


def test_a_discharging_battery_without_mains_feeds_the_machine(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    add_supply(fake, "AC", "Mains", online=0)
    add_supply(fake, "BAT0", "Battery", status="Discharging")
    assert read(fake).on_battery is True


def test_mains_count_even_while_a_weak_charger_lets_the_battery_drain(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    add_supply(fake, "AC", "Mains", online=1)
    add_supply(fake, "BAT0", "Battery", status="Discharging")
    assert read(fake).on_battery is False


def test_the_battery_of_a_mouse_says_nothing(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    add_supply(fake, "hid-0", "Battery", status="Discharging", scope="Device")
    assert read(fake).on_battery is None


def test_throttle_counters_are_added_up(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write(f"{CPU}/cpu0/thermal_throttle/core_throttle_count", 3)
    fake.write(f"{CPU}/cpu1/thermal_throttle/package_throttle_count", 4)
    assert read(fake).throttle_events == 7


def test_the_old_name_of_the_throttle_counter_is_known(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write(f"{CPU}/cpu0/thermal_throttle/count", 0)
    assert read(fake).throttle_events == 0


def test_the_platform_profile_is_read(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/sys/firmware/acpi/platform_profile", "low-power")
    assert read(fake).platform_profile == "low-power"


def test_old_amd_kernels_switch_boost_for_each_cpu_under_another_name(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for cpu in CPUS:
        fake.write(f"{CPU}/cpu{cpu}/cpufreq/cpb", 0)
    assert read_power(fake.root, CPUS).boost is False
