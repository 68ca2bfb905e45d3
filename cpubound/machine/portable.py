"""What psutil tells of a machine that is not Linux."""

from __future__ import annotations

import contextlib
import platform
from types import ModuleType

from cpubound.machine.limits import count_effective_cpus
from cpubound.machine.values import Machine


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
