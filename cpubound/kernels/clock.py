"""The clock that kernels are timed with: its smallest step and what a reading costs."""

from __future__ import annotations

from dataclasses import dataclass

from cpubound.kernels.table import load_native


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockResolution:
    """How finely the clock of the kernels tells times apart."""

    step_s: float  # smallest difference seen between two readings
    read_s: float  # what one reading costs


def measure_clock() -> ClockResolution:
    """Read the clock many times in a row and say how fine it is.

    Raises
    ------
    KernelsUnavailable : the extension was not built for this Python.
    """
    step_ns, read_ns = load_native().measure_clock()
    return ClockResolution(step_s=step_ns * 1e-9, read_s=read_ns * 1e-9)
