"""cpubound.cost.rates: what a unit costs, at any thread count and of what was not measured."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import pytest
from builders import GB, build_engine, build_table

from cpubound.cost.rates import (
    EXPERTS_ERROR,
    NEIGHBOUR_ERROR,
    NEIGHBOURS,
    OTHER_BAND_ERROR,
    OTHER_HEAD_ERROR,
    OTHER_STORAGE_ERROR,
    UNMEASURED_BATCH_ERROR,
    Price,
    attention_rate,
    cost_of,
    find_price,
    grid_of,
    interpolate,
    measured_attention,
    measured_types,
    measures_batches,
    neighbours,
    table_at,
    weight_rate,
)
from cpubound.cost.terms import Grid, Term
from cpubound.model.quant import QUANT_TYPES, quant_type
from cpubound.profile.values import RateTable
from cpubound.setting import Setting

ON = "F16:F16:on"


def table(found: Mapping[str, float], threads: int = 2, error: float = 0.01) -> RateTable:
    return build_table(threads, {key: (seconds, error) for key, seconds in found.items()})


def price_of(found: Mapping[str, float], key: str) -> Price:
    price = find_price(table(found), key)
    assert price is not None
    return price


# Thread counts


def test_a_measured_thread_count_is_its_own_table() -> None:
    tables = [table({"token": 1.0}, threads) for threads in (1, 4)]
    assert table_at(tables, 4) is tables[1]
    assert table_at([], 4) is None


@pytest.mark.parametrize(
    ("threads", "rate", "cost"),
    [(2, 10.0, 1.0), (4, 20.0, 1.5), (6, 30.0, 2.0), (12, 30.0, 2.0), (1, 5.0, 1.0)],
)
def test_between_thread_counts_rates_and_costs_are_linear_and_held_beyond(
    threads: int, rate: float, cost: float
) -> None:
    """Below the first count a rate falls with the threads; a cost is what it was."""
    tables = [
        table({"bytes:Q4_K": 1 / 10.0, "product": 1.0}, 2),
        table({"bytes:Q4_K": 1 / 30.0, "product": 2.0}, 6),
    ]
    found = table_at(tables, threads)
    assert found is not None
    assert found.threads == threads
    assert 1 / found.seconds_of("bytes:Q4_K") == pytest.approx(rate)
    assert found.seconds_of("product") == pytest.approx(cost)


def test_what_the_cache_saves_is_interpolated_as_a_cost() -> None:
    tables = [table({"cached@100": -2.0}, 1), table({"cached@100": -4.0}, 3)]
    found = table_at(tables, 2)
    assert found is not None
    assert found.seconds_of("cached@100") == pytest.approx(-3.0)


def test_a_rate_that_costs_nothing_at_one_count_is_interpolated_in_seconds() -> None:
    tables = [table({"rows:Q4_K": 0.0}, 1), table({"rows:Q4_K": 4.0}, 3)]
    found = table_at(tables, 2)
    assert found is not None
    assert found.seconds_of("rows:Q4_K") == pytest.approx(2.0)


def test_only_what_every_count_knows_is_interpolated() -> None:
    tables = [table({"token": 1.0, "bytes:F16": 1.0}, 1), table({"token": 1.0}, 4)]
    found = table_at(tables, 2)
    assert found is not None
    assert found.keys == ("token",)


def test_errors_of_an_interpolated_table_are_relative_to_its_seconds() -> None:
    known = {"bytes:Q4_K": 1 / 10.0, "token": 4.0}
    covariance = ((1e-4, 2e-4), (2e-4, 9e-2))
    near = msgspec.structs.replace(table(known, 2), relative_errors=(), covariance=covariance)
    far = table({"bytes:Q4_K": 1 / 30.0, "token": 8.0}, 6)
    found = table_at([near, far], 3)
    assert found is not None
    for key in known:
        assert found.relative_error_of(key) == pytest.approx(near.relative_error_of(key))
    amounts, before = {"bytes:Q4_K": 15.0, "token": 1 / 1.25}, {"bytes:Q4_K": 10.0, "token": 1.0}
    assert found.variance_of(amounts) == pytest.approx(near.variance_of(before))
    separate = table_at([table(known, 2, 0.1), far], 3)
    assert separate is not None
    assert separate.relative_error_of("token") == pytest.approx(0.1)


def test_interpolation_is_exact_at_what_was_measured() -> None:
    points = {1: 3.0, 2: 5.0, 8: 9.0}
    assert {count: interpolate(points, count) for count in points} == points
    assert interpolate(points, 5) == pytest.approx(7.0)


# Adding up


def test_a_cost_is_the_sum_of_amounts_and_seconds_with_the_tables_covariance() -> None:
    covariance = ((4e-6, -1e-6), (-1e-6, 1e-6))
    known = msgspec.structs.replace(
        table({"bytes:Q4_K": 0.5, "token": 3.0}), relative_errors=(), covariance=covariance
    )
    terms = [Term("bytes:Q4_K", 10.0, "ffn"), Term("token", 1.0, "rest"), Term("token", 1.0, "ffn")]
    cost = cost_of(known, terms)
    assert cost.seconds == pytest.approx(10 * 0.5 + 2 * 3.0)
    assert cost.error_s == pytest.approx(math.sqrt(100 * 4e-6 + 4 * 1e-6 + 2 * 20 * -1e-6))
    assert cost.assumptions == ()
    assert cost.unpriced == ()


def test_what_stands_in_adds_its_own_error_and_is_said_once() -> None:
    terms = [Term("bytes:Q5_K", 8.0, "ffn"), Term("bytes:Q5_K", 2.0, "output")]
    cost = cost_of(table({"bytes:Q6_K": 1.0}, error=0.0), terms)
    seconds = 10 * 6.5625 / 5.5
    assert cost.seconds == pytest.approx(seconds)
    assert cost.error_s == pytest.approx(NEIGHBOUR_ERROR * seconds)
    assert cost.assumptions == ("Q5_K was not measured: time per weight taken from Q6_K",)


def test_what_nothing_stands_in_for_is_handed_back() -> None:
    terms = [Term("bytes:TQ2_0", 8.0, "ffn"), Term("state:wkv", 2.0, "recurrent")]
    cost = cost_of(table({"bytes:Q6_K": 1.0}), terms)
    assert cost.seconds == cost.error_s == 0
    assert {(t.key, t.amount) for t in cost.unpriced} == {("bytes:TQ2_0", 8.0), ("state:wkv", 2.0)}


@pytest.mark.parametrize("key", ["product", "token", "cached@100"])
def test_a_table_of_whole_rates_has_no_costs(key: str) -> None:
    assert price_of({"bytes:Q6_K": 1.0}, key) == Price(amounts={})


# Neighbours


@pytest.mark.parametrize(
    ("wanted", "measured", "taken", "error"),
    [
        ("Q4_K", ("Q4_0", "Q5_K"), "Q4_0", NEIGHBOUR_ERROR),  # both repacked
        ("Q5_K", ("Q4_K", "Q3_K"), "Q3_K", NEIGHBOUR_ERROR),  # neither, though Q4_K is as near
        ("Q3_K", ("Q2_K", "Q5_K"), "Q5_K", NEIGHBOUR_ERROR),  # Q2_K is nearer, but repacked
        ("Q6_K", ("Q2_K",), "Q2_K", OTHER_STORAGE_ERROR),
        ("IQ4_NL", ("Q4_0", "MXFP4"), "Q4_0", NEIGHBOUR_ERROR),
        ("IQ4_XS", ("Q4_1", "Q8_0"), "Q8_0", NEIGHBOUR_ERROR),
        ("IQ2_S", ("IQ3_XXS", "IQ1_M"), "IQ3_XXS", NEIGHBOUR_ERROR),
        ("BF16", ("F16", "F32"), "F16", NEIGHBOUR_ERROR),
    ],
)
def test_the_nearest_type_that_is_stored_alike_stands_in(
    wanted: str, measured: tuple[str, ...], taken: str, error: float
) -> None:
    price = price_of({f"bytes:{name}": 1.0 for name in measured}, f"bytes:{wanted}")
    ratio = quant_type(taken).bits_per_weight / quant_type(wanted).bits_per_weight
    assert price.amounts == pytest.approx({f"bytes:{taken}": ratio})
    assert price.extra_error == error
    assert price.assumption is not None
    assert wanted in price.assumption
    assert taken in price.assumption


def test_a_type_that_was_measured_stands_for_itself() -> None:
    price = price_of({"bytes:Q4_K": 1.0, "bytes:Q4_0": 2.0}, "bytes:Q4_K")
    assert price == Price(amounts={"bytes:Q4_K": 1.0})


@pytest.mark.parametrize(("wanted", "taken"), [("F32", "F16"), ("F32", "BF16"), ("F16", "F32")])
def test_f32_goes_at_the_bytes_per_second_of_the_half_types(wanted: str, taken: str) -> None:
    assert price_of({f"bytes:{taken}": 1.0}, f"bytes:{wanted}").amounts == {f"bytes:{taken}": 1.0}


def test_rows_go_with_the_bytes_of_the_same_neighbour() -> None:
    known = {"bytes:Q4_1": 1.0, "rows:Q4_1": 2.0, "rows:Q8_0": 3.0}
    assert price_of(known, "rows:Q5_0") == Price(amounts={"rows:Q4_1": 1.0})
    assert price_of({"bytes:Q4_1": 1.0, "rows:Q8_0": 3.0}, "rows:Q5_0").amounts == {}
    assert price_of({"token": 1.0}, "rows:Q5_0").amounts == {}


def test_every_type_of_a_model_has_some_neighbour_and_is_none_of_its_own() -> None:
    listed = {name for row in NEIGHBOURS for name in row}
    for name in listed:
        others = [other for other, _ in neighbours(name)]
        assert others
        assert name not in others
    assert list(neighbours("I8")) == []
    named = {quant.name for quant in QUANT_TYPES}
    assert listed <= named
    # Types of integers, of doubles and of ggml's newest have none.
    assert named - listed == {"I8", "I16", "I32", "I64", "F64", "NVFP4", "Q1_0", "Q2_0"}


# Batches


def test_batches_of_a_type_take_those_of_its_neighbour() -> None:
    price = price_of({"bytes:Q5_K": 1.0, "bytes:Q6_K@8": 2.0, "bytes:Q6_K": 1.0}, "bytes:Q5_K@8")
    assert price.amounts == pytest.approx({"bytes:Q6_K@8": 6.5625 / 5.5})
    assert price.extra_error == NEIGHBOUR_ERROR


def test_batches_that_nobody_measured_are_taken_as_free_and_very_unsure() -> None:
    price = price_of({"bytes:Q4_K": 1.0}, "bytes:Q4_K@8")
    assert price.amounts == {"bytes:Q4_K": 1.0}
    assert price.extra_error == UNMEASURED_BATCH_ERROR
    assert price.assumption == "batches of Q4_K were not measured: taken as free"
    assert find_price(table({"token": 1.0}), "bytes:Q4_K@8") is None


def test_where_rates_were_measured_is_read_from_the_keys() -> None:
    known = {f"bytes:Q4_K@{n}": 1.0 for n in (16, 4)} | {"bytes:Q4_K": 1.0, "cached@300": -1.0}
    assert grid_of(table(known)) == Grid(tokens=(4, 16), cached_bytes=(300,))
    assert grid_of(table({"token": 1.0})) == Grid()


# Experts


def test_experts_take_the_rate_of_dense_matrices_as_other_experts_stand_to_theirs() -> None:
    known = {
        "bytes:Q4_K": 1.0,
        "experts:Q4_K": 2.0,
        "bytes:Q6_K": 1.0,
        "experts:Q6_K": 4.0,
        "bytes:Q8_0": 10.0,
    }
    price = price_of(known, "experts:Q8_0")
    assert price.amounts == pytest.approx({"bytes:Q8_0": 3.0})
    assert price.extra_error == pytest.approx(EXPERTS_ERROR)
    assert str(price.assumption).endswith("scaled as those of other types")


def test_experts_alone_take_the_rate_of_dense_matrices() -> None:
    price = price_of({"bytes:Q8_0": 10.0}, "experts:Q8_0")
    assert price.amounts == {"bytes:Q8_0": 1.0}
    assert "scaled" not in str(price.assumption)


def test_experts_of_a_type_without_rates_take_a_neighbours_with_both_errors() -> None:
    price = price_of({"bytes:Q6_K": 1.0}, "experts:Q5_K")
    assert price.amounts == pytest.approx({"bytes:Q6_K": 6.5625 / 5.5})
    assert price.extra_error == pytest.approx(math.hypot(NEIGHBOUR_ERROR, EXPERTS_ERROR))
    assert find_price(table({"bytes:Q6_K": 1.0}), "experts:TQ1_0") is None


def test_experts_measured_without_dense_matrices_scale_nothing() -> None:
    price = price_of({"bytes:Q8_0": 1.0, "experts:MXFP4": 3.0}, "experts:Q8_0")
    assert price.amounts == {"bytes:Q8_0": 1.0}


# Attention


@pytest.mark.parametrize(
    ("wanted", "taken", "error"),
    [
        ("64:slim:near", "64:slim:near", 0.0),
        ("96:slim:near", "128:slim:near", OTHER_HEAD_ERROR),
        ("80:slim:near", "64:slim:near", OTHER_HEAD_ERROR),
        ("64:wide:near", "64:slim:near", OTHER_HEAD_ERROR),
        ("64:slim:deep", "64:slim:near", OTHER_BAND_ERROR),
        ("64:slim:far", "64:slim:near", 2 * OTHER_BAND_ERROR),
        ("128:wide:far", "128:slim:deep", math.hypot(OTHER_HEAD_ERROR, OTHER_BAND_ERROR)),
        ("256:slim:deep", "128:slim:deep", OTHER_HEAD_ERROR),
    ],
)
def test_attention_takes_the_nearest_head_then_band_then_stride(
    wanted: str, taken: str, error: float
) -> None:
    known = {f"attention:{ON}:{name}": 1.0 for name in ("64:slim:near", "128:slim:near")}
    known[f"attention:{ON}:128:slim:deep"] = 1.0
    price = price_of(known, f"attention:{ON}:{wanted}")
    assert price.amounts == {f"attention:{ON}:{taken}": 1.0}
    assert price.extra_error == pytest.approx(error)


def test_the_band_counts_more_than_the_stride() -> None:
    known = {f"attention:{ON}:64:slim:near": 1.0, f"attention:{ON}:64:wide:deep": 1.0}
    price = price_of(known, f"attention:{ON}:64:slim:deep")
    assert price.amounts == {f"attention:{ON}:64:wide:deep": 1.0}


def test_another_setting_never_stands_in() -> None:
    known = table({f"attention:{ON}:64:slim:near": 1.0, f"kv:{ON}:64": 1.0})
    for setting in ("F16:F16:off", "Q8_0:Q8_0:on"):
        assert find_price(known, f"attention:{setting}:64:slim:near") is None
        assert find_price(known, f"kv:{setting}:64") is None
        assert find_price(known, f"prompt:{setting}:64") is None


def test_the_cache_itself_takes_the_nearest_head_or_is_in_the_query_heads_part() -> None:
    known = {f"kv:{ON}:64": 1.0, f"kv:{ON}:256": 1.0, f"attention:{ON}:64:slim:near": 1.0}
    assert price_of(known, f"kv:{ON}:128").amounts in ({f"kv:{ON}:64": 1.0}, {f"kv:{ON}:256": 1.0})
    assert price_of(known, f"kv:{ON}:192").amounts == {f"kv:{ON}:256": 1.0}
    assert price_of({f"attention:{ON}:64:slim:near": 1.0}, f"kv:{ON}:128").amounts == {}


def test_attention_of_a_prompt_takes_the_nearest_head() -> None:
    price = price_of({f"prompt:{ON}:64": 1.0, f"prompt:{ON}:128": 2.0}, f"prompt:{ON}:96")
    assert price.amounts == {f"prompt:{ON}:128": 1.0}
    assert price.extra_error == OTHER_HEAD_ERROR


def test_attention_of_a_prompt_that_was_not_measured_is_as_if_each_token_were_decoded() -> None:
    """An element of F16 is two bytes, multiplied and added: a byte is an operation."""
    price = price_of({f"attention:{ON}:64:wide:near": 1.0}, f"prompt:{ON}:64")
    assert price.amounts == {f"attention:{ON}:64:wide:near": 1.0}
    assert price.extra_error == UNMEASURED_BATCH_ERROR
    assert "upper bound" in str(price.assumption)
    quantised = price_of({"attention:Q8_0:Q8_0:on:64:wide:near": 1.0}, "prompt:Q8_0:Q8_0:on:64")
    assert quantised.amounts == pytest.approx({"attention:Q8_0:Q8_0:on:64:wide:near": 8.5 / 16})


def test_no_state_stands_in_for_another() -> None:
    assert find_price(table({"state:mamba2": 1.0}), "state:delta") is None
    assert price_of({"state:delta": 1.0}, "state:delta").amounts == {"state:delta": 1.0}


# Rates as reports and advice show them


def test_a_rate_of_weights_holds_the_rows_of_its_length() -> None:
    engine = build_engine({"Q8_0": {2: 10.0 * GB}}, seconds={"rows:Q8_0": 1e-8})
    row_bytes = 1024 * 8.5 / 8
    rate = weight_rate(engine, "Q8_0", 1024, 2)
    assert rate is not None
    assert rate.bytes_per_s == pytest.approx(1 / (1e-10 + 1e-8 / row_bytes))
    assert rate.assumption is None
    longer = weight_rate(engine, "Q8_0", 65_536, 2)
    assert longer is not None
    assert rate.bytes_per_s < longer.bytes_per_s < 10.0 * GB


def test_a_rate_of_a_neighbour_says_so_and_one_of_nothing_is_none() -> None:
    engine = build_engine({"Q8_0": {2: 10.0 * GB}})
    rate = weight_rate(engine, "Q5_1", 1024, 2)
    assert rate is not None
    assert rate.bytes_per_s == pytest.approx(10.0 * GB * 6.0 / 8.5)
    assert rate.relative_error == pytest.approx(math.hypot(0.01, NEIGHBOUR_ERROR), rel=0.01)
    assert rate.assumption is not None
    assert weight_rate(engine, "TQ1_0", 1024, 2) is None
    assert weight_rate(build_engine({}), "Q8_0", 1024, 2) is None


def test_a_rate_of_attention_grows_less_with_fewer_query_heads() -> None:
    engine = build_engine(
        {"Q8_0": {2: GB}},
        seconds={f"kv:{ON}:64": 1e-10, f"attention:{ON}:64:wide:near": 2e-10},
    )
    rate = attention_rate(engine, Setting(threads=2), 64)
    alone = attention_rate(engine, Setting(threads=2), 64, query_heads=1)
    assert rate is not None
    assert alone is not None
    assert 1 / rate.bytes_per_s == pytest.approx(9e-10)
    assert 1 / alone.bytes_per_s == pytest.approx(3e-10)
    assert attention_rate(engine, Setting(threads=2, flash_attn=False), 64) is None


def test_what_was_measured_is_listed() -> None:
    engine = build_engine(
        {"Q8_0": {1: GB, 2: GB}, "Q4_K": {2: GB}},
        attention={("f16", "f16", True): GB, ("q8_0", "q8_0", True): GB},
        seconds={"experts:MXFP4": 1e-9},
    )
    assert measured_types(engine) == ("Q8_0", "Q4_K")
    assert measured_attention(engine) == (
        ("F16", "F16", True, 64),
        ("Q8_0", "Q8_0", True, 64),
    )
    assert not measures_batches(engine)
    assert not measures_batches(None)
    assert measures_batches(build_engine({"Q8_0": {2: GB}}, seconds={"bytes:Q8_0@4": 1e-9}))
