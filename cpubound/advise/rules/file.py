"""Rules about a model's file and form; each looks at a model at a setting, on no machine."""

from __future__ import annotations

from collections.abc import Collection

from cpubound.advise.case import ModelCase
from cpubound.advise.values import INFO, WARNING, Finding
from cpubound.model.ftype import FILE_TYPES
from cpubound.model.label import bits_per_weight
from cpubound.model.quant import QUANT_TYPES
from cpubound.units import format_binary_bytes, format_decimal_bytes

_KNOWN_TYPES = frozenset(quant.name for quant in QUANT_TYPES)
_FILE_TYPE_NAMES = {file_type.id: file_type.name for file_type in FILE_TYPES}
_TABLES = ("token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight")
# A table under this share of the file changes nobody's arithmetic: predictions are off by as much.
_TABLE_SHARE = 0.03
# Shared parts of a mixture of experts make its active share look larger; nine tenths is dense.
_ACTIVE_SHARE = 0.9
# What the usual formula for the cache must be off by to matter.
_KV_RATIO = 1.2


def find_lookup_tables(case: ModelCase) -> Finding | None:
    """Find tables of which a token reads a row: they count for the size, not for the speed."""
    traffic = case.traffic
    tied = "token_embd.weight" if has_tied_output(case) else None
    table = sum(t.n_bytes for t in case.spec.tensors if t.name in _TABLES and t.name != tied)
    if not table or table < _TABLE_SHARE * traffic.file_bytes:
        return None
    row = traffic.embedding_row_bytes
    return Finding(
        code="lookup-tables",
        severity=INFO,
        evidence={"table_bytes": table, "row_bytes": row, "file_bytes": traffic.file_bytes},
        message=(
            f"{format_binary_bytes(table)} of the file are lookup tables, of which a token reads "
            f"{row} bytes: file size over bandwidth is not its speed"
        ),
        cost_tokens_per_s=0.0,
        remedy="nothing to do; see what is read:  cpubound inspect",
    )


def has_tied_output(case: ModelCase) -> bool:
    """Tell whether the token table serves as the output matrix too."""
    names = {tensor.name for tensor in case.spec.tensors}
    reads_output = any(w.role == "output" for w in case.traffic.weights)
    return "output.weight" not in names and reads_output


def find_tied_output(case: ModelCase) -> Finding | None:
    """Find a token table that is also the output matrix: read once for a token, in full."""
    if not has_tied_output(case):
        return None
    table = next((t for t in case.spec.tensors if t.name == "token_embd.weight"), None)
    if table is None or table.n_bytes < _TABLE_SHARE * case.traffic.file_bytes:
        return None
    return Finding(
        code="tied-output",
        severity=INFO,
        evidence={
            "table_bytes": table.n_bytes,
            "weights_read_bytes": case.traffic.weights_read_bytes,
        },
        message=(
            f"the token table ({format_binary_bytes(table.n_bytes)}) is also the output matrix: "
            "it is stored once and read once, in full, for every token"
        ),
        cost_tokens_per_s=0.0,
        remedy="nothing to do; see what is read:  cpubound inspect",
    )


def find_moe(case: ModelCase) -> Finding | None:
    """Find a mixture of experts: the speed follows the active weights, memory all of them."""
    traffic = case.traffic
    if not any(weight.kind == "experts" for weight in traffic.weights):
        return None
    if traffic.active_parameters > _ACTIVE_SHARE * traffic.parameters:
        return None
    return Finding(
        code="moe",
        severity=INFO,
        evidence={
            "parameters": traffic.parameters,
            "active_parameters": traffic.active_parameters,
            "file_bytes": traffic.file_bytes,
            "weights_read_bytes": traffic.weights_read_bytes,
        },
        message=(
            f"a token uses {traffic.active_parameters / 1e9:.3g} of "
            f"{traffic.parameters / 1e9:.3g} billion weights and reads "
            f"{format_decimal_bytes(traffic.weights_read_bytes)} of "
            f"{format_decimal_bytes(traffic.file_bytes)}: it is as fast as a model of that size"
        ),
        cost_tokens_per_s=0.0,
        remedy="nothing to do; all of it must fit into memory",
    )


def find_sliding_window(case: ModelCase) -> Finding | None:
    """Find layers that attend to a window only, once the context is longer than it."""
    reads = case.traffic.attention
    if not any(read.kind in ("window", "chunked") for read in reads):
        return None
    cells = max(read.cells for read in reads)
    usual = sum((r.k_bytes + r.v_bytes) / r.cells * cells for r in reads if r.cells)
    return _smaller_cache(
        case,
        "sliding-window",
        usual,
        "some layers attend to a window only, whatever the context",
    )


def find_mla(case: ModelCase) -> Finding | None:
    """Find a compressed cache (multi-head latent attention): one small vector for all heads."""
    reads = [read for read in case.traffic.attention if read.kind == "mla"]
    heads = case.hyper.integer("attention.head_count")
    key = case.hyper.integer("attention.key_length_mla")
    value = case.hyper.integer("attention.value_length_mla")
    if not reads or not heads or not key or not value:
        return None
    usual = sum(
        read.k_bytes / max(read.kv_heads * read.head_dim_k, 1) * heads * (key + value)
        for read in reads
    )
    return _smaller_cache(case, "mla", usual, "the cache is compressed into one vector a layer")


def find_recurrent(case: ModelCase) -> Finding | None:
    """Find layers with a state of fixed size where the usual formula counts a cache."""
    traffic = case.traffic
    cached = sum(read.layers for read in traffic.attention)
    if not traffic.state_read_bytes or not cached or cached >= traffic.layers:
        return None
    usual = traffic.kv_read_bytes * traffic.layers / cached
    return _smaller_cache(
        case,
        "recurrent",
        usual,
        f"{traffic.layers - cached} of {traffic.layers} layers keep a state of fixed size",
    )


def _smaller_cache(case: ModelCase, code: str, usual_bytes: float, why: str) -> Finding | None:
    traffic = case.traffic
    actual = traffic.kv_read_bytes + traffic.state_read_bytes
    usual = usual_bytes * (1 if code == "recurrent" else traffic.setting.batch)
    if not case.setting.depth_tokens or usual < _KV_RATIO * actual:
        return None
    return Finding(
        code=code,
        severity=INFO,
        evidence={
            "kv_read_bytes": traffic.kv_read_bytes,
            "state_read_bytes": traffic.state_read_bytes,
            "usual_formula_bytes": usual,
        },
        message=(
            f"{why}: {format_binary_bytes(actual)} are read for a context of "
            f"{case.setting.depth_tokens}, where the usual formula says "
            f"{format_binary_bytes(usual)}"
        ),
        cost_tokens_per_s=0.0,
        remedy="nothing to do; long contexts cost less here than the formula says",
    )


def find_mislabelled(case: ModelCase) -> Finding | None:
    """Find a file type in the metadata that the tensors do not bear out."""
    label, spec = case.traffic.quant_label, case.spec
    claimed = _FILE_TYPE_NAMES.get(spec.file_type) if spec.file_type is not None else None
    if claimed is None or label == claimed:
        return None
    bits = bits_per_weight(spec)
    return Finding(
        code="mislabelled",
        severity=INFO,
        evidence={"bits_per_weight": bits},
        message=(
            f"the tensors are {label}, {bits:.3g} bits a weight: bytes are counted from the "
            "tensors, not from the label"
        ),
        cost_tokens_per_s=0.0,
        remedy="nothing to do; see the types:  cpubound inspect",
    )


def find_unknown_type(case: ModelCase) -> Finding | None:
    """Find tensors of a type that llama.cpp does not have."""
    unknown = [t for t in case.spec.tensors if t.type.name not in _KNOWN_TYPES]
    if not unknown:
        return None
    names = _list_names({tensor.type.name for tensor in unknown})
    return Finding(
        code="unknown-type",
        severity=WARNING,
        evidence={"tensors": len(unknown), "elements": sum(t.elements for t in unknown)},
        message=(
            f"{len(unknown)} tensors are of {names}: their bytes are left out of every figure, "
            "so the rate is an upper bound"
        ),
        remedy="run it with the fork that wrote it; llama.cpp needs another file type",
    )


def find_beyond_training(case: ModelCase) -> Finding | None:
    """Find a context longer than the model was trained for."""
    trained = case.hyper.integer("context_length")
    wanted = max(case.setting.depth_tokens, case.setting.allocated_context_tokens or 0)
    if not trained or wanted <= trained:
        return None
    return Finding(
        code="beyond-training",
        severity=WARNING,
        evidence={"context_tokens": wanted, "trained_tokens": trained},
        message=(
            f"a context of {wanted} is more than the {trained} tokens the model was trained for: "
            "the speed is as predicted, the text may make no sense"
        ),
        cost_tokens_per_s=0.0,
        remedy=f"use -c {trained} or less",
    )


def _list_names(names: Collection[str], most: int = 3) -> str:
    """Write a few names, and how many more there are."""
    ordered = sorted(names)
    rest = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(ordered[:most]) + rest
