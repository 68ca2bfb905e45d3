"""cpubound.cost.estimated_engine: llama.cpp's rates by hand-made standings to our kernels."""

from __future__ import annotations

import math

import msgspec
import pytest
from builders import GB, build_machine, build_measurement, build_profile, build_traffic

from cpubound.cost.batch_rates import product_rate
from cpubound.cost.decode import NORMAL_90, predict_decode
from cpubound.cost.estimated_engine import (
    OTHER_CPU_ERROR,
    OTHER_ISA_ERROR,
    estimate_engine,
    isa_of,
    kernel_noise,
    share_memory,
    standing_assumptions,
    standing_error,
)
from cpubound.cost.kernel_form import decode_forms, read_forms
from cpubound.cost.rates import (
    attention_rate,
    engine_cost,
    expert_rate,
    state_rate,
    weight_rate,
)
from cpubound.model.values import WeightRead
from cpubound.profile.values import EngineCalibration, MachineProfile

FORMS = decode_forms(
    """
[x86]
cpu_model = "Test CPU"
columns = [1000, 4000]
tokens = [2, 8]
sharpness = 2.0
attention_growth = { exponent = 0.5, error = 0.1 }
state_growth = { exponent = 1.0, error = 0.0 }

[[x86.attention]]
kv_type_k = "F16"
kv_type_v = "F16"
flash_attn = true
head_dim = 64
kernel = "F16"
factor = 0.1
error = 0.05

[x86.kernels]
Q4_K = { isa = "avx2", bytes_per_s = 1.0e10 }
F16 = { isa = "avx2", bytes_per_s = 2.0e10 }

[x86.types]
Q4_K = { kernel = "Q4_K", factors = [0.5, 1.0], error = 0.03 }
Q5_K = { kernel = "Q4_K", factors = [0.9, 0.9], error = 0.04 }
F16 = { kernel = "F16", factors = [1.0, 1.0], error = 0.05 }

[x86.batches]
Q4_K = { kernel = "Q4_K", factors = [0.5, 0.1], error = 0.02 }

[x86.experts]
Q5_K = { kernel = "Q4_K", factor = 0.8, error = 0.06 }

[x86.states]
delta = { kernel = "F16", factor = 0.5, error = 0.2 }

[x86.costs]
token = { seconds = 100e-6, more = 50e-6 }
product = { seconds = 4e-6, more = 2e-6 }
expert_layer = { seconds = 0.0, more = 0.0 }
"""
)


def profile_of(
    rates: dict[str, dict[int, float]], isa: str = "avx2", **machine: object
) -> MachineProfile:
    """A machine of 20 and 30 GB/s whose kernels of ours reach so much at thread counts."""
    read = [build_measurement(1, 20.0 * GB), build_measurement(2, 30.0 * GB)]
    own = [
        build_measurement(threads, rate, kernel=f"gemv_{name.lower()}", isa=isa)
        for name, by_threads in rates.items()
        for threads, rate in by_threads.items()
    ]
    profile = build_profile({1: 20.0 * GB}, machine=build_machine(2, **machine))
    return msgspec.structs.replace(profile, bandwidth=(*read, *own))


BOTH = profile_of({"Q4_K": {1: 12.0 * GB, 2: 23.0 * GB}, "F16": {1: 16.0 * GB, 2: 28.0 * GB}})


def estimated(profile: MachineProfile, threads: int) -> EngineCalibration:
    engine = estimate_engine(profile, threads, FORMS)
    assert engine is not None
    return engine


@pytest.mark.parametrize(
    ("type_name", "columns", "gigabytes"),
    [("Q4_K", 1000, 6.0), ("Q4_K", 2000, 8.0), ("Q4_K", 4000, 12.0), ("Q5_K", 4000, 13.2)],
)
def test_one_thread_stands_to_our_kernel_as_it_did_in_weights_per_second(
    type_name: str, columns: int, gigabytes: float
) -> None:
    # 12 GB/s of Q4_K; Q5_K has 5.5 bits to its 4.5: 12 · 0.9 · 5.5 / 4.5.
    rate = weight_rate(estimated(BOTH, 1), type_name, columns, 1)
    assert rate is not None
    assert rate.bytes_per_s == pytest.approx(gigabytes * GB)


def test_several_threads_share_what_memory_gives() -> None:
    # 2 · 12 GB/s under a limit of 30: 24 / sqrt(1 + (24 / 30)²).
    rate = weight_rate(estimated(BOTH, 2), "Q4_K", 4000, 2)
    assert rate is not None
    assert rate.bytes_per_s == pytest.approx(24.0 * GB / math.sqrt(1.64))
    assert rate.assumption is None


@pytest.mark.parametrize(("tokens", "gigabytes"), [(2, 6.0), (8, 1.2), (32, 0.3)])
def test_a_batch_goes_through_its_weights_at_a_rate_of_its_own(
    tokens: int, gigabytes: float
) -> None:
    """Past the last number of tokens the time grows as they do."""
    read = WeightRead(
        role="ffn",
        kind="matmul",
        type="Q4_K",
        rows=1,
        columns=4000,
        count=1,
        n_bytes=1,
        tokens=tokens,
    )
    rate = product_rate(estimated(BOTH, 1), read, 1)
    assert rate is not None
    assert rate.bytes_per_s == pytest.approx(gigabytes * GB)
    shared = product_rate(estimated(BOTH, 2), read, 2)
    assert shared is not None
    if tokens <= 8:
        assert shared.bytes_per_s == pytest.approx(share_memory(gigabytes, 2, 30.0, 2.0) * GB)


def test_experts_have_a_standing_of_their_own() -> None:
    for threads, gigabytes in ((1, 12 * 0.8 * 5.5 / 4.5), (2, 1 / math.hypot(1 / 23.4667, 1 / 30))):
        rate = expert_rate(estimated(BOTH, threads), "Q5_K", 4000, threads)
        assert rate is not None
        assert rate.bytes_per_s == pytest.approx(gigabytes * GB, rel=1e-5)
        assert rate.assumption is None


def test_the_limit_is_the_most_that_anything_of_ours_reached() -> None:
    fast = profile_of({"Q4_K": {1: 12.0 * GB, 2: 40.0 * GB}})
    rate = weight_rate(estimated(fast, 2), "Q4_K", 4000, 2)
    assert rate is not None
    assert rate.bytes_per_s == pytest.approx(24.0 * GB / math.sqrt(1 + 0.6**2))


def test_sharing_memory_never_gives_more_than_either_bound() -> None:
    for threads in (2, 8, 1000):
        shared = share_memory(5.0, threads, 30.0, 3.0)
        assert shared < min(5.0 * threads, 30.0)
    assert share_memory(5.0, 10**6, 30.0, 3.0) == pytest.approx(30.0)


def test_attention_and_recurrences_grow_with_the_threads_up_to_the_limit() -> None:
    for threads, attention, state in ((1, 1.6, 8.0), (2, 1.6 * math.sqrt(2), 16.0)):
        engine = estimated(BOTH, threads)
        rate = attention_rate(engine, "f16", "f16", True, 64, threads)
        recurrent = state_rate(engine, "delta", threads)
        assert rate is not None and recurrent is not None
        assert rate.bytes_per_s == pytest.approx(attention * GB)
        assert recurrent.bytes_per_s == pytest.approx(state * GB)
    many = state_rate(estimated(BOTH, 64), "delta", 64)
    assert many is not None
    assert many.bytes_per_s == pytest.approx(30.0 * GB)
    assert attention_rate(estimated(BOTH, 1), "f16", "f16", False, 64, 1) is None


def test_costs_fall_as_our_kernels_are_faster() -> None:
    # Our kernels reach 1.2 and 0.8 of what they did on the form's machine: 1.0 in the median.
    cost = engine_cost(estimated(BOTH, 2), 2)
    assert cost.seconds_per_token == pytest.approx(150e-6)
    assert cost.seconds_per_product == pytest.approx(6e-6)
    twice = profile_of({"Q4_K": {1: 20.0 * GB}, "F16": {1: 40.0 * GB}})
    assert engine_cost(estimated(twice, 1), 1).seconds_per_product == pytest.approx(2e-6)


def test_a_kernel_that_was_not_measured_leaves_its_types_out_and_makes_attention_uncertain() -> (
    None
):
    engine = estimated(profile_of({"Q4_K": {1: 12.0 * GB}}), 1)
    assert {row.type for row in engine.rates} == {"Q4_K", "Q5_K"}
    assert weight_rate(engine, "F16", 1000, 1) is None
    with_kernel = attention_rate(estimated(BOTH, 1), "f16", "f16", True, 64, 1)
    without = attention_rate(engine, "f16", "f16", True, 64, 1)
    assert with_kernel is not None and without is not None
    # 1.2 times the 20 GB/s of the form's machine.
    assert without.bytes_per_s == pytest.approx(2.4 * GB)
    assert without.relative_error > 2 * with_kernel.relative_error


def test_no_kernel_of_ours_gives_no_estimate() -> None:
    assert estimate_engine(build_profile({1: 20.0 * GB}), 1, FORMS) is None


@pytest.mark.parametrize(
    ("isa", "machine", "error"),
    [
        ("avx2", {}, 0.0),
        ("avx2", {"cpu_model": "Another CPU"}, OTHER_CPU_ERROR),
        ("avx512vnni", {}, OTHER_ISA_ERROR),
        ("neon", {"architecture": "aarch64"}, OTHER_ISA_ERROR),
    ],
)
def test_the_farther_the_machine_from_the_forms_the_less_is_known_of_its_rates(
    isa: str, machine: dict[str, str], error: float
) -> None:
    profile = profile_of({"Q4_K": {1: 12.0 * GB}}, isa, **machine)
    assert standing_error(profile, FORMS) == error
    assert bool(standing_assumptions(profile, FORMS)) == bool(error)


def test_what_is_not_known_of_another_cpu_is_common_to_all_its_rates() -> None:
    shipped = read_forms()["x86"]
    isa = shipped.kernels["Q4_K"].isa
    widths = []
    for cpu_model in (shipped.cpu_model, "Another CPU"):
        profile = profile_of({"Q4_K": {1: 12.0 * GB}}, isa, cpu_model=cpu_model)
        p = predict_decode(profile, build_traffic({"Q4_K": 10**9, "Q5_K": 10**9}), 1)
        widths.append(math.log(p.high / p.tokens_per_s) / NORMAL_90)
        assert any(f"measured on {shipped.cpu_model}" in a for a in p.assumptions) == (
            cpu_model == "Another CPU"
        )
    assert widths[1] == pytest.approx(math.hypot(widths[0], OTHER_CPU_ERROR))


def test_an_instruction_set_with_a_form_of_its_own_borrows_none() -> None:
    arm_form = msgspec.structs.replace(FORMS["x86"], cpu_model="Arm", columns=(2000, 4000))
    arm = profile_of({"Q4_K": {1: 12.0 * GB}}, architecture="aarch64", cpu_model="Arm")
    engine = estimate_engine(arm, 1, {**FORMS, "arm": arm_form})
    assert engine is not None
    assert engine.rates[0].columns == 2000
    assert standing_error(arm, {**FORMS, "arm": arm_form}) == 0
    assert isa_of("AMD64") == "x86"
    assert isa_of("riscv64") == "riscv64"


def test_halves_of_the_samples_that_lie_apart_are_noise() -> None:
    still = profile_of({"Q4_K": {1: 12.0 * GB}})
    assert kernel_noise(build_profile({1: 20.0 * GB})) == 0
    uneven = build_measurement(1, 12.0 * GB, kernel="gemv_q4_k", samples_s=(1.0, 1.5) * 6)
    noisy = msgspec.structs.replace(still, bandwidth=(*still.bandwidth[:2], uneven))
    assert kernel_noise(noisy) == pytest.approx(1 / 3)
    traffic = build_traffic({"Q4_K": 10**9})
    quiet, shaken = predict_decode(still, traffic, 1), predict_decode(noisy, traffic, 1)
    assert quiet.basis == shaken.basis == "kernel"
    assert shaken.high / shaken.low > 2 * quiet.high / quiet.low


def test_the_shipped_forms_stand_for_every_type_that_calibration_measures() -> None:
    form = read_forms()["x86"]
    assert {"F16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q4_0", "IQ4_XS", "Q3_K", "Q2_K"} <= set(
        form.types
    )
    assert all(len(standing.factors) == len(form.columns) for standing in form.types.values())
    assert all(len(standing.factors) == len(form.tokens) for standing in form.batches.values())
    tables = (form.types, form.batches, form.experts, form.states)
    kernels = {standing.kernel for table in tables for standing in table.values()}
    assert kernels | {standing.kernel for standing in form.attention} <= set(form.kernels)
