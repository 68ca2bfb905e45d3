"""What this machine allows now, put in the place of what it allowed when it was calibrated.

Affinity, quota and memory limits belong to a moment. Every verb that predicts for this machine,
or runs on it, takes them from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from cpubound.errors import MachineError, UsageError
from cpubound.machine.values import Machine, changed_limits
from cpubound.model.values import ModelTraffic
from cpubound.profile.file import load_profile
from cpubound.profile.values import MachineProfile


def current_profile(
    path: str | Path | None = None, tell: Callable[[str], None] = lambda _: None
) -> MachineProfile:
    """Read a profile: with the limits of now where it was made on this machine.

    ``tell`` is given what changed. Raises ``ProfileError`` as ``load_profile``.
    """
    profile = load_profile(path)
    here = machine_now(profile)
    if here is None:
        return profile
    for change in changed_limits(profile.machine, here):
        tell(change)
    return on_machine(profile, here)


def machine_now(profile: MachineProfile) -> Machine | None:
    """Return this machine as it is now, None where a profile was made on another one."""
    from cpubound.machine.read import read_machine

    here, made_on = read_machine(), profile.machine
    is_same = (here.cpu_model, here.logical_cpus) == (made_on.cpu_model, made_on.logical_cpus)
    return here if is_same else None


def profile_here(profile: MachineProfile) -> MachineProfile:
    """Return a profile for a run on this machine, whichever machine it was made on."""
    from cpubound.machine.read import read_machine

    return on_machine(profile, read_machine())


def on_machine(profile: MachineProfile, machine: Machine) -> MachineProfile:
    """Return a profile whose limits are those of a machine."""
    return msgspec.structs.replace(profile, machine=machine)


def check_threads(machine: Machine, counts: Sequence[int]) -> None:
    """Raise if a count is above the effective CPUs."""
    most = machine.effective_cpus
    for count in counts:
        if count > most:
            raise UsageError(
                f"{count} threads are more than the {most} effective CPUs of this machine: "
                f"measure at most {most}"
            )


def refuse_too_big(machine: Machine, traffic: ModelTraffic, *, now: bool = True) -> None:
    """Raise if a model would not fit into a machine's memory: what is free now, or all of it."""
    from cpubound.units import format_decimal_bytes

    memory = machine.free_memory_bytes if now else machine.usable_memory_bytes
    if memory is not None and traffic.resident_bytes > memory:
        available = " that are available now" if now else ""
        raise MachineError(
            f"{traffic.model} does not fit into memory "
            f"({format_decimal_bytes(traffic.resident_bytes)} of "
            f"{format_decimal_bytes(memory)}{available}): "
            "choose a smaller model, file type or context"
        )
