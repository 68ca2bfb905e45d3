"""What each layer of a decode step is: attention over a cache, recurrence, or neither.

Read from tensors and hyper-parameters as llama.cpp (commit 0c1e57098bba) does in
``src/llama-model.cpp`` (``load_hparams``, ``create_memory``) and ``src/llama-hparams.cpp``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cpubound.model import architectures
from cpubound.model.hyper import HyperParameters, layer_count
from cpubound.model.values import ModelSpec

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_ATTENTION = re.compile(r"attn_(?:q|k|v|qkv|kv|q_a|kv_a_mqa)\.weight")
_RECURRENT = re.compile(r"(?:ssm_|time_mix_|shortconv\.)")


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheShape:
    """The cache that one layer reads: ``window`` is 0 for all of the context.

    ``kind`` as in ``AttentionRead``; ``shared`` is a layer that reads what an earlier
    layer wrote. ``head_dim_v`` of a compressed (MLA) cache is a part of the same cells.
    """

    kind: str
    heads: int
    kv_heads: int
    head_dim_k: int
    head_dim_v: int
    window: int = 0
    shared: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer as run: ``block`` is the N of its tensors' names."""

    block: int
    caches: tuple[CacheShape, ...]
    recurrent: bool
    rope: bool


def split_block(name: str) -> tuple[int | None, str]:
    """Split ``blk.7.attn_q.weight`` into 7 and ``attn_q.weight``."""
    match = _BLOCK.fullmatch(name)
    return (int(match[1]), match[2]) if match else (None, name)


def read_layers(spec: ModelSpec) -> tuple[Layer, ...]:
    """Return the layers of a decode step in the order in which they run.

    A block that runs several times (looped models) stands here each time.
    """
    hyper = HyperParameters(spec)
    stems = _stems_by_block(spec)
    windows = _windows(spec, hyper)
    recurrent = _recurrent_blocks(spec, hyper, stems)
    layers = []
    for slot, block in enumerate(_block_order(spec, hyper)):
        is_recurrent = block in recurrent
        window = windows.get(block, 0)
        caches: tuple[CacheShape, ...] = ()
        if spec.architecture not in architectures.WITHOUT_CACHE and (
            not is_recurrent or spec.architecture in architectures.ATTENTION_BESIDE_RECURRENCE
        ):
            caches = _caches(spec, hyper, stems.get(block, frozenset()), block, window, slot)
        layers.append(
            Layer(
                block=block,
                caches=caches,
                recurrent=is_recurrent,
                rope=_has_attention(stems.get(block, frozenset()))
                and not is_recurrent
                and _has_rope(spec, slot, window),
            )
        )
    return tuple(layers)


def _stems_by_block(spec: ModelSpec) -> dict[int, frozenset[str]]:
    stems: dict[int, set[str]] = {}
    for tensor in spec.tensors:
        block, stem = split_block(tensor.name)
        if block is not None:
            stems.setdefault(block, set()).add(stem)
    return {block: frozenset(names) for block, names in stems.items()}


def _block_order(spec: ModelSpec, hyper: HyperParameters) -> list[int]:
    """Return the block that each layer slot runs (nanbeige.cpp, hrm-text.cpp loop)."""
    count = layer_count(hyper)
    loops = hyper.integer("num_loops", 1)
    if loops > 1:
        return list(range(count)) * min(loops, 512)
    per_stack = hyper.integer("hrm.layers_per_stack")
    if per_stack and spec.architecture == "hrm_text":
        low = list(range(per_stack))
        high = list(range(per_stack, 2 * per_stack))
        h_cycles = min(hyper.integer("hrm.h_cycles", 1), 512)
        l_cycles = min(hyper.integer("hrm.l_cycles", 1), 512)
        return (low * l_cycles + high) * h_cycles
    return list(range(min(count, 4096)))


def _has_attention(stems: frozenset[str]) -> bool:
    return any(_ATTENTION.fullmatch(stem) for stem in stems)


def _recurrent_blocks(
    spec: ModelSpec, hyper: HyperParameters, stems: dict[int, frozenset[str]]
) -> frozenset[int]:
    listed = hyper.array("attention.recurrent_layers")
    if listed is not None:
        return frozenset(block for block, flag in enumerate(listed) if flag)
    interval = architectures.FULL_ATTENTION_INTERVAL.get(spec.architecture)
    if interval is not None:
        interval = hyper.integer("full_attention_interval") or interval
        return frozenset(b for b in range(layer_count(hyper)) if (b + 1) % interval)
    return frozenset(
        block for block, names in stems.items() if any(_RECURRENT.match(name) for name in names)
    )


def _windows(spec: ModelSpec, hyper: HyperParameters) -> dict[int, int]:
    """Return the window of each block that has one (``load_swa_pattern``, ``set_swa_pattern``)."""
    rule = architectures.WINDOW_RULES.get(spec.architecture)
    size = hyper.integer("attention.sliding_window", rule.default if rule else 0)
    if size == 0 or spec.architecture in architectures.IGNORE_WINDOW:
        return {}
    count = layer_count(hyper)
    if rule is not None:
        if rule.layers is not None and rule.layers != count:
            return {}
        size = rule.fixed or size
    listed = hyper.array("attention.sliding_window_pattern")
    if listed is not None:
        return {block: size for block, flag in enumerate(listed) if flag}
    period = hyper.integer("attention.sliding_window_pattern", rule.period if rule else 1)
    if rule is None or period == 1:
        return {}
    dense = 0 if rule.dense_first else period - 1
    return {block: size for block in range(count) if period == 0 or block % period != dense}


def _has_rope(spec: ModelSpec, slot: int, window: int) -> bool:
    every = architectures.NO_ROPE_EVERY.get(spec.architecture)
    if every is not None:
        return (slot + 1) % every != 0
    return window > 0 or spec.architecture not in architectures.ROPE_IN_WINDOW_ONLY


def _caches(
    spec: ModelSpec,
    hyper: HyperParameters,
    stems: frozenset[str],
    block: int,
    window: int,
    slot: int,
) -> tuple[CacheShape, ...]:
    heads = hyper.of_layer("attention.head_count", block)
    kv_heads = hyper.of_layer("attention.head_count_kv", block, heads)
    if not _has_attention(stems) or (kv_heads == 0 and not _is_compressed(stems)):
        return ()
    head_dim_k, head_dim_v = _head_dims(hyper, window)
    rule = architectures.WINDOW_RULES.get(spec.architecture)
    kind = "full" if not window else "chunked" if rule is not None and rule.chunked else "window"
    if _is_compressed(stems):
        kind, kv_heads = "mla", 1
    attention = CacheShape(
        kind=kind,
        heads=heads or hyper.integer("attention.head_count"),
        kv_heads=kv_heads,
        head_dim_k=head_dim_k,
        head_dim_v=head_dim_v,
        window=window,
        shared=slot >= _first_shared(spec, hyper),
    )
    if "indexer.attn_k.weight" not in stems:
        return (attention,)
    indexer = CacheShape(
        kind="indexer",
        heads=hyper.integer("attention.indexer.head_count"),
        kv_heads=1,
        head_dim_k=hyper.integer("attention.indexer.key_length"),
        head_dim_v=0,
    )
    return (attention, indexer)


def _is_compressed(stems: frozenset[str]) -> bool:
    """Tell whether K and V are kept as one latent (MLA with absorbed projections)."""
    return "attn_k_b.weight" in stems and "attn_v_b.weight" in stems


def _head_dims(hyper: HyperParameters, window: int) -> tuple[int, int]:
    heads = hyper.integer("attention.head_count")
    plain = hyper.integer("embedding_length") // heads if heads else 0
    key = hyper.integer("attention.key_length") or plain
    value = hyper.integer("attention.value_length") or plain
    if window:
        key = hyper.integer("attention.key_length_swa") or key
        value = hyper.integer("attention.value_length_swa") or value
    return key, value


def _first_shared(spec: ModelSpec, hyper: HyperParameters) -> int:
    """Return the first layer that shares an earlier layer's cache (gemma3n.cpp, gemma4.cpp)."""
    count = layer_count(hyper)
    shared = hyper.integer("attention.shared_kv_layers")
    first = architectures.KV_LAYERS_FROM_START.get(spec.architecture)
    return count - shared if shared else count if first is None else first
