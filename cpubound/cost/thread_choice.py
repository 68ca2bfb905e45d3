"""How many threads a step should take, by the predictions at each count."""

from __future__ import annotations

from collections.abc import Sequence

from cpubound.cost.values import Prediction
from cpubound.profile.values import MachineProfile

# Fewer threads are preferred when they cost less than this: power, heat, room for others.
TOLERANCE = 0.03


def thread_counts(profile: MachineProfile) -> tuple[int, ...]:
    """Return the measured thread counts within the effective CPUs, and those CPUs themselves.

    A quota or affinity set since may leave a number of CPUs between two measured counts.
    """
    measured = {m.threads for m in profile.bandwidth if m.kernel == "read"}
    if profile.engine is not None and profile.engine.tables:
        measured = set(profile.engine.threads)
    most = profile.machine.effective_cpus
    within = {count for count in measured if count <= most}
    if measured and most < max(measured):
        within.add(most)
    return tuple(sorted(within)) or (1,)


def fewest_threads(predictions: Sequence[Prediction]) -> Prediction:
    """Return the prediction with the fewest threads within 3 % of the fastest."""
    return min(near_best(predictions), key=lambda p: p.setting.threads)


def near_best(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return the predictions within 3 % of the fastest."""
    best = max(p.tokens_per_s for p in predictions)
    return [p for p in predictions if p.tokens_per_s >= best * (1 - TOLERANCE)]
