"""The parts that the time of a token is split into, and the bytes each part moves."""

from __future__ import annotations

from collections.abc import Iterator

from cpubound.model.values import ModelTraffic

# In the order of a layer. ``rest`` is lookup tables and what belongs to no other part.
PARTS = (
    "attention_projections",
    "attention",
    "ffn",
    "experts",
    "recurrent",
    "output",
    "norm",
    "rest",
)
_PART_OF_ROLE = {
    "attention": "attention_projections",
    "ffn": "ffn",
    "experts": "experts",
    "router": "experts",
    "recurrent": "recurrent",
    "output": "output",
    "norm": "norm",
}


def part_of_role(role: str) -> str:
    """Return the part in which weights of a role (as in ``WeightRead``) are read."""
    return _PART_OF_ROLE.get(role, "rest")


def bytes_by_part(traffic: ModelTraffic) -> dict[str, int]:
    """Return what each part reads and writes in one step; parts that move nothing are left out.

    Of the KV cache what is touched counts with flash-attention, what is spanned without.
    """
    sums: dict[str, int] = {}
    for part, n_bytes in _moves(traffic):
        sums[part] = sums.get(part, 0) + n_bytes
    return {part: sums[part] for part in PARTS if sums.get(part)}


def _moves(traffic: ModelTraffic) -> Iterator[tuple[str, int]]:
    for read in traffic.weights:
        yield part_of_role(read.role), read.n_bytes
    yield "attention", traffic.attention_read_bytes + traffic.kv_write_bytes
    yield "recurrent", traffic.state_read_bytes + traffic.state_write_bytes
