"""A MODEL argument, as a person gives it, to the model it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cpubound.errors import ModelFileError, UsageError
from cpubound.model.catalog import catalog_entry, catalog_names
from cpubound.model.ftype import (
    COMMON_FILE_TYPES,
    DEFAULT_FILE_TYPE,
    FILE_TYPES,
    file_type,
    is_file_type,
    parse_file_types,
)
from cpubound.model.gguf import read_gguf
from cpubound.model.hf import read_config
from cpubound.model.layout import ModelShape
from cpubound.model.names import read_name
from cpubound.model.stores import (
    kept_model,
    lm_studio_parameters,
    ollama_blob,
    ollama_parameters,
    the_model_in_folder,
)
from cpubound.model.values import ModelSpec

_REMOTE = ("hf:", "https://", "http://")
_OLLAMA = "ollama:"
_NOT_HERE = "no file of this name is here: it is taken as the catalogue has it"


def resolve_model(text: str, file_type_name: str | None = None) -> ModelSpec:
    """Find the model that a MODEL argument means.

    ``text`` is a ``.gguf`` path (any shard), a folder with one model, a ``config.json``,
    a catalogue name, ``ollama:NAME``, ``hf:OWNER/REPO/FILE``, a web address, or a name as people
    write it: of what a store on this machine keeps, else of the catalogue. A catalogue name or
    config takes a file type, as ``NAME:FILETYPE`` or ``file_type_name`` (by default
    what most people download: Q4_K_M, MXFP4_MOE for gpt-oss); a file has its own. Raises
    ``UsageError`` for a name that is not known, ``InputError`` for a file that cannot be used.
    """
    base, given = _split_file_type(text)
    if given and file_type_name and file_type(given) != file_type(file_type_name):
        raise UsageError(
            f"two file types for one model ({text} and {file_type_name}): give one of them"
        )
    wanted = given or file_type_name
    shape = _shape(base)
    if shape is not None:
        if _is_config(base):
            return shape.at(wanted or DEFAULT_FILE_TYPE)
        entry = catalog_entry(base)
        spec = entry.at(wanted or entry.default_file_type)
        if text.lower().endswith(".gguf"):
            return replace(spec, warnings=(*spec.warnings, _NOT_HERE))
        return spec
    if wanted:
        raise UsageError(
            f"a model file has its file type already ({base}): leave {wanted} out,"
            " or give a name of the catalogue"
        )
    return _read(base)


def resolve_models(text: str, file_types: str | None = None) -> tuple[ModelSpec, ...]:
    """Find the models that a MODEL argument and a list of file types mean.

    ``file_types`` are names with commas between them, or ``all``; None means the one in
    ``text``, the one of the file, or for a name without any the common ones. Raises as
    ``resolve_model``.
    """
    base, given = _split_file_type(text)
    if file_types is not None:
        if file_types.strip().lower() == "all" and _shape(base) is not None:
            return _at_every_type(base)
        names: Sequence[str | None] = parse_file_types(file_types)
    else:
        names = [given] if given else (file_types_for(text) or [None])
    return tuple(resolve_model(text, name) for name in names)


def file_types_for(text: str) -> tuple[str, ...]:
    """Return the common file types of a model that has no file, largest first.

    Empty for a MODEL argument that means a file or that names its file type.
    """
    base, given = _split_file_type(text)
    if given or _shape(base) is None:
        return ()
    return COMMON_FILE_TYPES if _is_config(base) else catalog_entry(base).file_types


def _at_every_type(base: str) -> tuple[ModelSpec, ...]:
    found = []
    for known in FILE_TYPES:
        try:
            found.append(resolve_model(base, known.name))
        except UsageError:
            continue  # rows of this model do not divide into blocks of that type
    return tuple(found)


def _split_file_type(text: str) -> tuple[str, str | None]:
    """Return what a text means, as ``_shape`` and ``_read`` take it, and the file type in it."""
    if not text.strip():
        raise UsageError("no model given (''): give a .gguf file or a name of the catalogue")
    if text.startswith((_OLLAMA, *_REMOTE)) or Path(text).exists():
        return text, None
    base, separator, tail = text.rpartition(":")
    has_type = bool(separator) and is_file_type(tail)
    if has_type and (base.lower() in catalog_names() or Path(base).exists() or _is_path(base)):
        return base, file_type(tail).name
    if text.lower() in catalog_names() or _is_path(text):
        return text, None
    kept = kept_model(text)
    if kept is not None:
        return kept.argument, None
    named = read_name(text)
    if named is not None:
        return named.name, named.file_type_name
    if separator and not _looks_like_path(text):
        # A name with a tail that is no file type: say so rather than "no such model".
        catalog_entry(base)
        file_type(tail)
    return text, None


def _is_path(text: str) -> bool:
    """Tell whether a text can only be a path: a name has an owner before it at most."""
    is_hub = text.startswith(("hf.co/", "huggingface.co/"))
    is_file = text.lower().endswith((".gguf", ".json"))
    slashes = text.count("/")
    if "\\" in text or text.startswith((".", "/", "~")) or text.lower().endswith(".json"):
        return True
    return not is_hub and (slashes > 1 or (slashes == 1 and is_file))


def _shape(base: str) -> ModelShape | None:
    """Return the shape of a model without a file, None for what means a file."""
    if base.startswith((_OLLAMA, *_REMOTE)):
        return None
    if _is_config(base):
        return read_config(_config_path(base))
    if Path(base).exists() or _looks_like_path(base):
        return None
    return catalog_entry(base).shape


def _is_config(base: str) -> bool:
    path = Path(base)
    if path.is_dir():
        return the_model_in_folder(path).suffix == ".json"
    return path.suffix == ".json"


def _config_path(base: str) -> Path:
    path = Path(base)
    return the_model_in_folder(path) if path.is_dir() else path


def _looks_like_path(text: str) -> bool:
    return "/" in text or "\\" in text or text.lower().endswith((".gguf", ".json"))


def _read(base: str) -> ModelSpec:
    if base.startswith(_OLLAMA):
        name = base.removeprefix(_OLLAMA)
        spec = read_gguf(ollama_blob(name))
        parameters = ollama_parameters(name)
        return replace(
            spec,
            name=name,
            default_threads=_count(parameters.get("num_thread")),
            default_n_ctx=_count(parameters.get("num_ctx")),
        )
    if base.startswith(_REMOTE):
        from cpubound.model.gguf.remote import read_remote_gguf

        return read_remote_gguf(base)
    path = Path(base)
    if not path.exists():
        raise ModelFileError(f"no such file ({base}): check the path, or give a catalogue name")
    file = the_model_in_folder(path) if path.is_dir() else path
    parameters = lm_studio_parameters(file.absolute())
    return replace(
        read_gguf(file),
        default_threads=_count(parameters.get("llm.load.llama.cpuThreadPoolSize")),
        default_n_ctx=_count(parameters.get("llm.load.contextLength")),
    )


def _count(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None
