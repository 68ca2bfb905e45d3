"""Terms of a step's time: seconds, their standard error, and what they assume."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cpubound.cost.rates import Rate

# A part counts as memory-bound where its rate is at least this share of read bandwidth.
MEMORY_BOUND_SHARE = 0.80
# A part that was not measured is taken at read bandwidth, a lower bound of its time.
UNMEASURED_RELATIVE_ERROR = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Seconds of one part, their standard error, and how many of them memory sets."""

    seconds: float = 0.0
    error: float = 0.0
    memory_seconds: float = 0.0
    assumptions: tuple[str, ...] = ()


def part_from_rate(n_bytes: float, rate: Rate | None, name: str, bandwidth: float) -> Part:
    """Return the time of some bytes at a rate; ``name`` is what was not measured if None."""
    if n_bytes == 0:
        return Part()
    if rate is None:
        seconds = n_bytes / bandwidth
        return Part(
            seconds=seconds,
            error=UNMEASURED_RELATIVE_ERROR * seconds,
            memory_seconds=seconds,
            assumptions=(f"{name} was not measured: taken at read bandwidth, a lower bound",),
        )
    seconds = n_bytes / rate.bytes_per_s
    memory_bound = rate.bytes_per_s >= MEMORY_BOUND_SHARE * bandwidth
    return Part(
        seconds=seconds,
        error=rate.relative_error * seconds,
        memory_seconds=seconds if memory_bound else 0,
        assumptions=(rate.assumption,) if rate.assumption else (),
    )


def sum_parts(parts: Sequence[Part]) -> Part:
    """Add parts whose errors are independent."""
    return Part(
        seconds=sum(p.seconds for p in parts),
        error=math.sqrt(sum(p.error**2 for p in parts)),
        memory_seconds=sum(p.memory_seconds for p in parts),
        assumptions=tuple(dict.fromkeys(a for p in parts for a in p.assumptions)),
    )


def shorten(part: Part, seconds: float) -> Part:
    """Take some seconds off a part, at most nine tenths of it."""
    left = max(part.seconds - seconds, 0.1 * part.seconds)
    factor = left / part.seconds if part.seconds else 1.0
    return replace(part, seconds=left, memory_seconds=part.memory_seconds * factor)


def name_bound(weights: Part, attention: Part, overhead: Part, *, otherwise: str) -> str:
    """Name what takes most of a step: memory, ``otherwise``, attention or overhead.

    ``otherwise`` is what weights wait for where memory does not set their rate.
    """
    shares = {
        "memory": weights.memory_seconds,
        otherwise: weights.seconds - weights.memory_seconds,
        "attention": attention.seconds,
        "overhead": overhead.seconds,
    }
    return max(shares, key=lambda name: shares[name])
