"""The values of a machine profile: what calibration found.

Schema history: 1 is the first; 2 has one rate table for each thread count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec

from cpubound import stats
from cpubound.kernels.values import Measurement
from cpubound.machine.values import Machine

SCHEMA_NAME = "cpubound.profile"
SCHEMA_VERSION = 2
SCHEMA = f"{SCHEMA_NAME}/{SCHEMA_VERSION}"

# What a file may hold: msgspec refuses the rest while reading, so no arithmetic meets it.
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
# Of the nearest cache, and of arithmetic.
CoreRate = Annotated[float, msgspec.Meta(ge=1.0, le=1e18)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
# Errors and spreads are relative; beyond a factor of ten they say no more than "unknown".
MAX_RELATIVE = 10.0
Relative = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_RELATIVE)]
# Of a byte or a product; what the cache saves is negative.
UnitSeconds = Annotated[float, msgspec.Meta(ge=-1.0, le=1e3)]


class PlacedMeasurement(Measurement, frozen=True, kw_only=True):
    """A measurement on CPUs other than those the main curve takes at that many threads.

    ``placement`` is a name of ``cpubound.measuring.placements``: "spread", "siblings",
    "performance", "efficiency".
    """

    placement: str


class NodeMeasurement(Measurement, frozen=True, kw_only=True):
    """A cell of the node × node matrix: threads of one node read memory of another."""

    cpu_node: int
    memory_node: int


class WorkingSetPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a working set of this size gives one thread: bandwidth and latency of a load."""

    working_set_bytes: Count
    bytes_per_s: CoreRate | None = None
    latency_s: Seconds | None = None


class MemoryLevel(msgspec.Struct, frozen=True, kw_only=True):
    """A cache level (1 nearest) or memory (0), as the working sets showed it.

    ``capacity_bytes`` is the largest working set that still ran at this level's speed; None
    for memory. ``size_bytes`` is what the system says of one such cache.
    """

    level: int
    capacity_bytes: Count | None
    size_bytes: int | None
    bytes_per_s: CoreRate | None
    latency_s: Seconds | None


class PeakRate(msgspec.Struct, frozen=True, kw_only=True):
    """The most operations per second that a team reached: the compute roof.

    A multiplication with an addition counts as two.
    """

    dtype: str  # "fp32", "bf16", "fp16", "int8"
    isa: str
    threads: Count
    flops_per_s: CoreRate  # of the median sample
    samples_flops_per_s: tuple[CoreRate, ...]


class BarrierCost(msgspec.Struct, frozen=True, kw_only=True):
    """What it costs a team to wait for each other once."""

    threads: Count
    seconds: Seconds  # of the median sample
    samples_s: tuple[Seconds, ...]


class SaturationPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest thread count within 3 % of a kernel's best bandwidth.

    ``low`` and ``high`` are its 5 … 95 % range over bootstrap draws. The law (docs/instrument.md)
    that was fitted to the curve has one thread's rate, the limit (None: none shows), the
    sharpness of the turn and its own median relative error.
    """

    kernel: str
    threads: int
    low: int | None = None
    high: int | None = None
    placement: str = "compact"
    thread_bytes_per_s: float | None = None
    limit_bytes_per_s: float | None = None
    sharpness: float | None = None
    law_error: float | None = None


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """How much the machine moved while it was measured.

    ``relative_samples`` are the reference kernel's bandwidths, in order, each over the
    median at its thread count; ``spread`` is half their 5 … 95 % range, ``drift`` their
    second half against their first. ``estimate_moved`` is how far the medians still moved,
    relative, when the last buffer was added, and ``stable`` whether that was little enough.
    What may be to blame was counted meanwhile: ``causes`` says it in words.
    """

    spread: Relative
    verdict: str  # "quiet", "noisy" or "very noisy"
    drift: float = 0.0
    seconds: float = 0.0
    relative_samples: tuple[float, ...] = ()
    stable: bool | None = None
    estimate_moved: float | None = None
    buffer_spread: float | None = None  # of the medians of equal buffers, relative
    steal_fraction: float | None = None  # of the CPU time, given to other machines
    other_cpus: float | None = None  # CPUs that other programs kept busy, on average
    load_average: float | None = None
    throttled_periods: int | None = None  # in which the CPU quota ran out
    throttle_events: int | None = None  # times that heat slowed a core
    frequency_change: float | None = None  # of the mean clock, end over start − 1
    preemptions: int | None = None  # times that one of our threads had to give its CPU up
    page_faults: int | None = None  # within timed samples
    causes: tuple[str, ...] = ()

    @property
    def note(self) -> str | None:
        """What whoever uses the profile must know, or None where the machine was quiet."""
        if self.verdict == "quiet" and self.stable is not False:
            return None
        state = "unsteady" if self.verdict == "quiet" else self.verdict
        blame = f": {'; '.join(self.causes)}" if self.causes else ""
        return f"the machine was {state} while it was measured (±{self.spread * 100:.0f} %{blame})"


class RateTable(msgspec.Struct, frozen=True, kw_only=True):
    """What each key of the cost model costs at a thread count (``cost.terms``).

    ``seconds`` are those of a unit of each of ``keys``: of a byte, a row, a product. They were
    fitted together, with ``covariance``; where each stands alone there are ``relative_errors``
    instead. ``residuals`` are fitted / observed − 1 of the probes.
    """

    threads: Count
    keys: tuple[str, ...]
    seconds: tuple[UnitSeconds, ...]
    covariance: tuple[tuple[float, ...], ...] = ()
    relative_errors: tuple[Relative, ...] = ()
    residuals: tuple[float, ...] = ()
    fast_time_ratio: Annotated[float, msgspec.Meta(ge=0.01, le=1.0)] = (
        1.0  # fast quartile of the tokens' times over their median
    )

    def __post_init__(self) -> None:
        """Refuse a table whose columns differ in length."""
        n = len(self.keys)
        square = {len(row) for row in self.covariance} <= {n} and len(self.covariance) in (0, n)
        if len(self.seconds) != n or len(self.relative_errors) not in (0, n) or not square:
            raise ValueError(f"a rate table of {n} keys needs as many seconds and errors")
        for key, seconds in zip(self.keys, self.seconds, strict=True):
            # Only the cache saves time.
            if seconds < 0 and not key.startswith("cached@"):
                raise ValueError(f"a rate table with {seconds:g} seconds for {key}")

    def seconds_of(self, key: str) -> float:
        """Return the seconds of a unit, 0 for a key that the table does not have."""
        return self.by_key.get(key, 0.0)

    @property
    def by_key(self) -> dict[str, float]:
        """The seconds of a unit by key."""
        return dict(zip(self.keys, self.seconds, strict=True))

    def variance_of(self, amounts: Mapping[str, float]) -> float:
        """Return the variance of amounts × seconds, in seconds²; keys outside add nothing."""
        wanted = [(place, amounts[key]) for place, key in enumerate(self.keys) if key in amounts]
        if self.covariance:
            rows = self.covariance
            total = sum(a * b * rows[i][j] for i, a in wanted for j, b in wanted)
        elif self.relative_errors:
            total = sum((a * self.seconds[i] * self.relative_errors[i]) ** 2 for i, a in wanted)
        else:
            total = 0.0
        return max(total, 0.0)

    def relative_error_of(self, key: str) -> float:
        """Return the standard error of a unit's seconds, relative; 0 where it costs nothing."""
        seconds = abs(self.seconds_of(key))
        error = math.sqrt(self.variance_of({key: 1.0}))
        return min(error / seconds, MAX_RELATIVE) if seconds else 0.0


class ProbeRun(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the engine calibration: a row of the fit and every token's time.

    ``terms`` are the amounts of its keys. A probe that takes turns with the others decodes
    one token at a time between theirs.
    """

    probe: str
    type: str
    threads: int
    depth_tokens: int
    kv_type_k: str
    kv_type_v: str
    flash_attn: bool
    terms: dict[str, float]
    samples_s: tuple[float, ...]
    reference_bytes_per_s: tuple[float, ...] = ()
    takes_turns: bool = False
    prompt_tokens: int | None = None  # a sample is then the time of a prompt of so many tokens


class EngineCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured through llama.cpp, and through which build of it."""

    name: str
    version: str
    build: str
    features: tuple[str, ...] = ()
    tables: tuple[RateTable, ...] = ()  # one for each thread count
    noise: float = 0.0  # median relative distance of two halves of one cell's samples
    probes: tuple[ProbeRun, ...] = ()

    @property
    def residual(self) -> float:
        """Median of |fitted / observed − 1| over the probes of all tables."""
        found = [abs(r) for table in self.tables for r in table.residuals]
        return stats.median(found) if found else 0.0

    @property
    def threads(self) -> tuple[int, ...]:
        """The thread counts that were measured."""
        return tuple(sorted(table.threads for table in self.tables))


class MachineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """All that calibration found out about a machine."""

    schema: str = SCHEMA
    machine: Machine
    bandwidth: tuple[Measurement, ...]
    saturation: tuple[SaturationPoint, ...]
    noise: Noise
    placements: tuple[PlacedMeasurement, ...] = ()
    nodes: tuple[NodeMeasurement, ...] = ()
    working_sets: tuple[WorkingSetPoint, ...] = ()
    levels: tuple[MemoryLevel, ...] = ()
    peak: tuple[PeakRate, ...] = ()
    barriers: tuple[BarrierCost, ...] = ()
    timer_resolution_s: Seconds | None = None
    engine: EngineCalibration | None = None
    warnings: tuple[str, ...] = ()
    fitted_to: str | None = None  # the rows of another machine that stand in for measurements
    created: str
    cpubound_version: str

    def measurements(self, kernel: str, page_kind: str) -> dict[int, Measurement]:
        """Return the measurements of a kernel on a page kind by thread count."""
        found = [m for m in self.bandwidth if m.kernel == kernel and m.page_kind == page_kind]
        return {m.threads: m for m in sorted(found, key=lambda m: m.threads)}


def judge_noise(relative_samples: tuple[float, ...], seconds: float) -> Noise:
    """Give the verdict on the reference kernel's samples, each over its own median.

    Under 5 % is what a dedicated machine shows; over 20 % the median of a short run says
    little about the next one.
    """
    spread = min(stats.relative_spread(relative_samples), MAX_RELATIVE)
    verdict = "quiet" if spread < 0.05 else "noisy" if spread < 0.20 else "very noisy"
    return Noise(
        spread=spread,
        verdict=verdict,
        drift=stats.relative_drift(relative_samples),
        seconds=seconds,
        relative_samples=relative_samples,
    )
