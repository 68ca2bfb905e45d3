"""The probes: small synthetic models, each of one quant type, and the runs they are for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from cpubound.cost.terms import Grid, add_up, step_terms
from cpubound.measuring.plan import (
    AttentionShape,
    BatchShape,
    FamilyShape,
    LlamaShape,
    Plan,
    ProbeShape,
    helper_types,
    probe_layers,
)
from cpubound.model.layout import build_model
from cpubound.model.quant import quant_type
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelSpec, ModelTraffic, Tensor
from cpubound.setting import Setting

# Small enough that the output matrix weighs nothing beside the layers.
PROBE_VOCABULARY = 512
PROBE_CONTEXT = 32768


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """One model file to write and the settings to run it at.

    ``cached_bytes`` is the size that it represents among models that the last-level cache
    helps.
    """

    name: str
    type: str
    spec: ModelSpec
    cells: tuple[ProbeCell, ...]
    is_batch: bool = False  # its subject is weights that multiply several tokens
    cached_bytes: int | None = None

    @property
    def file_name(self) -> str:
        return f"{self.name}.gguf"

    @property
    def file_bytes(self) -> int:
        """The bytes of its tensors."""
        return sum(tensor.n_bytes for tensor in self.spec.tensors)

    def path(self, folder: Path) -> Path:
        return folder / self.file_name


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeCell:
    """One setting of a probe, at every thread count that is measured.

    It decodes in turn with other probes, or alone; or, with ``prompt_tokens``, it processes a
    prompt behind the depth.
    """

    setting: Setting
    takes_turns: bool = True
    prompt_tokens: int | None = None


EMPTY_CACHE = ProbeCell(setting=Setting())
ALONE = replace(EMPTY_CACHE, takes_turns=False)

# Of fewer layers than these the sizes of models for the cache would be too coarse.
FEWEST_CACHED_LAYERS = 4
# How attention computes shows in the difference of two such prompts.
ATTENTION_PROMPT_TOKENS = 128
ATTENTION_PROMPT_DEPTHS = (0, 512)


def plan_probes(
    plan: Plan, target_bytes: int, last_level_cache_bytes: int | None = None
) -> tuple[Probe, ...]:
    """Return the probes of a plan: of each type, of attention, of what some families have.

    Parameters
    ----------
    target_bytes : of a probe of weights.
    last_level_cache_bytes : what it keeps of small models is measured where it is known.
    """
    helpers = helper_types(plan)
    probes = [
        _weight_probe(shape, type_name, target_bytes)
        for shape in plan.shapes
        if shape.name in plan.shape_names
        for type_name in (plan.types if shape.helpers is None else helpers[: shape.helpers])
    ]
    probes += _cached_probes(plan, helpers[0], target_bytes, last_level_cache_bytes)
    probes += [
        _batch_probe(shape, type_name, plan)
        for type_name in plan.types
        for shape in plan.batch_shapes
    ]
    if plan.families:
        probes += [
            _family_probe(shape, type_name, plan)
            for shape in plan.family_shapes
            for type_name in shape.types
        ]
    for shape in plan.attention_shapes:
        if shape.far and not plan.far_attention:
            continue
        if shape.prompts:
            probes.append(_attention_prompt_probe(shape, plan))
        probes += [_attention_probe(shape, depth, plan) for depth in shape.depths]
    return tuple(probes)


def probe_grid(plan: Plan, probes: Sequence[Probe]) -> Grid:
    """Return at which numbers of tokens and sizes of models these probes measure."""
    sizes = {p.cached_bytes for p in probes if p.cached_bytes is not None}
    return Grid(tokens=tuple(sorted(plan.batch_tokens)), cached_bytes=tuple(sorted(sizes)))


def probe_terms(probe: Probe, cell: ProbeCell, tokens: int, grid: Grid) -> dict[str, float]:
    """Return the amounts of a cell's equation: of a token in its middle, or of its prompt."""
    traffic = probe_traffic(probe, cell, tokens)
    if cell.prompt_tokens is not None:
        return add_up(step_terms(traffic, grid, is_prompt=True))
    # The cache holds nothing of a probe that takes turns, nor of one that is far too large.
    sizes = grid.cached_bytes if probe.cached_bytes is not None else ()
    return add_up(step_terms(traffic, grid._replace(cached_bytes=sizes)))


def probe_traffic(probe: Probe, cell: ProbeCell, tokens: int) -> ModelTraffic:
    """Return what the probe moves in the middle of a run of ``tokens`` tokens, or of its prompt."""
    middle = cell.setting.depth_tokens + (cell.prompt_tokens or tokens) // 2
    setting = structs.replace(cell.setting, depth_tokens=middle, batch=cell.prompt_tokens or 1)
    return compute_traffic(probe.spec, setting)


def _weight_probe(shape: ProbeShape, type_name: str, target_bytes: int) -> Probe:
    layers = probe_layers(shape, type_name, target_bytes)
    name = f"{shape.name}-{layers}x{shape.width}-{type_name}"
    spec = llama_spec(name, shape, layers, type_name)
    return Probe(name=name, type=type_name, spec=spec, cells=(EMPTY_CACHE,))


def _cached_probes(
    plan: Plan, type_name: str, target_bytes: int, cache_bytes: int | None
) -> list[Probe]:
    """Return models about as large as the last-level cache, decoded alone.

    Up to sixteen times a probe of weights: on a larger cache than that less is measured.
    """
    shapes = {shape.name: shape for shape in plan.shapes}
    found: list[Probe] = []
    for factor in plan.cached_sizes:
        wanted = round(factor * (cache_bytes or 0))
        if not 0 < wanted <= 16 * target_bytes:
            continue
        shape = shapes["deep"]
        if probe_layers(shape, type_name, wanted) < FEWEST_CACHED_LAYERS:
            shape = shapes["narrow"]
        layers = probe_layers(shape, type_name, wanted)
        name = f"cached-{layers}x{shape.width}-{type_name}"
        if any(probe.name == name for probe in found):
            continue
        probe = Probe(
            name=name,
            type=type_name,
            spec=llama_spec(name, shape, layers, type_name),
            cells=(ALONE,),
        )
        size = probe_traffic(probe, ALONE, 0).weights_read_bytes
        found.append(replace(probe, cached_bytes=size))
    return found


def _batch_probe(shape: BatchShape, type_name: str, plan: Plan) -> Probe:
    name = f"{shape.name}-{shape.layers}x{shape.width}-{type_name}"
    return Probe(
        name=name,
        type=type_name,
        spec=llama_spec(name, shape, shape.layers, type_name),
        cells=tuple(replace(ALONE, prompt_tokens=n) for n in plan.batch_tokens),
        is_batch=True,
    )


def _family_probe(shape: FamilyShape, type_name: str, plan: Plan) -> Probe:
    # Of a type that only experts are measured in, its probe alone could not tell dense matrices.
    dense = type_name if type_name in plan.types else helper_types(plan)[0]
    name = f"{shape.name}-{type_name}"
    spec = build_model(
        shape.architecture,
        {"context_length": PROBE_CONTEXT, **shape.hyper_parameters},
        "F16",
        vocabulary_size=PROBE_VOCABULARY,
        tied_output=False,
        name=name,
    )
    return Probe(
        name=name,
        type=type_name,
        spec=replace(spec, tensors=_with_type(spec, dense, type_name)),
        cells=(EMPTY_CACHE,),
    )


def _attention_prompt_probe(shape: AttentionShape, plan: Plan) -> Probe:
    name = f"{shape.name}-prompt-{shape.layers}x{shape.width}"
    cells = tuple(
        ProbeCell(
            setting=Setting(depth_tokens=depth, kv_type_k=k, kv_type_v=v, flash_attn=flash_attn),
            takes_turns=False,
            prompt_tokens=ATTENTION_PROMPT_TOKENS,
        )
        for k, v, flash_attn in plan.attention
        for depth in ATTENTION_PROMPT_DEPTHS
    )
    helper = helper_types(plan)[0]
    spec = llama_spec(name, shape, shape.layers, helper)
    return Probe(name=name, type=helper, spec=spec, cells=cells)


def _attention_probe(shape: AttentionShape, depth: int, plan: Plan) -> Probe:
    helper = helper_types(plan)[0]
    name = f"{shape.name}-{shape.layers}x{shape.width}-{depth}"
    cells = tuple(
        ProbeCell(
            setting=Setting(depth_tokens=depth, kv_type_k=k, kv_type_v=v, flash_attn=flash_attn)
        )
        for k, v, flash_attn in plan.attention
        if not shape.far or (k, v) == ("f16", "f16")
    )
    spec = llama_spec(name, shape, shape.layers, helper)
    return Probe(name=name, type=helper, spec=spec, cells=cells)


def llama_spec(name: str, shape: LlamaShape, layers: int, type_name: str) -> ModelSpec:
    """Return a llama-like model of a shape whose matrices are all of one type."""
    hyper_parameters = {
        "context_length": PROBE_CONTEXT,
        "embedding_length": shape.width,
        "block_count": layers,
        "feed_forward_length": shape.ffn,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": shape.head_dim,
        "rope.freq_base": 10000.0,
    }
    spec = build_model(
        "llama",
        hyper_parameters,
        "F16",
        vocabulary_size=PROBE_VOCABULARY,
        tied_output=False,
        name=name,
    )
    return replace(spec, tensors=_with_type(spec, type_name, type_name))


def _with_type(spec: ModelSpec, dense: str, experts: str) -> tuple[Tensor, ...]:
    """Give every matrix that may be quantised its type: one for dense ones, one for experts."""
    types = {False: quant_type(dense), True: quant_type(experts)}
    return tuple(
        replace(tensor, type=types["_exps" in tensor.name]) if tensor.type.name == "F16" else tensor
        for tensor in spec.tensors
    )
