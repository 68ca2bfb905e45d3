"""The catalogue: open models by name, their shapes as data (``catalogue/*.toml``).

An entry holds the fields of the model's published ``config.json`` that shape it, where
they are from, the published parameter count and, where known, sizes of published files.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from cpubound.errors import UsageError
from cpubound.model.ftype import COMMON_FILE_TYPES, DEFAULT_FILE_TYPE
from cpubound.model.hf import shape_from_config
from cpubound.model.layout import ModelShape
from cpubound.model.values import ModelSpec
from cpubound.package_data import list_names, read_toml

_FOLDER = ("model", "catalogue")
_SUFFIX = ".toml"
_FEW = 4  # names that a message suggests

# Headers of published files, nearly all of it vocabulary (tokens, scores or merges, types),
# take 25 (Gemma 3) to 61 (Llama 3) bytes a token.
HEADER_BYTES_PER_TOKEN = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogEntry:
    """One model of the catalogue."""

    name: str
    title: str  # as its makers write it: "Llama 3.2 1B"
    source: str  # where the shape was published
    parameters: int  # as published: exact, or as rounded by its makers
    # File type -> bytes of a published GGUF file; empty where none was found to compare.
    sizes: Mapping[str, int]
    file_types: tuple[str, ...]  # the common ones, largest first, then those made for it
    default_file_type: str  # what most people download
    shape: ModelShape

    def at(self, file_type_name: str) -> ModelSpec:
        """Describe the model at a file type; ``file_bytes`` is what a file would take."""
        spec = self.shape.at(file_type_name)
        last = spec.tensors[-1]
        tensor_bytes = last.offset + last.n_bytes
        header_bytes = HEADER_BYTES_PER_TOKEN * self.shape.vocabulary_size
        return replace(spec, file_bytes=tensor_bytes + header_bytes)


@cache
def catalog_names() -> tuple[str, ...]:
    """Return the names of all models in the catalogue, sorted."""
    return list_names(*_FOLDER, suffix=_SUFFIX)


@cache
def catalog_entry(name: str) -> CatalogEntry:
    """Find a model by its name (any case); ``UsageError`` names the nearest ones."""
    wanted = name.lower()
    if wanted not in catalog_names():
        raise UsageError(f"no model of this name ({name}): {_nearest_names(wanted)}")
    data = read_toml(*_FOLDER, wanted + _SUFFIX)
    own_file_types = tuple(data.get("more_file_types", ()))
    return CatalogEntry(
        name=wanted,
        title=data["title"],
        source=data["source"],
        parameters=data["parameters"],
        sizes=data.get("sizes", {}),
        file_types=(*COMMON_FILE_TYPES, *own_file_types),
        default_file_type=own_file_types[0] if own_file_types else DEFAULT_FILE_TYPE,
        shape=shape_from_config(data["config"], wanted),
    )


def catalog_model(name: str, file_type_name: str) -> ModelSpec:
    """Describe a model of the catalogue at a file type.

    Raises ``UsageError`` for a name or file type that is not known.
    """
    return catalog_entry(name).at(file_type_name)


def _nearest_names(name: str) -> str:
    names = catalog_names()
    near = difflib.get_close_matches(name, names, n=_FEW, cutoff=0.5)
    family = name.partition("-")[0]
    near = near or [known for known in names if family and family in known][:_FEW]
    if near:
        return f"did you mean {', '.join(near)}?"
    nearest = difflib.get_close_matches(name, names, n=_FEW, cutoff=0) or names[:_FEW]
    return f"give a .gguf file, or one of {len(names)} names like {', '.join(nearest)}"
