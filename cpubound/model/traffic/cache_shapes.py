"""The caches that one layer's attention reads: their kind, width and reach."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cpubound.errors import ModelFileError
from cpubound.model.hyper import HyperParameters
from cpubound.model.traffic import architectures
from cpubound.model.values import ModelSpec

_ATTENTION = re.compile(r"attn_(?:q|k|v|qkv|kv|q_a|kv_a_mqa)\.weight")


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheShape:
    """One cache that a layer reads.

    ``kind`` is as in ``AttentionRead``. ``window`` is 0 for all of the context; ``pool``
    is the tokens that one cell represents; ``limit`` the most cells that sparse attention
    gathers; ``tail_cells`` are read and ``write_cells`` written beside the pooled ones. A
    ``shared`` cache was written by an earlier layer. Of a compressed (MLA) cache
    ``head_dim_v`` is the part of the same cells that is read again as V.
    """

    kind: str
    heads: int
    kv_heads: int
    head_dim_k: int
    head_dim_v: int
    window: int = 0
    pool: int = 1
    limit: int | None = None
    tail_cells: int = 0
    write_cells: int = 1
    shared: bool = False


def has_attention(stems: frozenset[str]) -> bool:
    """Tell whether a block with these tensors (names without ``blk.N.``) attends."""
    return any(_ATTENTION.fullmatch(stem) for stem in stems)


def cache_shapes(
    spec: ModelSpec,
    hyper: HyperParameters,
    stems: frozenset[str],
    *,
    block: int,
    window: int,
    shared: bool,
    flash_attn: bool,
) -> tuple[CacheShape, ...]:
    """Return the caches of a layer that attends; none if it has no heads of its own.

    Raises ``ModelFileError`` where the model as a whole is said to have none.
    """
    claimed = spec.hyper_parameters.get("attention.head_count")
    if isinstance(claimed, int) and claimed <= 0:
        raise ModelFileError(
            f"{spec.name} claims {claimed} attention heads (attention.head_count), though its "
            f"layer {block} attends: convert it again"
        )
    heads = hyper.of_layer("attention.head_count", block)
    kv_heads = hyper.of_layer("attention.head_count_kv", block, heads)
    if kv_heads == 0 and not _is_latent(stems):
        return ()
    head_dim_k, head_dim_v = _head_dims(hyper, window)
    attention = CacheShape(
        kind=_kind(spec, window),
        heads=heads or hyper.integer("attention.head_count"),
        kv_heads=kv_heads,
        head_dim_k=head_dim_k,
        head_dim_v=head_dim_v,
        window=window,
        shared=shared,
    )
    if _is_latent(stems):
        attention = replace(attention, kind="mla", kv_heads=1)
        ratio = hyper.of_layer("attention.compress_ratios", block)
        if ratio and "attn_compressor_kv.weight" in stems:
            return _compressed(hyper, attention, stems, ratio)
    indexer = _indexer(spec, hyper, stems, flash_attn)
    if indexer is None:
        return (attention,)
    block_size = hyper.integer("attention.indexer.block_size")
    if block_size:
        most = hyper.integer("attention.indexer.top_k") * block_size
        attention = replace(attention, limit=most)
    return (attention, indexer)


def _kind(spec: ModelSpec, window: int) -> str:
    rule = architectures.WINDOW_RULES.get(spec.architecture)
    if not window:
        return "full"
    return "chunked" if rule is not None and rule.chunked else "window"


def _is_latent(stems: frozenset[str]) -> bool:
    """Tell whether K and V are kept as one latent: MLA with absorbed projections, or one KV."""
    absorbed = "attn_k_b.weight" in stems and "attn_v_b.weight" in stems
    return absorbed or "attn_kv.weight" in stems


def _head_dims(hyper: HyperParameters, window: int) -> tuple[int, int]:
    heads = hyper.integer("attention.head_count")
    plain = hyper.integer("embedding_length") // heads if heads else 0
    key = hyper.integer("attention.key_length") or plain
    value = hyper.integer("attention.value_length") or plain
    if window:
        key = hyper.integer("attention.key_length_swa") or key
        value = hyper.integer("attention.value_length_swa") or value
    return key, value


def _compressed(
    hyper: HyperParameters, attention: CacheShape, stems: frozenset[str], ratio: int
) -> tuple[CacheShape, ...]:
    """Return a window and what lies before it, compressed (deepseek4.cpp).

    Both are copied together once, so neither is read again as V.
    """
    window = replace(attention, kind="window", head_dim_v=0)
    before = replace(attention, kind="compressed", head_dim_v=0, window=0, pool=ratio)
    if "indexer_compressor_kv.weight" not in stems:
        return (window, before)
    return (window, before, replace(_indexer_shape(hyper), pool=ratio))


def _indexer(
    spec: ModelSpec, hyper: HyperParameters, stems: frozenset[str], flash_attn: bool
) -> CacheShape | None:
    """Return the cache of sparse attention's indexer, if this layer runs one of its own."""
    if not flash_attn and spec.architecture in architectures.INDEXER_NEEDS_FLASH_ATTENTION:
        return None
    if "indexer.attn_k.weight" not in stems and "indexer.k_proj.weight" not in stems:
        return None
    shape = _indexer_shape(hyper)
    pool = hyper.integer("attention.indexer.kpool")
    if pool > 1 and "indexer_compressor_gate.weight" in stems:
        # Cells hold a key and a gate; a step reads the members of the pool that it may
        # complete, and writes its own cell and that pool's (glm5-next.cpp).
        return replace(shape, pool=pool, tail_cells=2 * pool, write_cells=4)
    return shape


def _indexer_shape(hyper: HyperParameters) -> CacheShape:
    return CacheShape(
        kind="indexer",
        heads=hyper.integer("attention.indexer.head_count"),
        kv_heads=1,
        head_dim_k=hyper.integer("attention.indexer.key_length"),
        head_dim_v=0,
    )
