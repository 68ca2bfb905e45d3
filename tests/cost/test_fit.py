"""cpubound.cost.fit: seconds that are known come back, and what is open is refused."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from cpubound.cost.fit import (
    MAX_CONDITION_NUMBER,
    Equation,
    Undetermined,
    check_design,
    condition_number,
    design_matrix,
    determined,
    fit_rates,
)
from cpubound.profile.values import RateTable

# What a unit costs: two types, a product, a token, and what a cache of 20 MB saves.
TRUE = {
    "bytes:Q4_K": 1 / 25e9,
    "rows:Q4_K": 6e-9,
    "bytes:F16": 1 / 30e9,
    "rows:F16": 4e-9,
    "product": 5e-6,
    "token": 80e-6,
    "cached@20000000": -1 / 90e9,
}


def amounts_of(type_name: str, n_bytes: float, rows: float, products: int) -> dict[str, float]:
    return {
        f"bytes:{type_name}": n_bytes,
        f"rows:{type_name}": rows,
        "product": float(products),
        "token": 1.0,
    }


# Shapes that differ as those of the probes do: wide, deep, narrow and next to nothing.
DESIGN: list[dict[str, float]] = [
    amounts_of(name, n_bytes, rows, products)
    for name in ("Q4_K", "F16")
    for n_bytes, rows, products in (
        (40e6, 17_000, 8),
        (40e6, 60_000, 57),
        (40e6, 150_000, 150),
        (160e6, 70_000, 30),
    )
]
DESIGN += [amounts_of("Q4_K", 1e6, 5000, 8), amounts_of("F16", 3e6, 5000, 8)]
DESIGN += [
    {**amounts_of("Q4_K", 20e6, 30_000, 30), "cached@20000000": 20e6},
    {**amounts_of("F16", 20e6, 12_000, 30), "cached@20000000": 20e6},
]


def seconds_of(amounts: Mapping[str, float], prices: Mapping[str, float] = TRUE) -> float:
    return sum(amount * prices[key] for key, amount in amounts.items())


def equations(
    noise: random.Random | None = None, spread: float = 0.01, *, repeats: int = 1
) -> list[Equation]:
    return [
        Equation(
            amounts,
            seconds_of(amounts) * (1 + noise.gauss(0, spread) if noise else 1.0),
            0.0,
        )
        for amounts in DESIGN * repeats
    ]


def errors(table: RateTable) -> dict[str, float]:
    """Fitted over true seconds, minus 1."""
    return {key: table.seconds_of(key) / price - 1 for key, price in TRUE.items()}


# A model that no probe resembles.
HELD_OUT = {
    "bytes:Q4_K": 900e6,
    "rows:Q4_K": 500_000.0,
    "bytes:F16": 50e6,
    "rows:F16": 9000.0,
    "product": 200.0,
    "token": 1.0,
}


def test_exact_times_give_the_seconds_back() -> None:
    table = fit_rates(equations(), threads=3)
    assert table.threads == 3
    assert set(table.keys) == set(TRUE)
    assert max(abs(error) for error in errors(table).values()) < 1e-6
    assert max(abs(r) for r in table.residuals) < 1e-8
    assert len(table.residuals) == len(DESIGN)
    assert len(table.covariance) == len(TRUE)


def test_residuals_are_fitted_over_observed_minus_one() -> None:
    spoilt = equations()
    spoilt[1] = spoilt[1]._replace(seconds=spoilt[1].seconds * 1.25)
    table = fit_rates(spoilt, 1)
    for equation, residual in zip(spoilt, table.residuals, strict=True):
        fitted = seconds_of(equation.amounts, table.by_key)
        assert residual == pytest.approx(fitted / equation.seconds - 1, abs=1e-9)
    assert table.residuals[1] < -0.1


@pytest.mark.parametrize("outlier", range(8))
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_noise_and_one_gross_outlier_move_a_prediction_by_a_few_percent(
    outlier: int, factor: float
) -> None:
    rows = equations(random.Random(outlier), repeats=2)
    rows[outlier] = rows[outlier]._replace(seconds=rows[outlier].seconds * factor)
    table = fit_rates(rows, 1)
    assert seconds_of(HELD_OUT, table.by_key) == pytest.approx(seconds_of(HELD_OUT), rel=0.04)


def test_an_outlier_would_move_a_fit_of_squares_much_further() -> None:
    """The loss is what holds the rates: without it this test's numbers would be others."""
    import numpy as np

    rows = equations(random.Random(1), repeats=2)
    rows[3] = rows[3]._replace(seconds=rows[3].seconds * 2)
    keys, design = design_matrix(rows)
    squares = dict(
        zip(keys, np.linalg.lstsq(design, np.ones(len(rows)), rcond=None)[0], strict=True)
    )
    robust = fit_rates(rows, 1).by_key
    true = seconds_of(HELD_OUT)
    off = [abs(seconds_of(HELD_OUT, prices) / true - 1) for prices in (squares, robust)]
    assert off[0] > 2 * off[1]


def test_a_probe_that_varied_much_counts_less() -> None:
    rows = equations()
    wrong = rows[3]._replace(seconds=rows[3].seconds * 1.05)
    sure = fit_rates([*rows, wrong], 1)
    unsure = fit_rates([*rows, wrong._replace(standard_error_s=wrong.seconds * 0.2)], 1)
    true = seconds_of(HELD_OUT)
    moved = [abs(seconds_of(HELD_OUT, t.by_key) / true - 1) for t in (sure, unsure)]
    assert moved[1] < 0.2 * moved[0]


def test_the_covariance_says_how_far_predictions_are_off() -> None:
    """Over 200 simulations, one standard error should hold 68 of 100, 1.645 of them 90."""
    order = random.Random(7)
    true = seconds_of(HELD_OUT)
    inside = {1.0: 0, 1.645: 0}
    draws = 200
    for _ in range(draws):
        table = fit_rates(equations(order, spread=0.02, repeats=3), 1)
        error = table.variance_of(HELD_OUT) ** 0.5
        distance = abs(seconds_of(HELD_OUT, table.by_key) - true)
        for width in inside:
            inside[width] += distance < width * error
    assert 0.58 < inside[1.0] / draws < 0.80
    assert 0.83 < inside[1.645] / draws < 0.97


def test_more_noise_makes_wider_errors() -> None:
    quiet, noisy = (
        fit_rates(equations(random.Random(5), spread, repeats=3), 1).relative_error_of("bytes:Q4_K")
        for spread in (0.01, 0.06)
    )
    assert noisy > 2 * quiet > 0


def test_rates_that_no_probe_tells_apart_are_refused_by_name() -> None:
    """Bytes and rows of one type in one proportion."""
    proportional = [
        {**amounts, "rows:Q4_K": amounts["bytes:Q4_K"] / 1000}
        for amounts in DESIGN
        if "bytes:Q4_K" in amounts
    ]
    rows = [Equation(a, seconds_of(a)) for a in proportional + DESIGN[4:8]]
    with pytest.raises(Undetermined, match=r"bytes:Q4_K, rows:Q4_K") as refused:
        fit_rates(rows, 1)
    assert "F16" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_fewer_probes_than_rates_are_refused() -> None:
    with pytest.raises(Undetermined, match="3 probes do not determine 4 rates"):
        fit_rates(equations()[:3], 1)


def test_a_fit_of_nothing_is_refused() -> None:
    with pytest.raises(Undetermined, match="at least one probe"):
        fit_rates([], 1)


def test_a_sound_design_passes_and_its_condition_number_knows_no_units() -> None:
    keys, design = design_matrix(equations())
    check_design(keys, design)
    assert 1 < condition_number(design) < MAX_CONDITION_NUMBER
    scaled = design * [10.0**power for power in range(len(keys))]
    assert condition_number(scaled) == pytest.approx(condition_number(design))
    assert condition_number(design[: len(keys) - 1]) == float("inf")


def test_what_is_determined_stays_whole() -> None:
    rows = equations()
    assert determined(rows) == (rows, ())


def test_a_type_with_one_probe_is_left_out_and_nothing_else() -> None:
    rows = equations()
    lonely = {"bytes:Q6_K": 40e6, "rows:Q6_K": 17_000.0, "product": 8.0, "token": 1.0}
    kept, left_out = determined([*rows, Equation(lonely, 2e-3)])
    assert kept == rows
    assert {key.partition(":")[2] for key in left_out} == {"Q6_K"}


def test_two_open_types_are_left_out_each() -> None:
    rows = equations()
    open_rows = [
        Equation({f"bytes:{n}": 4e7, f"rows:{n}": 2e4, "product": 8.0, "token": 1.0}, 2e-3)
        for n in ("Q6_K", "Q5_K")
    ]
    kept, left_out = determined([open_rows[0], *rows, open_rows[1]])
    assert kept == rows
    assert {key.partition(":")[2] for key in left_out} == {"Q6_K", "Q5_K"}


def test_nothing_determined_leaves_nothing() -> None:
    kept, left_out = determined(equations()[:1])
    assert kept == []
    assert left_out


@pytest.mark.parametrize("seed", range(12))
def test_no_price_is_negative_but_what_a_cache_saves_whatever_the_noise(seed: int) -> None:
    noise = random.Random(seed)
    rows = [row._replace(seconds=row.seconds * noise.uniform(0.5, 1.8)) for row in equations()]
    table = fit_rates(rows, 1)
    assert table.seconds_of("cached@20000000") <= 0
    assert min(s for key, s in table.by_key.items() if not key.startswith("cached@")) >= 0


def test_what_costs_nothing_is_nothing_and_sure() -> None:
    """Probes that got slower with a cache do not make it cost."""
    prices = {**TRUE, "cached@20000000": 1 / 90e9}
    rows = [Equation(a, seconds_of(a, prices)) for a in DESIGN]
    table = fit_rates(rows, 1)
    assert table.seconds_of("cached@20000000") == 0
    assert table.variance_of({"cached@20000000": 1e9}) == 0
    assert table.relative_error_of("cached@20000000") == 0
