"""Measure one kernel: ``open_kernel`` makes it ready for samples among other things."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any

from cpubound.errors import MachineError, UsageError
from cpubound.kernels.memory import allocate, obtained_page_kind
from cpubound.kernels.table import TableRow, candidates, load_native
from cpubound.kernels.team import WorkerTeam
from cpubound.kernels.values import KernelSpec, Measurement

# A timed stretch is never shorter: clock and barrier stay far below one percent of it.
MIN_SAMPLE_S = 1e-3
DEFAULT_SAMPLE_S = 1e-2
DEFAULT_COLUMNS = 4096
# The comparison that finds the fastest of several ways to run a kernel.
_CONTEST_ROUNDS = 8
_CONTEST_TURN_S = 2e-3
# After these rounds a way that takes so much longer than the best one is dropped.
_SAFE_ROUNDS = 2
_HOPELESS = 1.15
# Arrays begin at different offsets in their pages: equal ones would fall into the same
# cache sets and make loads wait for unrelated stores ("4 KiB aliasing").
_STAGGER_BYTES = 1088
# Threads take whole pages, so that each page is touched first by its reader.
_PAGE_BYTES = 4096
# Turns of the loop in each thread's pass of a kernel without memory: some microseconds.
_REGISTER_UNITS = 1000


class KernelBench:
    """One kernel with its threads pinned and its memory touched, ready for samples.

    Open it with ``open_kernel`` and use it as a context manager. The attributes say what
    was obtained, which may differ from what was asked for: ``spec``, ``page_kind``,
    ``cpus`` (None: not pinned), ``working_set_bytes``.
    """

    def __init__(
        self,
        kernel: str,
        *,
        threads: int,
        working_set_bytes: int,
        page_kind: str,
        cpus: Sequence[int] | None,
        isa: str | None,
        columns: int,
        min_sample_s: float,
        touch_cpu: int | None,
    ) -> None:
        if threads < 1:
            raise UsageError(
                f"a kernel needs at least one thread (threads={threads}): use 1 or more"
            )
        if cpus is not None and len(cpus) != threads:
            raise UsageError(
                f"{threads} threads need as many CPUs ({len(cpus)} given): name one each"
            )
        rows = candidates(kernel, isa)
        if page_kind == "file" and rows[0].spec.write_bytes:
            raise UsageError(
                f"page kind file is for kernels that only read ({kernel}): use anon_4k or anon_2m"
            )
        self.threads = threads
        self.min_sample_s = max(min_sample_s, MIN_SAMPLE_S)
        self._columns = columns if rows[0].is_gemv else 0
        self._units = _units_in(rows[0], working_set_bytes, self._columns, threads)
        grain = _PAGE_BYTES // rows[0].unit_bytes if rows[0].unit_bytes else 1
        self._bounds = _split(self._units, threads, grain)
        self._memories = [
            allocate(n_bytes + position * _STAGGER_BYTES, page_kind)
            for position, n_bytes in enumerate(_array_sizes(rows[0], self._units, self._columns))
        ]
        self.working_set_bytes = sum(_array_sizes(rows[0], self._units, self._columns))
        self._row = rows[0]
        self._passes = 1
        self._operands: Any = None
        self._team = WorkerTeam(threads)
        try:
            if touch_cpu is not None:
                self._touch_on(touch_cpu, rows[0])
            self.cpus = self._team.pin(cpus if cpus is not None else _default_cpus(threads))
            if touch_cpu is None:
                self._touch(rows[0])
            self.page_kind = (
                obtained_page_kind(self._memories[0], page_kind) if self._memories else page_kind
            )
            self._choose(rows)
        except BaseException:
            self._team.close()
            raise

    def __enter__(self) -> KernelBench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and give the memory back."""
        self._team.close()
        self._operands = None
        self._memories = []

    @property
    def spec(self) -> KernelSpec:
        """The kernel that was taken: the fastest, or the one asked for."""
        return self._row.spec

    @property
    def passes(self) -> int:
        """Passes in the last sample."""
        return self._passes

    @property
    def bytes_per_pass(self) -> int:
        """Bytes that all threads read and write in one pass, as declared."""
        return round((self.spec.read_bytes + self.spec.write_bytes) * self._elements)

    @property
    def _elements(self) -> int:
        return self._units * (self._columns or 1)

    def sample(self) -> float:
        """Run the kernel for about ``min_sample_s`` and return seconds per pass.

        The time is from when the first thread started to when the last one was done.
        """
        elapsed_s = self._run(self._passes)
        while elapsed_s < MIN_SAMPLE_S:
            self._passes = _more_passes(self._passes, elapsed_s, self.min_sample_s)
            elapsed_s = self._run(self._passes)
        return elapsed_s / self._passes

    def measurement(self, samples_s: Sequence[float]) -> Measurement:
        """Return samples together with what was measured."""
        return Measurement(
            kernel=self.spec.name,
            isa=self.spec.isa,
            variant=self.spec.variant,
            threads=self.threads,
            cpus=self.cpus,
            page_kind=self.page_kind,
            working_set_bytes=self.working_set_bytes,
            bytes_per_pass=self.bytes_per_pass,
            write_allocate_bytes_per_pass=round(self.spec.write_allocate_bytes * self._elements),
            flops_per_pass=round(self.spec.flops * self._elements),
            units_per_thread=max(end - begin for begin, end in self._bounds),
            samples_s=tuple(samples_s),
        )

    def _touch(self, row: TableRow) -> None:
        """Let each thread write its own part first."""
        self._fill(row, lambda rank: [self._bounds[rank]])

    def _touch_on(self, cpu: int, row: TableRow) -> None:
        """Let one thread, bound to a CPU, write all parts first."""
        if self._team.pin([cpu] * self.threads) is None:
            raise MachineError(
                f"no thread can be bound to the CPU that touches the memory ({cpu}): leave it out"
            )
        self._fill(row, lambda rank: [] if rank else self._bounds)

    def _fill(self, row: TableRow, parts: Callable[[int], list[tuple[int, int]]]) -> None:
        """Let each thread write the parts that ``parts(rank)`` names.

        The activations of a GEMV come from this thread: they stay in cache.
        """
        self._use(row)
        if row.is_gemv:
            self._operands.quantize(_activations(self._columns))

        def fill(rank: int) -> None:
            for part in parts(rank):
                self._operands.fill(*part)

        self._team.call(fill)
        if self._memories and row.spec.write_bytes == 0:
            self._flush()

    def _flush(self) -> None:
        try:
            for memory in self._memories:
                memory.flush()
        except OSError as error:
            raise MachineError(
                f"a mapped file could not be written ({error.strerror}): "
                "free some space or set TMPDIR"
            ) from error

    def _use(self, row: TableRow) -> None:
        arrays = [
            memoryview(memory)[position * _STAGGER_BYTES :]
            for position, memory in enumerate(self._memories)
        ]
        self._row = row
        self._operands = load_native().Operands(row.index, arrays, self._units, self._columns)

    def _choose(self, rows: Sequence[TableRow]) -> None:
        """Keep the fastest of several rows, and find how many passes fill a sample.

        Turns are short and interleaved, and the best one counts: noise only slows.
        """
        if len(rows) > 1:
            passes = {row.index: self._passes_for(_CONTEST_TURN_S, row) for row in rows}
            best_s = {row.index: math.inf for row in rows}
            for turn in range(_CONTEST_ROUNDS):
                for row in rows:
                    self._use(row)
                    turn_s = self._run(passes[row.index]) / passes[row.index]
                    best_s[row.index] = min(best_s[row.index], turn_s)
                if turn >= _SAFE_ROUNDS:
                    limit_s = _HOPELESS * min(best_s.values())
                    rows = [row for row in rows if best_s[row.index] <= limit_s]
            rows = [min(rows, key=lambda row: best_s[row.index])]
        self._passes = self._passes_for(self.min_sample_s, rows[0])

    def _passes_for(self, seconds: float, row: TableRow) -> int:
        """Use a row from now on, warm it up, and find how many passes take ``seconds``."""
        self._use(row)
        self._run(1)
        passes = 1
        elapsed_s = self._run(passes)
        while elapsed_s < seconds:
            passes = _more_passes(passes, elapsed_s, seconds)
            elapsed_s = self._run(passes)
        return passes

    def _run(self, passes: int) -> float:
        """Run the team once; return seconds from the first start to the last end."""
        team, operands = self._team.native, self._operands
        runs = self._team.call(lambda rank: team.run(operands, *self._bounds[rank], passes))
        if None in runs:
            raise MachineError("the measurement was stopped: open the kernel again")
        first_start_ns = min(start for start, _, _ in runs)
        last_end_ns = max(end for _, end, _ in runs)
        return float(last_end_ns - first_start_ns) * 1e-9


def open_kernel(
    kernel: str,
    *,
    threads: int,
    working_set_bytes: int = 0,
    page_kind: str = "anon_4k",
    cpus: Sequence[int] | None = None,
    isa: str | None = None,
    columns: int = DEFAULT_COLUMNS,
    min_sample_s: float = DEFAULT_SAMPLE_S,
    touch_cpu: int | None = None,
) -> KernelBench:
    """Make a kernel ready to be sampled, and find the fastest way to run it.

    Parameters
    ----------
    kernel : a name from ``kernel_specs``.
    threads : how many run it together.
    working_set_bytes : what all threads and all arrays hold together; a little less is
        taken to make it even. Nothing for ``barrier`` and the peak kernels.
    page_kind : "anon_4k", "anon_2m" or (for kernels that only read) "file".
    cpus : where to pin each thread; None takes the allowed CPUs in their order.
    isa : the instruction set to use; None compares those that can run here (or takes
        ``CPUBOUND_ISA``).
    columns : weights per row of a GEMV.
    min_sample_s : how long a sample should be; at least a millisecond.
    touch_cpu : the CPU whose thread touches all memory first, as a loader does; None: each
        thread touches its own part.

    Raises
    ------
    KernelsUnavailable, IsaUnavailable, UsageError, MachineError (memory refused).
    """
    return KernelBench(
        kernel,
        threads=threads,
        working_set_bytes=working_set_bytes,
        page_kind=page_kind,
        cpus=cpus,
        isa=isa,
        columns=columns,
        min_sample_s=min_sample_s,
        touch_cpu=touch_cpu,
    )


def _units_in(row: TableRow, working_set_bytes: int, columns: int, threads: int) -> int:
    """Return how many elements, cache lines or rows of a matrix fill a working set."""
    if row.arrays == 0:
        return threads * _REGISTER_UNITS if row.spec.flops else 0
    if row.is_gemv and columns % math.lcm(row.block_elements, row.activation_elements):
        raise UsageError(
            f"{row.spec.name} takes rows of whole blocks (columns={columns}): use a multiple of "
            f"{math.lcm(row.block_elements, row.activation_elements)}"
        )
    # A matrix fills the working set alone: its vectors stay in cache.
    unit_bytes = sum(_array_sizes(row, 1, columns)[: 1 if row.is_gemv else None])
    units = working_set_bytes // unit_bytes
    if units < 1:
        raise UsageError(
            f"the working set is too small for {row.spec.name} ({working_set_bytes} bytes): "
            f"use {unit_bytes} or more"
        )
    return units


def _array_sizes(row: TableRow, units: int, columns: int) -> list[int]:
    native = load_native()
    return [native.array_bytes(row.index, array, units, columns) for array in range(row.arrays)]


def _split(units: int, threads: int, grain: int) -> list[tuple[int, int]]:
    """Share units out evenly, cut at multiples of ``grain``; the last thread takes the rest."""
    cuts = [units * rank // threads // grain * grain for rank in range(threads)] + [units]
    return list(pairwise(cuts))


def _more_passes(passes: int, elapsed_s: float, wanted_s: float) -> int:
    """Return how many passes should take ``wanted_s``, growing at most a hundredfold."""
    return math.ceil(passes * min(100.0, max(1.2 * wanted_s / max(elapsed_s, 1e-9), 2.0)))


def _default_cpus(threads: int) -> list[int]:
    if not hasattr(os, "sched_getaffinity"):
        return list(range(threads))
    allowed = sorted(os.sched_getaffinity(0))
    return [allowed[rank % len(allowed)] for rank in range(threads)]


def _activations(columns: int) -> array[float]:
    """Return a vector of float32 values between -1 and 1 that repeats late."""
    return array("f", ((i * 37 % 101) / 50 - 1 for i in range(columns)))
