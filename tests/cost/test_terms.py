"""cpubound.cost.terms: hand-made traffic, and what each key amounts to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import build_traffic, take_setting
from hypothesis import given
from hypothesis import strategies as st

from cpubound.cost.terms import (
    BANDS,
    Grid,
    Term,
    add_up,
    attention_setting,
    hat_weights,
    step_terms,
)
from cpubound.model.parts import PARTS
from cpubound.model.resolve import resolve_model
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import AttentionRead, ModelTraffic, WeightRead
from cpubound.setting import Setting

ON = "F16:F16:on"
NOTHING = build_traffic({})


def weight(**changes: Any) -> WeightRead:
    fields = {
        "role": "ffn",
        "kind": "matmul",
        "type": "Q4_K",
        "rows": 100,
        "columns": 256,
        "count": 3,
        "n_bytes": 43_200,
    }
    return WeightRead(**{**fields, **changes})


def attention(**changes: Any) -> AttentionRead:
    """Two layers of 8 query heads on 2 KV heads of 64 in F16: 256 bytes of K in a cell."""
    fields = {
        "kind": "full",
        "layers": 2,
        "heads": 8,
        "kv_heads": 2,
        "head_dim_k": 64,
        "head_dim_v": 64,
        "cells": 512,
        "touched_cells": 400,
        "k_bytes": 2 * 256 * 512,
        "v_bytes": 2 * 256 * 512,
    }
    return AttentionRead(**{**fields, **changes})


def of(traffic: ModelTraffic, *, grid: Grid = Grid(), **options: Any) -> dict[str, float]:  # noqa: B008 (an immutable value)
    return add_up(step_terms(traffic, grid, **options))


def weights(*reads: WeightRead, **changes: Any) -> ModelTraffic:
    setting, rest = take_setting(changes)
    return replace(NOTHING, setting=setting, weights=reads, **rest)


def cache(*reads: AttentionRead, **changes: Any) -> ModelTraffic:
    setting, rest = take_setting(changes)
    return replace(NOTHING, setting=setting, attention=reads, **rest)


def test_a_matrix_is_bytes_rows_and_products_of_its_part_and_a_step_one_token() -> None:
    assert step_terms(weights(weight())) == [
        Term("bytes:Q4_K", 43_200.0, "ffn"),
        Term("rows:Q4_K", 300.0, "ffn"),
        Term("product", 3.0, "ffn"),
        Term("token", 1.0, "rest"),
    ]


def test_parts_keep_their_terms_apart_and_one_key_adds_up() -> None:
    traffic = weights(weight(), weight(role="output", count=1, n_bytes=1000), weight(type="F16"))
    terms = step_terms(traffic)
    assert {t.part for t in terms if t.key == "bytes:Q4_K"} == {"ffn", "output"}
    assert [(t.part, t.amount) for t in terms if t.key == "product"] == [("ffn", 6), ("output", 1)]
    assert add_up(terms) == {
        "bytes:Q4_K": 44_200,
        "rows:Q4_K": 400,
        "bytes:F16": 43_200,
        "rows:F16": 300,
        "product": 7,
        "token": 1,
    }


@pytest.mark.parametrize("kind", ["vector", "rows"])
def test_norms_and_lookups_have_no_price_of_their_own(kind: str) -> None:
    assert of(weights(weight(kind=kind))) == {"token": 1}


def test_what_amounts_to_nothing_is_no_part_of_an_equation() -> None:
    assert add_up([Term("a", 1.0, ""), Term("b", 0.0, ""), Term("a", 2.0, "")]) == {"a": 3.0}


@pytest.mark.parametrize(("tokens", "passes"), [(0.5, 1), (1.0, 1), (2.5, 2.5), (8.0, 8)])
def test_an_expert_is_gone_through_once_for_each_of_its_tokens(
    tokens: float, passes: float
) -> None:
    read = weight(kind="experts", role="experts", tokens=tokens)
    assert of(weights(read), grid=Grid(tokens=(2, 4))) == pytest.approx(
        {"experts:Q4_K": 43_200 * passes, "rows:Q4_K": 300, "token": 1}
    )


def test_a_router_is_in_the_rate_of_its_experts_and_three_products_of_its_layer() -> None:
    router = weight(role="router", type="F32", count=5)
    terms = step_terms(weights(weight(kind="experts", role="experts"), router))
    assert add_up(terms) == {"experts:Q4_K": 43_200, "rows:Q4_K": 300, "product": 20, "token": 1}
    assert {t.part for t in terms if t.key == "product"} == {"experts"}


@pytest.mark.parametrize(
    ("tokens", "shares"),
    [
        (2, {2: 1.0}),
        (3, {2: 0.5, 4: 0.5}),
        (7, {4: 0.25, 8: 0.75}),
        (8, {8: 1.0}),
        (32, {8: 4.0}),
        (1.5, {2: 1.0}),
    ],
)
def test_weights_of_several_tokens_are_made_up_of_the_numbers_that_were_measured(
    tokens: float, shares: dict[int, float]
) -> None:
    found = of(weights(weight(tokens=tokens)), grid=Grid(tokens=(2, 4, 8)))
    assert found == pytest.approx(
        {f"bytes:Q4_K@{n}": 43_200 * share for n, share in shares.items()}
        | {"product": 3, "token": 1}
    )


def test_weights_of_several_tokens_keep_their_number_where_nothing_was_measured() -> None:
    assert of(weights(weight(tokens=6)))["bytes:Q4_K@2"] == pytest.approx(3 * 43_200)


@given(
    knots=st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True).map(sorted),
    value=st.floats(0.01, 10**7),
)
def test_shares_of_knots_give_the_value_back_and_are_never_negative(
    knots: Sequence[int], value: float
) -> None:
    shares = hat_weights(knots, value)
    assert set(shares) <= set(knots)
    assert all(share >= 0 for share in shares.values())
    assert sum(knot * share for knot, share in shares.items()) == pytest.approx(
        max(value, knots[0])
    )
    if value <= knots[-1]:
        assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(("flash_attn", "cells"), [(True, 400), (False, 512)])
def test_the_cache_is_read_once_and_passed_once_for_each_query_head(
    flash_attn: bool, cells: int
) -> None:
    setting = attention_setting(Setting(flash_attn=flash_attn))
    n_bytes = 2 * 2 * 256 * cells
    assert of(cache(attention(), flash_attn=flash_attn)) == pytest.approx(
        {
            f"kv:{setting}:64": n_bytes,
            f"attention:{setting}:64:slim:near": 4 * n_bytes,
            "token": 1,
        }
    )


def test_every_sequence_of_a_batch_reads_a_cache_of_its_own() -> None:
    one, three = of(cache(attention())), of(cache(attention(), batch=3))
    assert three == pytest.approx({k: n * (1 if k == "token" else 3) for k, n in one.items()})


def test_a_setting_names_the_types_of_the_cache() -> None:
    found = of(cache(attention(), kv_type_k="q8_0", kv_type_v="q4_0"))
    assert "kv:Q8_0:Q4_0:on:64" in found
    assert attention_setting(Setting(kv_type_k="q8_0", flash_attn=False)) == "Q8_0:F16:off"


def test_an_empty_cache_has_no_attention() -> None:
    assert of(cache(attention(touched_cells=0))) == {"token": 1}
    assert of(cache(attention(cells=0, touched_cells=0, k_bytes=0, v_bytes=0))) == {"token": 1}


@pytest.mark.parametrize(
    ("cells", "bands"),
    [
        (1, {"near": 1}),
        (2048, {"near": 2048}),
        (2049, {"near": 2048, "deep": 1}),
        (8192, {"near": 2048, "deep": 6144}),
        (20_000, {"near": 2048, "deep": 6144, "far": 11_808}),
    ],
)
def test_cells_count_in_the_band_where_they_lie(cells: int, bands: dict[str, int]) -> None:
    assert [start for _, start in BANDS] == [0, 2048, 8192]
    size = 2 * 256 * cells
    read = attention(cells=cells, touched_cells=cells, k_bytes=size, v_bytes=size)
    found = of(cache(read))
    assert {k: n for k, n in found.items() if k.startswith("attention:")} == pytest.approx(
        {f"attention:{ON}:64:slim:{band}": n * 2 * 2 * 256 * 4 for band, n in bands.items()}
    )
    assert found[f"kv:{ON}:64"] == pytest.approx(2 * size)


@pytest.mark.parametrize(("kv_heads", "wide"), [(1, 0.0), (4, 0.0), (8, 0.5), (16, 1.0), (64, 1.0)])
def test_the_bytes_between_two_cells_decide_how_wide_a_stride_is(
    kv_heads: int, wide: float
) -> None:
    """A KV head of 64 in F16 is 128 bytes: four make the slim stride, sixteen the wide one."""
    size = 3 * 512 * kv_heads * 128
    read = attention(layers=3, heads=2 * kv_heads, kv_heads=kv_heads, k_bytes=size, v_bytes=size)
    found = of(cache(replace(read, touched_cells=512)))
    passed = {
        stride: found.get(f"attention:{ON}:64:{stride}:near", 0.0) for stride in ("slim", "wide")
    }
    assert passed == pytest.approx({"slim": 4 * size * (1 - wide), "wide": 4 * size * wide})


def test_a_quantised_cache_lies_nearer_together() -> None:
    """Sixteen heads of 64 in Q8_0 are 1,088 bytes, not 2,048."""
    size = 2 * 512 * 16 * 68
    read = attention(kv_heads=16, heads=16, k_bytes=size, v_bytes=size)
    found = of(cache(read, kv_type_k="q8_0", kv_type_v="q8_0"))
    slim, wide = (found[f"attention:Q8_0:Q8_0:on:64:{s}:near"] for s in ("slim", "wide"))
    assert wide / (slim + wide) == pytest.approx(0.5437, abs=1e-3)


def test_a_prompt_counts_the_operations_of_attention_instead() -> None:
    read = attention()
    found = of(cache(read, batch=64), is_prompt=True)
    operations = 2 * 2 * 8 * 128 * 400
    assert found == {f"prompt:{ON}:64": 64 * operations, "token": 1}


def test_a_recurrence_reads_and_writes_its_state() -> None:
    traffic = replace(NOTHING, state_kind="delta", state_read_bytes=300, state_write_bytes=200)
    assert of(traffic) == {"state:delta": 500, "token": 1}
    assert {t.part for t in step_terms(traffic) if t.key == "state:delta"} == {"recurrent"}


@pytest.mark.parametrize(
    ("n_bytes", "shares"),
    [
        (50, {100: 1.0}),
        (100, {100: 1.0}),
        (175, {100: 0.25, 200: 0.75}),
        (200, {200: 1.0}),
        (300, {200: 0.5}),
        (400, {}),
        (4000, {}),
    ],
)
def test_the_cache_saves_less_and_less_of_models_larger_than_those_that_were_measured(
    n_bytes: int, shares: dict[int, float]
) -> None:
    found = of(weights(weight(n_bytes=n_bytes)), grid=Grid(cached_bytes=(100, 200)))
    assert {k: n for k, n in found.items() if k.startswith("cached@")} == pytest.approx(
        {f"cached@{size}": n_bytes * share for size, share in shares.items()}
    )


def test_what_a_cache_saves_was_seen_of_single_tokens_only() -> None:
    grid = Grid(tokens=(2,), cached_bytes=(10**6,))
    assert any("cached" in key for key in of(weights(weight()), grid=grid))
    assert not any("cached" in key for key in of(weights(weight(), batch=2), grid=grid))


MODELS = ("llama-3.1-8b:Q4_K_M", "qwen3-30b-a3b:Q4_K_M", "gemma-3-4b:Q4_0", "gpt-oss-20b:MXFP4_MOE")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("flash_attn", [True, False])
@pytest.mark.parametrize("depth", [0, 3000, 20_000])
def test_every_byte_of_a_model_is_in_one_key(model: str, flash_attn: bool, depth: int) -> None:
    traffic = compute_traffic(
        resolve_model(model), Setting(depth_tokens=depth, flash_attn=flash_attn)
    )
    terms = step_terms(traffic)
    assert {term.part for term in terms} <= set(PARTS)
    found = add_up(terms)
    for kind, prefix in (("matmul", "bytes"), ("experts", "experts")):
        by_type: dict[str, int] = {}
        for read in traffic.products:
            if read.kind == kind and read.role != "router":
                by_type[read.type] = by_type.get(read.type, 0) + read.n_bytes
        keys = {k: n for k, n in found.items() if k.startswith(f"{prefix}:")}
        assert keys == {f"{prefix}:{name}": n for name, n in by_type.items()}
    kv = sum(n for k, n in found.items() if k.startswith("kv:"))
    assert kv == pytest.approx(traffic.kv_touched_bytes if flash_attn else traffic.kv_read_bytes)
    passed = sum(n for k, n in found.items() if k.startswith("attention:"))
    assert passed == pytest.approx(
        sum(
            (a.k_bytes + a.v_bytes)
            * (a.touched_cells if flash_attn else a.cells)
            / a.cells
            * a.query_heads
            for a in traffic.attention
        )
    )
    assert found["product"] == traffic.matrix_products


COUNTS = st.integers(1, 200)
READS = st.builds(
    weight,
    role=st.sampled_from(["attention", "ffn", "output", "router", "experts", "norm"]),
    kind=st.sampled_from(["matmul", "experts", "vector", "rows"]),
    type=st.sampled_from(["Q4_K", "F16", "F32"]),
    rows=COUNTS,
    count=COUNTS,
    n_bytes=st.integers(1, 10**9),
    tokens=st.sampled_from([0.5, 1.0, 3.0, 100.0]),
)
CACHES = st.builds(
    attention,
    layers=COUNTS,
    heads=COUNTS,
    kv_heads=COUNTS,
    cells=st.sampled_from([0, 256, 9000]),
    touched_cells=st.sampled_from([0, 1, 256]),
    k_bytes=st.integers(0, 10**9),
    v_bytes=st.integers(0, 10**9),
)
TRAFFIC = st.builds(
    lambda reads, caches, state, flash: replace(
        NOTHING,
        weights=tuple(reads),
        attention=tuple(caches),
        state_kind="conv",
        state_read_bytes=state,
        setting=Setting(flash_attn=flash),
    ),
    st.lists(READS, max_size=4),
    st.lists(CACHES, max_size=3),
    st.integers(0, 10**6),
    st.booleans(),
)


@given(traffic=TRAFFIC, layers=st.integers(2, 5), is_prompt=st.booleans())
def test_amounts_are_never_negative_and_grow_with_the_layers(
    traffic: ModelTraffic, layers: int, is_prompt: bool
) -> None:
    """A model of so many times the layers has so many times everything but the token."""
    deep = replace(
        traffic,
        weights=tuple(
            replace(w, count=layers * w.count, n_bytes=layers * w.n_bytes) for w in traffic.weights
        ),
        attention=tuple(
            replace(
                a, layers=layers * a.layers, k_bytes=layers * a.k_bytes, v_bytes=layers * a.v_bytes
            )
            for a in traffic.attention
        ),
        state_read_bytes=layers * traffic.state_read_bytes,
    )
    grid = Grid(tokens=(2, 8))
    one = of(traffic, grid=grid, is_prompt=is_prompt)
    assert all(amount > 0 for amount in one.values())
    expected = {key: amount * (1 if key == "token" else layers) for key, amount in one.items()}
    assert of(deep, grid=grid, is_prompt=is_prompt) == pytest.approx(expected)
