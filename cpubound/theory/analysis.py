"""The roofline of one model on one machine: everything that the report shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from cpubound.model.quant import quant_type
from cpubound.setting import Setting
from cpubound.theory.budget import (
    Roofs,
    binding_roof,
    expected_bandwidth_share,
    expected_flops_share,
)
from cpubound.theory.intensity import OperatorWork, operators
from cpubound.theory.moe import experts_touched
from cpubound.theory.ridge import find_last_context, largest_batch, ridge_batch_of
from cpubound.theory.source import ModelSource
from cpubound.theory.work import DecodeWork
from cpubound.units import format_decimal_bytes

# Beyond any context that is offered: where n* is not found below it, there is none.
LONGEST_CONTEXT = 2**24
# What weights and caches are compared at, the largest that saves a tenth or more.
SMALLER_WEIGHTS = ("Q8_0", "Q4_0", "Q2_K")
SMALLER_CACHES = ("q8_0", "q4_0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A step at a batch and a context, against the two roofs."""

    batch: int
    context_tokens: int
    flops: float
    n_bytes: float
    intensity: float
    roof: str | None  # "memory", "compute"; None where the peak rate is not known
    seconds: float
    tokens_per_s: float  # of all sequences together
    flops_share: float | None
    bandwidth_share: float | None
    fits_in_memory: bool | None
    operators: tuple[OperatorWork, ...]

    @property
    def sequence_tokens_per_s(self) -> float:
        """What each sequence sees."""
        return self.tokens_per_s / self.batch


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextBudget:
    """What a context costs: decode at batch 1, the ridge batch, the largest batch."""

    context_tokens: int
    n_bytes: float
    cache_share: float  # of the bytes at batch 1
    tokens_per_s: float
    ridge_batch: float | None  # infinite: no batch is compute-bound; None: not known
    largest_batch: float | None  # by memory; None where its size is not known


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """The same model with smaller weights, a smaller cache, or both."""

    name: str
    weight_bits: float
    setting: Setting
    tokens_per_s: tuple[float, ...]  # at batch 1, for each context
    ridge_batches: tuple[float | None, ...]
    last_context: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertReads:
    """How many experts of a layer a batch reads on average."""

    batch: int
    experts: float
    weight_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """A model against the roofs of a machine."""

    model: str
    quant_label: str
    setting: Setting  # its KV types and flash-attention
    weight_bits: float
    parameters: int
    active_parameters: int
    resident_weight_bytes: float
    memory_bytes: float | None
    roofs: Roofs
    budgets: tuple[ContextBudget, ...]
    points: tuple[Point, ...]
    last_context: float | None  # n*; infinite: there is none; None: not known
    variants: tuple[Variant, ...]
    experts: tuple[int, int] | None  # of a layer, used by a token
    expert_reads: tuple[ExpertReads, ...]
    notes: tuple[str, ...]


def analyse(
    source: ModelSource,
    roofs: Roofs,
    *,
    batches: Sequence[int] = (1, 8, 64),
    contexts: Sequence[int] = (0, 4096, 32768),
    memory_bytes: float | None = None,
) -> Roofline:
    """Hold a model against the roofs of a machine.

    Parameters
    ----------
    batches, contexts : where to look; a context is the tokens in every sequence's cache.
    memory_bytes : of the machine, for the largest batch; None leaves that out.

    Raises
    ------
    UsageError : a negative context, a batch below 1, a size that is not positive.
    """
    traffic = source.traffic(0)
    points = tuple(
        point_at(source, roofs, batch, context, memory_bytes)
        for context in contexts
        for batch in batches
    )
    budgets = tuple(budget_at(source, roofs, context, memory_bytes) for context in contexts)
    return Roofline(
        model=traffic.model,
        quant_label=traffic.quant_label,
        setting=source.setting,
        weight_bits=source.bits_per_weight,
        parameters=traffic.parameters,
        active_parameters=traffic.active_parameters,
        resident_weight_bytes=source.resident_weight_bytes(),
        memory_bytes=memory_bytes,
        roofs=roofs,
        budgets=budgets,
        points=points,
        last_context=last_context_of(source, roofs),
        variants=_variants(source, roofs, contexts),
        experts=source.experts,
        expert_reads=_expert_reads(source, batches),
        notes=(*_notes(source, contexts), *_memory_notes(source, points, budgets, memory_bytes)),
    )


def point_at(
    source: ModelSource,
    roofs: Roofs,
    batch: int,
    context_tokens: int,
    memory_bytes: float | None = None,
) -> Point:
    """Return a step at a batch and a context."""
    work = source.work(context_tokens)
    seconds = work.seconds(batch, roofs)
    intensity = work.intensity(batch)
    return Point(
        batch=batch,
        context_tokens=context_tokens,
        flops=work.flops(batch),
        n_bytes=work.n_bytes(batch),
        intensity=intensity,
        roof=binding_roof(intensity, roofs),
        seconds=seconds,
        tokens_per_s=batch / seconds,
        flops_share=expected_flops_share(intensity, roofs),
        bandwidth_share=expected_bandwidth_share(intensity, roofs),
        fits_in_memory=_fits(source, batch, context_tokens, memory_bytes),
        operators=operators(source.traffic(context_tokens), batch, work.experts),
    )


def budget_at(
    source: ModelSource, roofs: Roofs, context_tokens: int, memory_bytes: float | None = None
) -> ContextBudget:
    """Return what a context costs."""
    work = source.work(context_tokens)
    n_bytes = work.n_bytes(1)
    most = None
    if memory_bytes is not None:
        most = largest_batch(
            memory_bytes,
            source.resident_weight_bytes(),
            source.sequence_resident_bytes(context_tokens),
        )
    return ContextBudget(
        context_tokens=context_tokens,
        n_bytes=n_bytes,
        cache_share=source.traffic(context_tokens).kv_touched_bytes / n_bytes,
        tokens_per_s=1 / work.seconds(1, roofs),
        ridge_batch=ridge_of(work, roofs),
        largest_batch=most,
    )


def ridge_of(work: DecodeWork, roofs: Roofs) -> float | None:
    """Return the ridge batch of a model at a context."""
    return ridge_batch_of(work.weight_bytes_at, work.sequence_flops, work.sequence_bytes, roofs)


def last_context_of(source: ModelSource, roofs: Roofs) -> float | None:
    """Return n* of a model, its attention's own FLOPs counted."""

    def sequence_work_at(context: int) -> tuple[float, float]:
        work = source.work(context)
        return work.sequence_flops, work.sequence_bytes

    return find_last_context(sequence_work_at, roofs, LONGEST_CONTEXT)


def _fits(
    source: ModelSource, batch: int, context_tokens: int, memory_bytes: float | None
) -> bool | None:
    if memory_bytes is None:
        return None
    needed = source.resident_weight_bytes()
    return needed + batch * source.sequence_resident_bytes(context_tokens) <= memory_bytes


def _variants(source: ModelSource, roofs: Roofs, contexts: Sequence[int]) -> tuple[Variant, ...]:
    weights = _smaller_weights(source)
    cache = _smaller_cache(source)
    found = [_variant("as given", source, roofs, contexts)]
    smaller = source.setting
    if cache is not None:
        smaller = structs.replace(source.setting, kv_type_k=cache, kv_type_v=cache)
    choices: list[tuple[str, float | None, Setting]] = []
    if weights is not None:
        choices.append((f"weights {weights}", _bytes_per_element(weights), source.setting))
    if cache is not None:
        choices.append((f"KV {cache.upper()}", source.bytes_per_weight, smaller))
    if weights is not None and cache is not None:
        choices.append(("both", _bytes_per_element(weights), smaller))
    for name, bytes_per_weight, setting in choices:
        changed = ModelSource(source.spec, setting, bytes_per_weight=bytes_per_weight)
        found.append(_variant(name, changed, roofs, contexts))
    return tuple(found) if len(found) > 1 else ()


def _variant(name: str, source: ModelSource, roofs: Roofs, contexts: Sequence[int]) -> Variant:
    works = [source.work(context) for context in contexts]
    return Variant(
        name=name,
        weight_bits=source.bits_per_weight,
        setting=source.setting,
        tokens_per_s=tuple(1 / work.seconds(1, roofs) for work in works),
        ridge_batches=tuple(ridge_of(work, roofs) for work in works),
        last_context=last_context_of(source, roofs),
    )


def _smaller_weights(source: ModelSource) -> str | None:
    for name in SMALLER_WEIGHTS:
        if 8 * _bytes_per_element(name) < 0.9 * source.bits_per_weight:
            return name
    return None


def _smaller_cache(source: ModelSource) -> str | None:
    if not source.has_cache or not source.setting.flash_attn:
        return None
    now = sum(_bytes_per_element(name) for name in source.setting.kv_types)
    for name in SMALLER_CACHES:
        if 2 * _bytes_per_element(name) < 0.9 * now:
            return name
    return None


def _bytes_per_element(type_name: str) -> float:
    return quant_type(type_name).bits_per_weight / 8


def _expert_reads(source: ModelSource, batches: Sequence[int]) -> tuple[ExpertReads, ...]:
    if source.experts is None:
        return ()
    count, used = source.experts
    work = source.work(0)
    return tuple(
        ExpertReads(
            batch=batch,
            experts=experts_touched(count, used, batch),
            weight_bytes=work.weight_bytes_at(batch),
        )
        for batch in batches
    )


def _notes(source: ModelSource, contexts: Sequence[int]) -> tuple[str, ...]:
    notes = list(source.traffic(0).assumptions)
    if not source.has_cache:
        notes.append(
            "no layer has attention: nothing grows with the context, all contexts cost the same"
        )
    trained = source.training_context
    longer = [context for context in contexts if trained is not None and context > trained]
    if longer:
        notes.append(
            f"trained for {trained} tokens of context: {', '.join(map(str, longer))} is beyond it, "
            "the bytes are right but the answers may not be"
        )
    return tuple(notes)


def _memory_notes(
    source: ModelSource,
    points: Sequence[Point],
    budgets: Sequence[ContextBudget],
    memory_bytes: float | None,
) -> tuple[str, ...]:
    if memory_bytes is None:
        return ()
    weights = source.resident_weight_bytes()
    memory = format_decimal_bytes(memory_bytes)
    if weights >= memory_bytes:
        return (
            f"the weights alone ({format_decimal_bytes(weights)}) do not fit into {memory}: "
            "the figures are for a machine that holds them",
        )
    notes = []
    for budget in budgets:
        over = [
            point.batch
            for point in points
            if point.context_tokens == budget.context_tokens and point.fits_in_memory is False
        ]
        if over:
            notes.append(
                f"{memory} of memory hold {budget.largest_batch:.0f} sequences of "
                f"{budget.context_tokens} tokens, not {' or '.join(map(str, over))}"
            )
    return tuple(notes)
