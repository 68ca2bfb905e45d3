"""Which model other people's figures are about: from the names and sizes that stand in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cpubound.errors import UsageError
from cpubound.model.catalog import catalog_entry, catalog_names
from cpubound.model.ftype import file_type, is_file_type
from cpubound.model.values import ModelSpec

# The catalogue's published parameter counts are often rounded to one decimal of a billion;
# elements and bytes of tensors are printed with three digits at least, and some tensors
# changed types over the years.
PARAMETERS_TOLERANCE = 0.04
ELEMENTS_TOLERANCE = 0.005
BYTES_TOLERANCE = 0.02

# llama_ftype's descriptions where they are not the name (llama_model_ftype_name,
# src/llama-model-loader.cpp, commit 0c1e57098bba); "mostly" and "(guessed)" are of old builds.
_SIZES = {"SMALL": "S", "MEDIUM": "M", "LARGE": "L"}
_LABEL = re.compile(
    r"(?<![A-Z0-9])(IQ\d_(?:XXS|XS|S|M|NL)|TQ\d_\d|Q\d_[01K]|B?F16|F32|MXFP4)"
    r"(?:_(S|M|L|XL))?(?![A-Z0-9_])( MIX)?(?: - (SMALL|MEDIUM|LARGE))?"
)
_VARIANT = re.compile(r"_(?:R[48]|[48]_[48])(?![A-Z0-9])|[_ ]MOE(?![A-Z0-9])")
# Words that name an edition, not another shape.
_EDITIONS = re.compile(
    r"[-_ .](?:instruct|it|chat|coder|base|preview|thinking|text|gguf|hf|ud|i1|v\d(\.\d)?|\d{4})"
    r"(?=[-_ .]|$)"
)
_SAME_SHAPE = {
    "llama-7b": "llama-2-7b",
    "llama-13b": "llama-2-13b",
    "guanaco-7b": "llama-2-7b",
    "deepseek-r1-671b": "deepseek-r1",
    "phi4-14b": "phi-4",
    "meta-llama-3-8b": "llama-3-8b",
    "meta-llama-3.1-8b": "llama-3.1-8b",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelClues:
    """What is said of a model; None where nothing is."""

    label: str | None = None  # "llama 8B Q4_K - Medium"
    filename: str | None = None
    parameters: int | None = None
    tensor_bytes: int | None = None


def file_type_in(text: str) -> str | None:
    """Return the file type that a label or file name says: ``Q4_K - Medium`` is ``Q4_K_M``.

    A type of K without a size is the medium one (Q6_K has none); a row-interleaved variant
    (``_R4``, ``_8_8``) of a fork is its plain type. None for what llama.cpp does not write.
    """
    found = _LABEL.search(_VARIANT.sub("", text.upper()))
    if found is None:
        return None
    base, size, is_mix, written = found.groups()
    size = "M" if is_mix else size or _SIZES.get(written or "")
    if is_mix:
        base = base.rpartition("_")[0]
    for name in (f"{base}_{size}" if size else "", base, f"{base}_M", f"{base}_MOE"):
        if name and is_file_type(name):
            return file_type(name).name
    return None


def catalog_name_in(text: str) -> str | None:
    """Return the catalogue's name for a model as people write it, None if there is none.

    ``models/Llama-3.1-8B-Instruct-Q4_K_M.gguf`` is ``llama-3.1-8b``. An edition that changes
    no shape (instruct, coder, a date) is dropped only where its own name is not known.
    """
    name = re.split(r"[\\/]", text)[-1].lower()
    name = re.sub(r"\.gguf$|\(.*?\)|-\d{5}-of-\d{5}", "", name).strip()
    name = re.sub(r"[-_. ](?:i?q\d|b?f16|f32|mxfp4|tq\d).*$", "", name)
    name = name.replace("_", "-").replace(" ", "-").strip("-.")
    bare = _EDITIONS.sub("", name)
    for candidate in (name, bare, *(f"{n}"[: n.rfind("-")] for n in (name, bare) if "-" in n)):
        for known in (candidate, _SAME_SHAPE.get(candidate, "")):
            if known in catalog_names():
                return known
    return None


def identify_model(clues: ModelClues) -> ModelSpec | None:
    """Find the catalogue's model that fits all clues, None where that is not certain.

    The parameter count and tensor bytes must fit. Where several models of other shapes fit,
    the file's name decides; several of one shape are alike.
    """
    text = " ".join(part for part in (clues.label, clues.filename) if part)
    type_name = file_type_in(clues.label or "") or file_type_in(clues.filename or "")
    if type_name is None or not (clues.parameters or clues.tensor_bytes):
        return None
    fitting = [spec for spec in _specs(clues, type_name) if _fits(spec, clues)]
    named = catalog_name_in(clues.filename or "")
    for spec in fitting:
        if spec.name == named:
            return spec
    words = text.lower().split()
    if words and words[0].isalnum():
        fitting = [spec for spec in fitting if spec.architecture == words[0]] or fitting
    shapes = {_shape(spec) for spec in fitting}
    return min(fitting, key=lambda spec: len(spec.name)) if len(shapes) == 1 else None


def fits_tensor_bytes(spec: ModelSpec, tensor_bytes: int) -> bool:
    """Tell whether a model's tensors take these bytes, as precisely as tables print them."""
    own = sum(tensor.n_bytes for tensor in spec.tensors)
    return abs(own / tensor_bytes - 1) <= BYTES_TOLERANCE


def _specs(clues: ModelClues, type_name: str) -> Iterable[ModelSpec]:
    for name in catalog_names():
        entry = catalog_entry(name)
        wanted = clues.parameters or entry.parameters
        if abs(entry.parameters / wanted - 1) > PARAMETERS_TOLERANCE:
            continue
        try:
            yield entry.at(type_name)
        except UsageError:
            continue  # its rows do not divide into blocks of that type


def _fits(spec: ModelSpec, clues: ModelClues) -> bool:
    elements = sum(tensor.elements for tensor in spec.tensors)
    if clues.parameters and abs(elements / clues.parameters - 1) > ELEMENTS_TOLERANCE:
        return False
    return clues.tensor_bytes is None or fits_tensor_bytes(spec, clues.tensor_bytes)


def _shape(spec: ModelSpec) -> tuple[object, ...]:
    return tuple(sorted((t.name, t.type.name, t.shape) for t in spec.tensors if len(t.shape) > 1))
