"""Random blocks of a quant type without ggml: for probes of an engine that is a binary.

Every bit pattern of the quants is valid; the scales are not: random ones would be infinite, or
so small that arithmetic slows down. So all bytes are random but those of the scales, which
spread as far as a trained model's. Where they lie is from ``ggml/src/ggml-common.h``,
llama.cpp commit 0c1e57098bba.
"""

from __future__ import annotations

from cpubound.engine.scale_spread import SCALE_SPREAD, lognormal_factors
from cpubound.errors import UsageError
from cpubound.model.values import QuantType

# Offsets of half-precision scales (and minima) in a block.
_HALF_OFFSETS: dict[str, tuple[int, ...]] = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ1_S": (0,),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ2_S": (0,),
    "IQ3_XXS": (0,),
    "IQ3_S": (0,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
}
# ggml divides by the weight that is farthest from zero, of whichever sign.
_SIGNED = frozenset({"Q4_0", "Q5_0", "Q3_K", "Q6_K", "IQ4_NL", "IQ4_XS"})
# A block of MXFP4 begins with an exponent: 2^(e − 128) here, with values up to 12.
_MXFP4_EXPONENT = 120
# IQ1_M keeps its half-precision scale in the high nibbles of four words at its end.
_IQ1_M_SCALES = 48


def random_blocks(quant: QuantType, blocks: int, *, scale: float, seed: int) -> bytes:
    """Return blocks of a quantised type, weights of about ``scale``, as ``write_model`` takes them.

    Raises ``UsageError`` for a type whose scales are not known here.
    """
    import numpy as np

    order = np.random.default_rng(seed)
    data = order.integers(0, 256, (blocks, quant.block_bytes), dtype=np.uint8)
    # A few bits multiply it: a sixteenth keeps the weights near the scale asked for.
    scales = scale / 16 * lognormal_factors(blocks, SCALE_SPREAD, seed)
    if quant.name in _SIGNED:
        scales *= order.choice(np.array((-1, 1), np.float32), blocks)
    if quant.name in _HALF_OFFSETS:
        halves = scales.astype("<f2").view(np.uint8).reshape(blocks, 2)
        for offset in _HALF_OFFSETS[quant.name]:
            data[:, offset : offset + 2] = halves
    elif quant.name == "MXFP4":
        data[:, 0] = _MXFP4_EXPONENT
    elif quant.name == "IQ1_M":
        bits = scales.astype("<f2").view("<u2")
        for word in range(4):
            high = _IQ1_M_SCALES + 2 * word + 1
            nibble = ((bits >> (4 * word)) & 0xF).astype(np.uint8) << 4
            data[:, high] = (data[:, high] & 0x0F) | nibble
    else:
        raise UsageError(
            f"blocks of {quant.name} can be made by llama-cpp-python only: install it, or leave "
            "the type out with --types"
        )
    return data.tobytes()
