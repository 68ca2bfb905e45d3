"""Read hyper-parameters the way llama.cpp does: a number, or one per layer."""

from __future__ import annotations

from collections.abc import Mapping

from cpubound.model.values import HyperParameter, ModelSpec


class HyperParameters:
    """Typed reading of a model's hyper-parameters; what a file leaves out has a default.

    All are sizes and counts: what is not a whole number is taken as left out, what is
    negative as zero.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._values: Mapping[str, HyperParameter] = spec.hyper_parameters

    def array(self, key: str) -> tuple[int, ...] | None:
        """Return an array of whole numbers, or None if the key is absent or one number."""
        value = self._values.get(key)
        return tuple(_whole(item, 0) for item in value) if isinstance(value, tuple) else None

    def integer(self, key: str, default: int = 0) -> int:
        """Return a whole number; of an array, its first entry."""
        value = self._values.get(key)
        if isinstance(value, tuple):
            value = value[0] if value else None
        return _whole(value, default)

    def of_layer(self, key: str, layer: int, default: int = 0) -> int:
        """Return the entry of one layer, where the key may hold one number for all."""
        value = self._values.get(key)
        if isinstance(value, tuple):
            return _whole(value[layer], 0) if layer < len(value) else 0
        return _whole(value, default)


def layer_count(hyper: HyperParameters) -> int:
    """Return how many blocks a plain decode step runs: all but the draft (next-n) blocks."""
    return max(hyper.integer("block_count") - hyper.integer("nextn_predict_layers"), 0)


def _whole(value: HyperParameter | None, default: int) -> int:
    return max(value, 0) if isinstance(value, int) else default
