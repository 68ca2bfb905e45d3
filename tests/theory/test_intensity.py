"""Arithmetic intensity of the operators."""

from __future__ import annotations

import pytest

from cpubound.errors import UsageError
from cpubound.model.resolve import resolve_model
from cpubound.theory.intensity import element_wise, matrix_product, operators
from cpubound.theory.source import ModelSource


def test_a_product_with_one_vector_moves_two_n_squared_and_four_n_bytes() -> None:
    n = 4096
    work = matrix_product(n, n)
    assert work.flops == 2 * n**2
    assert work.n_bytes == 2 * n**2 + 4 * n
    assert work.intensity == pytest.approx(1, abs=0.001)


def test_a_4096_square_matrix_is_33_55_megabytes_and_megaflop() -> None:
    work = matrix_product(4096, 4096)
    assert work.flops / 1e6 == pytest.approx(33.55, abs=0.005)
    weights = matrix_product(4096, 4096, activation_bytes=0)
    assert weights.n_bytes / 1e6 == pytest.approx(33.55, abs=0.005)


@pytest.mark.parametrize(("bytes_per_weight", "factor"), [(2, 1), (1, 2), (0.5, 4)])
def test_intensity_grows_with_the_batch_and_with_smaller_weights(
    bytes_per_weight: float, factor: float
) -> None:
    for batch in (1, 8, 32):
        work = matrix_product(8192, 8192, batch=batch, bytes_per_weight=bytes_per_weight)
        assert work.intensity == pytest.approx(factor * batch, rel=0.035)


def test_a_prompt_of_n_tokens_is_a_batch_of_n() -> None:
    assert matrix_product(8192, 8192, batch=2048).intensity == pytest.approx(1365, abs=1)


def test_element_wise_operators_have_the_same_intensity_at_any_shape() -> None:
    n, d = 512, 4096
    gelu = element_wise(n * 4 * d, flops_per_element=8)
    assert gelu.n_bytes == 8 * n * d + 8 * n * d  # reads 8Nd, writes 8Nd
    assert gelu.intensity == element_wise(7, flops_per_element=8).intensity == 2
    addition = element_wise(n * d, flops_per_element=1, reads=2)
    assert addition.intensity == pytest.approx(1 / 6)


def test_three_separate_operators_make_three_round_trips() -> None:
    n = 4096
    separate = sum(element_wise(n, flops_per_element=1).n_bytes for _ in range(3))
    assert separate == 3 * element_wise(n, flops_per_element=3).n_bytes


def test_attention_over_the_cache_stays_at_heads_over_kv_heads_whatever_the_batch() -> None:
    source = ModelSource(resolve_model("qwen3-32b:BF16"))
    for batch in (1, 64):
        by_name = {work.name: work for work in operators(source.traffic(32768), batch)}
        assert by_name["attention over the cache"].intensity == pytest.approx(8, rel=0.001)
        assert by_name["norms"].intensity == 1
        assert by_name["feed-forward"].intensity == pytest.approx(batch, rel=0.03)


def test_operators_add_up_to_the_flops_of_the_step() -> None:
    source = ModelSource(resolve_model("qwen3-30b-a3b:Q4_K_M"))
    work = source.work(4096)
    found = operators(source.traffic(4096), 8, work.experts)
    total = sum(operator.flops for operator in found if operator.name != "norms")
    assert total == pytest.approx(work.flops(8))


def test_sizes_that_are_not_positive_are_refused() -> None:
    for rows, columns, batch, size in ((0, 1, 1, 2), (1, -1, 1, 2), (1, 1, 0, 2), (1, 1, 1, 0)):
        with pytest.raises(UsageError):
            matrix_product(rows, columns, batch=batch, bytes_per_weight=size)
    with pytest.raises(UsageError):
        element_wise(0, flops_per_element=1)
