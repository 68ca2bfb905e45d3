"""The KV cache and recurrent state that a decode step reads and writes.

Sizes and paddings are those of llama.cpp, commit 0c1e57098bba: ``src/llama-kv-cache.cpp``
(``get_n_kv``), ``src/llama-kv-cache-iswa.cpp`` (size of a window's cache) and
``src/llama-hparams.cpp`` (``n_embd_r``, ``n_embd_s``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cpubound.llama_facts import N_UBATCH, pad_cells
from cpubound.model.hyper import HyperParameters
from cpubound.model.quant import quant_type
from cpubound.model.traffic.cache_shapes import CacheShape
from cpubound.model.traffic.layers import Layer, split_block
from cpubound.model.values import AttentionRead, ModelSpec
from cpubound.setting import Setting


def allocated_cells(shape: CacheShape, setting: Setting) -> int:
    """Return the cells of a cache: fewer behind a window."""
    if shape.kind != "indexer" and shape.pool > 1:
        return pad_cells(-(-setting.n_ctx // shape.pool))
    if shape.window == 0:
        return setting.n_ctx
    return min(setting.n_ctx, pad_cells(shape.window + N_UBATCH))


def graph_cells(shape: CacheShape, setting: Setting) -> int:
    """Return the cells that attention spans once the new token is stored."""
    tokens = setting.depth_tokens + 1
    if shape.tail_cells:
        return pad_cells(tokens) // shape.pool + shape.tail_cells
    cells = min(allocated_cells(shape, setting), pad_cells(-(-tokens // shape.pool)))
    return cells if shape.limit is None else min(cells, shape.limit)


def touched_cells(shape: CacheShape, setting: Setting) -> int:
    """Return the cells that are not masked for the new token."""
    tokens = setting.depth_tokens + 1
    if shape.kind == "chunked":
        tokens = setting.depth_tokens % shape.window + 1
    elif shape.window:
        tokens = min(tokens, shape.window)
    return min(-(-tokens // shape.pool) + shape.tail_cells, graph_cells(shape, setting))


def attention_reads(layers: Sequence[Layer], setting: Setting) -> tuple[AttentionRead, ...]:
    """Return what attention reads per sequence, layers of one shape together."""
    counts: dict[CacheShape, int] = {}
    for layer in layers:
        for shape in layer.caches:
            counts[shape] = counts.get(shape, 0) + 1
    return tuple(_attention_read(shape, count, setting) for shape, count in counts.items())


def _attention_read(shape: CacheShape, layers: int, setting: Setting) -> AttentionRead:
    cells = graph_cells(shape, setting)
    k_row, v_row = _row_bytes(shape, setting)
    return AttentionRead(
        kind=shape.kind,
        layers=layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim_k=shape.head_dim_k,
        head_dim_v=shape.head_dim_v,
        cells=cells,
        touched_cells=touched_cells(shape, setting),
        k_bytes=layers * cells * k_row,
        v_bytes=layers * cells * v_row,
    )


def _row_bytes(shape: CacheShape, setting: Setting) -> tuple[int, int]:
    """Return the bytes of one cell of K and of V; of a compressed cache, V is read from K's."""
    type_k, type_v = quant_type(setting.kv_type_k), quant_type(setting.kv_type_v)
    if shape.kind == "mla":
        type_v = type_k
    return (
        type_k.row_bytes(shape.kv_heads * shape.head_dim_k),
        type_v.row_bytes(shape.kv_heads * shape.head_dim_v),
    )


def kv_write_bytes(layers: Sequence[Layer], setting: Setting) -> int:
    """Return the bytes of the cells that one token of one sequence writes."""
    return sum(shape.write_cells * row for shape, row in _stored_rows(layers, setting))


def kv_allocated_bytes(layers: Sequence[Layer], setting: Setting) -> int:
    """Return the size of the caches of one sequence."""
    return sum(
        allocated_cells(shape, setting) * row for shape, row in _stored_rows(layers, setting)
    )


def _stored_rows(layers: Sequence[Layer], setting: Setting) -> Iterator[tuple[CacheShape, int]]:
    """Yield each cache that is kept and the bytes of its cells.

    Without flash-attention V is kept transposed, as wide in all layers as in the widest.
    """
    shapes = [shape for layer in layers for shape in layer.caches if not shape.shared]
    rows = [(shape, _row_bytes(shape, setting)) for shape in shapes]
    widest = max((v for shape, (_, v) in rows if _has_own_v(shape)), default=0)
    for shape, (k_row, v_row) in rows:
        if not _has_own_v(shape):
            yield shape, k_row
        else:
            yield shape, k_row + (v_row if setting.flash_attn else widest)


def _has_own_v(shape: CacheShape) -> bool:
    return shape.kind in ("full", "window", "chunked") and shape.head_dim_v > 0


def state_bytes(spec: ModelSpec, layers: Sequence[Layer]) -> tuple[int, int]:
    """Return the bytes of recurrent state that one sequence's token reads and writes.

    A step replaces the state of a recurrence, and adds a row to that of a compressor.
    """
    whole = 4 * sum(layer.recurrent for layer in layers) * _state_floats(spec)
    whole += 4 * _ple_history_floats(spec)
    read, written = _compressor_floats(spec)
    return whole + 4 * read, whole + 4 * written


def state_kind(spec: ModelSpec) -> str:
    """Name the recurrence of a model that keeps state, by the tensors that its layers have."""
    stems = {split_block(tensor.name)[1] for tensor in spec.tensors}
    if any(stem.startswith("time_mix_") for stem in stems):
        return "wkv"
    if "shortconv.conv.weight" in stems:
        return "conv"
    if any(stem.startswith(("ssm_beta", "ssm_ba.")) for stem in stems):
        return "delta"
    if not any(stem.startswith("ssm_") for stem in stems):
        return "linear"
    return "mamba" if "ssm_x.weight" in stems else "mamba2"


def _state_floats(spec: ModelSpec) -> int:
    """Return the floats that one recurrent layer keeps (``n_embd_r`` and ``n_embd_s``).

    Which formula holds is told by the tensors that such layers have.
    """
    hyper = HyperParameters(spec)
    stems = {split_block(tensor.name)[1] for tensor in spec.tensors}
    width = hyper.integer("embedding_length")
    heads = hyper.integer("attention.head_count")
    taps = hyper.integer("ssm.conv_kernel")
    if any(stem.startswith("time_mix_") for stem in stems):  # RWKV: token shift and heads
        return (hyper.integer("token_shift_count", 2) + hyper.integer("wkv.head_size")) * width
    if "shortconv.conv.weight" in stems:  # LFM2: taps only
        return width * max(hyper.integer("shortconv.l_cache") - 1, 0)
    if "ssm_conv1d_q.weight" in stems:  # KDA: three convolutions, a matrix per head
        head = hyper.integer("kda.head_dim")
        return 3 * (taps - 1 if taps else 3) * heads * head + head * head * heads
    if not any(stem.startswith("ssm_") for stem in stems):  # linear attention (minimax-01)
        head = hyper.integer("attention.key_length") or (width // heads if heads else 0)
        return head * head * heads
    inner, states = hyper.integer("ssm.inner_size"), hyper.integer("ssm.state_size")
    # Mamba 1, told by its ssm_x, convolves x alone.
    groups = 0 if "ssm_x.weight" in stems else hyper.integer("ssm.group_count")
    return max(taps - 1, 0) * (inner + 2 * groups * states) + inner * states


def _ple_history_floats(spec: ModelSpec) -> int:
    """Return the floats of the n-gram convolutions' history (``ple_conv_state``)."""
    hyper = HyperParameters(spec)
    layers = sum(split_block(tensor.name)[1] == "ple_conv1d.weight" for tensor in spec.tensors)
    streams = hyper.integer("hyper_connection.count") * hyper.integer("embedding_length")
    taps = max(hyper.integer("ple.conv_kernel") - 1, 0)
    return layers * taps * hyper.integer("ple.ngram_size") * streams


def _compressor_floats(spec: ModelSpec) -> tuple[int, int]:
    """Return the floats that compressors of earlier cells read and write (deepseek4.cpp).

    A compressor keeps keys and scores of the tokens since the last compressed cell; one
    twice as wide as what it makes keeps two such spans.
    """
    hyper = HyperParameters(spec)
    made = {
        "attn_compressor_kv.weight": hyper.integer("attention.key_length"),
        "indexer_compressor_kv.weight": hyper.integer("attention.indexer.key_length"),
    }
    read = written = 0
    for tensor in spec.tensors:
        block, stem = split_block(tensor.name)
        if block is None or not made.get(stem):
            continue
        width = tensor.shape[-1]
        ratio = hyper.of_layer("attention.compress_ratios", block)
        read += 2 * width * ratio * (width // made[stem])
        written += 2 * width
    return read, written
