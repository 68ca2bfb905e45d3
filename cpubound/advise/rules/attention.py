"""Rules about the KV cache and attention of a run; each gives a finding or None."""

from __future__ import annotations

from cpubound.advise.case import Case
from cpubound.advise.values import WARNING, Finding
from cpubound.llama_facts import FLOAT_KV_TYPES, needs_flash_attn
from cpubound.units import format_decimal_bytes, format_significant


def find_kv_quant_on_cpu(case: Case) -> Finding | None:
    """Find a quantised KV cache that decodes slower than the larger f16 cache.

    Flash-attention splits the cache over threads only for F16 and F32 (ggml/src/ggml-cpu/ops.cpp
    at 0c1e57098bba).
    """
    if {*case.setting.kv_types} <= {*FLOAT_KV_TYPES}:
        return None
    options = [
        case.at(kv_type_k="f16", kv_type_v="f16", flash_attn=flash) for flash in (True, False)
    ]
    if not all(option.attention_was_measured for option in (case, *options)):
        return None
    best = max(options, key=lambda option: option.prediction.tokens_per_s)
    if not case.is_gain(best.prediction):
        return None
    now, better = case.prediction.tokens_per_s, best.prediction.tokens_per_s
    return Finding(
        code="kv-quant-on-cpu",
        severity=WARNING,
        evidence={
            "tokens_per_s": now,
            "f16_tokens_per_s": better,
            "kv_read_bytes": case.traffic.kv_read_bytes,
            "f16_kv_read_bytes": best.traffic.kv_read_bytes,
        },
        message=(
            f"a {case.setting.kv_type_k}:{case.setting.kv_type_v} cache reads "
            f"{format_decimal_bytes(case.traffic.kv_read_bytes)} a token and f16 "
            f"{format_decimal_bytes(best.traffic.kv_read_bytes)}, yet f16 decodes at "
            f"{format_significant(better)} tok/s against {format_significant(now)}"
        ),
        cost_tokens_per_s=case.gain(best.prediction),
        remedy=f"-ctk f16 -ctv f16 -fa {'on' if best.setting.flash_attn else 'off'}, if it fits",
    )


def find_slow_flash_attention(case: Case) -> Finding | None:
    """Find flash-attention that decodes slower than plain attention."""
    if not case.setting.flash_attn or needs_flash_attn(case.setting.kv_type_v):
        return None
    off = case.at(flash_attn=False)
    if not (case.attention_was_measured and off.attention_was_measured):
        return None
    if not case.is_gain(off.prediction):
        return None
    now, better = case.prediction.tokens_per_s, off.prediction.tokens_per_s
    return Finding(
        code="slow-flash-attention",
        severity=WARNING,
        evidence={"tokens_per_s": now, "off_tokens_per_s": better},
        message=(
            f"flash-attention decodes slower than plain attention here: {format_significant(now)} "
            f"against {format_significant(better)} tok/s at this depth"
        ),
        cost_tokens_per_s=case.gain(off.prediction),
        remedy="flash_attn=False" if case.engine.name == "llama-cpp-python" else "-fa off",
    )
