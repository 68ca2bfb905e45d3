"""What cores and caches do by themselves: levels, latency, compute roof, barriers, the clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cpubound import stats
from cpubound.errors import MachineError
from cpubound.kernels.levels import find_levels, working_set_sizes
from cpubound.kernels.values import Measurement
from cpubound.machine.values import Machine
from cpubound.measuring.bandwidth import REFERENCE_KERNEL, OpenBench, Progress
from cpubound.measuring.threads import placement
from cpubound.profile.values import BarrierCost, MemoryLevel, PeakRate, WorkingSetPoint

LATENCY_KERNEL = "latency"
BARRIER_KERNEL = "barrier"
# Less than the smallest first cache of a machine that runs models.
SMALLEST_SET_BYTES = 8 * 1024
SAMPLES = 6
# A cache of the system's table is taken for a found level if it is within this factor in size.
SAME_CACHE_FACTOR = 2.9
MEMORY_LEVEL = 0

# Noise must not look like a level: reads are quick enough to be visited twice.
READ_ROUNDS = 2

# Measures a kernel of one thread at each working set, so many times, with the instruction set
# given or the fastest (``cpubound.kernels.levels``).
Sweep = Callable[[str, Sequence[int], int, str | None], Sequence[Measurement]]


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreInstruments:
    """What the stage measures with beside ``OpenBench``; fakes in tests."""

    sweep: Sweep
    peak_kernels: tuple[str, ...]
    clock_step_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreFindings:
    """What the stage found; empty where there was no time or no kernel for it."""

    working_sets: tuple[WorkingSetPoint, ...] = ()
    levels: tuple[MemoryLevel, ...] = ()
    peak: tuple[PeakRate, ...] = ()
    barriers: tuple[BarrierCost, ...] = ()
    timer_resolution_s: float | None = None
    warnings: tuple[str, ...] = ()


def measure_cores(
    machine: Machine,
    counts: Sequence[int],
    *,
    open_bench: OpenBench,
    instruments: CoreInstruments,
    largest_bytes: int,
    sizes_per_octave: int,
    read_isa: str | None,
    seconds: float,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> CoreFindings:
    """Measure the memory levels, then barriers and the compute roof at each thread count.

    Parameters
    ----------
    counts : thread counts.
    largest_bytes : the largest working set, which only memory can hold.
    sizes_per_octave : working sets to each doubling; 0 leaves the levels out.
    read_isa : the instruction set that reads memory fastest; None looks for it at each size.
    seconds : no further thread count is begun after this.
    """
    deadline = clock() + seconds
    warnings: list[str] = []
    peak: list[PeakRate] = []
    barriers: list[BarrierCost] = []
    points: tuple[WorkingSetPoint, ...] = ()
    if sizes_per_octave:
        sizes = working_set_sizes(SMALLEST_SET_BYTES, largest_bytes, sizes_per_octave)
        progress("memory levels", 0.0)
        reads = instruments.sweep(REFERENCE_KERNEL, sizes, READ_ROUNDS, read_isa)
        progress("memory levels", 0.5)
        points = _working_set_points(reads, instruments.sweep(LATENCY_KERNEL, sizes, 1, None))
    kernels = (BARRIER_KERNEL, *instruments.peak_kernels)
    jobs = [(kernel, count) for count in counts for kernel in kernels]
    for number, (kernel, count) in enumerate(jobs):
        if clock() > deadline:
            warnings.append("there was no time left to measure every barrier and compute rate")
            break
        progress("cores", number / len(jobs))
        try:
            found = _sample(open_bench, kernel, count, placement(machine, count))
        except MachineError as error:
            warnings.append(f"{kernel} with {count} threads was not measured: {error}")
            continue
        if kernel == BARRIER_KERNEL:
            barriers.append(_barrier_cost(found))
        else:
            peak.append(_peak_rate(found, kernel))
    return CoreFindings(
        working_sets=points,
        levels=name_levels(points, machine),
        peak=tuple(peak),
        barriers=tuple(barriers),
        timer_resolution_s=instruments.clock_step_s,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def name_levels(points: Sequence[WorkingSetPoint], machine: Machine) -> tuple[MemoryLevel, ...]:
    """Find the levels in what working sets gave, and number them.

    A level that is about as large as a cache of the system's table has its number; what
    the table does not know is numbered in order. The last is memory (0).
    """
    timed = [p for p in points if p.bytes_per_s is not None]
    if len(timed) < 2:
        return ()
    found = find_levels([p.working_set_bytes for p in timed], [p.bytes_per_s or 0 for p in timed])
    levels: list[MemoryLevel] = []
    for place, level in enumerate(found):
        inside = [
            p for p in timed if level.smallest_bytes <= p.working_set_bytes <= level.largest_bytes
        ]
        is_memory = place == len(found) - 1
        number, size = (
            (MEMORY_LEVEL, None)
            if is_memory
            else _match_cache(machine, level.largest_bytes, len(levels) + 1)
        )
        latencies = [p.latency_s for p in inside if p.latency_s is not None]
        levels.append(
            MemoryLevel(
                level=number,
                capacity_bytes=None if is_memory else level.largest_bytes,
                size_bytes=size,
                bytes_per_s=level.value,
                latency_s=stats.median(latencies) if latencies else None,
            )
        )
    return tuple(levels)


def _match_cache(machine: Machine, capacity: int, number: int) -> tuple[int, int | None]:
    """Return number and size of the cache that a level of this capacity is, or the next number."""
    known = [
        (abs(math.log(cache.size_bytes / capacity)), cache.level, cache.size_bytes)
        for cache in machine.caches
        if cache.size_bytes and cache.type != "instruction" and cache.level >= number
    ]
    if not known:
        return number, None
    distance, level, size = min(known)
    return (level, size) if distance <= math.log(SAME_CACHE_FACTOR) else (number, None)


def _working_set_points(
    reads: Sequence[Measurement], chases: Sequence[Measurement]
) -> tuple[WorkingSetPoint, ...]:
    """Join both sweeps, the best sample of each size: noise only slows."""
    return tuple(
        WorkingSetPoint(
            working_set_bytes=read.working_set_bytes,
            bytes_per_s=read.best_bytes_per_s,
            latency_s=chase.best_seconds_per_unit,
        )
        for read, chase in zip(reads, chases, strict=True)
    )


def _sample(
    open_bench: OpenBench, kernel: str, threads: int, cpus: tuple[int, ...] | None
) -> Measurement:
    with open_bench(
        kernel, threads=threads, working_set_bytes=0, page_kind="anon_4k", cpus=cpus
    ) as bench:
        return bench.measurement([bench.sample() for _ in range(SAMPLES)])


def _barrier_cost(found: Measurement) -> BarrierCost:
    return BarrierCost(
        threads=found.threads, seconds=stats.median(found.samples_s), samples_s=found.samples_s
    )


def _peak_rate(found: Measurement, kernel: str) -> PeakRate:
    return PeakRate(
        dtype=kernel.removeprefix("peak_"),
        isa=found.isa,
        threads=found.threads,
        flops_per_s=found.median_flops_per_s,
        samples_flops_per_s=tuple(found.flops_per_pass / s for s in found.samples_s),
    )
