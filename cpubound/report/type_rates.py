"""llama.cpp's rate of each type of weights beside what the machine allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cpubound.cost.interval import NORMAL_90
from cpubound.cost.predict import MEMORY_BOUND_SHARE, weights_bandwidth
from cpubound.cost.rates import measured_types, weight_rate
from cpubound.profile.values import MachineProfile
from cpubound.report.profile import USUAL_COLUMNS
from cpubound.report.tables import Table
from cpubound.units import GB, format_count, format_significant

_BAR_CELLS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeRate:
    """How fast llama.cpp goes through weights of a type, beside what the machine allows.

    ``kernel_bytes_per_s`` is what our own kernel reaches, None where there is none.
    """

    type: str
    threads: int
    bytes_per_s: float
    relative_error: float
    kernel_bytes_per_s: float | None
    roof_bytes_per_s: float

    @property
    def share(self) -> float:
        """Of the read bandwidth at as many threads."""
        return self.bytes_per_s / self.roof_bytes_per_s

    @property
    def limit(self) -> str:
        """What sets the rate: ``memory`` or ``kernel``."""
        return "memory" if self.share >= MEMORY_BOUND_SHARE else "kernel"


def type_rates(profile: MachineProfile, threads: int) -> tuple[TypeRate, ...]:
    """Return llama.cpp's rate for each type that was measured, the fastest first."""
    roof = weights_bandwidth(profile, threads)
    if profile.engine is None or roof is None:
        return ()
    found = []
    for name in measured_types(profile.engine):
        rate = weight_rate(profile.engine, name, USUAL_COLUMNS, threads)
        if rate is None:
            continue
        own = profile.measurements(f"gemv_{name.lower()}", "anon_4k").get(threads)
        found.append(
            TypeRate(
                type=name,
                threads=threads,
                bytes_per_s=rate.bytes_per_s,
                relative_error=rate.relative_error,
                kernel_bytes_per_s=None if own is None else own.median_bytes_per_s,
                roof_bytes_per_s=roof,
            )
        )
    return tuple(sorted(found, key=lambda rate: -rate.bytes_per_s))


def rate_table(rates: Sequence[TypeRate]) -> Table:
    """Return a row for each type: its rate with the interval, our own kernel's, what limits."""
    columns = ("type", "GB/s", "± %", "of the roof", "our kernel GB/s", "limited by")
    rows = tuple(
        (
            rate.type,
            format_significant(rate.bytes_per_s / GB),
            f"{NORMAL_90 * rate.relative_error * 100:.0f}",
            f"{rate.share * 100:.0f} %",
            "–"
            if rate.kernel_bytes_per_s is None
            else format_significant(rate.kernel_bytes_per_s / GB),
            rate.limit,
        )
        for rate in rates
    )
    return Table(columns=columns, rows=rows, right=frozenset(columns[1:5]))


def scaling_table(profile: MachineProfile) -> Table:
    """Return a row for each type: its rate at the fewest and the most threads, and its share.

    The share of the roof is that at the most threads, as a bar too. Empty where llama.cpp was not
    measured.
    """
    counts = () if profile.engine is None else profile.engine.threads
    if not counts:
        return Table(columns=("type",), rows=())
    ends = tuple(dict.fromkeys((counts[0], counts[-1])))
    alone = {rate.type: rate for rate in type_rates(profile, ends[0])}
    rows = []
    for rate in type_rates(profile, ends[-1]):
        first = (alone[rate.type],) if len(ends) > 1 and rate.type in alone else ()
        rows.append(
            (
                rate.type,
                *(format_significant(r.bytes_per_s / GB) for r in (*first, rate)),
                share_bar(rate.share),
                rate.limit,
            )
        )
    heads = tuple(f"GB/s, {format_count(count, 'thread')}" for count in ends)
    return Table(
        columns=("type", *heads, "of the roof", "limited by"),
        rows=tuple(rows),
        right=frozenset(heads),
    )


def share_bar(share: float) -> str:
    """Write a share as a bar and in per cent: ``██████████·········· 50 %``."""
    full = round(min(max(share, 0.0), 1.0) * _BAR_CELLS)
    return f"{'█' * full}{'·' * (_BAR_CELLS - full)} {share * 100:.0f} %"
