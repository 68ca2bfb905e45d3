"""A rate table from our own kernels: what llama.cpp would reach here (basis ``kernel``).

    weights:  seconds(T) = ratio(T) / own(kernel, T)
    others:   seconds(T) = work(T) / speed,   speed = the mean of own(kernel, 1)

``own`` is what our kernel of the type, or of a like one, reaches on this machine at so many
threads, so that memory and cores are this machine's; the ratios of llama.cpp's times to ours
are those of the kept runs (``transfer.toml``, printed by ``python -m calibrate transfer``).
What was measured at one and at two threads goes on to more by its exponent. Estimates, on
either side of the truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated

import msgspec

from cpubound import stats
from cpubound.cost.rates import interpolate, neighbours
from cpubound.model.quant import quant_type
from cpubound.package_data import read_toml
from cpubound.profile.values import MachineProfile, RateTable

# Where our kernel runs the same instructions on another CPU, the ratio may differ by this: so
# much types differ beside each other between x86 CPUs (cost/kernel_priors.toml, from published
# rates) ...
OTHER_CPU_ERROR = 0.17
# ... and where it runs others by this. A judgement: beside each other the types of x86 and Arm
# differ by 0.14 in the median and by up to 0.4 there, and our kernels differ too.
OTHER_ISA_ERROR = 0.3
# An instruction set without ratios of its own borrows these.
BORROWED = "x86"
_ARCHITECTURES = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm", "arm64": "arm"}

Relative = Annotated[float, msgspec.Meta(ge=0, le=3)]


class Ratio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """llama.cpp's seconds over ours for one key, at one thread and at two.

    Without ``kernel``, seconds times the mean speed of our kernels. ``error`` is the spread
    of the ratio over the kept machines and runs, relative.
    """

    kernel: str | None = None
    one: Annotated[float, msgspec.Meta(ge=0)]
    two: Annotated[float, msgspec.Meta(ge=0)]
    error: Relative

    def at(self, threads: int) -> float:
        """Return the ratio at a thread count."""
        if threads == 1 or not self.one or not self.two:
            return self.one if threads == 1 else self.two
        if self.kernel is not None:
            return self.two
        return float(self.one * threads ** math.log2(self.two / self.one))


class Transfer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ratios of one instruction set and the CPUs that they are from."""

    measured: str  # when, through which build
    cpus: tuple[str, ...]  # "AuthenticAMD 26/2": vendor, family and model
    kernel_isas: tuple[str, ...]  # which of our kernels' variants ran there
    ratios: dict[str, Ratio]


def estimate_table(
    profile: MachineProfile, threads: int, transfers: Mapping[str, Transfer] | None = None
) -> RateTable | None:
    """Estimate the rate table that calibration through llama.cpp would give.

    A key whose kernel was not measured here is left out. None where no kernel was measured.
    """
    transfer = transfer_of(profile, transfers)
    own = own_rates(profile)
    if not own:
        return None
    speed = kernel_speed(own)
    keys, seconds, errors = [], [], []
    for key, ratio in transfer.ratios.items():
        if ratio.kernel is None:
            price = ratio.at(threads) / speed
        elif ratio.kernel in own:
            price = ratio.at(threads) / interpolate(own[ratio.kernel], threads)
        else:
            continue
        keys.append(key)
        seconds.append(price)
        errors.append(ratio.error)
    return RateTable(
        threads=threads,
        keys=tuple(keys),
        seconds=tuple(seconds),
        relative_errors=tuple(errors),
    )


def own_rates(profile: MachineProfile) -> dict[str, dict[int, float]]:
    """Return the median bytes per second of our GEMV kernels by type and thread count."""
    found: dict[str, dict[int, float]] = {}
    for row in profile.bandwidth:
        if row.kernel.startswith("gemv_") and row.page_kind == "anon_4k":
            name = row.kernel.removeprefix("gemv_").upper()
            found.setdefault(name, {})[row.threads] = row.median_bytes_per_s
    return found


def own_kernel_rate(profile: MachineProfile, type_name: str, threads: int) -> float | None:
    """Return what our GEMV kernel reaches for a type, or what a neighbour's lets expect.

    None if no kernel like it was measured.
    """
    own = own_rates(profile)
    for name in (type_name, *(other for other, _ in neighbours(type_name))):
        if name in own:
            scale = quant_type(type_name).bits_per_weight / quant_type(name).bits_per_weight
            return interpolate(own[name], threads) * scale
    return None


def kernel_speed(own: Mapping[str, Mapping[int, float]]) -> float:
    """Return the geometric mean of one thread's rates in weights per second: how fast a core is."""
    rates = [
        math.log(interpolate(points, 1) * 8 / quant_type(name).bits_per_weight)
        for name, points in own.items()
    ]
    return math.exp(sum(rates) / len(rates))


def transfer_of(
    profile: MachineProfile, transfers: Mapping[str, Transfer] | None = None
) -> Transfer:
    """Return the ratios of a machine's instruction set, or those that it borrows."""
    known = read_transfers() if transfers is None else transfers
    isa = isa_of(profile.machine.architecture)
    return known[isa] if isa in known else known[BORROWED]


def transfer_error(
    profile: MachineProfile, transfers: Mapping[str, Transfer] | None = None
) -> float:
    """Return how far all estimated rates of a machine may be off together, relative.

    Nothing more on a CPU, by vendor, family and model, that the ratios were measured on.
    """
    transfer = transfer_of(profile, transfers)
    variants = {m.isa for m in profile.bandwidth if m.kernel.startswith("gemv_")}
    if variants and not variants & set(transfer.kernel_isas):
        return OTHER_ISA_ERROR
    return 0.0 if profile.machine.cpu_identity in transfer.cpus else OTHER_CPU_ERROR


def transfer_assumptions(
    profile: MachineProfile, transfers: Mapping[str, Transfer] | None = None
) -> tuple[str, ...]:
    """Return what an estimate from our kernels assumes on another CPU than those measured."""
    error = transfer_error(profile, transfers)
    if not error:
        return ()
    transfer = transfer_of(profile, transfers)
    return (
        f"the ratio of llama.cpp to our kernels was measured on {', '.join(transfer.cpus)}: "
        f"on this CPU it may differ by {error * 100:.0f} %",
    )


def kernel_noise(profile: MachineProfile) -> float:
    """Return the median relative distance of two halves of our kernels' samples."""
    runs = [m.samples_s for m in profile.bandwidth if m.kernel.startswith("gemv_")]
    halves = [stats.split_half_distance([(s,) for s in samples]) for samples in runs]
    distances = [distance for distance in halves if distance is not None]
    return stats.median(distances) if distances else 0.0


def isa_of(architecture: str) -> str:
    """Return the instruction set of an architecture as ``uname -m`` names it."""
    return _ARCHITECTURES.get(architecture.lower(), architecture.lower())


@cache
def read_transfers() -> dict[str, Transfer]:
    """Read ``transfer.toml``: ratios by instruction set."""
    return msgspec.convert(read_toml("cost", "transfer.toml"), dict[str, Transfer])
