"""A model at another file type: the same tensors with the types llama.cpp would give them."""

from __future__ import annotations

from dataclasses import replace

from cpubound.model.ftype import file_type
from cpubound.model.ftype.tensor_types import NamedShape, tensor_types
from cpubound.model.layout import place_tensors
from cpubound.model.values import ModelSpec


def retype(spec: ModelSpec, file_type_name: str) -> ModelSpec:
    """Describe a model as if it had been quantised to another file type from the original.

    Raises ``UsageError`` for an unknown file type, or one whose blocks the rows do not divide
    into.
    """
    wanted = file_type(file_type_name)
    shapes = [NamedShape(name=t.name, shape=t.shape) for t in spec.tensors]
    types = tensor_types(
        shapes,
        wanted.name,
        architecture=spec.architecture,
        hyper_parameters=spec.hyper_parameters,
    )
    return replace(
        spec,
        tensors=place_tensors(shapes, types),
        file_type=wanted.id,
        file_bytes=None,
        shards=(),
        warnings=(),
    )
