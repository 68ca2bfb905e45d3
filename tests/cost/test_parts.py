"""cpubound.cost.parts: the parts of a prediction, which are together the prediction."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from builders import (
    GB,
    build_engine,
    build_measurement,
    build_profile,
    build_traffic,
)

from cpubound.cost.decode import predict_decode
from cpubound.cost.parts import predict_parts
from cpubound.model.parts import PARTS, bytes_by_part
from cpubound.model.values import ModelTraffic, WeightRead


def read(role: str, n_bytes: int, kind: str = "matmul", type_: str = "Q4_K") -> WeightRead:
    return WeightRead(
        role=role, kind=kind, type=type_, rows=2048, columns=2048, count=4, n_bytes=n_bytes
    )


@pytest.fixture
def mixture() -> ModelTraffic:
    return replace(
        build_traffic({"Q4_K": 1}, kv_bytes=2 * 10**7),
        weights=(
            read("attention", 10**8),
            read("experts", 3 * 10**8, "experts"),
            read("router", 10**6, type_="F32"),
            read("recurrent", 5 * 10**7),
            read("output", 2 * 10**8, type_="Q6_K"),
            read("norm", 10**5, "vector", "F32"),
            read("embedding", 4096, "rows"),
        ),
        state_read_bytes=10**6,
        state_write_bytes=10**6,
    )


ENGINE = build_engine(
    {"Q4_K": {2: 20 * GB}, "Q6_K": {2: 25 * GB}, "F32": {2: 30 * GB}},
    per_token_s=2e-4,
    per_product_s=1e-5,
    attention={("f16", "f16", True): 5 * GB},
)
CEILING = build_profile({1: 12 * GB, 2: 40 * GB})
PROFILES = {
    "engine": build_profile({1: 12 * GB, 2: 40 * GB}, ENGINE),
    "ceiling": CEILING,
    "kernel": msgspec.structs.replace(
        CEILING, bandwidth=(*CEILING.bandwidth, build_measurement(2, 18 * GB, kernel="gemv_q4_k"))
    ),
}


@pytest.mark.parametrize("basis", PROFILES)
def test_the_parts_sum_up_to_the_prediction(basis: str, mixture: ModelTraffic) -> None:
    whole = predict_decode(PROFILES[basis], mixture, 2)
    assert whole.basis == basis
    parts = predict_parts(PROFILES[basis], mixture, 2)
    assert sum(p.seconds for p in parts.values()) == pytest.approx(whole.seconds.total)
    assert list(parts) == [part for part in PARTS if part in parts]


@pytest.mark.parametrize("basis", PROFILES)
def test_every_part_lies_inside_its_interval(basis: str, mixture: ModelTraffic) -> None:
    for part in predict_parts(PROFILES[basis], mixture, 2).values():
        assert 0 < part.low < part.seconds < part.high


def test_a_part_takes_its_bytes_over_its_rate_and_its_products(mixture: ModelTraffic) -> None:
    parts = predict_parts(PROFILES["engine"], mixture, 2)
    assert parts["output"].seconds == pytest.approx(2e8 / (25 * GB) + 4e-5)
    assert parts["experts"].seconds == pytest.approx(3e8 / (20 * GB) + 1e6 / (30 * GB) + 16e-5)
    assert parts["rest"].seconds == pytest.approx(2e-4)
    assert parts["recurrent"].seconds == pytest.approx(5e7 / (20 * GB) + 2e6 / (40 * GB) + 4e-5)


def test_what_a_layer_of_experts_costs_is_a_cost_of_the_experts(mixture: ModelTraffic) -> None:
    costs = tuple(msgspec.structs.replace(c, seconds_per_expert_layer=1e-3) for c in ENGINE.costs)
    costly = build_profile({2: 40 * GB}, msgspec.structs.replace(ENGINE, costs=costs))
    before = predict_parts(build_profile({2: 40 * GB}, ENGINE), mixture, 2)
    after = predict_parts(costly, mixture, 2)
    added = {part: after[part].seconds - before[part].seconds for part in after}
    assert added.pop("experts") == pytest.approx(1e-3 * mixture.expert_layers)
    assert all(seconds == pytest.approx(0, abs=1e-12) for seconds in added.values())
    whole = predict_decode(costly, mixture, 2)
    assert sum(p.seconds for p in after.values()) == pytest.approx(whole.seconds.total)


def test_what_the_cache_keeps_is_taken_off_all_weights_alike(mixture: ModelTraffic) -> None:
    costs = tuple(msgspec.structs.replace(c, cache_saved_s=2e-3) for c in ENGINE.costs)
    engine = msgspec.structs.replace(ENGINE, costs=costs)
    profile = build_profile({2: 40 * GB}, engine)
    whole = predict_decode(profile, mixture, 2)
    parts = predict_parts(profile, mixture, 2)
    assert whole.seconds.total < predict_decode(PROFILES["engine"], mixture, 2).seconds.total
    assert sum(p.seconds for p in parts.values()) == pytest.approx(whole.seconds.total)


def test_a_model_without_a_cache_has_no_attention(mixture: ModelTraffic) -> None:
    bare = replace(mixture, attention=(), kv_write_bytes=0)
    assert "attention" not in predict_parts(PROFILES["engine"], bare, 2)


@pytest.mark.parametrize("basis", ["engine", "kernel"])
def test_an_uncertain_state_makes_attention_no_less_certain(
    basis: str, mixture: ModelTraffic
) -> None:
    """The state of this mixture is taken at read bandwidth: half of it is its error."""
    profile = PROFILES[basis]
    stateful = replace(mixture, state_read_bytes=10**8)
    stateless = replace(mixture, state_read_bytes=0, state_write_bytes=0)
    with_state = predict_parts(profile, stateful, 2)["attention"]
    alone = predict_parts(profile, stateless, 2)["attention"]
    assert (with_state.seconds, with_state.low, with_state.high) == pytest.approx(
        (alone.seconds, alone.low, alone.high)
    )


def test_every_byte_of_a_step_belongs_to_one_part(mixture: ModelTraffic) -> None:
    assert sum(bytes_by_part(mixture).values()) == (
        mixture.total_bytes - mixture.kv_read_bytes + mixture.kv_touched_bytes
    )
