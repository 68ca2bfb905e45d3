"""A few rates of a machine tell its law; what they leave open stays wide."""

from __future__ import annotations

import math

import pytest

from cpubound.cost.kernel_priors import KernelPriors, isa_of_cpu, kernel_priors, read_priors
from cpubound.cost.rate_fit import RateRow, fit_rates
from cpubound.model.quant import quant_type
from cpubound.setting import Setting

GB = 10**9
SPEEDS = {"Q4_K": 30 * GB, "Q8_0": 15 * GB, "IQ3_S": 9 * GB}  # weights per second of a thread
LIMIT, SHARPNESS = 60 * GB, 3.0
SIZES = {"Q4_K": 5 * GB, "Q8_0": 8 * GB, "IQ3_S": 3 * GB}


def law(name: str, threads: int) -> float:
    alone = SPEEDS[name] * quant_type(name).bits_per_weight / 8 * threads
    return (alone**-SHARPNESS + LIMIT**-SHARPNESS) ** (-1 / SHARPNESS)


def row(name: str, threads: int, factor: float = 1.0) -> RateRow:
    return RateRow(
        setting=Setting(threads=threads),
        tokens_per_s=factor * law(name, threads) / SIZES[name],
        weight_bytes={name: SIZES[name]},
    )


GRID = [row(name, threads) for name in SPEEDS for threads in (1, 2, 4, 8)]


def test_the_law_is_found_again():
    fit = fit_rates(GRID, kernel_priors("x86"))
    assert fit.parameter("limit").value == pytest.approx(LIMIT, rel=0.05)
    for name in SPEEDS:
        for threads in (1, 2, 3, 8):
            rate = fit.weight_rate(name, threads)
            assert rate.value == pytest.approx(law(name, threads), rel=0.04)
            assert rate.relative_error < 0.06
    assert max(abs(residual) for residual in fit.residuals) < 0.03


def test_one_row_predicts_its_own_setting_and_is_wide_elsewhere():
    fit = fit_rates([row("Q4_K", 4)], kernel_priors("x86"))
    own = fit.weight_rate("Q4_K", 4)
    assert own.value == pytest.approx(law("Q4_K", 4), rel=0.03)
    assert own.relative_error < 0.06
    assert fit.weight_rate("Q4_K", 16).relative_error > 2 * own.relative_error
    assert fit.weight_rate("Q8_0", 4).relative_error > 2 * own.relative_error


def test_a_type_without_rows_takes_the_priors_ratio():
    priors = kernel_priors("x86")
    fit = fit_rates([row("Q4_K", 1)], priors)
    per_weight = {
        name: fit.weight_rate(name, 1).value / quant_type(name).bits_per_weight
        for name in ("Q4_K", "IQ3_S")
    }
    expected = priors.belief("IQ3_S").value / priors.belief("Q4_K").value
    assert per_weight["IQ3_S"] / per_weight["Q4_K"] == pytest.approx(expected, rel=0.1)


def test_kernels_of_one_kind_are_believed_to_be_fast_together():
    slow = [row("IQ3_S", threads, 0.5) for threads in (1, 2)] + [row("Q8_0", 1), row("Q8_0", 2)]
    usual = [row("IQ3_S", threads) for threads in (1, 2)] + [row("Q8_0", 1), row("Q8_0", 2)]
    rates = [
        fit_rates(rows, kernel_priors("x86")).weight_rate("IQ2_XS", 1).value
        for rows in (slow, usual)
    ]
    assert rates[0] < 0.85 * rates[1]


def test_a_row_from_a_bad_minute_hardly_moves_the_others():
    spoilt = [*GRID[:-1], row("IQ3_S", 8, 0.4)]
    fit = fit_rates(spoilt, kernel_priors("x86"))
    assert fit.weight_rate("Q4_K", 4).value == pytest.approx(law("Q4_K", 4), rel=0.04)
    assert fit.spread > fit_rates(GRID, kernel_priors("x86")).spread


def test_depth_tells_the_attention_rate():
    rate = 3 * GB * 4
    rows = [
        RateRow(
            setting=Setting(threads=4),
            tokens_per_s=1 / (SIZES["Q4_K"] / law("Q4_K", 4) + kv_bytes / rate),
            weight_bytes={"Q4_K": SIZES["Q4_K"]},
            kv_bytes=kv_bytes,
        )
        for kv_bytes in (10**7, 5 * 10**8, 2 * 10**9)
    ]
    fit = fit_rates(rows, kernel_priors("arm"))
    found = fit.attention_rate("F16:F16:on", 4)
    assert found.value == pytest.approx(rate, rel=0.08)
    assert found.relative_error < fit.attention_rate("Q8_0:Q8_0:on", 4).relative_error


def test_a_type_that_no_prior_knows_is_fitted_all_the_same():
    rows = [
        RateRow(setting=Setting(threads=4), tokens_per_s=20.0, weight_bytes={"TQ2_0": GB}),
        RateRow(setting=Setting(threads=2), tokens_per_s=10.0, weight_bytes={"TQ2_0": GB}),
    ]
    fit = fit_rates(rows, KernelPriors(beliefs=kernel_priors("x86").beliefs))
    assert fit.weight_rate("TQ2_0", 2).value == pytest.approx(10 * GB, rel=0.1)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [RateRow(setting=Setting(threads=1), tokens_per_s=0.0, weight_bytes={"Q8_0": GB})],
        [RateRow(setting=Setting(threads=1), tokens_per_s=math.nan, weight_bytes={"Q8_0": GB})],
    ],
)
def test_rows_that_say_nothing_are_refused(rows):
    with pytest.raises(ValueError, match="positive"):
        fit_rates(rows, kernel_priors(None))


@pytest.mark.parametrize(
    ("cpu", "isa"),
    [
        ("AMD Ryzen 9 7950X 16-Core Processor", "x86"),
        ("13th Gen Intel(R) Core(TM) i9-13900K", "x86"),
        ("AMD EPYC", "x86"),
        ("Apple M2 Max", "arm"),
        ("Cortex-A76", "arm"),
        ("Raspberry Pi 5 Model B Rev 1.0", "arm"),
        ("Ampere Altra", "arm"),
        ("Neoverse-N1", "arm"),
        ("Some machine", None),
        (None, None),
    ],
)
def test_a_cpus_name_tells_its_instruction_set(cpu, isa):
    assert isa_of_cpu(cpu) == isa


def test_priors_know_less_of_the_other_instruction_set():
    known, guessed = kernel_priors("x86"), kernel_priors(None)
    for name in read_priors()["x86"]:
        assert guessed.belief(name).relative_error > known.belief(name).relative_error
    assert kernel_priors("arm").belief("Q1_0").relative_error == 0.5


def test_every_type_of_the_priors_is_a_quant_type():
    for name in kernel_priors(None).types:
        assert quant_type(name).name == name
