"""Which model other people's figures are about: from the names and sizes that stand in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cpubound.errors import UsageError
from cpubound.model.catalog import catalog_entry, catalog_names
from cpubound.model.names import catalog_name_in, file_type_in
from cpubound.model.values import ModelSpec

# The catalogue's published parameter counts are often rounded to one decimal of a billion;
# elements and bytes of tensors are printed with three digits at least, and some tensors
# changed types over the years.
PARAMETERS_TOLERANCE = 0.04
ELEMENTS_TOLERANCE = 0.005
BYTES_TOLERANCE = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelClues:
    """What is said of a model; None where nothing is."""

    label: str | None = None  # "llama 8B Q4_K - Medium"
    filename: str | None = None
    parameters: int | None = None
    tensor_bytes: int | None = None


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
