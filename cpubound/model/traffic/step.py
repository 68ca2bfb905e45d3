"""Bytes that one decode step of a model reads and writes, from its header alone."""

from __future__ import annotations

from msgspec import structs

from cpubound.errors import ModelFileError
from cpubound.model.label import quant_label
from cpubound.model.traffic import architectures
from cpubound.model.traffic.cache import (
    attention_reads,
    kv_allocated_bytes,
    kv_write_bytes,
    state_bytes,
    state_kind,
)
from cpubound.model.traffic.layers import read_layers
from cpubound.model.traffic.proven import PROVEN_ARCHITECTURES
from cpubound.model.traffic.weights import weight_traffic
from cpubound.model.values import ModelSpec, ModelTraffic
from cpubound.setting import Setting
from cpubound.units import format_decimal_bytes

MOST_BYTES = 2**63


def compute_traffic(spec: ModelSpec, setting: Setting) -> ModelTraffic:
    """Work out what one decode step at a setting reads and writes.

    A context that is not given is the one set for the model where it is kept, if it holds the
    depth, else just enough. Sliding-window layers keep the cells of their window only, as
    llama-bench and the command line tools have it (the library keeps all unless told otherwise).

    Raises ``ModelFileError`` for a model that no llama.cpp could run.
    """
    setting = _with_own_context(spec, setting)
    batch = setting.batch
    layers = read_layers(spec, flash_attn=setting.flash_attn)
    weights = weight_traffic(spec, layers, setting)
    state_read, state_written = state_bytes(spec, layers)
    traffic = ModelTraffic(
        model=spec.name,
        architecture=spec.architecture,
        quant_label=quant_label(spec),
        parameters=weights.elements,
        active_parameters=weights.elements - weights.inactive_elements,
        file_bytes=weights.n_bytes if spec.file_bytes is None else spec.file_bytes,
        setting=setting,
        weights=weights.reads,
        attention=attention_reads(layers, setting),
        kv_write_bytes=batch * kv_write_bytes(layers, setting),
        state_read_bytes=batch * state_read,
        state_write_bytes=batch * state_written,
        logits=_logits(spec),
        layers=len(layers),
        state_kind=state_kind(spec) if state_read else None,
        resident_bytes=weights.n_bytes
        - sum(weights.unread.values())
        + batch * (kv_allocated_bytes(layers, setting) + state_read),
        expert_bytes=weights.expert_bytes,
        lookup_bytes=weights.lookup_bytes,
        unread=weights.unread,
        assumptions=(*_assumptions(spec, batch), *_widened(setting)),
    )
    if max(traffic.resident_bytes, traffic.total_bytes) >= MOST_BYTES:
        raise ModelFileError(
            f"{spec.name} claims a cache or state beyond any memory "
            f"({format_decimal_bytes(traffic.resident_bytes)}): download it again"
        )
    return traffic


def _with_own_context(spec: ModelSpec, setting: Setting) -> Setting:
    own = spec.default_n_ctx
    if setting.allocated_context_tokens is not None or own is None or own <= setting.depth_tokens:
        return setting
    return structs.replace(setting, allocated_context_tokens=own)


def _widened(setting: Setting) -> tuple[str, ...]:
    """Say where rounding up alone makes a context hold its tokens."""
    asked, depth_tokens = setting.allocated_context_tokens, setting.depth_tokens
    if asked is None or asked > depth_tokens:
        return ()
    return (
        f"a context of {asked} does not hold {depth_tokens} tokens and a new one: llama.cpp "
        f"rounds it up to {setting.n_ctx}, which does",
    )


def _logits(spec: ModelSpec) -> int:
    """Return the rows of the output matrix: the vocabulary entries computed."""
    for name in ("output.weight", "token_embd.weight"):
        for tensor in spec.tensors:
            if tensor.name == name and len(tensor.shape) > 1:
                return tensor.shape[1]
    return spec.vocabulary_size or 0


def _assumptions(spec: ModelSpec, batch: int) -> tuple[str, ...]:
    notes = list(spec.warnings)
    if spec.architecture not in PROVEN_ARCHITECTURES:
        notes.append(
            f"traffic of architecture {spec.architecture} is not yet proven against "
            "llama.cpp's graph"
        )
    if spec.architecture in architectures.WITHOUT_CACHE:
        notes.append(f"{spec.architecture} keeps no cache: the figures are for a step of one token")
    if batch > 1 and any("_exps." in tensor.name for tensor in spec.tensors):
        notes.append(
            f"{batch} tokens choose experts independently: the experts read are an average"
        )
    return tuple(notes)
