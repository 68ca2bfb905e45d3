"""Where decode turns compute-bound: ridge batch, n*, and the largest batch that memory holds.

All functions take the work of one sequence: FLOPs and bytes that each further sequence of a
batch adds, beside the weights that all of them share.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from cpubound.theory.budget import Roofs, require_positive


def ridge_batch(
    weight_bytes: float, sequence_flops: float, sequence_bytes: float, roofs: Roofs
) -> float | None:
    """Return the batch from which a step is compute-bound; infinite if none is.

    (W / BW) / (F₁ / P − S / BW): the time of the shared weights over what a sequence adds to the
    arithmetic beyond what it adds to the reading. None where the peak rate is not known.
    """
    require_positive("the weights' size", weight_bytes)
    if roofs.flops_per_s is None:
        return None
    gain = sequence_flops / roofs.flops_per_s - sequence_bytes / roofs.bytes_per_s
    return weight_bytes / roofs.bytes_per_s / gain if gain > 0 else math.inf


def ridge_batch_of(
    weight_bytes_at: Callable[[float], float],
    sequence_flops: float,
    sequence_bytes: float,
    roofs: Roofs,
) -> float | None:
    """Return the ridge batch where the weights read depend on the batch (mixtures of experts).

    ``weight_bytes_at`` gives the weights read at a batch: it grows with the batch, slower than
    in proportion, so that the answer is unique.
    """
    low = ridge_batch(weight_bytes_at(1.0), sequence_flops, sequence_bytes, roofs)
    high = ridge_batch(weight_bytes_at(math.inf), sequence_flops, sequence_bytes, roofs)
    if low is None or high is None or low == high or math.isinf(high):
        return high
    for _ in range(200):
        middle = (low + high) / 2
        here = ridge_batch(weight_bytes_at(middle), sequence_flops, sequence_bytes, roofs)
        if here is not None and here > middle:
            low = middle
        else:
            high = middle
    return high


def find_last_context(
    sequence_work_at: Callable[[int], tuple[float, float]], roofs: Roofs, longest: int
) -> float | None:
    """Return n*: the context from which no batch is compute-bound, to the token.

    ``sequence_work_at`` gives FLOPs and bytes of one sequence at a context: the bytes of the
    weights have no part in it, and a cache need not grow evenly (windows). Infinite if a batch
    can be compute-bound at ``longest`` tokens still, 0 if none ever can; None where the peak
    rate is not known.
    """
    if roofs.flops_per_s is None:
        return None
    peak = roofs.flops_per_s

    def can_be_compute_bound(context: int) -> bool:
        flops, n_bytes = sequence_work_at(context)
        return flops / peak > n_bytes / roofs.bytes_per_s

    if not can_be_compute_bound(0):
        return 0.0
    low, high = 0, 256
    while can_be_compute_bound(high):
        if high >= longest:
            return math.inf
        low, high = high, 4 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if can_be_compute_bound(middle) else (low, middle)
    return float(high)


def largest_batch(memory_bytes: float, weight_bytes: float, sequence_bytes: float) -> float:
    """Return how many sequences memory holds beside the weights; infinite if they take nothing.

    0 when the weights alone do not fit. ``sequence_bytes`` is the cache allocated for one.
    """
    require_positive("a memory's size", memory_bytes)
    left = memory_bytes - weight_bytes
    if left <= 0:
        return 0
    return math.floor(left / sequence_bytes) if sequence_bytes > 0 else math.inf
