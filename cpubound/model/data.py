"""Read the TOML files that ship with this package."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Any

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
