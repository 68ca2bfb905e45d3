"""Tensor types: every line of llama.cpp's own snapshots, and the odd shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from kept import DATA, read_text

from cpubound.errors import UsageError
from cpubound.model.catalog import catalog_entry
from cpubound.model.ftype import file_type
from cpubound.model.ftype.tensor_types import NamedShape, tensor_types
from cpubound.model.layout import ModelShape, tensor_shapes

# Snapshot -> the catalogue's name; the file of Qwen3 0.6B repeats its tied output.
MODELS = {
    "qwen3-0.6b": ("qwen3-0.6b", False),
    "meta-llama-3.1-70b-instruct": ("llama-3.1-70b", False),
    "gpt-oss-120b": ("gpt-oss-120b", False),
}


def shapes_of(shape: ModelShape) -> tuple[NamedShape, ...]:
    return tensor_shapes(
        shape.architecture,
        shape.hyper_parameters,
        vocabulary_size=shape.vocabulary_size,
        tied_output=shape.tied_output,
        features=shape.features,
    )


def types_of(shape: ModelShape, file_type_name: str) -> dict[str, str]:
    shapes = shapes_of(shape)
    types = tensor_types(
        shapes,
        file_type_name,
        architecture=shape.architecture,
        hyper_parameters=shape.hyper_parameters,
    )
    return {s.name: t.name for s, t in zip(shapes, types, strict=True)}


def read_snapshot(path: Path) -> dict[str, tuple[str, dict[str, str]]]:
    """Return file type -> default type, and the tensors that have another."""
    sections: dict[str, tuple[str, dict[str, str]]] = {}
    overrides: dict[str, str] = {}
    for line in read_text(path).splitlines():
        header = re.fullmatch(r"\[(\w+)\] (\w+)", line)
        if header:
            overrides = {}
            sections[header[1]] = (header[2].upper(), overrides)
        elif line and not line.startswith("#"):
            name, _, type_name = line.rpartition(" ")
            overrides[name] = type_name.upper()
    return sections


def expected_types(shape: ModelShape, default: str, overrides: Mapping[str, str]) -> dict[str, str]:
    # What Q8_0 leaves as it is, every file type does.
    quantised = {name for name, type_ in types_of(shape, "Q8_0").items() if type_ == "Q8_0"}
    return {name: overrides.get(name, default) for name in quantised}


@pytest.mark.parametrize("snapshot", MODELS)
def test_every_tensor_gets_the_type_of_the_snapshot(snapshot: str) -> None:
    name, tied_output = MODELS[snapshot]
    shape = replace(catalog_entry(name).shape, tied_output=tied_output)
    sections = read_snapshot(DATA / "ftype" / f"{snapshot}.schema.xz")
    assert len(sections) == 33
    for file_type_name, (default, overrides) in sections.items():
        assert file_type(file_type_name).default_type == default
        got = types_of(shape, file_type_name)
        expected = expected_types(shape, default, overrides)
        assert set(overrides) <= set(expected)
        assert {name: got[name] for name in expected} == expected, file_type_name


LLAMA = {"block_count": 8, "attention.head_count": 8, "attention.head_count_kv": 8}


def one_type(name: str, shape: tuple[int, ...], file_type_name: str, **keys: int) -> str:
    """Return the type of one tensor of a model whose output is not tied."""
    architecture = "falcon" if keys.pop("falcon", 0) else "llama"
    shapes = (NamedShape(name=name, shape=shape), NamedShape(name="output.weight", shape=(256, 8)))
    hyper_parameters = {**LLAMA, **keys}
    return tensor_types(
        shapes, file_type_name, architecture=architecture, hyper_parameters=hyper_parameters
    )[0].name


@pytest.mark.parametrize(
    ("file_type_name", "columns", "expected"),
    [
        ("Q4_K_S", 96, "Q5_0"),
        ("Q5_K_S", 96, "Q5_1"),
        ("Q6_K", 96, "Q8_0"),
        ("Q3_K_S", 96, "Q4_0"),
        ("TQ2_0", 96, "Q4_0"),
        ("IQ4_XS", 96, "IQ4_NL"),
        ("IQ1_S", 96, "IQ4_NL"),
        ("Q4_K_S", 80, "F16"),  # not even blocks of 32 fit
        ("Q8_0", 80, "F16"),
        ("Q2_0", 96, "Q4_0"),
    ],
)
def test_rows_that_blocks_do_not_divide_get_smaller_blocks(
    file_type_name: str, columns: int, expected: str
) -> None:
    assert one_type("blk.5.attn_q.weight", (columns, 64), file_type_name) == expected


def test_a_type_without_smaller_blocks_is_refused() -> None:
    with pytest.raises(UsageError, match="no smaller blocks for rows of 96"):
        one_type("blk.5.attn_q.weight", (96, 64), "Q1_0")


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("blk.0.attn_norm.weight", (256,), "F32"),
        ("blk.0.ffn_gate_inp.weight", (256, 8), "F32"),
        ("blk.0.ffn_gate_inp_shexp.weight", (256,), "F32"),
        ("blk.0.ssm_conv1d.weight", (4, 512), "F32"),
        ("blk.0.ssm_a", (1, 64), "F32"),
        ("blk.0.ffn_up_exps.bias", (64, 8), "F32"),
        ("blk.0.laurel_l.weight", (256, 64), "F16"),
        ("per_layer_model_proj.weight", (256, 512), "F16"),
        ("blk.0.time_mix_a1.weight", (256, 64), "F16"),
    ],
)
def test_small_tensors_keep_what_the_converter_wrote(
    name: str, shape: tuple[int, ...], expected: str
) -> None:
    assert one_type(name, shape, "Q4_K_M", expert_count=8) == expected
    assert one_type(name, shape, "F32", expert_count=8) == "F32"


def test_eight_experts_and_falcon_have_rules_of_their_own() -> None:
    assert one_type("blk.3.attn_k.weight", (256, 64), "Q2_K", expert_count=8) == "Q8_0"
    assert one_type("blk.3.attn_v.weight", (256, 64), "Q2_K", expert_count=8) == "Q8_0"
    assert one_type("blk.3.attn_output.weight", (256, 64), "Q4_K_M", expert_count=8) == "Q5_K"
    assert one_type("blk.3.ffn_down.weight", (256, 64), "Q3_K_L", falcon=1) == "Q4_K"
    assert one_type("blk.3.ffn_down.weight", (256, 64), "Q3_K_L") == "Q5_K"


def test_a_looped_model_has_as_many_layers_as_it_runs() -> None:
    at_two = {"block_count": 8, "num_loops": 2}
    # Layer 1 of 8 is past the first eighth; of 16 it is within.
    assert one_type("blk.0.ffn_down.weight", (256, 64), "Q2_K_S") == "Q4_K"
    names = tuple(f"blk.{n}.ffn_down.weight" for n in range(8))
    shapes = [NamedShape(name=name, shape=(256, 64)) for name in names]
    types = tensor_types(shapes, "Q2_K_S", architecture="nanbeige", hyper_parameters=at_two)
    assert [t.name for t in types] == ["Q4_K"] * 2 + ["Q2_K"] * 6


def test_an_expert_tensor_outside_the_layers_is_refused() -> None:
    with pytest.raises(UsageError, match="tensor of no layer"):
        one_type("mtp.ffn_down.weight", (256, 64), "Q4_K_M", expert_count=4)


def test_a_tied_embedding_gets_the_type_of_an_output() -> None:
    shape = catalog_entry("llama-3.2-1b").shape
    assert types_of(shape, "Q4_K_M")["token_embd.weight"] == "Q6_K"
    assert types_of(shape, "IQ2_XS")["token_embd.weight"] == "Q5_K"
    untied = replace(shape, tied_output=False)
    assert types_of(untied, "IQ2_XS")["token_embd.weight"] == "Q2_K"
