"""The ``Prediction`` value and its parts."""

from __future__ import annotations

import msgspec

from cpubound.setting import Setting


class SecondsByPart(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of one step goes: a token of each sequence."""

    weights: float
    attention: float
    overhead: float

    @property
    def total(self) -> float:
        return self.weights + self.attention + self.overhead


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Decode speed of one model at one setting.

    ``tokens_per_s`` is the median of a settled run with a 90 % interval ``low`` … ``high``,
    of all sequences of the batch together (each gets its share of it);
    ``fast_tokens_per_s`` the fast quartile (the quiet machine); ``ceiling_tokens_per_s`` all
    bytes over read bandwidth.
    """

    model: str
    quant_label: str
    setting: Setting
    tokens_per_s: float
    low: float
    high: float
    fast_tokens_per_s: float
    ceiling_tokens_per_s: float
    bound: str  # "memory", "kernel", "attention", "overhead"
    basis: str  # "engine", "kernel", "ceiling"
    bytes_per_token: int
    file_bytes: int
    resident_bytes: int  # weights, KV cache of the allocated context, state
    seconds: SecondsByPart
    memory_seconds: float  # of ``seconds``: what would scale with the memory's bandwidth
    fits_in_memory: bool | None
    assumptions: tuple[str, ...] = ()


class MachineEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Decode speed of one model on a machine that was never measured, with a 90 % interval."""

    model: str
    quant_label: str
    machine: str  # as it was described
    threads: int
    depth_tokens: int
    tokens_per_s: float
    low: float
    high: float
    bytes_per_token: int
    resident_bytes: int
    basis: str = "estimate"


class PromptPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """How long llama.cpp processes a prompt before it answers.

    ``seconds`` is the median with a 90 % interval ``low_s`` … ``high_s``, ``parts`` where they
    go; ``time_to_first_token_s`` is one decode step more. ``operations`` are the
    floating-point operations of the matrix products and of attention.
    """

    model: str
    quant_label: str
    setting: Setting  # its depth is that before the prompt
    prompt_tokens: int
    seconds: float
    low_s: float
    high_s: float
    tokens_per_s: float
    time_to_first_token_s: float
    operations: int
    bound: str  # "compute", "memory", "attention", "overhead"
    parts: SecondsByPart
    fits_in_memory: bool | None
    assumptions: tuple[str, ...] = ()


class PartPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted seconds of one part with their 90 % interval."""

    seconds: float
    low: float
    high: float
