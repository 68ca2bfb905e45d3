"""The verbs of the command line as Python functions, each returning a value.

Nothing here prints. Every function that takes ``profile`` uses this machine's saved profile
when it is None. A verb's module is loaded when it is first used: predicting needs no engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpubound.api.advising import diagnose as diagnose
    from cpubound.api.advising import diagnose_live as diagnose_live
    from cpubound.api.advising import tune as tune
    from cpubound.api.common import Progress as Progress
    from cpubound.api.common import no_progress as no_progress
    from cpubound.api.common import saved_profile as saved_profile
    from cpubound.api.engines import open_reference as open_reference
    from cpubound.api.estimating import estimate as estimate
    from cpubound.api.limits import current_profile as current_profile
    from cpubound.api.measuring import breakdown as breakdown
    from cpubound.api.measuring import calibrate as calibrate
    from cpubound.api.measuring import validate as validate
    from cpubound.api.measuring import validate_prompts as validate_prompts
    from cpubound.api.predicting import compare as compare
    from cpubound.api.predicting import inspect_model as inspect_model
    from cpubound.api.predicting import predict as predict
    from cpubound.api.predicting import predict_at as predict_at
    from cpubound.api.predicting import predict_best as predict_best
    from cpubound.api.predicting import predict_prompt as predict_prompt
    from cpubound.api.predicting import survey as survey
    from cpubound.api.predicting import what_if as what_if

_HOMES = {
    "Progress": "common",
    "breakdown": "measuring",
    "calibrate": "measuring",
    "compare": "predicting",
    "current_profile": "limits",
    "diagnose": "advising",
    "diagnose_live": "advising",
    "estimate": "estimating",
    "inspect_model": "predicting",
    "no_progress": "common",
    "open_reference": "engines",
    "predict": "predicting",
    "predict_at": "predicting",
    "predict_best": "predicting",
    "predict_prompt": "predicting",
    "saved_profile": "common",
    "survey": "predicting",
    "tune": "advising",
    "validate": "measuring",
    "validate_prompts": "measuring",
    "what_if": "predicting",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"cpubound.api.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'cpubound.api' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
