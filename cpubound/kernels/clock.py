"""The clock that kernels are timed with."""

from __future__ import annotations

from cpubound.kernels.table import load_native


def measure_clock_step() -> float:
    """Return the smallest difference seen between two of many readings, in seconds.

    Raises
    ------
    KernelsUnavailable : the extension was not built for this Python.
    """
    step_ns, _ = load_native().measure_clock()
    return float(step_ns) * 1e-9
