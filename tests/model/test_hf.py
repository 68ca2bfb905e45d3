"""Hugging Face configs: the keys they become, and that no config does more than be refused."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpubound.errors import CpuboundError, InputError
from cpubound.model.catalog import catalog_entry, catalog_names
from cpubound.model.hf import shape_from_config
from cpubound.model.hf.families import FAMILIES
from cpubound.package_data import read_toml

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 32.0},
    "tie_word_embeddings": True,
}


def published_config(name: str) -> dict[str, Any]:
    return dict(read_toml("model", "catalogue", f"{name}.toml")["config"])


def test_a_config_becomes_the_keys_of_the_converter() -> None:
    shape = shape_from_config(LLAMA, "x")
    assert shape.architecture == "llama"
    assert dict(shape.hyper_parameters) == {
        "block_count": 16,
        "context_length": 131072,
        "embedding_length": 2048,
        "feed_forward_length": 8192,
        "attention.head_count": 32,
        "attention.head_count_kv": 8,
        "attention.layer_norm_rms_epsilon": 1e-05,
        "rope.freq_base": 500000.0,
        "rope.dimension_count": 64,
    }
    assert (shape.vocabulary_size, shape.tied_output) == (128256, True)
    assert shape.features == ("rope_freqs",)


def test_the_language_model_of_a_multimodal_config_is_taken() -> None:
    nested = {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"}
    config = {"model_type": "llava", "tie_word_embeddings": True, "text_config": nested}
    assert shape_from_config(config, "x") == shape_from_config(LLAMA, "x")


def test_a_wrapped_model_of_a_known_class_has_that_layout() -> None:
    own = published_config("exaone-4.0-32b")
    text = {**own, "model_type": "exaone4_5_text", "architectures": ["Exaone4ForCausalLM"]}
    shape = shape_from_config({"model_type": "exaone4_5", "text_config": text}, "x")
    assert shape.hyper_parameters == shape_from_config(own, "x").hyper_parameters
    assert shape.at("Q4_0").warnings == ("the layout is that of exaone4, as its class says",)


@pytest.mark.parametrize(
    ("model_type", "tied"), [("llama", False), ("qwen2", False), ("gemma2", True), ("lfm2", True)]
)
def test_a_config_that_says_nothing_of_the_output_means_its_class_default(
    model_type: str, tied: bool
) -> None:
    name = {"llama": "llama-2-7b", "qwen2": "qwen2.5-7b", "gemma2": "gemma-2-2b"}.get(
        model_type, "lfm2-1.2b"
    )
    config = published_config(name)
    config.pop("tie_word_embeddings", None)
    config.pop("tie_embedding", None)
    assert shape_from_config(config, "x").tied_output is tied


def test_rope_may_be_spelled_the_old_way_or_the_new() -> None:
    old = {
        **LLAMA,
        "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 8},
    }
    new = {key: value for key, value in old.items() if key not in ("rope_scaling", "rope_theta")}
    new["rope_parameters"] = {
        "rope_type": "yarn",
        "rope_theta": 500000.0,
        "factor": 4,
        "original_max_position_embeddings": 8,
    }
    keys = shape_from_config(old, "x").hyper_parameters
    assert keys == shape_from_config(new, "x").hyper_parameters
    assert keys["rope.scaling.type"] == "yarn"
    assert keys["rope.freq_base"] == 500000.0


def test_rows_beyond_the_tokens_of_gemma_3_are_dropped() -> None:
    config = {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        },
    }
    ours = shape_from_config(config, "gemma-3-4b")
    assert ours == catalog_entry("gemma-3-4b").shape


def test_kinds_of_layers_become_arrays_of_heads() -> None:
    hybrid: dict[str, Any] = {**catalog_entry("granite-4.0-h-tiny").shape.hyper_parameters}
    kv_heads = hybrid["attention.head_count_kv"]
    assert [i for i, heads in enumerate(kv_heads) if heads] == [5, 15, 25, 35]
    nemotron: dict[str, Any] = {**catalog_entry("nemotron-3-nano-30b-a3b").shape.hyper_parameters}
    assert nemotron["feed_forward_length"][:3] == (0, 1856, 0)


def test_blocks_may_be_letters_or_words() -> None:
    config = published_config("nemotron-3-nano-30b-a3b")
    words = {"M": "mamba", "E": "moe", "*": "attention"}
    by_words = {
        **config,
        "layers_block_type": [words[c] for c in config["hybrid_override_pattern"]],
    }
    del by_words["hybrid_override_pattern"]
    assert shape_from_config(by_words, "x") == shape_from_config(config, "x")


def test_an_unknown_family_is_answered_with_near_names_and_no_long_list() -> None:
    with pytest.raises(InputError, match=r"'qwen3_next_2'.*near names: qwen3_next") as refused:
        shape_from_config({"model_type": "qwen3_next_2"}, "x")
    assert len(str(refused.value)) < 200
    odd: tuple[Any, ...] = (None, 3, ["llama"], {})
    for model_type in odd:
        with pytest.raises(InputError, match="no layout"):
            shape_from_config({"model_type": model_type}, "x")


FIELDS = sorted(
    {
        key
        for name in catalog_names()
        for key in read_toml("model", "catalogue", f"{name}.toml")["config"]
    }
)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(0, 64)
    | st.floats()
    | st.sampled_from(["", "yarn", "full_attention", "3,4", "M*-E"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["rope_type", "factor", "alpha", "rope_theta"]), inner, max_size=3
        )
    ),
    max_leaves=4,
)


@settings(max_examples=400, deadline=None)
@given(
    name=st.sampled_from(catalog_names()),
    changes=st.dictionaries(st.sampled_from(FIELDS), JUNK, min_size=1, max_size=3),
)
def test_a_config_with_odd_values_is_read_or_refused_and_nothing_else(
    name: str, changes: dict[str, Any]
) -> None:
    config = {**published_config(name), **changes}
    with contextlib.suppress(CpuboundError):
        shape_from_config(config, "x").at("Q4_K_M")


@pytest.mark.parametrize("model_type", FAMILIES)
def test_an_empty_config_of_any_family_is_refused(model_type: str) -> None:
    with pytest.raises(CpuboundError):
        shape_from_config({"model_type": model_type}, "x")
