"""How fast our own parts are: a pass of each kernel in cache, a barrier, opening a bench.

    pytest bench --benchmark-only

Rates of memory belong to ``calibrate/crosscheck.py``, which interleaves them with a standard.
"""

from __future__ import annotations

from typing import Any

import pytest

from cpubound.kernels.run import open_kernel
from cpubound.kernels.table import kernel_specs
from cpubound.units import KIB, MIB

NAMES = list(dict.fromkeys(spec.name for spec in kernel_specs()))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "barrier"])
def test_a_kernel_in_the_second_level_cache(name: str, benchmark: Any) -> None:
    with open_kernel(name, threads=1, working_set_bytes=256 * KIB, min_sample_s=1e-3) as bench:
        benchmark(bench.sample)
        best_s = min(bench.sample() for _ in range(20))
        benchmark.extra_info["isa"] = bench.spec.isa
        benchmark.extra_info["gigabytes_per_s"] = bench.bytes_per_pass / best_s / 1e9


def test_a_barrier_of_two_threads(benchmark: Any) -> None:
    with open_kernel("barrier", threads=2, min_sample_s=1e-3) as bench:
        benchmark(bench.sample)
        benchmark.extra_info["seconds_per_barrier"] = min(bench.sample() for _ in range(20))


def test_opening_a_kernel_with_its_threads_and_memory(benchmark: Any) -> None:
    benchmark.pedantic(
        lambda: open_kernel("read", threads=2, working_set_bytes=64 * MIB).close(), rounds=3
    )
