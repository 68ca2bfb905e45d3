"""The store of Ollama: a manifest for each name, blobs by digest."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cpubound import bounds
from cpubound.errors import InputError, ModelFileError
from cpubound.model.json_file import read_json

MODEL_LAYER = "application/vnd.ollama.image.model"
PARAMETERS_LAYER = "application/vnd.ollama.image.params"
_PART = r"[A-Za-z0-9_][\w.-]{0,349}"  # types/model/name.go of Ollama
_NAME = re.compile(
    rf"(?:(?:(?P<host>{_PART}(?::[0-9]{{1,5}})?)/)?(?P<owner>{_PART})/)?"
    rf"(?P<model>{_PART})(?::(?P<tag>{_PART})?)?",
    re.ASCII,
)
_DIGEST = re.compile(r"sha256[:-][0-9a-f]{64}")


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
    digest = _digest_of(manifest, MODEL_LAYER)
    if digest is None:
        raise ModelFileError(f"this Ollama manifest names no model ({manifest}): pull {name} again")
    blob = store / "blobs" / digest.replace(":", "-")
    if not blob.is_file():
        raise ModelFileError(f"a file of this Ollama model is missing ({blob}): pull {name} again")
    return blob


def ollama_parameters(name: str, folder: Path | None = None) -> Mapping[str, Any]:
    """Return a model's PARAMETERs (``num_ctx``, ``num_thread``, …), empty where none is set."""
    store = ollama_folder() if folder is None else folder
    digest = _digest_of(_manifest_path(name, store), PARAMETERS_LAYER)
    if digest is None:
        return {}
    return read_json(store / "blobs" / digest.replace(":", "-"), bounds.MANIFEST_BYTES)


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
    # A part that begins with a dot, or a tag with a slash in it, would lead out of the store.
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(f"this is no name of an Ollama model ({name}): try ollama:llama3.2:1b")
    host, owner = match["host"] or "registry.ollama.ai", match["owner"] or "library"
    return store.joinpath("manifests", host, owner, match["model"], match["tag"] or "latest")


def _digest_of(manifest: Path, media_type: str) -> str | None:
    layers = read_json(manifest, bounds.MANIFEST_BYTES).get("layers")
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict) and layer.get("mediaType") == media_type:
            digest = layer.get("digest")
            if isinstance(digest, str) and _DIGEST.fullmatch(digest):
                return digest
    return None
