"""GEMV over ggml's own blocks agrees with the gguf package's dequantisation in float64."""

from __future__ import annotations

import numpy as np
import pytest

from cpubound import _kernels as native
from cpubound.kernels.table import TableRow, available_isas, table_rows

gguf = pytest.importorskip("gguf")

ROWS = [
    row
    for row in table_rows()
    if row.is_gemv and row.spec.dtype != "f32" and row.spec.isa in available_isas()
]
# Where the binary16 scales of a block are, in bytes from its start.
SCALES = {"q8_0": [0], "q4_0": [0], "q4_k": [0, 2], "q6_k": [208]}
Q8_0 = np.dtype([("d", "<f4"), ("qs", "i1", 32), ("offsets", "<i4", 8)])
Q8_K = np.dtype([("d", "<f4"), ("qs", "i1", 256), ("sums", "<i2", 16), ("group_sums", "<i2", 16)])


def label(row: TableRow) -> str:
    return "-".join(filter(None, (row.spec.name, row.spec.isa, row.spec.variant)))


def ggml_type(dtype: str):
    return gguf.GGMLQuantizationType[dtype.upper()]


def weights(dtype: str, rows: int, columns: int, kind: str) -> np.ndarray:
    """Rows of valid blocks, as bytes."""
    rng = np.random.default_rng(len(kind) + columns)
    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[ggml_type(dtype)]
    if dtype == "f16":
        return rng.standard_normal((rows, columns)).astype("<f2").view(np.uint8)
    blocks = rng.integers(0, 256, (rows, columns // block_elements, block_bytes), dtype=np.uint8)
    if kind == "zero":
        blocks[...] = 0
    elif kind == "full":
        blocks[...] = 255
    elif kind == "lowest":
        blocks[...] = 128
    for place in SCALES[dtype]:
        scales = (rng.random(blocks.shape[:2]) - 0.5).astype("<f2")
        if kind == "tiny":
            scales *= np.float16(2**-20)
        blocks[:, :, place : place + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def activations(columns: int) -> np.ndarray:
    x = np.random.default_rng(columns).standard_normal(columns).astype(np.float32)
    x[:32] = 0  # a block of zeros
    x[-1] = -9.5  # the largest magnitude is negative
    return x


def multiply(row: TableRow, w: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return y and the activations as the kernel stores them, as bytes."""
    stored = np.zeros(native.array_bytes(row.index, 1, len(w), len(x)), np.uint8)
    y = np.zeros(len(w), np.float32)
    operands = native.Operands(row.index, [w, stored, y], len(w), len(x))
    operands.quantize(x)
    native.Team(1).run(operands, 0, len(w), 1)
    return y, stored


def stored_values(dtype: str, stored: np.ndarray) -> np.ndarray:
    if dtype == "f16":
        return stored.view(np.float32).astype(np.float64)
    blocks = stored.view(Q8_0 if dtype in ("q8_0", "q4_0") else Q8_K)
    return (blocks["d"].astype(np.float64)[:, None] * blocks["qs"]).ravel()


@pytest.mark.parametrize("row", ROWS, ids=label)
@pytest.mark.parametrize("kind", ["random", "zero", "full", "lowest", "tiny"])
@pytest.mark.parametrize("columns", [256, 512, 1280, 4096])
def test_products_agree_with_dequantised_weights(row: TableRow, kind: str, columns: int) -> None:
    w = weights(row.spec.dtype, 9, columns, kind)
    y, stored = multiply(row, w, activations(columns))
    exact_w = gguf.quants.dequantize(w, ggml_type(row.spec.dtype)).astype(np.float64)
    exact_x = stored_values(row.spec.dtype, stored)
    # Parts of a weight (scale, minimum) may be far larger than their sum: Q4_K's tolerance
    # is relative to the largest weight.
    magnitude = np.abs(exact_w).max(initial=1e-30) * np.abs(exact_x).sum()
    tolerance = 8 * np.finfo(np.float32).eps * np.sqrt(columns / 32 + 1)
    np.testing.assert_allclose(y, exact_w @ exact_x, rtol=0, atol=tolerance * magnitude)


@pytest.mark.parametrize("row", [r for r in ROWS if r.activation_elements == 32], ids=label)
@pytest.mark.parametrize("columns", [32, 64, 96, 160])
def test_any_number_of_small_blocks_makes_a_row(row: TableRow, columns: int) -> None:
    w = weights(row.spec.dtype, 7, columns, "random")
    y, stored = multiply(row, w, activations(columns))
    exact = gguf.quants.dequantize(w, ggml_type(row.spec.dtype)).astype(np.float64)
    x = stored_values(row.spec.dtype, stored)
    np.testing.assert_allclose(y, exact @ x, rtol=0, atol=1e-5 * np.abs(exact).max() * abs(x).sum())


def row_of(dtype: str) -> TableRow:
    return next(row for row in ROWS if row.spec.dtype == dtype)


@pytest.mark.parametrize("dtype", ["q8_0", "q4_0"])
def test_activations_of_small_blocks_are_what_ggml_stores(dtype: str) -> None:
    x = activations(4096)
    _, stored = multiply(row_of(dtype), weights(dtype, 1, 4096, "random"), x)
    blocks = stored.view(Q8_0)
    theirs = gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0).reshape(-1, 34)
    np.testing.assert_array_equal(blocks["qs"], theirs[:, 2:].view(np.int8))
    np.testing.assert_array_equal(blocks["d"], theirs[:, :2].copy().view("<f2").ravel())
    sums = blocks["qs"].reshape(-1, 8, 4).sum(axis=2, dtype=np.int32)
    np.testing.assert_array_equal(blocks["offsets"], -8 * sums)


def test_activations_of_large_blocks_follow_ggmls_formula() -> None:
    x = activations(2048)
    _, stored = multiply(row_of("q6_k"), weights("q6_k", 1, 2048, "random"), x)
    blocks = stored.view(Q8_K)
    parts = x.reshape(-1, 256)
    largest = parts[np.arange(len(parts)), np.abs(parts).argmax(axis=1)]
    inverse = np.float32(-127) / largest
    np.testing.assert_array_equal(blocks["d"], np.float32(1) / inverse)
    np.testing.assert_array_equal(blocks["qs"], np.minimum(127, np.rint(inverse[:, None] * parts)))
    sums = blocks["qs"].reshape(-1, 16, 16).sum(axis=2)
    np.testing.assert_array_equal(blocks["sums"], sums)
    assert not blocks["group_sums"][:, :8].any()
    np.testing.assert_array_equal(blocks["group_sums"][:, 8:], sums.reshape(-1, 8, 2).sum(axis=2))


def test_binary16_conversion_agrees_with_numpy_on_every_value() -> None:
    """Every binary16 value and the halfway points between them go through both directions."""
    every = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    halfway = (every[:-1] + every[1:]) / 2
    x = np.concatenate([every, -every, halfway, np.float32([65519.9, 1e-9, 2**-25])])
    x = np.concatenate([x, np.zeros(-len(x) % 8, np.float32)])
    row = next(row for row in ROWS if row.spec.dtype == "f16" and row.spec.isa == "portable")
    w = np.zeros((1, 2 * len(x)), np.uint8)
    _, stored = multiply(row, w, x)
    np.testing.assert_array_equal(stored.view(np.float32), x.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_blocks_and_traffic_are_ggmls(row: TableRow) -> None:
    elements, n_bytes = gguf.GGML_QUANT_SIZES[ggml_type(row.spec.dtype)]
    assert row.block_elements == elements
    assert row.spec.read_bytes == n_bytes / elements
    assert native.array_bytes(row.index, 0, 3, 1024) == 3 * 1024 // elements * n_bytes


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_filled_weights_are_finite_and_differ(row: TableRow) -> None:
    columns, rows = 1024, 4
    sizes = [native.array_bytes(row.index, k, rows, columns) for k in range(3)]
    arrays = [np.zeros(size, np.uint8) for size in sizes]
    native.Operands(row.index, arrays, rows, columns).fill(0, rows)
    values = gguf.quants.dequantize(arrays[0].reshape(rows, -1), ggml_type(row.spec.dtype))
    assert np.isfinite(values).all()
    assert values.std() > 0
    assert np.abs(values).max() < 100


@pytest.mark.parametrize(("dtype", "columns"), [("q8_0", 48), ("q4_k", 128), ("q6_k", 0)])
def test_rows_of_broken_blocks_are_refused(dtype: str, columns: int) -> None:
    buffers = [np.zeros(4096, np.uint8) for _ in range(3)]
    with pytest.raises(ValueError, match="not a multiple of the block"):
        native.Operands(row_of(dtype).index, buffers, 1, columns)
