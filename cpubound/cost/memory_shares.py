"""How far memory, and how far its kernel, sets the rate of a type."""

from __future__ import annotations

from collections.abc import Mapping

from cpubound import stats


def long_row_seconds(seconds_by_columns: Mapping[int, float]) -> float:
    """Return a type's seconds per byte over its longer rows, where memory shows."""
    ordered = [seconds for _, seconds in sorted(seconds_by_columns.items())]
    return stats.median(ordered[len(ordered) // 2 :])


def memory_shares(seconds_per_byte: Mapping[str, float]) -> dict[str, float]:
    """Return how far memory sets each type's rate: the fastest's time over its own, squared."""
    fastest = min(seconds_per_byte.values())
    return {name: (fastest / seconds) ** 2 for name, seconds in seconds_per_byte.items()}


def memory_share(matrices: Mapping[tuple[str, int], int], shares: Mapping[str, float]) -> float:
    """Return the share of a step's weight bytes (by type and row length) that memory sets.

    A type without a share counts as set by its kernel.
    """
    total = sum(matrices.values())
    if not total:
        return 0.0
    return sum(n * shares.get(name, 0.0) for (name, _), n in matrices.items()) / total
