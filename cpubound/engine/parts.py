"""To which part of a decode step each operator of llama.cpp's graph belongs, and where to look.

An operator that reads a weight belongs to the part of the weight's role; one that reads or
writes a cache to attention or, for a recurrent state, to the recurrent part; any other
to the part of what it was computed from last: an activation function to the FFN, the
addition of a residual to what is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cpubound.engine.graph import VIEWS
from cpubound.model.parts import part_of_role
from cpubound.model.traffic.layers import split_block
from cpubound.model.traffic.roles import role_of

_NORMS = frozenset({"NORM", "RMS_NORM", "L2_NORM", "GROUP_NORM"})
_PRODUCTS = frozenset({"MUL_MAT", "MUL_MAT_ID"})
# Part of the state and of its convolution in src/llama-memory-recurrent.cpp (0c1e57098bba).
_STATES = ("cache_r_", "cache_s_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One operator of a graph.

    ``sources`` are the places, in the graph, of the operators that it reads from; ``weight``
    names the first weight among its sources, ``cache`` the cache it reads or writes.
    """

    operator: str
    sources: tuple[int, ...] = ()
    weight: str | None = None
    cache: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """Operators in a row of one part; ``last`` is the place of the last that computes."""

    part: str
    block: int | None  # the layer, None outside of layers
    first: int
    last: int


def find_parts(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the part of every operator."""
    parts: list[str] = []
    for node in nodes:
        latest = max((place for place in node.sources if place < len(parts)), default=None)
        parts.append(_part_of(node, "rest" if latest is None else parts[latest]))
    return tuple(parts)


def find_segments(nodes: Sequence[Node]) -> tuple[Segment, ...]:
    """Group a graph into segments: as few as separate the parts of each layer.

    What stands between two segments of one part in the same layer and is no part of weight
    itself (the norms of queries and keys) goes with them.
    """
    merged: list[Segment] = []
    for segment in _runs(nodes):
        merged.append(segment)
        while (joined := _join_last(merged)) is not None:
            merged[-joined[0] :] = [joined[1]]
    return tuple(merged)


def every_operator(nodes: Sequence[Node], segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Cut segments into single operators; a norm stays with its weight, as ggml fuses the two."""
    return tuple(
        Segment(part=segment.part, block=segment.block, first=place, last=place)
        for segment in segments
        for place in range(segment.first, segment.last + 1)
        if place == segment.last or nodes[place].operator not in VIEWS | _NORMS
    )


def _part_of(node: Node, inherited: str) -> str:
    if node.cache is not None:
        return "recurrent" if node.cache.startswith(_STATES) else "attention"
    if node.operator == "FLASH_ATTN_EXT":
        return "attention"
    if node.weight is not None:
        role = role_of(split_block(node.weight)[1])
        # A table in a product is the output matrix: the two are tied.
        is_tied = node.operator in _PRODUCTS and node.weight == "token_embd.weight"
        return "output" if is_tied else part_of_role(role)
    if node.operator in _NORMS:
        return "norm"
    if node.operator in _PRODUCTS and inherited in ("attention_projections", "norm"):
        return "attention"  # of activations alone: there is no cache
    return inherited


def _runs(nodes: Sequence[Node]) -> list[Segment]:
    """Group operators in a row of one part and layer; views go with what follows them."""
    parts, blocks = find_parts(nodes), _find_blocks(nodes)
    found: list[Segment] = []
    first = 0
    for place, node in enumerate(nodes):
        if node.operator in VIEWS:
            continue
        if found and found[-1].part == parts[place]:
            found[-1] = Segment(
                part=parts[place], block=blocks[place], first=found[-1].first, last=place
            )
        else:
            found.append(Segment(part=parts[place], block=blocks[place], first=first, last=place))
        first = place + 1
    return found


def _find_blocks(nodes: Sequence[Node]) -> list[int | None]:
    blocks: list[int | None] = []
    for node in nodes:
        block = split_block(node.weight)[0] if node.weight is not None else None
        if block is None and node.weight is None:
            latest = max((place for place in node.sources if place < len(blocks)), default=None)
            block = None if latest is None else blocks[latest]
        blocks.append(block)
    return blocks


def _join_last(segments: Sequence[Segment]) -> tuple[int, Segment] | None:
    """Return how many of the last segments are one, and that one; None if they are apart."""
    if len(segments) < 3:
        return None
    before, between, after = segments[-3:]
    is_inner = before.part == after.part and before.block == between.block == after.block
    if not is_inner or between.part not in ("norm", "rest"):
        return None
    joined = Segment(part=after.part, block=after.block, first=before.first, last=after.last)
    return 3, joined
