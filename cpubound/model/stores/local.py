"""Every model that the usual programs keep on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cpubound import bounds
from cpubound.errors import InputError
from cpubound.model.stores.folders import is_model_name
from cpubound.model.stores.ollama import ollama_blob, ollama_folder, ollama_names

MAX_DEPTH = 8  # folders below the root of a store


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
            LocalModel(argument=str(path), path=path, store=store) for path in _gguf_files(root)
        )
    for model in candidates:
        found.setdefault(model.path.resolve(), model)
    return tuple(sorted(found.values(), key=lambda model: (model.store, model.argument)))


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


def _gguf_files(root: Path) -> Iterator[Path]:
    """Yield the models below a folder, links followed for files but not for folders."""
    for looked_into, (folder, subfolders, names) in enumerate(os.walk(root), start=1):
        depth = len(Path(folder).parts) - len(root.parts)
        if looked_into > bounds.STORE_FOLDERS:
            return
        if depth >= MAX_DEPTH:
            subfolders.clear()
        subfolders.sort()
        yield from (Path(folder, name) for name in sorted(names) if is_model_name(name))
