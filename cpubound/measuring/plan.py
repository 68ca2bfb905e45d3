"""The plans of calibration: how long to measure, and the shapes of the probes (package data)."""

from __future__ import annotations

import math

import msgspec

from cpubound.errors import UsageError
from cpubound.model.quant import quant_type
from cpubound.package_data import read_toml
from cpubound.units import MIB


class LlamaShape(msgspec.Struct, frozen=True, kw_only=True):
    """The widths of a llama-like model."""

    name: str
    width: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int


class ProbeShape(LlamaShape, frozen=True, kw_only=True):
    """A llama-like model of one quant type that measures the engine's rate for it.

    With ``helpers`` it is made of the first so many types of the plan only.
    """

    max_layers: int
    size: int = 1  # in probe sizes
    helpers: int | None = None

    @property
    def layer_elements(self) -> int:
        """Weights of the matrices of one layer."""
        query = self.width * self.heads * self.head_dim
        key = self.width * self.kv_heads * self.head_dim
        return 2 * query + 2 * key + 3 * self.width * self.ffn


class AttentionShape(LlamaShape, frozen=True, kw_only=True):
    """A model of next to no weights whose KV cache measures attention."""

    layers: int
    depths: tuple[int, ...]
    prompts: bool = True  # whether it measures prompts too
    far: bool = False  # of long contexts: F16 alone, and not in a quick plan


class BatchShape(LlamaShape, frozen=True, kw_only=True):
    """A llama-like model of one quant type whose weights multiply many tokens at once."""

    layers: int


class FamilyShape(msgspec.Struct, frozen=True, kw_only=True):
    """A model of an architecture with experts or a recurrence, by its GGUF keys."""

    name: str
    architecture: str
    types: tuple[str, ...]
    hyper_parameters: dict[str, int | float | tuple[int, ...]]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much calibration does.

    ``bandwidth_buffers`` equal buffers share the rounds of a cell; ``stable_seconds`` may be
    spent on further ones while the estimate still moves, ``many_core_seconds`` on the whole
    memory stage of a machine too large to measure every thread count, ``core_seconds`` on
    caches, compute rates and barriers (``sizes_per_octave`` 0 leaves the caches out).
    ``shape_names`` are the shapes of weights, ``probe_mib`` the size of such a probe.
    ``cached_sizes`` are those of models that the last-level cache helps, over its size.
    ``batch_tokens`` are how many tokens at once the batch probes multiply,
    ``batch_tokens_fewest`` those of them that the fewest threads multiply too; ``families``
    says whether experts and recurrences are measured, ``far_attention`` whether long contexts.
    """

    bandwidth_seconds: float
    bandwidth_rounds: int
    bandwidth_buffers: int
    stable_seconds: float
    many_core_seconds: float
    whole_node_matrix: bool
    core_seconds: float
    sizes_per_octave: int
    engine_seconds: float
    probe_mib: int
    shape_names: tuple[str, ...]
    kernels: tuple[str, ...]
    types: tuple[str, ...]
    attention: tuple[tuple[str, str, bool], ...]
    batch_tokens: tuple[int, ...]
    batch_tokens_fewest: tuple[int, ...]
    families: bool
    far_attention: bool
    cached_sizes: tuple[float, ...]
    shapes: tuple[ProbeShape, ...]
    batch_shapes: tuple[BatchShape, ...]
    attention_shapes: tuple[AttentionShape, ...]
    family_shapes: tuple[FamilyShape, ...]


def load_plan(name: str = "standard", types: tuple[str, ...] | None = None) -> Plan:
    """Return a plan of the package data.

    Parameters
    ----------
    name : "standard", "quick" or "thorough".
    types : measure these quant types instead of the plan's.

    Raises
    ------
    UsageError : an unknown type.
    """
    data = read_toml("measuring", "plans.toml")
    shapes = {key: value for key, value in data.items() if key.endswith("shapes")}
    plan = msgspec.convert({**data[name], **shapes}, Plan)
    if types is not None:
        plan = _with_types(plan, tuple(_type_name(t) for t in types))
    return plan


def _with_types(plan: Plan, types: tuple[str, ...]) -> Plan:
    families = tuple(
        msgspec.structs.replace(shape, types=tuple(t for t in shape.types if t in types))
        for shape in plan.family_shapes
    )
    return msgspec.structs.replace(plan, types=tuple(dict.fromkeys(types)), family_shapes=families)


def helper_types(plan: Plan) -> tuple[str, ...]:
    """Return the plan's types with those first that probes of another subject are made of."""
    usual = [name for name in ("Q8_0", "Q4_K") if name in plan.types]
    return tuple(dict.fromkeys((*usual, *plan.types)))


def probe_layers(shape: ProbeShape, type_name: str, target_bytes: int) -> int:
    """Return how many layers bring a probe to ``target_bytes``.

    From twelve on an odd number: deep models have even ones.
    """
    quant = quant_type(type_name)
    layer_bytes = shape.layer_elements * quant.block_bytes / quant.block_size
    layers = max(1, math.ceil(shape.size * target_bytes / layer_bytes))
    if layers >= 12:
        layers += 1 - layers % 2
    return min(layers, shape.max_layers)


def probe_bytes(plan: Plan, available_bytes: int | None) -> int:
    """Return the size of a probe of weights, within the memory.

    Probes take turns, so that none need be larger than a cache; together they are at most a
    fifth of the available memory, and some 40 are open at once.
    """
    wanted = plan.probe_mib * MIB
    if available_bytes is not None:
        wanted = min(wanted, available_bytes // 200)
    return max(wanted, 4 * MIB)


def _type_name(text: str) -> str:
    try:
        return quant_type(text.upper()).name
    except (KeyError, ValueError) as error:
        raise UsageError(f"there is no such quant type ({text}): try Q4_K or Q8_0") from error
