"""What a machine that was never measured should do, with the interval that it deserves.

Parameters come from its kin (``cost.kin``, ``kin.toml``); a bandwidth that is known of it and rows
of its own narrow them, all by one rule: what is believed, given what was seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cpubound.cost.interval import NORMAL_90
from cpubound.cost.kernel_priors import KernelPriors, kernel_priors
from cpubound.cost.kin import consider
from cpubound.cost.kin_table import (
    FORMS,
    Kinship,
    kin_of,
    machine_points,
    make_rows,
    read_error,
    widths,
)
from cpubound.cost.predict import prompt_operations
from cpubound.cost.terms import attention_setting
from cpubound.errors import UsageError
from cpubound.model.quant import quant_type
from cpubound.model.values import ModelTraffic

# What the kin's rows are: of each weight byte of a Q4_K_M file about so much is of these types.
REFERENCE_TYPES = {"Q4_K": 0.75, "Q6_K": 0.25}
# What a KV byte costs a core for each query head that passes through it, beside a weight byte: two
# threads passed 5 GB/s for four query heads with flash-attention, where weights passed at 50
# (Zen 5, F16; other settings by ``kernel_priors.toml``, whose factor of that one is 0.6).
KV_COST = 1.5
# A core's rate of another type than Q4_K is known so well from the ratios of other machines.
TYPE_ERROR = 0.2
ATTENTION_ERROR = 0.5
# The share of the peak bandwidth that reading reaches, and how surely (of the logarithm).
PEAK_SHARE, PEAK_ERROR = 0.8, 0.2
# What is known beside the name decides how wide the interval is.
NOTHING, BANDWIDTH, ROWS = "name", "bandwidth", "rows"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A decode step or a prompt at a thread count: asked, or with the seconds that it took.

    ``amounts`` are what the form multiplies; ``form_error`` is how far they may be off (one
    standard deviation of the logarithm of the seconds).
    """

    threads: int
    amounts: tuple[float, ...]
    n_bytes: float
    seconds: float | None = None
    form_error: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The seconds of a step with their 90 % interval."""

    seconds: float
    low_s: float
    high_s: float


def decode_step(
    traffic: ModelTraffic, threads: int, architecture: str, tokens_per_s: float | None = None
) -> Step:
    """Return a decode step of one sequence: its bytes as bytes of Q4_K_M would cost a core.

    Raises
    ------
    UsageError : a batch of several sequences.
    """
    if traffic.setting.batch != 1:
        raise UsageError(
            f"no estimate for {traffic.setting.batch} sequences at once on a machine that was not"
            " measured: leave --batch out, or calibrate there"
        )
    priors = kernel_priors("arm" if architecture == "aarch64" else "x86")
    weights = float(traffic.weights_read_bytes)
    cost, error = _core_cost(traffic, priors)
    state = float(traffic.state_read_bytes + traffic.state_write_bytes)
    attention = state + _attention_cost(traffic, priors)
    total = weights + state + traffic.attention_read_bytes
    core_bytes = weights * cost + attention
    rows = sum(w.rows * w.count for w in traffic.products)
    return Step(
        threads=threads,
        amounts=(total, float(traffic.layers), float(rows), core_bytes / total),
        n_bytes=weights,
        seconds=None if tokens_per_s is None else 1 / tokens_per_s,
        form_error=math.hypot(error * weights * cost, ATTENTION_ERROR * attention) / core_bytes,
    )


def prompt_step(steps: Sequence[ModelTraffic], threads: int, seconds: float | None = None) -> Step:
    """Return a whole prompt: the operations of its physical batches, those of attention too."""
    first = steps[0]
    return Step(
        threads=threads,
        amounts=(float(sum(prompt_operations(step) for step in steps)), float(first.layers)),
        n_bytes=float(first.weights_read_bytes),
        seconds=seconds,
    )


def estimate(
    kind: str,
    kinship: Kinship,
    cores: int,
    asked: Sequence[Step],
    seen: Sequence[Step] = (),
    *,
    read_bytes_per_s: float | None = None,
    peak_bytes_per_s: float | None = None,
) -> tuple[Estimate, ...]:
    """Return what is to be expected of each step.

    Parameters
    ----------
    kind : ``decode`` or ``prompt``.
    cores : of the machine, all sockets.
    asked : steps without seconds.
    seen : steps with the seconds that they took on that machine.
    read_bytes_per_s : its read bandwidth with all cores, if known; or what its memory can at most.
    """
    import numpy as np

    form = FORMS[kind]
    kin = kin_of(kind, kinship.family, kinship.architecture)
    steps = [*seen, *asked]
    threads = sorted({step.threads for step in steps} | {cores})
    points = machine_points(kinship, threads, cores)
    bandwidth, error = read_bytes_per_s, 0.0
    if bandwidth is None and peak_bytes_per_s is not None:
        bandwidth, error = PEAK_SHARE * peak_bytes_per_s, PEAK_ERROR
    read = [] if bandwidth is None or kind != "decode" else [(threads.index(cores), bandwidth)]
    rows = make_rows(
        form,
        [(threads.index(s.threads), s.amounts, s.n_bytes, s.seconds) for s in steps],
        read,
    )
    own = [step.form_error**2 for step in steps]
    own += [error**2 + read_error(kind) ** 2] * len(read)
    mean, variance = consider(kin, points, rows, np.array(own))
    told = ROWS if seen else BANDWIDTH if read else NOTHING
    faster, slower = widths(kind)[told]
    if not (kin.points.family == kinship.family).any():
        # The widths were set on CPUs of families that were seen.
        faster, slower = max(faster, NORMAL_90), max(slower, NORMAL_90)
    return tuple(
        Estimate(
            seconds=math.exp(mean[place]),
            low_s=math.exp(mean[place] - faster * math.sqrt(variance[place])),
            high_s=math.exp(mean[place] + slower * math.sqrt(variance[place])),
        )
        for place in range(len(seen), len(steps))
    )


def _attention_cost(traffic: ModelTraffic, priors: KernelPriors) -> float:
    """Return the bytes of weights that cost a core as much as a step's attention does."""
    key = attention_setting(traffic.setting)
    passed = 0.0
    for read in traffic.attention:
        cells = read.touched_cells if traffic.setting.flash_attn else read.cells
        if read.cells:
            passed += (read.k_bytes + read.v_bytes) * cells / read.cells * read.query_heads
    return passed * KV_COST / priors.belief(key).value


def _core_cost(traffic: ModelTraffic, priors: KernelPriors) -> tuple[float, float]:
    """Return what a weight byte costs a core beside one of Q4_K_M, and that ratio's error."""

    def cost(name: str) -> float:
        return 8 / (priors.belief(name).value * quant_type(name).bits_per_weight)

    usual = sum(share * cost(name) for name, share in REFERENCE_TYPES.items())
    total = sum(traffic.by_type.values())
    mine = {name: n_bytes / total * cost(name) for name, n_bytes in traffic.by_type.items()}
    other = sum(mine[name] for name in mine if name not in (*REFERENCE_TYPES, "F32"))
    whole = sum(mine.values())
    return whole / usual, TYPE_ERROR * other / whole
