"""The standards that kernels are held against: STREAM's loops in C, and likwid-bench.

Each run takes new memory: which physical pages a buffer gets changes its bandwidth by a
third, and no instrument may keep a lucky one.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

STREAM_KERNELS = ("read", "copy", "scale", "add", "triad")  # in stream.c's order
# A kernel of ours and the test of likwid-bench that does the same.
LIKWID_TESTS = {
    "read": "load_avx",
    "write": "store_avx",
    "copy": "copy_avx",
    "triad": "stream_avx",
    "write_nt": "store_mem_avx",
    "copy_nt": "copy_mem_avx",
    "triad_nt": "stream_mem_avx",
    "peak_fp32": "peakflops_sp_avx_fma",
}
# Fits into any first-level cache: likwid's peak tests load one vector per turn.
PEAK_BYTES_PER_THREAD = 8000
PEAK_PASSES_PER_S = 2e6
# The lab may use everything this machine has; copies stay loops, or the C library decides
# about non-temporal stores.
COMPILER_FLAGS = ("-O3", "-march=native", "-ffast-math", "-fno-tree-loop-distribute-patterns")


class CompiledLoops:
    """stream.c, compiled for this machine."""

    def __init__(self, directory: Path) -> None:
        library = directory / "stream.so"
        source = Path(__file__).with_name("stream.c")
        command = ["cc", *COMPILER_FLAGS, "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run([*command, "-lpthread"], check=True)
        loaded = ctypes.CDLL(str(library))
        self._stream: Callable[..., float] = loaded.stream_seconds
        self._chase: Callable[..., float] = loaded.chase_seconds
        loaded.stream_seconds.restype = loaded.chase_seconds.restype = ctypes.c_double

    def stream_seconds(self, kernel: str, cpus: Sequence[int], elements: int, passes: int) -> float:
        """Return seconds of a pass over ``elements`` doubles per array, one thread per CPU."""
        return float(
            self._stream(
                STREAM_KERNELS.index(kernel),
                len(cpus),
                (ctypes.c_int * len(cpus))(*cpus),
                ctypes.c_size_t(elements),
                passes,
            )
        )

    def chase_seconds(self, cpu: int, set_bytes: int, loads: int) -> float:
        """Return seconds of a load whose address is what the load before it gave."""
        return float(self._chase(cpu, ctypes.c_size_t(set_bytes), ctypes.c_size_t(loads)))


def compile_loops(directory: Path) -> CompiledLoops | None:
    """Return stream.c compiled, or None without a C compiler."""
    return CompiledLoops(directory) if shutil.which("cc") else None


def has_likwid(kernel: str) -> bool:
    """Say whether likwid-bench is installed and has a twin of the kernel."""
    return kernel in LIKWID_TESTS and shutil.which("likwid-bench") is not None


def run_likwid(kernel: str, threads: int, set_bytes: int, passes: int) -> float:
    """Run the twin of a kernel once; return bytes, or for peak_fp32 operations, per second."""
    test = LIKWID_TESTS[kernel]
    unit = "MFlops/s" if test.startswith("peakflops") else "MByte/s"
    output = subprocess.run(
        ["likwid-bench", "-t", test, "-i", str(passes), "-W", f"N:{set_bytes}B:{threads}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(rf"^{unit}:\s+([\d.]+)", output, re.MULTILINE)
    if found is None:
        raise SystemExit(f"likwid-bench printed no {unit} for {test}")
    return float(found.group(1)) * 1e6


def run_likwid_peak(threads: int, seconds: float) -> float:
    """Return likwid's float32 operations per second, from a run of about ``seconds``."""
    passes = max(1, round(seconds * PEAK_PASSES_PER_S))
    return run_likwid("peak_fp32", threads, threads * PEAK_BYTES_PER_THREAD, passes)
