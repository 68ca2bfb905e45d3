"""Layouts: against what llama.cpp itself saves, and what is said where one does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cpubound.errors import CpuboundError, UsageError
from cpubound.model.catalog import catalog_entry, catalog_names
from cpubound.model.gguf import read_gguf
from cpubound.model.hf.families import FAMILIES
from cpubound.model.layout import architectures, build_model, layout_of, tensor_shapes

# Made by llama.cpp without a file, these hold fused tensors where files hold split ones, or
# the other way round; the sums of both are the same.
FUSED_OR_SPLIT = ("attn_qkv", "attn_q.", "attn_k.", "attn_v.", "_exps.")
# Tensors that a model may have and that none of the catalogue has.
NEVER_IN_A_FILE = (".scale", ".input_scale")

LLAMA: dict[str, Any] = {
    "block_count": 2,
    "context_length": 512,
    "embedding_length": 256,
    "feed_forward_length": 512,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
}


def significant(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop trailing extents of one, which ggml does not tell apart."""
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def test_layouts_are_what_llama_cpp_saves(tiny_models: Path) -> None:
    known = {name.replace("_", "-") for name in architectures()}
    paths = [
        path
        for path in sorted(tiny_models.iterdir())
        if path.stem.rpartition("-")[0].replace("_", "-") in known
    ]
    assert len(paths) >= 15
    for path in paths:
        spec = read_gguf(path)
        saved = {tensor.name: significant(tensor.shape) for tensor in spec.tensors}
        shapes = tensor_shapes(
            spec.architecture,
            spec.hyper_parameters,
            vocabulary_size=spec.vocabulary_size or 0,
            tied_output="output.weight" not in saved,
        )
        ours = {shape.name: significant(shape.shape) for shape in shapes}
        for name, shape in ours.items():
            if any(part in name for part in FUSED_OR_SPLIT) and name not in saved:
                continue
            assert saved.get(name) == shape, f"{path.name}: {name}"
        matrices = {
            name
            for name, shape in saved.items()
            if len(shape) > 1 and name.startswith("blk.") and not name.endswith(NEVER_IN_A_FILE)
        }
        not_ours = {name for name in matrices - set(ours) if name.endswith(".weight")}
        assert all(any(p in name for p in FUSED_OR_SPLIT) for name in not_ours), path.name


def test_every_family_of_configs_has_a_layout() -> None:
    for family in FAMILIES.values():
        assert layout_of(family.architecture)


def test_every_layout_of_the_catalogue_names_each_tensor_once() -> None:
    for name in catalog_names():
        names = [tensor.name for tensor in catalog_entry(name).at("F16").tensors]
        assert len(names) == len(set(names)), name


def test_a_model_is_built_from_hyper_parameters() -> None:
    spec = build_model("llama", LLAMA, "Q8_0", vocabulary_size=512, tied_output=False, name="probe")
    shapes = {tensor.name: tensor.shape for tensor in spec.tensors}
    assert shapes["blk.1.attn_k.weight"] == (256, 128)
    assert shapes["output.weight"] == (256, 512)
    assert len(shapes) == 3 + 2 * 9
    assert spec.hyper_parameters["vocab_size"] == 512


def test_head_sizes_and_widths_may_differ_by_layer() -> None:
    keys = {**LLAMA, "attention.head_count_kv": (1, 4), "attention.key_length": 32}
    shapes = {
        shape.name: shape.shape
        for shape in tensor_shapes("llama", keys, vocabulary_size=512, tied_output=True)
    }
    assert "output.weight" not in shapes
    assert shapes["blk.0.attn_k.weight"] == (256, 32)
    assert shapes["blk.1.attn_k.weight"] == (256, 128)
    assert shapes["blk.1.attn_v.weight"] == (256, 4 * 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_count": 0}, "1 to 512 layers"),
        ({"block_count": 10**9}, "1 to 512 layers"),
        ({"embedding_length": None}, "embedding_length"),
        ({"embedding_length": "wide"}, "embedding_length"),
        ({"feed_forward_length": 0}, "ffn_gate.weight"),
    ],
)
def test_hyper_parameters_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    keys = {key: value for key, value in {**LLAMA, **change}.items() if value is not None}
    with pytest.raises(CpuboundError, match=message):
        build_model("llama", keys, "Q8_0", vocabulary_size=512, tied_output=True, name="x")


def test_an_unknown_architecture_or_feature_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no tensor layout .*llama"):
        layout_of("transformer")
    with pytest.raises(UsageError, match=r"no optional tensors .*rope_freqs"):
        tensor_shapes(
            "llama", LLAMA, vocabulary_size=512, tied_output=True, features=("attn_sinks",)
        )


def test_optional_tensors_are_there_when_named() -> None:
    features = ("rope_freqs", "qkv_bias")
    shapes = tensor_shapes("llama", LLAMA, vocabulary_size=512, tied_output=True, features=features)
    by_name = {shape.name: shape.shape for shape in shapes}
    assert by_name["rope_freqs.weight"] == (32,)
    assert by_name["blk.1.attn_k.bias"] == (128,)
