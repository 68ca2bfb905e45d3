"""cpubound.cost.transfer: llama.cpp's table from our kernels, by ratios made by hand."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from builders import GB, build_machine, build_measurement, build_profile, build_traffic

from cpubound.cost.predict import predict_decode
from cpubound.cost.transfer import (
    OTHER_CPU_ERROR,
    OTHER_ISA_ERROR,
    Ratio,
    Transfer,
    estimate_table,
    isa_of,
    kernel_noise,
    own_kernel_rate,
    read_transfers,
    transfer_assumptions,
    transfer_error,
)
from cpubound.profile.values import MachineProfile, RateTable

ZEN = {"cpu_vendor": "AuthenticAMD", "cpu_family": "26", "cpu_model_number": "2"}
X86 = Transfer(
    measured="by hand",
    cpus=("AuthenticAMD 26/2",),
    kernel_isas=("avx2",),
    ratios={
        "bytes:Q4_K": Ratio(kernel="Q4_K", one=1.25, two=1.5, error=0.03),
        "bytes:Q5_K": Ratio(kernel="Q4_K", one=2.0, two=2.0, error=0.04),
        "bytes:F16": Ratio(kernel="F16", one=1.0, two=1.1, error=0.05),
        "product": Ratio(one=1e5, two=2e5, error=0.2),
        "token": Ratio(one=0.0, two=3e6, error=0.1),
    },
)
TRANSFERS = {"x86": X86}


def profile_of(
    rates: dict[str, dict[int, float]], isa: str = "avx2", **machine: Any
) -> MachineProfile:
    """A machine of 20 and 30 GB/s whose kernels of ours reach so much at thread counts."""
    own = [
        build_measurement(threads, rate, kernel=f"gemv_{name.lower()}", isa=isa)
        for name, by_threads in rates.items()
        for threads, rate in by_threads.items()
    ]
    profile = build_profile({1: 20.0 * GB, 2: 30.0 * GB}, machine=build_machine(2, **machine))
    return msgspec.structs.replace(profile, bandwidth=(*profile.bandwidth, *own))


BOTH = profile_of({"Q4_K": {1: 12.0 * GB, 2: 24.0 * GB}, "F16": {1: 16.0 * GB, 2: 28.0 * GB}})


def estimated(profile: MachineProfile, threads: int) -> RateTable:
    table = estimate_table(profile, threads, TRANSFERS)
    assert table is not None
    return table


@pytest.mark.parametrize(
    ("key", "threads", "gigabytes"),
    [
        ("bytes:Q4_K", 1, 12 / 1.25),
        ("bytes:Q4_K", 2, 24 / 1.5),
        ("bytes:Q5_K", 1, 12 / 2.0),
        ("bytes:F16", 2, 28 / 1.1),
        ("bytes:Q4_K", 8, 24 / 1.5),  # our kernel is held beyond what was measured
    ],
)
def test_weights_take_so_many_times_what_our_kernel_takes_at_as_many_threads(
    key: str, threads: int, gigabytes: float
) -> None:
    table = estimated(BOTH, threads)
    assert table.threads == threads
    assert 1 / table.seconds_of(key) == pytest.approx(gigabytes * GB)
    assert table.relative_error_of(key) == pytest.approx(X86.ratios[key].error)


@pytest.mark.parametrize(
    ("threads", "work"), [(1, 1e5), (2, 2e5), (4, 4e5), (8, 8e5)], ids=lambda v: f"{v:g}"
)
def test_a_cost_goes_on_as_it_grew_from_one_thread_to_two(threads: int, work: float) -> None:
    speed = math.sqrt((12 * GB * 8 / 4.5) * (16 * GB * 8 / 16))
    assert estimated(BOTH, threads).seconds_of("product") == pytest.approx(work / speed)


def test_what_costs_nothing_at_one_thread_has_no_exponent() -> None:
    assert estimated(BOTH, 1).seconds_of("token") == 0
    assert estimated(BOTH, 2).seconds_of("token") == estimated(BOTH, 16).seconds_of("token") > 0


def test_costs_fall_as_our_kernels_are_faster() -> None:
    twice = profile_of({"Q4_K": {1: 24.0 * GB}, "F16": {1: 32.0 * GB}})
    slow, fast = (estimated(p, 1).seconds_of("product") for p in (BOTH, twice))
    assert slow == pytest.approx(2 * fast)


def test_a_kernel_that_was_not_measured_leaves_its_keys_out() -> None:
    table = estimated(profile_of({"Q4_K": {1: 12.0 * GB}}), 1)
    assert set(table.keys) == {"bytes:Q4_K", "bytes:Q5_K", "product", "token"}


def test_nothing_is_estimated_without_a_kernel() -> None:
    assert estimate_table(profile_of({}), 1, TRANSFERS) is None
    huge = build_measurement(1, GB, kernel="gemv_q4_k", page_kind="anon_2m")
    only_huge = msgspec.structs.replace(profile_of({}), bandwidth=(huge,))
    assert estimate_table(only_huge, 1, TRANSFERS) is None


def test_our_own_kernels_rate_is_that_of_the_type_or_of_a_neighbours_weights() -> None:
    assert own_kernel_rate(BOTH, "Q4_K", 2) == pytest.approx(24.0 * GB)
    assert own_kernel_rate(BOTH, "Q5_K", 2) == pytest.approx(24.0 * GB * 5.5 / 4.5)
    assert own_kernel_rate(BOTH, "IQ2_S", 2) is None


@pytest.mark.parametrize(
    ("machine", "isa", "error"),
    [
        (ZEN, "avx2", 0.0),
        ({**ZEN, "cpu_family": "25"}, "avx2", OTHER_CPU_ERROR),
        (ZEN, "avx512", OTHER_ISA_ERROR),
        ({}, "avx2", OTHER_CPU_ERROR),
        ({"architecture": "aarch64"}, "neon", OTHER_ISA_ERROR),
    ],
)
def test_another_cpu_than_those_of_the_ratios_is_less_sure_and_says_so(
    machine: dict[str, Any], isa: str, error: float
) -> None:
    profile = profile_of({"Q4_K": {1: 12.0 * GB}}, isa=isa, **machine)
    assert transfer_error(profile, TRANSFERS) == error
    notes = transfer_assumptions(profile, TRANSFERS)
    assert len(notes) == (1 if error else 0)
    assert all(f"{error * 100:.0f} %" in note for note in notes)


def test_an_instruction_set_with_ratios_of_its_own_borrows_none() -> None:
    arm = msgspec.structs.replace(
        X86, kernel_isas=("neon",), ratios={"token": Ratio(one=1.0, two=1.0, error=0.0)}
    )
    profile = profile_of({"Q4_K": {1: 12.0 * GB}}, isa="neon", architecture="aarch64")
    both = {**TRANSFERS, "arm": arm}
    table = estimate_table(profile, 1, both)
    assert table is not None
    assert table.keys == ("token",)
    assert "bytes:Q4_K" in estimated(profile, 1).keys
    assert isa_of("AMD64") == isa_of("x86_64") == "x86"
    assert isa_of("riscv64") == "riscv64"


def test_halves_of_the_samples_that_lie_apart_are_noise() -> None:
    still = profile_of({"Q4_K": {1: 12.0 * GB}})
    assert kernel_noise(build_profile({1: 20.0 * GB})) == 0
    uneven = build_measurement(1, 12.0 * GB, kernel="gemv_q4_k", samples_s=(1.0, 1.5) * 6)
    noisy = msgspec.structs.replace(still, bandwidth=(*still.bandwidth[:2], uneven))
    assert kernel_noise(noisy) == pytest.approx(1 / 3)
    traffic = build_traffic({"Q4_K": 10**9})
    quiet, shaken = (predict_decode(p, traffic, 1, TRANSFERS) for p in (still, noisy))
    assert quiet.basis == shaken.basis == "kernel"
    assert math.log(shaken.high / shaken.low) > 1.5 * math.log(quiet.high / quiet.low)


def test_the_shipped_ratios_stand_for_every_type_that_calibration_measures() -> None:
    ratios = read_transfers()["x86"].ratios
    types = ("F16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q4_0", "IQ4_XS", "Q3_K", "Q2_K")
    assert {f"bytes:{name}" for name in types} | {"product", "token"} <= set(ratios)
    kernels = {ratio.kernel for ratio in ratios.values() if ratio.kernel is not None}
    assert kernels <= {"F32", "F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"}
