from __future__ import annotations

import pytest

from cpubound.errors import UsageError
from cpubound.model.catalog import catalog_entry
from cpubound.model.ftype import COMMON_FILE_TYPES
from cpubound.model.retype import retype


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b", "gemma-3-4b"])
@pytest.mark.parametrize("file_type", COMMON_FILE_TYPES)
def test_a_model_at_another_type_is_the_model_described_at_that_type(
    name: str, file_type: str
) -> None:
    entry = catalog_entry(name)
    retyped = retype(entry.at("Q8_0"), file_type)
    assert retyped.tensors == entry.at(file_type).tensors
    assert retyped.file_type == entry.at(file_type).file_type


def test_an_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="Q9_X"):
        retype(catalog_entry("llama-3.1-8b").at("Q8_0"), "Q9_X")
