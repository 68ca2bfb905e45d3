"""Grow the saved state of a short sequence to any depth, so that depth costs no prefill.

``llama_state_seq_get_data`` saves a sequence's cells; ``llama_state_seq_set_data`` takes
cells that were never computed just as well. The cells of a short prefill are repeated to
fill a deep cache: real values, real layout, no computing. The layout is that of
``llama_kv_cache::state_write``, ``llama_kv_cache_iswa::state_write``,
``llama_memory_hybrid::state_write`` and ``llama_memory_recurrent::state_write`` in
llama.cpp's src (commit 0c1e57098bba): after a magic number and the sequence's id, one
section per cache, the recurrent state last. A state of another layout is not recognised.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER_BYTES = 8  # magic number, sequence id
_EXTENSION_BYTES = 12  # llama_kv_cell_ext: x, y, token
_LARGEST_TYPE_ID = 1024
_LARGEST_ROW = 1 << 26


class UnknownStateLayout(Exception):
    """The state is not laid out as one of the caches known here."""


@dataclass(frozen=True, kw_only=True)
class _Records:
    """The K or V rows of one layer: cells along the first axis, or the last (transposed)."""

    header: bytes
    start: int
    rows: int  # 1 for cells of one row each; elements per cell when transposed
    unit_bytes: int  # bytes of one cell within a row


@dataclass(frozen=True, kw_only=True)
class _AttentionCache:
    """One section written by a KV cache; ``cells`` may be 0."""

    stream_count: int
    stream: int
    cells: int
    extension_bytes: int
    metadata_start: int
    keys: tuple[_Records, ...]
    values: tuple[_Records, ...]
    transposed: int
    end: int


@dataclass(frozen=True, kw_only=True)
class _RecurrentState:
    """The last section of a model with recurrent layers: one cell, of constant size."""

    start: int
    end: int


_Section = _AttentionCache | _RecurrentState


def grow_state(state: bytes, depth: int, *, window_cells: int | None) -> bytearray:
    """Return the state of a sequence of ``depth`` tokens made of the cells of a shorter one.

    Parameters: the bytes that ``llama_state_seq_get_data`` gave for a sequence that starts
    at position 0; the wanted depth; how many cells a sliding-window cache holds (its
    section is the second of two and keeps the last cells only), None without a window.

    Raises ``UnknownStateLayout`` when the state does not parse to its last byte.
    """
    sections = _parse(state)
    grown = bytearray(state[:_HEADER_BYTES])
    attention_seen = 0
    for section in sections:
        if isinstance(section, _RecurrentState):
            grown += _move_recurrent(state, section, depth)
            continue
        cells = depth
        if attention_seen == 1 and window_cells is not None:
            cells = min(depth, window_cells)
        attention_seen += 1
        _grow_attention(grown, state, section, range(depth - cells, depth))
    return grown


def _parse(state: bytes) -> tuple[_Section, ...]:
    found = next(_parse_sections(state, _HEADER_BYTES), None)
    if found is None:
        raise UnknownStateLayout
    return found


def _parse_sections(state: bytes, start: int) -> Iterator[tuple[_Section, ...]]:
    """Yield every way to read the state from ``start`` to its end."""
    if start == len(state):
        yield ()
        return
    for reader in (_read_attention, _read_recurrent):
        for section in reader(state, start):
            for rest in _parse_sections(state, section.end):
                yield (section, *rest)


def _read_attention(state: bytes, start: int) -> Iterator[_AttentionCache]:
    try:
        streams = _u32(state, start)
        if not 1 <= streams <= 256:
            return
        position = start + 4
        counts = []
        for _ in range(streams):
            counts.append(_u32(state, position))
            position += 4
            if counts[-1]:
                break
        cells = counts[-1]
        if not cells:
            return
        # The other streams of a one-sequence state are empty: a zero each.
        trailing = 4 * (streams - len(counts))
        for extension in (0, _EXTENSION_BYTES):
            data = position + cells * (12 + extension)
            if data + 8 > len(state):
                continue
            transposed, layers = struct.unpack_from("<II", state, data)
            if transposed > 1 or layers > 4096:
                continue
            keys = _read_rows(state, data + 8, layers, cells)
            if keys is None:
                continue
            end_of_keys = _end(keys[-1], cells) if keys else data + 8
            # Models that keep one compressed row per token (MLA) have no V rows.
            for value_layers in (layers, 0):
                read = _read_columns if transposed else _read_rows
                values = read(state, end_of_keys, value_layers, cells)
                if values is None:
                    continue
                end = _end(values[-1], cells) if values else end_of_keys
                if any(state[end : end + trailing]):
                    continue
                yield _AttentionCache(
                    stream_count=streams,
                    stream=len(counts) - 1,
                    cells=cells,
                    extension_bytes=extension,
                    metadata_start=position,
                    keys=keys,
                    values=values,
                    transposed=transposed,
                    end=end + trailing,
                )
    except struct.error:
        return


def _read_rows(state: bytes, start: int, layers: int, cells: int) -> tuple[_Records, ...] | None:
    records = []
    for _ in range(layers):
        if start + 12 > len(state):
            return None
        type_id, row_bytes = struct.unpack_from("<iQ", state, start)
        if not 0 <= type_id < _LARGEST_TYPE_ID or not 0 <= row_bytes < _LARGEST_ROW:
            return None
        record = _Records(
            header=state[start : start + 12], start=start + 12, rows=1, unit_bytes=row_bytes
        )
        start = _end(record, cells)
        if start > len(state):
            return None
        records.append(record)
    return tuple(records)


def _read_columns(state: bytes, start: int, layers: int, cells: int) -> tuple[_Records, ...] | None:
    records = []
    for _ in range(layers):
        if start + 12 > len(state):
            return None
        type_id, element_bytes, rows = struct.unpack_from("<iII", state, start)
        if not 0 <= type_id < _LARGEST_TYPE_ID or not 1 <= element_bytes <= 1024:
            return None
        record = _Records(
            header=state[start : start + 12], start=start + 12, rows=rows, unit_bytes=element_bytes
        )
        start = _end(record, cells)
        if start > len(state):
            return None
        records.append(record)
    return tuple(records)


def _read_recurrent(state: bytes, start: int) -> Iterator[_RecurrentState]:
    """Read the one cell of a recurrent state; it holds, because records fill it to the end."""
    if start + 20 > len(state):
        return
    cells, _position, sequences, transposed, _layers = struct.unpack_from("<IiIII", state, start)
    if cells != 1 or sequences or transposed:
        return
    position = start + 20
    while position + 12 <= len(state):
        type_id, row_bytes = struct.unpack_from("<iQ", state, position)
        if not 0 <= type_id < _LARGEST_TYPE_ID or row_bytes > len(state):
            return
        position += 12 + row_bytes
    if position == len(state):
        yield _RecurrentState(start=start, end=position)


def _move_recurrent(state: bytes, section: _RecurrentState, depth: int) -> bytes:
    return (
        state[section.start : section.start + 4]
        + struct.pack("<i", depth - 1)
        + state[section.start + 8 : section.end]
    )


def _grow_attention(
    grown: bytearray, state: bytes, section: _AttentionCache, positions: range
) -> None:
    import numpy as np

    cells = len(positions)
    grown += struct.pack("<I", section.stream_count) + bytes(4 * section.stream)
    grown += struct.pack("<I", cells)
    _grow_metadata(grown, state, section, positions)
    grown += struct.pack("<II", section.transposed, len(section.keys))
    source = np.frombuffer(state, dtype=np.uint8)
    repeated = np.arange(cells) % section.cells
    for record in (*section.keys, *section.values):
        grown += record.header
        size = record.rows * section.cells * record.unit_bytes
        old = source[record.start : record.start + size]
        shape = (record.rows, section.cells, record.unit_bytes)
        grown += np.take(old.reshape(shape), repeated, axis=1).tobytes()
    grown += bytes(4 * (section.stream_count - section.stream - 1))


def _grow_metadata(
    grown: bytearray, state: bytes, section: _AttentionCache, positions: range
) -> None:
    stride = 12 + section.extension_bytes
    first = section.metadata_start
    sequence = state[first + stride - 4 : first + stride]
    for index, position in enumerate(positions):
        grown += struct.pack("<iI", position, 1)
        if section.extension_bytes:
            # Text has the same position on both further axes.
            token = first + (index % section.cells) * stride + 16
            grown += struct.pack("<ii", position, position) + state[token : token + 4]
        grown += sequence


def _end(record: _Records, cells: int) -> int:
    return record.start + record.rows * record.unit_bytes * cells


def _u32(state: bytes, position: int) -> int:
    value: int = struct.unpack_from("<I", state, position)[0]
    return value
