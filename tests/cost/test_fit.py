from __future__ import annotations

import random
from dataclasses import replace

import pytest

from cpubound.cost.fit import (
    USUAL_QUERY_SHARE,
    ExpertsKey,
    Fit,
    ProbeTime,
    StateKey,
    fit_probe_times,
)
from cpubound.cost.memory_shares import memory_share, memory_shares
from cpubound.stats import hat_weights

RATES = {"Q4_0": 20e9, "F16": 25e9, "Q6_K": 12e9}
KV, KV_RATE = "f16:f16:on:64", 5e9
PER_TOKEN, PER_PRODUCT = 200e-6, 8e-6


def probe(
    matrices: dict[tuple[str, int], int], products: int, kv: int = 0, noise: float = 1.0
) -> ProbeTime:
    seconds = PER_TOKEN + PER_PRODUCT * products
    # Rows of 512 cost a quarter more per byte than the longer ones.
    seconds += sum(n / RATES[t] * (1.25 if c == 512 else 1) for (t, c), n in matrices.items())
    return ProbeTime(
        seconds=(seconds + kv / KV_RATE) * noise,
        matrices=matrices,
        attention={KV: kv},
        products=products,
    )


def probes(noise: random.Random | None = None) -> list[ProbeTime]:
    def factor() -> float:
        return 1 + noise.gauss(0, 0.01) if noise else 1.0

    rows = []
    for name in RATES:
        wide = {(name, 3328): 100_000_000, (name, 8448): 60_000_000}
        deep = {(name, 1280): 90_000_000, (name, 3328): 60_000_000}
        narrow = {(name, 512): 40_000_000, (name, 1280): 20_000_000}
        large = {key: 4 * n for key, n in deep.items()}
        rows += [probe(wide, 29, noise=factor()), probe(deep, 120, noise=factor())]
        rows += [probe(narrow, 400, noise=factor()), probe(large, 480, noise=factor())]
    rows += [probe({("Q4_0", 512): 2_000_000}, 64, kv, factor()) for kv in (3e7, 1.5e8)]
    return rows


def seconds_by(fit: Fit, row: ProbeTime, shares: dict[str, float]) -> float:
    """What a fit says of a model."""
    seconds = fit.seconds_per_token + fit.seconds_per_product * row.products
    for (name, columns), n_bytes in row.matrices.items():
        for knot, weight in hat_weights([512, 1280, 3328, 8448], columns).items():
            seconds += weight * n_bytes * fit.seconds_per_byte[name, knot]
    return seconds - fit.cache_saved_s * memory_share(row.matrices, shares)


SHARES = memory_shares({name: 1 / rate for name, rate in RATES.items()})
HELD_OUT = {
    name: probe({(name, 2048): 900_000_000, (name, 8192): 400_000_000}, 113) for name in RATES
}


def test_a_model_that_no_probe_resembles_takes_the_time_that_the_rates_say() -> None:
    fit = fit_probe_times(probes())
    for row in HELD_OUT.values():
        assert seconds_by(fit, row, SHARES) == pytest.approx(row.seconds, rel=0.02)
    assert fit.seconds_per_product == pytest.approx(PER_PRODUCT, rel=0.25)
    assert 1 / fit.other_seconds_per_byte[KV] == pytest.approx(KV_RATE, rel=0.02)
    assert max(abs(r) for r in fit.residuals) < 0.025


def test_short_rows_are_seen_to_be_slower_where_kernels_set_the_rate() -> None:
    fit = fit_probe_times(probes())
    assert fit.seconds_per_byte["Q6_K", 512] > 1.02 * fit.seconds_per_byte["Q6_K", 3328]


def test_what_the_cache_keeps_is_told_from_the_rates_by_probes_of_several_sizes() -> None:
    saved = 700e-6
    rows = [
        replace(row, seconds=row.seconds - saved * memory_share(row.matrices, SHARES))
        for row in probes()
    ]
    fit = fit_probe_times(rows)
    assert fit.cache_saved_s > 0.4 * saved
    for row in HELD_OUT.values():
        seconds = row.seconds - saved * memory_share(row.matrices, SHARES)
        assert seconds_by(fit, row, SHARES) == pytest.approx(seconds, rel=0.02)


def test_experts_and_states_have_rates_of_their_own_and_a_layer_of_experts_a_cost() -> None:
    per_layer, experts_rate, state_rate = 40e-6, 9e9, 3e9
    rows = probes()
    for layers, n_bytes in ((1, 60_000_000), (9, 40_000_000), (5, 90_000_000)):
        row = probe({("Q4_0", 1280): 10_000_000}, 30)
        seconds = row.seconds + n_bytes / experts_rate + layers * per_layer
        rows.append(replace(row, seconds=seconds, experts={"Q4_0": n_bytes}, expert_layers=layers))
    row = probe({("Q4_0", 1280): 50_000_000}, 30)
    rows.append(replace(row, seconds=row.seconds + 2e7 / state_rate, states={"mamba2": 20_000_000}))
    fit = fit_probe_times(rows)
    assert 1 / fit.other_seconds_per_byte[ExpertsKey("Q4_0")] == pytest.approx(
        experts_rate, rel=0.05
    )
    assert 1 / fit.other_seconds_per_byte[StateKey("mamba2")] == pytest.approx(state_rate, rel=0.05)
    assert fit.seconds_per_expert_layer == pytest.approx(per_layer, rel=0.15)


def test_one_wild_probe_moves_the_rates_little() -> None:
    rows = probes(random.Random(3))
    rows[1] = replace(rows[1], seconds=rows[1].seconds * 1.6)
    fit = fit_probe_times(rows)
    for name, rate in RATES.items():
        assert 1 / fit.seconds_per_byte[name, 3328] == pytest.approx(rate, rel=0.12)


def test_no_rate_or_cost_is_negative_whatever_the_noise() -> None:
    noise = random.Random(5)
    for _ in range(10):
        rows = [replace(row, seconds=row.seconds * noise.uniform(0.6, 1.6)) for row in probes()]
        fit = fit_probe_times(rows)
        assert fit.seconds_per_token >= 0
        assert fit.seconds_per_product >= 0
        assert fit.cache_saved_s >= 0
        assert all(s >= 0 for s in fit.seconds_per_byte.values())


def test_noisy_probes_give_larger_errors_than_exact_ones() -> None:
    exact = fit_probe_times(probes()).relative_error["Q4_0", 3328]
    noisy = fit_probe_times(probes(random.Random(8))).relative_error["Q4_0", 3328]
    assert noisy > exact


def test_a_row_length_between_two_knots_takes_from_both_by_its_logarithm() -> None:
    assert hat_weights([512, 2048], 1024) == pytest.approx({512: 0.5, 2048: 0.5})
    assert hat_weights([512, 2048], 100) == {512: 1.0}
    assert hat_weights([512, 2048], 9000) == {2048: 1.0}


def test_a_fit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one probe"):
        fit_probe_times([])


def test_attention_that_grows_with_query_heads_is_told_from_what_grows_with_kv_heads() -> None:
    def attention(query_heads: float, kv: int) -> ProbeTime:
        row = probe({("Q4_0", 512): 2_000_000}, 64)
        seconds = row.seconds + kv * (0.4 + 0.6 * query_heads / 4) / KV_RATE
        return replace(row, seconds=seconds, attention={KV: kv}, query_heads=query_heads)

    rows = [row for row in probes() if not row.attention[KV]]
    rows += [attention(4, 30_000_000), attention(4, 150_000_000), attention(1, 90_000_000)]
    fit = fit_probe_times(rows)
    assert 1 / fit.other_seconds_per_byte[KV] == pytest.approx(KV_RATE, rel=0.02)
    assert fit.query_share[KV] == pytest.approx(0.6, abs=0.03)
    assert fit.relative_error[KV] < 0.05


def test_without_two_groupings_of_heads_the_usual_share_grows_with_queries() -> None:
    fit = fit_probe_times(probes())
    assert fit.query_share[KV] == pytest.approx(USUAL_QUERY_SHARE, abs=0.01)
