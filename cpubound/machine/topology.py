"""Which CPUs there are, how they form cores, packages and kinds of cores, and their caches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cpubound.machine.cpu import CpuInfo, is_little_core, read_arm_part
from cpubound.machine.files import CpuSet, Root, parse_cpu_list, parse_integer
from cpubound.machine.values import Cache, CoreKind

CPU_FOLDER = "/sys/devices/system/cpu"
PERFORMANCE = "performance"
EFFICIENCY = "efficiency"
UNIFORM = "uniform"

# Favoured cores of one kind differ by some per cent; the slowest hybrids known by 20 %.
_SAME_KIND_SPEED = 0.85
# A core with half the capacity of the largest still pulls its weight in a team.
_PERFORMANCE_CAPACITY = 0.5
_CACHE_TYPES = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
_SPARC_CACHES = (
    ("l1_dcache_size", 1, "data"),
    ("l1_icache_size", 1, "instruction"),
    ("l2_cache_size", 2, "unified"),
)
_CacheKey = tuple[int, str, int | None]  # level, type, size
_Groups = list[tuple[str, CpuSet]]


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


def read_caches(root: Root, topology: Topology) -> tuple[Cache, ...]:
    """Read the caches from sysfs, one row for each level, type and size.

    A cache is counted once however many CPUs share it, and once if a virtual machine
    lists it twice for the same CPUs. Empty where the kernel says nothing.
    """
    online = topology.online
    siblings = {cpu: core for core in topology.cores for cpu in core}
    instances: dict[_CacheKey, dict[CpuSet, None]] = {}
    claimed: set[tuple[int, str, int]] = set()
    for cpu in sorted(online):
        folder = f"{CPU_FOLDER}/cpu{cpu}/cache"
        for index in root.list_numbers(folder, "index"):
            level, kind, size, shared = _read_cache(root, f"{folder}/index{index}")
            if shared is not None:
                # Itanium leaves the map of some caches empty: they belong to the core.
                shared = shared or siblings.get(cpu, frozenset())
            shared = (shared or frozenset()) & online | {cpu}
            if level is None or kind is None or (level, kind, cpu) in claimed:
                continue
            claimed.update((level, kind, sharer) for sharer in shared)
            instances.setdefault((level, kind, size), {}).setdefault(shared, None)
        for name, level, kind in _SPARC_CACHES:
            size = root.read_integer(f"{CPU_FOLDER}/cpu{cpu}/{name}")
            if size:
                instances.setdefault((level, kind, size), {}).setdefault(frozenset({cpu}), None)
    return tuple(
        Cache(
            level=level,
            type=kind,
            size_bytes=size,
            instances=len(groups),
            shared_cpus=tuple(tuple(sorted(group)) for group in groups),
        )
        for (level, kind, size), groups in sorted(instances.items(), key=_cache_order)
    )


def _read_cache(
    root: Root, folder: str
) -> tuple[int | None, str | None, int | None, CpuSet | None]:
    level = root.read_integer(f"{folder}/level")
    if level is not None and not 1 <= level <= 9:
        level = None
    kind = _CACHE_TYPES.get(root.read_text(f"{folder}/type") or "")
    size = root.read_size(f"{folder}/size") or None  # firmware that does not know writes 0
    shared = root.read_cpu_mask(f"{folder}/shared_cpu_map")
    if shared is None:
        shared = root.read_cpu_list(f"{folder}/shared_cpu_list")
    return level, kind, size, shared


def _cache_order(item: tuple[_CacheKey, object]) -> tuple[int, str, int]:
    level, kind, size = item[0]
    return level, kind, -(size or 0)


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
