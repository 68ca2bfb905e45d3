"""How the machine trades speed for power and heat."""

from __future__ import annotations

from dataclasses import dataclass

from cpubound.machine.files import CpuSet, Root
from cpubound.machine.topology import CPU_FOLDER

_SUPPLIES = "/sys/class/power_supply"


@dataclass(frozen=True, kw_only=True, slots=True)
class Power:
    """Settings and counters; ``throttle_events`` is how often heat slowed a core since boot."""

    governor: str | None
    frequency_driver: str | None
    energy_preference: str | None
    platform_profile: str | None
    boost: bool | None
    on_battery: bool | None
    throttle_events: int | None


def read_power(root: Root, online: CpuSet) -> Power:
    """Read governor, boost, power supply and thermal throttle counters."""
    return Power(
        governor=_read_common(root, online, "cpufreq/scaling_governor"),
        frequency_driver=_read_common(root, online, "cpufreq/scaling_driver"),
        energy_preference=_read_common(root, online, "cpufreq/energy_performance_preference"),
        platform_profile=root.read_text("/sys/firmware/acpi/platform_profile") or None,
        boost=_read_boost(root, online),
        on_battery=_read_on_battery(root),
        throttle_events=read_throttle_events(root, online),
    )


def _read_common(root: Root, online: CpuSet, name: str) -> str | None:
    """Read a setting that each CPU has; several values are joined by commas."""
    values = {root.read_text(f"{CPU_FOLDER}/cpu{cpu}/{name}") for cpu in online}
    if not any(values):
        # Each cpuN/cpufreq is a link to a policy, which a copy of the files may have lost.
        policies = root.list_numbers(f"{CPU_FOLDER}/cpufreq", "policy")
        folders = [f"{CPU_FOLDER}/cpufreq/policy{number}" for number in policies]
        values = {root.read_text(name.replace("cpufreq", folder, 1)) for folder in folders}
    return ",".join(sorted(value for value in values if value)) or None


def _read_boost(root: Root, online: CpuSet) -> bool | None:
    no_turbo = root.read_integer(f"{CPU_FOLDER}/intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == 0
    boost = root.read_integer(f"{CPU_FOLDER}/cpufreq/boost")
    if boost is not None:
        return boost != 0
    # Some drivers have a switch for each CPU instead of one for all.
    for name in ("cpufreq/boost", "cpufreq/cpb"):
        switches = _read_common(root, online, name)
        if switches is not None:
            return {"0": False, "1": True, "0,1": True}.get(switches)
    return None


def _read_on_battery(root: Root) -> bool | None:
    """Say whether a battery feeds the machine; None where there is no power supply to ask."""
    mains: list[bool] = []
    discharging = False
    batteries = 0
    for name in root.list_folder(_SUPPLIES):
        folder = f"{_SUPPLIES}/{name}"
        if root.read_text(f"{folder}/scope") == "Device":
            continue  # the battery of a mouse
        kind = root.read_text(f"{folder}/type")
        if kind in ("Mains", "USB"):
            online = root.read_integer(f"{folder}/online")
            if online is not None:
                mains.append(online != 0)
        elif kind == "Battery":
            batteries += 1
            discharging = discharging or root.read_text(f"{folder}/status") == "Discharging"
    if any(mains):
        return False
    if batteries:
        return discharging
    return False if mains else None


def read_throttle_events(root: Root, online: CpuSet) -> int | None:
    """Read how often heat slowed a core or a package since boot, over all CPUs."""
    names = ("core_throttle_count", "package_throttle_count", "count")
    counts = [
        root.read_integer(f"{CPU_FOLDER}/cpu{cpu}/thermal_throttle/{name}")
        for cpu in online
        for name in names
    ]
    known = [count for count in counts if count is not None and count >= 0]
    return sum(known) if known else None
