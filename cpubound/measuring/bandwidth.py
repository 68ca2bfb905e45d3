"""Measure bandwidth by kernel, team and page kind, interleaved and shuffled."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from cpubound.errors import MachineError
from cpubound.kernels.values import Measurement
from cpubound.machine.activity import count_page_faults

REFERENCE_KERNEL = "read"

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
    """Opens a bench; ``cpubound.kernels.run.open_kernel`` in real use, a fake in tests."""

    def __call__(
        self,
        kernel: str,
        *,
        threads: int,
        working_set_bytes: int,
        page_kind: str,
        cpus: tuple[int, ...] | None,
        isa: str | None = None,
        touch_cpu: int | None = None,
    ) -> AbstractContextManager[Bench]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class BandwidthCell:
    """What to measure: one kernel by one team of threads on one page kind.

    ``touch_cpu`` writes the memory first where that is not up to its readers.
    """

    kernel: str
    threads: int
    page_kind: str
    cpus: tuple[int, ...] | None
    working_set_bytes: int
    touch_cpu: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CellRun:
    """A cell as it was measured: a measurement for each buffer, in the order opened.

    Physical memory is not all alike: which pages a buffer gets moves its bandwidth, here by
    up to a third. So several equal buffers are measured, and all their samples count.
    """

    cell: BandwidthCell
    buffers: tuple[Measurement, ...]

    @property
    def measurement(self) -> Measurement:
        """All samples; what else was obtained (pages, kernel variant) is of the best buffer."""
        best = max(self.buffers, key=lambda m: m.median_bytes_per_s)
        samples = tuple(sample for m in self.buffers for sample in m.samples_s)
        return msgspec.structs.replace(best, samples_s=samples)

    @property
    def buffer_rates(self) -> tuple[tuple[float, ...], ...]:
        """Every sample as bytes per second, by buffer."""
        return tuple(tuple(m.bytes_per_pass / s for s in m.samples_s) for m in self.buffers)


@dataclass(frozen=True, kw_only=True, slots=True)
class BandwidthRun:
    """All cells of one run; ``order`` has (cell, rate in bytes per second) as time went by.

    ``page_faults`` happened inside timed samples; None where the system does not count.
    ``failures`` say which cells could not be measured, and why: those have no buffers.
    """

    cells: tuple[CellRun, ...]
    order: tuple[tuple[BandwidthCell, float], ...]
    page_faults: int | None = None
    failures: tuple[str, ...] = ()


def measure_bandwidth(
    cells: Sequence[BandwidthCell],
    *,
    open_bench: OpenBench,
    memory_bytes: int,
    rounds: int,
    buffers: int,
    seconds: float,
    progress: Progress,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> BandwidthRun:
    """Measure every cell ``rounds`` times in random order, or until the time is over.

    Cells are measured in groups whose buffers fit into ``memory_bytes`` together; within a
    group each round visits all cells once. The rounds are shared among ``buffers`` buffers,
    one after the other. Every sample is kept, and each cell has at least two.
    """
    run = _Run(
        open_bench=open_bench,
        order=random.Random(seed),
        kept={cell: [] for cell in cells},
    )
    groups = _split(cells, memory_bytes)
    for number, group in enumerate(groups):
        deadline = clock() + seconds * len(group) / len(cells)
        left = rounds
        for turn in range(min(buffers, rounds)):
            if turn and clock() > deadline:
                break
            with ExitStack() as stack:
                benches = run.open_group(stack, group)
                for _ in range(-(-left // (buffers - turn))):
                    if rounds - left >= 2 and clock() > deadline:
                        break
                    left -= 1
                    run.sample_each(benches)
                    share = (rounds - left) / rounds
                    progress("memory bandwidth", (number + share) / len(groups))
                run.keep(benches)
    return BandwidthRun(
        cells=tuple(CellRun(cell=c, buffers=tuple(parts)) for c, parts in run.kept.items()),
        order=tuple(run.log),
        page_faults=run.page_faults,
        failures=tuple(dict.fromkeys(run.failures)),
    )


@dataclass(kw_only=True)
class _OpenCell:
    """A bench and what it gave since it was opened."""

    cell: BandwidthCell
    bench: Bench
    samples_s: list[float] = field(default_factory=list)


@dataclass(kw_only=True)
class _Run:
    """What a run has gathered so far."""

    open_bench: OpenBench
    order: random.Random
    kept: dict[BandwidthCell, list[Measurement]]
    log: list[tuple[BandwidthCell, float]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    page_faults: int | None = None

    def open_group(self, stack: ExitStack, cells: Sequence[BandwidthCell]) -> list[_OpenCell]:
        """Open benches with new buffers; a cell the system refuses is noted and left out."""
        found = []
        for cell in cells:
            try:
                # What the first buffer found fastest is not looked for again.
                isa = self.kept[cell][0].isa if self.kept[cell] else None
                bench = stack.enter_context(_open_cell(self.open_bench, cell, isa))
            except MachineError as error:
                self.failures.append(
                    f"{cell.kernel} on {cell.page_kind} pages with {cell.threads} threads "
                    f"was not measured: {error}"
                )
            else:
                found.append(_OpenCell(cell=cell, bench=bench))
        return found

    def sample_each(self, benches: Sequence[_OpenCell]) -> None:
        """Take one sample of every bench, in random order."""
        faults = count_page_faults()
        for one in self.order.sample(benches, len(benches)):
            one.samples_s.append(one.bench.sample())
            taken = one.bench.measurement(one.samples_s[-1:])
            self.log.append((one.cell, taken.best_bytes_per_s))
        now = count_page_faults()
        if faults is not None and now is not None:
            self.page_faults = (self.page_faults or 0) + now - faults

    def keep(self, benches: Sequence[_OpenCell]) -> None:
        """Turn the samples of these buffers into measurements."""
        for one in benches:
            if one.samples_s:
                self.kept[one.cell].append(one.bench.measurement(one.samples_s))


def _open_cell(
    open_bench: OpenBench, cell: BandwidthCell, isa: str | None = None
) -> AbstractContextManager[Bench]:
    return open_bench(
        cell.kernel,
        threads=cell.threads,
        working_set_bytes=cell.working_set_bytes,
        page_kind=cell.page_kind,
        cpus=cell.cpus,
        isa=isa,
        touch_cpu=cell.touch_cpu,
    )


def _split(cells: Sequence[BandwidthCell], memory_bytes: int) -> list[list[BandwidthCell]]:
    """Split cells, in their order, into groups whose buffers fit together; one always does."""
    groups: list[list[BandwidthCell]] = []
    left = 0
    for cell in cells:
        if not groups or cell.working_set_bytes > left:
            groups.append([])
            left = memory_bytes
        groups[-1].append(cell)
        left -= cell.working_set_bytes
    return groups


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
        """Return every sample over the median of its thread count: the machine's noise."""
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
) -> ReferenceReader:
    """Open the reference kernel at the thread counts of ``cells``."""
    return ReferenceReader(
        benches={cell.threads: stack.enter_context(_open_cell(open_bench, cell)) for cell in cells}
    )
