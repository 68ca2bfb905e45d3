"""What a step's time is made of: traffic -> [(key, amount)]. The one statement of the form.

    t = Σ amount(key) · seconds(key, threads)

==========================  ===============================  ==================================
key                         amount                           what a unit of it costs
==========================  ===============================  ==================================
``bytes:TYPE``              bytes of its matrices            going through weights
``rows:TYPE``               rows of its matrices             starting and ending a dot product
``bytes:TYPE@N``            bytes that multiply N tokens     the same pass for N tokens
``experts:TYPE``            bytes of the chosen experts      going through them
``attention:SETTING:…``     KV bytes · query heads           a query head's pass through K and V
``kv:SETTING``              KV bytes                         reading K and V once
``prompt:SETTING``          operations                       attention over a prompt
``state:KIND``              bytes read and written           a recurrence's state
``product``                 matrix products                  barriers, small operators
``token``                   1                                what a step costs beside
``cached@SIZE``             bytes, of small models           what the last-level cache keeps (< 0)
==========================  ===============================  ==================================

``SETTING`` is K's type, V's type, flash-attention on or off, and the head size. Attention has
a rate for each band of the cache in which a cell lies (``BANDS``) and for how far apart the
cells of a KV head lie (``STRIDES``): both decide which cache still holds a head's keys when the
next query head comes. The same list is a row of the fit's design matrix (``cost.fit``), a
prediction (``cost.predict``) and, grouped by ``part``, a breakdown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cpubound.model.parts import part_of_role
from cpubound.model.values import AttentionRead, ModelTraffic, WeightRead
from cpubound.setting import Setting

# Where the bands of a cache begin, in cells (python -m calibrate attention_form).
BANDS: tuple[tuple[str, int], ...] = (("near", 0), ("deep", 2048), ("far", 8192))
# Bytes from one cell of K to the next: all KV heads. At 2 KiB (8 heads of 128 in F16) a head's
# cells share few sets of the level-2 cache and no prefetcher follows them: 8,192 cells took
# 2.1 times as long for each query head as at 512 bytes.
STRIDES: tuple[tuple[str, int], ...] = (("slim", 512), ("wide", 2048))


class Term(NamedTuple):
    """Some amount of what has a price, and the part of a step that it belongs to."""

    key: str
    amount: float
    part: str  # of ``model.parts.PARTS``


class Grid(NamedTuple):
    """Where rates that depend on a number were measured; between them time is linear.

    ``tokens`` multiplied at once, from 2 on; ``cached_bytes`` of models that were decoded
    alone, which the last-level cache helps.
    """

    tokens: tuple[int, ...] = ()
    cached_bytes: tuple[int, ...] = ()


def step_terms(
    traffic: ModelTraffic,
    grid: Grid = Grid(),  # noqa: B008 (an immutable value)
    *,
    is_prompt: bool = False,
) -> list[Term]:
    """Return the terms of one step: a token of each sequence, or a piece of a prompt.

    Parameters
    ----------
    traffic : what the step moves.
    grid : where rates were measured.
    is_prompt : the step's tokens are of one sequence.
    """
    terms = [term for read in traffic.products for term in _weight_terms(read, grid)]
    attention = _prompt_terms if is_prompt else _attention_terms
    terms += [term for read in traffic.attention for term in attention(traffic, read)]
    state_bytes = traffic.state_read_bytes + traffic.state_write_bytes
    if state_bytes:
        terms.append(Term(f"state:{traffic.state_kind}", float(state_bytes), "recurrent"))
    terms += [Term("product", float(n), part) for part, n in _products(traffic).items()]
    terms.append(Term("token", 1.0, "rest"))
    if traffic.setting.batch == 1:
        terms += _cached_terms(traffic, grid)
    return terms


def add_up(terms: Sequence[Term]) -> dict[str, float]:
    """Return the amount of each key: a row of the fit."""
    sums: dict[str, float] = {}
    for term in terms:
        sums[term.key] = sums.get(term.key, 0.0) + term.amount
    return {key: amount for key, amount in sums.items() if amount}


def attention_setting(setting: Setting) -> str:
    """Name how attention runs: ``F16:F16:on``."""
    flash = "on" if setting.flash_attn else "off"
    return f"{setting.kv_type_k.upper()}:{setting.kv_type_v.upper()}:{flash}"


def hat_weights(knots: Sequence[int], value: float) -> dict[int, float]:
    """Return how much of each sorted knot makes up a value by linear interpolation.

    Flat below the first knot; beyond the last in proportion to the value.
    """
    if value <= knots[0]:
        return {knots[0]: 1.0}
    if value >= knots[-1]:
        return {knots[-1]: value / knots[-1]}
    upper = next(place for place, knot in enumerate(knots) if knot >= value)
    low, high = knots[upper - 1], knots[upper]
    share = (value - low) / (high - low)
    return {low: 1 - share, high: share}


def _weight_terms(read: WeightRead, grid: Grid) -> Iterator[Term]:
    part = part_of_role(read.role)
    if read.kind == "experts":
        # MUL_MAT_ID goes through an expert once for each of its tokens, repacked or not: gemv in
        # repack.cpp (forward_mul_mat_id), vec_dot of one column in ggml-cpu.c (0c1e57098bba).
        passes = max(read.tokens, 1.0)
        yield Term(f"experts:{read.type}", read.n_bytes * passes, part)
        # Its rows are handed out once, however many tokens multiply them.
        yield Term(f"rows:{read.type}", float(read.rows * read.count), part)
    elif read.role == "router":
        # A hundredth of the experts' bytes, always in F32: in their rate, as in the probes'.
        return
    elif read.tokens <= 1:
        yield Term(f"bytes:{read.type}", float(read.n_bytes), part)
        yield Term(f"rows:{read.type}", float(read.rows * read.count), part)
    else:
        for knot, weight in hat_weights(grid.tokens or (2,), read.tokens).items():
            yield Term(f"bytes:{read.type}@{knot}", read.n_bytes * weight, part)


def _attention_terms(traffic: ModelTraffic, read: AttentionRead) -> Iterator[Term]:
    cells = read.touched_cells if traffic.setting.flash_attn else read.cells
    if not read.cells or not cells:
        return
    setting = attention_setting(traffic.setting)
    cell_bytes = traffic.setting.batch * (read.k_bytes + read.v_bytes) / read.cells
    yield Term(f"kv:{setting}:{read.head_dim_k}", cell_bytes * cells, "attention")
    for stride, share in _by_stride(read.k_bytes / (read.cells * max(read.layers, 1))):
        for band, within in _by_band(cells):
            key = f"attention:{setting}:{read.head_dim_k}:{stride}:{band}"
            yield Term(key, share * cell_bytes * within * read.query_heads, "attention")


def _by_band(cells: float) -> Iterator[tuple[str, float]]:
    ends = [start for _, start in BANDS[1:]] + [cells]
    for (band, start), end in zip(BANDS, ends, strict=True):
        within = min(cells, end) - start
        if within > 0:
            yield band, within


def _by_stride(n_bytes: float) -> Iterator[tuple[str, float]]:
    """Yield the shares of both strides: linear in the logarithm, flat outside."""
    (slim, low), (wide, high) = STRIDES
    share = math.log(max(n_bytes, 1) / low) / math.log(high / low)
    share = min(max(share, 0.0), 1.0)
    if share < 1:
        yield slim, 1 - share
    if share > 0:
        yield wide, share


def _prompt_terms(traffic: ModelTraffic, read: AttentionRead) -> Iterator[Term]:
    setting = attention_setting(traffic.setting)
    operations = traffic.setting.batch * read.operations(traffic.setting.flash_attn)
    yield Term(f"prompt:{setting}:{read.head_dim_k}", float(operations), "attention")


def _products(traffic: ModelTraffic) -> dict[str, int]:
    """Count the matrix products of each part; a layer's experts are one for up, gate and down."""
    counts: dict[str, int] = {}
    for read in traffic.products:
        if read.kind == "matmul":
            part = part_of_role(read.role)
            counts[part] = counts.get(part, 0) + read.count
    beside = traffic.matrix_products - sum(counts.values())
    if beside:
        counts["experts"] = counts.get("experts", 0) + beside
    return counts


def _cached_terms(traffic: ModelTraffic, grid: Grid) -> Iterator[Term]:
    """Yield what the last-level cache keeps from one token to the next: of small models only."""
    if not grid.cached_bytes:
        return
    total = traffic.weights_read_bytes
    largest = grid.cached_bytes[-1]
    if total > largest:
        # Nothing is left of it at twice the largest size that was measured.
        weights = {largest: max(2 - total / largest, 0.0)}
    else:
        weights = hat_weights(grid.cached_bytes, total)
    by_part: dict[str, float] = {}
    for read in traffic.products:
        part = part_of_role(read.role)
        by_part[part] = by_part.get(part, 0.0) + read.n_bytes
    products = sum(by_part.values())
    for knot, weight in weights.items():
        for part, n_bytes in by_part.items():
            if weight:
                yield Term(f"cached@{knot}", total * weight * n_bytes / products, part)
