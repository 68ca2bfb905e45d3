"""How a model is decoded: one value, checked where it is made, that travels whole."""

from __future__ import annotations

import msgspec

from cpubound.errors import UsageError
from cpubound.llama_facts import KV_TYPES, needs_flash_attn, pad_cells

# Of K and V, where nothing else is asked for.
F16 = ("f16", "f16")


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is decoded.

    Each of ``batch`` sequences has ``depth_tokens`` tokens in its cache and decodes one more.
    ``allocated_context_tokens`` is the context asked for, for each sequence; None asks for what
    the tokens need. KV types are ggml's, in lower case.

    Raises
    ------
    UsageError : a number out of range, or what llama.cpp refuses.
    """

    threads: int = 1  # what a step moves does not depend on them
    depth_tokens: int = 0
    allocated_context_tokens: int | None = None
    batch: int = 1
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    flash_attn: bool = True

    def __post_init__(self) -> None:
        for label, value, least in (
            ("thread count", self.threads, 1),
            ("depth", self.depth_tokens, 0),
            ("batch", self.batch, 1),
        ):
            if value < least:
                raise UsageError(f"{label} out of range ({value}): give at least {least}")
        self._check_kv_types()
        asked = self.allocated_context_tokens
        if asked is not None and (asked < 1 or self.n_ctx <= self.depth_tokens):
            raise UsageError(
                f"a context of {asked} does not hold {self.depth_tokens} tokens and a new one: "
                f"give at least {self.depth_tokens + 1}"
            )

    def _check_kv_types(self) -> None:
        for name in self.kv_types:
            if name not in KV_TYPES:
                raise UsageError(
                    f"llama.cpp has no cache of type {name}: give one of {', '.join(KV_TYPES)}"
                )
        if needs_flash_attn(self.kv_type_v) and not self.flash_attn:
            raise UsageError(
                f"a quantised V cache ({self.kv_type_v}) works only with flash-attention: "
                "switch it on or keep V in f16"
            )

    @property
    def kv_types(self) -> tuple[str, str]:
        """The types of K and V."""
        return self.kv_type_k, self.kv_type_v

    @property
    def n_ctx(self) -> int:
        """The cells of each sequence that llama.cpp allocates: a multiple of 256."""
        if self.allocated_context_tokens is None:
            return pad_cells(self.depth_tokens + 1)
        return pad_cells(self.allocated_context_tokens)


def read_setting(
    *,
    depth: int = 0,
    n_ctx: int | None = None,
    batch: int = 1,
    kv_type: str = "f16",
    flash_attn: bool = True,
) -> Setting:
    """Read a setting as people write it; ``kv_type`` is one type for K and V, or ``K:V``.

    Raises
    ------
    UsageError : a KV type that is none, or as ``Setting``.
    """
    kv_type_k, kv_type_v = split_kv_type(kv_type)
    return Setting(
        depth_tokens=depth,
        allocated_context_tokens=n_ctx,
        batch=batch,
        kv_type_k=kv_type_k,
        kv_type_v=kv_type_v,
        flash_attn=flash_attn,
    )


def split_kv_type(text: str) -> tuple[str, str]:
    """Split ``K:V`` (or one type for both) into the two KV types, in lower case."""
    first, separator, second = text.lower().partition(":")
    if not first or (separator and not second):
        raise UsageError(f"a KV type is one type or K:V ({text}): try f16 or q8_0:f16")
    return first, second or first
