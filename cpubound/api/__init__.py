"""The verbs of the command line as Python functions, each returning a value.

Nothing here prints. Every function that takes ``profile`` uses this machine's saved profile
when it is None.
"""

from __future__ import annotations

from cpubound.api.advising import diagnose, diagnose_live, tune
from cpubound.api.common import (
    Progress,
    measured_threads,
    no_progress,
    saved_profile,
    split_kv_type,
)
from cpubound.api.engines import open_reference
from cpubound.api.measuring import breakdown, calibrate, validate, validate_prompts
from cpubound.api.predicting import (
    compare,
    inspect_model,
    predict,
    predict_at,
    predict_best,
    predict_prompt,
    survey,
    what_if,
)

__all__ = [
    "Progress",
    "breakdown",
    "calibrate",
    "compare",
    "diagnose",
    "diagnose_live",
    "inspect_model",
    "measured_threads",
    "no_progress",
    "open_reference",
    "predict",
    "predict_at",
    "predict_best",
    "predict_prompt",
    "saved_profile",
    "split_kv_type",
    "survey",
    "tune",
    "validate",
    "validate_prompts",
    "what_if",
]
