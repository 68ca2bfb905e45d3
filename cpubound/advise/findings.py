"""Findings about a machine: the table of rules and the search through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cpubound.advise.rules import cpu, memory
from cpubound.advise.values import SEVERITIES, Finding
from cpubound.machine.values import Machine

__all__ = [
    "MACHINE_RULES",
    "Finding",
    "find_machine_findings",
]

MachineRule = Callable[[Machine], Finding | None]

# Code of the finding: what the rule looks for, and the rule.
MACHINE_RULES: Mapping[str, tuple[str, MachineRule]] = {
    "quota-below-cpus": (
        "a CPU quota is lower than the CPUs that programs see",
        cpu.find_quota_below_cpus,
    ),
    "quota-throttled": (
        "the CPU quota has run out since the container started",
        cpu.find_quota_throttled,
    ),
    "topology-mismatch": (
        "affinity or cpuset leave fewer CPUs than the system shows",
        cpu.find_topology_mismatch,
    ),
    "hybrid-cores": ("performance and efficiency cores are mixed", cpu.find_hybrid_cores),
    "slow-governor": ("the frequency governor holds the clock down", cpu.find_slow_governor),
    "power-profile": ("the firmware's profile limits power", cpu.find_power_profile),
    "boost-off": ("frequency boost is disabled", cpu.find_boost_off),
    "on-battery": ("the machine runs from its battery", cpu.find_on_battery),
    "thermal-throttled": (
        "heat has slowed the cores since the machine started",
        cpu.find_thermal_throttled,
    ),
    "huge-pages-off": ("transparent huge pages are off", memory.find_huge_pages_off),
    "no-avx2": ("an x86 CPU lacks AVX2, FMA or F16C", cpu.find_no_avx2),
    "no-dot-product": (
        "a 64-bit Arm CPU lacks integer dot products",
        cpu.find_no_dot_product,
    ),
    "memory-limit": (
        "the memory limit is below the memory of the machine",
        memory.find_memory_limit,
    ),
    "numa-nodes": ("memory is split over several nodes", memory.find_numa_nodes),
    "virtual-machine": ("the machine is virtual", cpu.find_hypervisor),
    "stolen-time": ("the hypervisor gives CPU time to other machines", cpu.find_stolen_time),
    "busy-machine": ("other programs keep the CPUs busy", cpu.find_busy_machine),
    "single-channel": ("memory sits in one channel only", memory.find_single_channel),
    "memory-below-rated": (
        "memory modules run below their rated speed",
        memory.find_memory_below_rated,
    ),
}


def find_machine_findings(machine: Machine) -> tuple[Finding, ...]:
    """Look at a machine's facts.

    A fact that is unknown gives no finding. The worst come first, otherwise in the order
    of the rules.
    """
    found = [rule(machine) for _, rule in MACHINE_RULES.values()]
    known = [finding for finding in found if finding is not None]
    return tuple(sorted(known, key=lambda finding: SEVERITIES.index(finding.severity)))
