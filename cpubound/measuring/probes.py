"""The probes: small synthetic models, each of one quant type, and the runs they are for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from cpubound.measuring.plan import (
    AttentionShape,
    BatchShape,
    FamilyShape,
    Plan,
    ProbeShape,
    probe_layers,
)
from cpubound.model.layout import build_model
from cpubound.model.quant import quant_type
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelSpec, ModelTraffic, Tensor

# Small enough that the output matrix weighs nothing beside the layers.
PROBE_VOCABULARY = 512
PROBE_CONTEXT = 8192

# The matrices of probes whose subject is another part.
HELPER_TYPE = "Q8_0"


class AttentionKey(NamedTuple):
    """Names one attention setting in the fit."""

    kv_type_k: str
    kv_type_v: str
    flash_attn: bool
    head_dim: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """One model file to write and the settings to run it at, in how many rounds at most."""

    name: str
    type: str
    spec: ModelSpec
    cells: tuple[ProbeCell, ...]
    rounds: int | None = None
    is_batch: bool = False  # its subject is weights that multiply several tokens

    @property
    def file_name(self) -> str:
        return f"{self.name}.gguf"

    def path(self, folder: Path) -> Path:
        return folder / self.file_name


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeCell:
    """One setting of a probe; thread counts come on top.

    With ``prompt_tokens`` it processes a prompt behind the depth instead of decoding.
    """

    depth_tokens: int
    kv_type_k: str
    kv_type_v: str
    flash_attn: bool
    prompt_tokens: int | None = None


EMPTY_CACHE = ProbeCell(depth_tokens=0, kv_type_k="f16", kv_type_v="f16", flash_attn=True)

# How attention computes shows in the difference of two such prompts.
ATTENTION_PROMPT_TOKENS = 128
ATTENTION_PROMPT_DEPTHS = (0, 512)
BATCH_ROUNDS = 2
ATTENTION_PROMPT_ROUNDS = 2
# Bound by computing, attention varies less than what memory sets.
ATTENTION_ROUNDS = 2


def plan_probes(plan: Plan, target_bytes: int) -> tuple[Probe, ...]:
    """Return the probes of a plan: of each type, of attention, of what some families have."""
    probes = [
        _weight_probe(shape, type_name, target_bytes)
        for type_name in plan.types
        for shape in plan.shapes
        if not shape.only or type_name in shape.only
    ]
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
    probes += [
        _attention_prompt_probe(shape, plan) for shape in plan.attention_shapes if shape.prompts
    ]
    probes += [_attention_probe(shape, plan) for shape in plan.attention_shapes]
    return tuple(probes)


def probe_traffic(probe: Probe, cell: ProbeCell, tokens: int) -> ModelTraffic:
    """Return what the probe moves in the middle of a run of ``tokens`` tokens, or of its prompt."""
    return compute_traffic(
        probe.spec,
        depth_tokens=cell.depth_tokens + (cell.prompt_tokens or tokens) // 2,
        batch=cell.prompt_tokens or 1,
        kv_type_k=cell.kv_type_k,
        kv_type_v=cell.kv_type_v,
        flash_attn=cell.flash_attn,
    )


def _weight_probe(shape: ProbeShape, type_name: str, target_bytes: int) -> Probe:
    layers = probe_layers(shape, type_name, target_bytes)
    name = f"{shape.name}-{layers}x{shape.width}-{type_name}"
    spec = _llama_spec(name, shape, layers, type_name)
    return Probe(name=name, type=type_name, spec=spec, cells=(EMPTY_CACHE,))


def _batch_probe(shape: BatchShape, type_name: str, plan: Plan) -> Probe:
    name = f"{shape.name}-{shape.layers}x{shape.width}-{type_name}"
    return Probe(
        name=name,
        type=type_name,
        spec=_llama_spec(name, shape, shape.layers, type_name),
        cells=tuple(replace(EMPTY_CACHE, prompt_tokens=n) for n in (1, *plan.batch_tokens)),
        rounds=BATCH_ROUNDS,
        is_batch=True,
    )


def _family_probe(shape: FamilyShape, type_name: str, plan: Plan) -> Probe:
    # Of a type that only experts are measured in, its probe alone could not tell dense matrices.
    dense = type_name if type_name in plan.types else HELPER_TYPE
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
            depth_tokens=depth,
            kv_type_k=k,
            kv_type_v=v,
            flash_attn=flash_attn,
            prompt_tokens=ATTENTION_PROMPT_TOKENS,
        )
        for k, v, flash_attn in plan.attention
        for depth in ATTENTION_PROMPT_DEPTHS
    )
    spec = _llama_spec(name, shape, shape.layers, HELPER_TYPE)
    return Probe(
        name=name, type=HELPER_TYPE, spec=spec, cells=cells, rounds=ATTENTION_PROMPT_ROUNDS
    )


def _attention_probe(shape: AttentionShape, plan: Plan) -> Probe:
    name = f"{shape.name}-{shape.layers}x{shape.width}"
    cells = tuple(
        ProbeCell(depth_tokens=depth, kv_type_k=k, kv_type_v=v, flash_attn=flash_attn)
        for k, v, flash_attn in plan.attention
        for depth in shape.depths
    )
    spec = _llama_spec(name, shape, shape.layers, HELPER_TYPE)
    return Probe(name=name, type=HELPER_TYPE, spec=spec, cells=cells, rounds=ATTENTION_ROUNDS)


def _llama_spec(
    name: str, shape: ProbeShape | BatchShape | AttentionShape, layers: int, type_name: str
) -> ModelSpec:
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
