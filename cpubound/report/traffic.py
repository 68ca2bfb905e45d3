"""A model's traffic as a table, as JSON, and as the lines around the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from cpubound.foreign import showing
from cpubound.model.values import ModelTraffic
from cpubound.report.document import setting_fields
from cpubound.report.tables import Table
from cpubound.setting import Setting
from cpubound.units import format_binary_bytes, format_decimal_bytes, format_significant

_FIELDS = (
    "model",
    "architecture",
    "quant_label",
    "parameters",
    "active_parameters",
    "file_bytes",
    "setting",
    "weights_read_bytes",
    "embedding_row_bytes",
    "kv_read_bytes",
    "kv_touched_bytes",
    "kv_write_bytes",
    "state_read_bytes",
    "state_write_bytes",
    "total_bytes",
    "resident_bytes",
    "expert_bytes",
    "lookup_bytes",
    "by_type",
    "by_role",
    "layers",
    "logits",
    "matrix_products",
)


def traffic_document(traffic: ModelTraffic) -> dict[str, Any]:
    """Return ``cpubound.traffic/1``."""
    document: dict[str, Any] = {"schema": "cpubound.traffic/1"}
    for name in _FIELDS:
        field = getattr(traffic, name)
        document |= traffic_setting(field) if name == "setting" else {name: field}
    document["bits_per_weight"] = _bits_per_weight(traffic)
    document["weights"] = [asdict(read) for read in traffic.weights]
    document["attention"] = [asdict(read) for read in traffic.attention]
    document["unread"] = dict(traffic.unread)
    document["assumptions"] = list(traffic.assumptions)
    return document


def traffic_setting(setting: Setting) -> dict[str, Any]:
    """Return the fields of a setting that traffic depends on: all but the thread count."""
    fields = setting_fields(setting)
    del fields["threads"]
    return fields


def traffic_table(traffic: ModelTraffic) -> Table:
    """Return a row for each part of a step's traffic, as people read it."""
    total = traffic.total_bytes or 1
    rows = [
        (what, type_, str(products or ""), format_decimal_bytes(n), f"{n / total * 100:.1f} %")
        for what, type_, products, n in _parts(traffic)
    ]
    rows.append(("total", "", "", format_decimal_bytes(traffic.total_bytes), ""))
    return Table(
        columns=(
            "for each token" if traffic.setting.batch == 1 else "for each step",
            "type",
            "products",
            "bytes",
            "share",
        ),
        rows=tuple(rows),
        right=frozenset({"products", "bytes", "share"}),
    )


def traffic_rows(traffic: ModelTraffic) -> Table:
    """Return the same rows with plain numbers, for CSV."""
    return Table(
        columns=("what", "type", "products", "bytes"),
        rows=tuple(
            (what, type_, str(products), str(n)) for what, type_, products, n in _parts(traffic)
        ),
    )


def _parts(traffic: ModelTraffic) -> Iterator[tuple[str, str, int, int]]:
    """Yield what moves: name, type, matrix products, bytes."""
    groups: dict[tuple[str, str], list[int]] = {}
    for read in traffic.weights:
        what = f"{read.role} (rows)" if read.kind == "rows" else read.role
        sums = groups.setdefault((what, read.type), [0, 0])
        sums[0] += read.count if read.kind in ("matmul", "experts") else 0
        sums[1] += read.n_bytes
    for (what, type_), (products, n_bytes) in sorted(groups.items(), key=lambda g: -g[1][1]):
        yield what, type_, products, n_bytes
    kv_type = format_kv_types(traffic.setting)
    if traffic.kv_read_bytes:
        yield "KV cache, read", kv_type, 0, traffic.kv_read_bytes
        yield "KV cache, written", kv_type, 0, traffic.kv_write_bytes
    if traffic.state_read_bytes:
        yield "recurrent state, read", "F32", 0, traffic.state_read_bytes
        yield "recurrent state, written", "F32", 0, traffic.state_write_bytes


@showing()
def traffic_heading(traffic: ModelTraffic) -> str:
    """Return what is inspected and at which setting, in three lines."""
    parameters = f"{_count(traffic.parameters)} parameters"
    if _count(traffic.active_parameters) != _count(traffic.parameters):
        parameters += f", {_count(traffic.active_parameters)} of them active"
    size = format_decimal_bytes(traffic.file_bytes)
    depth = (
        f"{traffic.setting.depth_tokens} tokens in the cache"
        if traffic.setting.depth_tokens
        else "empty cache"
    )
    sequences = f", {traffic.setting.batch} sequences" if traffic.setting.batch > 1 else ""
    flash = "on" if traffic.setting.flash_attn else "off"
    bits = f"{_bits_per_weight(traffic):.2f} bits per weight"
    cache = format_kv_types(traffic.setting)
    return (
        f"{traffic.model}: {traffic.architecture}, {traffic.quant_label}, {bits}\n"
        f"{size}, {parameters}\n"
        f"{depth}{sequences}, context {traffic.setting.n_ctx}, KV {cache}, "
        f"flash-attention {flash}"
    )


@showing()
def traffic_notes(traffic: ModelTraffic) -> str:
    """Return what is held, what no token reads, and what the figures rest on."""
    lines = [f"In memory: {format_binary_bytes(traffic.resident_bytes)} (weights, cache, state)."]
    spanned, touched = traffic.kv_read_bytes, traffic.kv_touched_bytes
    if traffic.setting.flash_attn and touched < spanned:
        lines.append(
            f"Of the KV cache spanned, flash-attention reads {format_decimal_bytes(touched)}: "
            "masked cells are skipped."
        )
    if traffic.lookup_bytes:
        rows = format_decimal_bytes(traffic.embedding_row_bytes)
        tables = format_decimal_bytes(traffic.lookup_bytes)
        lines.append(f"Only looked up by row: {rows} of tables of {tables}.")
    if traffic.expert_bytes:
        read = sum(w.n_bytes for w in traffic.weights if w.role == "experts")
        lines.append(
            f"Of the experts {format_decimal_bytes(read)} are chosen and read, "
            f"of {format_decimal_bytes(traffic.expert_bytes)} in all."
        )
    for reason, n_bytes in traffic.unread.items():
        lines.append(f"Never read: {format_decimal_bytes(n_bytes)}, {reason}.")
    lines += [f"Assumed: {note}." for note in traffic.assumptions]
    return "\n".join(lines)


def _bits_per_weight(traffic: ModelTraffic) -> float:
    """Return the file's bits for each parameter, its header included."""
    return 8 * traffic.file_bytes / traffic.parameters if traffic.parameters else 0.0


def format_kv_types(setting: Setting) -> str:
    """Name the types of a KV cache: ``F16``, or ``Q8_0:F16`` for K and V apart."""
    k, v = setting.kv_type_k.upper(), setting.kv_type_v.upper()
    return k if k == v else f"{k}:{v}"


def _count(number: int) -> str:
    """Write a count of parameters (``8.03 B``)."""
    for factor, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{format_significant(number / factor)} {unit}"
    return str(number)
