"""Traffic against llama.cpp's own graph, against hand-made numbers, and against itself.

``data/graphs.jsonl.xz`` holds small models of every architecture that llama.cpp's
``tests/test-llama-archs.cpp`` (commit 0c1e57098bba) can make: with the keys that its
fixtures write, with all keys that llama.cpp saves, and, where layers have windows, with more
layers and without the key that lists them. Beside names, shapes and hyper-parameters stands
what one decode step read and wrote, counted operator by operator through ``cb_eval`` with
``n_ctx`` = depth + 256 and ``swa_full`` off. Mixtures have 4 experts and choose 2.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept import DATA, TRAFFIC_TRUTH, read_text

from cpubound.errors import CpuboundError, ModelFileError
from cpubound.model.gguf import read_gguf
from cpubound.model.label import bits_per_weight, quant_label
from cpubound.model.quant import quant_type
from cpubound.model.traffic import compute_traffic
from cpubound.model.traffic.layers import read_layers
from cpubound.model.traffic.proven import PROVEN_ARCHITECTURES
from cpubound.model.values import ModelSpec, ModelTraffic, Tensor
from cpubound.setting import Setting

WEIGHTS_WITHIN = 0.003
CACHE_WITHIN = 0.01

# In this architecture the graph gives the recurrent state another name before it is read
# and written (src/models/plamo2.cpp), and the counter behind traffic-truth.json knows
# caches by name. Counted by buffer, as in data/graphs.jsonl.xz, the state is there.
STATE_HIDDEN_FROM_TRUTH = {"plamo2-dense.gguf"}


def load_graphs() -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_text(DATA / "graphs.jsonl.xz").splitlines()]


GRAPHS = load_graphs()


def spec_of(graph: dict[str, Any]) -> ModelSpec:
    hyper = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in graph["hyper_parameters"].items()
    }
    tensors = tuple(
        Tensor(name=name, type=quant_type(type_), shape=tuple(shape))
        for name, type_, shape in graph["tensors"]
    )
    return ModelSpec(
        name=graph["name"],
        architecture=graph["architecture"],
        hyper_parameters=hyper,
        tensors=tensors,
    )


def setting_of(key: str) -> tuple[int, bool]:
    depth, flash_attn = (int(part.split("=")[1]) for part in key.split(","))
    return depth, bool(flash_attn)


def assert_close(traffic: ModelTraffic, graph: tuple[int, int, int, int], key: str) -> None:
    weights, rows, cache_read, cache_write = graph
    assert traffic.weights_read_bytes == pytest.approx(weights, rel=WEIGHTS_WITHIN), key
    assert traffic.embedding_row_bytes == rows, key
    read = traffic.kv_read_bytes + traffic.state_read_bytes
    written = traffic.kv_write_bytes + traffic.state_write_bytes
    assert read == pytest.approx(cache_read, rel=CACHE_WITHIN), key
    assert written == pytest.approx(cache_write, rel=CACHE_WITHIN), key


# -- against llama.cpp's graph ---------------------------------------------------------


@pytest.mark.parametrize(
    "graph", GRAPHS, ids=[f"{graph['name']}, keys of {graph['written_by']}" for graph in GRAPHS]
)
def test_a_step_moves_what_the_graph_moves(graph: dict[str, Any]) -> None:
    spec = spec_of(graph)
    assert graph["graph"]
    for key, counted in graph["graph"].items():
        depth, flash_attn = setting_of(key)
        traffic = compute_traffic(
            spec,
            Setting(
                depth_tokens=depth, allocated_context_tokens=depth + 256, flash_attn=flash_attn
            ),
        )
        assert_close(traffic, tuple(counted), key)


def test_the_list_of_proven_architectures_is_what_the_graphs_prove() -> None:
    assert {graph["architecture"] for graph in GRAPHS} == PROVEN_ARCHITECTURES


@pytest.mark.parametrize("name", sorted(TRAFFIC_TRUTH))
def test_a_file_that_llama_cpp_saved_moves_what_was_counted_for_it(
    tiny_models: Path, name: str
) -> None:
    spec = read_gguf(tiny_models / name)
    for key, truth in TRAFFIC_TRUTH[name].items():
        depth, flash_attn = setting_of(key)
        traffic = compute_traffic(
            spec,
            Setting(
                depth_tokens=depth, allocated_context_tokens=depth + 256, flash_attn=flash_attn
            ),
        )
        if name in STATE_HIDDEN_FROM_TRUTH:
            assert traffic.state_read_bytes > 0
            traffic = replace(traffic, state_read_bytes=0, state_write_bytes=0)
        counted = (
            truth["weight_bytes"],
            truth["row_bytes"],
            truth["cache_read_bytes"],
            truth["cache_write_bytes"],
        )
        assert_close(traffic, counted, key)


# -- by hand ---------------------------------------------------------------------------


def model(tensors: dict[str, tuple[str, tuple[int, ...]]], **hyper: Any) -> ModelSpec:
    """A model with these tensors; hyper-parameters with ``__`` for the dot in their key."""
    return ModelSpec(
        name="by-hand",
        architecture=hyper.pop("architecture", "llama"),
        file_type=hyper.pop("file_type", None),
        hyper_parameters={key.replace("__", "."): value for key, value in hyper.items()},
        tensors=tuple(
            Tensor(name=name, type=quant_type(type_), shape=shape)
            for name, (type_, shape) in tensors.items()
        ),
    )


def dense(layers: int = 2, **changes: Any) -> ModelSpec:
    """64 wide, 4 heads of 16, 2 KV heads, Q8_0 matrices, an F16 table that is the output too."""
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {"token_embd.weight": ("F16", (64, 100))}
    for block in range(layers):
        tensors |= {
            f"blk.{block}.attn_norm.weight": ("F32", (64,)),
            f"blk.{block}.attn_q.weight": ("Q8_0", (64, 64)),
            f"blk.{block}.attn_k.weight": ("Q8_0", (64, 32)),
            f"blk.{block}.attn_v.weight": ("Q8_0", (64, 32)),
            f"blk.{block}.attn_output.weight": ("Q8_0", (64, 64)),
            f"blk.{block}.ffn_up.weight": ("Q8_0", (64, 128)),
            f"blk.{block}.ffn_down.weight": ("Q8_0", (128, 64)),
        }
    tensors |= changes.pop("extra", {})
    hyper = {
        "block_count": layers,
        "embedding_length": 64,
        "attention__head_count": 4,
        "attention__head_count_kv": 2,
    }
    return model(tensors, **(hyper | changes))


LAYER = 64 * 4 + (64 * (64 + 32 + 32 + 64 + 128) + 128 * 64) // 32 * 34


def test_a_tied_table_is_read_once_in_full_and_once_by_row() -> None:
    traffic = compute_traffic(dense(), Setting(flash_attn=False))
    assert traffic.weights_read_bytes == 2 * LAYER + 64 * 100 * 2
    assert traffic.embedding_row_bytes == 64 * 2
    assert traffic.by_role["output"] == 64 * 100 * 2
    assert traffic.logits == 100


def test_an_untied_table_costs_a_row_and_the_output_matrix_its_own_type() -> None:
    traffic = compute_traffic(
        dense(extra={"output.weight": ("Q6_K", (256, 100))}), Setting(flash_attn=False)
    )
    assert traffic.weights_read_bytes == 2 * LAYER + 210 * 100
    assert traffic.embedding_row_bytes == 64 * 2
    assert traffic.by_type["Q6_K"] == 210 * 100


def test_each_matrix_product_is_counted_with_the_shape_of_its_matrix() -> None:
    traffic = compute_traffic(dense(), Setting(flash_attn=False))
    products = {
        (read.role, read.rows, read.columns): read.count
        for read in traffic.weights
        if read.kind == "matmul"
    }
    assert products == {
        ("attention", 64, 64): 4,
        ("attention", 32, 64): 4,
        ("ffn", 128, 64): 2,
        ("ffn", 64, 128): 2,
        ("output", 100, 64): 1,
    }
    assert traffic.matrix_products == 13
    assert all(
        read.n_bytes == read.count * read.rows * quant_type(read.type).row_bytes(read.columns)
        for read in traffic.weights
    )


@pytest.mark.parametrize(
    ("depth", "cells"), [(0, 256), (255, 256), (256, 512), (300, 512), (4095, 4096)]
)
def test_the_graph_spans_cells_in_steps_of_256(depth: int, cells: int) -> None:
    traffic = compute_traffic(dense(), Setting(depth_tokens=depth, flash_attn=False))
    assert traffic.setting.n_ctx == cells
    assert traffic.kv_read_bytes == 2 * cells * 2 * 32 * 2  # layers, cells, K and V, F16
    assert traffic.kv_touched_bytes == 2 * (depth + 1) * 2 * 32 * 2
    assert traffic.kv_write_bytes == 2 * 2 * 32 * 2


def test_attention_reads_masked_cells_only_without_flash_attention() -> None:
    plain = compute_traffic(dense(), Setting(depth_tokens=99, flash_attn=False))
    flash = compute_traffic(dense(), Setting(depth_tokens=99))
    assert plain.attention_read_bytes == plain.kv_read_bytes == 2 * 256 * 2 * 32 * 2
    assert flash.attention_read_bytes == flash.kv_touched_bytes == 2 * 100 * 2 * 32 * 2


def test_the_cache_of_each_type_has_its_own_size() -> None:
    f16 = compute_traffic(dense(), Setting())
    mixed = compute_traffic(dense(), Setting(kv_type_k="q8_0", kv_type_v="q4_0"))
    (attention,) = mixed.attention
    assert attention.k_bytes == f16.attention[0].k_bytes * 34 // 64
    assert attention.v_bytes == f16.attention[0].v_bytes * 18 // 64


def test_a_batch_reads_weights_once_and_caches_for_each_sequence() -> None:
    one, four = (
        compute_traffic(dense(), Setting(flash_attn=False)),
        compute_traffic(dense(), Setting(batch=4, flash_attn=False)),
    )
    assert four.weights_read_bytes == one.weights_read_bytes
    assert four.kv_read_bytes == 4 * one.kv_read_bytes
    assert four.kv_write_bytes == 4 * one.kv_write_bytes
    assert four.embedding_row_bytes == 4 * one.embedding_row_bytes


def test_what_is_held_is_weights_and_the_whole_cache() -> None:
    traffic = compute_traffic(dense(), Setting(allocated_context_tokens=1000, flash_attn=False))
    weights = 2 * LAYER + 64 * 100 * 2
    assert traffic.setting.n_ctx == 1024
    assert traffic.resident_bytes == weights + 2 * 1024 * 2 * 32 * 2


def experts(**changes: Any) -> ModelSpec:
    extra = {
        "blk.0.ffn_gate_inp.weight": ("F32", (64, 8)),
        "blk.0.ffn_up_exps.weight": ("Q8_0", (64, 32, 8)),
        "blk.0.ffn_down_exps.weight": ("Q8_0", (32, 64, 8)),
        "blk.0.ffn_up_shexp.weight": ("Q8_0", (64, 32)),
    }
    return dense(1, extra=extra, expert_count=8, expert_used_count=2, **changes)


def test_only_the_chosen_experts_are_read_and_shared_ones_in_full() -> None:
    traffic = compute_traffic(experts(), Setting(flash_attn=False))
    assert traffic.by_role["experts"] == 2 * (64 * 32 + 32 * 64) // 32 * 34
    assert traffic.by_role["router"] == 64 * 8 * 4
    reads = {(r.rows, r.columns, r.count) for r in traffic.weights if r.kind == "experts"}
    assert reads == {(32, 64, 2), (64, 32, 2)}
    shared = 64 * 32 // 32 * 34
    plain = compute_traffic(dense(1), Setting(flash_attn=False)).by_role["ffn"]
    assert traffic.by_role["ffn"] == plain + shared
    assert traffic.parameters - traffic.active_parameters == 6 * (64 * 32 + 32 * 64)


def test_a_batch_reads_the_experts_it_is_expected_to_choose() -> None:
    one = compute_traffic(experts(), Setting(flash_attn=False)).by_role["experts"]
    traffic = compute_traffic(experts(), Setting(batch=3, flash_attn=False))
    assert traffic.by_role["experts"] == pytest.approx(one * 4 * (1 - 0.75**3), abs=2)
    assert any("independently" in note for note in traffic.assumptions)
    everything = compute_traffic(experts(), Setting(batch=1000, flash_attn=False)).by_role[
        "experts"
    ]
    assert everything == pytest.approx(4 * one, rel=1e-6)


def test_experts_in_tensors_of_their_own_count_by_their_share() -> None:
    extra = {f"blk.0.ffn_up.{n}.weight": ("Q8_0", (64, 32)) for n in range(8)}
    spec = dense(1, extra=extra, expert_count=8, expert_used_count=2)
    traffic = compute_traffic(spec, Setting(flash_attn=False))
    assert traffic.by_role["experts"] == 2 * 64 * 32 // 32 * 34
    assert [r.count for r in traffic.weights if r.kind == "experts"] == [2]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("blk.2.attn_q.weight", "draft"),
        ("blk.2.nextn.eh_proj.weight", "draft"),
        ("v.blk.0.attn_q.weight", "vision"),
        ("mm.0.weight", "vision"),
        ("blk.0.vis_gate.weight", "vision"),
        ("cls.output.weight", "classifier"),
        ("blk.0.attn_q.input_scale", "activation scales"),
    ],
)
def test_what_a_text_step_never_reads_costs_nothing_and_is_listed(name: str, reason: str) -> None:
    plain = compute_traffic(dense(), Setting(flash_attn=False))
    spec = dense(layers=2, extra={name: ("F32", (64, 64))}, block_count=3, nextn_predict_layers=1)
    traffic = compute_traffic(spec, Setting(flash_attn=False))
    assert traffic.weights_read_bytes == plain.weights_read_bytes
    ((why, n_bytes),) = traffic.unread.items()
    assert reason in why
    assert n_bytes == 64 * 64 * 4
    assert traffic.resident_bytes == plain.resident_bytes


def test_a_window_caps_the_cells_spanned_and_touched() -> None:
    spec = dense(architecture="gemma2", attention__sliding_window=512)
    window, full = compute_traffic(spec, Setting(depth_tokens=8191, flash_attn=False)).attention
    assert (window.kind, window.cells, window.touched_cells) == ("window", 1024, 512)
    assert (full.kind, full.cells, full.touched_cells) == ("full", 8192, 8192)


def test_a_chunk_begins_anew() -> None:
    spec = dense(4, architecture="llama4")
    for depth, touched in ((0, 1), (8191, 8192), (8192, 1), (10_000, 1809)):
        chunked, full = compute_traffic(
            spec, Setting(depth_tokens=depth, flash_attn=False)
        ).attention
        assert (chunked.kind, chunked.layers, full.layers) == ("chunked", 3, 1)
        assert chunked.touched_cells == touched


def test_a_window_that_the_file_lists_holds_for_an_architecture_never_seen() -> None:
    spec = dense(
        4,
        architecture="brand-new",
        attention__sliding_window=32,
        attention__sliding_window_pattern=(True, True, True, False),
    )
    traffic = compute_traffic(spec, Setting(depth_tokens=3000, flash_attn=False))
    assert [(a.kind, a.layers, a.cells) for a in traffic.attention] == [
        ("window", 3, 768),
        ("full", 1, 3072),
    ]
    assert any("brand-new is not yet proven" in note for note in traffic.assumptions)


def test_an_architecture_that_was_proven_carries_no_such_note() -> None:
    assert compute_traffic(dense(), Setting(flash_attn=False)).assumptions == ()


def test_layers_with_heads_of_their_own_have_caches_of_their_own() -> None:
    spec = dense(attention__head_count_kv=(2, 0))
    (attention,) = compute_traffic(spec, Setting(flash_attn=False)).attention
    assert (attention.layers, attention.kv_heads) == (1, 2)


def test_a_compressed_cache_is_read_as_keys_and_again_as_values() -> None:
    extra = {
        "blk.0.attn_k_b.weight": ("F16", (16, 64, 4)),
        "blk.0.attn_v_b.weight": ("F16", (64, 16, 4)),
        "blk.0.attn_kv_a_mqa.weight": ("F16", (64, 72)),
    }
    spec = dense(
        1,
        extra=extra,
        architecture="deepseek2",
        attention__key_length=72,
        attention__value_length=64,
        attention__head_count_kv=1,
    )
    traffic = compute_traffic(spec, Setting(flash_attn=False))
    (attention,) = traffic.attention
    assert attention.kind == "mla"
    assert (attention.k_bytes, attention.v_bytes) == (256 * 72 * 2, 256 * 64 * 2)
    assert traffic.kv_write_bytes == 72 * 2


def test_long_contexts_read_the_long_rotary_factors() -> None:
    extra = {
        "rope_factors_long.weight": ("F32", (8,)),
        "rope_factors_short.weight": ("F32", (8,)),
    }
    spec = dense(architecture="phi3", extra=extra, rope__scaling__original_context_length=4096)
    short, long = (
        compute_traffic(spec, Setting(flash_attn=False)),
        compute_traffic(spec, Setting(allocated_context_tokens=8192, flash_attn=False)),
    )
    assert short.weights_read_bytes == long.weights_read_bytes
    assert list(short.unread) == list(long.unread) == ["rotary factors for another context length"]


def test_looped_blocks_count_each_time_they_run() -> None:
    spec = dense(architecture="nanbeige", num_loops=3)
    assert [layer.block for layer in read_layers(spec)] == [0, 1] * 3
    traffic = compute_traffic(spec, Setting(flash_attn=False))
    assert traffic.layers == 6
    assert traffic.weights_read_bytes == 6 * LAYER + 64 * 100 * 2
    assert (
        traffic.kv_read_bytes
        == 3 * compute_traffic(dense(), Setting(flash_attn=False)).kv_read_bytes
    )


def test_bytes_of_an_unknown_type_are_left_out_with_a_word() -> None:
    spec = replace(dense(), warnings=("2 tensors have type 99",))
    assert "2 tensors have type 99" in compute_traffic(spec, Setting(flash_attn=False)).assumptions


@given(
    depth=st.integers(0, 100_000),
    batch=st.integers(1, 64),
    graph=st.sampled_from(GRAPHS),
    flash_attn=st.booleans(),
)
def test_sums_agree_and_nothing_is_negative(
    depth: int, batch: int, graph: dict[str, Any], flash_attn: bool
) -> None:
    traffic = compute_traffic(
        spec_of(graph), Setting(depth_tokens=depth, batch=batch, flash_attn=flash_attn)
    )
    weights = traffic.weights_read_bytes + traffic.embedding_row_bytes
    assert sum(traffic.by_type.values()) == sum(traffic.by_role.values()) == weights
    assert 0 <= traffic.kv_touched_bytes <= traffic.kv_read_bytes
    assert 0 < traffic.active_parameters <= traffic.parameters
    assert all(read.n_bytes >= 0 and read.count >= 0 for read in traffic.weights)
    assert traffic.total_bytes >= weights


SIZES = st.sampled_from([-1, 0, 1, 2, 3, 64, 512, 513, 2**31, 2**63, 0.5, float("nan"), "x"])


@given(
    graph=st.sampled_from(GRAPHS),
    hyper=st.dictionaries(
        st.sampled_from(sorted({key for graph in GRAPHS for key in graph["hyper_parameters"]})),
        SIZES | st.lists(SIZES.filter(lambda size: not isinstance(size, str)), max_size=6),
        max_size=12,
    ),
)
def test_whatever_a_file_claims_is_answered_or_refused(
    graph: dict[str, Any], hyper: dict[str, Any]
) -> None:
    claimed = graph | {"hyper_parameters": graph["hyper_parameters"] | hyper}
    try:
        traffic = compute_traffic(spec_of(claimed), Setting(depth_tokens=1000))
    except CpuboundError as error:
        assert "\n" not in str(error)
    else:
        assert traffic.kv_read_bytes >= 0
        assert traffic.state_read_bytes >= 0
        assert traffic.resident_bytes >= 0


def test_a_cache_beyond_any_memory_is_refused() -> None:
    with pytest.raises(ModelFileError, match="beyond any memory"):
        compute_traffic(
            dense(attention__key_length=2**31, attention__head_count_kv=2**31),
            Setting(flash_attn=False),
        )


@pytest.mark.parametrize(
    "hyper",
    [
        {"block_count": 513},
        {"num_loops": 2**31},
        {"block_count": 2**63, "nextn_predict_layers": 2**63},
    ],
)
def test_more_layers_than_llama_cpp_runs_are_refused(hyper: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError, match="at most 512"):
        compute_traffic(dense(**hyper), Setting(flash_attn=False))


# -- labels ----------------------------------------------------------------------------


def test_a_label_is_the_file_type_that_the_tensors_bear_out() -> None:
    assert quant_label(dense(file_type=7)) == "Q8_0"
    mix = dense(
        file_type=15,
        extra={
            "blk.0.a.weight": ("Q4_K", (256, 400)),
            "blk.0.b.weight": ("Q6_K", (256, 40)),
        },
    )
    assert quant_label(mix) == "Q4_K_M"


def test_a_label_that_the_tensors_belie_shows_both() -> None:
    assert quant_label(dense(file_type=15)) == "Q8_0 (the file says Q4_K_M)"


def test_a_label_is_not_believed_where_wider_types_outweigh_it() -> None:
    mostly_wide = dense(file_type=15, extra={"blk.0.a.weight": ("Q4_K", (256, 80))})
    assert quant_label(mostly_wide) == "Q8_0 (the file says Q4_K_M)"


def test_a_file_that_claims_nothing_is_called_by_its_dominant_type() -> None:
    assert quant_label(dense()) == "Q8_0"
    assert quant_label(dense(file_type=1024)) == "Q8_0"


def test_bits_per_weight_are_those_of_all_tensors() -> None:
    spec = model({"a": ("Q4_K", (256, 4)), "b": ("F32", (256, 4))})
    assert math.isclose(bits_per_weight(spec), (4.5 + 32) / 2)
