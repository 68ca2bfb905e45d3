"""A Hugging Face ``config.json`` to the GGUF hyper-parameters that the converter writes.

The mapping is that of llama.cpp ``conversion/*.py`` (commit 0c1e57098bba), for the families
that ``layouts.toml`` describes. Values that a config leaves out are the defaults of its
class in ``transformers``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cpubound import bounds
from cpubound.errors import InputError
from cpubound.model.hf.config import Config, Keys, common_keys
from cpubound.model.hf.families import FAMILIES
from cpubound.model.json_file import read_json
from cpubound.model.layout import ModelShape

INDEX_NAME = "model.safetensors.index.json"
_CAUSAL = "ForCausalLM"
_FEW = 4  # names that a message suggests
_BYTES_PER_PARAMETER = {"float32": 4, "float16": 2, "bfloat16": 2}


def read_config(path: Path) -> ModelShape:
    """Read the shape of a model from its ``config.json``.

    Beside an index of safetensors the parameter count is checked against the weights, and
    a difference becomes a warning. Raises ``InputError`` for a file that cannot be used.
    """
    config = read_json(path, bounds.CONFIG_BYTES)
    if "weight_map" in config:
        raise InputError(f"this is an index of weights ({path}): give the config.json beside it")
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return shape_from_config(config, name, stored_parameters(path.parent, config))


def shape_from_config(
    config: Mapping[str, Any], name: str, stored_parameters: int | None = None
) -> ModelShape:
    """Map a parsed ``config.json`` to a model's architecture and hyper-parameters.

    ``stored_parameters`` is how many the weights hold, where known. Raises ``InputError``
    for a family without a layout and for values that are missing.
    """
    text = config.get("text_config")
    merged = {**config, **text} if isinstance(text, Mapping) else dict(config)
    model_type = merged.get("model_type")
    known_type = _known_type(merged)
    if known_type is None:
        near = difflib.get_close_matches(str(model_type), FAMILIES, n=_FEW)
        like = f" (near names: {', '.join(near)})" if near else ""
        raise InputError(
            f"no layout for this kind of model ({model_type!r}){like}: give a GGUF file of it"
        )
    family = FAMILIES[known_type]
    reader = Config({**family.defaults, **{k: v for k, v in merged.items() if v is not None}})
    keys = common_keys(reader)
    if family.extend is not None:
        family.extend(reader, keys)
    _check_heads(keys)
    vocabulary_size = reader.integer("vocab_size")
    tied = reader.get("tie_word_embeddings", "tie_embedding")
    return ModelShape(
        name=name,
        architecture=family.architecture,
        hyper_parameters=keys,
        vocabulary_size=min(vocabulary_size, family.vocabulary_limit or vocabulary_size),
        tied_output=family.tied_by_default if tied is None else bool(tied),
        features=tuple(family.features(reader)) if family.features is not None else (),
        stored_parameters=stored_parameters,
        read_as=None if known_type == model_type else known_type,
    )


def _known_type(config: Mapping[str, Any]) -> str | None:
    """Return the ``model_type`` of a family with a layout: the config's, else its class's.

    A model wrapped into another of its own name (a vision model's text) says by its class what it
    is: ``Exaone4ForCausalLM`` is of ``exaone4``.
    """
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type in FAMILIES:
        return model_type
    classes = config.get("architectures")
    name = classes[0] if isinstance(classes, list) and classes else None
    if not isinstance(name, str) or not name.endswith(_CAUSAL):
        return None
    wanted = name.removesuffix(_CAUSAL).lower()
    return next((known for known in FAMILIES if known.replace("_", "") == wanted), None)


def _check_heads(keys: Keys) -> None:
    """Refuse heads that share the width, or keys and values that share the heads, unevenly."""
    width, heads = keys.get("embedding_length"), keys.get("attention.head_count")
    kv_heads = keys.get("attention.head_count_kv")
    if not isinstance(heads, int) or not heads:
        return
    if isinstance(width, int) and width % heads and "attention.key_length" not in keys:
        raise InputError(
            f"{heads} heads do not divide the width and no head_dim is given (hidden_size {width}):"
            " check config.json"
        )
    if isinstance(kv_heads, int) and kv_heads and heads % kv_heads:
        raise InputError(
            f"{kv_heads} key-value heads do not divide the heads (num_attention_heads {heads}):"
            " check config.json"
        )


def stored_parameters(folder: Path, config: Mapping[str, Any]) -> int | None:
    """Count the parameters that the safetensors of a folder hold, None without an index."""
    path = folder / INDEX_NAME
    if not path.is_file():
        return None
    metadata = read_json(path, bounds.INDEX_BYTES).get("metadata")
    if not isinstance(metadata, Mapping):
        return None
    total = metadata.get("total_parameters")
    if isinstance(total, int):
        return total
    kind = config.get("dtype", config.get("torch_dtype"))
    size = metadata.get("total_size")
    if not isinstance(size, (int, float)) or not 0 <= size < 2**63:
        return None
    if kind not in _BYTES_PER_PARAMETER:
        return None
    return int(size) // _BYTES_PER_PARAMETER[kind]
