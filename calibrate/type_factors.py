"""How fast kernels are beside each other: one factor for each quant type over many machines.

A machine's kernels differ by a common speed; what is left is the type's factor and how much it
differs from machine to machine. Both become the priors of ``cpubound.cost``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cpubound import stats
from cpubound.cost.kernel_priors import KernelPriors, kernel_priors, read_priors
from cpubound.cost.rate_fit import RateRow, fit_rates
from cpubound.cost.rates import measured_types, weight_rate
from cpubound.model.quant import quant_type
from cpubound.profile.values import MachineProfile

# A type that a series leaves this open says nothing.
MOST_OPEN = 0.35
# Types are believed to differ by no less than this between machines.
LEAST_ERROR = 0.15
# Without other knowledge a factor lies this near to 1 (logarithm).
FACTOR_SPREAD = 0.6
MIN_ROWS = 3

# Columns of a row that a kernel's start and end hardly show in.
LONG_ROW = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
    """Logarithms of a thread's weights per second by type, with their standard errors."""

    source: str
    by_type: Mapping[str, tuple[float, float]]


def flat_priors() -> KernelPriors:
    """Return priors that know of the law and nothing of the types."""
    tables = {name: rows for name, rows in read_priors().items() if name in ("law", "attention")}
    return kernel_priors(None, tables)


def factors_of_rows(source: str, rows: Sequence[RateRow]) -> Factors:
    """Fit a series alone and return the types that it tells of."""
    if len(rows) < MIN_ROWS:
        return Factors(source=source, by_type={})
    fit = fit_rates(rows, flat_priors())
    speed = math.log(fit.parameter("speed").value)
    found = {}
    for name in fit.types:
        factor = fit.parameter(name)
        if factor.relative_error < MOST_OPEN:
            found[name] = (speed + math.log(factor.value), factor.relative_error)
    return Factors(source=source, by_type=found)


def factors_of_profile(source: str, profile: MachineProfile) -> Factors:
    """Return the rates of one thread through long rows of dense matrices."""
    engine = profile.engine
    found = {}
    for name in measured_types(engine) if engine is not None else ():
        rate = weight_rate(engine, name, LONG_ROW, 1) if engine is not None else None
        if rate is not None:
            weights = rate.bytes_per_s * 8 / quant_type(name).bits_per_weight
            found[name] = (math.log(weights), rate.relative_error)
    return Factors(source=source, by_type=found)


def estimate_factors(sources: Sequence[Factors]) -> dict[str, tuple[float, float]]:
    """Return each type's factor and how far it is off from machine to machine.

    Least squares over a speed for each source and a factor for each type, the factors'
    logarithms drawn to zero together; then the scatter that is left.
    """
    import numpy as np

    told = [(s.source, name, *value) for s in sources for name, value in s.by_type.items()]
    if not told:
        return {}
    machines = sorted({source for source, *_ in told})
    types = sorted({name for _, name, *_ in told})
    rows, targets = [], []
    for source, name, value, error in told:
        weight = 1 / math.hypot(error, LEAST_ERROR)
        row = np.zeros(len(machines) + len(types))
        row[machines.index(source)] = row[len(machines) + types.index(name)] = weight
        rows.append(row)
        targets.append(value * weight)
    for place in range(len(types)):
        row = np.zeros(len(machines) + len(types))
        row[len(machines) + place] = 1 / FACTOR_SPREAD
        rows.append(row)
        targets.append(0.0)
    solution = np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)[0]
    speeds = dict(zip(machines, map(float, solution), strict=False))
    factors = dict(zip(types, map(float, solution[len(machines) :]), strict=True))
    left = [abs(value - speeds[source] - factors[name]) for source, name, value, _ in told]
    scatter = max(LEAST_ERROR, 1.4826 * stats.median(left))
    seen = {name: sum(other == name for _, other, *_ in told) for name in types}
    return {
        name: (math.exp(factor), scatter * math.sqrt(1 + 1 / seen[name]))
        for name, factor in factors.items()
    }
