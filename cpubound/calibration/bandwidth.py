"""Measure read bandwidth at each thread count and page kind, interleaved and shuffled."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from cpubound.kernels.values import Measurement
from cpubound.units import MIB

REFERENCE_KERNEL = "read"
# Four times the whole last-level cache, and never so small that a pass is under a millisecond.
CACHE_FACTOR = 4
MIN_WORKING_SET_BYTES = 128 * MIB
# Never more than this share of what is available.
MEMORY_SHARE = 0.25

Progress = Callable[[str, float], None]


class Bench(Protocol):
    """A kernel with its buffers and threads, ready to give one short sample after another."""

    def sample(self) -> float:
        """Run the kernel and return seconds per pass of the slowest thread."""
        ...

    def measurement(self, samples_s: Sequence[float]) -> Measurement:
        """Return the samples with what was measured beside them."""
        ...


class OpenBench(Protocol):
    """Opens a bench; ``cpubound.kernels.open_kernel`` in real use, a fake in tests."""

    def __call__(
        self,
        kernel: str,
        *,
        threads: int,
        working_set_bytes: int,
        page_kind: str,
        cpus: tuple[int, ...] | None,
    ) -> AbstractContextManager[Bench]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class BandwidthCell:
    """What to measure: one kernel at one thread count on one page kind."""

    kernel: str
    threads: int
    page_kind: str
    cpus: tuple[int, ...] | None


def working_set_bytes(
    last_level_cache_bytes: int | None, available_bytes: int | None, minimum: int
) -> int:
    """Return the working set that only memory can hold, or the most that memory allows."""
    wanted = max(minimum, CACHE_FACTOR * (last_level_cache_bytes or 0))
    if available_bytes is not None:
        wanted = min(wanted, int(available_bytes * MEMORY_SHARE))
    return max(wanted // MIB * MIB, MIB)


def measure_bandwidth(
    cells: Sequence[BandwidthCell],
    *,
    open_bench: OpenBench,
    set_bytes: int,
    memory_bytes: int,
    rounds: int,
    seconds: float,
    progress: Progress,
    seed: int = 0,
) -> tuple[Measurement, ...]:
    """Measure every cell ``rounds`` times in random order, or until the time is over.

    Cells are measured in groups whose buffers fit into ``memory_bytes`` together; within a
    group each round visits all cells once. Every sample is kept, and each cell has at least
    two.
    """
    order = random.Random(seed)
    groups = _split(cells, max(1, memory_bytes // set_bytes))
    found: list[Measurement] = []
    for number, group in enumerate(groups):
        deadline = time.monotonic() + seconds * len(group) / len(cells)
        with ExitStack() as stack:
            benches = [
                stack.enter_context(_open_cell(open_bench, cell, set_bytes)) for cell in group
            ]
            samples: list[list[float]] = [[] for _ in group]
            for round_number in range(rounds):
                if round_number >= 2 and time.monotonic() > deadline:
                    break
                for place in order.sample(range(len(group)), len(group)):
                    samples[place].append(benches[place].sample())
                done = (number + (round_number + 1) / rounds) / len(groups)
                progress("memory bandwidth", done)
            found += [
                bench.measurement(taken) for bench, taken in zip(benches, samples, strict=True)
            ]
    return tuple(found)


def _open_cell(
    open_bench: OpenBench, cell: BandwidthCell, set_bytes: int
) -> AbstractContextManager[Bench]:
    return open_bench(
        cell.kernel,
        threads=cell.threads,
        working_set_bytes=set_bytes,
        page_kind=cell.page_kind,
        cpus=cell.cpus,
    )


def _split(cells: Sequence[BandwidthCell], size: int) -> list[Sequence[BandwidthCell]]:
    return [cells[start : start + size] for start in range(0, len(cells), size)]


@dataclass(kw_only=True)
class ReferenceReader:
    """The read kernel kept ready at some thread counts, to stand beside other measurements."""

    benches: dict[int, Bench]
    seen: list[tuple[int, float]] = field(default_factory=list)

    def __call__(self, threads: int) -> float:
        """Return the read bandwidth right now at the nearest thread count kept ready."""
        nearest = min(self.benches, key=lambda count: (abs(count - threads), count))
        bench = self.benches[nearest]
        rate = bench.measurement((bench.sample(),)).best_bytes_per_s
        self.seen.append((nearest, rate))
        return rate

    def relative_samples(self) -> tuple[float, ...]:
        """Return every sample over the median of its thread count: the machine's weather."""
        from cpubound import stats

        medians = {
            threads: stats.median([rate for t, rate in self.seen if t == threads])
            for threads in {t for t, _ in self.seen}
        }
        return tuple(rate / medians[threads] for threads, rate in self.seen)


def open_references(
    stack: ExitStack,
    cells: Sequence[BandwidthCell],
    *,
    open_bench: OpenBench,
    set_bytes: int,
) -> ReferenceReader:
    """Open the reference kernel at the thread counts of ``cells``."""
    return ReferenceReader(
        benches={
            cell.threads: stack.enter_context(_open_cell(open_bench, cell, set_bytes))
            for cell in cells
        }
    )
