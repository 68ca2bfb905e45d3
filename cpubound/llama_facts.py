"""What is true of llama.cpp (0c1e57098bba) and used by several rooms."""

from __future__ import annotations

from cpubound.errors import UsageError

# src/llama-cparams.h, LLAMA_MAX_SEQ.
MAX_BATCH = 256


def check_batch(batch: int) -> None:
    """Refuse more sequences than llama.cpp decodes together, with ``UsageError``."""
    if batch > MAX_BATCH:
        raise UsageError(
            f"batch out of range ({batch}): llama.cpp decodes at most {MAX_BATCH} together"
        )
