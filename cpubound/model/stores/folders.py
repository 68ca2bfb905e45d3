"""The models in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from cpubound import bounds
from cpubound.errors import InputError

MAX_DEPTH = 8  # folders below the first
# Shards after the first, and projectors, are not models of their own.
_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
_PROJECTOR = re.compile(r"(^|[-_.])mmproj[-_.]", re.IGNORECASE)


def find_models(root: Path) -> Iterator[Path]:
    """Yield the GGUF models below a folder: first shards only, no projectors.

    Links are followed for files but not for folders; what cannot be read is passed over.
    """
    for looked_into, (folder, subfolders, names) in enumerate(os.walk(root), start=1):
        depth = len(Path(folder).parts) - len(root.parts)
        if looked_into > bounds.STORE_FOLDERS:
            return
        if depth >= MAX_DEPTH:
            subfolders.clear()
        subfolders.sort()
        yield from (Path(folder, name) for name in sorted(names) if is_model_name(name))


def is_model_name(name: str) -> bool:
    """Tell whether a file of this name is a GGUF model, or the first shard of one."""
    if not name.lower().endswith(".gguf"):
        return False
    return not _LATER_SHARD.search(name) and not _PROJECTOR.search(name)


def the_model_in_folder(folder: Path) -> Path:
    """Return the one model in a folder or below it: a GGUF, else a ``config.json``.

    Raises ``InputError``, naming them, if there are several, and if there is none.
    """
    models = tuple(find_models(folder))
    if len(models) == 1:
        return models[0]
    if models:
        shown = ", ".join(str(model.relative_to(folder)) for model in models[:8])
        more = f" and {len(models) - 8} more" if len(models) > 8 else ""
        raise InputError(f"{len(models)} models in this folder ({folder}): give {shown}{more}")
    config = folder / "config.json"
    if config.is_file():
        return config
    raise InputError(f"no model in this folder ({folder}): give one that holds a .gguf file")
