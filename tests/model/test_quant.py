"""The table of tensor types against the gguf package and against ggml itself."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

import pytest

from cpubound.errors import UsageError
from cpubound.model.quant import (
    QUANT_TYPES,
    REMOVED_TYPES,
    is_known_type_id,
    quant_type,
    unknown_quant_type,
)

# The gguf package writes Q8_1 with two float32 scales; ggml's block_q8_1 holds two float16.
GGUF_PACKAGE_IS_WRONG_ABOUT = {"Q8_1"}


def test_the_table_agrees_with_the_gguf_package() -> None:
    gguf = pytest.importorskip("gguf")
    by_id = {quant.id: quant for quant in QUANT_TYPES}
    for type_, sizes in gguf.GGML_QUANT_SIZES.items():
        quant = by_id[int(type_)]
        assert quant.name == type_.name
        if quant.name not in GGUF_PACKAGE_IS_WRONG_ABOUT:
            assert (quant.block_size, quant.block_bytes) == sizes, quant.name


@pytest.mark.engine
def test_the_table_agrees_with_the_ggml_of_the_engine_type_by_type() -> None:
    found = importlib.util.find_spec("llama_cpp")
    if found is None or found.origin is None:
        pytest.skip("llama-cpp-python is not installed")
    library = next((Path(found.origin).parent / "lib").glob("libggml-base.*"), None)
    if library is None:
        pytest.skip("libggml-base is not beside llama_cpp")
    ggml = ctypes.CDLL(str(library))
    ggml.ggml_type_name.restype = ctypes.c_char_p
    ggml.ggml_type_size.restype = ctypes.c_size_t
    ggml.ggml_blck_size.restype = ctypes.c_int64
    for quant in QUANT_TYPES:
        assert ggml.ggml_type_name(quant.id).decode().upper() == quant.name
        assert ggml.ggml_blck_size(quant.id) == quant.block_size
        assert ggml.ggml_type_size(quant.id) == quant.block_bytes
    known = {quant.id for quant in QUANT_TYPES}
    unused = set(range(max(known))) - known
    assert unused == set(REMOVED_TYPES)
    assert all(ggml.ggml_blck_size(id_) == 0 for id_ in unused)


def test_ids_and_names_are_unique() -> None:
    assert len({quant.id for quant in QUANT_TYPES}) == len(QUANT_TYPES)
    assert len({quant.name for quant in QUANT_TYPES}) == len(QUANT_TYPES)


def test_a_type_is_found_by_name_in_any_case_and_by_id() -> None:
    assert quant_type("q4_k") is quant_type("Q4_K") is quant_type(12)
    assert quant_type("Q4_K").bits_per_weight == 4.5
    assert quant_type("Q4_K").row_bytes(4096) == 2304


@pytest.mark.parametrize("wrong", ["Q4_K_M", "", 4, 43, -1])
def test_a_type_that_ggml_does_not_have_is_refused_by_name(wrong: str | int) -> None:
    with pytest.raises(UsageError, match=r"unknown tensor type \("):
        quant_type(wrong)


def test_an_unknown_id_gets_a_stand_in_that_counts_no_bytes_and_names_the_id() -> None:
    stand_in = unknown_quant_type(199)
    assert "199" in stand_in.name
    assert stand_in.row_bytes(4096) == 0
    assert "Q4_0_4_8" in unknown_quant_type(32).name
    assert not is_known_type_id(199)
    assert is_known_type_id(0)
