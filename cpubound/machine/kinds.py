"""Which cores are performance cores and which efficiency cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cpubound.machine.arm import is_little_core, read_arm_part
from cpubound.machine.cpuinfo import CpuInfo
from cpubound.machine.files import CpuSet, Root, parse_cpu_list
from cpubound.machine.topology import CPU_FOLDER
from cpubound.machine.values import Cache, CoreKind

PERFORMANCE = "performance"
EFFICIENCY = "efficiency"
UNIFORM = "uniform"

# Favoured cores of one kind differ by some per cent; the slowest hybrids known by 20 %.
_SAME_KIND_SPEED = 0.85
# A core with half the capacity of the largest still pulls its weight in a team.
_PERFORMANCE_CAPACITY = 0.5


def read_core_kinds(
    root: Root, cpuinfo: CpuInfo, online: CpuSet, caches: tuple[Cache, ...]
) -> tuple[CoreKind, ...]:
    """Sort the online CPUs into kinds of cores, fastest first.

    Asked in turn: the kernel's performance counters of Intel hybrids, the capacities of
    the scheduler, Arm part numbers, the size of the first cache together with the maximum
    frequency, the maximum frequency alone. A machine of one kind is ``uniform``. Two rows
    may have the same kind where cores come in three sizes.
    """
    if not online:
        return ()
    speeds = _read_max_khz(root, online)
    groups = (
        _by_counters(root, online)
        or _by_capacity(root, online)
        or _by_arm_part(cpuinfo, online, speeds)
        or _by_first_cache(online, caches, speeds)
        or _by_frequency(online, speeds)
        or [(UNIFORM, online)]
    )
    return tuple(
        CoreKind(
            kind=kind,
            cpus=tuple(sorted(cpus)),
            max_khz=max((speeds[cpu] for cpu in cpus if cpu in speeds), default=None),
        )
        for kind, cpus in groups
    )


_Groups = list[tuple[str, CpuSet]]


def _read_max_khz(root: Root, online: CpuSet) -> dict[int, int]:
    speeds = {}
    for cpu in online:
        khz = root.read_integer(f"{CPU_FOLDER}/cpu{cpu}/cpufreq/cpuinfo_max_freq")
        if khz is not None and khz > 0:
            speeds[cpu] = khz
    return speeds or _read_policy_khz(root, online)


def _read_policy_khz(root: Root, online: CpuSet) -> dict[int, int]:
    """Read the same from the policies that ``cpuN/cpufreq`` are links to."""
    speeds: dict[int, int] = {}
    for number in root.list_numbers(f"{CPU_FOLDER}/cpufreq", "policy"):
        folder = f"{CPU_FOLDER}/cpufreq/policy{number}"
        khz = root.read_integer(f"{folder}/cpuinfo_max_freq")
        # related_cpus is the one list that the kernel separates by blanks.
        words = (root.read_text(f"{folder}/related_cpus") or str(number)).split()
        cpus = parse_cpu_list(",".join(words)) or frozenset()
        if khz is not None and khz > 0:
            speeds.update(dict.fromkeys(cpus & online, khz))
    return speeds


def _by_counters(root: Root, online: CpuSet) -> _Groups:
    """Use the folders that the kernel makes for the counters of Intel's kinds of cores."""
    groups: _Groups = []
    names = (("cpu_core", PERFORMANCE), ("cpu_atom", EFFICIENCY), ("cpu_lowpower", EFFICIENCY))
    for name, kind in names:
        cpus = (root.read_cpu_list(f"/sys/devices/{name}/cpus") or frozenset()) & online
        if cpus:
            groups.append((kind, cpus))
    is_complete = frozenset().union(*(cpus for _, cpus in groups)) == online
    return groups if len(groups) > 1 and is_complete else []


def _by_capacity(root: Root, online: CpuSet) -> _Groups:
    capacities = {cpu: root.read_integer(f"{CPU_FOLDER}/cpu{cpu}/cpu_capacity") for cpu in online}
    known = {cpu: value for cpu, value in capacities.items() if value is not None and value > 0}
    if len(known) != len(online):
        return []
    return _rank(known, threshold=_PERFORMANCE_CAPACITY)


def _by_arm_part(cpuinfo: CpuInfo, online: CpuSet, speeds: Mapping[int, int]) -> _Groups:
    parts = {cpu: read_arm_part(cpuinfo, cpu) for cpu in online}
    distinct = {part for part in parts.values() if part is not None}
    if len(distinct) < 2 or None in parts.values():
        return []
    groups: _Groups = []
    for identity in distinct:
        cpus = frozenset(cpu for cpu in online if parts[cpu] == identity)
        groups.append((EFFICIENCY if is_little_core(identity) else PERFORMANCE, cpus))
    if len({kind for kind, _ in groups}) < 2:
        groups = _relabel_by_speed(groups, speeds)
    return sorted(
        groups,
        key=lambda group: (group[0] == EFFICIENCY, -_fastest(group[1], speeds), min(group[1])),
    )


def _relabel_by_speed(groups: _Groups, speeds: Mapping[int, int]) -> _Groups:
    top = max(_fastest(cpus, speeds) for _, cpus in groups)
    return [
        (PERFORMANCE if _fastest(cpus, speeds) >= top * _SAME_KIND_SPEED else EFFICIENCY, cpus)
        for _, cpus in groups
    ]


def _by_first_cache(online: CpuSet, caches: Iterable[Cache], speeds: Mapping[int, int]) -> _Groups:
    """Tell kinds by the size of the first data cache where the frequency agrees."""
    sizes: dict[int, int] = {}
    for cache in caches:
        if cache.level == 1 and cache.type == "data" and cache.size_bytes:
            for cpus in cache.shared_cpus:
                sizes.update(dict.fromkeys(cpus, cache.size_bytes))
    if set(sizes) != online or set(speeds) != online or len(set(sizes.values())) != 2:
        return []
    large = frozenset(cpu for cpu in online if sizes[cpu] == max(sizes.values()))
    small = online - large
    if _fastest(small, speeds) >= min(speeds[cpu] for cpu in large):
        return []
    return [(PERFORMANCE, large), (EFFICIENCY, small)]


def _by_frequency(online: CpuSet, speeds: Mapping[int, int]) -> _Groups:
    return _rank(speeds, threshold=_SAME_KIND_SPEED) if set(speeds) == online else []


def _rank(values: Mapping[int, int], threshold: float) -> _Groups:
    """Split CPUs by a figure of speed where neighbouring figures lie clearly apart."""
    groups: list[list[int]] = []
    for cpu in sorted(values, key=lambda cpu: (-values[cpu], cpu)):
        if groups and values[cpu] >= values[groups[-1][0]] * _SAME_KIND_SPEED:
            groups[-1].append(cpu)
        else:
            groups.append([cpu])
    if len(groups) < 2:
        return []
    top = max(values.values())
    kinds = [PERFORMANCE if values[group[0]] >= top * threshold else EFFICIENCY for group in groups]
    kinds[-1] = EFFICIENCY
    return [(kind, frozenset(group)) for kind, group in zip(kinds, groups, strict=True)]


def _fastest(cpus: Iterable[int], speeds: Mapping[int, int]) -> int:
    return max((speeds[cpu] for cpu in cpus if cpu in speeds), default=0)
