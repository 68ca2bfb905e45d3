"""cpubound.advise.findings and its rules: each found where it should be, and only there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from builders import build_machine
from finding_checks import check_finding

from cpubound.advise.findings import (
    MACHINE_RULES,
    Finding,
    find_machine_findings,
)
from cpubound.advise.rules.memory import find_slow_memory
from cpubound.machine.values import CoreKind, Machine, MemoryModule, NumaNode

GIB = 2**30


def kinds(*groups: tuple[str, tuple[int, ...]]) -> tuple[CoreKind, ...]:
    return tuple(CoreKind(kind=kind, cpus=cpus) for kind, cpus in groups)


def nodes(*rows: tuple[tuple[int, ...], int | None]) -> tuple[NumaNode, ...]:
    return tuple(NumaNode(id=n, cpus=c, memory_bytes=m) for n, (c, m) in enumerate(rows))


def modules(*rows: tuple[str | None, int, int], kind: str = "DDR5") -> tuple[MemoryModule, ...]:
    return tuple(
        MemoryModule(
            locator=None,
            type=kind,
            size_bytes=16 * GIB,
            transfers_per_s=now,
            rated_transfers_per_s=rated,
            width_bits=64,
            channel=channel,
        )
        for channel, now, rated in rows
    )


FAST, SLOW = 5_600_000_000, 4_800_000_000
HYBRID: dict[str, Any] = {
    "cpus": 8,
    "core_cpus": ((0, 1), (2, 3), (4,), (5,), (6,), (7,)),
    "core_kinds": kinds(("performance", (0, 1, 2, 3)), ("efficiency", (4, 5, 6, 7))),
}
# Code: facts that give the finding, and facts that nearly do.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "quota-below-cpus": (
        {"cpus": 96, "quota_cpus": 7.65, "effective_cpus": 7},
        {"cpus": 4, "quota_cpus": 4.0},
    ),
    "quota-throttled": (
        {"quota_periods": 4567, "quota_throttled_periods": 3115},
        {"quota_periods": 4567, "quota_throttled_periods": 45},
    ),
    "topology-mismatch": ({"cpus": 4, "allowed_cpus": (0, 2)}, {"cpus": 4}),
    "hybrid-cores": (HYBRID, {"cpus": 2, "core_kinds": kinds(("uniform", (0, 1)))}),
    "slow-governor": (
        {"governor": "powersave", "frequency_driver": "acpi-cpufreq"},
        {
            "governor": "powersave",
            "frequency_driver": "intel_pstate",
            "energy_preference": "balance_performance",
        },
    ),
    "power-profile": ({"platform_profile": "low-power"}, {"platform_profile": "balanced"}),
    "boost-off": ({"boost": False}, {"boost": True}),
    "on-battery": ({"on_battery": True}, {"on_battery": False}),
    "thermal-throttled": ({"throttle_events": 1}, {"throttle_events": 0}),
    "huge-pages-off": (
        {"transparent_huge_pages": "never"},
        {"transparent_huge_pages": "madvise"},
    ),
    "no-avx2": (
        {"isa_flags": ("avx", "sse4_2")},
        {"isa_flags": ("avx2", "f16c", "fma")},
    ),
    "no-dot-product": (
        {"architecture": "aarch64", "isa_flags": ("asimd",)},
        {"architecture": "aarch64", "isa_flags": ("asimd", "asimddp")},
    ),
    "memory-limit": (
        {"memory_bytes": 16 * GIB, "memory_limit_bytes": 16 * GIB - 1},
        {"memory_bytes": 16 * GIB, "memory_limit_bytes": 16 * GIB},
    ),
    "numa-nodes": (
        {"numa_nodes": nodes(((0, 1), GIB), ((2, 3), GIB))},
        {"numa_nodes": nodes(((0, 1, 2, 3), GIB), ((), GIB))},
    ),
    "virtual-machine": ({"hypervisor": "KVM"}, {"hypervisor": None}),
    "stolen-time": ({"steal_fraction": 0.02}, {"steal_fraction": 0.009}),
    "busy-machine": (
        {"cpus": 4, "load_average": 2.0},
        {"cpus": 4, "load_average": 1.9},
    ),
    "single-channel": (
        {"memory_modules": modules(("A", FAST, FAST), ("A", FAST, FAST))},
        {"memory_modules": modules(("A", FAST, FAST), ("B", FAST, FAST))},
    ),
    "memory-below-rated": (
        {"memory_modules": modules(("A", SLOW, FAST), ("B", SLOW, FAST))},
        {"memory_modules": modules(("A", FAST - 10**8, FAST), ("B", FAST, FAST))},
    ),
}


def machine_of(facts: dict[str, Any]) -> Machine:
    return build_machine(**facts)


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(MACHINE_RULES)


@pytest.mark.parametrize("code", CASES)
def test_a_rule_finds_what_it_looks_for(code: str) -> None:
    check_finding(MACHINE_RULES[code][1](machine_of(CASES[code][0])), code)


@pytest.mark.parametrize("code", CASES)
def test_a_rule_does_not_find_what_is_nearly_so(code: str) -> None:
    assert MACHINE_RULES[code][1](machine_of(CASES[code][1])) is None


def test_unknown_facts_give_no_finding() -> None:
    machine = Machine(
        cpu_model=None,
        architecture="unknown",
        operating_system="Linux",
        logical_cpus=(0,),
        online_cpus=(0,),
        allowed_cpus=(0,),
        physical_cores=None,
        packages=None,
        threads_per_core=None,
        quota_cpus=None,
        effective_cpus=1,
        memory_bytes=None,
        memory_limit_bytes=None,
    )
    assert find_machine_findings(machine) == ()


def test_the_worst_come_first() -> None:
    machine = machine_of({"hypervisor": "KVM", "on_battery": True, "boost": False})
    severities = [finding.severity for finding in find_machine_findings(machine)]
    assert severities == ["warning", "info", "info"]


def test_a_quota_finding_names_the_threads_to_use() -> None:
    (finding,) = find_machine_findings(
        machine_of({"cpus": 96, "quota_cpus": 7.65, "effective_cpus": 7})
    )
    assert finding.evidence == {"quota_cpus": 7.65, "visible_cpus": 96, "effective_cpus": 7}
    assert "-t 7" in finding.remedy
    assert "7.65" in finding.message


def test_a_hybrid_finding_names_one_cpu_of_each_fast_core_as_list_and_mask() -> None:
    (finding,) = find_machine_findings(machine_of(HYBRID))
    assert "-t 2 -C 0x5 " in finding.remedy
    assert "(CPUs 0,2)" in finding.remedy
    assert finding.evidence["performance_cores"] == 2


def test_a_hybrid_finding_keeps_to_the_allowed_cpus() -> None:
    findings = find_machine_findings(
        machine_of({**HYBRID, "allowed_cpus": (2, 3, 4, 5), "effective_cpus": 4})
    )
    hybrid = next(finding for finding in findings if finding.code == "hybrid-cores")
    assert "-t 1 -C 0x4 " in hybrid.remedy


@pytest.mark.parametrize(
    ("governor", "driver", "preference", "severity"),
    [
        ("performance", "acpi-cpufreq", None, None),
        ("schedutil", "acpi-cpufreq", None, None),
        ("ondemand", "acpi-cpufreq", None, None),
        ("conservative", "acpi-cpufreq", None, "warning"),
        ("performance,powersave", None, None, "warning"),
        ("powersave", "intel_pstate", "power", "info"),
        ("powersave", "amd-pstate-epp", "balance_power", "info"),
        ("performance", "intel_pstate", "power", None),
        ("powersave", "intel_pstate", None, None),
        (None, None, "power", None),
    ],
)
def test_a_governor_is_judged_with_its_driver(
    governor: str | None, driver: str | None, preference: str | None, severity: str | None
) -> None:
    machine = machine_of(
        {"governor": governor, "frequency_driver": driver, "energy_preference": preference}
    )
    findings = find_machine_findings(machine)
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_soldered_memory_and_unknown_channels_are_not_called_single() -> None:
    soldered = modules((None, FAST, FAST), kind="LPDDR5")
    unknown = modules((None, FAST, FAST), (None, FAST, FAST))
    for memory_modules in (soldered, unknown):
        assert find_machine_findings(machine_of({"memory_modules": memory_modules})) == ()


def test_the_modules_that_a_virtual_machine_shows_are_not_judged() -> None:
    machine = machine_of(
        {"hypervisor": "KVM", "memory_modules": modules((None, SLOW, FAST), kind="DDR4")}
    )
    assert machine.theoretical_bytes_per_s is None
    codes = [finding.code for finding in find_machine_findings(machine)]
    assert codes == ["virtual-machine"]
    assert find_slow_memory(machine, 1e9) is None


def test_one_module_alone_is_one_channel() -> None:
    (finding,) = find_machine_findings(machine_of({"memory_modules": modules((None, FAST, FAST))}))
    assert finding.code == "single-channel"


@pytest.mark.parametrize(("read_gb_per_s", "found"), [(53.7, True), (53.8, False), (80.0, False)])
def test_memory_is_slow_below_60_percent_of_theory(read_gb_per_s: float, found: bool) -> None:
    machine = machine_of({"memory_modules": modules(("A", FAST, FAST), ("B", FAST, FAST))})
    assert (find_slow_memory(machine, read_gb_per_s * 1e9) is not None) == found


def test_a_finding_survives_being_written_and_read() -> None:
    (finding,) = find_machine_findings(machine_of({"on_battery": True}))
    assert msgspec.json.decode(msgspec.json.encode(finding), type=Finding) == finding
