"""How far the scales of a file's blocks spread, which decides how fast llama.cpp decodes it.

On x86 llama.cpp looks every half-precision scale up in a table of 256 KiB
(``ggml_lookup_fp16_to_fp32``, ggml/src/ggml-cpu/simd-mappings.h, commit 0c1e57098bba). Scales
all alike keep a few lines of it in the first-level cache, those of a trained model do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A trained matrix is not of one deviation: as drawn here, normal weights in runs of 256 whose
# deviation is lognormal quantise to scales whose logarithm deviates by 0.28 (Q4_0) and 0.23
# (Q4_K). In SmolLM2-135M-Instruct it deviates by 0.22 … 0.59 and 0.14 … 0.56, by matrix. With
# 0.2 a synthetic SmolLM2-135M Q4_1 decodes at 1.01 (one thread) and 1.03 (two threads) of the
# real one's rate, with equal deviations at 1.16 and 1.08 (AMD EPYC Zen 4, 2026-11-30).
RUN_WEIGHTS = 256
DEVIATION_SPREAD = 0.2
SCALE_SPREAD = 0.28


def lognormal_factors(count: int, spread: float, seed: int) -> NDArray[np.float32]:
    """Return ``count`` factors around 1 whose logarithm has the deviation ``spread``."""
    import numpy as np

    order = np.random.default_rng((seed, 0x5CA1E))
    return np.exp(spread * order.standard_normal(count)).astype(np.float32)
