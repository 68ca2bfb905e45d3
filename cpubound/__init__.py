"""cpubound: how fast llama.cpp decodes a model on this CPU, measured and predicted.

The verbs of the command line are functions here, loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpubound.api import (
        breakdown as breakdown,
    )
    from cpubound.api import (
        calibrate as calibrate,
    )
    from cpubound.api import (
        compare as compare,
    )
    from cpubound.api import (
        diagnose as diagnose,
    )
    from cpubound.api import (
        inspect_model as inspect_model,
    )
    from cpubound.api import (
        predict as predict,
    )
    from cpubound.api import (
        tune as tune,
    )
    from cpubound.api import (
        validate as validate,
    )
    from cpubound.api import (
        what_if as what_if,
    )
    from cpubound.errors import CpuboundError as CpuboundError
    from cpubound.profile.file import load_profile as load_profile

__version__ = "0.1.0"

_HOMES = {
    "CpuboundError": "cpubound.errors",
    "breakdown": "cpubound.api",
    "calibrate": "cpubound.api",
    "compare": "cpubound.api",
    "diagnose": "cpubound.api",
    "inspect_model": "cpubound.api",
    "load_profile": "cpubound.profile.file",
    "predict": "cpubound.api",
    "tune": "cpubound.api",
    "validate": "cpubound.api",
    "what_if": "cpubound.api",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'cpubound' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
