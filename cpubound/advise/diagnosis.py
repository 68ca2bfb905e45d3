"""The ``Diagnosis`` value: an observed rate beside what memory, kernels and the model allow."""

from __future__ import annotations

import msgspec

from cpubound.advise.values import Finding
from cpubound.engine.watch import LiveFacts
from cpubound.setting import Setting


class PartOfStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one part of a step moves, and the bandwidth that the observed rate makes of it."""

    part: str  # "weights", "kv_cache", "state"
    bytes_per_step: float
    implied_bytes_per_s: float


class SecondsOfGap(msgspec.Struct, frozen=True, kw_only=True):
    """One observed step: bytes over bandwidth, and what came on top of it.

    ``memory`` is bytes over bandwidth, or less where caches or masked cells spare some;
    ``kernel``, ``attention`` and ``overhead`` are what the prediction has beyond it;
    ``unexplained`` is the rest up to what was observed, negative where the run was faster
    than predicted. They add up to batch / observed.
    """

    memory: float
    kernel: float
    attention: float
    overhead: float
    unexplained: float


class BatchCeiling(msgspec.Struct, frozen=True, kw_only=True):
    """How far more sequences at once would pay at this context.

    ``ridge_batch`` is the batch from which a step is bound by arithmetic, ``n_star_tokens`` the
    context from which no batch is; ``None`` beside a ``can_be_compute_bound`` of False or an
    ``n_star_exists`` of False means that there is none, otherwise that the peak rate is not
    known. ``largest_batch`` is what memory holds beside the weights.
    """

    ridge_batch: float | None
    can_be_compute_bound: bool | None
    n_star_tokens: float | None
    n_star_exists: bool | None
    largest_batch: float | None
    compute_precision: str | None  # what the peak rate is of


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """An observed rate taken apart.

    Rates are of all sequences of a batch together. ``gap`` is what keeps the rate below
    memory's ceiling: ``memory`` (it is near the ceiling, or the model does not fit),
    ``kernel``, ``attention``, ``overhead``, ``configuration`` (settings), ``disturbance`` (a
    watched run that lacked CPUs or bandwidth), ``unexplained``, or ``impossible``; None
    where a machine is known by its published peaks only.
    """

    model: str
    quant_label: str
    machine: str  # "mine" or the name of a published machine
    machine_title: str
    engine: str | None
    setting: Setting
    threads: int | None  # of the setting; None on a published machine
    observed_tokens_per_s: float
    bytes_per_step: float
    implied_bytes_per_s: float
    table: tuple[PartOfStep, ...]
    ceiling_bytes_per_s: float  # read bandwidth at these threads, or the published peak
    ceiling_tokens_per_s: float
    share_of_ceiling: float
    measured_bytes_per_s: float | None = None  # of a published machine, where somebody measured
    kernel_ceiling_tokens_per_s: float | None = None  # None: no kernel of these types measured
    share_of_kernel_ceiling: float | None = None
    predicted_tokens_per_s: float | None = None
    low: float | None = None
    high: float | None = None
    basis: str | None = None
    share_of_prediction: float | None = None
    inside: bool | None = None  # within the prediction's interval
    best_threads: int | None = None
    best_tokens_per_s: float | None = None
    seconds: SecondsOfGap | None = None
    gap: str | None = None
    batch_ceiling: BatchCeiling
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    live: LiveFacts | None = None  # what was seen while it ran here
