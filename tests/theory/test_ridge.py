"""Ridge batch, n* and the largest batch, with the traps of published scripts."""

from __future__ import annotations

import math

import pytest
from plain_work import kv_bytes_per_token, plain_work

from cpubound.errors import UsageError
from cpubound.theory.budget import Roofs
from cpubound.theory.moe import ExpertWeights
from cpubound.theory.ridge import (
    find_last_context,
    largest_batch,
    ridge_batch,
    ridge_batch_of,
)

H100 = Roofs(bytes_per_s=3.35e12, flops_per_s=989e12)
H100_FP8 = Roofs(bytes_per_s=3.35e12, flops_per_s=2 * 989e12)
PARAMETERS = 32.8e9
KV = kv_bytes_per_token(64, 8, 128)


def n_star(
    parameters: float, kv: float, roofs: Roofs, attention_flops_per_token: float = 0.0
) -> float:
    found = find_last_context(
        lambda context: (2 * parameters + context * attention_flops_per_token, context * kv),
        roofs,
        2**24,
    )
    assert found is not None
    return found


def qwen_ridge(
    context: float, *, bytes_per_weight: float = 2, kv: float = KV, roofs: Roofs = H100
) -> float:
    work = plain_work(
        parameters=PARAMETERS,
        weight_bytes=PARAMETERS * bytes_per_weight,
        kv_bytes_per_token=kv,
        context_tokens=context,
    )
    found = ridge_batch(work.weight_bytes, work.sequence_flops, work.sequence_bytes, roofs)
    assert found is not None
    return found


@pytest.mark.parametrize(("context", "batch"), [(0, 295), (128, 348), (512, 746)])
def test_the_ridge_batch_grows_with_the_context(context: int, batch: int) -> None:
    assert round(qwen_ridge(context)) == batch


def test_the_ridge_batch_without_context_is_the_machine_balance_for_two_byte_weights() -> None:
    assert qwen_ridge(0) == pytest.approx(295.2, abs=0.05)
    assert qwen_ridge(0) == pytest.approx(H100.machine_balance)


@pytest.mark.parametrize("context", [848, 4096, 32768, 131072])
def test_from_n_star_on_no_batch_is_compute_bound(context: int) -> None:
    assert math.isinf(qwen_ridge(context))


@pytest.mark.parametrize(
    ("parameters", "layers", "tokens"), [(8.03e9, 32, 415), (32.8e9, 64, 848), (70.6e9, 80, 1460)]
)
def test_n_star_of_three_models_is_the_published_one(
    parameters: float, layers: int, tokens: float
) -> None:
    found = n_star(parameters, kv_bytes_per_token(layers, 8, 128), H100)
    assert found == pytest.approx(tokens, abs=1)


def test_n_star_is_weights_over_balance_and_cache_only_for_two_byte_weights() -> None:
    assert H100.machine_balance is not None
    published = 2 * PARAMETERS / (H100.machine_balance * KV)
    assert n_star(PARAMETERS, KV, H100) == pytest.approx(published, abs=1)
    four_bits = 0.5625 * PARAMETERS / (H100.machine_balance * KV)
    assert published / four_bits == pytest.approx(3.56, abs=0.01)  # "3.5 times too small"


def test_a_cache_of_one_byte_doubles_n_star() -> None:
    assert n_star(PARAMETERS, KV / 2, H100) == pytest.approx(1695, abs=1)


def test_weights_of_one_byte_leave_n_star_and_halve_the_ridge() -> None:
    assert round(qwen_ridge(0, bytes_per_weight=1)) == 148
    assert round(qwen_ridge(424, bytes_per_weight=1)) == 295
    assert math.isfinite(qwen_ridge(847, bytes_per_weight=1))
    assert math.isinf(qwen_ridge(848, bytes_per_weight=1))


def test_424_and_848_come_out_only_if_the_arithmetic_doubles_too() -> None:
    assert n_star(PARAMETERS, KV, H100_FP8) == 424
    assert n_star(PARAMETERS, KV / 2, H100_FP8) == 848


def test_with_the_cache_counted_twice_n_star_would_be_424() -> None:
    assert n_star(PARAMETERS, 2 * KV, H100) == 424


def test_the_attentions_own_arithmetic_moves_n_star_little_on_a_gpu_and_much_on_a_cpu() -> None:
    heads_over_kv_heads = 8  # FLOP per byte of an f16 cache
    attention = heads_over_kv_heads * KV
    assert n_star(PARAMETERS, KV, H100, attention) == pytest.approx(871.3, abs=1)
    cpu = Roofs(bytes_per_s=50e9, flops_per_s=1e12)  # balance 20
    without = n_star(PARAMETERS, KV, cpu)
    assert n_star(PARAMETERS, KV, cpu, attention) == pytest.approx(without / (1 - 8 / 20), abs=2)


def test_where_attention_itself_is_compute_bound_there_is_no_n_star() -> None:
    narrow = Roofs(bytes_per_s=50e9, flops_per_s=0.3e12)  # balance 6, below 8
    assert n_star(PARAMETERS, KV, narrow, 8 * KV) == math.inf


def test_n_star_is_none_at_all_or_zero_where_the_cache_weighs_nothing_or_too_much() -> None:
    assert n_star(PARAMETERS, 0.0, H100) == math.inf
    assert find_last_context(lambda _: (1.0, 1e9), H100, 2**24) == 0


def test_without_a_peak_rate_nothing_is_claimed() -> None:
    roofs = Roofs(bytes_per_s=50e9)
    assert ridge_batch(1e9, 1e9, 0, roofs) is None
    assert ridge_batch_of(lambda _: 1e9, 1e9, 0, roofs) is None
    assert find_last_context(lambda _: (1.0, 1.0), roofs, 8) is None


def test_the_ridge_of_a_mixture_counts_the_experts_that_the_batch_itself_touches() -> None:
    experts = ExpertWeights(all_bytes=60e9, share_used=1 / 16)
    found = ridge_batch_of(lambda b: 2e9 + experts.bytes_at(b), 6e9, 0.0, H100)
    assert found is not None
    again = ridge_batch(2e9 + experts.bytes_at(found), 6e9, 0.0, H100)
    assert again == pytest.approx(found)
    assert found > 5 * (ridge_batch(2e9 + experts.bytes_at(1), 6e9, 0.0, H100) or math.inf)


def test_memory_binds_before_the_ridge_does() -> None:
    assert largest_batch(80e9, 65.6e9, 4096 * KV) == 13
    assert largest_batch(80e9, 65.6e9, 32768 * KV) == 1
    assert largest_batch(24e9, 65.6e9, KV) == 0
    assert largest_batch(80e9, 16e9, 0) == math.inf


def test_sizes_that_are_not_positive_are_refused() -> None:
    with pytest.raises(UsageError, match="memory"):
        largest_batch(0, 1, 1)
    with pytest.raises(UsageError, match="weights"):
        ridge_batch(0, 1, 1, H100)
