"""From probe times to rates and costs: one robust, non-negative fit per thread count.

    t = Σ over matrices  bytes · s(type, columns)  +  Σ experts  bytes · s(type)
        + kv_bytes · (a + q · query heads per KV head)  +  state_bytes · r
        + c_token  +  products · c_product  +  expert layers · c_expert
        −  memory_share · cache_saved

``s`` is linear between knots in the logarithm of the row's length. Each probe contributes one
equation, divided by its time so that all count alike by their relative error. Rates come from
probes of several depths and widths together: a plain difference of two depths would amplify
noise.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cpubound import stats
from cpubound.cost.memory_shares import long_row_seconds, memory_share, memory_shares
from cpubound.profile.values import REFERENCE_QUERY_HEADS

# Huber's constant: residuals beyond 1.345 σ count linearly, 95 % efficient for normal noise.
HUBER = 1.345
ITERATIONS = 30
# Probes that differ by this are no outliers: where the pages of one lie decides as much. There
# are few probes for each rate, and most of them often fit to a thousandth.
USUAL_RESIDUAL = 0.02
# How unlike the rates at neighbouring row lengths may be before it counts as much as a probe
# that is off by SMOOTH_WEIGHT: a few probes of a type do not tell four knots apart by themselves.
# Of 0.05 … 0.5 this left the smallest held-out errors (six runs of python -m calibrate accuracy).
SMOOTH_SPREAD = 0.10
SMOOTH_WEIGHT = 0.04
# A token's own cost and what the cache keeps are told apart by few probes: with noise both can
# run away together. At these sizes either counts as much as a probe off by SMOOTH_WEIGHT.
PRIOR_SECONDS_PER_TOKEN = 600e-6
PRIOR_CACHE_SAVED_S = 2e-3


# The share of attention's time that grows with the query heads, where probes do not tell:
# calibrations found 0.51 … 0.96 over KV types, head sizes and thread counts (AMD EPYC Zen 4,
# 2026-11-30; ``query_share`` of a profile's attention rates).
USUAL_QUERY_SHARE, QUERY_SHARE_SPREAD = 0.75, 0.3


class QueryKey(NamedTuple):
    """Names what of an attention setting's time grows with the query heads of a KV head."""

    setting: Hashable


class ExpertsKey(NamedTuple):
    """Names the rate of a type's experts in the fit."""

    type: str


class StateKey(NamedTuple):
    """Names the rate of a kind of recurrence in the fit."""

    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeTime:
    """One probe at one thread count: what it moves and its median time."""

    seconds: float
    matrices: Mapping[tuple[str, int], int]  # (type, columns) -> bytes
    attention: Mapping[Hashable, int]  # KV bytes by attention setting
    products: int
    query_heads: float = REFERENCE_QUERY_HEADS  # that share a KV head
    experts: Mapping[str, int] = field(default_factory=dict)  # type -> bytes
    expert_layers: int = 0
    states: Mapping[str, int] = field(default_factory=dict)  # kind of recurrence -> bytes

    @property
    def others(self) -> dict[Hashable, float]:
        """What is measured by a rate of its own beside the dense matrices."""
        found: dict[Hashable, float] = dict(self.attention)
        queries = self.query_heads / REFERENCE_QUERY_HEADS
        found.update({QueryKey(key): n * queries for key, n in self.attention.items()})
        found.update({ExpertsKey(name): n for name, n in self.experts.items()})
        found.update({StateKey(kind): n for kind, n in self.states.items()})
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """Seconds per byte and fixed costs, with relative standard errors."""

    seconds_per_byte: Mapping[tuple[str, int], float]  # (type, columns of a knot)
    # By attention setting (at the reference number of query heads), experts, state.
    other_seconds_per_byte: Mapping[Hashable, float]
    query_share: Mapping[Hashable, float]  # by attention setting
    seconds_per_token: float
    seconds_per_product: float
    seconds_per_expert_layer: float
    cache_saved_s: float
    relative_error: Mapping[Hashable, float]  # by the keys of both
    residuals: tuple[float, ...]  # fitted / observed − 1, one per probe


def fit_probe_times(rows: Sequence[ProbeTime]) -> Fit:
    """Fit rates and costs to the probes of one thread count.

    The memory share of a probe needs the rates: a first fit leaves it out, two more take it
    from the rates before.

    Raises
    ------
    ValueError : no rows.
    """
    if not rows:
        raise ValueError("a fit needs at least one probe")
    knots = _knots(rows)
    shares = dict.fromkeys(knots, 0.0)
    fit = _fit_once(rows, knots, shares)
    for _ in range(2):
        shares = memory_shares(_long_row_seconds(fit, knots))
        fit = _fit_once(rows, knots, shares)
    return fit


def _knots(rows: Sequence[ProbeTime]) -> dict[str, list[int]]:
    found: dict[str, set[int]] = {}
    for row in rows:
        for name, columns in row.matrices:
            found.setdefault(name, set()).add(columns)
    return {name: sorted(columns) for name, columns in sorted(found.items())}


def _long_row_seconds(fit: Fit, knots: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {
        name: max(long_row_seconds({c: fit.seconds_per_byte[name, c] for c in columns}), 1e-13)
        for name, columns in knots.items()
    }


def _fit_once(
    rows: Sequence[ProbeTime], knots: Mapping[str, Sequence[int]], shares: Mapping[str, float]
) -> Fit:
    import numpy as np

    places = [(name, column) for name, columns in knots.items() for column in columns]
    settings = sorted({other for row in rows for other in row.others}, key=str)
    observed = np.array([row.seconds for row in rows])
    design = np.array([_equation(row, places, settings, knots, shares) for row in rows])
    scaled = design / observed[:, None]
    prior = np.vstack(
        [
            _smoothness(places, knots, scaled),
            _usual_shares(len(places), settings, scaled),
            _shrinkage(scaled.shape[1]),
        ]
    )
    matrix = np.vstack([scaled, prior])
    target = np.concatenate([np.ones(len(rows)), np.zeros(len(prior))])
    solution, weights = _solve_robust(matrix, target, len(rows))
    covariance = _covariance(matrix, target, solution, weights, len(rows))
    columns = _columns_of(places, settings)
    seconds = {key: float(solution[mine].sum()) for key, mine in columns.items()}
    return Fit(
        seconds_per_byte={place: seconds[place] for place in places},
        other_seconds_per_byte={
            key: seconds[key] for key in settings if not isinstance(key, QueryKey)
        },
        query_share={
            key: float(solution[mine[1]]) / seconds[key] if seconds[key] else 0.0
            for key, mine in columns.items()
            if len(mine) == 2
        },
        seconds_per_token=float(solution[-4]),
        seconds_per_product=float(solution[-3]),
        seconds_per_expert_layer=float(solution[-2]),
        cache_saved_s=float(solution[-1]),
        relative_error={
            key: math.sqrt(max(float(covariance[np.ix_(mine, mine)].sum()), 0.0)) / seconds[key]
            if seconds[key] > 0
            else math.inf
            for key, mine in columns.items()
        },
        residuals=tuple(float(r) for r in (matrix @ solution - target)[: len(rows)]),
    )


def _equation(
    row: ProbeTime,
    places: Sequence[tuple[str, int]],
    settings: Sequence[Hashable],
    knots: Mapping[str, Sequence[int]],
    shares: Mapping[str, float],
) -> list[float]:
    by_place = dict.fromkeys(places, 0.0)
    for (name, columns), n_bytes in row.matrices.items():
        for knot, weight in stats.hat_weights(knots[name], columns).items():
            by_place[name, knot] += weight * n_bytes
    others = row.others
    rated = [float(others.get(setting, 0)) for setting in settings]
    share = memory_share(row.matrices, shares)
    fixed = [1.0, float(row.products), float(row.expert_layers)]
    return [*by_place.values(), *rated, *fixed, -share]


def _smoothness(
    places: Sequence[tuple[str, int]], knots: Mapping[str, Sequence[int]], scaled: Any
) -> Any:
    """Draw a type's rates at neighbouring row lengths towards each other, weakly."""
    import numpy as np

    rows = []
    for name, columns in knots.items():
        mine = [place for place, (other, _) in enumerate(places) if other == name]
        # The scale of this type's seconds per byte, from the probes that are made of it.
        used = scaled[:, mine].sum(axis=1)
        per_byte = 1 / max(float(used.max()), 1e-30)
        for low in range(len(columns) - 1):
            row = np.zeros(scaled.shape[1])
            row[mine[low]], row[mine[low + 1]] = 1.0, -1.0
            rows.append(row * SMOOTH_WEIGHT / (SMOOTH_SPREAD * per_byte))
    return np.array(rows).reshape(-1, scaled.shape[1])


def _usual_shares(first: int, settings: Sequence[Hashable], scaled: Any) -> Any:
    """Draw the share of attention that grows with query heads towards the usual one, weakly."""
    import numpy as np

    rows = []
    for place, key in enumerate(settings):
        if not isinstance(key, QueryKey):
            continue
        plain, query = first + settings.index(key.setting), first + place
        row = np.zeros(scaled.shape[1])
        row[plain], row[query] = USUAL_QUERY_SHARE, USUAL_QUERY_SHARE - 1
        per_byte = 1 / max(float(scaled[:, plain].max()), 1e-30)
        rows.append(row * SMOOTH_WEIGHT / (QUERY_SHARE_SPREAD * per_byte))
    return np.array(rows).reshape(-1, scaled.shape[1])


def _columns_of(
    places: Sequence[tuple[str, int]], settings: Sequence[Hashable]
) -> dict[Hashable, list[int]]:
    """Return the columns of each rate: attention's are two."""
    found: dict[Hashable, list[int]] = {place: [n] for n, place in enumerate(places)}
    for place, key in enumerate(settings):
        if not isinstance(key, QueryKey):
            found[key] = [len(places) + place]
    for place, key in enumerate(settings):
        if isinstance(key, QueryKey):
            found[key.setting].append(len(places) + place)
    return found


def _shrinkage(columns: int) -> Any:
    """Draw a token's own cost and what the cache keeps towards nothing, weakly."""
    import numpy as np

    rows = np.zeros((2, columns))
    rows[0, -4] = SMOOTH_WEIGHT / PRIOR_SECONDS_PER_TOKEN
    rows[1, -1] = SMOOTH_WEIGHT / PRIOR_CACHE_SAVED_S
    return rows


def _solve_robust(matrix: Any, target: Any, observations: int) -> tuple[Any, Any]:
    """Solve matrix · x ≈ target with x ≥ 0, down-weighting outliers among the observations."""
    import numpy as np

    weights = np.ones(len(matrix))
    solution = _solve_nonnegative(matrix, target, weights)
    for _ in range(ITERATIONS):
        residuals = (matrix @ solution - target)[:observations]
        sigma = max(1.4826 * stats.median([abs(r) for r in residuals]), USUAL_RESIDUAL)
        weights[:observations] = np.minimum(
            1.0, HUBER * sigma / np.maximum(np.abs(residuals), 1e-12)
        )
        updated = _solve_nonnegative(matrix, target, weights)
        if np.allclose(updated, solution, rtol=1e-6, atol=0):
            break
        solution = updated
    return solution, weights


def _solve_nonnegative(matrix: Any, target: Any, weights: Any) -> Any:
    """Least squares with x ≥ 0 by the active-set method of Lawson and Hanson (1974)."""
    import numpy as np

    root = np.sqrt(weights)
    norms = np.linalg.norm(matrix, axis=0)
    norms[norms == 0] = 1.0
    a = matrix * root[:, None] / norms
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


def _covariance(matrix: Any, target: Any, solution: Any, weights: Any, observations: int) -> Any:
    """Return the parameters' covariance from the weighted normal equations.

    Prior rows hold parameters together but observe nothing: they add no freedom. What the fit
    left at zero has no variance.
    """
    import numpy as np

    used = np.flatnonzero(solution > 0)
    a = (matrix * np.sqrt(weights)[:, None])[:, used]
    residuals = ((matrix @ solution - target) * np.sqrt(weights))[:observations]
    # Parameters that the observations decide; the prior holds the others.
    information = a[:observations].T @ a[:observations]
    decided = float(np.trace(np.linalg.pinv(a.T @ a) @ information))
    freedom = max(1.0, observations - decided)
    variance = max(float(residuals @ residuals) / freedom, 1e-4**2)
    covariance = np.zeros((len(solution), len(solution)))
    covariance[np.ix_(used, used)] = np.linalg.pinv(a.T @ a) * variance
    return covariance
