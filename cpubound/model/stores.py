"""Where other programs keep models: folders, and the store of Ollama."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from cpubound.errors import InputError, ModelFileError

MODEL_LAYER = "application/vnd.ollama.image.model"
MAX_MANIFEST_BYTES = 2**20
# Shards after the first, and projectors, are not models of their own.
_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
_PROJECTOR = re.compile(r"(^|[-_.])mmproj[-_.]", re.IGNORECASE)
_DIGEST = re.compile(r"sha256[:-][0-9a-f]{64}")


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


def ollama_folder() -> Path:
    """Return the folder of Ollama's models: ``OLLAMA_MODELS``, the user's, or the service's."""
    named = os.environ.get("OLLAMA_MODELS")
    if named:
        return Path(named)
    candidates = (Path.home() / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models"))
    return next((folder for folder in candidates if folder.is_dir()), candidates[0])


def ollama_blob(name: str, folder: Path | None = None) -> Path:
    """Find the GGUF file behind an Ollama model name (``[HOST/][OWNER/]NAME[:TAG]``).

    Raises ``InputError`` if Ollama has no such model, ``ModelFileError`` if its files are broken.
    """
    store = ollama_folder() if folder is None else folder
    manifest = _manifest_path(name, store)
    if not manifest.is_file():
        known = ", ".join(ollama_names(store)[:8])
        hint = f"it has {known}" if known else "pull it, or set OLLAMA_MODELS"
        raise InputError(f"Ollama has no model of this name in {store} ({name}): {hint}")
    digest = _model_digest(manifest)
    blob = store / "blobs" / digest.replace(":", "-")
    if not blob.is_file():
        raise ModelFileError(f"a file of this Ollama model is missing ({blob}): pull {name} again")
    return blob


def ollama_names(folder: Path | None = None) -> tuple[str, ...]:
    """List the models of an Ollama store by the names that ``ollama_blob`` takes."""
    store = ollama_folder() if folder is None else folder
    names = []
    for path in store.glob("manifests/*/*/*/*"):
        host, owner, model, tag = path.relative_to(store / "manifests").parts
        if host == "registry.ollama.ai":
            host = ""
        if not host and owner == "library":
            owner = ""
        names.append("/".join(part for part in (host, owner, f"{model}:{tag}") if part))
    return tuple(sorted(names))


def _manifest_path(name: str, store: Path) -> Path:
    model, _, tag = name.partition(":")
    parts = model.split("/")
    if not 1 <= len(parts) <= 3 or any(
        part in ("", ".", "..") for part in (*parts, tag or "latest")
    ):
        raise InputError(f"this is no name of an Ollama model ({name}): try ollama:llama3.2:1b")
    parts = [*("registry.ollama.ai", "library")[: 3 - len(parts)], *parts]
    return store.joinpath("manifests", *parts, tag or "latest")


def _model_digest(manifest: Path) -> str:
    data = read_json(manifest, MAX_MANIFEST_BYTES)
    layers = data.get("layers")
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict) and layer.get("mediaType") == MODEL_LAYER:
            digest = layer.get("digest")
            if isinstance(digest, str) and _DIGEST.fullmatch(digest):
                return digest
    raise ModelFileError(f"this Ollama manifest names no model ({manifest}): pull the model again")


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
