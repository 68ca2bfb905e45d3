"""Arithmetic intensity of the operators."""

from __future__ import annotations

import pytest

from cpubound.errors import UsageError
from cpubound.model.resolve import resolve_model
from cpubound.theory.intensity import element_wise, operators
from cpubound.theory.source import ModelSource


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


def test_a_size_that_is_not_positive_is_refused() -> None:
    with pytest.raises(UsageError):
        element_wise(0, flops_per_element=1)
