"""What was seen while a model ran, as one line of text."""

from __future__ import annotations

from cpubound.engine.watch import LiveFacts
from cpubound.foreign import showing
from cpubound.units import format_binary_bytes, format_rate, format_significant


@showing()
def live_text(facts: LiveFacts) -> str:
    """Return what was seen; what the system does not tell is left out."""
    return " · ".join(part for part in _parts(facts) if part)


def _parts(facts: LiveFacts) -> tuple[str, ...]:
    return (
        f"{facts.tokens} tokens in {facts.seconds:.0f} s",
        _faults(facts),
        _residency(facts),
        _quota(facts),
        _share("stolen by the hypervisor", facts.steal_share),
        _share("ready without a CPU", facts.wait_share),
        _share("waiting for memory", facts.memory_stall_share),
        "" if not facts.swapped_bytes else f"{format_binary_bytes(facts.swapped_bytes)} swapped",
        _clock(facts),
        "" if facts.other_cpus is None else f"other programs {facts.other_cpus:.2f} CPUs",
        _bandwidth(facts),
    )


def _faults(facts: LiveFacts) -> str:
    major, minor = facts.major_faults_per_token, facts.minor_faults_per_token
    if major is None or minor is None:
        return ""
    return f"page faults a token: {major:.3g} from disk, {minor:.3g} in memory"


def _residency(facts: LiveFacts) -> str:
    if facts.resident_bytes is None or not facts.file_bytes:
        return ""
    return f"{min(facts.resident_bytes / facts.file_bytes, 1):.0%} of the file in memory"


def _quota(facts: LiveFacts) -> str:
    if not facts.quota_periods or facts.throttled_periods is None:
        return ""
    return f"quota ran out in {facts.throttled_periods} of {facts.quota_periods} periods"


def _share(what: str, share: float | None) -> str:
    return "" if share is None else f"{what} {share:.1%}"


def _clock(facts: LiveFacts) -> str:
    if facts.clock_hz is None:
        return ""
    highest = facts.highest_clock_hz
    limit = f" of {highest / 1e9:.2f}" if highest else ""
    return f"clock {format_significant(facts.clock_hz / 1e9)}{limit} GHz"


def _bandwidth(facts: LiveFacts) -> str:
    seen, calibrated = facts.read_bytes_per_s, facts.calibrated_bytes_per_s
    if seen is None:
        return ""
    before = f" ({format_rate(calibrated)} when calibrated)" if calibrated else ""
    return f"memory read {format_rate(seen)}{before}"
