"""What each layer of a decode step is: attention over a cache, recurrence, or neither.

Read from tensors and hyper-parameters as llama.cpp (commit 0c1e57098bba) does in
``src/llama-model.cpp`` (``load_hparams``, ``create_memory``) and ``src/llama-hparams.cpp``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from cpubound.errors import ModelFileError
from cpubound.llama_facts import MAX_LAYERS
from cpubound.model.hyper import HyperParameters, layer_count
from cpubound.model.traffic import architectures
from cpubound.model.traffic.cache_shapes import CacheShape, cache_shapes, has_attention
from cpubound.model.values import ModelSpec

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_RECURRENT = re.compile(r"(?:ssm_|time_mix_|shortconv\.)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer as run.

    ``block`` is the N of its tensors' names, ``ropes`` how many rotary operators use the
    table of frequency factors.
    """

    block: int
    caches: tuple[CacheShape, ...]
    recurrent: bool
    ropes: int


@lru_cache(maxsize=4096)
def split_block(name: str) -> tuple[int | None, str]:
    """Split ``blk.7.attn_q.weight`` into 7 and ``attn_q.weight``."""
    match = _BLOCK.fullmatch(name)
    return (int(match[1]), match[2]) if match else (None, name)


def read_layers(spec: ModelSpec, *, flash_attn: bool = False) -> tuple[Layer, ...]:
    """Return the layers of a decode step in the order in which they run.

    A block that runs several times (looped models) stands here each time. Block-sparse
    attention runs only with ``flash_attn``. Raises ``ModelFileError`` for a model of more
    layers than llama.cpp runs.
    """
    hyper = HyperParameters(spec)
    order = _block_order(spec, hyper)
    stems = _stems_by_block(spec)
    windows = _windows(spec, hyper)
    recurrent = _recurrent_blocks(spec, hyper, stems)
    first_shared = _first_shared(spec, hyper)
    layers = []
    for slot, block in enumerate(order):
        is_recurrent = block in recurrent
        window = windows.get(block, 0)
        names = stems.get(block, frozenset())
        is_shared = first_shared is not None and slot >= first_shared
        attends = has_attention(names) and (
            not is_recurrent or spec.architecture in architectures.ATTENTION_BESIDE_RECURRENCE
        )
        caches: tuple[CacheShape, ...] = ()
        if attends and spec.architecture not in architectures.WITHOUT_CACHE:
            caches = cache_shapes(
                spec,
                hyper,
                names,
                block=block,
                window=window,
                shared=is_shared,
                flash_attn=flash_attn,
            )
        ropes = _ropes(spec, slot, window, is_shared) if attends else 0
        layers.append(Layer(block=block, caches=caches, recurrent=is_recurrent, ropes=ropes))
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
    _check_layers(spec, max(hyper.integer("block_count"), count * max(loops, 1)))
    if loops > 1:
        return list(range(count)) * loops
    per_stack = hyper.integer("hrm.layers_per_stack")
    if per_stack and spec.architecture == "hrm_text":
        h_cycles, l_cycles = hyper.integer("hrm.h_cycles", 1), hyper.integer("hrm.l_cycles", 1)
        _check_layers(spec, per_stack * h_cycles * (l_cycles + 1))
        low, high = list(range(per_stack)), list(range(per_stack, 2 * per_stack))
        return (low * l_cycles + high) * h_cycles
    return list(range(count))


def _check_layers(spec: ModelSpec, count: int) -> None:
    if count > MAX_LAYERS:
        raise ModelFileError(
            f"{spec.name} claims {count} layers, where llama.cpp runs at most {MAX_LAYERS}: "
            "download it again"
        )


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
        if rule.period == 0:
            return dict.fromkeys(range(count), size)
    listed = hyper.array("attention.sliding_window_pattern")
    if listed is not None:
        return {block: size for block, flag in enumerate(listed) if flag}
    period = hyper.integer("attention.sliding_window_pattern", rule.period if rule else 1)
    if rule is None or period == 1:
        return {}
    dense = 0 if rule.dense_first else period - 1
    return {block: size for block in range(count) if period == 0 or block % period != dense}


def _ropes(spec: ModelSpec, slot: int, window: int, shared: bool) -> int:
    """Return how many rotary operators of an attention layer use the frequency factors."""
    name = spec.architecture
    every = architectures.NO_ROPE_EVERY.get(name)
    if every is not None and (slot + 1) % every == 0:
        return 0
    if window == 0 and name in architectures.ROPE_IN_WINDOW_ONLY:
        return 0
    if window and name in architectures.ROPE_FACTORS_OUTSIDE_WINDOW_ONLY:
        return 0
    return 1 if shared else 2


def _first_shared(spec: ModelSpec, hyper: HyperParameters) -> int | None:
    """Return the first layer that shares an earlier layer's cache (gemma3n.cpp, gemma4.cpp)."""
    shared = hyper.integer("attention.shared_kv_layers")
    if shared:
        return layer_count(hyper) - shared
    return architectures.KV_LAYERS_FROM_START.get(spec.architecture)
