"""File types: names, ids, and lists of them."""

from __future__ import annotations

import pytest

from cpubound.errors import UsageError
from cpubound.model.ftype import FILE_TYPES, file_type, parse_file_types


def test_a_file_type_is_found_by_name_and_by_id() -> None:
    assert file_type("q4_k_m") is file_type(15)
    assert len({known.id for known in FILE_TYPES}) == len(FILE_TYPES)
    for unknown in ("Q4_K_X", 4, ""):
        with pytest.raises(UsageError, match="unknown file type"):
            file_type(unknown)


@pytest.mark.parametrize("text", ["", " , ", "Q4_0,Q9"])
def test_a_list_of_file_types_that_names_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="file type"):
        parse_file_types(text)


def test_a_list_of_file_types_names_each_once_and_all_means_all() -> None:
    assert parse_file_types("Q8_0, q4_k_m,Q8_0") == ("Q8_0", "Q4_K_M")
    assert len(parse_file_types("ALL")) == len(FILE_TYPES)
