"""Hold cpubound's kernels against STREAM's loops and likwid-bench, interleaved.

    python -m calibrate crosscheck --threads 1,2 --rounds 10

Each round runs every instrument once in random order, a fraction of a second each, so that
a change of the machine's speed meets all alike. Printed are ratios: cpubound over the
standard, both counting only the bytes their code declares (no write-allocate).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cpubound.errors import CpuboundError
from cpubound.kernels import KernelBench, open_kernel
from cpubound.stats import median
from cpubound.units import GB, MIB

STREAM_KERNELS = ("read", "copy", "scale", "add", "triad")  # in stream.c's order
ARRAYS = {"read": 1, "copy": 2, "scale": 2, "add": 3, "triad": 3}
LIKWID_TESTS = {"read": "load_avx", "copy": "copy_avx", "triad": "stream_avx"}
# The lab may use everything this machine has; copies stay loops, or the C library decides
# about non-temporal stores.
COMPILER_FLAGS = ("-O3", "-march=native", "-ffast-math", "-fno-tree-loop-distribute-patterns")
DEFAULT_STRETCH_S = 0.05

# Returns the rate in bytes per second of one kernel, right now.
Instrument = Callable[[], float]


@dataclass(kw_only=True)
class Cell:
    """One kernel at one thread count, with each instrument's rates, round by round."""

    kernel: str
    threads: int
    rates: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, standard: str) -> tuple[float, float, float]:
        """Return lowest, median and highest of cpubound over a standard in the same round."""
        pairs = zip(self.rates["cpubound"], self.rates[standard], strict=True)
        ratios = [ours / theirs for ours, theirs in pairs]
        return min(ratios), median(ratios), max(ratios)

    def best_ratio(self, standard: str) -> float:
        """Return cpubound's best rate over a standard's: what a busy machine moves least."""
        return max(self.rates["cpubound"]) / max(self.rates[standard])


def compile_stream(directory: Path) -> Callable[[str, int, Sequence[int], int, int], float]:
    """Compile stream.c and return (kernel, threads, cpus, elements, passes) -> seconds."""
    library = directory / "stream.so"
    source = Path(__file__).with_name("stream.c")
    command = ["cc", *COMPILER_FLAGS, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run([*command, "-lpthread"], check=True)
    function = ctypes.CDLL(str(library)).stream_seconds
    function.restype = ctypes.c_double

    def run(kernel: str, threads: int, cpus: Sequence[int], elements: int, passes: int) -> float:
        return float(
            function(
                STREAM_KERNELS.index(kernel),
                threads,
                (ctypes.c_int * threads)(*cpus),
                ctypes.c_size_t(elements),
                passes,
            )
        )

    return run


def run_likwid(test: str, threads: int, set_bytes: int, passes: int) -> float:
    """Run likwid-bench once; return its bytes per second (each thread's chunk its own)."""
    workgroup = f"N:{set_bytes // 1000}kB:{threads}"
    output = subprocess.run(
        ["likwid-bench", "-t", test, "-i", str(passes), "-W", workgroup],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r"^MByte/s:\s+([\d.]+)", output, re.MULTILINE)
    if found is None:
        raise SystemExit(f"likwid-bench printed no rate for {test}")
    return float(found.group(1)) * 1e6


def instruments_for(
    kernel: str,
    threads: int,
    set_bytes: int,
    stretch_s: float,
    stream: Callable[[str, int, Sequence[int], int, int], float] | None,
) -> dict[str, Instrument]:
    """Return what can measure a kernel here, by name.

    Each takes new memory every time: which physical pages a buffer gets changes its
    bandwidth by a third, and no instrument may keep a lucky one.
    """
    elements = set_bytes // (8 * ARRAYS[kernel])
    moved = 8 * ARRAYS[kernel] * elements

    def ready() -> KernelBench:
        return open_kernel(
            kernel, threads=threads, working_set_bytes=set_bytes, min_sample_s=stretch_s
        )

    def run_ours() -> float:
        with ready() as bench:
            return bench.bytes_per_pass / bench.sample()

    with ready() as bench:
        passes = max(1, round(stretch_s / bench.sample()))
        cpus = bench.cpus or sorted(os.sched_getaffinity(0))[:threads]
    found: dict[str, Instrument] = {"cpubound": run_ours}
    if stream is not None:
        found["STREAM"] = lambda: moved / stream(kernel, threads, cpus, elements, passes)
    if kernel in LIKWID_TESTS and shutil.which("likwid-bench"):
        found["likwid"] = lambda: run_likwid(LIKWID_TESTS[kernel], threads, set_bytes, passes)
    return found


def crosscheck(
    kernels: Sequence[str],
    threads: Sequence[int],
    *,
    rounds: int,
    set_bytes: int,
    stretch_s: float,
) -> list[Cell]:
    """Measure every kernel at every thread count with every instrument, interleaved."""
    order = random.Random(0)
    cells = []
    with tempfile.TemporaryDirectory() as directory:
        stream = compile_stream(Path(directory)) if shutil.which("cc") else None
        for kernel in kernels:
            for count in threads:
                instruments = instruments_for(kernel, count, set_bytes, stretch_s, stream)
                cell = Cell(kernel=kernel, threads=count)
                cell.rates = {name: [] for name in instruments}
                for _ in range(rounds):
                    for name in order.sample(list(instruments), len(instruments)):
                        cell.rates[name].append(instruments[name]())
                cells.append(cell)
                print(describe(cell), flush=True)
    return cells


HEADER = (
    f"{'kernel':8}{'threads':>8}{'GB/s':>8}   "
    "cpubound / standard: best / best, median of rounds [lowest … highest]"
)


def describe(cell: Cell) -> str:
    """Return a cell as one line."""
    line = f"{cell.kernel:8}{cell.threads:8}{max(cell.rates['cpubound']) / GB:8.1f}"
    for name in cell.rates:
        if name != "cpubound":
            low, middle, high = cell.ratio(name)
            best = cell.best_ratio(name)
            line += f"   {name} {best:.3f}, {middle:.3f} [{low:.2f} … {high:.2f}]"
    return line


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
    parser.add_argument("--kernels", default=",".join(STREAM_KERNELS), help="default all")
    parser.add_argument("--mib", type=int, default=128, help="working set in MiB, default 128")
    parser.add_argument(
        "--stretch",
        type=float,
        default=DEFAULT_STRETCH_S * 1e3,
        help="milliseconds an instrument runs at a time, default 50; short ones with many "
        "rounds find the quiet moments of a busy machine",
    )
    arguments = parser.parse_args(argv)
    print(HEADER)
    try:
        crosscheck(
            arguments.kernels.split(","),
            arguments.threads,
            rounds=arguments.rounds,
            set_bytes=arguments.mib * MIB,
            stretch_s=arguments.stretch * 1e-3,
        )
    except CpuboundError as error:
        print(f"crosscheck: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
