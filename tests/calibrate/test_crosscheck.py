"""The crosscheck pairs figures of the same round and keeps every one of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from calibrate import crosscheck, gemv
from calibrate.crosscheck import EVERY, Cell, describe, document


def turns(*figures: float) -> Callable[[], float]:
    iterator = iter(figures)
    return lambda: next(iterator)


def measured(rounds: int, **instruments: Callable[[], float]) -> Cell:
    cell = Cell(family="stream", kernel="read", threads=1, unit="GB/s", instruments=instruments)
    cell.measure(rounds, random.Random(0))
    return cell


def test_ratios_are_taken_within_a_round() -> None:
    cell = measured(3, cpubound=turns(10e9, 20e9, 30e9), STREAM=turns(5e9, 20e9, 10e9))
    assert cell.ratio("STREAM") == (1.0, 2.0, 3.0)
    assert cell.best_ratio("STREAM") == 1.5


def test_an_instrument_that_starts_slowly_is_paired_only_where_it_ran() -> None:
    cell = measured(EVERY["likwid"] + 1, cpubound=turns(4.0, 8.0, 8.0, 6.0), likwid=turns(2.0, 2.0))
    assert cell.figures["likwid"] == [2.0, None, None, 2.0]
    assert cell.ratio("likwid") == (2.0, 2.5, 3.0)


def test_a_line_names_every_standard_and_the_document_keeps_every_figure() -> None:
    cell = measured(2, cpubound=turns(10e9, 20e9), STREAM=turns(10e9, 10e9))
    assert "STREAM 2.000, 1.500 [1.00 … 2.00]" in describe(cell)
    read = json.loads(json.dumps(document([cell], 2)))
    assert read["schema"] == crosscheck.SCHEMA
    assert read["cells"][0]["figures"] == {"cpubound": [10.0, 20.0], "STREAM": [10.0, 10.0]}
    assert read["cells"][0]["ratios"]["STREAM"]["median"] == 1.5


@pytest.mark.parametrize("type_name", gemv.TYPES)
def test_a_model_for_llama_cpp_has_one_type_in_all_its_matrices(type_name: str) -> None:
    spec = gemv.one_type_model(type_name)
    matrices = [tensor for tensor in spec.tensors if len(tensor.shape) > 1]
    assert {tensor.type.name for tensor in matrices} == {type_name}
    assert sum(tensor.n_bytes for tensor in matrices) >= gemv.MODEL_BYTES / 2
