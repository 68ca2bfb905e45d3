"""From probe times to rates and costs: one robust, non-negative fit per thread count.

    t = Σ over types (bytes_q · s_q + rows_q · r_q) + kv_bytes · a + c_token + products · c_product

Each probe contributes one equation, divided by its time so that all count alike by their
relative error. Rates come from probes of several depths and widths together: a plain
difference of two depths would amplify noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cpubound import stats

# Huber's constant: residuals beyond 1.345 σ count linearly, 95 % efficient for normal noise.
HUBER = 1.345
ITERATIONS = 30
# Row costs of different types: nanoseconds apart, and how much that counts (a relative error).
ROW_COST_SPREAD_S = 4e-9
ROW_COST_WEIGHT = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeTime:
    """One probe at one thread count: what it moves and its median time."""

    seconds: float
    bytes_by_type: Mapping[str, int]
    rows_by_type: Mapping[str, int]
    attention: Mapping[str, int]  # KV bytes by attention setting
    products: int
    relative_error: float = 0.02  # standard error of the median


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """Seconds per byte and fixed costs, with relative standard errors."""

    seconds_per_byte: Mapping[str, float]
    seconds_per_row: Mapping[str, float]
    attention_seconds_per_byte: Mapping[str, float]
    seconds_per_token: float
    seconds_per_product: float
    relative_error: Mapping[str, float]  # by type and attention setting
    residuals: tuple[float, ...]  # fitted / observed − 1, one per probe


def fit_probe_times(rows: Sequence[ProbeTime]) -> Fit:
    """Fit rates and costs to the probes of one thread count.

    Raises
    ------
    ValueError : no rows.
    """
    import numpy as np

    if not rows:
        raise ValueError("a fit needs at least one probe")
    types = sorted({t for row in rows for t in row.bytes_by_type})
    settings = sorted({a for row in rows for a in row.attention})
    observed = np.array([row.seconds for row in rows])
    design = np.array(
        [
            [row.bytes_by_type.get(t, 0) for t in types]
            + [row.rows_by_type.get(t, 0) for t in types]
            + [row.attention.get(a, 0) for a in settings]
            + [0, 1, row.products]
            for row in rows
        ],
        dtype=float,
    )
    scaled = design / observed[:, None]
    target = np.ones(len(rows))
    prior = _row_prior(len(types), scaled.shape[1])
    scaled = np.vstack([scaled, prior])
    target = np.concatenate([target, np.zeros(len(prior))])
    solution, weights = _solve_robust(scaled, target, len(rows))
    errors = _relative_errors(scaled, target, solution, weights, len(rows))
    n = len(types)
    names = [*types, *(f"rows of {t}" for t in types), *settings]
    return Fit(
        seconds_per_byte=dict(zip(types, map(float, solution), strict=False)),
        seconds_per_row=dict(zip(types, map(float, solution[n:]), strict=False)),
        attention_seconds_per_byte=dict(zip(settings, map(float, solution[2 * n :]), strict=False)),
        seconds_per_token=float(solution[-2]),
        seconds_per_product=float(solution[-1]),
        relative_error=dict(zip(names, errors, strict=False)),
        residuals=tuple(float(r) for r in (scaled @ solution - target)[: len(rows)]),
    )


def _row_prior(types: int, columns: int) -> Any:
    """Draw the row costs of all types towards a common one, which is fitted too.

    Two probes of a type hardly tell its rate from its row cost when the machine is noisy; a
    type that differs from the others by ROW_COST_SPREAD weighs as much as one probe that is
    off by ROW_COST_WEIGHT.
    """
    import numpy as np

    prior = np.zeros((types, columns))
    for place in range(types):
        prior[place, types + place] = 1
        prior[place, -3] = -1
    return prior * ROW_COST_WEIGHT / ROW_COST_SPREAD_S


def _solve_robust(scaled: Any, target: Any, observations: int) -> tuple[Any, Any]:
    """Solve scaled · x ≈ target with x ≥ 0, down-weighting outliers among the observations."""
    import numpy as np

    weights = np.ones(len(scaled))
    solution = _solve_nonnegative(scaled, target, weights)
    for _ in range(ITERATIONS):
        residuals = (scaled @ solution - target)[:observations]
        sigma = max(1.4826 * stats.median([abs(r) for r in residuals]), 1e-4)
        weights[:observations] = np.minimum(
            1.0, HUBER * sigma / np.maximum(np.abs(residuals), 1e-12)
        )
        updated = _solve_nonnegative(scaled, target, weights)
        if np.allclose(updated, solution, rtol=1e-6, atol=0):
            break
        solution = updated
    return solution, weights


def _solve_nonnegative(scaled: Any, target: Any, weights: Any) -> Any:
    """Least squares with x ≥ 0 by the active-set method of Lawson and Hanson (1974)."""
    import numpy as np

    root = np.sqrt(weights)
    norms = np.linalg.norm(scaled, axis=0)
    norms[norms == 0] = 1.0
    a = scaled * root[:, None] / norms
    b = target * root
    n = a.shape[1]
    x = np.zeros(n)
    passive = np.zeros(n, dtype=bool)
    for _ in range(3 * n):
        gradient = a.T @ (b - a @ x)
        gradient[passive] = -math.inf
        best = int(np.argmax(gradient))
        if gradient[best] <= 1e-10:
            break
        passive[best] = True
        while True:
            trial = np.zeros(n)
            trial[passive] = np.linalg.lstsq(a[:, passive], b, rcond=None)[0]
            if (trial[passive] > 0).all():
                x = trial
                break
            negative = passive & (trial <= 0)
            step = np.min(x[negative] / (x[negative] - trial[negative]))
            x = x + step * (trial - x)
            passive &= x > 1e-14
    return x / norms


def _relative_errors(
    scaled: Any, target: Any, solution: Any, weights: Any, observations: int
) -> list[float]:
    """Return each parameter's relative standard error from the weighted normal equations."""
    import numpy as np

    used = solution > 0
    a = (scaled * np.sqrt(weights)[:, None])[:, used]
    residuals = ((scaled @ solution - target) * np.sqrt(weights))[:observations]
    freedom = max(1, len(scaled) - int(used.sum()))
    variance = max(float(residuals @ residuals) / freedom, 1e-4**2)
    covariance = np.linalg.pinv(a.T @ a) * variance
    errors = np.full(len(solution), math.inf)
    errors[used] = np.sqrt(np.diag(covariance)) / solution[used]
    return [float(error) for error in errors]
