"""A Hugging Face ``config.json`` to the GGUF hyper-parameters that the converter writes.

The mapping is that of llama.cpp ``conversion/*.py`` (commit 0c1e57098bba), for the families
that ``layouts.toml`` describes. Values that a config leaves out are the defaults of its
class in ``transformers``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cpubound.errors import InputError
from cpubound.model.hf_config import Config, common_keys
from cpubound.model.hf_families import FAMILIES
from cpubound.model.layout import ModelShape


def shape_from_config(config: Mapping[str, Any], name: str) -> ModelShape:
    """Map a parsed ``config.json`` to a model's architecture and hyper-parameters.

    Raises ``InputError`` for a family without a layout and for values that are missing.
    """
    text = config.get("text_config")
    merged = {**config, **text} if isinstance(text, Mapping) else dict(config)
    model_type = merged.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise InputError(
            f"no layout for this kind of model ({model_type!r}): give a GGUF file of it,"
            f" or a config of one of {', '.join(sorted(FAMILIES))}"
        )
    reader = Config({**family.defaults, **{k: v for k, v in merged.items() if v is not None}})
    keys = common_keys(reader)
    if family.extend is not None:
        family.extend(reader, keys)
    tied = reader.get("tie_word_embeddings", "tie_embedding")
    return ModelShape(
        name=name,
        architecture=family.architecture,
        hyper_parameters=keys,
        vocabulary_size=reader.integer("vocab_size"),
        tied_output=family.tied_by_default if tied is None else bool(tied),
        features=tuple(family.features(reader)) if family.features is not None else (),
    )
