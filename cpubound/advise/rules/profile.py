"""Rules about the profile that a run is held against; each gives a finding or None."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from cpubound.advise.case import Case
from cpubound.advise.rules.memory import SLOW_MEMORY_SHARE
from cpubound.advise.rules.memory import find_slow_memory as find_slow
from cpubound.advise.values import INFO, WARNING, Finding
from cpubound.machine.values import Machine
from cpubound.units import format_binary_bytes

# The same modules show a little less after a firmware or kernel update.
_SAME_MEMORY = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One thing that two machines do not share."""

    name: str
    before: str
    now: str


def machine_differences(before: Machine, now: Machine) -> tuple[Difference, ...]:
    """Return what of a machine's identity differs; what one of them does not know is passed over.

    Identity is what bandwidth and kernels depend on: the CPU, how many there are, memory.
    """
    pairs: list[tuple[str, object, object]] = [
        ("CPU", before.cpu_model, now.cpu_model),
        ("architecture", before.architecture, now.architecture),
        ("logical CPUs", len(before.logical_cpus), len(now.logical_cpus)),
        ("cores", before.physical_cores, now.physical_cores),
        ("memory nodes", len(before.numa_nodes) or None, len(now.numa_nodes) or None),
    ]
    found = [
        Difference(name=name, before=str(old), now=str(new))
        for name, old, new in pairs
        if old is not None and new is not None and old != new
    ]
    old_bytes, new_bytes = before.memory_bytes, now.memory_bytes
    if old_bytes and new_bytes and abs(new_bytes / old_bytes - 1) > _SAME_MEMORY:
        found.append(
            Difference(
                name="memory",
                before=format_binary_bytes(old_bytes),
                now=format_binary_bytes(new_bytes),
            )
        )
    return tuple(found)


def find_stale_profile(case: Case) -> Finding | None:
    """Find a profile whose machine is not the one that it should be of."""
    if case.machine_now is None:
        return None
    differences = machine_differences(case.machine, case.machine_now)
    if not differences:
        return None
    what = "; ".join(f"{d.name} {d.before} then, {d.now} now" for d in differences)
    return Finding(
        code="stale-profile",
        severity=WARNING,
        evidence={"differences": len(differences)},
        message=(
            f"the profile of {case.profile.created[:10]} is of another machine, or of this one "
            f"before a change ({what}): what follows is held against that one"
        ),
        remedy="cpubound calibrate; or give the profile of the machine that ran it: --profile FILE",
    )


def find_busy_machine(case: Case) -> Finding | None:
    """Find a profile that was taken while something else took the bandwidth."""
    noise = case.profile.noise
    if noise.verdict == "quiet":
        return None
    samples = noise.relative_samples
    evidence = {"noise_spread": noise.spread}
    if samples:
        evidence["slowest_over_fastest"] = min(samples) / max(samples)
    return Finding(
        code="busy-machine",
        severity=WARNING if noise.verdict == "very noisy" else INFO,
        evidence=evidence,
        message=(
            f"bandwidth moved by ±{noise.spread:.0%} while the profile was taken ({noise.verdict}):"
            " other programs or other virtual machines take it now and then, also from this run"
        ),
        remedy="stop other work, then  cpubound calibrate  and repeat the run",
    )


def find_slow_memory(case: Case) -> Finding | None:
    """Find a read bandwidth far below what the modules could give, with what that costs."""
    rates = [m.median_bytes_per_s for m in case.profile.measurements("read", "anon_4k").values()]
    theoretical = case.machine.theoretical_bytes_per_s
    if not rates or theoretical is None:
        return None
    finding = find_slow(case.machine, max(rates))
    if finding is None:
        return None
    factor = SLOW_MEMORY_SHARE * theoretical / max(rates)
    seconds, memory = case.prediction.seconds.total, case.prediction.memory_seconds
    better = 1 / (seconds - memory * (1 - 1 / factor))
    return msgspec.structs.replace(finding, cost_tokens_per_s=better - 1 / seconds)
