"""Where threads can be put on a machine, and which of it is worth measuring: pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from cpubound.machine.values import Machine, NumaNode

COMPACT = "compact"
SPREAD = "spread"
SIBLINGS = "siblings"
# The whole node matrix is measured up to here; beyond, every node alone and one node's row.
FULL_MATRIX_NODES = 4

Cpus = tuple[int, ...]


class Placement(NamedTuple):
    """An order of CPUs: a team of T threads takes the first T."""

    name: str
    order: Cpus

    def cpus(self, threads: int) -> Cpus | None:
        """Return the CPU of each thread; None where there are too few."""
        return self.order[:threads] if threads <= len(self.order) else None


class PlacedTeam(NamedTuple):
    """One team to measure beside the main curve."""

    placement: str
    cpus: Cpus


class NodePair(NamedTuple):
    """Threads on one node that read memory of another, which ``touch_cpu`` writes first."""

    cpu_node: int
    memory_node: int
    cpus: Cpus
    touch_cpu: int


def list_placements(machine: Machine) -> tuple[Placement, ...]:
    """List the ways to place threads on the allowed CPUs that differ on this machine.

    ``compact``: one thread per core, fast cores first, a cache group after the other, second
    siblings last. ``spread``: in turn over memory nodes, and in each over its cache groups.
    ``siblings``: all siblings of a core before the next core. One for each kind of core,
    where there are several.
    """
    cores = order_cores(machine)
    found = [Placement(COMPACT, _siblings_last(cores))]
    spread = _siblings_last(spread_cores(machine))
    if set(spread) == set(found[0].order) and spread != found[0].order:
        found.append(Placement(SPREAD, spread))
    if any(len(core) > 1 for core in cores):
        found.append(Placement(SIBLINGS, tuple(cpu for core in cores for cpu in core)))
    if len(machine.core_kinds) > 1:
        names = dict.fromkeys(kind.kind for kind in machine.core_kinds)
        for name in names:
            cpus = {cpu for k in machine.core_kinds if k.kind == name for cpu in k.cpus}
            own = [core for core in cores if cpus.issuperset(core)]
            if own:
                found.append(Placement(name, _siblings_last(own)))
    return tuple(found)


def plan_teams(machine: Machine, counts: Sequence[int]) -> tuple[PlacedTeam, ...]:
    """List the teams beside the main curve that tell something it does not.

    Each placement is measured at the thread counts of the main curve that it has CPUs for,
    and with all its cores. A team whose CPUs another one already has is left out; so is one
    of more threads than can run at once. Siblings are told by one core and by one cache group.
    """
    placements = list_placements(machine)
    compact = placements[0]
    seen = {frozenset(compact.order[:count]) for count in counts}
    teams = []
    for placement in placements[1:]:
        if placement.name == SIBLINGS:
            wanted = _sibling_counts(machine)
        else:
            cores = len(_cores_of(machine, placement.order))
            wanted = sorted({*(c for c in counts if c <= cores), cores, len(placement.order)})
        for count in wanted:
            cpus = placement.cpus(count)
            if cpus is None or count > machine.effective_cpus or frozenset(cpus) in seen:
                continue
            seen.add(frozenset(cpus))
            teams.append(PlacedTeam(placement.name, cpus))
    return tuple(teams)


def plan_node_pairs(machine: Machine, *, thorough: bool = False) -> tuple[NodePair, ...]:
    """List the cells of the node × node matrix; none where there is one node only.

    The team is one thread on each core of its node, within the effective CPUs. Memory can be
    placed only by a CPU of its node, so nodes of memory alone are left out, and so are nodes
    without memory. Beyond four nodes the row of the first node and the diagonal stand for
    the rest, unless ``thorough``.
    """
    with_cpus = [node for node in machine.numa_nodes if _node_cores(machine, node)]
    with_memory = [node for node in with_cpus if node.memory_bytes != 0]
    if len(with_cpus) < 2:
        return ()
    is_full = thorough or len(with_cpus) <= FULL_MATRIX_NODES
    return tuple(
        NodePair(
            cpu_node=reader.id,
            memory_node=owner.id,
            cpus=tuple(core[0] for core in _node_cores(machine, reader))[: machine.effective_cpus],
            touch_cpu=_node_cores(machine, owner)[0][0],
        )
        for reader in with_cpus
        for owner in with_memory
        if is_full or reader is owner or reader is with_cpus[0]
    )


def order_cores(machine: Machine) -> tuple[Cpus, ...]:
    """Return the allowed CPUs of each core: fast kinds first, group by group, node by node."""
    kind = _kind_rank(machine)
    package = _index_of(machine.package_cpus)
    node = _index_of(node.cpus for node in machine.numa_nodes)
    group = _index_of(cache_groups(machine))
    return tuple(
        sorted(
            allowed_cores(machine),
            key=lambda core: (
                kind.get(core[0], 0),
                package.get(core[0], 0),
                node.get(core[0], 0),
                group.get(core[0], 0),
                core[0],
            ),
        )
    )


def spread_cores(machine: Machine) -> tuple[Cpus, ...]:
    """Return the cores in turn over nodes, and within a node in turn over cache groups."""
    node = _index_of(node.cpus for node in machine.numa_nodes)
    group = _index_of(cache_groups(machine))
    kind = _kind_rank(machine)
    spread: list[Cpus] = []
    cores = order_cores(machine)
    for rank in dict.fromkeys(kind.get(core[0], 0) for core in cores):
        own = [core for core in cores if kind.get(core[0], 0) == rank]
        by_node = [
            _take_turns(_split_by(members, group)) for members in _split_by(own, node).values()
        ]
        spread += _take_turns(dict(enumerate(by_node)))
    return tuple(spread)


def allowed_cores(machine: Machine) -> tuple[Cpus, ...]:
    """Return the allowed CPUs of each core that has any; a CPU of no core is one by itself."""
    allowed = set(machine.allowed_cpus)
    cores = [tuple(sorted(set(core) & allowed)) for core in machine.core_cpus]
    known = {cpu for core in cores for cpu in core}
    return tuple(core for core in cores if core) + tuple((cpu,) for cpu in sorted(allowed - known))


def cache_groups(machine: Machine) -> tuple[Cpus, ...]:
    """Return the CPUs that share each last-level cache; empty where the caches are unknown."""
    shared = [cache for cache in machine.caches if cache.type != "instruction"]
    if not shared:
        return ()
    last = max(cache.level for cache in shared)
    return tuple(group for cache in shared if cache.level == last for group in cache.shared_cpus)


def reachable_cache_bytes(machine: Machine, cpus: Iterable[int] | None) -> int | None:
    """Return the size of the last-level caches that these CPUs can fill; all of them for None.

    A thread fills the caches of its own group only, so that is what its buffer must exceed.
    """
    if cpus is None or not cache_groups(machine):
        return machine.last_level_cache_bytes
    used = set(cpus)
    last = max(cache.level for cache in machine.caches if cache.type != "instruction")
    sizes = [
        cache.size_bytes or 0
        for cache in machine.caches
        if cache.level == last and cache.type != "instruction"
        for group in cache.shared_cpus
        if used.intersection(group)
    ]
    return sum(sizes) or machine.last_level_cache_bytes


def landmark_counts(machine: Machine) -> tuple[int, ...]:
    """Return the core counts of cache group, node, package, core kind and the whole machine.

    Limited to allowed CPUs and to the threads that can run at once.
    """
    groups = [machine.allowed_cpus, *machine.package_cpus, *cache_groups(machine)]
    groups += [node.cpus for node in machine.numa_nodes]
    groups += [kind.cpus for kind in machine.core_kinds]
    counts = {len(_cores_of(machine, group)) for group in groups}
    return tuple(sorted(c for c in counts if 0 < c <= machine.effective_cpus))


def _sibling_counts(machine: Machine) -> list[int]:
    """Return the threads of one whole core and of one whole cache group."""
    cores = order_cores(machine)
    groups = _index_of(cache_groups(machine))
    first = groups.get(cores[0][0])
    in_group = [core for core in cores if groups.get(core[0]) == first]
    return sorted({len(cores[0]), sum(map(len, in_group))})


def _cores_of(machine: Machine, cpus: Iterable[int]) -> list[Cpus]:
    chosen = set(cpus)
    return [core for core in allowed_cores(machine) if chosen.intersection(core)]


def _node_cores(machine: Machine, node: NumaNode) -> list[Cpus]:
    return [core for core in order_cores(machine) if set(node.cpus).issuperset(core)]


def _kind_rank(machine: Machine) -> dict[int, int]:
    """Rank core kinds by their top frequency; unknown frequencies keep the listed order."""
    kinds = sorted(machine.core_kinds, key=lambda kind: -(kind.max_khz or 0))
    kinds.sort(key=lambda kind: kind.kind == "efficiency")
    return {cpu: rank for rank, kind in enumerate(kinds) for cpu in kind.cpus}


def _index_of(groups: Iterable[Iterable[int]]) -> dict[int, int]:
    return {cpu: index for index, group in enumerate(groups) for cpu in group}


def _siblings_last(cores: Sequence[Cpus]) -> Cpus:
    """Return the first CPU of every core, then the second of every core, and so on."""
    layers = zip_longest(*cores)
    return tuple(cpu for layer in layers for cpu in layer if cpu is not None)


def _split_by(cores: Sequence[Cpus], index: dict[int, int]) -> dict[int, list[Cpus]]:
    found: dict[int, list[Cpus]] = {}
    for core in cores:
        found.setdefault(index.get(core[0], 0), []).append(core)
    return found


def _take_turns(groups: dict[int, list[Cpus]]) -> list[Cpus]:
    turns = zip_longest(*groups.values())
    return [core for turn in turns for core in turn if core is not None]
