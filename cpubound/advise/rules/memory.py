"""Rules about memory: each looks at a machine and gives a finding or None."""

from __future__ import annotations

from cpubound.advise.values import INFO, WARNING, Finding
from cpubound.machine.values import Machine
from cpubound.units import GB, format_binary_bytes, format_count, format_rate

# Below this share of what the modules could give, settings are more likely than luck.
SLOW_MEMORY_SHARE = 0.6


def find_memory_limit(machine: Machine) -> Finding | None:
    """Find a memory limit below the memory there is."""
    limit, memory = machine.memory_limit_bytes, machine.memory_bytes
    if limit is None or (memory is not None and limit >= memory):
        return None
    of_memory = "" if memory is None else f" of the {format_binary_bytes(memory)} there are"
    return Finding(
        code="memory-limit",
        severity=WARNING,
        evidence={"memory_limit_bytes": limit}
        | ({} if memory is None else {"memory_bytes": memory}),
        message=(
            f"this container may use {format_binary_bytes(limit)}{of_memory}, file cache included: "
            "a larger model is read from the disk again for every token"
        ),
        remedy="choose a model that fits with its KV cache, or raise the limit (docker --memory)",
    )


def find_numa_nodes(machine: Machine) -> Finding | None:
    """Find several memory nodes: where the weights lie then decides the speed."""
    with_memory = [node for node in machine.numa_nodes if node.memory_bytes != 0]
    with_cpus = [node for node in machine.numa_nodes if node.cpus]
    if len(with_cpus) < 2:
        return None
    return Finding(
        code="numa-nodes",
        severity=INFO,
        evidence={"nodes_with_cpus": len(with_cpus), "nodes_with_memory": len(with_memory)},
        message=(
            f"memory is split over {len(with_memory)} nodes: weights read across nodes are "
            "slower, and a loader puts them where its one thread runs"
        ),
        remedy="--numa distribute, or numactl --cpunodebind=0 --membind=0 for a model that fits",
    )


def find_huge_pages_off(machine: Machine) -> Finding | None:
    """Find a kernel that never gives large pages by itself."""
    if machine.transparent_huge_pages != "never" or machine.huge_pages_free:
        return None
    return Finding(
        code="huge-pages-off",
        severity=INFO,
        evidence={"huge_pages_free": machine.huge_pages_free or 0},
        message=(
            "transparent huge pages are off: weights sit on small pages, which read slower on "
            "some machines (calibrate measures by how much here)"
        ),
        remedy="echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
    )


def find_single_channel(machine: Machine) -> Finding | None:
    """Find memory in one channel only; the modules of a virtual machine say nothing."""
    modules = machine.memory_modules if machine.hypervisor is None else ()
    channels = {module.channel for module in modules}
    is_soldered = any((module.type or "").startswith("LPDDR") for module in modules)
    if not modules or is_soldered or len(channels) > 1 or (len(modules) > 1 and None in channels):
        return None
    return Finding(
        code="single-channel",
        severity=WARNING,
        evidence={"modules": len(modules), "channels": 1},
        message=(
            f"{format_count(len(modules), 'memory module')} in one channel: "
            "a second channel doubles the bandwidth, and with it the speed of decoding"
        ),
        remedy="put equal modules into both channels (the board's manual says which slots)",
    )


def find_memory_below_rated(machine: Machine) -> Finding | None:
    """Find modules that run below the speed they are made for."""
    if machine.hypervisor is not None:
        return None
    pairs = [
        (module.transfers_per_s, module.rated_transfers_per_s)
        for module in machine.memory_modules
        if module.transfers_per_s and module.rated_transfers_per_s
    ]
    slow = [(now, rated) for now, rated in pairs if now < rated * 0.97]
    if not slow:
        return None
    now, rated = min(slow)
    return Finding(
        code="memory-below-rated",
        severity=WARNING,
        evidence={"transfers_per_s": now, "rated_transfers_per_s": rated},
        message=f"memory runs at {now / 1e6:.0f} MT/s and is rated for {rated / 1e6:.0f}",
        remedy="enable XMP or EXPO in the firmware, if the board and the CPU allow that speed",
    )


def find_slow_memory(machine: Machine, read_bytes_per_s: float) -> Finding | None:
    """Find a measured read bandwidth far below what the memory modules could give."""
    theoretical = machine.theoretical_bytes_per_s
    if theoretical is None or read_bytes_per_s >= theoretical * SLOW_MEMORY_SHARE:
        return None
    return Finding(
        code="slow-memory",
        severity=WARNING,
        evidence={
            "read_bytes_per_s": read_bytes_per_s,
            "theoretical_bytes_per_s": theoretical,
            "share": round(read_bytes_per_s / theoretical, 3),
        },
        message=(
            f"measured {format_rate(read_bytes_per_s)} of the {theoretical / GB:.1f} GB/s that "
            f"the modules could give ({read_bytes_per_s / theoretical:.0%})"
        ),
        remedy="check channels, XMP or EXPO, NUMA and power settings in the firmware",
    )
