from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import pytest
from builders import GB, build_engine, build_measurement, build_profile, build_traffic

from cpubound.cost.decode import predict_decode
from cpubound.cost.estimated_engine import estimate_engine
from cpubound.cost.rates import (
    engine_cost,
    expert_rate,
    memory_shares_at,
    weight_rate,
)
from cpubound.errors import ProfileError, UsageError
from cpubound.profile.values import EngineRate

BANDWIDTH = {1: 20.0 * GB, 2: 30.0 * GB}
GEMV_Q4_K = build_measurement(2, 18.0 * GB, kernel="gemv_q4_k")
RATES = {"Q4_0": {1: 10.0 * GB, 2: 20.0 * GB}, "Q6_K": {1: 5.0 * GB, 2: 10.0 * GB}}


def test_time_is_the_sum_of_bytes_over_rates_and_the_fixed_costs() -> None:
    profile = build_profile(
        BANDWIDTH,
        build_engine(
            RATES,
            per_token_s=1e-3,
            per_product_s=1e-4,
            attention={("f16", "f16", True): 2.0 * GB},
        ),
    )
    traffic = build_traffic(
        {"Q4_0": 400_000_000, "Q6_K": 100_000_000}, products=20, kv_bytes=20_000_000
    )
    p = predict_decode(profile, traffic, 2)
    assert p.seconds.weights == pytest.approx(0.4 / 20 + 0.1 / 10)
    assert p.seconds.attention == pytest.approx(0.02 / 2)
    assert p.seconds.overhead == pytest.approx(1e-3 + 20 * 1e-4)
    assert p.tokens_per_s == pytest.approx(1 / p.seconds.total)
    assert p.basis == "engine"
    assert p.ceiling_tokens_per_s == pytest.approx(30 / 0.52)
    assert p.low < p.tokens_per_s < p.high


def test_without_an_engine_stage_the_textbook_formula_is_the_basis() -> None:
    p = predict_decode(build_profile(BANDWIDTH), build_traffic({"Q4_0": 600_000_000}), 2)
    assert p.basis == "ceiling"
    assert p.tokens_per_s == pytest.approx(p.ceiling_tokens_per_s) == pytest.approx(50)
    assert p.low < 0.5 * p.tokens_per_s


def test_own_kernels_are_the_basis_where_only_they_were_measured() -> None:
    gemv = build_measurement(2, 15.0 * GB, kernel="gemv_q4_0")
    profile = build_profile(BANDWIDTH)
    profile = msgspec.structs.replace(profile, bandwidth=(*profile.bandwidth, gemv))
    p = predict_decode(profile, build_traffic({"Q4_0": 600_000_000}), 2)
    estimated = estimate_engine(profile, 2)
    assert estimated is not None
    rate = weight_rate(estimated, "Q4_0", 1, 2)
    cost = engine_cost(estimated, 2)
    assert rate is not None
    assert p.basis == "kernel"
    assert p.seconds.weights == pytest.approx(0.6 * GB / rate.bytes_per_s)
    assert p.seconds.overhead == pytest.approx(
        cost.seconds_per_token + 10 * cost.seconds_per_product
    )
    assert p.high / p.low > 1.3
    assert "how llama.cpp stands to our kernels" in p.assumptions[0]


def test_a_type_that_was_not_measured_takes_the_time_per_weight_of_its_family() -> None:
    profile = build_profile(BANDWIDTH, build_engine({"Q4_K": {2: 18.0 * GB}}))
    p = predict_decode(profile, build_traffic({"Q5_K": 550_000_000}), 2)
    assert p.tokens_per_s == pytest.approx(1 / (0.55 / (18 * 5.5 / 4.5)))
    assert any("Q5_K was not measured" in a for a in p.assumptions)


def test_a_thread_count_between_two_measured_ones_is_interpolated_and_said() -> None:
    profile = build_profile(
        {1: 20.0 * GB, 4: 40.0 * GB}, build_engine({"Q4_0": {1: 10.0 * GB, 4: 40.0 * GB}})
    )
    p = predict_decode(profile, build_traffic({"Q4_0": 200_000_000}), 2)
    assert p.tokens_per_s == pytest.approx(100)
    assert any("interpolated" in a for a in p.assumptions)


def test_more_threads_than_effective_cpus_are_predicted_with_a_word() -> None:
    p = predict_decode(build_profile(BANDWIDTH), build_traffic({"Q4_0": 10**9}), 8)
    assert any("effective CPUs" in a for a in p.assumptions)


@pytest.mark.parametrize(
    ("rates", "kv_bytes", "per_token", "bound"),
    [
        ({"Q4_0": {2: 29.0 * GB}}, 0, 0.0, "memory"),
        ({"Q4_0": {2: 10.0 * GB}}, 0, 0.0, "kernel"),
        ({"Q4_0": {2: 29.0 * GB}}, 10**8, 0.0, "attention"),
        ({"Q4_0": {2: 29.0 * GB}}, 0, 1.0, "overhead"),
    ],
)
def test_the_largest_part_is_named_as_what_binds(
    rates: dict[str, dict[int, float]], kv_bytes: int, per_token: float, bound: str
) -> None:
    engine = build_engine(rates, per_token_s=per_token, attention={("f16", "f16", True): 1.0 * GB})
    traffic = build_traffic({"Q4_0": 10**9}, kv_bytes=kv_bytes)
    assert predict_decode(build_profile(BANDWIDTH, engine), traffic, 2).bound == bound


def test_a_noisy_machine_gets_a_wider_interval() -> None:
    from cpubound.profile.values import judge_noise

    traffic = build_traffic({"Q4_0": 10**9})
    engine = build_engine(RATES)
    quiet = predict_decode(build_profile(BANDWIDTH, engine), traffic, 2)
    weather = judge_noise((0.7, 1.0, 1.3) * 5, 10.0)
    noisy = predict_decode(build_profile(BANDWIDTH, engine, noise=weather), traffic, 2)
    assert math.log(noisy.high / noisy.low) > 2 * math.log(quiet.high / quiet.low)
    assert any("noisy" in a for a in noisy.assumptions)


@pytest.mark.parametrize("seen", [{"noise": 0.2}, {"residual": 0.2}])
def test_what_calibration_saw_of_itself_widens_the_interval(seen: dict[str, float]) -> None:
    traffic = build_traffic({"Q4_0": 10**9})
    sure = predict_decode(build_profile(BANDWIDTH, build_engine(RATES)), traffic, 2)
    engine = msgspec.structs.replace(build_engine(RATES), **seen)
    unsure = predict_decode(build_profile(BANDWIDTH, engine), traffic, 2)
    assert unsure.tokens_per_s == sure.tokens_per_s
    assert unsure.low < 0.8 * sure.low
    # In the logarithm the interval is symmetric.
    assert unsure.high / unsure.tokens_per_s == pytest.approx(unsure.tokens_per_s / unsure.low)


def test_a_model_larger_than_the_memory_is_said_not_to_fit() -> None:
    profile = build_profile(BANDWIDTH)
    assert predict_decode(profile, build_traffic({"Q4_0": 10**9}), 1).fits_in_memory is True
    assert predict_decode(profile, build_traffic({"Q4_0": 10**11}), 1).fits_in_memory is False


def test_no_threads_are_refused() -> None:
    profile = build_profile(BANDWIDTH)
    with pytest.raises(UsageError, match="threads"):
        predict_decode(profile, build_traffic({"Q4_0": 1}), 0)


def test_a_profile_without_bandwidth_is_refused() -> None:
    copies = (build_measurement(1, 1e9, kernel="copy"),)
    empty = msgspec.structs.replace(build_profile(BANDWIDTH), bandwidth=copies)
    with pytest.raises(ProfileError, match="calibrate"):
        predict_decode(empty, build_traffic({"Q4_0": 1}), 1)


def test_own_kernels_stand_in_for_the_types_of_their_family() -> None:
    profile = msgspec.structs.replace(
        build_profile(BANDWIDTH), bandwidth=(*build_profile(BANDWIDTH).bandwidth, GEMV_Q4_K)
    )
    p = predict_decode(profile, build_traffic({"Q6_K": 656_250_000}), 2)
    q5_k = predict_decode(profile, build_traffic({"Q5_K": 550_000_000}), 2)
    assert p.basis == q5_k.basis == "kernel"
    # As many weights: Q6_K has no kernel of ours here, Q5_K is told by that of Q4_K.
    assert p.seconds.weights == pytest.approx(q5_k.seconds.weights)
    assert any("taken from Q5_K" in a for a in p.assumptions)


def test_a_batch_predicted_from_own_kernels_gains_but_not_for_free() -> None:
    profile = msgspec.structs.replace(
        build_profile(BANDWIDTH), bandwidth=(*build_profile(BANDWIDTH).bandwidth, GEMV_Q4_K)
    )
    traffic = build_traffic({"Q4_K": 10**9})
    shared = tuple(replace(read, tokens=4.0) for read in traffic.weights)
    one = predict_decode(profile, traffic, 2)
    four = predict_decode(profile, replace(traffic, batch=4, weights=shared), 2)
    assert four.basis == "kernel"
    assert one.tokens_per_s < four.tokens_per_s < 4 * one.tokens_per_s
    assert four.high / four.low > one.high / one.low
    assert not any("taken as free" in a for a in four.assumptions)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_experts_of_a_type_are_scaled_as_those_of_others_at_every_thread_count(
    threads: int,
) -> None:
    dense = build_engine({name: {1: 10.0 * GB, 4: 40.0 * GB} for name in ("Q4_K", "Q5_K")})
    half = tuple(
        msgspec.structs.replace(row, kind="experts", bytes_per_s=row.bytes_per_s / 2)
        for row in dense.rates
        if row.type == "Q4_K"
    )
    engine = msgspec.structs.replace(dense, rates=(*dense.rates, *half))
    rate = expert_rate(engine, "Q5_K", 2048, threads)
    assert rate is not None
    assert rate.bytes_per_s == pytest.approx(5.0 * GB * threads)
    assert "scaled" in str(rate.assumption)
    alone = expert_rate(dense, "Q5_K", 2048, threads)
    assert alone is not None
    assert alone.bytes_per_s == pytest.approx(10.0 * GB * threads)
    assert "scaled" not in str(alone.assumption)


def test_rates_are_taken_at_the_length_of_the_rows() -> None:
    engine = build_engine({"Q4_0": {2: 10.0 * GB}})
    short = msgspec.structs.replace(engine.rates[0], columns=512, bytes_per_s=5.0 * GB)
    engine = msgspec.structs.replace(engine, rates=(*engine.rates, short))
    profile = build_profile(BANDWIDTH, engine)
    # The builder's rows have one column, a length below the shortest that was measured.
    p = predict_decode(profile, build_traffic({"Q4_0": 10**9}), 2)
    assert p.seconds.weights == pytest.approx(1 / 5)


def test_what_the_cache_keeps_is_taken_off_the_memory_bound_part() -> None:
    engine = build_engine({"Q4_0": {2: 20.0 * GB}, "Q6_K": {2: 10.0 * GB}})
    costs = tuple(msgspec.structs.replace(c, cache_saved_s=4e-3) for c in engine.costs)
    profile = build_profile(BANDWIDTH, msgspec.structs.replace(engine, costs=costs))
    fast = predict_decode(profile, build_traffic({"Q4_0": 10**9}), 2)
    slow = predict_decode(profile, build_traffic({"Q6_K": 10**9}), 2)
    assert fast.seconds.weights == pytest.approx(1 / 20 - 4e-3)
    assert slow.seconds.weights == pytest.approx(1 / 10 - 1e-3)


def test_a_type_that_only_experts_were_measured_in_has_no_memory_share() -> None:
    engine = build_engine({"Q8_0": {1: 10 * GB}})
    experts = EngineRate(
        type="MXFP4", threads=1, columns=1, bytes_per_s=5e9, relative_error=0.01, kind="experts"
    )
    both = msgspec.structs.replace(engine, rates=(*engine.rates, experts))
    assert memory_shares_at(both, 1) == memory_shares_at(engine, 1)
