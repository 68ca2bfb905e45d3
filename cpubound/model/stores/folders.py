"""The models in a folder."""

from __future__ import annotations

import re
from pathlib import Path

from cpubound.errors import InputError

# Shards after the first, and projectors, are not models of their own.
_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
_PROJECTOR = re.compile(r"(^|[-_.])mmproj[-_.]", re.IGNORECASE)


def models_in_folder(folder: Path) -> tuple[Path, ...]:
    """List the GGUF models directly in a folder: first shards only, no projectors."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise InputError(
            f"the folder cannot be read ({folder}, {error.strerror}): check its rights"
        ) from None
    return tuple(folder / name for name in names if is_model_name(name))


def is_model_name(name: str) -> bool:
    """Tell whether a file of this name is a GGUF model, or the first shard of one."""
    if not name.lower().endswith(".gguf"):
        return False
    return not _LATER_SHARD.search(name) and not _PROJECTOR.search(name)


def the_model_in_folder(folder: Path) -> Path:
    """Return the one model in a folder: a GGUF, else a ``config.json``.

    Raises ``InputError``, naming them, if there are several, and if there is none.
    """
    models = models_in_folder(folder)
    if len(models) == 1:
        return models[0]
    if models:
        shown = ", ".join(model.name for model in models[:8])
        more = f" and {len(models) - 8} more" if len(models) > 8 else ""
        raise InputError(f"{len(models)} models in this folder ({folder}): give {shown}{more}")
    config = folder / "config.json"
    if config.is_file():
        return config
    raise InputError(f"no model in this folder ({folder}): give one that holds a .gguf file")
