"""Read hyper-parameters the way llama.cpp does: a number, or one per layer."""

from __future__ import annotations

from collections.abc import Mapping

from cpubound.model.values import HyperParameter, ModelSpec


class HyperParameters:
    """Typed reading of a model's hyper-parameters; what a file leaves out has a default."""

    def __init__(self, spec: ModelSpec) -> None:
        self._values: Mapping[str, HyperParameter] = spec.hyper_parameters

    def array(self, key: str) -> tuple[int, ...] | None:
        """Return an array of whole numbers, or None if the key is absent or one number."""
        value = self._values.get(key)
        return tuple(int(item) for item in value) if isinstance(value, tuple) else None

    def integer(self, key: str, default: int = 0) -> int:
        """Return a whole number; of an array, its first entry."""
        value = self._values.get(key)
        if isinstance(value, tuple):
            value = value[0] if value else None
        return int(value) if isinstance(value, int | float) else default

    def of_layer(self, key: str, layer: int, default: int = 0) -> int:
        """Return the entry of one layer, where the key may hold one number for all."""
        value = self._values.get(key)
        if isinstance(value, tuple):
            return int(value[layer]) if layer < len(value) else 0
        return int(value) if isinstance(value, int | float) else default


def layer_count(hyper: HyperParameters) -> int:
    """Return how many blocks a plain decode step runs: all but the draft (next-n) blocks."""
    return max(hyper.integer("block_count") - hyper.integer("nextn_predict_layers"), 0)
