"""The ``Prediction`` value and its parts."""

from __future__ import annotations

import msgspec


class SecondsByPart(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of one token goes."""

    weights: float
    attention: float
    overhead: float

    @property
    def total(self) -> float:
        return self.weights + self.attention + self.overhead


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Decode speed of one model at one setting.

    ``tokens_per_s`` is the median of a settled run with a 90 % interval ``low`` … ``high``;
    ``fast_tokens_per_s`` the fast quartile (the quiet machine); ``ceiling_tokens_per_s`` all
    bytes over read bandwidth.
    """

    model: str
    quant_label: str
    threads: int
    depth_tokens: int
    n_ctx: int
    batch: int
    kv_type_k: str
    kv_type_v: str
    flash_attn: bool
    tokens_per_s: float
    low: float
    high: float
    fast_tokens_per_s: float
    ceiling_tokens_per_s: float
    bound: str  # "memory", "kernel", "attention", "overhead"
    basis: str  # "engine", "kernel", "ceiling"
    bytes_per_token: int
    file_bytes: int
    resident_bytes: int  # weights, KV cache of n_ctx cells, state
    seconds: SecondsByPart
    memory_seconds: float  # of ``seconds``: what would scale with the memory's bandwidth
    fits_in_memory: bool | None
    assumptions: tuple[str, ...] = ()
