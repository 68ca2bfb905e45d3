"""Pauses that a CPU quota makes: seen in its counters, and counted as time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cpubound import stats
from cpubound.machine.files import Root
from cpubound.machine.limits import read_quota_periods

# From this share of scheduler periods on in which the quota ran out, rates are by the clock.
PAUSED_SHARE = 0.05

ReadPeriods = Callable[[], tuple[int | None, int | None]]


def read_own_periods() -> tuple[int | None, int | None]:
    """Read the scheduler periods of this process's group, and those in which its quota ran out."""
    return read_quota_periods(Root())


class PauseCounter:
    """Counts from its making on how often the quota ran out; children share the group."""

    def __init__(self, read: ReadPeriods = read_own_periods) -> None:
        self._read = read
        self._before = read()

    def share(self) -> float:
        """Return the share of the scheduler periods since with a pause; 0 where none is counted."""
        (before, paused_before), (now, paused_now) = self._before, self._read()
        if None in (before, paused_before, now, paused_now):
            return 0.0
        return paused_share(now - before, paused_now - paused_before)  # type: ignore[operator]


def paused_share(periods: int | None, paused: int | None) -> float:
    """Return the share of scheduler periods with a pause, 0 where it is unknown."""
    return paused / periods if periods and paused and periods > 0 and paused > 0 else 0.0


def usual_seconds(samples_s: Sequence[float], share: float) -> float:
    """Return the seconds of a token: the median, or by the clock where a quota makes pauses.

    The median of many short tokens hides the few that a pause made long; whoever waits for the
    answer does not.

    Parameters
    ----------
    samples_s : the seconds of every token, at least one, each from the end of the one before.
    share : of the scheduler periods with a pause.
    """
    if share < PAUSED_SHARE:
        return stats.median(samples_s)
    return sum(samples_s) / len(samples_s)


def pause_warnings(share: float) -> tuple[str, ...]:
    """Say that rates are by the clock, where they are."""
    if share < PAUSED_SHARE:
        return ()
    return (
        f"a CPU quota ran out in {share:.0%} of the scheduler periods: observed speeds are by the "
        "clock, pauses included",
    )
