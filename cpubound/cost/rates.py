"""Prices from a rate table: at any thread count, of what was measured and of its neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cpubound import stats
from cpubound.cost.terms import BANDS, STRIDES, Grid, Term, add_up, attention_setting
from cpubound.model.quant import quant_type
from cpubound.profile.values import MAX_RELATIVE, EngineCalibration, RateTable
from cpubound.setting import Setting

# Types in the order in which one substitutes for another, in time per weight, by how llama.cpp
# stores them on x86: repacked into rows of eight (ggml-cpu/repack.cpp, 0c1e57098bba) or as they
# are. What only some CPUs repack is listed with what it is there.
REPACKED = ("Q4_0", "Q4_K", "IQ4_NL", "Q2_K", "MXFP4")
NEIGHBOURS: tuple[tuple[str, ...], ...] = (
    ("F16", "BF16", "F32"),
    ("Q8_0", "Q8_1", "Q8_K"),
    ("Q4_0", "IQ4_NL", "MXFP4", "Q4_K", "Q2_K"),
    ("Q4_1", "Q5_0", "Q5_1", "IQ4_XS", "Q8_0"),
    ("Q5_K", "Q6_K", "Q3_K", "Q2_K", "Q4_K"),
    ("IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_S", "IQ1_M"),
    ("TQ1_0", "TQ2_0"),
)
# How far a neighbour's time per weight may be off, relative, where it is stored alike and where
# it is not (on one Zen 4 thread a Q4_1 weight takes twice a Q4_0's): judgements.
NEIGHBOUR_ERROR, OTHER_STORAGE_ERROR = 0.20, 0.50
# Experts of a type taken from its dense matrices: a judgement.
EXPERTS_ERROR = 0.15
# A head size or a band of the cache taken from the nearest that was measured: judgements.
OTHER_HEAD_ERROR, OTHER_BAND_ERROR = 0.15, 0.25
# Of a batch whose cost nobody measured.
UNMEASURED_BATCH_ERROR = 0.5

_COSTS = ("product", "token", "cached@")


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What a unit of a term costs, as amounts of a table's keys.

    ``extra_error`` is relative, of a substitute for something that was not measured.
    """

    amounts: Mapping[str, float]
    extra_error: float = 0.0
    assumption: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Seconds of some terms, their standard error, and what was assumed."""

    seconds: float = 0.0
    error_s: float = 0.0
    assumptions: tuple[str, ...] = ()
    unpriced: tuple[Term, ...] = field(default=())  # what the table says nothing of


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """Bytes per second with its relative standard error and what was assumed to get it."""

    bytes_per_s: float
    relative_error: float
    assumption: str | None = None


def table_at(tables: Sequence[RateTable], threads: int) -> RateTable | None:
    """Return the table at a thread count, between measured counts by interpolation.

    Rates are interpolated linearly in the threads, in proportion to them below the first
    count; costs are flat there. Beyond the last count both are held. What was measured at
    fewer counts (prompts) is interpolated between those.
    """
    by_threads = {table.threads: table for table in tables}
    if not by_threads:
        return None
    nearest = by_threads[min(by_threads, key=lambda count: (abs(count - threads), count))]
    points = _points(by_threads, threads)
    if threads in by_threads and len(points) == len(nearest.keys):
        return nearest
    seconds = {key: _seconds_at(key, rows, threads) for key, rows in points.items()}
    return RateTable(
        threads=threads,
        keys=tuple(seconds),
        seconds=tuple(seconds.values()),
        covariance=_covariance_at(by_threads, nearest, seconds),
        residuals=nearest.residuals,
        fast_time_ratio=nearest.fast_time_ratio,
    )


def _points(by_threads: Mapping[int, RateTable], threads: int) -> dict[str, dict[int, float]]:
    """Return the seconds of each key by the counts at which it was measured.

    Left out is a key that was measured at fewer counts than others and on one side only.
    """
    points: dict[str, dict[int, float]] = {}
    for count, table in sorted(by_threads.items()):
        for key, seconds in table.by_key.items():
            points.setdefault(key, {})[count] = seconds
    within = min(max(threads, min(by_threads)), max(by_threads))
    return {key: rows for key, rows in points.items() if min(rows) <= within <= max(rows)}


def _seconds_at(key: str, points: Mapping[int, float], threads: int) -> float:
    if threads in points:
        return points[threads]
    if not key.startswith(_COSTS) and all(seconds > 0 for seconds in points.values()):
        return 1 / interpolate({t: 1 / s for t, s in points.items()}, threads)
    return interpolate(points, max(threads, min(points)))


def _covariance_at(
    by_threads: Mapping[int, RateTable], nearest: RateTable, seconds: Mapping[str, float]
) -> tuple[tuple[float, ...], ...]:
    """Return the nearest table's covariance, scaled with the seconds.

    A key that it lacks has the relative error of a table that has it, and stands alone.
    """
    known = {key: place for place, key in enumerate(nearest.keys)}
    before = nearest.by_key

    def scaled(key: str) -> float:
        return seconds[key] / before[key] if before[key] else 1.0

    def entry(a: str, b: str) -> float:
        if a in known and b in known:
            if nearest.covariance:
                return nearest.covariance[known[a]][known[b]] * scaled(a) * scaled(b)
            return (nearest.relative_error_of(a) * seconds[a]) ** 2 if a == b else 0.0
        if a != b:
            return 0.0
        other = next(table for table in by_threads.values() if a in table.by_key)
        return (other.relative_error_of(a) * seconds[a]) ** 2

    return tuple(tuple(entry(a, b) for b in seconds) for a in seconds)


def interpolate(points: Mapping[int, float], threads: int) -> float:
    """Interpolate a rate between the nearest measured thread counts.

    Below the first count it is in proportion to the threads, beyond the last it is held.
    """
    counts = sorted(points)
    if threads <= counts[0]:
        return points[counts[0]] * threads / counts[0]
    if threads >= counts[-1]:
        return points[counts[-1]]
    high = next(count for count in counts if count >= threads)
    low = counts[counts.index(high) - 1]
    share = (threads - low) / (high - low)
    return points[low] + share * (points[high] - points[low])


def grid_of(table: RateTable) -> Grid:
    """Return at which numbers of tokens and sizes of models a table was measured."""
    tokens = {int(k.rpartition("@")[2]) for k in table.keys if k.startswith("bytes:") and "@" in k}
    sizes = {int(k.rpartition("@")[2]) for k in table.keys if k.startswith("cached@")}
    return Grid(tokens=tuple(sorted(tokens)), cached_bytes=tuple(sorted(sizes)))


def cost_of(table: RateTable, terms: Sequence[Term]) -> Cost:
    """Return what some terms cost together: amounts × seconds, with the table's covariance."""
    amounts: dict[str, float] = {}
    extra = 0.0
    assumptions: list[str] = []
    unpriced = []
    by_key = table.by_key
    for key, amount in add_up(terms).items():
        price = find_price(table, key)
        if price is None:
            unpriced.append(Term(key, amount, ""))
            continue
        seconds = 0.0
        for known, factor in price.amounts.items():
            amounts[known] = amounts.get(known, 0.0) + amount * factor
            seconds += amount * factor * by_key[known]
        extra += (price.extra_error * seconds) ** 2
        if price.assumption is not None:
            assumptions.append(price.assumption)
    return Cost(
        seconds=sum(amount * by_key[key] for key, amount in amounts.items()),
        error_s=math.sqrt(table.variance_of(amounts) + extra),
        assumptions=tuple(dict.fromkeys(assumptions)),
        unpriced=tuple(unpriced),
    )


def find_price(table: RateTable, key: str) -> Price | None:
    """Return what a unit of a key costs, by the key itself or by a substitute.

    None if the table has nothing like it.
    """
    if key in table.keys:
        return Price(amounts={key: 1.0})
    kind, _, rest = key.partition(":")
    if kind == "state":
        return None
    # A table that was fitted to whole rates has no costs of its own.
    return _SUBSTITUTES[kind](table, rest) if kind in _SUBSTITUTES else Price(amounts={})


def weight_rate(
    engine: EngineCalibration, type_name: str, columns: int, threads: int
) -> Rate | None:
    """Return the rate at which matrices of a type with rows of a length are gone through.

    A type that was not measured takes a neighbour's; None if none was.
    """
    row_bytes = columns * quant_type(type_name).bits_per_weight / 8
    terms = [Term(f"bytes:{type_name}", 1.0, ""), Term(f"rows:{type_name}", 1 / row_bytes, "")]
    return _rate(engine, threads, terms)


def attention_rate(
    engine: EngineCalibration,
    setting: Setting,
    head_dim: int,
    query_heads: float = 4.0,
) -> Rate | None:
    """Return the KV bytes per second of attention to the first cells; None if not measured."""
    name = attention_setting(setting)
    terms = [
        Term(f"attention:{name}:{head_dim}:{STRIDES[-1][0]}:{BANDS[0][0]}", query_heads, ""),
        Term(f"kv:{name}:{head_dim}", 1.0, ""),
    ]
    return _rate(engine, setting.threads, terms)


def _rate(engine: EngineCalibration, threads: int, terms: Sequence[Term]) -> Rate | None:
    table = table_at(engine.tables, threads)
    cost = None if table is None else cost_of(table, terms)
    if cost is None or cost.unpriced or not cost.seconds > 0:
        return None
    return Rate(
        bytes_per_s=1 / cost.seconds,
        relative_error=min(cost.error_s / cost.seconds, MAX_RELATIVE),
        assumption=next(iter(cost.assumptions), None),
    )


def measured_types(engine: EngineCalibration) -> tuple[str, ...]:
    """Return the types whose dense matrices were measured."""
    names = {
        key.removeprefix("bytes:"): None
        for table in engine.tables
        for key in table.keys
        if key.startswith("bytes:") and "@" not in key
    }
    return tuple(names)


def measured_attention(engine: EngineCalibration) -> tuple[tuple[str, str, bool, int], ...]:
    """Return the attention settings (K, V, flash-attention, head size) that were measured."""
    found: dict[tuple[str, str, bool, int], None] = {}
    for table in engine.tables:
        for key in table.keys:
            if key.startswith("attention:"):
                _, k, v, flash, head, _, _ = key.split(":")
                found[k, v, flash == "on", int(head)] = None
    return tuple(found)


def measures_batches(engine: EngineCalibration | None) -> bool:
    """Tell whether weights that multiply several tokens at once were measured."""
    return engine is not None and any(grid_of(table).tokens for table in engine.tables)


def neighbours(type_name: str) -> Iterator[tuple[str, float]]:
    """Yield what may stand in for a type, the nearest first, with the error of its time."""
    row = next((row for row in NEIGHBOURS if type_name in row), ())
    place = row.index(type_name) if row else 0
    others = sorted(
        (name for name in row if name != type_name),
        key=lambda name: (_differs(name, type_name), abs(row.index(name) - place)),
    )
    for other in others:
        yield other, OTHER_STORAGE_ERROR if _differs(other, type_name) else NEIGHBOUR_ERROR


def _differs(name: str, other: str) -> bool:
    return (name in REPACKED) != (other in REPACKED)


def _bytes(table: RateTable, rest: str) -> Price | None:
    type_name, at, tokens = rest.partition("@")
    for other, error in neighbours(type_name):
        key = f"bytes:{other}{at}{tokens}"
        if key in table.keys:
            return Price(
                amounts={key: _bytes_ratio(type_name, other)},
                extra_error=error,
                assumption=f"{type_name} was not measured: time per weight taken from {other}",
            )
    if not at:
        return None
    single = find_price(table, f"bytes:{type_name}")
    return single and Price(
        amounts=single.amounts,
        extra_error=UNMEASURED_BATCH_ERROR,
        assumption=f"batches of {type_name} were not measured: taken as free",
    )


def _rows(table: RateTable, type_name: str) -> Price:
    for other, _ in neighbours(type_name):
        # With the bytes of the same neighbour, which carries the error.
        if f"bytes:{other}" in table.keys:
            key = f"rows:{other}"
            return Price(amounts={key: 1.0} if key in table.keys else {})
    return Price(amounts={})


def _experts(table: RateTable, type_name: str) -> Price | None:
    dense = find_price(table, f"bytes:{type_name}")
    if dense is None:
        return None
    ratios = [
        seconds / table.seconds_of(f"bytes:{other}")
        for key, seconds in zip(table.keys, table.seconds, strict=True)
        if key.startswith("experts:")
        and table.seconds_of(f"bytes:{(other := key.removeprefix('experts:'))}")
    ]
    ratio = stats.median(ratios) if ratios else 1.0
    scaled = ", scaled as those of other types" if ratios else ""
    return Price(
        amounts={key: factor * ratio for key, factor in dense.amounts.items()},
        extra_error=math.hypot(dense.extra_error, EXPERTS_ERROR),
        assumption=f"experts of {type_name} were not measured: taken from dense matrices{scaled}",
    )


def _attention(table: RateTable, rest: str) -> Price | None:
    """Take the nearest head size, then the other stride, then the nearest band."""
    setting, head, stride, band = rest.rsplit(":", 3)
    order = [name for name, _ in BANDS]
    found = []
    for key in table.keys:
        if key.startswith(f"attention:{setting}:"):
            _, other_head, other_stride, other_band = key.rsplit(":", 3)
            bands = abs(order.index(other_band) - order.index(band))
            size = abs(math.log(int(other_head) / int(head)))
            found.append((size, bands, other_stride != stride, key))
    if not found:
        return None
    size, bands, is_other_stride, key = min(found)
    error = math.hypot(
        OTHER_HEAD_ERROR if size else 0.0,
        OTHER_HEAD_ERROR * is_other_stride,
        OTHER_BAND_ERROR * bands,
    )
    return Price(amounts={key: 1.0}, extra_error=error)


def _kv(table: RateTable, rest: str) -> Price | None:
    setting, _, head = rest.rpartition(":")
    nearest = _nearest_head(table, f"kv:{setting}:", int(head))
    if nearest is not None:
        return Price(amounts={nearest: 1.0})
    # What was measured of it is then all in the query heads' part.
    has_any = any(key.startswith(f"attention:{setting}:") for key in table.keys)
    return Price(amounts={}) if has_any else None


def _nearest_head(table: RateTable, prefix: str, head: int) -> str | None:
    """Return the key of the measured head size that is nearest, by ratio."""
    sizes = {int(key.removeprefix(prefix)): key for key in table.keys if key.startswith(prefix)}
    return sizes[min(sizes, key=lambda size: abs(math.log(size / head)))] if sizes else None


def _prompt(table: RateTable, rest: str) -> Price | None:
    setting, _, head = rest.rpartition(":")
    nearest = _nearest_head(table, f"prompt:{setting}:", int(head))
    if nearest is not None:
        return Price(amounts={nearest: 1.0}, extra_error=OTHER_HEAD_ERROR)
    decoded = find_price(table, f"attention:{rest}:{STRIDES[-1][0]}:{BANDS[0][0]}")
    if decoded is None:
        return None
    # A KV byte of a query head is 2 / (bytes of an element) operations.
    element = quant_type(setting.partition(":")[0]).bits_per_weight / 8
    return Price(
        amounts={key: factor * element / 2 for key, factor in decoded.amounts.items()},
        extra_error=UNMEASURED_BATCH_ERROR,
        assumption=f"attention of prompts with {setting.rpartition(':')[0]} KV was not measured: "
        "taken as if each token were decoded, an upper bound",
    )


def _bytes_ratio(type_name: str, other: str) -> float:
    """Return a type's seconds per byte over a neighbour's, at the same time per weight."""
    if "F32" in (type_name, other):
        # Memory sets both: they go at about the same bytes per second.
        return 1.0
    return quant_type(other).bits_per_weight / quant_type(type_name).bits_per_weight


_SUBSTITUTES: dict[str, Callable[[RateTable, str], Price | None]] = {
    "bytes": _bytes,
    "rows": _rows,
    "experts": _experts,
    "attention": _attention,
    "kv": _kv,
    "prompt": _prompt,
}
