"""cpubound.cost.predict: a prediction is amounts times seconds, of whichever table is deepest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from builders import GB, build_engine, build_measurement, build_profile, build_traffic

from cpubound.cost.interval import NORMAL_90
from cpubound.cost.predict import (
    UNMEASURED_ERROR,
    choose_basis,
    predict_decode,
    predict_parts,
    predict_prompt,
    weights_bandwidth,
)
from cpubound.cost.terms import add_up, step_terms
from cpubound.cost.transfer import Ratio, Transfer
from cpubound.errors import ProfileError, UsageError
from cpubound.model.parts import PARTS
from cpubound.model.resolve import resolve_model
from cpubound.model.traffic import compute_traffic, prompt_steps
from cpubound.model.values import ModelTraffic, WeightRead
from cpubound.profile.values import MachineProfile, judge_noise
from cpubound.setting import Setting

BANDWIDTH = {1: 20.0 * GB, 2: 30.0 * GB}
RATES = {"Q4_0": {1: 10.0 * GB, 2: 20.0 * GB}, "Q6_K": {1: 5.0 * GB, 2: 10.0 * GB}}
ON = "F16:F16:on"
# What a unit of every kind costs on the machine of the hand-made sums.
SECONDS = {
    "rows:Q4_K": 3e-9,
    "rows:Q6_K": 5e-9,
    "experts:Q4_K": 1 / (15 * GB),
    "bytes:Q4_K@4": 1 / (12 * GB),
    "bytes:Q4_K@16": 1 / (4 * GB),
    "bytes:Q6_K@4": 1 / (11 * GB),
    "bytes:Q6_K@16": 1 / (3 * GB),
    f"kv:{ON}:128": 1 / (40 * GB),
    f"attention:{ON}:128:slim:near": 1 / (20 * GB),
    f"attention:{ON}:128:slim:deep": 1 / (18 * GB),
    f"attention:{ON}:128:slim:far": 1 / (15 * GB),
    f"attention:{ON}:128:wide:near": 1 / (16 * GB),
    f"attention:{ON}:128:wide:deep": 1 / (12 * GB),
    f"attention:{ON}:128:wide:far": 1 / (7 * GB),
    f"prompt:{ON}:128": 1 / (100 * GB),
    "state:mamba2": 1 / (9 * GB),
}
ENGINE = build_engine(
    {"Q4_K": {2: 20 * GB}, "Q6_K": {2: 25 * GB}, "F32": {2: 30 * GB}},
    per_token_s=2e-4,
    per_product_s=1e-5,
    seconds=SECONDS,
)
# The shipped ratios change with the machines they were measured on; these do not.
TRANSFERS = {
    "x86": Transfer(
        measured="by hand",
        cpus=("AuthenticAMD 26/2",),
        kernel_isas=("avx2",),
        ratios={
            "bytes:Q4_K": Ratio(kernel="Q4_K", one=1.25, two=1.5, error=0.05),
            "bytes:Q6_K": Ratio(kernel="Q4_K", one=1.0, two=1.2, error=0.05),
            "bytes:Q4_K@4": Ratio(kernel="Q4_K", one=2.0, two=2.4, error=0.05),
            "product": Ratio(one=1e5, two=1.5e5, error=0.1),
            "token": Ratio(one=2e6, two=2e6, error=0.1),
        },
    )
}


@pytest.fixture(autouse=True)
def _own_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cpubound.cost.transfer.read_transfers", lambda: TRANSFERS)


def with_kernel(profile: MachineProfile, name: str = "q4_k", **changes: Any) -> MachineProfile:
    rows = [build_measurement(t, t * 9.0 * GB, kernel=f"gemv_{name}", **changes) for t in (1, 2)]
    return msgspec.structs.replace(profile, bandwidth=(*profile.bandwidth, *rows))


PROFILES = {
    "engine": build_profile(BANDWIDTH, ENGINE),
    "kernel": with_kernel(build_profile(BANDWIDTH)),
    "ceiling": build_profile(BANDWIDTH),
}


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
        state_kind="mamba2",
        state_read_bytes=10**6,
        state_write_bytes=10**6,
    )


# The sum


def by_hand(amounts: Mapping[str, float], seconds: Mapping[str, float]) -> float:
    return sum(amount * seconds[key] for key, amount in amounts.items())


@pytest.mark.parametrize("depth", [0, 700, 4000, 20_000])
@pytest.mark.parametrize("model", ["llama-3.1-8b:Q4_K_M", "qwen3-30b-a3b:Q4_K_M"])
def test_a_prediction_is_the_sum_of_amounts_and_seconds(model: str, depth: int) -> None:
    traffic = compute_traffic(resolve_model(model), Setting(depth_tokens=depth))
    (table,) = ENGINE.tables
    amounts = add_up(step_terms(traffic))
    experts_like_q4_k = {**table.by_key, "experts:Q6_K": SECONDS["experts:Q4_K"] * 20 / 25}
    p = predict_decode(PROFILES["engine"], traffic, 2)
    assert p.basis == "engine"
    assert p.tokens_per_s == pytest.approx(1 / by_hand(amounts, experts_like_q4_k))
    assert p.seconds.total == pytest.approx(1 / p.tokens_per_s)


def test_the_seconds_of_a_step_are_those_of_weights_attention_and_the_rest(
    mixture: ModelTraffic,
) -> None:
    seconds = predict_decode(PROFILES["engine"], mixture, 2).seconds
    rows = 4 * 2048
    weights = 1.5e8 / (20 * GB) + 3e8 / (15 * GB) + 2e8 / (25 * GB) + rows * (3 * 3e-9 + 5e-9)
    # 256 cells of 39 KB of K each: near, and wide; four query heads to a KV head.
    kv = 2e7 / (40 * GB) + 4 * 2e7 / (16 * GB)
    assert seconds.weights == pytest.approx(weights)
    assert seconds.attention == pytest.approx(kv + 2e6 / (9 * GB), rel=1e-6)
    # Four products each of attention, recurrence, output and router, twelve of experts.
    assert seconds.overhead == pytest.approx(2e-4 + (4 * 4 + 3 * 4) * 1e-5)


def test_what_the_cache_keeps_is_taken_off_the_weights() -> None:
    engine = build_engine(RATES, seconds={"cached@100000000": -1 / (100 * GB)})
    profile = build_profile(BANDWIDTH, engine)
    small = predict_decode(profile, build_traffic({"Q4_0": 10**8}), 2)
    large = predict_decode(profile, build_traffic({"Q4_0": 10**9}), 2)
    assert small.seconds.weights == pytest.approx(0.1 / 20 - 0.1 / 100)
    assert large.seconds.weights == pytest.approx(1 / 20)


def test_a_batch_is_all_its_sequences_together() -> None:
    traffic = build_traffic({"Q4_K": 10**9}, kv_bytes=10**7)
    shared = tuple(replace(w, tokens=4.0) for w in traffic.weights)
    one = predict_decode(PROFILES["engine"], traffic, 2)
    four = predict_decode(
        PROFILES["engine"], replace(traffic, setting=Setting(batch=4), weights=shared), 2
    )
    assert four.seconds.weights == pytest.approx(1 / 12)
    assert four.seconds.attention == pytest.approx(4 * one.seconds.attention)
    assert four.seconds.overhead == pytest.approx(one.seconds.overhead)
    assert four.tokens_per_s == pytest.approx(4 / four.seconds.total)
    assert four.low < four.tokens_per_s < four.high
    sixteen = replace(
        traffic,
        setting=Setting(batch=16),
        weights=tuple(replace(w, tokens=16.0) for w in traffic.weights),
    )
    assert predict_decode(PROFILES["engine"], sixteen, 2).seconds.weights == pytest.approx(1 / 4)


def test_the_fast_quartile_of_tokens_is_faster_by_what_calibration_saw() -> None:
    engine = msgspec.structs.replace(
        ENGINE, tables=(msgspec.structs.replace(ENGINE.tables[0], fast_time_ratio=0.8),)
    )
    p = predict_decode(build_profile(BANDWIDTH, engine), build_traffic({"Q4_K": 10**9}), 2)
    assert p.fast_tokens_per_s == pytest.approx(p.tokens_per_s / 0.8)


def test_a_thread_count_between_two_measured_ones_is_interpolated() -> None:
    profile = build_profile(
        {1: 20.0 * GB, 4: 40.0 * GB}, build_engine({"Q4_0": {1: 10.0 * GB, 4: 40.0 * GB}})
    )
    p = predict_decode(profile, build_traffic({"Q4_0": 200_000_000}), 2)
    assert p.tokens_per_s == pytest.approx(100)


# Parts


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


def test_a_part_takes_its_own_terms(mixture: ModelTraffic) -> None:
    parts = predict_parts(PROFILES["engine"], mixture, 2)
    rows = 4 * 2048
    assert parts["output"].seconds == pytest.approx(2e8 / (25 * GB) + rows * 5e-9 + 4e-5)
    assert parts["experts"].seconds == pytest.approx(3e8 / (15 * GB) + rows * 3e-9 + 16e-5)
    assert parts["rest"].seconds == pytest.approx(2e-4)
    assert parts["recurrent"].seconds == pytest.approx(
        5e7 / (20 * GB) + rows * 3e-9 + 2e6 / (9 * GB) + 4e-5
    )
    bare = replace(mixture, attention=(), kv_write_bytes=0)
    assert "attention" not in predict_parts(PROFILES["engine"], bare, 2)


def test_an_uncertain_part_makes_no_other_less_certain(mixture: ModelTraffic) -> None:
    """A state that was not measured is at read bandwidth: half of it is its error."""
    unknown = replace(mixture, state_kind="wkv", state_read_bytes=10**8)
    before = predict_parts(PROFILES["engine"], mixture, 2)
    after = predict_parts(PROFILES["engine"], unknown, 2)
    assert after["attention"] == before["attention"]
    width = {name: math.log(p["recurrent"].high / p["recurrent"].low)
             for name, p in (("before", before), ("after", after))}  # fmt: skip
    assert width["after"] > 3 * width["before"]


# Which table


def test_a_basis_covers_nine_tenths_of_the_weights() -> None:
    profile = with_kernel(build_profile(BANDWIDTH, build_engine({"Q8_0": {2: 20 * GB}})))
    mostly = build_traffic({"Q8_0": 91 * 10**6, "TQ2_0": 9 * 10**6})
    hardly = build_traffic({"Q8_0": 89 * 10**6, "TQ2_0": 11 * 10**6})
    neither = build_traffic({"TQ2_0": 10**8})
    kernel = build_traffic({"Q4_K": 10**8})
    found = {
        name: choose_basis(profile, traffic, 2).name
        for name, traffic in {"a": mostly, "b": hardly, "c": neither, "d": kernel}.items()
    }
    assert found == {"a": "engine", "b": "ceiling", "c": "ceiling", "d": "kernel"}


def test_what_a_basis_does_not_know_is_taken_at_read_bandwidth_and_said() -> None:
    profile = build_profile(BANDWIDTH, build_engine({"Q8_0": {2: 20 * GB}}))
    p = predict_decode(profile, build_traffic({"Q8_0": 95 * 10**6, "TQ2_0": 5 * 10**6}), 2)
    assert p.seconds.weights == pytest.approx(0.095 / 20 + 0.005 / 30)
    assert "TQ2_0 was not measured: taken at read bandwidth, a lower bound" in p.assumptions
    whole = predict_decode(profile, build_traffic({"Q8_0": 10**8}), 2)
    assert math.log(p.high / p.low) > math.log(whole.high / whole.low)


def test_attention_that_was_not_measured_is_read_once_at_read_bandwidth() -> None:
    profile = build_profile(BANDWIDTH, build_engine({"Q8_0": {2: 20 * GB}}))
    p = predict_decode(profile, build_traffic({"Q8_0": 10**8}, kv_bytes=10**8), 2)
    assert p.seconds.attention == pytest.approx(0.1 / 30)
    notes = [note for note in p.assumptions if "not measured" in note]
    assert notes == [
        "attention with F16:F16 KV, flash-attn on, was not measured: taken at read bandwidth, "
        "a lower bound"
    ]


def test_a_type_that_was_not_measured_takes_its_neighbours_time_per_weight() -> None:
    profile = build_profile(BANDWIDTH, build_engine({"Q6_K": {2: 18.0 * GB}}))
    p = predict_decode(profile, build_traffic({"Q5_K": 550_000_000}), 2)
    assert p.tokens_per_s == pytest.approx(1 / (0.55 / (18 * 5.5 / 6.5625)))
    assert any("Q5_K was not measured" in a for a in p.assumptions)


def test_without_an_engine_stage_the_textbook_formula_is_the_basis() -> None:
    p = predict_decode(build_profile(BANDWIDTH), build_traffic({"Q4_0": 600_000_000}), 2)
    assert p.basis == "ceiling"
    assert p.tokens_per_s == pytest.approx(p.ceiling_tokens_per_s) == pytest.approx(50)
    assert p.low < 0.5 * p.tokens_per_s
    assert p.tokens_per_s < p.high < 1.1 * p.tokens_per_s


def test_a_ceiling_counts_cache_and_state_and_no_overhead() -> None:
    traffic = replace(
        build_traffic({"Q4_0": 6 * 10**8}, kv_bytes=3 * 10**7),
        state_kind="conv",
        state_read_bytes=10**7,
        state_write_bytes=2 * 10**7,
    )
    seconds = predict_decode(build_profile(BANDWIDTH), traffic, 2).seconds
    assert (seconds.weights, seconds.attention, seconds.overhead) == pytest.approx(
        (0.02, 0.002, 0.0)
    )


def test_weights_are_read_at_the_bandwidth_of_mapped_files_where_it_was_measured() -> None:
    mapped = build_measurement(2, 24.0 * GB, page_kind="file")
    profile = build_profile(BANDWIDTH)
    assert weights_bandwidth(profile, 2) == pytest.approx(30.0 * GB)
    profile = msgspec.structs.replace(profile, bandwidth=(*profile.bandwidth, mapped))
    assert weights_bandwidth(profile, 2) == pytest.approx(24.0 * GB)
    assert predict_decode(profile, build_traffic({"Q4_0": 240 * 10**6}), 2).tokens_per_s == (
        pytest.approx(100)
    )


def test_own_kernels_are_the_basis_where_only_they_were_measured() -> None:
    p = predict_decode(PROFILES["kernel"], build_traffic({"Q4_K": 6 * 10**8}), 2, TRANSFERS)
    # 18 GB/s at two threads over 1.5; costs over the kernels' weights per second at one.
    speed = 9.0 * GB * 8 / 4.5
    assert p.basis == "kernel"
    assert p.seconds.weights == pytest.approx(0.6 / 12)
    assert p.seconds.overhead == pytest.approx((2e6 + 10 * 1.5e5) / speed)
    assert any("ratio of llama.cpp to our kernels" in note for note in p.assumptions)


def test_kernels_of_the_cpu_that_ratios_are_from_are_surer() -> None:
    traffic = build_traffic({"Q4_K": 10**9})
    other = PROFILES["kernel"]
    measured = {
        "x86": msgspec.structs.replace(TRANSFERS["x86"], cpus=(other.machine.cpu_identity,))
    }
    unsure, sure = (predict_decode(other, traffic, 2, t) for t in (TRANSFERS, measured))
    assert sure.tokens_per_s == unsure.tokens_per_s
    assert math.log(unsure.high / unsure.low) > 1.3 * math.log(sure.high / sure.low)
    assert not any("our kernels" in note for note in sure.assumptions)


def test_a_batch_predicted_from_own_kernels_gains_but_not_for_free() -> None:
    traffic = build_traffic({"Q4_K": 10**9})
    shared = tuple(replace(w, tokens=4.0) for w in traffic.weights)
    one = predict_decode(PROFILES["kernel"], traffic, 2)
    four = predict_decode(
        PROFILES["kernel"], replace(traffic, setting=Setting(batch=4), weights=shared), 2
    )
    assert four.seconds.weights == pytest.approx(one.seconds.weights * 2.4 / 1.5)
    assert four.basis == "kernel"
    assert not any("taken as free" in a for a in four.assumptions)


# Intervals and notes


def log_width(low: float, high: float) -> float:
    return math.log(high / low)


def test_noise_and_errors_of_the_fit_widen_the_interval_and_not_the_prediction() -> None:
    traffic = build_traffic({"Q4_0": 10**9})
    engine = build_engine(RATES)
    sure = predict_decode(build_profile(BANDWIDTH, engine), traffic, 2)
    noisy = msgspec.structs.replace(engine, noise=0.2)
    unsure_tables = tuple(
        msgspec.structs.replace(t, relative_errors=tuple(0.2 for _ in t.keys))
        for t in engine.tables
    )
    unsure = msgspec.structs.replace(engine, tables=unsure_tables)
    for other in (noisy, unsure):
        p = predict_decode(build_profile(BANDWIDTH, other), traffic, 2)
        assert p.tokens_per_s == sure.tokens_per_s
        assert log_width(p.low, p.high) > 2 * log_width(sure.low, sure.high)
        assert 0 < p.low < p.tokens_per_s < p.high


def test_covariance_decides_whether_two_errors_add_or_cancel() -> None:
    """Two halves of a tenth of a second, each off by a tenth: together 2 · ρ · 0.05² more."""
    traffic = build_traffic({"Q4_0": 10**9, "Q6_K": 5 * 10**8})
    seconds = (1 / (20 * GB), 1 / (10 * GB))
    squares = []
    for correlation in (-0.99, 0.0, 0.99):
        a, b = (0.1 * s for s in seconds)
        table = msgspec.structs.replace(
            build_engine({n: {2: r[2]} for n, r in RATES.items()}).tables[0],
            keys=("bytes:Q4_0", "bytes:Q6_K"),
            seconds=seconds,
            relative_errors=(),
            covariance=((a * a, correlation * a * b), (correlation * a * b, b * b)),
        )
        engine = msgspec.structs.replace(build_engine(RATES), tables=(table,))
        p = predict_decode(build_profile(BANDWIDTH, engine), traffic, 2)
        squares.append((math.log(p.high / p.tokens_per_s) / NORMAL_90) ** 2)
    apart = 2 * 0.99 * 0.05 * 0.05
    assert squares[1] - squares[0] == pytest.approx(apart)
    assert squares[2] - squares[1] == pytest.approx(apart)


def test_a_machine_whose_engine_says_no_noise_takes_the_memorys() -> None:
    traffic = build_traffic({"Q4_0": 10**9})
    quiet = predict_decode(build_profile(BANDWIDTH, build_engine(RATES)), traffic, 2)
    noise = judge_noise((0.7, 1.0, 1.3) * 5, 10.0)
    noisy = predict_decode(build_profile(BANDWIDTH, build_engine(RATES), noise=noise), traffic, 2)
    assert log_width(noisy.low, noisy.high) > 2 * log_width(quiet.low, quiet.high)
    assert any("noisy" in a for a in noisy.assumptions)


def test_rates_fitted_to_rows_of_others_are_as_unsure_as_the_rows_scatter() -> None:
    traffic = build_traffic({"Q4_0": 10**9})
    widths = []
    for residual in (0.0, 0.15):
        engine = build_engine(RATES, residual=residual)
        p = predict_decode(build_profile(BANDWIDTH, engine, fitted_to="3 rows of x"), traffic, 2)
        widths.append(log_width(p.low, p.high))
        assert any("rates fitted to 3 rows of x" in note for note in p.assumptions)
    assert widths[1] > 1.5 * widths[0]


def test_more_threads_than_effective_cpus_are_predicted_with_a_word() -> None:
    p = predict_decode(build_profile(BANDWIDTH), build_traffic({"Q4_0": 10**9}), 8)
    assert any("8 threads are more than the 2 effective CPUs" in a for a in p.assumptions)


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


def test_seconds_that_memory_sets_are_those_of_types_near_read_bandwidth() -> None:
    engine = build_engine({"Q4_0": {2: 24.5 * GB}, "Q6_K": {2: 23.5 * GB}})
    traffic = build_traffic({"Q4_0": 10**8, "Q6_K": 10**8})
    p = predict_decode(build_profile(BANDWIDTH, engine), traffic, 2)
    assert p.memory_seconds == pytest.approx(0.1 / 24.5)


def test_a_model_larger_than_the_memory_is_said_not_to_fit() -> None:
    profile = build_profile(BANDWIDTH)
    assert predict_decode(profile, build_traffic({"Q4_0": 10**9}), 1).fits_in_memory is True
    assert predict_decode(profile, build_traffic({"Q4_0": 10**11}), 1).fits_in_memory is False


def test_no_threads_are_refused() -> None:
    with pytest.raises(UsageError, match="threads"):
        predict_decode(build_profile(BANDWIDTH), build_traffic({"Q4_0": 1}), 0)


@pytest.mark.parametrize("engine", [None, ENGINE])
def test_a_profile_without_bandwidth_is_refused(engine: Any) -> None:
    copies = (build_measurement(1, 1e9, kernel="copy"),)
    empty = msgspec.structs.replace(build_profile(BANDWIDTH, engine), bandwidth=copies)
    with pytest.raises(ProfileError, match="calibrate"):
        predict_decode(empty, build_traffic({"Q4_K": 1}), 1)


# Prompts


def test_a_prompt_is_the_sum_of_its_physical_batches() -> None:
    spec = resolve_model("llama-3.1-8b:Q4_K_M")
    steps = prompt_steps(spec, 700, Setting())
    after = compute_traffic(spec, Setting(depth_tokens=700))
    found = predict_prompt(PROFILES["engine"], steps, after, 2)
    (table,) = ENGINE.tables
    grid_of_batches = choose_basis(PROFILES["engine"], steps[0], 2).grid
    assert grid_of_batches.tokens == (4, 16)
    terms = [t for step in steps for t in step_terms(step, grid_of_batches, is_prompt=True)]
    assert found.seconds == pytest.approx(by_hand(add_up(terms), table.by_key))
    assert found.parts.total == pytest.approx(found.seconds)
    assert found.tokens_per_s == pytest.approx(700 / found.seconds)
    assert found.low_s < found.seconds < found.high_s
    assert found.prompt_tokens == 700
    assert found.setting.depth_tokens == 0
    assert found.bound == "compute"
    decoded = predict_decode(PROFILES["engine"], after, 2)
    assert found.time_to_first_token_s == pytest.approx(found.seconds + 1 / decoded.tokens_per_s)


def test_attention_over_prompts_that_was_not_measured_is_taken_from_decoding_and_said() -> None:
    step = build_traffic({"Q4_0": 10**9}, kv_bytes=10**6, batch=64)
    after = build_traffic({"Q4_0": 10**9}, kv_bytes=10**6, depth_tokens=64)
    batches = {"bytes:Q4_0@64": 32 / (20.0 * GB)}
    decoding = {f"kv:{ON}:64": 1 / GB, f"attention:{ON}:64:wide:near": 1 / (5.0 * GB)}
    engine = build_engine(RATES, seconds={**batches, **decoding})
    found = predict_prompt(build_profile(BANDWIDTH, engine), [step], after, 2)
    operations = 64 * step.attention_operations
    assert found.parts.attention == pytest.approx(operations / (5.0 * GB))
    assert any("as if each token were decoded" in note for note in found.assumptions)


def test_without_rates_for_several_tokens_a_prompt_is_not_predicted() -> None:
    step = build_traffic({"Q4_0": 10**9}, batch=64)
    for profile in (build_profile(BANDWIDTH, build_engine(RATES)), PROFILES["kernel"]):
        with pytest.raises(ProfileError, match="calibrate"):
            predict_prompt(profile, [step], step, 2)


def test_an_error_of_half_is_that_of_what_stands_at_read_bandwidth() -> None:
    profile = build_profile(BANDWIDTH, build_engine({"Q8_0": {2: 20 * GB}}))
    traffic = build_traffic({"Q8_0": 95 * 10**6, "TQ2_0": 5 * 10**6})
    basis = choose_basis(profile, traffic, 2)
    cost = basis.cost(step_terms(traffic))
    known, unknown = 0.095 / 20, 0.005 / 30
    assert cost.error_s == pytest.approx(math.hypot(0.01 * known, UNMEASURED_ERROR * unknown))


def test_a_table_in_which_nothing_costs_time_predicts_nothing() -> None:
    engine = build_engine({}, seconds={"bytes:Q4_0": 0.0})
    profile = build_profile({1: 20.0 * GB}, engine)
    prediction = predict_decode(profile, build_traffic({"Q4_0": 10**9}), 1)
    assert prediction.basis == "ceiling"


@pytest.mark.parametrize("batch", [2, 8, 32])
def test_a_batch_reads_the_weights_once_where_only_the_bandwidth_is_known(batch: int) -> None:
    traffic = compute_traffic(
        resolve_model("llama-3.2-1b:Q4_0"), Setting(depth_tokens=0, batch=batch, flash_attn=False)
    )
    prediction = predict_decode(build_profile(BANDWIDTH), traffic, 2)
    assert prediction.basis == "ceiling"
    assert prediction.tokens_per_s == pytest.approx(prediction.ceiling_tokens_per_s, rel=0.01)


def test_a_batch_that_was_not_measured_costs_its_weights_once() -> None:
    profile = build_profile(BANDWIDTH, build_engine(RATES))
    spec = resolve_model("llama-3.2-1b:Q4_0")
    one, eight = (
        predict_decode(
            profile, compute_traffic(spec, Setting(depth_tokens=0, batch=n, flash_attn=False)), 2
        )
        for n in (1, 8)
    )
    assert eight.seconds.weights == pytest.approx(one.seconds.weights, rel=1e-6)
    assert any("taken as free" in assumption for assumption in eight.assumptions)
