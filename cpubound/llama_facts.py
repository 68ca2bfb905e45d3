"""What is true of llama.cpp (0c1e57098bba) and used by several rooms."""

from __future__ import annotations

from cpubound.errors import UsageError

# src/llama-cparams.h, LLAMA_MAX_SEQ.
MAX_BATCH = 256
# src/llama-hparams.h, LLAMA_MAX_LAYERS.
MAX_LAYERS = 512
# The tokens computed at once (src/llama-context.cpp, llama_context_default_params).
N_UBATCH = 512
# Cells of a context (src/llama-context.cpp) and those that attention spans
# (src/llama-kv-cache.cpp, get_n_kv) are multiples of this.
CELL_PADDING = 256
# common/arg.cpp, kv_cache_types.
FLOAT_KV_TYPES = ("f32", "f16", "bf16")
KV_TYPES = (*FLOAT_KV_TYPES, "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


def pad_cells(cells: int) -> int:
    """Round cells of a KV cache up to a multiple of 256, and at least to that."""
    return max(cells + -cells % CELL_PADDING, CELL_PADDING)


def needs_flash_attn(kv_type_v: str) -> bool:
    """Tell whether V of a type works only with flash-attention (src/llama-context.cpp)."""
    return kv_type_v not in FLOAT_KV_TYPES


def check_batch(batch: int) -> None:
    """Refuse more sequences than llama.cpp decodes together, with ``UsageError``."""
    if batch > MAX_BATCH:
        raise UsageError(
            f"batch out of range ({batch}): llama.cpp decodes at most {MAX_BATCH} together"
        )
