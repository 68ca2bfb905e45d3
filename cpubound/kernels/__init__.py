"""Run one native kernel on N pinned threads and measure it."""

from __future__ import annotations

from cpubound.kernels.clock import ClockResolution, measure_clock
from cpubound.kernels.levels import (
    MemoryLevel,
    find_levels,
    sweep_working_sets,
    working_set_sizes,
)
from cpubound.kernels.run import KernelBench, open_kernel, run_kernel
from cpubound.kernels.table import available_isas, kernel_specs, runnable_kernels, select_isa
from cpubound.kernels.values import KernelSpec, Measurement

__all__ = [
    "ClockResolution",
    "KernelBench",
    "KernelSpec",
    "Measurement",
    "MemoryLevel",
    "available_isas",
    "find_levels",
    "kernel_specs",
    "measure_clock",
    "open_kernel",
    "run_kernel",
    "runnable_kernels",
    "select_isa",
    "sweep_working_sets",
    "working_set_sizes",
]
