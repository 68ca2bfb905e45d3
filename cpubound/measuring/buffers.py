"""How large buffers may be: beyond the caches, within the memory."""

from __future__ import annotations

from collections.abc import Sequence

from cpubound.errors import MachineError
from cpubound.machine.values import Machine
from cpubound.measuring.placements import reachable_cache_bytes
from cpubound.units import MIB, format_binary_bytes

# Four times the whole last-level cache, and never so small that a pass is under a millisecond.
CACHE_FACTOR = 4
MIN_WORKING_SET_BYTES = 128 * MIB
# Never more than this share of what is available.
MEMORY_SHARE = 0.25
# llama.cpp's process with its compute buffers held 95 MB when a limit of 256 MiB ended it, and
# this one 40 MB besides its buffers (2026-12-01, x86-64, calibrate --quick).
ENGINE_BYTES = 128 * MIB


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
    return machine.free_memory_bytes or None


def model_bytes(machine: Machine) -> int | None:
    """Return the memory that is left for models beside llama.cpp's own.

    Raises
    ------
    MachineError : a limit leaves too little to run it at all.
    """
    available = available_bytes(machine)
    if available is None:
        return None
    if available < 1.5 * ENGINE_BYTES:
        raise MachineError(
            f"the memory does not hold llama.cpp and its probes ({format_binary_bytes(available)} "
            f"of {format_binary_bytes(int(1.5 * ENGINE_BYTES))}): allow more, or give --no-engine"
        )
    return available - ENGINE_BYTES


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

    def kept_ready(self, thread_counts: Sequence[int]) -> Sequence[int]:
        """Return as many of the largest thread counts as buffers fit at once, one at least."""
        return thread_counts[-max(1, self.budget // self.largest) :]

    def of(self, cpus: tuple[int, ...] | None) -> int:
        """Return the bytes that a team on these CPUs can read from memory alone."""
        cache = reachable_cache_bytes(self._machine, cpus)
        return working_set_bytes(cache, self._available, MIN_WORKING_SET_BYTES)
