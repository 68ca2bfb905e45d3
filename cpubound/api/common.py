"""What the verbs share: models resolved, limits held."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cpubound.errors import MachineError, UsageError
from cpubound.machine.values import Machine
from cpubound.model.values import ModelSpec, ModelTraffic
from cpubound.profile.file import load_profile
from cpubound.profile.values import MachineProfile

Progress = Callable[[str, float], None]


def no_progress(stage: str, done: float) -> None:
    """Ignore progress."""


def spec_of(model: str | ModelSpec) -> ModelSpec:
    """Return a spec as it is, or what a MODEL argument names."""
    from cpubound.model.resolve import resolve_model

    return model if isinstance(model, ModelSpec) else resolve_model(model)


def saved_profile() -> MachineProfile | None:
    """Return the profile of this machine, None if it was never calibrated."""
    from cpubound.profile.file import default_profile_path

    return load_profile() if default_profile_path().exists() else None


def measured_threads(profile: MachineProfile) -> tuple[int, ...]:
    """Return the thread counts a profile was measured at, within the effective CPUs."""
    counts = {m.threads for m in profile.bandwidth if m.kernel == "read"}
    if profile.engine is not None and profile.engine.tables:
        counts = set(profile.engine.threads)
    return tuple(sorted(t for t in counts if t <= profile.machine.effective_cpus)) or (1,)


def check_threads(machine: Machine, counts: Sequence[int]) -> None:
    """Raise if a count is above the effective CPUs."""
    most = machine.effective_cpus
    for count in counts:
        if count > most:
            raise UsageError(
                f"{count} threads are more than the {most} effective CPUs of this machine: "
                f"measure at most {most}"
            )


def refuse_too_big(profile: MachineProfile, traffic: ModelTraffic) -> None:
    """Raise if a model would not fit into this machine's memory."""
    refuse_too_big_for(profile.machine, traffic)


def refuse_too_big_for(machine: Machine, traffic: ModelTraffic) -> None:
    """Raise if a model would not fit into a machine's memory."""
    from cpubound.units import format_decimal_bytes

    memory = machine.usable_memory_bytes
    if memory is not None and traffic.resident_bytes > memory:
        raise MachineError(
            f"{traffic.model} does not fit into memory "
            f"({format_decimal_bytes(traffic.resident_bytes)} of "
            f"{format_decimal_bytes(memory)}): choose a smaller model, file type or context"
        )
