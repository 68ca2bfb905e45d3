"""What a model is and what a decode step of it moves, without any machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from cpubound.setting import Setting

# Matrix products of a layer of experts: up, gate and down.
EXPERT_PRODUCTS = 3

HyperParameter = int | float | bool | str | tuple[int | float | bool, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantType:
    """One ggml tensor type."""

    name: str  # as ggml writes it in upper case: "Q4_K"
    id: int
    block_size: int  # elements per block
    block_bytes: int

    @property
    def bits_per_weight(self) -> float:
        return self.block_bytes * 8 / self.block_size

    def row_bytes(self, columns: int) -> int:
        """Bytes of one row; ``columns`` is a multiple of the block size."""
        return columns // self.block_size * self.block_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """One tensor of a model, in ggml's order: ``shape[0]`` is the contiguous dimension."""

    name: str
    type: QuantType
    shape: tuple[int, ...]
    offset: int = 0  # from the start of its shard's data section
    shard: int = 0

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) // self.type.block_size * self.type.block_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """A model as its file header (or the catalogue) describes it.

    ``hyper_parameters`` are the GGUF keys of the architecture without its prefix
    (``block_count``, ``attention.head_count_kv``, …): numbers, strings, and arrays of
    numbers of at most a few thousand entries. ``vocabulary_size`` is the token count. The
    ``default`` values are what the program that keeps the model sets for it (Ollama's
    ``num_thread`` and ``num_ctx``), None where it sets nothing.
    """

    name: str
    architecture: str
    hyper_parameters: Mapping[str, HyperParameter]
    tensors: tuple[Tensor, ...]
    vocabulary_size: int | None = None
    file_type: int | None = None  # general.file_type as the file claims it
    file_bytes: int | None = None  # all shards, headers included; None without a file
    shards: tuple[str, ...] = ()  # paths; empty for a model that has no file
    warnings: tuple[str, ...] = ()
    default_threads: int | None = None
    default_n_ctx: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightRead:
    """Weights of one tensor (or of equal ones) that a decode step reads.

    ``kind`` says by which operator: ``matmul`` (MUL_MAT), ``experts`` (MUL_MAT_ID),
    ``vector`` (norms, biases, scales: element-wise operators) or ``rows`` (GET_ROWS).
    ``rows`` × ``columns`` is the shape of one matrix as read by one product, ``count`` how
    many such products the step runs, ``n_bytes`` what all of them read together, ``tokens``
    how many tokens each of them multiplies (of experts the average).
    """

    # "attention", "ffn", "experts", "router", "output", "embedding", "norm", "recurrent", "other"
    role: str
    kind: str
    type: str
    rows: int
    columns: int
    count: int
    n_bytes: int
    tokens: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionRead:
    """KV cache that layers of one shape read in one decode step, per sequence.

    ``cells`` are what the graph spans (padded to 256, capped by a window);
    ``touched_cells`` those that are not masked: what flash-attention reads.
    """

    kind: str  # "full", "window", "chunked", "mla", "indexer", "compressed"
    layers: int
    heads: int
    kv_heads: int
    head_dim_k: int
    head_dim_v: int
    cells: int
    touched_cells: int
    k_bytes: int  # read over all these layers, for ``cells``
    v_bytes: int

    @property
    def query_heads(self) -> float:
        """Query heads that share a KV head."""
        return self.heads / max(self.kv_heads, 1)

    def operations(self, flash_attn: bool) -> int:
        """Floating-point operations of these layers for one token.

        A multiplication and an addition for each head, cell and number of K's and V's rows;
        with flash-attention only for cells that are not masked.
        """
        cells = self.touched_cells if flash_attn else self.cells
        return 2 * self.layers * self.heads * (self.head_dim_k + self.head_dim_v) * cells


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelTraffic:
    """Bytes that one decode step reads and writes at a setting.

    ``weights`` lists every read of weights; the sums by type and role are derived. KV
    figures are for all sequences of the batch together, as the graph spans them.
    """

    model: str
    architecture: str
    quant_label: str
    parameters: int
    active_parameters: int
    file_bytes: int
    setting: Setting  # its thread count means nothing here
    weights: tuple[WeightRead, ...]
    attention: tuple[AttentionRead, ...]
    kv_write_bytes: int
    state_read_bytes: int
    state_write_bytes: int
    logits: int  # vocabulary entries computed per sequence
    layers: int
    resident_bytes: int  # weights + KV cache of n_ctx cells + state
    state_kind: str | None = None  # "mamba", "mamba2", "wkv", "delta", "conv", "linear"
    expert_bytes: int = 0  # of all experts, chosen or not
    lookup_bytes: int = 0  # of tables that are only looked up by row
    unread: Mapping[str, int] = field(
        default_factory=dict
    )  # tensors decode never reads: why -> bytes
    assumptions: tuple[str, ...] = ()

    @property
    def weights_read_bytes(self) -> int:
        """Weights read in full by matrix products and element-wise operators."""
        return sum(w.n_bytes for w in self.weights if w.kind != "rows")

    @property
    def embedding_row_bytes(self) -> int:
        """Rows fetched from lookup tables."""
        return sum(w.n_bytes for w in self.weights if w.kind == "rows")

    @property
    def kv_read_bytes(self) -> int:
        """KV cache read, as the graph spans it."""
        return self.setting.batch * sum(a.k_bytes + a.v_bytes for a in self.attention)

    @property
    def kv_touched_bytes(self) -> int:
        """KV cache read when masked cells are skipped, as flash-attention does."""
        return self.setting.batch * sum(
            (a.k_bytes + a.v_bytes) * a.touched_cells // a.cells for a in self.attention if a.cells
        )

    @property
    def attention_read_bytes(self) -> int:
        """KV cache that attention reads: what is touched with flash-attention, else all spanned."""
        return self.kv_touched_bytes if self.setting.flash_attn else self.kv_read_bytes

    @property
    def total_bytes(self) -> int:
        """Everything the step reads and writes."""
        return (
            self.weights_read_bytes
            + self.embedding_row_bytes
            + self.kv_read_bytes
            + self.kv_write_bytes
            + self.state_read_bytes
            + self.state_write_bytes
        )

    @property
    def by_type(self) -> dict[str, int]:
        """Weight bytes read, by tensor type, largest first."""
        return _sums((w.type, w.n_bytes) for w in self.weights)

    @property
    def by_role(self) -> dict[str, int]:
        """Weight bytes read, by role, largest first."""
        return _sums((w.role, w.n_bytes) for w in self.weights)

    @property
    def matrices(self) -> dict[tuple[str, int], int]:
        """Bytes that matrix products read, by tensor type and length of a row."""
        found: dict[tuple[str, int], int] = {}
        for w in self.weights:
            if w.kind in ("matmul", "experts"):
                key = (w.type, w.columns)
                found[key] = found.get(key, 0) + w.n_bytes
        return found

    @property
    def products(self) -> tuple[WeightRead, ...]:
        """The reads by matrix products, dense ones and experts."""
        return tuple(w for w in self.weights if w.kind in ("matmul", "experts"))

    @property
    def attention_operations(self) -> int:
        """Floating-point operations of attention for one token of one sequence.

        Of all layers together, as ``AttentionRead.operations``.
        """
        return sum(a.operations(self.setting.flash_attn) for a in self.attention)

    @property
    def expert_layers(self) -> int:
        """How many layers choose among experts: one router each."""
        return sum(w.count for w in self.weights if w.role == "router" and w.kind == "matmul")

    @property
    def matrix_products(self) -> int:
        """How many matrix products with weights the step runs.

        All chosen experts of a layer are one product (MUL_MAT_ID) for each of up, gate and down.
        """
        dense = sum(w.count for w in self.weights if w.kind == "matmul")
        return dense + EXPERT_PRODUCTS * self.expert_layers


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for key, n_bytes in pairs:
        totals[key] = totals.get(key, 0) + n_bytes
    return dict(sorted(totals.items(), key=lambda item: -item[1]))
