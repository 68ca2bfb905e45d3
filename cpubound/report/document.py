"""Values as JSON documents."""

from __future__ import annotations

from typing import Any

import msgspec

from cpubound.setting import Setting


def to_document(value: object) -> Any:
    """Return a value as JSON holds it: beside its own fields stand those of its setting.

    A field that both have is the value's own.
    """
    if isinstance(value, msgspec.Struct):
        document: dict[str, Any] = {}
        for name in value.__struct_fields__:
            field = getattr(value, name)
            is_setting = isinstance(field, Setting)
            document |= setting_fields(field) if is_setting else {name: to_document(field)}
        return document
    if isinstance(value, dict):
        return {key: to_document(field) for key, field in value.items()}
    if isinstance(value, list | tuple):
        return [to_document(field) for field in value]
    return msgspec.to_builtins(value)


def cell_document(cell: msgspec.Struct) -> dict[str, Any]:
    """Return an observed cell as JSON: its prediction's fields with the observation beside them."""
    document: dict[str, Any] = to_document(cell)
    return {**document.pop("prediction"), **document}


def setting_fields(setting: Setting) -> dict[str, Any]:
    """Return a setting's fields by the names that they have in every document."""
    return {
        "threads": setting.threads,
        "depth_tokens": setting.depth_tokens,
        "n_ctx": setting.n_ctx,
        "batch": setting.batch,
        "kv_type_k": setting.kv_type_k,
        "kv_type_v": setting.kv_type_v,
        "flash_attn": setting.flash_attn,
    }
