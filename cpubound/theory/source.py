"""A model at any context and batch: its traffic, its work, what it keeps in memory."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from cpubound.model.hyper import HyperParameters
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelSpec, ModelTraffic, WeightRead
from cpubound.setting import Setting
from cpubound.theory.budget import require_positive
from cpubound.theory.work import EVERY_EXPERT_BATCH, DecodeWork, work_of_traffic

_MATRICES = ("matmul", "experts")


class ModelSource:
    """One model at a setting's KV types and flash-attention, at any context and batch.

    What was worked out is kept. ``bytes_per_weight`` puts every matrix at that size instead of
    its own type.
    """

    def __init__(
        self,
        spec: ModelSpec,
        setting: Setting = Setting(),  # noqa: B008 (an immutable value)
        *,
        bytes_per_weight: float | None = None,
    ) -> None:
        if bytes_per_weight is not None:
            require_positive("the bytes of a weight", bytes_per_weight)
        self.spec = spec
        self.setting = setting
        self.bytes_per_weight = bytes_per_weight
        self._traffic: dict[tuple[int, int], ModelTraffic] = {}
        self._work: dict[int, DecodeWork] = {}

    def traffic(self, context_tokens: int, batch: int = 1) -> ModelTraffic:
        """Return what a step reads with ``context_tokens`` in every sequence's cache."""
        key = (context_tokens, batch)
        if key not in self._traffic:
            self._traffic[key] = self._compute(context_tokens, batch)
        return self._traffic[key]

    def work(self, context_tokens: int) -> DecodeWork:
        """Return the work of a step at a context."""
        if context_tokens not in self._work:
            many = self.traffic(0, EVERY_EXPERT_BATCH) if self.experts else None
            self._work[context_tokens] = work_of_traffic(self.traffic(context_tokens), many)
        return self._work[context_tokens]

    @property
    def experts(self) -> tuple[int, int] | None:
        """How many experts a layer has and how many of them a token uses; None if dense."""
        hyper = HyperParameters(self.spec)
        count = hyper.integer("expert_count")
        return (count, hyper.integer("expert_used_count", count)) if count > 1 else None

    @property
    def training_context(self) -> int | None:
        """The context length the model was trained for, None if its file does not say."""
        return HyperParameters(self.spec).integer("context_length") or None

    @property
    def has_cache(self) -> bool:
        """Whether any layer keeps a KV cache: False for purely recurrent models."""
        return bool(self.traffic(0).attention)

    @property
    def bits_per_weight(self) -> float:
        """Bits of a weight, on average over the matrices that a token reads."""
        matrices = [read for read in self.traffic(0).weights if read.kind in _MATRICES]
        weights = sum(read.rows * read.columns * read.count for read in matrices)
        return 8 * sum(read.n_bytes for read in matrices) / weights

    def resident_weight_bytes(self) -> float:
        """Return what the weights take in memory."""
        one = self.traffic(0)
        resident = float(one.resident_bytes - self.sequence_resident_bytes(0))
        if self.bytes_per_weight is None:
            return resident
        # Every expert is in memory, whatever a token reads.
        everything = self._plain(0, EVERY_EXPERT_BATCH)
        resized = _resize(everything, self.bytes_per_weight)
        return resident + resized.weights_read_bytes - everything.weights_read_bytes

    def sequence_resident_bytes(self, context_tokens: int) -> int:
        """Return what one sequence's cache and state take at a context."""
        return (
            self.traffic(context_tokens, 2).resident_bytes
            - self.traffic(context_tokens).resident_bytes
        )

    def _compute(self, context_tokens: int, batch: int) -> ModelTraffic:
        plain = self._plain(context_tokens, batch)
        return plain if self.bytes_per_weight is None else _resize(plain, self.bytes_per_weight)

    def _plain(self, context_tokens: int, batch: int) -> ModelTraffic:
        setting = structs.replace(
            self.setting,
            depth_tokens=context_tokens,
            allocated_context_tokens=None,
            batch=batch,
        )
        return compute_traffic(self.spec, setting)


def _resize(traffic: ModelTraffic, bytes_per_weight: float) -> ModelTraffic:
    return replace(
        traffic, weights=tuple(_resized(read, bytes_per_weight) for read in traffic.weights)
    )


def _resized(read: WeightRead, bytes_per_weight: float) -> WeightRead:
    if read.kind not in _MATRICES:
        return read
    n_bytes = round(read.rows * read.columns * read.count * bytes_per_weight)
    return replace(read, n_bytes=n_bytes)
