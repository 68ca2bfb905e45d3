"""Which weights a decode step reads: each tensor's kind, times and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from cpubound.model.hyper import HyperParameters, layer_count
from cpubound.model.traffic import architectures
from cpubound.model.traffic.layers import Layer, split_block
from cpubound.model.traffic.roles import expert_count, is_expert, kind_of, role_of, why_never_read
from cpubound.model.values import ModelSpec, Tensor, WeightRead
from cpubound.setting import Setting

_DRAFT = "draft (next-token prediction)"
_LEFT_ASIDE = "left aside by the graph"
_SHARED_CACHE = "keys and values of layers that share a cache"
_OTHER_CONTEXT = "rotary factors for another context length"


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightTraffic:
    """The reads of one step, what no step reads (why → bytes), and what there is of weights.

    ``elements`` and ``n_bytes`` are those of all tensors; ``inactive_elements`` those of
    experts not chosen and of tensors never read; ``expert_bytes`` those of all experts;
    ``lookup_bytes`` those of tables that are only looked up by row.
    """

    reads: tuple[WeightRead, ...]
    unread: dict[str, int]
    elements: int
    inactive_elements: int
    n_bytes: int
    expert_bytes: int
    lookup_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Step:
    """What of a step's setting decides how often a tensor is read."""

    spec: ModelSpec
    hyper: HyperParameters
    runs: Counter[int]  # block → how often it runs
    ropes: int
    shared_blocks: frozenset[int]
    recurrent_only: frozenset[int]
    expert_blocks: frozenset[int]
    setting: Setting

    def kind_of_block(self, block: int) -> Hashable:
        """Return all that tells how a block's tensors are read from how another's are."""
        return (
            self.is_draft(block),
            block == 0,
            self.runs[block],
            block in self.shared_blocks,
            block in self.recurrent_only,
            block in self.expert_blocks,
            self.hyper.of_layer("expert_used_count", block),
        )

    def is_draft(self, block: int) -> bool:
        return block >= layer_count(self.hyper) and block not in self.runs


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    """A ``WeightRead`` in the making; ``active`` is the part of the tensor that acts."""

    role: str
    kind: str
    rows: int
    count: float
    bytes_each: float
    active: float = 1.0
    tokens: float = 1.0


def weight_traffic(spec: ModelSpec, layers: Sequence[Layer], setting: Setting) -> WeightTraffic:
    """Work out the weights that a decode step reads.

    The allocated context chooses between rotary factors for long and short
    contexts. The counting is that of llama.cpp's graph: a tensor counts once for every
    operator that reads it.
    """
    step = _step(spec, layers, setting)
    reads: list[tuple[Tensor, _Read, int]] = []
    unread: dict[str, int] = {}
    elements = n_bytes = expert_bytes = lookup_bytes = 0
    inactive = 0.0
    for tensor, number in _alike(step):
        elements += number * tensor.elements
        n_bytes += number * tensor.n_bytes
        block, stem = split_block(tensor.name)
        reason = _why_unread(step, block, stem)
        if reason is not None:
            unread[reason] = unread.get(reason, 0) + number * tensor.n_bytes
            inactive += number * tensor.elements
            continue
        read = _read(step, tensor, block, stem)
        inactive += number * tensor.elements * (1 - read.active)
        reads.append((tensor, read, number))
        expert_bytes += number * tensor.n_bytes if is_expert(stem) else 0
        lookup_bytes += number * tensor.n_bytes if read.kind == "rows" else 0
    tied = _tied_output(spec)
    if tied is not None:
        rows = tied.elements // tied.shape[0]
        as_output = _Read(
            role="output",
            kind="matmul",
            rows=rows,
            count=1,
            bytes_each=tied.n_bytes,
            tokens=setting.batch,
        )
        reads.append((tied, as_output, 1))
        lookup_bytes -= tied.n_bytes
    return WeightTraffic(
        reads=_grouped(reads),
        unread=dict(sorted(unread.items(), key=lambda item: -item[1])),
        elements=elements,
        inactive_elements=round(inactive),
        n_bytes=n_bytes,
        expert_bytes=expert_bytes,
        lookup_bytes=lookup_bytes,
    )


def _alike(step: _Step) -> Iterator[tuple[Tensor, int]]:
    """Yield tensors, and how many each represents: most blocks repeat one another."""
    kinds: dict[int | None, Hashable] = {None: None}
    groups: dict[Hashable, list[Tensor]] = {}
    for tensor in step.spec.tensors:
        block, stem = split_block(tensor.name)
        if block is not None and block not in kinds:
            kinds[block] = step.kind_of_block(block)
        key = (kinds[block], stem, tensor.shape, tensor.type.name)
        groups.setdefault(key, []).append(tensor)
    for group in groups.values():
        yield group[0], len(group)


def _grouped(reads: Sequence[tuple[Tensor, _Read, int]]) -> tuple[WeightRead, ...]:
    """Put equal reads together, largest first, and round what experts share."""
    groups: dict[tuple[str, str, str, int, int, float], tuple[float, float]] = {}
    for tensor, read, number in reads:
        key = (read.role, read.kind, tensor.type.name, read.rows, tensor.shape[0], read.tokens)
        count, n_bytes = groups.get(key, (0.0, 0.0))
        products = number * read.count
        groups[key] = (count + products, n_bytes + products * read.bytes_each)
    grouped = (
        WeightRead(
            role=role,
            kind=kind,
            type=type_,
            rows=rows,
            columns=columns,
            count=round(count),
            n_bytes=round(n_bytes),
            tokens=tokens,
        )
        for (role, kind, type_, rows, columns, tokens), (count, n_bytes) in groups.items()
    )
    return tuple(sorted(grouped, key=lambda read: -read.n_bytes))


def _step(spec: ModelSpec, layers: Sequence[Layer], setting: Setting) -> _Step:
    with_experts = {
        block
        for block, stem in (split_block(tensor.name) for tensor in spec.tensors)
        if block is not None and is_expert(stem)
    }
    return _Step(
        spec=spec,
        hyper=HyperParameters(spec),
        runs=Counter(layer.block for layer in layers),
        ropes=sum(layer.ropes for layer in layers),
        shared_blocks=frozenset(
            layer.block for layer in layers if layer.caches and layer.caches[0].shared
        ),
        recurrent_only=frozenset(
            layer.block for layer in layers if layer.recurrent and not layer.caches
        ),
        expert_blocks=frozenset(with_experts),
        setting=setting,
    )


def _why_unread(step: _Step, block: int | None, stem: str) -> str | None:
    if block is not None and step.is_draft(block):
        return _DRAFT
    never = why_never_read(stem)
    if never is not None:
        return never
    if _is_left_aside(step, block, stem):
        return _LEFT_ASIDE
    if block in step.shared_blocks and stem.startswith(("attn_k.", "attn_v.", "attn_k_norm.")):
        return _SHARED_CACHE
    if stem == _unused_rope_factors(step):
        return _OTHER_CONTEXT
    return None


def _is_left_aside(step: _Step, block: int | None, stem: str) -> bool:
    """Tell whether the loader takes a tensor that this architecture's graph does not use."""
    name = step.spec.architecture
    patterns = [architectures.LEFT_ASIDE.get(name)]
    if block == 0:
        patterns.append(architectures.LEFT_ASIDE_IN_FIRST_LAYER.get(name))
    if block in step.expert_blocks:
        patterns.append(architectures.DENSE_FFN_UNREAD_BESIDE_EXPERTS.get(name))
    if any(pattern is not None and pattern.fullmatch(stem) for pattern in patterns):
        return True
    if block in step.recurrent_only and stem in ("attn_q.bias", "attn_k.bias", "attn_v.bias"):
        return True
    needs_flash = name in architectures.INDEXER_NEEDS_FLASH_ATTENTION
    return needs_flash and not step.setting.flash_attn and stem.startswith("indexer")


def _unused_rope_factors(step: _Step) -> str:
    """Name the table that ``get_rope_factors`` (src/llama-model.cpp) does not choose."""
    trained = step.hyper.integer("context_length")
    original = step.hyper.integer("rope.scaling.original_context_length", trained)
    return f"rope_factors_{'short' if step.setting.n_ctx > original else 'long'}.weight"


def _read(step: _Step, tensor: Tensor, block: int | None, stem: str) -> _Read:
    """Return how one tensor is read: as ``WeightRead`` says, not yet rounded."""
    role, kind = role_of(stem), kind_of(step.spec.architecture, stem, tensor)
    times = float(step.runs[block]) if block is not None else 1.0
    rows = tensor.elements // tensor.shape[0]
    if kind == "rows":
        row = tensor.type.row_bytes(tensor.shape[0])
        times *= step.setting.batch * _rows_per_token(step, stem)
        return _Read(role=role, kind=kind, rows=1, count=times, bytes_each=row)
    if stem.startswith("rope_f"):
        times = float(step.ropes) if block is None else 2 * times  # queries and keys
    twice = architectures.READ_TWICE.get(step.spec.architecture)
    if twice is not None and twice.fullmatch(stem):
        times *= 2
    if not is_expert(stem):
        return _Read(
            role=role,
            kind=kind,
            rows=rows,
            count=times,
            bytes_each=tensor.n_bytes,
            tokens=step.setting.batch,
        )
    experts = expert_count(stem, tensor, step.hyper.integer("expert_count"))
    share = _share_of_experts(step, block, experts)
    chosen = _chosen_experts(experts, share, step.setting.batch)
    in_tensor = tensor.shape[-1] if kind == "vector" or len(tensor.shape) > 2 else 1
    return _Read(
        role=role,
        kind=kind,
        rows=max(rows // in_tensor, 1),
        count=times * chosen * in_tensor / experts,
        bytes_each=tensor.n_bytes / in_tensor,
        active=chosen / experts,
        tokens=step.setting.batch * share * experts / chosen,
    )


def _rows_per_token(step: _Step, stem: str) -> int:
    """Return the rows of a table that one token looks up: of n-grams, one for each head."""
    heads = step.hyper.integer("ple.heads_per_ngram")
    if heads and stem.startswith("per_layer_token_embd"):
        return heads * max(step.hyper.integer("ple.ngram_size") - 1, 1)
    return 1


def _share_of_experts(step: _Step, block: int | None, experts: int) -> float:
    """Return the share of a layer's experts that one token uses."""
    used = step.hyper.of_layer("expert_used_count", block or 0, experts)
    return min(used / experts, 1.0) if used else 1.0


def _chosen_experts(experts: int, share: float, batch: int) -> float:
    """Return how many experts a step reads: with b sequences, E·(1 − (1 − k/E)^b) on average.

    k of E are chosen for each sequence, independently (random tokens, balanced router).
    """
    return experts * (1 - (1 - share) ** batch)


def _tied_output(spec: ModelSpec) -> Tensor | None:
    """Return the token table if it is read in full as the output matrix too."""
    names = {tensor.name: tensor for tensor in spec.tensors}
    table = names.get("token_embd.weight")
    if table is None or "output.weight" in names or len(table.shape) < 2:
        return None
    return table
