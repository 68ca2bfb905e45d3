"""What a report is made of, as values that other verbs gave."""

from __future__ import annotations

from dataclasses import dataclass

from cpubound.advise.compare import Comparison
from cpubound.advise.tune.values import Advice
from cpubound.advise.values import Finding
from cpubound.cost.values import Prediction, PromptPrediction
from cpubound.profile.values import MachineProfile
from cpubound.validation.cells import Validation


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelContents:
    """One model: what a person asks for, at the usual file type unless it has only one.

    ``table`` is every file type at the contexts asked for, ``curves`` at more of them;
    ``settings`` are the usual file type with each setting of the cache, ``prompts`` and
    ``batches`` are of it too. What the profile cannot tell is empty.
    """

    table: tuple[Prediction, ...]
    curves: tuple[Prediction, ...]
    settings: tuple[Prediction, ...] = ()
    prompts: tuple[PromptPrediction, ...] = ()
    batches: tuple[Prediction, ...] = ()
    advice: Advice | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportContents:
    """A report: the machine, models on it, and what was observed.

    ``summary`` is the usual file type of every model with an empty context, ``models`` are those
    shown in full. ``target`` is a wanted rate in token/s. ``made_by`` is the command line, ``made``
    the day.
    """

    profile: MachineProfile
    findings: tuple[Finding, ...]
    summary: tuple[Prediction, ...]
    models: tuple[ModelContents, ...]
    validations: tuple[Validation, ...] = ()
    target: float | None = None
    made_by: str
    made: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonContents:
    """A report of two profiles, A and B.

    ``curves`` are a model's predictions on each at the same contexts.
    """

    a: MachineProfile
    b: MachineProfile
    comparison: Comparison
    curves: tuple[tuple[tuple[Prediction, ...], tuple[Prediction, ...]], ...]
    made_by: str
    made: str
