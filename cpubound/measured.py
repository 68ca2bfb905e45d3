"""What calibration measures of memory and cores beside the bandwidth curve: values of a profile."""

from __future__ import annotations

from typing import Annotated

import msgspec

from cpubound.kernels.values import Measurement

Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Rate = Annotated[float, msgspec.Meta(ge=1.0, le=1e18)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]


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
    bytes_per_s: Rate | None = None
    latency_s: Seconds | None = None


class MemoryLevel(msgspec.Struct, frozen=True, kw_only=True):
    """A cache level (1 nearest) or memory (0), as the working sets showed it.

    ``capacity_bytes`` is the largest working set that still ran at this level's speed; None
    for memory. ``size_bytes`` is what the system says of one such cache.
    """

    level: int
    capacity_bytes: Count | None
    size_bytes: int | None
    bytes_per_s: Rate | None
    latency_s: Seconds | None


class PeakRate(msgspec.Struct, frozen=True, kw_only=True):
    """The most operations per second that a team reached: the compute roof.

    A multiplication with an addition counts as two.
    """

    dtype: str  # "fp32", "bf16", "fp16", "int8"
    isa: str
    threads: Count
    flops_per_s: Rate  # of the median sample
    samples_flops_per_s: tuple[Rate, ...]


class BarrierCost(msgspec.Struct, frozen=True, kw_only=True):
    """What it costs a team to wait for each other once."""

    threads: Count
    seconds: Seconds  # of the median sample
    samples_s: tuple[Seconds, ...]
