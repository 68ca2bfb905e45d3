"""Find the levels of the memory hierarchy from how fast working sets of many sizes are read.

Needs no description of the caches by the system: a level is a range of sizes over which the
rate (or the latency) stays the same.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from cpubound import stats
from cpubound.errors import UsageError
from cpubound.kernels.run import open_kernel
from cpubound.kernels.values import Measurement

# Short samples find the quiet moments of a busy machine; the best one of a size counts.
SWEEP_SAMPLE_S = 2e-3
SWEEP_SAMPLES = 8
# A size whose pass takes longer gets as many samples as fit into this, and at least two.
SWEEP_SIZE_S = 0.1
# Rates that differ less belong to one level.
LEVEL_TOLERANCE = 0.15
# A level holds over at least this factor of sizes; what is shorter is the way to the next.
LEVEL_FACTOR = 1.9


@dataclass(frozen=True, kw_only=True, slots=True)
class Plateau:
    """A range of working sets over which a sweep gave one value: a cache, or memory."""

    smallest_bytes: int
    largest_bytes: int  # about what the cache holds; for the last level where the sweep ended
    value: float  # median over the range, of what was swept: bytes/s or seconds


def working_set_sizes(smallest: int, largest: int, per_octave: int = 2) -> tuple[int, ...]:
    """Return sizes from ``smallest`` to ``largest``, equally far apart in their logarithm.

    Parameters
    ----------
    smallest, largest : bytes; both are among the sizes.
    per_octave : sizes to each doubling.
    """
    if not 0 < smallest <= largest or per_octave < 1:
        raise UsageError(
            f"no sizes between {smallest} and {largest} bytes ({per_octave} per octave): "
            "use 0 < smallest <= largest and at least one per octave"
        )
    steps = max(1, round(math.log2(largest / smallest) * per_octave))
    ratio = (largest / smallest) ** (1 / steps)
    inner = [round(smallest * ratio**step / 64) * 64 for step in range(1, steps)]
    return tuple(dict.fromkeys([smallest, *inner, largest]))


def sweep_working_sets(
    kernel: str,
    sizes: Sequence[int],
    *,
    cpus: Sequence[int] | None = None,
    isa: str | None = None,
    rounds: int = 2,
) -> tuple[Measurement, ...]:
    """Measure a kernel on one thread at each working set, ``rounds`` times in random order.

    Large pages keep the cost of address translation out of the levels.

    Parameters
    ----------
    kernel : "read" for bandwidth by level, "latency" for the time of a load.
    sizes : working sets in bytes.

    Returns
    -------
    One measurement per size, in the order of ``sizes``, with every sample.
    Errors are those of ``open_kernel``.
    """
    order = random.Random(0)
    visits = [place for _ in range(rounds) for place in order.sample(range(len(sizes)), len(sizes))]
    found: dict[int, Measurement] = {}
    samples: dict[int, list[float]] = {place: [] for place in range(len(sizes))}
    for place in visits:
        with open_kernel(
            kernel,
            threads=1,
            working_set_bytes=sizes[place],
            page_kind="anon_2m",
            cpus=cpus,
            isa=isa,
            min_sample_s=SWEEP_SAMPLE_S,
        ) as bench:
            first = bench.sample()
            stretch_s = max(SWEEP_SAMPLE_S, first * bench.passes)
            more = max(1, min(SWEEP_SAMPLES, int(SWEEP_SIZE_S / stretch_s)) - 1)
            samples[place] += [first, *(bench.sample() for _ in range(more))]
            found[place] = bench.measurement(samples[place])
    return tuple(found[place] for place in range(len(sizes)))


def find_levels(sizes: Sequence[int], values: Sequence[float]) -> tuple[Plateau, ...]:
    """Return the plateaus of a sweep, smallest working sets first.

    Parameters
    ----------
    sizes : working sets in bytes, rising.
    values : what was measured at each, all above zero: bytes per second (falling from level
        to level) or seconds per load (rising).

    The logarithms of the values are cut into segments of equal value so that the squared
    distances plus a penalty per segment are least (optimal partitioning, as B. Jackson et
    al., "An algorithm for optimal partitioning of data on an interval", 2005). Segments
    over less than a doubling of sizes are the way from one level to the next, except the
    last: nothing follows it.
    """
    if len(sizes) != len(values) or any(value <= 0 for value in values):
        raise UsageError(
            f"a sweep needs a value above zero for each size ({len(sizes)} sizes, "
            f"{len(values)} values): measure again"
        )
    logs = [math.log(value) for value in values]
    levels: list[Plateau] = []
    for begin, end in _partition(logs, LEVEL_TOLERANCE**2):
        if sizes[end - 1] < LEVEL_FACTOR * sizes[begin] and end < len(sizes):
            continue
        value = stats.median(values[begin:end])
        if levels and abs(math.log(value / levels[-1].value)) < LEVEL_TOLERANCE:
            begin = sizes.index(levels.pop().smallest_bytes)
            value = stats.median(values[begin:end])
        levels.append(
            Plateau(smallest_bytes=sizes[begin], largest_bytes=sizes[end - 1], value=value)
        )
    return tuple(levels)


def _partition(values: Sequence[float], penalty: float) -> list[tuple[int, int]]:
    """Cut values into runs (begin, end) with the least squared distances plus penalties."""
    best = [0.0]
    begins = [0]
    for end in range(1, len(values) + 1):
        costs = [best[b] + _squared_distances(values[b:end]) + penalty for b in range(end)]
        begin = min(range(end), key=costs.__getitem__)
        best.append(costs[begin])
        begins.append(begin)
    runs = []
    end = len(values)
    while end > 0:
        runs.append((begins[end], end))
        end = begins[end]
    return runs[::-1]


def _squared_distances(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)
