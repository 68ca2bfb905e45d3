"""Growing saved states, against states written here as llama.cpp writes them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubound.engine.kv_state import UnknownStateLayout, grow_state

HEAD = struct.pack("<Ii", 0xAF143CD8, 0)
F16 = 1
Rows = list[list[bytes]]  # per layer, one row per cell


def attention(
    positions: list[int],
    keys: Rows,
    values: Rows,
    *,
    streams: int = 1,
    stream: int = 0,
    tokens: list[int] | None = None,
) -> bytes:
    """A KV cache that keeps V as rows (flash-attention on)."""
    out = metadata(positions, streams=streams, stream=stream, tokens=tokens)
    out += struct.pack("<II", 0, len(keys))
    for layer in (*keys, *values):
        out += struct.pack("<iQ", F16, len(layer[0])) + b"".join(layer)
    return out + bytes(4 * (streams - stream - 1))


def transposed(positions: list[int], keys: Rows, values: Rows) -> bytes:
    """A KV cache that keeps V by columns (flash-attention off); two bytes an element."""
    out = metadata(positions) + struct.pack("<II", 1, len(keys))
    for layer in keys:
        out += struct.pack("<iQ", F16, len(layer[0])) + b"".join(layer)
    for layer in values:
        elements = len(layer[0]) // 2
        out += struct.pack("<iII", F16, 2, elements)
        for element in range(elements):
            out += b"".join(cell[2 * element : 2 * element + 2] for cell in layer)
    return out


def metadata(
    positions: list[int], *, streams: int = 1, stream: int = 0, tokens: list[int] | None = None
) -> bytes:
    out = struct.pack("<I", streams) + bytes(4 * stream) + struct.pack("<I", len(positions))
    for index, position in enumerate(positions):
        out += struct.pack("<iI", position, 1)
        if tokens is not None:
            out += struct.pack("<iii", position, position, tokens[index])
        out += struct.pack("<i", 0)
    return out


def recurrent(position: int, rows: list[bytes]) -> bytes:
    out = struct.pack("<IiIII", 1, position, 0, 0, len(rows))
    for row in rows:
        out += struct.pack("<iQ", 0, len(row)) + row
    return out


def rows(layers: int, cells: int, size: int, first: int) -> Rows:
    return [
        [
            bytes((first + layer * 50 + cell * 3 + i) % 256 for i in range(size))
            for cell in range(cells)
        ]
        for layer in range(layers)
    ]


def repeated(layers: Rows, cells: int) -> Rows:
    return [[layer[cell % len(layer)] for cell in range(cells)] for layer in layers]


KEYS, VALUES = rows(2, 3, 8, 0), rows(2, 3, 6, 100)


@pytest.mark.parametrize("depth", [1, 3, 4, 300])
def test_rows_are_repeated_and_positions_go_on(depth: int) -> None:
    state = HEAD + attention([0, 1, 2], KEYS, VALUES)
    assert grow_state(state, depth, window_cells=None) == HEAD + attention(
        list(range(depth)), repeated(KEYS, depth), repeated(VALUES, depth)
    )


def test_transposed_values_are_repeated_along_the_cells() -> None:
    state = HEAD + transposed([0, 1, 2], KEYS, VALUES)
    assert grow_state(state, 10, window_cells=None) == HEAD + transposed(
        list(range(10)), repeated(KEYS, 10), repeated(VALUES, 10)
    )


def test_a_cache_of_compressed_rows_has_no_values() -> None:
    state = HEAD + attention([0, 1, 2], KEYS, [])
    assert grow_state(state, 7, window_cells=None) == HEAD + attention(
        list(range(7)), repeated(KEYS, 7), []
    )


def test_a_window_cache_keeps_the_last_cells_only() -> None:
    state = HEAD + attention([0, 1, 2], KEYS, VALUES) + attention([0, 1, 2], VALUES, KEYS)
    assert grow_state(state, 20, window_cells=8) == HEAD + attention(
        list(range(20)), repeated(KEYS, 20), repeated(VALUES, 20)
    ) + attention(list(range(12, 20)), repeated(VALUES, 8), repeated(KEYS, 8))


def test_recurrent_state_only_moves_to_the_new_position() -> None:
    state = HEAD + attention([0, 1, 2], KEYS, VALUES) + recurrent(2, [b"convolution", b"state"])
    assert grow_state(state, 9, window_cells=None) == HEAD + attention(
        list(range(9)), repeated(KEYS, 9), repeated(VALUES, 9)
    ) + recurrent(8, [b"convolution", b"state"])


def test_a_purely_recurrent_model_has_one_section() -> None:
    state = HEAD + recurrent(31, [b"convolution", b"state"])
    assert grow_state(state, 500, window_cells=None) == HEAD + recurrent(
        499, [b"convolution", b"state"]
    )


def test_cells_with_image_positions_get_the_text_position_on_each_axis() -> None:
    state = HEAD + attention([0, 1, 2], KEYS, VALUES, tokens=[7, 8, 9])
    assert grow_state(state, 5, window_cells=None) == HEAD + attention(
        list(range(5)), repeated(KEYS, 5), repeated(VALUES, 5), tokens=[7, 8, 9, 7, 8]
    )


@pytest.mark.parametrize("stream", [0, 1, 3])
def test_empty_streams_of_other_sequences_stay(stream: int) -> None:
    state = HEAD + attention([0, 1, 2], KEYS, VALUES, streams=4, stream=stream)
    assert grow_state(state, 5, window_cells=None) == HEAD + attention(
        list(range(5)), repeated(KEYS, 5), repeated(VALUES, 5), streams=4, stream=stream
    )


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_state_cut_short_is_not_recognised(cut: int) -> None:
    state = HEAD + attention([0, 1, 2], KEYS, VALUES)
    with pytest.raises(UnknownStateLayout):
        grow_state(state[:-cut], 10, window_cells=None)


def test_a_state_with_more_behind_it_is_not_recognised() -> None:
    state = HEAD + attention([0, 1, 2], KEYS, VALUES) + b"more"
    with pytest.raises(UnknownStateLayout):
        grow_state(state, 10, window_cells=None)


@given(st.binary(max_size=400))
def test_bytes_of_any_kind_are_grown_or_refused(state: bytes) -> None:
    try:
        grow_state(HEAD + state, 5, window_cells=2)
    except UnknownStateLayout:
        return


@given(st.data())
def test_a_damaged_state_is_grown_or_refused(data: st.DataObject) -> None:
    state = bytearray(HEAD + attention([0, 1, 2], KEYS, VALUES) + recurrent(2, [b"ab", b"c"]))
    for _ in range(data.draw(st.integers(1, 4))):
        state[data.draw(st.integers(8, len(state) - 1))] = data.draw(st.integers(0, 255))
    try:
        grow_state(bytes(state), 5, window_cells=None)
    except UnknownStateLayout:
        return
