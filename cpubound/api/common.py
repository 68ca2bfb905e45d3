"""What the verbs share: models resolved, the profile of this machine."""

from __future__ import annotations

from collections.abc import Callable

from cpubound.api.limits import current_profile
from cpubound.model.values import ModelSpec
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

    return current_profile() if default_profile_path().exists() else None
