"""A model's quant label: from what its tensors are, not from what the file claims."""

from __future__ import annotations

from cpubound.model.ftype import FILE_TYPES
from cpubound.model.quant import QUANT_TYPES, quant_type
from cpubound.model.values import ModelSpec

# A file type is a mix: its own type may be a minority beside wider ones, but not a trace,
# and the mix stays near it (at most 1.3 times, in IQ1_S and Q2_K files).
_LEAST_SHARE = 0.25
_MOST_BITS = 1.5
_KNOWN = {quant.name for quant in QUANT_TYPES}
_BY_ID = {file_type.id: file_type for file_type in FILE_TYPES}


def quant_label(spec: ModelSpec) -> str:
    """Return the file type's name if the tensors bear it out, else their dominant type.

    Where the two differ both are shown: ``Q8_0 (the file says Q4_K_M)``.
    """
    elements = elements_by_type(spec)
    if not elements:
        return "unknown"
    dominant = next(iter(elements))
    file_type = _BY_ID.get(spec.file_type) if spec.file_type is not None else None
    if file_type is None or file_type.name == dominant:
        return dominant
    share = elements.get(file_type.default_type, 0) / sum(elements.values())
    most_bits = _MOST_BITS * quant_type(file_type.default_type).bits_per_weight
    if share >= _LEAST_SHARE and _bits(elements) <= most_bits:
        return file_type.name
    return f"{dominant} (the file says {file_type.name})"


def _bits(elements: dict[str, int]) -> float:
    """Return the bits per weight of a mix; types that are not known say nothing."""
    known = {name: n for name, n in elements.items() if name in _KNOWN}
    bits = sum(quant_type(name).bits_per_weight * n for name, n in known.items())
    return bits / (sum(known.values()) or 1)


def elements_by_type(spec: ModelSpec) -> dict[str, int]:
    """Return the weights held in each type, most first; vectors and token tables left out.

    A token table is often kept wider than the rest and is looked up by row, so it says
    little; a model that is nothing else counts it.
    """
    elements: dict[str, int] = {}
    for tensor in spec.tensors:
        is_table = "token_embd" in tensor.name or tensor.name == "output.weight"
        if len(tensor.shape) > 1 and not is_table:
            elements[tensor.type.name] = elements.get(tensor.type.name, 0) + tensor.elements
    if not elements:
        for tensor in spec.tensors:
            elements[tensor.type.name] = elements.get(tensor.type.name, 0) + tensor.elements
    return dict(sorted(elements.items(), key=lambda item: -item[1]))


def bits_per_weight(spec: ModelSpec) -> float:
    """Return the bits that a weight takes on average over all tensors."""
    elements = sum(tensor.elements for tensor in spec.tensors)
    return 8 * sum(tensor.n_bytes for tensor in spec.tensors) / elements if elements else 0.0
