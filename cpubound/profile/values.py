"""The values of a machine profile: what calibration found.

Schema history: 1 is the first.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from cpubound import stats
from cpubound.kernels.values import Measurement
from cpubound.machine.values import Machine

SCHEMA_NAME = "cpubound.profile"
SCHEMA_VERSION = 1
SCHEMA = f"{SCHEMA_NAME}/{SCHEMA_VERSION}"

# What a file may hold: msgspec refuses the rest while reading, so no arithmetic meets it.
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Rate = Annotated[float, msgspec.Meta(ge=1.0, le=1e15)]
# Of the nearest cache, and of arithmetic.
CoreRate = Annotated[float, msgspec.Meta(ge=1.0, le=1e18)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
# Errors and spreads are relative; beyond a factor of ten they say no more than "unknown".
MAX_RELATIVE = 10.0
Relative = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_RELATIVE)]


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


# Most models of today have about as many query heads to a KV head.
REFERENCE_QUERY_HEADS = 4.0


class EngineRate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the engine goes through weights of one type in matrix products.

    The rate depends on the length of a row: short dot products pay for their start and end,
    long ones fall out of the nearest cache. ``columns`` is where the rate was measured.
    ``kind`` is the operator: ``matmul`` (MUL_MAT) or ``experts`` (MUL_MAT_ID).
    """

    type: str
    threads: Count
    columns: Count
    bytes_per_s: Rate
    relative_error: Relative  # standard error of the rate, relative
    kind: str = "matmul"


class BatchRate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the engine goes through weights of one type that multiply several tokens.

    The bytes of the weights over the time, however many tokens share them.
    """

    type: str
    threads: Count
    tokens: Count
    bytes_per_s: Rate
    relative_error: Relative


class StateRate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the engine's recurrent operators go through the state: bytes read and written."""

    kind: str  # as ``ModelTraffic.state_kind``
    threads: Count
    bytes_per_s: Rate
    relative_error: Relative


class EngineCost(msgspec.Struct, frozen=True, kw_only=True):
    """Time that does not depend on bytes: per token and per matrix product.

    ``cache_saved_s`` is what the last-level cache keeps from one token to the next, in
    seconds of a token that memory alone sets. ``seconds_per_expert_layer`` is what choosing
    among experts costs a layer.
    """

    threads: Count
    seconds_per_token: Seconds
    seconds_per_product: Seconds
    cache_saved_s: Seconds = 0.0
    seconds_per_expert_layer: Seconds = 0.0
    fast_time_ratio: Annotated[float, msgspec.Meta(ge=0.01, le=1.0)] = (
        1.0  # fast quartile of the tokens' times over their median
    )


class AttentionRate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the engine's attention goes through the KV cache.

    llama.cpp goes through a KV head once for each of its query heads, so that a part of the
    time, ``query_share``, grows with them; ``bytes_per_s`` is for ``REFERENCE_QUERY_HEADS``.
    """

    kv_type_k: str
    kv_type_v: str
    flash_attn: bool
    head_dim: Count
    threads: Count
    bytes_per_s: Rate
    relative_error: Relative
    query_share: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0

    def bytes_per_s_at(self, query_heads: float) -> float:
        """Return the rate where ``query_heads`` share a KV head."""
        excess = query_heads / REFERENCE_QUERY_HEADS - 1
        return self.bytes_per_s / (1 + self.query_share * excess)


class PromptAttentionRate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the engine's attention computes when it processes a prompt.

    2 · heads · (K's + V's head size) operations for each token and each cell it sees.
    """

    kv_type_k: str
    kv_type_v: str
    flash_attn: bool
    head_dim: Count
    threads: Count
    flop_per_s: Rate
    relative_error: Relative


class ProbeRun(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the engine calibration: what a probe moves and every token's time."""

    probe: str
    type: str
    threads: int
    depth_tokens: int
    kv_type_k: str
    kv_type_v: str
    flash_attn: bool
    matrices: tuple[tuple[str, int, int], ...]  # type, length of a row, bytes
    kv_bytes: int
    products: int
    samples_s: tuple[float, ...]
    reference_bytes_per_s: tuple[float, ...]
    experts: tuple[tuple[str, int, int], ...] = ()  # as ``matrices``
    expert_layers: int = 0
    state_kind: str | None = None
    state_bytes: int = 0
    prompt_tokens: int | None = None  # a sample is then the time of a prompt of so many tokens
    is_batch: bool = False  # its subject is weights that multiply several tokens
    head_dim: int = 0
    query_heads: float = REFERENCE_QUERY_HEADS  # that share a KV head
    attention_operations: int = 0  # of all tokens of a prompt


class EngineCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured through llama.cpp, and through which build of it."""

    name: str
    version: str
    build: str
    features: tuple[str, ...] = ()
    rates: tuple[EngineRate, ...] = ()
    costs: tuple[EngineCost, ...] = ()
    attention: tuple[AttentionRate, ...] = ()
    batch_rates: tuple[BatchRate, ...] = ()
    prompt_attention: tuple[PromptAttentionRate, ...] = ()
    state_rates: tuple[StateRate, ...] = ()
    residual: Relative = 0.0  # median |relative residual| of the fit over its own probes
    noise: float = 0.0  # median relative distance of two halves of one cell's samples
    probes: tuple[ProbeRun, ...] = ()


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
