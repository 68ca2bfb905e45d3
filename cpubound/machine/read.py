"""Put the facts about a machine together."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from types import ModuleType

from cpubound.errors import UsageError
from cpubound.machine.activity import read_load_average, read_steal_fraction
from cpubound.machine.cpu import read_architecture, read_cpu_model, read_cpuinfo, read_isa_flags
from cpubound.machine.files import Root
from cpubound.machine.hypervisor import read_hypervisor
from cpubound.machine.limits import count_effective_cpus, read_limits
from cpubound.machine.memory import read_memory, read_memory_modules, read_numa_nodes
from cpubound.machine.power import read_power
from cpubound.machine.topology import Topology, read_caches, read_core_kinds, read_topology
from cpubound.machine.values import Machine


def read_machine(sysroot: Path | None = None) -> Machine:
    """Describe this machine, or the one whose ``/proc`` and ``/sys`` lie under ``sysroot``.

    Nothing is measured. What the system does not tell is None or empty. Outside Linux
    the facts are those that psutil gives.

    Raises UsageError if ``sysroot`` is not a folder with ``proc`` or ``sys`` in it.
    """
    if sysroot is not None:
        _check_sysroot(sysroot)
        return read_linux(Root(sysroot))
    if platform.system() == "Linux":
        return read_linux(Root())
    return read_portable()


def read_linux(root: Root) -> Machine:
    """Describe a Linux machine from its ``/proc`` and ``/sys``."""
    cpuinfo = read_cpuinfo(root)
    architecture = read_architecture(root, cpuinfo)
    memory = read_memory(root, architecture)
    topology = read_topology(root, cpuinfo)
    if not topology.online:
        topology = _assume_cpus(root)
    online = topology.online
    caches = read_caches(root, topology)
    limits = read_limits(root, online)
    power = read_power(root, online)
    return Machine(
        cpu_model=read_cpu_model(root, cpuinfo, online),
        architecture=architecture,
        operating_system="Linux",
        logical_cpus=tuple(sorted(topology.present)),
        online_cpus=tuple(sorted(online)),
        allowed_cpus=tuple(sorted(limits.allowed)),
        physical_cores=len(topology.cores) or None,
        packages=len(topology.packages) or None,
        threads_per_core=topology.threads_per_core,
        core_cpus=tuple(tuple(sorted(core)) for core in topology.cores),
        package_cpus=tuple(tuple(sorted(package)) for package in topology.packages),
        core_kinds=read_core_kinds(root, cpuinfo, online, caches),
        numa_nodes=read_numa_nodes(root, topology, memory.total_bytes),
        caches=caches,
        quota_cpus=limits.quota_cpus,
        effective_cpus=count_effective_cpus(len(limits.allowed), limits.quota_cpus),
        memory_bytes=memory.total_bytes,
        memory_limit_bytes=limits.memory_limit_bytes,
        memory_available_bytes=memory.available_bytes,
        page_size_bytes=memory.page_size_bytes,
        huge_page_size_bytes=memory.huge_page_size_bytes,
        transparent_huge_pages=memory.transparent_huge_pages,
        governor=power.governor,
        boost=power.boost,
        on_battery=power.on_battery,
        hypervisor=read_hypervisor(root, cpuinfo),
        isa_flags=read_isa_flags(cpuinfo, online),
        quota_periods=limits.periods,
        quota_throttled_periods=limits.throttled_periods,
        huge_pages_total=memory.huge_pages_total,
        huge_pages_free=memory.huge_pages_free,
        frequency_driver=power.frequency_driver,
        energy_preference=power.energy_preference,
        platform_profile=power.platform_profile,
        throttle_events=power.throttle_events,
        steal_fraction=read_steal_fraction(root),
        load_average=read_load_average(root),
        memory_modules=read_memory_modules(root),
        cpu_vendor=cpuinfo.first("vendor_id", "CPU implementer"),
        cpu_family=cpuinfo.first("cpu family", "CPU architecture"),
        cpu_model_number=cpuinfo.first("model", "CPU part"),
    )


def _assume_cpus(root: Root) -> Topology:
    """Count CPUs without ``/proc`` and ``/sys``: as Python does here, one in a bare snapshot."""
    count = (os.cpu_count() or 1) if root.is_live else 1
    cpus = frozenset(range(count))
    return Topology(present=cpus, online=cpus, cores=(), packages=(), threads_per_core=None)


def _check_sysroot(sysroot: Path) -> None:
    if not sysroot.is_dir():
        raise UsageError(f"--sysroot ({sysroot}) is not a folder: give one that holds proc and sys")
    if not ((sysroot / "proc").is_dir() or (sysroot / "sys").is_dir()):
        raise UsageError(
            f"--sysroot ({sysroot}) has no proc and no sys in it: "
            "give the folder in which a machine's /proc and /sys were unpacked"
        )


def read_portable() -> Machine:
    """Describe a machine that has no ``/proc`` and ``/sys``; what psutil lacks is None."""
    import psutil

    logical = psutil.cpu_count(logical=True) or 1
    cpus = tuple(range(logical))
    cores = psutil.cpu_count(logical=False)
    allowed = _read_affinity(psutil) & set(cpus) or set(cpus)
    total = available = None
    with contextlib.suppress(Exception):  # psutil raises what the platform raises
        memory = psutil.virtual_memory()
        total, available = int(memory.total), int(memory.available)
    return Machine(
        cpu_model=platform.processor() or None,
        architecture=platform.machine() or "unknown",
        operating_system=platform.system() or "unknown",
        logical_cpus=cpus,
        online_cpus=cpus,
        allowed_cpus=tuple(sorted(allowed)),
        physical_cores=cores,
        packages=None,
        threads_per_core=logical // cores if cores and logical % cores == 0 else None,
        quota_cpus=None,
        effective_cpus=count_effective_cpus(len(allowed), None),
        memory_bytes=total,
        memory_limit_bytes=None,
        memory_available_bytes=available,
        on_battery=_read_on_battery(psutil),
    )


def _read_affinity(psutil: ModuleType) -> set[int]:
    with contextlib.suppress(Exception):
        return set(psutil.Process().cpu_affinity())
    return set()  # macOS has no affinity


def _read_on_battery(psutil: ModuleType) -> bool | None:
    with contextlib.suppress(Exception):
        battery = psutil.sensors_battery()
        if battery is not None and battery.power_plugged is not None:
            return not battery.power_plugged
    return None
