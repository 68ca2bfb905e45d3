"""The memory stage: bandwidth over threads, its knee, placements and the node matrix."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from cpubound import stats
from cpubound.cost.law import find_saturation, next_count, saturation_point
from cpubound.errors import MachineError
from cpubound.kernels.values import Measurement
from cpubound.machine.values import Machine
from cpubound.measuring.bandwidth import (
    REFERENCE_KERNEL,
    BandwidthCell,
    BandwidthRun,
    CellRun,
    OpenBench,
    Progress,
    measure_bandwidth,
)
from cpubound.measuring.buffers import BufferSizes
from cpubound.measuring.noise import STABLE_MOVE, estimate_move
from cpubound.measuring.placements import COMPACT, SPREAD, plan_node_pairs, plan_teams
from cpubound.measuring.plan import Plan
from cpubound.measuring.threads import is_dense, placement, thread_counts
from cpubound.profile.values import NodeMeasurement, PlacedMeasurement, SaturationPoint

_Row = TypeVar("_Row", PlacedMeasurement, NodeMeasurement)

# Every kernel runs on small pages; ``read`` on the other kinds too, as weights may lie on them.
PAGE_KINDS = ("anon_4k", "file", "anon_2m")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFindings:
    """What the memory stage found, and how steady it was.

    ``relative_rates`` are the reference kernel's, in the order of time, each over the median of
    its cell; ``buffer_medians`` the median rate in each buffer of its cells.
    """

    bandwidth: tuple[Measurement, ...]
    saturation: tuple[SaturationPoint, ...]
    placements: tuple[PlacedMeasurement, ...]
    nodes: tuple[NodeMeasurement, ...]
    relative_rates: tuple[float, ...]
    buffer_medians: tuple[tuple[float, ...], ...]
    page_faults: int | None
    warnings: tuple[str, ...]
    seconds: float

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """The thread counts of the main curve."""
        rows = (m for m in self.bandwidth if m.kernel == REFERENCE_KERNEL)
        return tuple(sorted({m.threads for m in rows if m.page_kind == PAGE_KINDS[0]}))

    @property
    def read_isa(self) -> str:
        """The instruction set that one thread read memory fastest with."""
        rows = [m for m in self.bandwidth if m.kernel == REFERENCE_KERNEL]
        return min(rows, key=lambda m: (m.threads, -m.median_bytes_per_s)).isa


def measure_memory(
    machine: Machine,
    plan: Plan,
    *,
    open_bench: OpenBench,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> MemoryFindings:
    """Measure a machine's bandwidth as its plan says.

    Small machines are measured at every thread count, all cells interleaved. On larger ones
    the counts double, then close in on the knee of each kernel, within ``many_core_seconds``;
    what there is no time for is left out with a warning.

    Raises
    ------
    MachineError : not even the reference kernel can be measured.
    """
    stage = _Stage(
        machine=machine, plan=plan, open_bench=open_bench, progress=progress, clock=clock
    )
    if is_dense(machine):
        stage.measure_all_counts()
    else:
        stage.refine_counts()
    stage.repeat_until_stable()
    stage.measure_placements()
    stage.measure_node_pairs()
    return stage.findings()


def reference_cell(machine: Machine, threads: int) -> BandwidthCell:
    """Return the cell of the reference kernel on the main curve."""
    cpus = placement(machine, threads)
    return _cell(BufferSizes(machine), *_REFERENCE, threads, cpus)


def _cell(
    sizes: BufferSizes,
    kernel: str,
    page_kind: str,
    threads: int,
    cpus: tuple[int, ...] | None,
    touch_cpu: int | None = None,
) -> BandwidthCell:
    return BandwidthCell(
        kernel=kernel,
        threads=threads,
        page_kind=page_kind,
        cpus=cpus,
        working_set_bytes=sizes.of(cpus),
        touch_cpu=touch_cpu,
    )


_Key = tuple[str, str, int]  # kernel, page kind, threads
_REFERENCE = (REFERENCE_KERNEL, PAGE_KINDS[0])


@dataclass(kw_only=True)
class _Stage:
    """The state of a memory stage: what has been measured, and how much time is left."""

    machine: Machine
    plan: Plan
    open_bench: OpenBench
    progress: Progress
    clock: Callable[[], float]
    runs: dict[_Key, list[CellRun]] = field(default_factory=dict)
    placed: list[tuple[str, CellRun]] = field(default_factory=list)
    pairs: list[NodeMeasurement] = field(default_factory=list)
    order: list[tuple[BandwidthCell, float]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    page_faults: int | None = None

    def __post_init__(self) -> None:
        self.sizes = BufferSizes(self.machine)
        self.started = self.clock()
        self.page_kinds = _page_kinds(self.machine)

    @property
    def seconds_left(self) -> float:
        """Time left on a machine of many cores."""
        return self.started + self.plan.many_core_seconds - self.clock()

    def measure_all_counts(self) -> None:
        counts = thread_counts(self.machine)
        others = [k for k in self.plan.kernels if k != REFERENCE_KERNEL]
        wanted = [(REFERENCE_KERNEL, kind) for kind in self.page_kinds]
        wanted += [(kernel, PAGE_KINDS[0]) for kernel in others]
        cells = [self._main_cell(k, kind, t) for k, kind in wanted for t in counts]
        self._keep(self._run(cells, self.plan.bandwidth_seconds))

    def refine_counts(self) -> None:
        """Find the knee of each kernel; the reference first, since the rest goes by it."""
        counts = thread_counts(self.machine)
        self._refine(REFERENCE_KERNEL, PAGE_KINDS[0], counts)
        knee = find_saturation(self._medians(REFERENCE_KERNEL, PAGE_KINDS[0]))
        few = tuple(sorted({1, *counts[2::2], knee, self.machine.effective_cpus}))
        series = [(REFERENCE_KERNEL, kind, counts) for kind in self.page_kinds[1:2]]
        series += [(k, PAGE_KINDS[0], few) for k in self.plan.kernels if k != REFERENCE_KERNEL]
        series += [(REFERENCE_KERNEL, kind, few) for kind in self.page_kinds[2:]]
        for kernel, kind, chosen in series:
            if self._has_time(f"{kernel} on {kind} pages"):
                self._refine(kernel, kind, chosen, look_for_knee=kernel != REFERENCE_KERNEL)

    def repeat_until_stable(self) -> None:
        """Open further buffers for the reference while one more still moves its estimate."""
        deadline = self.clock() + self.plan.stable_seconds
        while self.clock() < deadline:
            cells = [runs[0].cell for key, runs in self.runs.items() if self._is_unstable(key)]
            if not cells:
                return
            run = self._run(cells, deadline - self.clock(), buffers=1)
            self._keep(run)

    def measure_placements(self) -> None:
        """Measure the read kernel where teams can be placed otherwise."""
        counts = sorted({t for k, kind, t in self.runs if (k, kind) == _REFERENCE})
        teams = plan_teams(self.machine, counts)
        if teams and self._has_time("placements"):
            cells = {
                _cell(self.sizes, *_REFERENCE, len(team.cpus), team.cpus): team.placement
                for team in teams
            }
            run = self._run(list(cells), self._extra_seconds(), buffers=1, label="placements")
            self.placed += [(cells[found.cell], found) for found in run.cells if found.buffers]

    def measure_node_pairs(self) -> None:
        """Measure the node × node matrix."""
        pairs = plan_node_pairs(self.machine, thorough=self.plan.whole_node_matrix)
        if pairs and self._has_time("the node matrix"):
            cells = [
                _cell(self.sizes, *_REFERENCE, len(pair.cpus), pair.cpus, pair.touch_cpu)
                for pair in pairs
            ]
            run = self._run(cells, self._extra_seconds(), buffers=1, label="memory nodes")
            self.pairs += [
                _extend(
                    NodeMeasurement,
                    found.measurement,
                    cpu_node=pair.cpu_node,
                    memory_node=pair.memory_node,
                )
                for pair, found in zip(pairs, run.cells, strict=True)
                if found.buffers
            ]

    def findings(self) -> MemoryFindings:
        """Put together what was measured."""
        main = {key: _join(runs) for key, runs in self.runs.items()}
        bandwidth = tuple(run.measurement for run in main.values())
        reference = [run for (kernel, _, _), run in main.items() if kernel == REFERENCE_KERNEL]
        measured = [*main.values(), *(run for _, run in self.placed)]
        return MemoryFindings(
            bandwidth=bandwidth,
            saturation=self._saturation(main),
            placements=tuple(
                _extend(PlacedMeasurement, run.measurement, placement=name)
                for name, run in self.placed
            ),
            nodes=tuple(self.pairs),
            relative_rates=_relative_rates(self.order, reference),
            buffer_medians=tuple(_buffer_medians(run) for run in reference),
            page_faults=self.page_faults,
            warnings=tuple(dict.fromkeys((*self.warnings, *_obtained_warnings(measured)))),
            seconds=self.clock() - self.started,
        )

    def _refine(
        self, kernel: str, kind: str, counts: Sequence[int], *, look_for_knee: bool = True
    ) -> None:
        """Measure a kernel at some thread counts, then where its knee may still be.

        A later count is measured beside the best one so far, so that a machine that changed
        its speed meanwhile moves both.
        """
        self._keep(self._run([self._main_cell(kernel, kind, t) for t in counts], math.inf))
        while look_for_knee and self.seconds_left > 0:
            rates = self._medians(kernel, kind)
            count = next_count(rates)
            if count is None:
                return
            best = max(rates, key=lambda t: rates[t])
            cells = [self._main_cell(kernel, kind, t) for t in (count, best)]
            self._keep(self._run(cells, math.inf, buffers=1))

    def _run(
        self,
        cells: Sequence[BandwidthCell],
        seconds: float,
        *,
        buffers: int | None = None,
        label: str = "memory bandwidth",
    ) -> BandwidthRun:
        """Measure cells; those whose memory the system refuses are left out with a warning."""
        chosen = self.plan.bandwidth_buffers if buffers is None else buffers
        rounds = self.plan.bandwidth_rounds * chosen // self.plan.bandwidth_buffers
        run = measure_bandwidth(
            cells,
            open_bench=self.open_bench,
            memory_bytes=self.sizes.budget,
            rounds=max(2, rounds),
            buffers=chosen,
            seconds=seconds,
            progress=lambda _, done: self.progress(label, done),
            clock=self.clock,
        )
        self.order += run.order
        if run.page_faults is not None:
            self.page_faults = (self.page_faults or 0) + run.page_faults
        self.warnings += run.failures
        return run

    def _keep(self, run: BandwidthRun) -> None:
        for found in run.cells:
            if found.buffers:
                cell = found.cell
                key = (cell.kernel, cell.page_kind, cell.threads)
                self.runs.setdefault(key, []).append(found)
        if not any((kernel, kind) == _REFERENCE for kernel, kind, _ in self.runs):
            reason = run.failures[0] if run.failures else "no memory"
            raise MachineError(f"the read bandwidth cannot be measured ({reason}): free memory")

    def _main_cell(self, kernel: str, kind: str, threads: int) -> BandwidthCell:
        cpus = placement(self.machine, threads)
        return _cell(self.sizes, kernel, kind, threads, cpus)

    def _medians(self, kernel: str, kind: str) -> dict[int, float]:
        return {
            key[2]: _join(runs).measurement.median_bytes_per_s
            for key, runs in self.runs.items()
            if key[:2] == (kernel, kind)
        }

    def _is_unstable(self, key: _Key) -> bool:
        moved = estimate_move([_buffer_medians(_join(self.runs[key]))])
        return key[:2] == _REFERENCE and moved is not None and moved >= STABLE_MOVE

    def _has_time(self, what: str) -> bool:
        if is_dense(self.machine) or self.seconds_left > 0:
            return True
        self.warnings.append(f"there was no time left to measure {what}")
        return False

    def _extra_seconds(self) -> float:
        return self.plan.bandwidth_seconds if is_dense(self.machine) else self.seconds_left

    def _saturation(self, main: Mapping[_Key, CellRun]) -> tuple[SaturationPoint, ...]:
        curves: dict[tuple[str, str], dict[int, CellRun]] = {}
        for (kernel, kind, threads), run in main.items():
            if kind == PAGE_KINDS[0]:
                curves.setdefault((kernel, COMPACT), {})[threads] = run
        # Where both placements take the same CPUs, they share the measurement.
        spread = {run.cell.threads: run for name, run in self.placed if name == SPREAD}
        if spread:
            ends = curves[REFERENCE_KERNEL, COMPACT]
            shared = {t: run for t, run in ends.items() if t in (1, max(ends))}
            curves[REFERENCE_KERNEL, SPREAD] = shared | spread
        return tuple(
            saturation_point(kernel, name, {t: run.buffer_rates for t, run in curve.items()})
            for (kernel, name), curve in curves.items()
        )


def _page_kinds(machine: Machine) -> tuple[str, ...]:
    if machine.transparent_huge_pages in ("always", "madvise"):
        return PAGE_KINDS
    return PAGE_KINDS[:2]


def _join(runs: Sequence[CellRun]) -> CellRun:
    """Put runs of one cell together: all their buffers."""
    return CellRun(cell=runs[0].cell, buffers=tuple(b for run in runs for b in run.buffers))


def _buffer_medians(run: CellRun) -> tuple[float, ...]:
    return tuple(stats.median(rates) for rates in run.buffer_rates)


def _relative_rates(
    order: Sequence[tuple[BandwidthCell, float]], reference: Sequence[CellRun]
) -> tuple[float, ...]:
    """Return the reference kernel's rates as time went by, each over its cell's median."""
    medians = {run.cell: run.measurement.median_bytes_per_s for run in reference}
    return tuple(rate / medians[cell] for cell, rate in order if cell in medians)


def _obtained_warnings(runs: Sequence[CellRun]) -> list[str]:
    """Say where the system gave other pages than were asked for, or refused to pin."""
    found = []
    for run in runs:
        cell = run.cell
        for given in run.buffers:
            if given.page_kind != cell.page_kind:
                found.append(f"{cell.page_kind} pages were asked for, {given.page_kind} were given")
            if cell.cpus is not None and given.cpus is None:
                found.append("threads could not be pinned to CPUs: they were measured unpinned")
    return found


def _extend(kind: type[_Row], measurement: Measurement, **more: object) -> _Row:
    fields: dict[str, Any] = {**msgspec.structs.asdict(measurement), **more}
    return kind(**fields)
