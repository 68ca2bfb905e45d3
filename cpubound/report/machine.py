"""What ``doctor`` shows: the facts about a machine and the findings about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cpubound.advise.registry import RuleSummary
from cpubound.advise.values import Finding
from cpubound.foreign import showing
from cpubound.machine.values import (
    Cache,
    CoreKind,
    Machine,
    MemoryModule,
    NumaNode,
    format_cpu_list,
)
from cpubound.report.findings import finding_lines, wrap_parts
from cpubound.report.tables import Table
from cpubound.units import format_binary_bytes, format_count, format_rate

_LABEL = 12
_CACHE_LETTERS = {"data": "d", "instruction": "i", "unified": ""}


def machine_document(machine: Machine, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return ``cpubound.machine/1``: every fact under its name, and the findings."""
    document: dict[str, Any] = {"schema": "cpubound.machine/1"}
    document |= msgspec.to_builtins(machine)
    document["theoretical_bytes_per_s"] = machine.theoretical_bytes_per_s
    document["findings"] = [msgspec.to_builtins(finding) for finding in findings]
    return document


def machine_table(machine: Machine, findings: Sequence[Finding]) -> Table:
    """Return facts and findings as rows of two columns."""
    rows = [(label, ", ".join(parts)) for label, parts in _facts(machine)]
    rows += [
        (f"{finding.severity}: {finding.code}", f"{finding.message}. {finding.remedy}")
        for finding in findings
    ]
    return Table(columns=("fact", "value"), rows=tuple(rows))


@showing()
def machine_text(machine: Machine, findings: Sequence[Finding]) -> str:
    """Return the screen: what the machine is, what may be used of it, what slows it."""
    lines: list[str] = []
    for label, parts in _facts(machine):
        lines += wrap_parts(f"{label:<{_LABEL}}", parts)
    lines.append("")
    lines += finding_lines(findings) or ["Nothing found that would slow it down."]
    return "\n".join(lines)


def rules_document(rules: Sequence[RuleSummary]) -> dict[str, Any]:
    """Return ``cpubound.rules/1``: what findings there can be."""
    return {"schema": "cpubound.rules/1", "rules": [msgspec.to_builtins(rule) for rule in rules]}


def rules_table(rules: Sequence[RuleSummary]) -> Table:
    """Return the codes of findings, what each looks at, and what it means."""
    rows = tuple((rule.code, rule.about, rule.found_when) for rule in rules)
    return Table(columns=("code", "about", "found when"), rows=rows)


_Facts = Sequence[tuple[str, Sequence[str]]]  # a label and the parts of its value


def _facts(machine: Machine) -> _Facts:
    facts = [
        ("CPU", _cpu(machine)),
        ("cores", _cores(machine)),
        ("usable", _usable(machine)),
        ("caches", [_cache(cache) for cache in machine.caches] or ["unknown"]),
        ("memory", _memory(machine)),
        ("modules", _modules(machine)),
        ("NUMA", _numa(machine)),
        ("pages", _pages(machine)),
        ("clock", _clock(machine)),
        ("kernels use", list(machine.isa_flags)),
        ("virtual", _virtual(machine)),
    ]
    return [(label, parts) for label, parts in facts if parts]


def _cpu(machine: Machine) -> list[str]:
    model = " ".join((machine.cpu_model or "unknown model").split())
    return [model, machine.architecture, machine.operating_system]


def _cores(machine: Machine) -> list[str]:
    parts = []
    if machine.physical_cores is not None:
        parts.append(format_count(machine.physical_cores, "core"))
    parts.append(format_count(len(machine.online_cpus), "CPU"))
    if machine.threads_per_core is not None:
        parts[-1] += f" ({machine.threads_per_core} per core)"
    if machine.packages is not None:
        parts.append(format_count(machine.packages, "package"))
    offline = len(machine.logical_cpus) - len(machine.online_cpus)
    if offline:
        parts.append(f"{offline} offline")
    if len(machine.core_kinds) > 1:
        parts += [_kind(kind) for kind in machine.core_kinds]
    return parts


def _kind(kind: CoreKind) -> str:
    clock = "" if kind.max_khz is None else f", {kind.max_khz / 1e6:.1f} GHz"
    return f"{kind.kind} {format_cpu_list(kind.cpus)} ({len(kind.cpus)} CPUs{clock})"


def _usable(machine: Machine) -> list[str]:
    count, allowed = machine.effective_cpus, len(machine.allowed_cpus)
    if machine.duty_cycle(count) < 1:
        share = f"{machine.duty_cycle(count):.0%}"
        reason = f"the CPU quota is {machine.quota_cpus:g}, so that it runs {share} of the time"
    elif machine.quota_cpus is not None and count < allowed:
        reason = f"the CPU quota is {machine.quota_cpus:g}, rounded down"
    elif allowed < len(machine.online_cpus):
        reason = f"affinity or cpuset allow CPUs {format_cpu_list(machine.allowed_cpus)}"
    else:
        reason = "all online CPUs, no quota below them"
    return [f"{format_count(count, 'thread')} at once: {reason}"]


def _cache(cache: Cache) -> str:
    size = "?" if cache.size_bytes is None else format_binary_bytes(cache.size_bytes)
    return f"L{cache.level}{_CACHE_LETTERS[cache.type]} {cache.instances} × {size}"


def _memory(machine: Machine) -> list[str]:
    if machine.memory_bytes is None:
        return ["unknown"]
    parts = [format_binary_bytes(machine.memory_bytes)]
    if machine.memory_available_bytes is not None:
        parts.append(f"{format_binary_bytes(machine.memory_available_bytes)} available")
    if machine.memory_limit_bytes is not None:
        parts.append(f"limit {format_binary_bytes(machine.memory_limit_bytes)}")
    return parts


def _modules(machine: Machine) -> list[str]:
    counts: dict[str, int] = {}
    for module in machine.memory_modules:
        name = _module(module)
        counts[name] = counts.get(name, 0) + 1
    parts = [f"{count} × {name}" for name, count in counts.items()]
    if machine.theoretical_bytes_per_s is not None:
        parts.append(f"{format_rate(machine.theoretical_bytes_per_s)} in theory")
    return parts


def _module(module: MemoryModule) -> str:
    speed = "" if module.transfers_per_s is None else f"-{module.transfers_per_s / 1e6:.0f}"
    return f"{format_binary_bytes(module.size_bytes)} {module.type or 'memory'}{speed}"


def _numa(machine: Machine) -> list[str]:
    if len(machine.numa_nodes) < 2:
        return ["1 node"] if machine.numa_nodes else []
    return [_node(node) for node in machine.numa_nodes]


def _node(node: NumaNode) -> str:
    memory = "?" if node.memory_bytes is None else format_binary_bytes(node.memory_bytes)
    return f"node {node.id}: CPUs {format_cpu_list(node.cpus) or 'none'} ({memory})"


def _pages(machine: Machine) -> list[str]:
    parts = []
    if machine.page_size_bytes is not None:
        parts.append(format_binary_bytes(machine.page_size_bytes))
    if machine.huge_page_size_bytes is not None:
        parts.append(f"large {format_binary_bytes(machine.huge_page_size_bytes)}")
    if machine.transparent_huge_pages is not None:
        parts.append(f"transparent large pages: {machine.transparent_huge_pages}")
    if machine.huge_pages_total:
        parts.append(f"{machine.huge_pages_free} of {machine.huge_pages_total} reserved are free")
    return parts


def _clock(machine: Machine) -> list[str]:
    parts = []
    speeds = [kind.max_khz for kind in machine.core_kinds if kind.max_khz is not None]
    if speeds:
        parts.append(f"up to {max(speeds) / 1e6:.2f} GHz")
    if machine.governor is not None:
        driver = "" if machine.frequency_driver is None else f" ({machine.frequency_driver})"
        parts.append(f"governor {machine.governor}{driver}")
    if machine.energy_preference is not None:
        parts.append(f"preference {machine.energy_preference}")
    if machine.boost is not None:
        parts.append(f"boost {'on' if machine.boost else 'off'}")
    if machine.on_battery is not None:
        parts.append("on battery" if machine.on_battery else "on mains")
    if machine.throttle_events is not None:
        parts.append(f"slowed by heat {machine.throttle_events} times")
    return parts


def _virtual(machine: Machine) -> list[str]:
    if machine.hypervisor is None:
        return []
    parts = ["yes, unnamed" if machine.hypervisor == "unknown" else machine.hypervisor]
    if machine.steal_fraction is not None:
        parts.append(f"{machine.steal_fraction:.2%} of CPU time stolen since boot")
    return parts
