"""Rules about what was seen while a model ran here; each gives a finding or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cpubound.advise.values import ERROR, INFO, WARNING, Finding
from cpubound.engine.watch import LiveFacts
from cpubound.units import format_binary_bytes, format_percent, format_rate

# One scheduler period in a hundred throttled is already visible in the slowest tokens.
_THROTTLED_SHARE = 0.01
# Less than this is the hypervisor's own work; more is a neighbour.
_STEAL_SHARE = 0.01
# A thread that waits this share of its time for a CPU holds up its whole team.
_WAIT_SHARE = 0.02
# CPUs that other programs use: a tenth of one is what a desktop does by itself.
_OTHER_CPUS = 0.10
# A token that faults a page in from a disk waits for it; a settled run does so for none.
_MAJOR_FAULTS = 0.5
_MISSING_SHARE = 0.01
_STALL_SHARE = 0.01
# Clocks differ this much by themselves; below the half, or falling by a tenth, they are held down.
_LOW_CLOCK_SHARE = 0.5
_CLOCK_DRIFT = -0.10
# Bandwidth seen beside the run against the calibrated: within a tenth it is noise.
_LESS_BANDWIDTH = 0.10


def find_reads_from_disk(facts: LiveFacts) -> Finding | None:
    """Find weights that are read from the disk again for every token."""
    faults, stored = facts.major_faults_per_token, facts.storage_bytes_per_token
    if faults is None or faults < _MAJOR_FAULTS:
        return None
    evidence: dict[str, float] = {"major_faults_per_token": faults}
    where = ""
    if stored is not None:
        evidence["storage_bytes_per_token"] = stored
        where = f", {format_binary_bytes(stored)} from the disk"
    if facts.file_bytes and facts.resident_bytes is not None:
        missing = facts.file_bytes - facts.resident_bytes
        evidence |= {"file_bytes": facts.file_bytes, "resident_bytes": facts.resident_bytes}
        if missing > _MISSING_SHARE * facts.file_bytes:
            where += f"; {format_binary_bytes(missing)} of the file are not in memory"
    return Finding(
        code="not-resident",
        severity=ERROR,
        evidence=evidence,
        message=f"each token waits for {faults:.3g} pages that are not in memory{where}",
        remedy=(
            "free memory, raise the memory limit, or take a smaller file type; --mlock shows at "
            "once whether it fits"
        ),
    )


def find_quota_runs_out(facts: LiveFacts) -> Finding | None:
    """Find a CPU quota that runs out while the model decodes."""
    periods, throttled = facts.quota_periods, facts.throttled_periods
    if not periods or throttled is None or throttled < _THROTTLED_SHARE * periods:
        return None
    return Finding(
        code="quota-oversubscribed",
        severity=ERROR,
        evidence={
            "quota_periods": periods,
            "throttled_periods": throttled,
            "threads": facts.threads,
        },
        message=(
            f"the CPU quota ran out in {throttled} of {periods} scheduler periods of the run: "
            f"{facts.threads} threads are more than it lets run"
        ),
        remedy="use fewer threads (cpubound tune), or raise the quota (docker --cpus)",
    )


def find_stolen(facts: LiveFacts) -> Finding | None:
    """Find CPU time that the hypervisor gave to others during the run."""
    stolen = facts.steal_share
    if stolen is None or stolen < _STEAL_SHARE:
        return None
    return Finding(
        code="stolen-time",
        severity=WARNING,
        evidence={"steal_share": stolen},
        message=f"the hypervisor gave {stolen:.1%} of the CPU time of the run to other machines",
        remedy="use dedicated CPUs, or a thread less than there are CPUs; measure at several hours",
    )


def find_waiting(facts: LiveFacts) -> Finding | None:
    """Find threads of the engine that waited for a CPU, and who had it."""
    waited = facts.wait_share
    if waited is None or waited < _WAIT_SHARE:
        return None
    evidence = {"wait_share": waited, "threads": float(facts.threads)}
    if facts.other_cpus is not None:
        evidence["other_cpus"] = facts.other_cpus
    return Finding(
        code="busy-cpus",
        severity=WARNING,
        evidence=evidence,
        message=(
            f"the engine's threads were ready and had no CPU for {waited:.1%} of their time"
            f"{_named_programs(facts)}; all threads wait for the last one"
        ),
        remedy="stop the other programs, or use a thread less than there are CPUs",
    )


def find_other_programs(facts: LiveFacts) -> Finding | None:
    """Find other programs that use CPUs, and with them memory bandwidth, during the run."""
    others = facts.other_cpus
    if others is None or others < _OTHER_CPUS:
        return None
    return Finding(
        code="busy-machine",
        severity=INFO,
        evidence={"other_cpus": others},
        message=(
            f"other programs used {others:.2g} CPUs during the run{_named_programs(facts)}: they "
            "take memory bandwidth too"
        ),
        remedy="stop them and run it again",
    )


def find_less_bandwidth(facts: LiveFacts) -> Finding | None:
    """Find memory that gives less now than when the machine was calibrated."""
    seen, calibrated = facts.read_bytes_per_s, facts.calibrated_bytes_per_s
    if seen is None or not calibrated or seen > (1 - _LESS_BANDWIDTH) * calibrated:
        return None
    return Finding(
        code="less-bandwidth",
        severity=WARNING,
        evidence={"read_bytes_per_s": seen, "calibrated_bytes_per_s": calibrated},
        message=(
            f"memory gave {format_rate(seen)} beside the run and {format_rate(calibrated)} when "
            f"the machine was calibrated ({format_percent(seen / calibrated - 1, 0)}): something "
            "else uses it, here or on a virtual machine next to this one"
        ),
        remedy="stop what uses memory; if it stays so:  cpubound calibrate",
    )


def find_memory_pressure(facts: LiveFacts) -> Finding | None:
    """Find a machine that runs short of memory while the model decodes."""
    stalled, swapped = facts.memory_stall_share, facts.swapped_bytes
    is_stalled = stalled is not None and stalled >= _STALL_SHARE
    if not is_stalled and not swapped:
        return None
    known = {"memory_stall_share": stalled, "swapped_bytes": swapped}
    parts = []
    if stalled is not None and is_stalled:
        parts.append(f"programs waited for memory {stalled:.1%} of the time")
    if swapped:
        parts.append(f"{format_binary_bytes(swapped)} went to or from swap")
    return Finding(
        code="memory-pressure",
        severity=WARNING,
        evidence={name: value for name, value in known.items() if value is not None},
        message=f"memory is short: {' and '.join(parts)} during the run",
        remedy="close other programs, shorten the context (-c), or take a smaller file type",
    )


def find_low_clock(facts: LiveFacts) -> Finding | None:
    """Find clocks that are held down, or come down while the model decodes."""
    clock, highest = facts.clock_hz, facts.highest_clock_hz
    heat = facts.throttle_events or 0
    is_low = clock is not None and bool(highest) and clock < _LOW_CLOCK_SHARE * (highest or 0)
    is_falling = facts.clock_drift is not None and facts.clock_drift < _CLOCK_DRIFT
    if not (is_low or is_falling or heat):
        return None
    known = {
        "clock_hz": clock,
        "highest_clock_hz": highest,
        "clock_drift": facts.clock_drift,
        "throttle_events": facts.throttle_events,
        "drift": facts.drift,
    }
    parts = []
    if is_low and clock and highest:
        parts.append(f"the clock was {clock / 1e9:.2f} of {highest / 1e9:.2f} GHz")
    if is_falling and facts.clock_drift is not None:
        parts.append(f"it came down by {-facts.clock_drift:.0%} while the model decoded")
    if heat:
        parts.append(f"heat slowed the cores {heat} times")
    return Finding(
        code="throttled",
        severity=WARNING,
        evidence={name: value for name, value in known.items() if value is not None},
        message=f"the CPUs were slowed down during the run: {', '.join(parts)}",
        remedy="check power profile, battery and cooling (cpubound doctor); use fewer threads",
    )


# Code of the finding: what the rule looks for, and the rule.
LIVE_RULES: Mapping[str, tuple[str, Callable[[LiveFacts], Finding | None]]] = {
    "not-resident": ("weights are read from the disk for every token", find_reads_from_disk),
    "quota-oversubscribed": ("a CPU quota runs out during the run", find_quota_runs_out),
    "stolen-time": ("the hypervisor gives CPU time to others during the run", find_stolen),
    "busy-cpus": ("the engine's threads wait for a CPU", find_waiting),
    "less-bandwidth": ("memory gives less than when it was calibrated", find_less_bandwidth),
    "memory-pressure": ("the machine runs short of memory during the run", find_memory_pressure),
    "throttled": ("clocks are low, or come down, during the run", find_low_clock),
    "busy-machine": ("other programs use CPUs during the run", find_other_programs),
}


def find_live_findings(facts: LiveFacts) -> tuple[Finding, ...]:
    """Look at a watched run with every rule; a fact that is unknown gives no finding."""
    found = [rule(facts) for _, rule in LIVE_RULES.values()]
    return tuple(finding for finding in found if finding is not None)


def _named_programs(facts: LiveFacts) -> str:
    named = [
        f"{name} {cpus:.2g}"
        for name, cpus in facts.other_programs.items()
        if cpus >= _OTHER_CPUS / 2
    ]
    return f" ({', '.join(named)} CPUs)" if named else ""
