"""Models are found from what other people's tables say of them."""

from __future__ import annotations

import pytest
from kept import published_rates

from cpubound.model.catalog import catalog_model
from cpubound.model.identify import (
    ModelClues,
    fits_tensor_bytes,
    identify_model,
)
from cpubound.model.names import catalog_name_in, file_type_in


@pytest.mark.parametrize(
    ("text", "file_type"),
    [
        ("llama 7B mostly Q4_0", "Q4_0"),
        ("qwen2 7B Q4_K - Medium", "Q4_K_M"),
        ("llama 8B Q3_K - Large", "Q3_K_L"),
        ("llama 8B Q2_K - Medium", "Q2_K"),
        ("llama 8B IQ3_S mix - 3.66 bpw", "IQ3_M"),
        ("llama 8B IQ2_XXS - 2.0625 bpw", "IQ2_XXS"),
        ("gpt-oss 20B MXFP4 MoE", "MXFP4_MOE"),
        ("llama 7B all F32", "F32"),
        ("llama 1B Q5_K - Small (guessed)", "Q5_K_S"),
        ("Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("model-bf16.gguf", "BF16"),
        ("Q4_K_S_R4", "Q4_K_S"),
        ("Q4_0_8_8 (repacked)", "Q4_0"),
        ("deepseek2 671B IQ4_K_R4 - 4.5 bpw", None),
        ("qwen3 4B", None),
    ],
)
def test_a_file_type_is_read_from_labels_and_names(text, file_type):
    assert file_type_in(text) == file_type


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("models\\Qwen2.5-7B-Instruct-Q4_K_M.gguf", "qwen2.5-7b"),
        ("gemma-3-1b-it-Q8_0.gguf", "gemma-3-1b"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m"),
        ("Qwen2.5-Coder-7B", "qwen2.5-coder-7b"),
        ("Qwen2.5-Coder-3B", "qwen2.5-3b"),
        ("Qwen3-30B-A3B-2507", "qwen3-30b-a3b"),
        ("DeepSeek-R1 671B", "deepseek-r1"),
        ("LLaMA 7B", "llama-2-7b"),
        ("ggml-model-q4_0.gguf", None),
        ("not stated", None),
        ("", None),
    ],
)
def test_a_model_is_named_as_people_write_it(text, name):
    assert catalog_name_in(text) == name


@pytest.mark.parametrize(
    ("label", "parameters", "tensor_bytes", "name", "quant"),
    [
        # As llama-bench printed them.
        ("llama 256M Q4_1", 134515008, 96576768, "smollm2-135m", "Q4_1"),
        ("qwen2 7B Q4_K - Medium", 7615616512, 4677120000, "qwen2.5-7b", "Q4_K_M"),
        ("llama 7B mostly Q4_0", 6738415616, 3825065984, "llama-2-7b", "Q4_0"),
        (
            "llama 1B Q4_K - Medium",
            1_100_000_000,
            round(636.18 * 2**20),
            "tinyllama-1.1b",
            "Q4_K_M",
        ),
        ("llama 8B Q4_K - Medium", 8_030_000_000, round(4.58 * 2**30), "llama-3.1-8b", "Q4_K_M"),
    ],
)
def test_counts_and_bytes_name_a_model(label, parameters, tensor_bytes, name, quant):
    spec = identify_model(ModelClues(label=label, parameters=parameters, tensor_bytes=tensor_bytes))
    assert spec is not None
    wanted = catalog_model(name, quant)
    assert {(t.name, t.shape) for t in spec.tensors if len(t.shape) > 1} == {
        (t.name, t.shape) for t in wanted.tensors if len(t.shape) > 1
    }


def test_a_file_name_chooses_among_models_of_the_same_size():
    clues = ModelClues(
        label="qwen2 7B Q4_K - Medium",
        filename="DeepSeek-R1-Distill-Qwen-7B-Q4_K_M.gguf",
        parameters=7615616512,
    )
    spec = identify_model(clues)
    assert spec is not None
    assert spec.name == "deepseek-r1-distill-qwen-7b"


@pytest.mark.parametrize(
    "clues",
    [
        ModelClues(label="llama 8B Q4_K - Medium"),
        ModelClues(label="llama 8B", parameters=8_030_000_000),
        ModelClues(label="llama 8B Q4_K - Medium", parameters=8_030_000_000, tensor_bytes=10**9),
        ModelClues(label="llama 8B Q4_K - Medium", parameters=7_000_000_000),
    ],
)
def test_what_is_not_certain_is_not_named(clues):
    assert identify_model(clues) is None


def test_tensor_bytes_tell_files_of_one_model_apart():
    spec = catalog_model("llama-3.1-8b", "Q4_K_M")
    assert fits_tensor_bytes(spec, round(4.58 * 2**30))
    assert not fits_tensor_bytes(spec, round(4.33 * 2**30))


def test_published_files_take_the_bytes_that_the_catalogue_says():
    rows = [row for row in published_rates() if row["file_size_basis"] == "stated"]
    off = {}
    for row in rows:
        name, quant = catalog_name_in(row["model"]), file_type_in(row["quant"])
        # The fork counts tied token tables twice; a file of its own mix says so.
        if name and quant and "fork" not in row["note"] and "mix" not in row["quant"]:
            spec = catalog_model(name, quant)
            own = sum(tensor.n_bytes for tensor in spec.tensors) / 2**30
            off[row["model"], row["quant"]] = own / float(row["file_GiB"]) - 1
    assert len(off) > 30
    close = [name for name, error in off.items() if abs(error) < 0.02]
    assert len(close) >= 0.9 * len(off), {k: v for k, v in off.items() if abs(v) >= 0.02}
