from __future__ import annotations

import random

import pytest

from cpubound.calibration.fit import ProbeTime, fit_probe_times

RATES = {"Q4_0": 20e9, "F16": 25e9, "Q6_K": 12e9}
KV = {"f16:f16:on:64": 5e9}
PER_TOKEN, PER_PRODUCT, PER_ROW = 200e-6, 8e-6, 5e-9


def probe(
    n_bytes: dict[str, int], products: int, row_bytes: int, kv: int = 0, noise: float = 1.0
) -> ProbeTime:
    rows = {name: n // row_bytes for name, n in n_bytes.items()}
    seconds = PER_TOKEN + PER_PRODUCT * products
    seconds += sum(n / RATES[t] for t, n in n_bytes.items())
    seconds += PER_ROW * sum(rows.values())
    seconds += kv / KV["f16:f16:on:64"]
    return ProbeTime(
        seconds=seconds * noise,
        bytes_by_type=n_bytes,
        rows_by_type=rows,
        attention={"f16:f16:on:64": kv},
        products=products,
    )


def probes(noise: random.Random | None = None) -> list[ProbeTime]:
    def factor() -> float:
        return 1 + noise.gauss(0, 0.01) if noise else 1.0

    rows = []
    for type_name in RATES:
        rows += [
            probe({type_name: 160_000_000}, 29, 2400, noise=factor()),
            probe({type_name: 150_000_000}, 120, 800, noise=factor()),
            probe({type_name: 60_000_000}, 170, 300, noise=factor()),
        ]
    rows += [probe({"Q4_0": 2_000_000}, 64, 300, kv, factor()) for kv in (30_000_000, 150_000_000)]
    return rows


def test_exact_times_give_back_exact_rates_and_costs() -> None:
    fit = fit_probe_times(probes())
    for name, rate in RATES.items():
        assert 1 / fit.seconds_per_byte[name] == pytest.approx(rate, rel=1e-6)
        assert fit.seconds_per_row[name] == pytest.approx(PER_ROW, rel=1e-4)
    assert fit.seconds_per_token == pytest.approx(PER_TOKEN, rel=1e-5)
    assert fit.seconds_per_product == pytest.approx(PER_PRODUCT, rel=1e-5)
    assert 1 / fit.attention_seconds_per_byte["f16:f16:on:64"] == pytest.approx(5e9, rel=1e-6)
    assert max(abs(r) for r in fit.residuals) < 1e-6


def test_one_wild_probe_moves_the_rates_little() -> None:
    rows = probes(random.Random(3))
    wild = rows[1]
    rows[1] = ProbeTime(
        seconds=wild.seconds * 1.6,
        bytes_by_type=wild.bytes_by_type,
        rows_by_type=wild.rows_by_type,
        attention=wild.attention,
        products=wild.products,
    )
    fit = fit_probe_times(rows)
    for name, rate in RATES.items():
        assert 1 / fit.seconds_per_byte[name] == pytest.approx(rate, rel=0.12)


def test_no_rate_or_cost_is_negative_whatever_the_noise() -> None:
    noise = random.Random(5)
    for _ in range(20):
        rows = [
            ProbeTime(
                seconds=row.seconds * noise.uniform(0.6, 1.6),
                bytes_by_type=row.bytes_by_type,
                rows_by_type=row.rows_by_type,
                attention=row.attention,
                products=row.products,
            )
            for row in probes()
        ]
        fit = fit_probe_times(rows)
        assert fit.seconds_per_token >= 0
        assert fit.seconds_per_product >= 0
        assert all(s >= 0 for s in fit.seconds_per_byte.values())


def test_noisy_probes_give_larger_errors_than_exact_ones() -> None:
    exact = fit_probe_times(probes()).relative_error["Q4_0"]
    noisy = fit_probe_times(probes(random.Random(7))).relative_error["Q4_0"]
    assert noisy > 10 * exact


def test_a_fit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one probe"):
        fit_probe_times([])
