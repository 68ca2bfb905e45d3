"""The caches of the online CPUs."""

from __future__ import annotations

from cpubound.machine.files import CpuSet, Root
from cpubound.machine.topology import CPU_FOLDER, Topology
from cpubound.machine.values import Cache

_TYPES = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
_SPARC_CACHES = (
    ("l1_dcache_size", 1, "data"),
    ("l1_icache_size", 1, "instruction"),
    ("l2_cache_size", 2, "unified"),
)
_Key = tuple[int, str, int | None]  # level, type, size


def read_caches(root: Root, topology: Topology) -> tuple[Cache, ...]:
    """Read the caches from sysfs, one row for each level, type and size.

    A cache is counted once however many CPUs share it, and once if a virtual machine
    lists it twice for the same CPUs. Empty where the kernel says nothing.
    """
    online = topology.online
    siblings = {cpu: core for core in topology.cores for cpu in core}
    instances: dict[_Key, dict[CpuSet, None]] = {}
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
        for (level, kind, size), groups in sorted(instances.items(), key=_order)
    )


def _read_cache(
    root: Root, folder: str
) -> tuple[int | None, str | None, int | None, CpuSet | None]:
    level = root.read_integer(f"{folder}/level")
    if level is not None and not 1 <= level <= 9:
        level = None
    kind = _TYPES.get(root.read_text(f"{folder}/type") or "")
    size = root.read_size(f"{folder}/size") or None  # firmware that does not know writes 0
    shared = root.read_cpu_mask(f"{folder}/shared_cpu_map")
    if shared is None:
        shared = root.read_cpu_list(f"{folder}/shared_cpu_list")
    return level, kind, size, shared


def _order(item: tuple[_Key, object]) -> tuple[int, str, int]:
    level, kind, size = item[0]
    return level, kind, -(size or 0)
