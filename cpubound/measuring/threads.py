"""Which thread counts to measure and on which CPUs: pure arithmetic over a ``Machine``."""

from __future__ import annotations

from cpubound.cost.law import coarse_counts
from cpubound.machine.values import Machine
from cpubound.measuring.placements import landmark_counts, list_placements

# Every count is measured up to here; beyond, a plan refines around the knee.
DENSE_COUNT = 8


def is_dense(machine: Machine) -> bool:
    """Say whether the machine is small enough to measure every thread count."""
    return machine.effective_cpus <= DENSE_COUNT


def thread_counts(machine: Machine) -> tuple[int, ...]:
    """Return the thread counts to begin with, up to the effective CPUs.

    All on machines of up to 8; else doubling counts, and always the core counts of a cache
    group, a node, a package, a core kind and of the whole machine.
    """
    limit = machine.effective_cpus
    if is_dense(machine):
        return tuple(range(1, limit + 1))
    return coarse_counts(limit, landmark_counts(machine))


def placement(machine: Machine, threads: int) -> tuple[int, ...] | None:
    """Return the CPU of each thread: one per core first, fast cores first, compact.

    None where the allowed CPUs are fewer than the threads: then nothing is pinned.
    """
    return list_placements(machine)[0].cpus(threads)
