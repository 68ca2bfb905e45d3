"""The work of models known by a few numbers, as published budgets give them."""

from __future__ import annotations

from cpubound.theory.work import DecodeWork


def plain_work(
    *,
    parameters: float = 0.0,
    weight_bytes: float,
    kv_bytes_per_token: float = 0.0,
    context_tokens: float = 0,
    attention_flops_per_token: float = 0.0,
) -> DecodeWork:
    """A dense model: 2 FLOPs for each parameter; attention's own per token of context."""
    return DecodeWork(
        context_tokens=context_tokens,
        weight_bytes=weight_bytes,
        weight_flops=2 * parameters,
        attention_flops=context_tokens * attention_flops_per_token,
        sequence_bytes=context_tokens * kv_bytes_per_token,
    )


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int) -> float:
    """The cache of one token of context: K and V of every layer, two bytes each."""
    return 2 * layers * kv_heads * head_dim * 2
