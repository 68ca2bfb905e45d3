"""A model's traffic by rule beside the bytes counted in llama.cpp's graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cpubound.engine.values import GraphCount
from cpubound.model.traffic.layers import split_block
from cpubound.model.traffic.roles import role_of
from cpubound.model.values import ModelTraffic
from cpubound.report.tables import Table
from cpubound.report.traffic import traffic_setting

# What rule and graph may differ by: a few vectors are read twice, or not at all.
WEIGHTS_WITHIN = 0.003
CACHE_WITHIN = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One part of a step's traffic, by rule and in the graph."""

    name: str
    rule_bytes: int
    graph_bytes: int
    agrees: bool


def compare_parts(traffic: ModelTraffic, counted: GraphCount) -> tuple[Part, ...]:
    """Return the parts: each role of weights, all weights, rows, cache read and written.

    A role agrees within the tolerance of all weights: 0.3 % of what they are together.
    """
    by_rule = dict.fromkeys(traffic.by_role, 0)
    for read in traffic.weights:
        if read.kind != "rows":
            by_rule[read.role] += read.n_bytes
    in_graph: dict[str, int] = {}
    for name, n_bytes in counted.weights.items():
        role = _role(name)
        in_graph[role] = in_graph.get(role, 0) + n_bytes
    margin = WEIGHTS_WITHIN * counted.weight_bytes
    parts = [
        _part(role, by_rule.get(role, 0), in_graph.get(role, 0), margin)
        for role in dict.fromkeys([*by_rule, *in_graph])
        if by_rule.get(role) or in_graph.get(role)
    ]
    cache_read = traffic.kv_read_bytes + traffic.state_read_bytes
    cache_write = traffic.kv_write_bytes + traffic.state_write_bytes
    return (
        *parts,
        _part("all weights", traffic.weights_read_bytes, counted.weight_bytes, margin),
        _part("rows of tables", traffic.embedding_row_bytes, counted.row_bytes, 0),
        _part(
            "cache and state, read",
            cache_read,
            counted.cache_read_bytes,
            CACHE_WITHIN * counted.cache_read_bytes,
        ),
        _part(
            "cache and state, written",
            cache_write,
            counted.cache_write_bytes,
            CACHE_WITHIN * counted.cache_write_bytes,
        ),
    )


def _part(name: str, rule: int, graph: int, margin: float) -> Part:
    return Part(name=name, rule_bytes=rule, graph_bytes=graph, agrees=abs(rule - graph) <= margin)


def _role(name: str) -> str:
    """Return the role of a tensor read in full; a token table is then the output matrix."""
    stem = split_block(name)[1]
    return "output" if stem == "token_embd.weight" else role_of(stem)


def verification_table(parts: Sequence[Part]) -> Table:
    """Return rule, graph and difference for each part."""
    return Table(
        columns=("for each token", "rule", "graph", "difference", ""),
        rows=tuple(
            (
                part.name,
                f"{part.rule_bytes:,}",
                f"{part.graph_bytes:,}",
                f"{part.rule_bytes - part.graph_bytes:+,}",
                "" if part.agrees else "differs",
            )
            for part in parts
        ),
        right=frozenset({"rule", "graph", "difference"}),
    )


def verification_document(traffic: ModelTraffic, parts: Sequence[Part]) -> dict[str, Any]:
    """Return ``cpubound.traffic-check/1``."""
    return {
        "schema": "cpubound.traffic-check/1",
        "model": traffic.model,
        "architecture": traffic.architecture,
        **traffic_setting(traffic.setting),
        "parts": [asdict(part) for part in parts],
    }
