"""The real instruments of the core stage."""

from __future__ import annotations

from collections.abc import Sequence

from cpubound.kernels.clock import measure_clock_step
from cpubound.kernels.levels import sweep_working_sets
from cpubound.kernels.table import runnable_kernels
from cpubound.kernels.values import Measurement
from cpubound.machine.values import Machine
from cpubound.measuring.core_stage import CoreInstruments
from cpubound.measuring.threads import placement


def open_instruments(machine: Machine) -> CoreInstruments:
    """Return what this build and this CPU can measure cores and caches with.

    Raises
    ------
    KernelsUnavailable : the extension was not built for this Python.
    """
    peaks = tuple(name for name in runnable_kernels() if name.startswith("peak_"))
    cpus = placement(machine, 1)

    def sweep(
        kernel: str, sizes: Sequence[int], rounds: int, isa: str | None
    ) -> tuple[Measurement, ...]:
        return sweep_working_sets(kernel, sizes, cpus=cpus, rounds=rounds, isa=isa)

    return CoreInstruments(
        sweep=sweep,
        peak_kernels=peaks,
        clock_step_s=measure_clock_step(),
    )
