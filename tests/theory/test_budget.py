"""The two ceilings and the decode budgets of the field, to the last printed digit."""

from __future__ import annotations

import math

import pytest
from plain_work import kv_bytes_per_token, plain_work

from cpubound.errors import UsageError
from cpubound.theory.budget import (
    Roofs,
    binding_roof,
    expected_bandwidth_share,
    expected_flops_share,
    memory_bandwidth,
    step_seconds,
)

H100 = Roofs(bytes_per_s=3.35e12, flops_per_s=989e12)
# Published table: model -> weight bytes, layers, decode rates at 4k, 32k, 128k of context.
PUBLISHED = {
    "Llama-3.1-8B": (16.06e9, 32, (201.8, 164.6, 100.8)),
    "Qwen3-32B": (65.60e9, 64, (50.2, 45.2, 33.5)),
    "Llama-3.3-70B": (141.20e9, 80, (23.5, 22.0, 18.2)),
}
CONTEXTS = (4096, 32768, 131072)


@pytest.mark.parametrize("model", PUBLISHED)
def test_decode_budgets_of_an_h100_are_those_published(model: str) -> None:
    weights, layers, rates = PUBLISHED[model]
    kv = kv_bytes_per_token(layers, 8, 128)
    for context, rate in zip(CONTEXTS, rates, strict=True):
        work = plain_work(weight_bytes=weights, kv_bytes_per_token=kv, context_tokens=context)
        assert 1 / work.seconds(1, H100) == pytest.approx(rate, abs=0.051)


@pytest.mark.parametrize(
    ("context", "rate", "gain", "share"), [(32768, 47.9, 1.06, 11.6), (131072, 40.5, 1.21, 34.4)]
)
def test_a_cache_of_one_byte_pays_at_long_contexts(
    context: int, rate: float, gain: float, share: float
) -> None:
    kv = kv_bytes_per_token(64, 8, 128)
    plain, small = (
        plain_work(weight_bytes=65.6e9, kv_bytes_per_token=size, context_tokens=context)
        for size in (kv, kv / 2)
    )
    assert 1 / small.seconds(1, H100) == pytest.approx(rate, abs=0.051)
    assert plain.n_bytes(1) / small.n_bytes(1) == pytest.approx(gain, abs=0.005)
    assert plain.sequence_bytes / plain.n_bytes(1) * 100 == pytest.approx(share, abs=0.05)


def test_a_7b_model_at_three_sizes_on_an_h100() -> None:
    works = [plain_work(weight_bytes=size * 1e9) for size in (14.0, 7.0, 3.5)]
    rates = [1 / work.seconds(1, H100) for work in works]
    assert [round(rate) for rate in rates] == [239, 479, 957]


def test_the_cross_check_of_a_7b_model_is_14_gflop() -> None:
    work = plain_work(parameters=7e9, weight_bytes=14e9)
    assert work.flops(1) == 14e9
    compute = work.flops(1) / 989e12
    assert work.seconds(1, H100) / compute == pytest.approx(295.2, abs=0.05)


def test_a_batch_reads_the_weights_once_and_every_cache() -> None:
    kv = kv_bytes_per_token(32, 32, 128)
    work = plain_work(weight_bytes=14e9, kv_bytes_per_token=kv, context_tokens=4096)
    cache = work.n_bytes(32) - 14e9
    assert cache == 64 * 2**30
    assert cache / 1e9 == pytest.approx(68.7, abs=0.05)


def test_desktop_memory_bounds_decode() -> None:
    roofs = Roofs(bytes_per_s=memory_bandwidth(5600e6, 2))
    assert roofs.bytes_per_s == 89.6e9
    times = [plain_work(weight_bytes=size * 1e9).seconds(1, roofs) for size in (14.0, 3.5, 1.5)]
    assert [round(time * 1e3) for time in times] == [156, 39, 17]
    assert [round(1 / time, 1) for time in times] == [6.4, 25.6, 59.7]


def test_machine_balance_is_peak_over_bandwidth() -> None:
    assert H100.machine_balance == pytest.approx(295.2, abs=0.05)
    a100 = Roofs(bytes_per_s=2.04e12, flops_per_s=312e12)
    assert a100.machine_balance == pytest.approx(153, abs=0.1)
    halved = Roofs(bytes_per_s=3.35e12, flops_per_s=495e12)  # the figure wrongly called dense
    assert halved.machine_balance == pytest.approx(148, abs=0.3)


def test_a_batch_of_eight_is_expected_at_three_per_cent_of_peak() -> None:
    assert expected_flops_share(8, H100) == pytest.approx(0.027, abs=0.0005)
    assert expected_bandwidth_share(8, H100) == 1.0
    assert binding_roof(8, H100) == "memory"


def test_past_the_ridge_compute_binds() -> None:
    assert binding_roof(600, H100) == "compute"
    assert expected_flops_share(600, H100) == 1.0
    assert expected_bandwidth_share(600, H100) == pytest.approx(295.2 / 600, abs=0.001)
    assert step_seconds(989e12, 1e9, H100) == 1.0


def test_without_a_peak_rate_only_bytes_count() -> None:
    roofs = Roofs(bytes_per_s=50e9)
    assert roofs.machine_balance is None
    assert binding_roof(8, roofs) is None
    assert expected_flops_share(8, roofs) is None
    assert expected_bandwidth_share(8, roofs) is None
    assert step_seconds(1e15, 50e9, roofs) == 1.0


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_sizes_that_are_not_positive_are_refused_in_one_line(value: float) -> None:
    for refused in (
        lambda: Roofs(bytes_per_s=value),
        lambda: Roofs(bytes_per_s=1, flops_per_s=value),
        lambda: plain_work(weight_bytes=1).seconds(value, Roofs(bytes_per_s=1)),
        lambda: memory_bandwidth(value, 2),
    ):
        with pytest.raises(UsageError) as caught:
            refused()
        assert "\n" not in str(caught.value)
        assert f"{value:g}" in str(caught.value)
