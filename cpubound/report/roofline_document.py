"""The roofline of a model as the document ``cpubound.roofline/1``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cpubound.theory.analysis import Point, Roofline, Variant
from cpubound.theory.budget import binding_roof
from cpubound.theory.speculative import SpeculationOutlook


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineLine:
    """The machine as the report names it, and where its figures are from."""

    name: str
    title: str
    bandwidth_origin: str  # "published peak", "measured by calibrate", "given"
    peak_origin: str  # the same of the FLOP/s; "not known"
    compute_precision: str | None = None
    peak_bytes_per_s: float | None = None
    measured_bytes_per_s: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)


def roofline_document(
    roofline: Roofline, machine: MachineLine, outlook: SpeculationOutlook | None = None
) -> dict[str, Any]:
    """Return ``cpubound.roofline/1``; what has no end (never compute-bound) is null."""
    return {
        "schema": "cpubound.roofline/1",
        "model": roofline.model,
        "quant_label": roofline.quant_label,
        "parameters": roofline.parameters,
        "active_parameters": roofline.active_parameters,
        "weight_bits": roofline.weight_bits,
        "kv_type_k": roofline.setting.kv_type_k,
        "kv_type_v": roofline.setting.kv_type_v,
        "resident_weight_bytes": roofline.resident_weight_bytes,
        "machine": _machine_document(roofline, machine),
        "contexts": [
            {
                "context_tokens": budget.context_tokens,
                "bytes_per_token": budget.n_bytes,
                "cache_share": budget.cache_share,
                "tokens_per_s": budget.tokens_per_s,
                "ridge_batch": _finite(budget.ridge_batch),
                "compute_bound_possible": _has_end(budget.ridge_batch),
                "largest_batch": _finite(budget.largest_batch),
            }
            for budget in roofline.budgets
        ],
        "points": [point_document(roofline, point) for point in roofline.points],
        "n_star": {
            "tokens": _finite(roofline.last_context),
            "exists": _has_end(roofline.last_context),
        },
        "variants": [_variant_document(roofline, variant) for variant in roofline.variants],
        "experts": _experts_document(roofline),
        "speculation": None if outlook is None else asdict(outlook),
        "notes": list(roofline.notes),
    }


def _machine_document(roofline: Roofline, machine: MachineLine) -> dict[str, Any]:
    roofs = roofline.roofs
    return {
        "name": machine.name,
        "title": machine.title,
        "bytes_per_s": roofs.bytes_per_s,
        "bandwidth_origin": machine.bandwidth_origin,
        "peak_bytes_per_s": machine.peak_bytes_per_s,
        "measured_bytes_per_s": machine.measured_bytes_per_s,
        "flops_per_s": roofs.flops_per_s,
        "peak_origin": machine.peak_origin,
        "compute_precision": machine.compute_precision,
        "machine_balance": roofs.machine_balance,
        "memory_bytes": roofline.memory_bytes,
        "sources": dict(machine.sources),
    }


def point_document(roofline: Roofline, point: Point) -> dict[str, Any]:
    """Return one step as the document holds it."""
    return {
        "context_tokens": point.context_tokens,
        "batch": point.batch,
        "flops": point.flops,
        "bytes": point.n_bytes,
        "intensity": point.intensity,
        "roof": point.roof,
        "seconds": point.seconds,
        "tokens_per_s": point.tokens_per_s,
        "sequence_tokens_per_s": point.sequence_tokens_per_s,
        "flops_share": point.flops_share,
        "bandwidth_share": point.bandwidth_share,
        "fits_in_memory": point.fits_in_memory,
        "operators": [
            {
                "name": operator.name,
                "flops": operator.flops,
                "bytes": operator.n_bytes,
                "intensity": operator.intensity,
                "roof": binding_roof(operator.intensity, roofline.roofs),
            }
            for operator in point.operators
        ],
    }


def _variant_document(roofline: Roofline, variant: Variant) -> dict[str, Any]:
    rows = zip(roofline.budgets, variant.tokens_per_s, variant.ridge_batches, strict=True)
    return {
        "name": variant.name,
        "weight_bits": variant.weight_bits,
        "kv_type_k": variant.setting.kv_type_k,
        "kv_type_v": variant.setting.kv_type_v,
        "contexts": [
            {
                "context_tokens": budget.context_tokens,
                "tokens_per_s": rate,
                "ridge_batch": _finite(ridge),
            }
            for budget, rate, ridge in rows
        ],
        "n_star_tokens": _finite(variant.last_context),
    }


def _experts_document(roofline: Roofline) -> dict[str, Any] | None:
    if roofline.experts is None:
        return None
    count, used = roofline.experts
    return {"count": count, "used": used, "reads": [asdict(r) for r in roofline.expert_reads]}


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _has_end(value: float | None) -> bool | None:
    return None if value is None else math.isfinite(value)
