"""Every model that the usual programs keep on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cpubound.errors import InputError
from cpubound.model.stores.folders import find_models
from cpubound.model.stores.ollama import ollama_blob, ollama_folder, ollama_names


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalModel:
    """A model file found on this machine."""

    argument: str  # the MODEL argument that means it
    path: Path
    store: str  # "Ollama", "Hugging Face", "LM Studio", "llama.cpp", "folder"


def local_models(folders: Sequence[Path] = ()) -> tuple[LocalModel, ...]:
    """Find the GGUF models in the stores of Ollama, Hugging Face, LM Studio and llama.cpp.

    ``folders`` are looked through besides. First shards only, no projectors; a file that
    several stores hold is listed once. Nothing is read but folders and Ollama's manifests.
    """
    found: dict[Path, LocalModel] = {}
    candidates = [*_ollama_models()]
    for store, root in (*_store_folders(), *(("folder", folder) for folder in folders)):
        candidates += (
            LocalModel(argument=str(path), path=path, store=store) for path in find_models(root)
        )
    for model in candidates:
        found.setdefault(model.path.resolve(), model)
    return tuple(sorted(found.values(), key=lambda model: (model.store, model.argument)))


def kept_model(name: str) -> LocalModel | None:
    """Find the model that a store keeps under this name, None if none does.

    A name is one of Ollama's (with ``:latest`` left out), a file's, with or without ``.gguf``, or
    LM Studio's: the repository's, with or without its owner and ``-GGUF``. Raises ``InputError``
    for a name that several models have.
    """
    if name in (names := ollama_names()) or f"{name}:latest" in names:
        return LocalModel(argument=f"ollama:{name}", path=ollama_blob(name), store="Ollama")
    wanted = _bare(name)
    found = [
        model
        for model in local_models()
        if wanted in map(_bare, (model.path.name, model.path.parent.name, _repository(model.path)))
    ]
    if len(found) > 1:
        shown = ", ".join(model.argument for model in found[:4])
        raise InputError(f"{len(found)} models here have this name ({name}): give {shown}")
    return found[0] if found else None


def _repository(path: Path) -> str:
    return "/".join(path.parts[-3:-1])


def _bare(name: str) -> str:
    return re.sub(r"(-gguf|\.gguf)$", "", name.lower())


def _store_folders() -> list[tuple[str, Path]]:
    home = Path.home()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    hub_home = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or hub_home / "hub")
    llama_cpp = Path(os.environ.get("LLAMA_CACHE") or cache / "llama.cpp")
    return [
        ("Hugging Face", hub),
        ("LM Studio", home / ".lmstudio" / "models"),
        ("LM Studio", cache / "lm-studio" / "models"),
        ("llama.cpp", llama_cpp),
    ]


def _ollama_models() -> Iterator[LocalModel]:
    store = ollama_folder()
    for name in ollama_names(store):
        try:
            blob = ollama_blob(name, store)
        except InputError:
            continue  # pulled in part, or no model: nothing that could be run
        yield LocalModel(argument=f"ollama:{name}", path=blob, store="Ollama")
