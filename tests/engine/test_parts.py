"""cpubound.engine.parts: to which part an operator belongs, and where to look."""

from __future__ import annotations

from itertools import pairwise

from cpubound.engine.parts import Node, Segment, every_operator, find_parts, find_segments


class Graph:
    """Builds a graph operator by operator; a call returns the operator's place."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(
        self, operator: str, *sources: int, weight: str | None = None, cache: str | None = None
    ) -> int:
        self.nodes.append(Node(operator=operator, sources=sources, weight=weight, cache=cache))
        return len(self.nodes) - 1

    def matmul(self, source: int, weight: str) -> int:
        return self.add("MUL_MAT", source, weight=weight)

    def norm(self, source: int, weight: str) -> int:
        return self.add("MUL", self.add("RMS_NORM", source), weight=weight)

    @property
    def parts(self) -> tuple[str, ...]:
        return find_parts(self.nodes)

    @property
    def order(self) -> list[str]:
        return [segment.part for segment in find_segments(self.nodes)]


def add_attention(graph: Graph, source: int, block: int, *, inner_norms: bool = False) -> int:
    """As llama.cpp builds it: norm, Q, rope, K, V, rope, cache, attention, output."""
    blk = f"blk.{block}"
    x = graph.norm(source, f"{blk}.attn_norm.weight")
    q = graph.matmul(x, f"{blk}.attn_q.weight")
    if inner_norms:
        q = graph.norm(graph.add("RESHAPE", q), f"{blk}.attn_q_norm.weight")
    q = graph.add("ROPE", graph.add("RESHAPE", q))
    v = graph.matmul(x, f"{blk}.attn_v.weight")
    k = graph.add("ROPE", graph.matmul(x, f"{blk}.attn_k.weight"))
    graph.add("SET_ROWS", graph.add("VIEW", k), cache=f"cache_k_l{block}")
    graph.add("SET_ROWS", v, cache=f"cache_v_l{block}")
    kq = graph.add("FLASH_ATTN_EXT", graph.add("PERMUTE", q), cache=f"cache_k_l{block}")
    out = graph.matmul(graph.add("RESHAPE", kq), f"{blk}.attn_output.weight")
    return graph.add("ADD", out, source)


def add_ffn(graph: Graph, source: int, block: int) -> int:
    x = graph.norm(source, f"blk.{block}.ffn_norm.weight")
    gate = graph.matmul(x, f"blk.{block}.ffn_gate.weight")
    up = graph.matmul(x, f"blk.{block}.ffn_up.weight")
    out = graph.matmul(graph.add("GLU", gate, up), f"blk.{block}.ffn_down.weight")
    return graph.add("ADD", out, source)


def dense(layers: int = 2, *, inner_norms: bool = False) -> Graph:
    graph = Graph()
    x = graph.add("GET_ROWS", weight="token_embd.weight")
    for block in range(layers):
        x = add_attention(graph, x, block, inner_norms=inner_norms)
        x = add_ffn(graph, x, block)
    graph.matmul(graph.norm(x, "output_norm.weight"), "token_embd.weight")
    return graph


LAYER = ["norm", "attention_projections", "attention", "attention_projections", "norm", "ffn"]


def test_a_dense_layer_takes_six_looks() -> None:
    assert dense().order == ["rest", *LAYER, *LAYER, "norm", "output"]


def test_norms_of_queries_go_with_the_projections_around_them() -> None:
    assert dense(inner_norms=True).order == dense().order


def test_norms_between_layers_of_one_part_stay_norms() -> None:
    graph = Graph()
    x = graph.add("GET_ROWS", weight="token_embd.weight")
    for block in range(2):
        inner = graph.norm(x, f"blk.{block}.attn_norm.weight")
        inner = graph.matmul(inner, f"blk.{block}.ssm_in.weight")
        inner = graph.add("SSM_CONV", inner, weight=f"blk.{block}.ssm_conv1d.weight")
        inner = graph.add("SSM_SCAN", inner, cache=f"cache_s_l{block}")
        x = graph.add("ADD", graph.matmul(inner, f"blk.{block}.ssm_out.weight"), x)
    assert graph.order == ["rest", "norm", "recurrent", "norm", "recurrent"]


def test_a_tied_table_in_a_product_is_the_output_matrix() -> None:
    graph = dense()
    assert graph.parts[0] == "rest"
    assert graph.parts[-1] == "output"


def test_a_residual_goes_with_what_is_added_to_it() -> None:
    graph = Graph()
    x = graph.add("GET_ROWS", weight="token_embd.weight")
    add = add_attention(graph, x, 0)
    assert graph.parts[add] == "attention_projections"
    add = add_ffn(graph, add, 0)
    assert graph.parts[add] == "ffn"


def test_attention_without_flash_attention_is_attention_from_product_to_product() -> None:
    graph = Graph()
    x = graph.add("GET_ROWS", weight="token_embd.weight")
    q = graph.matmul(x, "blk.0.attn_q.weight")
    scores = graph.add("MUL_MAT", graph.add("PERMUTE", q), cache="cache_k_l0")
    weights = graph.add("SOFT_MAX", scores)
    values = graph.add("MUL_MAT", weights, cache="cache_v_l0")
    rows = graph.add("CONT", graph.add("PERMUTE", values))
    assert {graph.parts[place] for place in (scores, weights, values, rows)} == {"attention"}


def test_attention_of_a_model_without_a_cache_is_found() -> None:
    graph = Graph()
    x = graph.add("GET_ROWS", weight="token_embd.weight")
    q, k = graph.matmul(x, "blk.0.attn_q.weight"), graph.matmul(x, "blk.0.attn_k.weight")
    scores = graph.add("MUL_MAT", k, q)
    assert graph.parts[scores] == "attention"


def test_choosing_experts_belongs_to_the_experts() -> None:
    graph = Graph()
    x = graph.add("GET_ROWS", weight="token_embd.weight")
    x = graph.norm(x, "blk.0.ffn_norm.weight")
    logits = graph.matmul(x, "blk.0.ffn_gate_inp.weight")
    chosen = graph.add("ARGSORT", graph.add("SOFT_MAX", logits))
    up = graph.add("MUL_MAT_ID", x, chosen, weight="blk.0.ffn_up_exps.weight")
    added = graph.add("ADD", graph.add("MUL", up, chosen))
    assert set(graph.parts[logits : added + 1]) == {"experts"}
    assert graph.order == ["rest", "norm", "experts"]


def test_states_are_recurrent_whatever_touches_them() -> None:
    graph = Graph()
    x = graph.add("GET_ROWS", cache="cache_s_l0")
    y = graph.add("GET_ROWS", cache="cache_r_l0")
    kv = graph.add("GET_ROWS", cache="cache_k_l0")
    assert graph.parts == ("recurrent", "recurrent", "attention")
    assert x < y < kv


def test_segments_end_at_operators_that_compute() -> None:
    graph = dense()
    for segment in find_segments(graph.nodes):
        assert graph.nodes[segment.last].operator not in ("VIEW", "RESHAPE", "PERMUTE")


def test_segments_cover_the_graph_without_gaps() -> None:
    graph = dense()
    segments = find_segments(graph.nodes)
    assert segments[0].first == 0
    for before, after in pairwise(segments):
        assert after.first == before.last + 1
    assert segments[-1].last == len(graph.nodes) - 1


def test_looking_at_every_operator_cuts_the_same_parts_finer() -> None:
    graph = dense()
    coarse = find_segments(graph.nodes)
    fine = every_operator(graph.nodes, coarse)
    ends = {segment.last: segment.part for segment in fine}
    assert len(fine) > len(coarse)
    assert {segment.last: segment.part for segment in coarse}.items() <= ends.items()


def test_a_norm_is_never_cut_from_its_weight() -> None:
    graph = dense(inner_norms=True)
    fine = every_operator(graph.nodes, find_segments(graph.nodes))
    cut = {segment.last for segment in fine}
    norms = {place for place, node in enumerate(graph.nodes) if node.operator == "RMS_NORM"}
    assert norms
    assert not cut & norms


def test_an_empty_graph_has_no_segments() -> None:
    assert find_segments(()) == ()
    assert every_operator((), ()) == ()


def test_a_segment_names_its_layer() -> None:
    segments = find_segments(dense().nodes)
    assert segments[0] == Segment(part="rest", block=None, first=0, last=0)
    assert [segment.block for segment in segments[1:13]] == [0] * 6 + [1] * 6
