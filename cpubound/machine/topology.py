"""Which CPUs there are and how they form cores, packages and memory nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cpubound.machine.cpuinfo import CpuInfo
from cpubound.machine.files import CpuSet, Root, parse_integer
from cpubound.machine.memory import read_node_memory
from cpubound.machine.values import NumaNode

CPU_FOLDER = "/sys/devices/system/cpu"
NODE_FOLDER = "/sys/devices/system/node"


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """CPU numbers that exist and that are online; cores and packages of those online.

    ``cores`` and ``packages`` are empty and ``threads_per_core`` None where nothing says.
    """

    present: CpuSet
    online: CpuSet
    cores: tuple[CpuSet, ...]
    packages: tuple[CpuSet, ...]
    threads_per_core: int | None


def read_topology(root: Root, cpuinfo: CpuInfo) -> Topology:
    """Read CPUs, cores and packages, counted as lscpu counts them: the online ones.

    Cores are the distinct sets of thread siblings and packages the distinct sets of core
    siblings, from sysfs or else from the identifiers in ``/proc/cpuinfo``.
    """
    present = _read_present(root, cpuinfo)
    online = _read_online(root, cpuinfo, present)
    cores = _read_cores(root, cpuinfo, online)
    return Topology(
        present=present | online,
        online=online,
        cores=cores,
        packages=_read_packages(root, cpuinfo, online),
        threads_per_core=_count_threads_per_core(cpuinfo, cores),
    )


def read_numa_nodes(
    root: Root, topology: Topology, memory_bytes: int | None
) -> tuple[NumaNode, ...]:
    """Read the memory nodes; a kernel without NUMA has one with everything in it.

    Left out are the memory of graphics cards and, as hwloc does, nodes that claim CPUs of
    an earlier one: such a table is wrong.
    """
    nodes = []
    taken: set[int] = set()
    graphics = _read_graphics_nodes(root)
    for number in root.list_numbers(NODE_FOLDER, "node"):
        folder = f"{NODE_FOLDER}/node{number}"
        cpus = root.read_cpu_list(f"{folder}/cpulist")
        if cpus is None:
            cpus = root.read_cpu_mask(f"{folder}/cpumap") or frozenset()
        if number in graphics or taken & cpus:
            continue
        taken |= cpus
        nodes.append(
            NumaNode(
                id=number,
                # s390 names every CPU there could be.
                cpus=tuple(sorted(cpus & topology.present)),
                memory_bytes=read_node_memory(root, number),
            )
        )
    if nodes:
        return tuple(nodes)
    return (NumaNode(id=0, cpus=tuple(sorted(topology.online)), memory_bytes=memory_bytes),)


def _read_graphics_nodes(root: Root) -> CpuSet:
    """List the nodes that NVIDIA's driver makes of the memory of its cards (POWER, Grace)."""
    folder = "/proc/driver/nvidia/gpus"
    states = [root.read_fields(f"{folder}/{card}/numa_status") for card in root.list_folder(folder)]
    numbers = [parse_integer(state.get("Node", "")) for state in states]
    return frozenset(number for number in numbers if number is not None)


def _read_present(root: Root, cpuinfo: CpuInfo) -> CpuSet:
    present = root.read_cpu_list(f"{CPU_FOLDER}/present")
    return (
        present
        or frozenset(root.list_numbers(CPU_FOLDER, "cpu"))
        or frozenset(cpuinfo.processors)
        or _read_stat_cpus(root)
    )


def _read_online(root: Root, cpuinfo: CpuInfo, present: CpuSet) -> CpuSet:
    online = root.read_cpu_list(f"{CPU_FOLDER}/online")
    if online:
        # Every online CPU has a folder, if any has: a snapshot may be of a part.
        return online & frozenset(root.list_numbers(CPU_FOLDER, "cpu")) or online
    switches = {cpu: root.read_integer(f"{CPU_FOLDER}/cpu{cpu}/online") for cpu in present}
    if any(switch is not None for switch in switches.values()):
        # The boot CPU often has no switch: it cannot go offline.
        return frozenset(cpu for cpu, switch in switches.items() if switch != 0)
    return frozenset(cpuinfo.processors) & present or present


def _read_stat_cpus(root: Root) -> CpuSet:
    names = [line.split(" ", 1)[0] for line in (root.read_text("/proc/stat") or "").splitlines()]
    numbers = [parse_integer(name[3:]) for name in names if name.startswith("cpu")]
    return frozenset(number for number in numbers if number is not None)


def _read_cores(root: Root, cpuinfo: CpuInfo, online: CpuSet) -> tuple[CpuSet, ...]:
    groups = _distinct_groups(root, online, "core_cpus", "thread_siblings")
    if groups:
        known = frozenset().union(*groups)
        return (*groups, *(frozenset({cpu}) for cpu in sorted(online - known)))
    identifiers = {
        cpu: (_package_id(root, cpuinfo, cpu), core)
        for cpu in online
        if (core := _core_id(root, cpuinfo, cpu)) is not None
    }
    return _group_by(identifiers) if len(identifiers) == len(online) else ()


def _read_packages(root: Root, cpuinfo: CpuInfo, online: CpuSet) -> tuple[CpuSet, ...]:
    groups = _distinct_groups(root, online, "package_cpus", "core_siblings")
    identifiers = {
        cpu: package
        for cpu in online
        if (package := _package_id(root, cpuinfo, cpu)) is not None and package >= 0
    }
    if not groups:
        return _group_by(identifiers) if len(identifiers) == len(online) else ()
    if _has_books(root, cpuinfo, online):
        return groups  # s390 numbers the packages of each book from zero
    # Some kernels give half of a package as its siblings (cluster-on-die).
    merged: dict[tuple[str, int], set[int]] = {}
    for index, group in enumerate(groups):
        package = identifiers.get(min(group))
        key = ("group", index) if package is None else ("package", package)
        merged.setdefault(key, set()).update(group)
    return tuple(frozenset(group) for group in merged.values())


def _has_books(root: Root, cpuinfo: CpuInfo, online: CpuSet) -> bool:
    if (cpuinfo.first("vendor_id") or "").startswith("IBM/S390"):
        return True
    folder = f"{CPU_FOLDER}/cpu{min(online)}/topology" if online else ""
    return bool(online) and any(root.exists(f"{folder}/book_{x}") for x in ("id", "siblings"))


def _distinct_groups(root: Root, online: CpuSet, *names: str) -> tuple[CpuSet, ...]:
    """Give the distinct sibling sets of the online CPUs; a CPU without one is in none."""
    groups: dict[CpuSet, None] = {}
    for cpu in sorted(online):
        siblings = root.read_cpus(f"{CPU_FOLDER}/cpu{cpu}/topology", *names)
        if siblings is not None:
            groups.setdefault(siblings & online | {cpu}, None)
    return _drop_overlaps(groups)


def _drop_overlaps(groups: Iterable[CpuSet]) -> tuple[CpuSet, ...]:
    """Keep sets that share no CPU with an earlier one, so that each CPU is in one set."""
    taken: set[int] = set()
    kept = []
    for group in groups:
        rest = group - taken
        if rest:
            kept.append(frozenset(rest))
            taken |= rest
    return tuple(kept)


def _group_by(
    identifiers: dict[int, int] | dict[int, tuple[int | None, int]],
) -> tuple[CpuSet, ...]:
    groups: dict[object, set[int]] = {}
    for cpu in sorted(identifiers):
        groups.setdefault(identifiers[cpu], set()).add(cpu)
    return tuple(frozenset(group) for group in groups.values())


def _core_id(root: Root, cpuinfo: CpuInfo, cpu: int) -> int | None:
    core = root.read_integer(f"{CPU_FOLDER}/cpu{cpu}/topology/core_id")
    if core is None:
        core = parse_integer(cpuinfo.get(cpu, "core id") or "")
    return core


def _package_id(root: Root, cpuinfo: CpuInfo, cpu: int) -> int | None:
    package = root.read_integer(f"{CPU_FOLDER}/cpu{cpu}/topology/physical_package_id")
    if package is None:
        package = parse_integer(cpuinfo.get(cpu, "physical id") or "")
    return package


def _count_threads_per_core(cpuinfo: CpuInfo, cores: tuple[CpuSet, ...]) -> int | None:
    highest = parse_integer(cpuinfo.first("max thread id") or "")
    if highest is not None and 0 <= highest < 64:
        return highest + 1  # s390: sibling masks are of virtual CPUs
    return max(map(len, cores)) if cores else None
