"""Run one native kernel on N pinned threads and measure it."""

from __future__ import annotations

from cpubound.kernels.run import KernelBench, open_kernel, run_kernel
from cpubound.kernels.table import available_isas, kernel_specs, runnable_kernels, select_isa
from cpubound.kernels.values import KernelSpec, Measurement

__all__ = [
    "KernelBench",
    "KernelSpec",
    "Measurement",
    "available_isas",
    "kernel_specs",
    "open_kernel",
    "run_kernel",
    "runnable_kernels",
    "select_isa",
]
