"""Arithmetic intensity (FLOP per byte) of the operators of a decode step."""

from __future__ import annotations

from dataclasses import dataclass

from cpubound.model.values import ModelTraffic
from cpubound.theory.budget import require_positive
from cpubound.theory.moe import ExpertWeights
from cpubound.theory.work import attention_flops

ACTIVATION_BYTES = 2.0  # fp16 or bf16, as the field counts; llama.cpp on CPUs keeps 4
# What an RMS norm computes for an element: square, sum, scale by the root, scale by the weight.
NORM_FLOPS_PER_ELEMENT = 4.0
NORMS = "norms"
CACHE = "attention over the cache"
# Roles of weights (``WeightRead.role``) in the order of a layer, and what people call them.
_PRODUCTS = {
    "attention": "attention projections",
    "recurrent": "recurrent projections",
    "router": "router",
    "experts": "experts",
    "ffn": "feed-forward",
    "output": "output (logits)",
    "other": "other products",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorWork:
    """One class of operators in a step: all its FLOPs and all its bytes."""

    name: str
    flops: float
    n_bytes: float

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.n_bytes if self.n_bytes else 0.0


def element_wise(
    elements: float,
    *,
    flops_per_element: float,
    reads: int = 1,
    writes: int = 1,
    activation_bytes: float = ACTIVATION_BYTES,
) -> OperatorWork:
    """Return the work of an operator that goes through ``elements`` once: intensity O(1).

    A GELU reads one and writes one; a residual addition reads two. Neither shape nor batch
    changes the intensity; only fusing it with a neighbour does.
    """
    require_positive("a number of elements", elements)
    return OperatorWork(
        name="element-wise",
        flops=elements * flops_per_element,
        n_bytes=elements * (reads + writes) * activation_bytes,
    )


def operators(
    one: ModelTraffic, batch: int, experts: ExpertWeights | None = None
) -> tuple[OperatorWork, ...]:
    """Return the classes of operators of a step in the order of a layer.

    Parameters
    ----------
    one : the traffic of one sequence at the context in question.
    batch : sequences decoded together.
    experts : what a mixture reads at that batch (``DecodeWork.experts``).
    """
    require_positive("a batch", batch)
    found = [_product(one, role, name, batch, experts) for role, name in _PRODUCTS.items()]
    found.insert(1, _cache(one, batch))
    found.append(_norms(one, batch))
    return tuple(work for work in found if work.flops)


def _product(
    one: ModelTraffic, role: str, name: str, batch: int, experts: ExpertWeights | None
) -> OperatorWork:
    reads = [r for r in one.weights if r.role == role and r.kind in ("matmul", "experts")]
    weights = float(sum(read.n_bytes for read in reads))
    if role == "experts" and experts is not None:
        weights = experts.bytes_at(batch)
    moved = sum((read.rows + read.columns) * read.count for read in reads)
    return OperatorWork(
        name=name,
        flops=batch * sum(2.0 * read.rows * read.columns * read.count for read in reads),
        n_bytes=weights + batch * moved * ACTIVATION_BYTES,
    )


def _cache(one: ModelTraffic, batch: int) -> OperatorWork:
    queries = sum(
        read.layers * read.heads * (read.head_dim_k + read.head_dim_v) for read in one.attention
    )
    return OperatorWork(
        name=CACHE,
        flops=batch * sum(attention_flops(read) for read in one.attention),
        n_bytes=batch * (one.kv_touched_bytes + queries * ACTIVATION_BYTES),
    )


def _norms(one: ModelTraffic, batch: int) -> OperatorWork:
    elements = batch * sum(
        read.rows * read.columns * read.count
        for read in one.weights
        if read.role == "norm" and read.kind == "vector"
    )
    if not elements:
        return OperatorWork(name=NORMS, flops=0.0, n_bytes=0.0)
    work = element_wise(elements, flops_per_element=NORM_FLOPS_PER_ELEMENT)
    return OperatorWork(name=NORMS, flops=work.flops, n_bytes=work.n_bytes)
