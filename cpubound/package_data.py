"""Read the data that ships with the package: TOML files beside the code that they serve."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PACKAGE = "cpubound"


def read_toml(*path: str) -> dict[str, Any]:
    """Parse the file at ``path``, given in parts below the package: ``"cost", "interval.toml"``."""
    return parse_toml(files(_PACKAGE).joinpath("/".join(path)).read_text(encoding="utf-8"))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML, on the Pythons without a parser of their own too."""
    data: dict[str, Any] = tomllib.loads(text)
    return data


def list_names(*folder: str, suffix: str) -> tuple[str, ...]:
    """Return the names of the files in a folder of the package without their suffix, sorted."""
    names = (entry.name for entry in files(_PACKAGE).joinpath("/".join(folder)).iterdir())
    return tuple(sorted(name.removesuffix(suffix) for name in names if name.endswith(suffix)))
