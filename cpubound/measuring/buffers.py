"""How large buffers may be: beyond the caches, within the memory."""

from __future__ import annotations

from cpubound.machine.values import Machine
from cpubound.measuring.placements import reachable_cache_bytes
from cpubound.units import MIB

# Four times the whole last-level cache, and never so small that a pass is under a millisecond.
CACHE_FACTOR = 4
MIN_WORKING_SET_BYTES = 128 * MIB
# Never more than this share of what is available.
MEMORY_SHARE = 0.25


def working_set_bytes(
    last_level_cache_bytes: int | None, available_bytes: int | None, minimum: int
) -> int:
    """Return the working set that only memory can hold, or the most that memory allows."""
    wanted = max(minimum, CACHE_FACTOR * (last_level_cache_bytes or 0))
    if available_bytes is not None:
        wanted = min(wanted, int(available_bytes * MEMORY_SHARE))
    return max(wanted // MIB * MIB, MIB)


def available_bytes(machine: Machine) -> int | None:
    """Return the memory that may be taken: what is available, within the limit."""
    known = [m for m in (machine.memory_available_bytes, machine.memory_limit_bytes) if m]
    return min(known) if known else None


class BufferSizes:
    """How large buffers may be on a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._available = available_bytes(machine)
        self.largest = self.of(None)

    @property
    def budget(self) -> int:
        """Return the bytes of buffers that may be open at once."""
        available = self._available or 4 * self.largest
        return max(self.largest, available // 4)

    def of(self, cpus: tuple[int, ...] | None) -> int:
        """Return the bytes that a team on these CPUs can read from memory alone."""
        cache = reachable_cache_bytes(self._machine, cpus)
        return working_set_bytes(cache, self._available, MIN_WORKING_SET_BYTES)
