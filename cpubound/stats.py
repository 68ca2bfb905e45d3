"""Statistics of noisy samples: median, quantile, spread, drift."""

from __future__ import annotations

import math
from collections.abc import Sequence


def median(samples: Sequence[float]) -> float:
    """Return the median of at least one sample."""
    return quantile(samples, 0.5)


def quantile(samples: Sequence[float], fraction: float) -> float:
    """Return a quantile by linear interpolation between order statistics.

    Parameters
    ----------
    samples : at least one number, in any order.
    fraction : 0 (smallest) … 1 (largest).

    Raises
    ------
    ValueError : no samples, or a fraction outside 0 … 1.
    """
    if not samples:
        raise ValueError("a quantile needs at least one sample")
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"fraction {fraction} is outside 0 … 1")
    ordered = sorted(samples)
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    high = math.ceil(position)
    if ordered[low] == ordered[high]:
        return ordered[low]
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def relative_spread(samples: Sequence[float]) -> float:
    """Return half the 5 … 95 % range over the median: the ± of a quantity that noise moves."""
    middle = median(samples)
    if middle == 0:
        return 0.0
    return (quantile(samples, 0.95) - quantile(samples, 0.05)) / (2 * abs(middle))


def relative_drift(samples: Sequence[float]) -> float:
    """Return how far the second half's median lies from the first half's, relative to it."""
    if len(samples) < 2:
        return 0.0
    half = len(samples) // 2
    before = median(samples[:half])
    return median(samples[-half:]) / before - 1 if before else 0.0


def split_half_distance(runs: Sequence[Sequence[float]]) -> float | None:
    """Return how far the median of every second run lies from that of the others.

    This is the error of predicting a run by another run of the same cell: no prediction can
    be judged below it. None with fewer than two runs.
    """
    if len(runs) < 2:
        return None
    first = median([sample for run in runs[::2] for sample in run])
    second = median([sample for run in runs[1::2] for sample in run])
    return abs(first / second - 1)


def median_standard_error(samples: Sequence[float]) -> float:
    """Return the standard error of the median, from the median absolute deviation.

    For normal noise the median's standard error is 1.2533 σ/√n and σ = 1.4826 MAD.
    """
    middle = median(samples)
    deviation = median([abs(sample - middle) for sample in samples])
    return 1.2533 * 1.4826 * deviation / math.sqrt(len(samples))
