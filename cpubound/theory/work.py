"""The work of a decode step, as a function of the batch: what the roofline is asked about."""

from __future__ import annotations

from dataclasses import dataclass

from cpubound.model.values import AttentionRead, ModelTraffic
from cpubound.theory.budget import Roofs, require_positive, step_seconds
from cpubound.theory.moe import ExpertWeights

# More sequences than any batch: here every expert is read.
EVERY_EXPERT_BATCH = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeWork:
    """What one decode step does at one context, per step and per sequence.

    ``weight_bytes`` are read once by every step, whatever the batch, ``experts`` more of them the
    larger it is. Each sequence adds ``sequence_bytes`` (its cache and state) and its FLOPs.
    """

    context_tokens: float
    weight_bytes: float
    weight_flops: float  # of one sequence, in products with weights
    attention_flops: float = 0.0  # of one sequence, in products with its cache
    sequence_bytes: float = 0.0
    experts: ExpertWeights | None = None

    def weight_bytes_at(self, batch: float) -> float:
        """Return the weights read by a step of ``batch`` sequences."""
        if self.experts is None:
            return self.weight_bytes
        return self.weight_bytes + self.experts.bytes_at(batch)

    @property
    def sequence_flops(self) -> float:
        """FLOPs that one sequence adds to the step."""
        return self.weight_flops + self.attention_flops

    def flops(self, batch: float) -> float:
        """Return the FLOPs of a step."""
        return batch * self.sequence_flops

    def n_bytes(self, batch: float) -> float:
        """Return the bytes of a step."""
        return self.weight_bytes_at(batch) + batch * self.sequence_bytes

    def intensity(self, batch: float) -> float:
        """Return the FLOP per byte of the whole step."""
        return self.flops(batch) / self.n_bytes(batch)

    def seconds(self, batch: float, roofs: Roofs) -> float:
        """Return the least time of a step."""
        require_positive("a batch", batch)
        return step_seconds(self.flops(batch), self.n_bytes(batch), roofs)

    def pass_seconds(self, tokens: int, roofs: Roofs) -> float:
        """Return the least time of a pass over ``tokens`` of one sequence (a verified draft).

        The tokens share one cache: it is read once, unlike that of a batch of sequences.
        """
        n_bytes = self.weight_bytes_at(tokens) + self.sequence_bytes
        return step_seconds(self.flops(tokens), n_bytes, roofs)


def work_of_traffic(one: ModelTraffic, many: ModelTraffic | None = None) -> DecodeWork:
    """Return the work of a model from its traffic.

    Parameters
    ----------
    one : the traffic of one sequence; its context is ``depth_tokens``.
    many : the same at a batch of ``EVERY_EXPERT_BATCH``, for a mixture of experts.

    Looked-up rows and writes to the cache count with each sequence.
    """
    if one.setting.batch != 1:
        raise ValueError(f"the traffic of one sequence is needed, not of {one.setting.batch}")
    expert_bytes = _expert_bytes(one)
    experts = None
    if many is not None and expert_bytes:
        everything = _expert_bytes(many)
        experts = ExpertWeights(all_bytes=everything, share_used=expert_bytes / everything)
    return DecodeWork(
        context_tokens=one.setting.depth_tokens,
        weight_bytes=one.weights_read_bytes - (0 if experts is None else expert_bytes),
        weight_flops=sum(
            2.0 * read.rows * read.columns * read.count
            for read in one.weights
            if read.kind in ("matmul", "experts")
        ),
        attention_flops=sum(attention_flops(read) for read in one.attention),
        sequence_bytes=one.kv_touched_bytes
        + one.kv_write_bytes
        + one.state_read_bytes
        + one.state_write_bytes
        + one.embedding_row_bytes,
        experts=experts,
    )


def attention_flops(read: AttentionRead) -> float:
    """Return the FLOPs of one sequence's attention: Q·K and P·V over the cells not masked."""
    return 2.0 * read.layers * read.heads * read.touched_cells * (read.head_dim_k + read.head_dim_v)


def _expert_bytes(traffic: ModelTraffic) -> int:
    return sum(read.n_bytes for read in traffic.weights if read.kind == "experts")
