"""How bandwidth grows with threads: the law, its fit, the knee and how sure it is.

    R(T) = ((K · T)^−p + B^−p)^(−1/p)

K is what one thread reaches, B what memory gives at most, p how sharp the turn is. Kernels
of one machine share B and p and differ in K. Pure arithmetic over rates that were measured.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cpubound import stats
from cpubound.profile.values import SaturationPoint

# The saturation point: the smallest thread count within this of the best.
TOLERANCE = 0.03
# Two counts do not tell three parameters: then the sharpness is the one that two published
# Zen 4 series gave (tests/cost/test_law.py fits them again).
USUAL_SHARPNESS = 3.0
LAW_COUNTS = 3
SHARPNESS_RANGE = (0.5, 16.0)
_SHARPNESS_STEPS = 36
# A law that misses its own points by more describes no knee (siblings, slow cores, nodes).
LAW_RESIDUAL = 0.05
# Counts next to the knee and the best are measured until they lie this close together.
KNEE_GAP = 0.06
PEAK_GAP = 0.25

Rates = Mapping[int, float]  # thread count -> bytes per second


@dataclass(frozen=True, kw_only=True, slots=True)
class Law:
    """The law of some kernels of one machine; ``limit_bytes_per_s`` inf where none shows.

    ``residual`` is the median of |law / measured − 1| over the points of the fit.
    """

    thread_bytes_per_s: Mapping[str, float]
    limit_bytes_per_s: float
    sharpness: float
    residual: float

    def rate(self, kernel: str, threads: float) -> float:
        """Return the rate of a kernel, in bytes per second, at any thread count."""
        alone = self.thread_bytes_per_s[kernel] * threads
        if math.isinf(self.limit_bytes_per_s):
            return alone
        return float(saturate(alone, self.limit_bytes_per_s, self.sharpness))


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLaw:
    """What memory gives at most (inf where no limit shows) and how sharply rates reach it."""

    limit_bytes_per_s: float
    sharpness: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Knee:
    """The smallest thread count within 3 % of the best, and the 5 … 95 % range of it."""

    threads: int
    low: int
    high: int


def rate_with_memory(rate: float, factor: float, law: MemoryLaw) -> float:
    """Return what a rate (bytes/s) becomes with memory ``factor`` times as fast."""
    if math.isinf(law.limit_bytes_per_s):
        return rate
    p = law.sharpness
    # Relative to the rate, so that no power leaves the range of a float.
    memory = min((rate / law.limit_bytes_per_s) ** p, 1.0)
    return float(rate * (1 - memory + memory * factor**-p) ** (-1 / p))


def saturate(alone: Any, limit: Any, sharpness: Any) -> Any:
    """Return the law at the rate that threads would reach alone: numbers or numpy arrays.

    (alone^−p + limit^−p)^(−1/p), written so that no power leaves the range of a float.
    """
    import numpy as np

    low, high = np.minimum(alone, limit), np.maximum(alone, limit)
    return low / (1 + (low / high) ** sharpness) ** (1 / sharpness)


def fit_law(curves: Mapping[str, Rates]) -> Law:
    """Fit the law to the curves of one or more kernels: one B, one p, a K for each.

    For a given p, R^−p is linear in T^−p. Each point is weighted so that its relative error
    counts; p is found on a logarithmic grid. Only one or two counts leave p at its usual
    value.

    Raises
    ------
    ValueError : no points, or a rate or count that is not positive.
    """
    points = [(t, r) for curve in curves.values() for t, r in curve.items()]
    if not points or any(t <= 0 or not r > 0 for t, r in points):
        raise ValueError("a law needs positive rates at positive thread counts")
    if len({t for t, _ in points}) < LAW_COUNTS:
        return _fit_at(curves, USUAL_SHARPNESS)[1]
    low, high = SHARPNESS_RANGE
    ratio = (high / low) ** (1 / (_SHARPNESS_STEPS - 1))
    grid = [low * ratio**step for step in range(_SHARPNESS_STEPS)]
    return min((_fit_at(curves, p) for p in grid), key=lambda found: found[0])[1]


def find_saturation(rates: Rates, tolerance: float = TOLERANCE) -> int:
    """Return the smallest thread count within ``tolerance`` of the best rate."""
    best = max(rates.values())
    return min(t for t, rate in rates.items() if rate >= best * (1 - tolerance))


def find_knee(
    samples: Mapping[int, Sequence[Sequence[float]]],
    *,
    draws: int = 100,
    seed: int = 0,
) -> Knee:
    """Return the knee of one kernel's measured curve, with its interval.

    The knee is that of the medians. Its interval is the 5 … 95 % range over bootstrap draws:
    of the buffers that were opened, then of the samples of each. A draw's knee is read off
    the law where the law fits, at every thread count in between, and else off its medians.

    Parameters
    ----------
    samples : thread count -> a sequence of rates (bytes per second) for each buffer.
    draws : how many times to draw.
    """
    order = random.Random(seed)
    medians = {t: _pooled_median(groups) for t, groups in samples.items()}
    threads = find_saturation(medians)
    knees = [
        _knee_of({t: _draw_median(groups, order) for t, groups in samples.items()})
        for _ in range(draws)
    ]
    low = math.floor(stats.quantile(knees, 0.05)) if knees else threads
    high = math.ceil(stats.quantile(knees, 0.95)) if knees else threads
    return Knee(threads=threads, low=min(low, threads), high=max(high, threads))


def saturation_point(
    kernel: str, placement: str, rates: Mapping[int, Sequence[Sequence[float]]]
) -> SaturationPoint:
    """Return knee, interval and law of one curve: thread count -> rates by buffer."""
    knee = find_knee(rates)
    medians = {t: stats.median([r for part in parts for r in part]) for t, parts in rates.items()}
    law = fit_law({kernel: medians}) if len(medians) >= LAW_COUNTS else None
    alone = law.thread_bytes_per_s[kernel] if law is not None else None
    limit = law.limit_bytes_per_s if law is not None else math.inf
    return SaturationPoint(
        kernel=kernel,
        threads=knee.threads,
        low=knee.low,
        high=knee.high,
        placement=placement,
        # Where memory alone sets the rate, one thread's own does not show.
        thread_bytes_per_s=alone if alone is not None and alone < 10 * limit else None,
        limit_bytes_per_s=limit if math.isfinite(limit) else None,
        sharpness=None if law is None else law.sharpness,
        law_error=None if law is None else law.residual,
    )


def law_band(
    samples: Mapping[int, Sequence[float]],
    counts: Sequence[float],
    *,
    draws: int = 60,
    seed: int = 0,
) -> list[tuple[float, float]]:
    """Return the 5 … 95 % range of the law at thread counts, over bootstrap draws of the samples.

    ``samples`` are rates (bytes per second) by thread count.
    """
    order = random.Random(seed)
    laws = [
        fit_law({"": {t: stats.median(order.choices(r, k=len(r))) for t, r in samples.items()}})
        for _ in range(draws)
    ]
    rates = [[law.rate("", count) for law in laws] for count in counts]
    return [(stats.quantile(row, 0.05), stats.quantile(row, 0.95)) for row in rates]


def coarse_counts(limit: int, landmarks: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the thread counts to begin with: doubling to ``limit``, and landmarks.

    A landmark (cores of a cache group, a node, a package) takes the place of a neighbour it
    is close to, so that they do not add up.
    """
    kept = {1, limit, *(landmark for landmark in landmarks if 1 <= landmark <= limit)}
    doubling = (2**power for power in range(limit.bit_length()))
    free = {c for c in doubling if c <= limit and not any(0.8 < c / k < 1.25 for k in kept)}
    return tuple(sorted(kept | free))


def next_count(rates: Rates) -> int | None:
    """Return the thread count to measure next, or None once knee and best are pinned down.

    The gap below the knee is halved until it is 6 % or one thread, so is the gap to either
    side of the best until it is a quarter: a rate may fall again past its best.
    """
    counts = sorted(rates)
    knee = find_saturation(rates)
    best = max(counts, key=lambda count: rates[count])
    for low, high, gap in (
        *((low, high, KNEE_GAP) for low, high in _pairs(counts) if high == knee),
        *((low, high, PEAK_GAP) for low, high in _pairs(counts) if best in (low, high)),
    ):
        if high - low > max(1.0, gap * high):
            return (low + high) // 2
    return None


def _fit_at(curves: Mapping[str, Rates], sharpness: float) -> tuple[float, Law]:
    """Fit K of each kernel and B at one sharpness; return the squared relative error too.

    Minimises Σ ((a_q · x + b) · y − 1)² with x = T^−p, y = R^p, a_q = K_q^−p, b = B^−p: to
    first order p times the relative errors. b is eliminated last and never negative.
    """
    unit = max(rate for curve in curves.values() for rate in curve.values())
    sums = {}
    for name, curve in curves.items():
        rows = [((r / unit) ** sharpness * t**-sharpness, (r / unit) ** sharpness, 1.0)
                for t, r in curve.items()]  # fmt: skip
        sums[name] = _Sums(
            xx=sum(u * u for u, _, _ in rows),
            xy=sum(u * v for u, v, _ in rows),
            yy=sum(v * v for _, v, _ in rows),
            x=sum(u for u, _, _ in rows),
            y=sum(v for _, v, _ in rows),
        )
    curvature = sum(s.yy - s.xy**2 / s.xx for s in sums.values())
    slope = sum(s.y - s.xy * s.x / s.xx for s in sums.values())
    total = sum(s.yy for s in sums.values())
    b = max(slope / curvature, 0.0) if curvature > 1e-12 * total else 0.0
    # A kernel that memory alone sets leaves nothing for its own rate: keep it finite.
    a = {name: max((s.x - b * s.xy) / s.xx, 1e-9) for name, s in sums.items()}
    law = Law(
        thread_bytes_per_s={name: unit * v ** (-1 / sharpness) for name, v in a.items()},
        limit_bytes_per_s=unit * b ** (-1 / sharpness) if b > 0 else math.inf,
        sharpness=sharpness,
        residual=0.0,
    )
    errors = [law.rate(n, t) / r - 1 for n, curve in curves.items() for t, r in curve.items()]
    residual = stats.median([abs(error) for error in errors])
    fitted = Law(
        thread_bytes_per_s=law.thread_bytes_per_s,
        limit_bytes_per_s=law.limit_bytes_per_s,
        sharpness=sharpness,
        residual=residual,
    )
    return sum(error * error for error in errors), fitted


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sums:
    """Sums over the points of one kernel for the normal equations."""

    xx: float
    xy: float
    yy: float
    x: float
    y: float


def _knee_of(rates: Rates) -> int:
    """Return the knee at every thread count between the measured ones, by the law if it fits."""
    if len(rates) >= LAW_COUNTS:
        law = fit_law({"": rates})
        if law.residual <= LAW_RESIDUAL:
            counts = range(min(rates), max(rates) + 1)
            return find_saturation({count: law.rate("", count) for count in counts})
    return find_saturation(rates)


def _pooled_median(groups: Sequence[Sequence[float]]) -> float:
    return stats.median([rate for group in groups for rate in group])


def _draw_median(groups: Sequence[Sequence[float]], order: random.Random) -> float:
    chosen = order.choices(groups, k=len(groups))
    return _pooled_median([order.choices(group, k=len(group)) for group in chosen])


def _pairs(counts: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(counts))
