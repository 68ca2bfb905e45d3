"""What the verbs share: settings read, models resolved."""

from __future__ import annotations

from collections.abc import Callable

from cpubound.api.limits import current_profile
from cpubound.errors import UsageError
from cpubound.model.values import ModelSpec
from cpubound.profile.values import MachineProfile

Progress = Callable[[str, float], None]


def no_progress(stage: str, done: float) -> None:
    """Ignore progress."""


def split_kv_type(text: str) -> tuple[str, str]:
    """Split ``K:V`` (or one type for both) into the two KV types, in lower case."""
    first, separator, second = text.lower().partition(":")
    if not first or (separator and not second):
        raise UsageError(f"a KV type is one type or K:V ({text}): try f16 or q8_0:f16")
    return first, second or first


def spec_of(model: str | ModelSpec) -> ModelSpec:
    """Return a spec as it is, or what a MODEL argument names."""
    from cpubound.model.resolve import resolve_model

    return model if isinstance(model, ModelSpec) else resolve_model(model)


def saved_profile() -> MachineProfile | None:
    """Return the profile of this machine, None if it was never calibrated."""
    from cpubound.profile.file import default_profile_path

    return current_profile() if default_profile_path().exists() else None
