"""What disturbed a measurement: the verdict on its samples, and the counters that explain it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cpubound import stats
from cpubound.machine.activity import Activity
from cpubound.machine.values import Machine
from cpubound.profile.values import Noise, judge_noise
from cpubound.units import format_percent

# An estimate is stable once one more buffer moves it by less.
STABLE_MOVE = 0.02
# From here on a counter explains noise. A hypervisor's own work steals less than this.
_STEAL_SHARE = 0.005
_OTHER_CPUS = 0.1
_FREQUENCY_CHANGE = 0.03
_DRIFT = 0.03
_BUFFER_SPREAD = 0.05


def assess_noise(
    relative_samples: Sequence[float],
    seconds: float,
    *,
    before: Activity,
    after: Activity,
    activity_s: float,
    page_faults: int | None = None,
    buffer_medians: Sequence[Sequence[float]] = (),
) -> Noise:
    """Give the verdict on the reference kernel's samples, and what may be to blame.

    Parameters
    ----------
    relative_samples : rates in order, each over the median at its thread count.
    seconds : from the first sample to the last.
    before, after : the counters around ``activity_s`` seconds in which only this process
        measured, so that other programs' CPU time can be told from its own.
    page_faults : inside timed samples.
    buffer_medians : for each cell the median rate in each buffer, in the order opened.
    """
    noise = judge_noise(tuple(relative_samples), seconds)
    moved = estimate_move(buffer_medians)
    noise = msgspec.structs.replace(
        noise,
        stable=None if moved is None else moved < STABLE_MOVE,
        estimate_moved=moved,
        buffer_spread=_buffer_spread(buffer_medians),
        steal_fraction=_steal_fraction(before, after),
        other_cpus=_other_cpus(before, after, activity_s),
        load_average=before.load_average,
        throttled_periods=_increase(before.throttled_periods, after.throttled_periods),
        throttle_events=_increase(before.throttle_events, after.throttle_events),
        frequency_change=_frequency_change(before, after),
        preemptions=_increase(before.preemptions, after.preemptions),
        page_faults=page_faults,
    )
    return msgspec.structs.replace(noise, causes=find_causes(noise))


def estimate_move(buffer_medians: Sequence[Sequence[float]]) -> float | None:
    """Return how far the last buffer moved a cell's estimate, the worst cell's, relative.

    The estimate of a cell is the median over its buffers. None with fewer than two buffers.
    """
    moves = []
    for medians in buffer_medians:
        if len(medians) < 2:
            return None
        now = stats.median(medians)
        moves.append(abs(stats.median(medians[:-1]) / now - 1))
    return max(moves) if moves else None


def find_causes(noise: Noise) -> tuple[str, ...]:
    """Say in words what the counters blame; empty where they blame nothing."""
    found = []
    if (noise.steal_fraction or 0) > _STEAL_SHARE:
        found.append(
            f"the hypervisor gave {(noise.steal_fraction or 0) * 100:.1f} % of the CPU time "
            "to other machines"
        )
    if (noise.other_cpus or 0) > _OTHER_CPUS:
        found.append(f"other programs kept {noise.other_cpus:.1f} CPUs busy")
    if noise.throttled_periods:
        found.append(f"the CPU quota ran out in {noise.throttled_periods} scheduler periods")
    if noise.throttle_events:
        found.append(f"heat slowed the cores {noise.throttle_events} times")
    if abs(noise.frequency_change or 0) > _FREQUENCY_CHANGE:
        found.append(f"the clock changed by {format_percent(noise.frequency_change or 0)}")
    if abs(noise.drift) > _DRIFT and not noise.frequency_change:
        found.append(f"the speed drifted by {format_percent(noise.drift)}")
    if (noise.buffer_spread or 0) > _BUFFER_SPREAD:
        found.append(
            f"equal buffers differed by ±{(noise.buffer_spread or 0) * 100:.0f} %, "
            "by their pages or by when they were measured"
        )
    return tuple(found)


def noise_warnings(noise: Noise, machine: Machine) -> tuple[str, ...]:
    """Return the profile's warnings: an estimate that did not become stable, and why."""
    if noise.stable is not False:
        return ()
    moved = (noise.estimate_moved or 0) * 100
    causes = "; ".join(noise.causes)
    if not causes:
        causes = (
            "no counter here tells why; on a virtual machine neighbours share the memory"
            if machine.hypervisor is not None
            else "no counter here tells why"
        )
    return (
        "the read bandwidth did not become stable: "
        f"one more buffer still moved it by {moved:.1f} % ({causes})",
    )


def _buffer_spread(buffer_medians: Sequence[Sequence[float]]) -> float | None:
    relative = [
        median / stats.median(medians)
        for medians in buffer_medians
        if len(medians) > 1
        for median in medians
    ]
    return stats.relative_spread(relative) if relative else None


def _steal_fraction(before: Activity, after: Activity) -> float | None:
    stolen = _difference(before.steal_s, after.steal_s)
    total = _difference(before.total_s, after.total_s)
    return None if stolen is None or not total else stolen / total


def _other_cpus(before: Activity, after: Activity, seconds: float) -> float | None:
    busy, own = _difference(before.busy_s, after.busy_s), _difference(before.own_s, after.own_s)
    if busy is None or own is None or seconds <= 0:
        return None
    return max(0.0, busy - own) / seconds


def _frequency_change(before: Activity, after: Activity) -> float | None:
    if before.mean_khz is None or after.mean_khz is None:
        return None
    return after.mean_khz / before.mean_khz - 1


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _increase(before: int | None, after: int | None) -> int | None:
    """Return how far a counter went up; a CPU that went offline takes its count along."""
    return None if before is None or after is None else max(0, after - before)
