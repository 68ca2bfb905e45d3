"""LM Studio: the settings that it keeps for a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cpubound import bounds
from cpubound.errors import InputError
from cpubound.model.json_file import read_json

_FOLDER = (".lmstudio", ".internal", "user-concrete-model-default-config")


def lm_studio_parameters(path: Path) -> Mapping[str, Any]:
    """Return what LM Studio sets when it loads a file (``llm.load.contextLength``, …).

    It keeps one JSON file a model, under the model's own owner and folder; empty where nothing
    was set for it.
    """
    settings = Path.home().joinpath(*_FOLDER, *path.parts[-3:-1], f"{path.name}.json")
    try:
        load = read_json(settings, bounds.MANIFEST_BYTES).get("load")
    except InputError:
        return {}
    fields = load.get("fields") if isinstance(load, dict) else None
    return {
        str(field.get("key")): field.get("value")
        for field in (fields if isinstance(fields, list) else ())
        if isinstance(field, dict)
    }
