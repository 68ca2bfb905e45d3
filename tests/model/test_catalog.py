"""The catalogue: totals as published, sizes as published, names as people write them."""

from __future__ import annotations

import pytest

from cpubound.errors import UsageError
from cpubound.model.catalog import catalog_entry, catalog_model, catalog_names

SIZES = [(name, type_) for name in catalog_names() for type_ in catalog_entry(name).sizes]


@pytest.mark.parametrize("name", catalog_names())
def test_the_parameters_add_up_to_the_published_count(name: str) -> None:
    entry = catalog_entry(name)
    total = sum(tensor.elements for tensor in catalog_model(name, "F16").tensors)
    assert total == pytest.approx(entry.parameters, rel=0.005)


@pytest.mark.parametrize(("name", "file_type"), SIZES)
def test_the_file_is_as_large_as_the_published_one(name: str, file_type: str) -> None:
    published = catalog_entry(name).sizes[file_type]
    assert catalog_model(name, file_type).file_bytes == pytest.approx(published, rel=0.01)


def test_every_entry_says_where_it_is_from() -> None:
    for name in catalog_names():
        entry = catalog_entry(name)
        assert entry.title and entry.source.startswith("https://")


def test_a_model_of_the_catalogue_has_no_shards_and_tensors_without_gaps() -> None:
    spec = catalog_model("qwen2.5-0.5b", "Q4_K_M")
    assert spec.shards == ()
    end = 0
    for tensor in spec.tensors:
        assert end <= tensor.offset < end + 32
        end = tensor.offset + tensor.n_bytes


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("lama-3.2-1b", "llama-3.2-1b"), ("gemma3-4b", "gemma-3-4b"), ("qwen-3-8b", "qwen3-8b")],
)
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(typed: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"did you mean .*{meant}"):
        catalog_model(typed, "Q4_K_M")


@pytest.mark.parametrize("typed", ["zzz", "gpt-4o", "x" * 500])
def test_a_name_that_is_far_off_is_answered_with_a_few(typed: str) -> None:
    with pytest.raises(UsageError, match=r"no model of this name") as caught:
        catalog_model(typed, "Q4_K_M")
    suggested = [name for name in catalog_names() if name in str(caught.value)]
    assert 1 <= len(suggested) <= 8  # four, and names that are part of those
