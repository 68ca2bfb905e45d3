"""Hold cpubound's kernels against STREAM's loops, likwid-bench and llama.cpp, interleaved.

    python -m calibrate crosscheck --threads 1,2 --rounds 10 --json crosscheck.json

Each round runs every instrument once in random order, a fraction of a second each and on new
memory, so that a change of the machine's speed meets all alike; likwid-bench, which sleeps a
second before it starts, every third round. Printed are ratios: cpubound
over the standard, both counting only the bytes their code declares (no write-allocate); for
latency the standard's time over ours, so that more than one is better everywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from calibrate import gemv
from calibrate.standards import (
    STREAM_KERNELS,
    CompiledLoops,
    compile_loops,
    has_likwid,
    run_likwid,
    run_likwid_peak,
)
from cpubound.errors import CpuboundError, EngineUnavailable
from cpubound.kernels.run import open_kernel
from cpubound.kernels.table import runnable_kernels
from cpubound.stats import median
from cpubound.temporary import write_file
from cpubound.units import MIB

SCHEMA = "cpubound.crosscheck/1"
FAMILIES = ("stream", "peak", "latency", "gemv")
ARRAYS = {"read": 1, "write": 1, "copy": 2, "scale": 2, "add": 3, "triad": 3}
STREAMS = (*ARRAYS, *(f"{name}_nt" for name in ARRAYS if name != "read"))
PEAKS = ("peak_fp32", "peak_bf16", "peak_int8")
# In the first, second and third level of most caches, and in memory.
LATENCY_SETS = (16 << 10, 256 << 10, 4 << 20, 128 << 20)
LATENCY_LOADS = 200_000
DEFAULT_STRETCH_S = 0.05

# Rounds from one run to the next, for instruments that take long to start.
EVERY = {"likwid": 3}

# Returns a figure of one kernel right now: the more the better.
Instrument = Callable[[], float]


@dataclass(kw_only=True)
class Cell:
    """One kernel at one thread count, with each instrument's figures, round by round."""

    family: str
    kernel: str
    threads: int
    unit: str  # of ``scale`` times a figure
    scale: float = 1e-9
    instruments: dict[str, Instrument]
    figures: dict[str, list[float | None]] = field(default_factory=dict)

    def measure(self, rounds: int, order: random.Random) -> None:
        """Run every instrument that is due once a round, in random order."""
        self.figures = {name: [None] * rounds for name in self.instruments}
        for number in range(rounds):
            due = [name for name in self.instruments if number % EVERY.get(name, 1) == 0]
            for name in order.sample(due, len(due)):
                self.figures[name][number] = self.instruments[name]()

    def best(self, name: str) -> float:
        """Return an instrument's best figure: what a busy machine moves least."""
        return max(figure for figure in self.figures[name] if figure is not None)

    def ratio(self, standard: str) -> tuple[float, float, float]:
        """Return lowest, median and highest of cpubound over a standard in the same round."""
        pairs = zip(self.figures["cpubound"], self.figures[standard], strict=True)
        ratios = [ours / theirs for ours, theirs in pairs if ours and theirs]
        return min(ratios), median(ratios), max(ratios)

    def best_ratio(self, standard: str) -> float:
        """Return cpubound's best over a standard's."""
        return self.best("cpubound") / self.best(standard)

    @property
    def standards(self) -> tuple[str, ...]:
        return tuple(name for name in self.figures if name != "cpubound")


def stream_cells(
    threads: Sequence[int], set_bytes: int, stretch_s: float, loops: CompiledLoops | None
) -> Iterator[Cell]:
    """Yield bandwidth cells: every stream kernel with STREAM's loop and likwid's test."""
    for kernel in STREAMS:
        for count in threads:
            run_ours = partial(_stream_rate, kernel, count, set_bytes, stretch_s)
            passes = max(1, round(stretch_s * run_ours() / set_bytes))
            instruments: dict[str, Instrument] = {"cpubound": run_ours}
            if loops is not None and kernel in STREAM_KERNELS:
                instruments["STREAM"] = partial(_loop_rate, loops, kernel, count, set_bytes, passes)
            if has_likwid(kernel):
                instruments["likwid"] = partial(
                    run_likwid, kernel, count, set_bytes // 1000 * 1000, passes
                )
            yield Cell(
                family="stream", kernel=kernel, threads=count, unit="GB/s", instruments=instruments
            )


def peak_cells(threads: Sequence[int], stretch_s: float) -> Iterator[Cell]:
    """Yield compute cells, with likwid's float32 test beside the first."""
    for kernel in PEAKS:
        if kernel not in runnable_kernels():
            continue
        for count in threads:
            instruments: dict[str, Instrument] = {
                "cpubound": partial(_peak_rate, kernel, count, stretch_s)
            }
            if has_likwid(kernel):
                instruments["likwid"] = partial(run_likwid_peak, count, stretch_s)
            yield Cell(
                family="peak", kernel=kernel, threads=count, unit="Gop/s", instruments=instruments
            )


def latency_cells(stretch_s: float, loops: CompiledLoops | None) -> Iterator[Cell]:
    """Yield latency cells by working set, in loads per second, with the C chain beside."""
    for set_bytes in LATENCY_SETS:
        instruments: dict[str, Instrument] = {
            "cpubound": partial(_loads_per_s, set_bytes, stretch_s)
        }
        if loops is not None:
            instruments["C chain"] = partial(_loop_loads_per_s, loops, set_bytes)
        yield Cell(
            family="latency",
            kernel=f"{set_bytes // 1024} KiB",
            threads=1,
            unit="M/s",
            scale=1e-6,
            instruments=instruments,
        )


def _stream_rate(kernel: str, threads: int, set_bytes: int, stretch_s: float) -> float:
    with open_kernel(
        kernel, threads=threads, working_set_bytes=set_bytes, min_sample_s=stretch_s
    ) as bench:
        return bench.bytes_per_pass / bench.sample()


def _loop_rate(
    loops: CompiledLoops, kernel: str, threads: int, set_bytes: int, passes: int
) -> float:
    elements = set_bytes // (8 * ARRAYS[kernel])
    seconds = loops.stream_seconds(kernel, _cpus(threads), elements, passes)
    return 8 * ARRAYS[kernel] * elements / seconds


def _peak_rate(kernel: str, threads: int, stretch_s: float) -> float:
    with open_kernel(kernel, threads=threads, min_sample_s=stretch_s) as bench:
        return bench.measurement((bench.sample(),)).best_flops_per_s


def _loads_per_s(set_bytes: int, stretch_s: float) -> float:
    with open_kernel(
        "latency", threads=1, working_set_bytes=set_bytes, min_sample_s=stretch_s
    ) as bench:
        return 1 / bench.measurement((bench.sample(),)).best_seconds_per_unit


def _loop_loads_per_s(loops: CompiledLoops, set_bytes: int) -> float:
    return 1 / loops.chase_seconds(_cpus(1)[0], set_bytes, LATENCY_LOADS)


def _cpus(threads: int) -> list[int]:
    allowed = sorted(os.sched_getaffinity(0))
    return [allowed[rank % len(allowed)] for rank in range(threads)]


def crosscheck(
    families: Sequence[str],
    threads: Sequence[int],
    *,
    rounds: int,
    set_bytes: int,
    stretch_s: float,
    show: Callable[[Cell], None],
) -> list[Cell]:
    """Measure the cells of the families, each with all its instruments, interleaved."""
    order = random.Random(0)
    done: list[Cell] = []

    def measure(cells: Iterator[Cell]) -> None:
        for cell in cells:
            cell.measure(rounds, order)
            show(cell)
            done.append(cell)

    with tempfile.TemporaryDirectory() as name:
        loops = compile_loops(Path(name))
        if "stream" in families:
            measure(stream_cells(threads, set_bytes, stretch_s, loops))
        if "peak" in families:
            measure(peak_cells(threads, stretch_s))
        if "latency" in families:
            measure(latency_cells(stretch_s, loops))
        if "gemv" in families:
            try:
                with gemv.gemv_cases(gemv.TYPES, Path(name)) as (runner, cases):
                    measure(gemv_cells(runner, cases, threads, stretch_s))
            except EngineUnavailable as error:
                print(f"crosscheck: without llama.cpp: {error}", file=sys.stderr)
    return done


def gemv_cells(
    runner: Any, cases: Sequence[gemv.GemvCase], threads: Sequence[int], stretch_s: float
) -> Iterator[Cell]:
    """Yield matrix-vector cells: llama.cpp and the read bandwidth of the same pages beside."""
    for case in cases:
        for count in threads:
            yield Cell(
                family="gemv",
                kernel=case.kernel,
                threads=count,
                unit="GB/s",
                instruments=gemv.gemv_instruments(runner, case, count, 2 * stretch_s),
            )
        runner.close_model(str(case.path))


HEADER = (
    f"{'kernel':12}{'threads':>8}{'best':>9}        "
    "cpubound / standard: best / best, median of rounds [lowest … highest]"
)


def describe(cell: Cell) -> str:
    """Return a cell as one line."""
    best = cell.best("cpubound") * cell.scale
    line = f"{cell.kernel:12}{cell.threads:8}{best:9.1f} {cell.unit:6}"
    for name in cell.standards:
        low, middle, high = cell.ratio(name)
        ratio = cell.best_ratio(name)
        line += f"   {name} {ratio:.3f}, {middle:.3f} [{low:.2f} … {high:.2f}]"
    return line


def document(cells: Sequence[Cell], rounds: int) -> dict[str, Any]:
    """Return the cells as a JSON document, with every figure."""
    return {
        "schema": SCHEMA,
        "rounds": rounds,
        "cells": [
            {
                "family": cell.family,
                "kernel": cell.kernel,
                "threads": cell.threads,
                "unit": cell.unit,
                "figures": {
                    name: [figure and figure * cell.scale for figure in figures]
                    for name, figures in cell.figures.items()
                },
                "ratios": {
                    name: dict(
                        zip(("lowest", "median", "highest"), cell.ratio(name), strict=True),
                        best=cell.best_ratio(name),
                    )
                    for name in cell.standards
                },
            }
            for cell in cells
        ],
    }


def integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main(argv: Sequence[str]) -> int:
    """Parse the arguments and print one line per kernel and thread count."""
    parser = argparse.ArgumentParser(
        prog="python -m calibrate crosscheck",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--threads", type=integers, default=[1, 2], help="default 1,2")
    parser.add_argument("--rounds", type=int, default=10, help="default 10")
    parser.add_argument("--families", default=",".join(FAMILIES), help="default all")
    parser.add_argument("--mib", type=int, default=128, help="working set in MiB, default 128")
    parser.add_argument(
        "--stretch",
        type=float,
        default=DEFAULT_STRETCH_S * 1e3,
        help="milliseconds an instrument runs at a time, default 50; short ones with many "
        "rounds find the quiet moments of a busy machine",
    )
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    arguments = parser.parse_args(argv)
    print(HEADER)
    try:
        cells = crosscheck(
            arguments.families.split(","),
            arguments.threads,
            rounds=arguments.rounds,
            set_bytes=arguments.mib * MIB,
            stretch_s=arguments.stretch * 1e-3,
            show=lambda cell: print(describe(cell), flush=True),
        )
    except CpuboundError as error:
        print(f"crosscheck: error: {error}", file=sys.stderr)
        return error.exit_code
    if arguments.json is not None:
        text = json.dumps(document(cells, arguments.rounds), indent=1) + "\n"
        write_file(arguments.json, text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
