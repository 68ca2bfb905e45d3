"""Read the JSON files that other programs write beside models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cpubound.errors import InputError


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
