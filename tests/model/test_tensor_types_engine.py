"""Layouts and tensor types against llama.cpp itself: it loads, and quantises in a dry run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from calibrate.file_types import Quantiser, differences, vary, write_hollow
from calibrate.traffic import GRAPHS, kept_specs
from cpubound.model.catalog import catalog_entry
from cpubound.model.layout import ModelShape
from cpubound.model.retype import retype

pytestmark = pytest.mark.engine
pytest.importorskip("llama_cpp")

NARROW: dict[str, Any] = {
    "block_count": 16,
    "context_length": 512,
    "embedding_length": 256,
    "feed_forward_length": 512,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "rope.dimension_count": 64,
}
EXPERTS = {
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_feed_forward_length": 256,
    "expert_shared_feed_forward_length": 256,
}
# A model of the catalogue, and what makes it small without changing its kind.
SMALL: dict[str, dict[str, Any]] = {
    "llama-3.2-1b": {},
    "gemma-3-1b": {"attention.sliding_window": 64},
    "phi-4-mini": {"embedding_length": 288, "attention.head_count": 3, "rope.dimension_count": 96},
    "mixtral-8x7b": {"expert_count": 8, "expert_used_count": 2},
    "qwen3-30b-a3b": EXPERTS,
    "gpt-oss-20b": {**EXPERTS, "embedding_length": 288},
    "qwen3-coder-next": {
        **EXPERTS,
        "ssm.group_count": 2,
        "ssm.time_step_rank": 4,
        "ssm.inner_size": 512,
    },
    "granite-4.0-h-micro": {
        "ssm.inner_size": 512,
        "ssm.time_step_rank": 8,
        "attention.head_count_kv": tuple(2 if i == 5 else 0 for i in range(16)),
    },
}


def small(name: str) -> ModelShape:
    shape = catalog_entry(name).shape
    keys = {**shape.hyper_parameters, **NARROW, **SMALL[name]}
    # Head sizes follow from the width for families that know no other.
    if shape.architecture in ("phi3", "gpt-oss"):
        head = int(keys["embedding_length"]) // int(keys["attention.head_count"])
        keys = {**keys, "attention.key_length": head, "attention.value_length": head}
    if shape.architecture == "gpt-oss":
        keys["rope.dimension_count"] = head
    return ModelShape(
        name=name,
        architecture=shape.architecture,
        hyper_parameters=keys,
        vocabulary_size=512,
        tied_output=shape.tied_output,
        features=shape.features,
    )


@pytest.mark.parametrize("name", SMALL)
def test_llama_cpp_loads_the_layout_and_chooses_the_same_types(name: str, tmp_path: Path) -> None:
    spec = small(name).at("F16")
    path = tmp_path / "model.gguf"
    write_hollow(spec, path)
    quantiser = Quantiser()
    answer = quantiser.ask(path, load=True)
    quantiser.close()
    assert answer is not None
    assert answer.parameters == sum(tensor.elements for tensor in spec.tensors)
    assert differences(spec, answer.types) == []


def test_variations_of_any_architecture_get_the_types_that_llama_cpp_chooses(
    tmp_path: Path,
) -> None:
    random_ = random.Random(7)
    kept = list(kept_specs(GRAPHS))
    quantiser = Quantiser()
    compared = 0
    for number in range(12):
        spec = retype(vary(random_.choice(kept), random_), "F16")
        path = tmp_path / f"{number}.gguf"
        write_hollow(spec, path)
        answer = quantiser.ask(path)
        if answer is None:  # an assertion on keys that do not fit one another
            quantiser.close()
            quantiser = Quantiser()
        elif any(answer.types.values()):
            compared += 1
            assert differences(spec, answer.types) == [], spec.name
    quantiser.close()
    assert compared >= 4
