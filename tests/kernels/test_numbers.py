"""The native kernels give the right numbers, for every instruction set that can run here."""

from __future__ import annotations

import numpy as np
import pytest

from cpubound import _kernels as native
from cpubound.kernels.table import TableRow, available_isas, table_rows

ROWS = [row for row in table_rows() if row.spec.isa in available_isas()]
STREAM = [row for row in ROWS if row.unit_bytes == 8]
WRITING = [row for row in STREAM if row.spec.write_bytes]
NON_TEMPORAL = [row for row in WRITING if row.spec.name.endswith("_nt")]
LATENCY = next(row for row in ROWS if row.spec.name == "latency")
PEAK = [row for row in ROWS if row.spec.flops and not row.arrays]
GEMV_F32 = [row for row in ROWS if row.spec.name == "gemv_f32"]
SIZES = [0, 1, 3, 4, 5, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 4096 + 3]
SCALAR = 3.0


def label(row: TableRow) -> str:
    return "-".join(filter(None, (row.spec.name, row.spec.isa, row.spec.variant)))


def run(
    row: TableRow, arrays: list, begin: int, end: int, passes: int = 1, columns: int = 0
) -> int:
    operands = native.Operands(row.index, arrays, end, columns, SCALAR)
    return native.Team(1).run(operands, begin, end, passes)[2]


def unaligned(values: np.ndarray, offset: int = 4) -> np.ndarray:
    """Copy an array to an address that no vector register is aligned to."""
    raw = np.zeros(values.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    copy = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    assert copy.ctypes.data % 64 == offset
    return copy


def stream_pass(name: str, arrays: list[np.ndarray], begin: int, end: int) -> None:
    """One pass as its definition says, in numpy."""
    part = slice(begin, end)
    name = name.removesuffix("_nt")
    a, b = arrays[0], arrays[-1] if len(arrays) < 3 else arrays[1]
    if name == "write":
        a[part] = SCALAR
    elif name == "copy":
        a[part] = b[part]
    elif name == "scale":
        a[part] = SCALAR * b[part]
    elif name == "add":
        a[part] = b[part] + arrays[2][part]
    else:
        a[part] = b[part] + SCALAR * arrays[2][part]


@pytest.mark.parametrize("row", STREAM, ids=label)
@pytest.mark.parametrize("size", SIZES)
def test_a_stream_kernel_computes_what_it_declares_and_touches_nothing_else(
    row: TableRow, size: int
) -> None:
    rng = np.random.default_rng(size)
    begin, end = 5, 5 + size
    if row.spec.name == "read":
        x = unaligned(rng.integers(0, 2**64, end + 9, dtype=np.uint64))
        total = int(np.add.reduce(x[begin:end], dtype=np.uint64))
        assert run(row, [x], begin, end) == (total + 1) % 2**64
        return
    arrays = [unaligned(rng.standard_normal(end + 9)) for _ in range(row.arrays)]
    expected = [array.copy() for array in arrays]
    stream_pass(row.spec.name, expected, begin, end)
    run(row, arrays, begin, end)
    for array, right in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, right)


@pytest.mark.parametrize("row", WRITING, ids=label)
@pytest.mark.parametrize("passes", [1, 2, 3, 7])
def test_results_evolve_from_pass_to_pass_as_a_replay_says(row: TableRow, passes: int) -> None:
    size = 1003
    rng = np.random.default_rng(passes)
    arrays = [rng.standard_normal(size) for _ in range(row.arrays)]
    expected = [array.copy() for array in arrays]
    turn = list(expected)
    for _ in range(passes):
        stream_pass(row.spec.name, turn, 0, size)
        turn = turn[1:] + turn[:1]
    run(row, arrays, 0, size, passes)
    for array, right in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, right)


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_the_checksum_tells_how_many_passes_ran(row: TableRow) -> None:
    columns = 512 if row.is_gemv else 0
    units = 40
    sizes = [native.array_bytes(row.index, k, units, columns) for k in range(row.arrays)]
    checksums = set()
    for passes in range(6):
        arrays = [np.ones(n, np.uint8) for n in sizes]
        if row is LATENCY:
            native.Operands(row.index, arrays, units).fill(0, units)
        checksums.add(run(row, arrays, 0, units, passes, columns))
    assert len(checksums) == 6


@pytest.mark.parametrize("row", GEMV_F32, ids=label)
@pytest.mark.parametrize("columns", [1, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 255, 1000, 4096 + 3])
@pytest.mark.parametrize("rows", [1, 2, 5, 8])
def test_gemv_f32_agrees_with_float64(row: TableRow, columns: int, rows: int) -> None:
    rng = np.random.default_rng(columns)
    w = unaligned(rng.standard_normal((rows + 1, columns), np.float32))
    x = unaligned(rng.standard_normal(columns, np.float32))
    y = unaligned(np.full(rows + 2, 77, np.float32))
    run(row, [w, x, y], 1, rows + 1, columns=columns)
    exact = w.astype(np.float64) @ x.astype(np.float64)
    tolerance = 4 * np.finfo(np.float32).eps * np.sqrt(columns)
    scale = np.abs(w).astype(np.float64) @ np.abs(x).astype(np.float64)
    assert np.all(np.abs(y[1:-1] - exact[1:]) <= tolerance * scale[1:])
    assert y[0] == y[-1] == 77


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_filling_writes_the_units_asked_for_and_no_others(row: TableRow) -> None:
    columns = 512 if row.is_gemv else 0
    unit = native.array_bytes(row.index, 0, 1, columns)
    arrays = [
        np.full(native.array_bytes(row.index, k, 9, columns), 0xA5, np.uint8)
        for k in range(row.arrays)
    ]
    operands = native.Operands(row.index, arrays, 9, columns)
    operands.fill(3, 7)
    for array in arrays[: 1 if row.is_gemv else None]:
        assert np.all(array[: 3 * unit] == 0xA5)
        assert np.all(array[7 * unit :] == 0xA5)
        assert np.any(array[3 * unit : 7 * unit] != 0xA5)


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_declared_traffic_is_what_the_arrays_hold(row: TableRow) -> None:
    if row.is_gemv:
        columns = 4096
        weights = native.array_bytes(row.index, 0, 10, columns)
        assert row.spec.read_bytes * 10 * columns == weights
    else:
        moved = row.spec.read_bytes + row.spec.write_bytes
        assert moved == row.unit_bytes * row.arrays


@pytest.mark.parametrize("row", WRITING, ids=label)
def test_write_allocate_is_declared_for_temporal_stores_and_only_for_them(row: TableRow) -> None:
    avoided = row in NON_TEMPORAL and row.spec.isa != "portable"
    assert row.spec.write_allocate_bytes == (0 if avoided else row.spec.write_bytes)


@pytest.mark.parametrize("row", NON_TEMPORAL, ids=label)
@pytest.mark.parametrize("offset", [0, 8, 24, 56])
def test_non_temporal_stores_begin_at_any_element(row: TableRow, offset: int) -> None:
    rng = np.random.default_rng(offset)
    arrays = [unaligned(rng.standard_normal(1000), offset) for _ in range(row.arrays)]
    expected = [array.copy() for array in arrays]
    stream_pass(row.spec.name, expected, 3, 997)
    run(row, arrays, 3, 997)
    for array, right in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, right)


@pytest.mark.parametrize("row", PEAK, ids=label)
@pytest.mark.parametrize("units", [0, 1, 2, 1000])
def test_a_peak_kernel_does_every_multiply_add_it_declares(row: TableRow, units: int) -> None:
    assert run(row, [], 0, units) - 1 == units * row.spec.flops / 2


def chain(begin: int, end: int) -> np.ndarray:
    """Return, for each line of a part, the line that follows it in the cycle."""
    line = LATENCY.unit_bytes
    memory = np.zeros(native.array_bytes(LATENCY.index, 0, end), np.uint8)
    native.Operands(LATENCY.index, [memory], end).fill(begin, end)
    following = memory.reshape(-1, line)[begin:end, :8].copy().view(np.uint64).ravel()
    return ((following - np.uint64(memory.ctypes.data)) // np.uint64(line)).astype(int)


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (0, 2), (5, 8), (3, 1000), (64, 4160)])
def test_the_lines_of_a_part_form_one_cycle(begin: int, end: int) -> None:
    following = chain(begin, end)
    at, seen = begin, set()
    for _ in range(end - begin):
        at = following[at - begin]
        seen.add(at)
    assert at == begin
    assert seen == set(range(begin, end))


def test_the_cycle_leaps_about_and_not_to_the_next_line() -> None:
    steps = np.abs(np.diff(np.stack([np.arange(4096), chain(0, 4096)]), axis=0))
    assert np.median(steps) > 500


@pytest.mark.parametrize(("begin", "end"), [(0, 0), (0, 1), (2, 9), (0, 300)])
def test_a_pass_goes_round_the_whole_cycle(begin: int, end: int) -> None:
    memory = np.zeros(native.array_bytes(LATENCY.index, 0, 300), np.uint8)
    native.Operands(LATENCY.index, [memory], 300).fill(begin, end)
    assert run(LATENCY, [memory], begin, end) - 1 == (begin if begin < end else 0)


def test_arrays_that_are_too_short_are_refused() -> None:
    row = next(row for row in ROWS if row.spec.name == "triad")
    arrays = [np.zeros(10), np.zeros(10), np.zeros(9)]
    with pytest.raises(ValueError, match="array 2 has 72 bytes, needs 80"):
        native.Operands(row.index, arrays, 10)
    with pytest.raises(ValueError, match="takes 3 arrays, not 2"):
        native.Operands(row.index, arrays[:2], 10)


def test_units_outside_the_arrays_are_refused() -> None:
    row = next(row for row in ROWS if row.spec.name == "read")
    operands = native.Operands(row.index, [np.zeros(10)], 10)
    with pytest.raises(ValueError, match="units 4 … 11 are outside 0 … 10"):
        native.Team(1).run(operands, 4, 11, 1)
    with pytest.raises(ValueError, match="outside"):
        operands.fill(3, 2)


def test_read_only_memory_is_refused() -> None:
    row = next(row for row in ROWS if row.spec.name == "read")
    with pytest.raises(BufferError):
        native.Operands(row.index, [b"12345678"], 1)


def test_a_kernel_that_this_cpu_cannot_run_is_refused() -> None:
    foreign = [row for row in table_rows() if row.spec.isa not in available_isas()]
    if not foreign:
        pytest.skip("every kernel of this build can run here")
    arrays = [
        np.zeros(native.array_bytes(foreign[0].index, k, 8, 512), np.uint8)
        for k in range(foreign[0].arrays)
    ]
    operands = native.Operands(foreign[0].index, arrays, 8, 512)
    with pytest.raises(ValueError, match="cannot run on this CPU"):
        native.Team(1).run(operands, 0, 8, 1)
