"""Which thread counts to measure and on which CPUs: pure arithmetic over a ``Machine``."""

from __future__ import annotations

from cpubound.machine.values import Machine

# Every count is measured up to here; above, counts lie about GROWTH apart.
DENSE_COUNT = 8
GROWTH = 1.3


def thread_counts(machine: Machine) -> tuple[int, ...]:
    """Return the thread counts worth measuring, up to the effective CPUs.

    All up to 8, then about 1.3 × apart, and always the core counts of a cache group, a
    node, a package, a core kind and of the whole machine.
    """
    limit = machine.effective_cpus
    counts = set(range(1, min(limit, DENSE_COUNT) + 1)) | {limit}
    count = float(DENSE_COUNT)
    while count * GROWTH < limit:
        count *= GROWTH
        counts.add(round(count))
    for group in _core_groups(machine):
        cores = len(cores_within(machine, group))
        if 0 < cores <= limit:
            counts.add(cores)
    return tuple(sorted(counts))


def placement(machine: Machine, threads: int) -> tuple[int, ...] | None:
    """Return the CPU of each thread: one per core first, fast cores first, compact.

    None where the allowed CPUs are fewer than the threads: then nothing is pinned.
    """
    allowed = set(machine.allowed_cpus)
    if threads > len(allowed):
        return None
    fast = _kind_rank(machine)
    cores = [tuple(cpu for cpu in core if cpu in allowed) for core in machine.core_cpus]
    cores = [core for core in cores if core]
    grouped = {cpu for core in cores for cpu in core}
    cores += [(cpu,) for cpu in sorted(allowed - grouped)]
    cores.sort(key=lambda core: (fast.get(core[0], 0), core[0]))
    first = [core[0] for core in cores]
    siblings = [cpu for core in cores for cpu in core[1:]]
    return tuple((first + siblings)[:threads])


def cores_within(machine: Machine, cpus: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the cores that have an allowed CPU among ``cpus``."""
    usable = set(cpus) & set(machine.allowed_cpus)
    if not machine.core_cpus:
        return tuple((cpu,) for cpu in sorted(usable))
    return tuple(core for core in machine.core_cpus if usable.intersection(core))


def _core_groups(machine: Machine) -> list[tuple[int, ...]]:
    groups = [machine.allowed_cpus, *machine.package_cpus]
    groups += [node.cpus for node in machine.numa_nodes]
    groups += [kind.cpus for kind in machine.core_kinds]
    shared = [cache for cache in machine.caches if cache.type != "instruction"]
    if shared:
        last = max(cache.level for cache in shared)
        groups += [g for cache in shared if cache.level == last for g in cache.shared_cpus]
    return groups


def _kind_rank(machine: Machine) -> dict[int, int]:
    """Rank core kinds by their top frequency; unknown frequencies keep the listed order."""
    kinds = sorted(machine.core_kinds, key=lambda kind: -(kind.max_khz or 0))
    kinds.sort(key=lambda kind: kind.kind == "efficiency")
    return {cpu: rank for rank, kind in enumerate(kinds) for cpu in kind.cpus}
