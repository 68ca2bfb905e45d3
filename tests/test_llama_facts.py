"""cpubound.llama_facts, against llama.cpp itself where it can be asked."""

from __future__ import annotations

import pytest

from cpubound.errors import UsageError
from cpubound.llama_facts import (
    KV_TYPES,
    MAX_BATCH,
    N_UBATCH,
    check_batch,
    needs_flash_attn,
    pad_cells,
)
from cpubound.model.quant import quant_type


def test_llama_cpp_has_the_limits_that_are_noted() -> None:
    llama = pytest.importorskip("llama_cpp.llama_cpp")
    assert llama.llama_max_parallel_sequences() == MAX_BATCH
    assert llama.llama_context_default_params().n_ubatch == N_UBATCH


@pytest.mark.parametrize(
    ("cells", "padded"), [(0, 256), (1, 256), (256, 256), (257, 512), (8192, 8192)]
)
def test_cells_come_in_steps_of_256(cells: int, padded: int) -> None:
    assert pad_cells(cells) == padded


@pytest.mark.parametrize("name", KV_TYPES)
def test_v_needs_flash_attention_where_its_type_has_blocks(name: str) -> None:
    assert needs_flash_attn(name) == (quant_type(name).block_size > 1)


def test_no_more_sequences_pass_than_llama_cpp_decodes_together() -> None:
    check_batch(MAX_BATCH)
    with pytest.raises(UsageError, match="at most 256"):
        check_batch(MAX_BATCH + 1)
