"""Blocks made without ggml hold weights that ggml reads as small finite numbers."""

from __future__ import annotations

import numpy as np
import pytest

from cpubound.engine.plain_blocks import random_blocks
from cpubound.errors import UsageError
from cpubound.model.quant import quant_type

TYPES = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
    *("TQ1_0", "TQ2_0", "MXFP4"),
)


@pytest.mark.parametrize("name", TYPES)
def test_the_gguf_package_reads_small_finite_weights(name):
    quants = pytest.importorskip("gguf.quants")
    gguf = pytest.importorskip("gguf")
    quant = quant_type(name)
    data = random_blocks(quant, 64, scale=0.02, seed=1)
    assert len(data) == 64 * quant.block_bytes
    blocks = np.frombuffer(data, np.uint8).reshape(64, quant.block_bytes)
    weights = quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
    assert np.isfinite(weights).all()
    assert 1e-4 < np.abs(weights).max() < 10


def test_scales_spread_as_a_trained_models_do():
    data = random_blocks(quant_type("Q4_0"), 4096, scale=0.02, seed=1)
    blocks = np.frombuffer(data, np.uint8).reshape(4096, 18)
    scales = blocks[:, :2].copy().view("<f2").ravel().astype(np.float32)
    assert 0.25 < np.log(np.abs(scales)).std() < 0.31
    assert 0.4 < (scales < 0).mean() < 0.6


def test_blocks_are_the_same_for_the_same_seed():
    quant = quant_type("Q4_K")
    one, again, other = (random_blocks(quant, 8, scale=0.02, seed=s) for s in (1, 1, 2))
    assert one == again != other


def test_a_type_whose_scales_are_not_known_is_refused():
    with pytest.raises(UsageError, match="blocks of Q1_0"):
        random_blocks(quant_type("Q1_0"), 1, scale=0.02, seed=0)
