"""Mixtures of experts: how many of them a batch touches."""

from __future__ import annotations

from dataclasses import dataclass

from cpubound.errors import UsageError
from cpubound.theory.budget import require_positive


def experts_touched(experts: float, used: float, batch: float) -> float:
    """Return how many of a layer's experts a batch reads on average.

    E · (1 − (1 − k/E)^b): each of ``batch`` tokens chooses ``used`` of ``experts`` independently
    and evenly. At 1 that is ``used``, in the limit all.
    """
    require_positive("a number of experts", experts)
    if not batch > 0:
        raise UsageError(f"a batch must be positive ({batch:g}): give a number above 0")
    if not 0 < used <= experts:
        raise UsageError(
            f"a token uses between 1 and all experts ({used:g} of {experts:g}): check the two"
        )
    return float(experts * (1 - (1 - used / experts) ** batch))


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertWeights:
    """The experts of a model: what all of them take, and the share that one token uses."""

    all_bytes: float
    share_used: float

    def bytes_at(self, batch: float) -> float:
        """Return the bytes read by a step of ``batch`` tokens."""
        return self.all_bytes * experts_touched(1.0, self.share_used, batch)
