"""Read data files: the TOML that ships with this package, the JSON of others."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from cpubound.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_ROOM = "cpubound.model"


def read_toml(*path: str) -> dict[str, Any]:
    """Parse the file at ``path``, given in parts below ``cpubound/model``."""
    resource = files(_ROOM)
    for part in path:
        resource = resource.joinpath(part)
    data: dict[str, Any] = tomllib.loads(resource.read_text(encoding="utf-8"))
    return data


def list_names(folder: str, suffix: str) -> tuple[str, ...]:
    """Return the names of the files in a folder without their suffix, sorted."""
    names = (entry.name for entry in files(_ROOM).joinpath(folder).iterdir())
    return tuple(sorted(name.removesuffix(suffix) for name in names if name.endswith(suffix)))


def read_json(path: Path, limit_bytes: int) -> dict[str, Any]:
    """Read a JSON object from a file of at most ``limit_bytes``; ``InputError`` otherwise."""
    try:
        with path.open("rb") as file:
            text = file.read(limit_bytes + 1)
    except OSError as error:
        raise InputError(
            f"the file cannot be read ({path}, {error.strerror}): check the path"
        ) from None
    if len(text) > limit_bytes:
        raise InputError(f"the file is larger than {limit_bytes} bytes ({path}): give another")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"this is not JSON ({path}): check or download the file again") from None
    if not isinstance(data, dict):
        raise InputError(f"this JSON is no object ({path}): give a model's config.json")
    return data
