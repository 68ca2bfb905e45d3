"""What llama.cpp would reach, from our own kernels: an estimated ``EngineCalibration``.

    R(type, row length or tokens, T) = own · factor at one thread, T of it saturated by limit(T)
    A(setting, T) = own · factor · T^growth, at most limit(T); recurrences likewise
    c(T) = (seconds + more · log2 T) / speed

``own`` is what one thread of a kernel of ours reaches on this machine, ``limit`` the most that
our kernels or plain reading reach at T threads, ``speed`` how fast our kernels are here beside
the machine of the form (``kernel_form``). Pure arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cpubound import stats
from cpubound.cost.kernel_form import (
    AttentionStanding,
    Growth,
    KernelForm,
    Standing,
    TypeStanding,
    read_forms,
)
from cpubound.cost.rates import interpolate, own_kernel_rates, weights_bandwidth
from cpubound.model.quant import quant_type
from cpubound.profile.values import (
    AttentionRate,
    BatchRate,
    EngineCalibration,
    EngineCost,
    EngineRate,
    MachineProfile,
    StateRate,
)

# Where our kernel runs the same instructions on another CPU, llama.cpp's standing to it may be
# off by this: so much types differ beside each other between x86 CPUs
# (cost/kernel_priors.toml, from published rates).
OTHER_CPU_ERROR = 0.17
# … and by this where it runs others. A judgement: beside each other the types of x86 and Arm
# differ by 0.14 in the median and by up to 0.4 there, and our kernels differ too.
OTHER_ISA_ERROR = 0.3
# A kernel that was not measured, taken from how fast the others are here: a judgement.
OTHER_KERNEL_ERROR = 0.3
# An instruction set without a form of its own borrows this one.
BORROWED_FORM = "x86"
_ARCHITECTURES = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm", "arm64": "arm"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A form on a machine: what our kernels reach there and what they say of the rest."""

    form: KernelForm
    own: Mapping[str, float]  # bytes per second of one thread by type, those that were measured
    speed: float  # of our kernels here over those of the form
    threads: int
    limit: float  # bytes per second

    def weight_rates(self, type_name: str) -> list[EngineRate]:
        """Return the rates of a type at the row lengths of the form."""
        standing = self.form.types[type_name]
        return [
            EngineRate(
                type=type_name,
                threads=self.threads,
                columns=columns,
                bytes_per_s=self._shared(type_name, standing.kernel, factor),
                relative_error=standing.error,
            )
            for columns, factor in zip(self.form.columns, standing.factors, strict=True)
        ]

    def batch_rates(self, type_name: str) -> list[BatchRate]:
        """Return the rates of a type at the numbers of tokens of the form."""
        standing = self.form.batches[type_name]
        return [
            BatchRate(
                type=type_name,
                threads=self.threads,
                tokens=tokens,
                bytes_per_s=self._shared(type_name, standing.kernel, factor),
                relative_error=standing.error,
            )
            for tokens, factor in zip(self.form.tokens, standing.factors, strict=True)
        ]

    def expert_rate(self, type_name: str) -> EngineRate:
        """Return the rate of experts of a type."""
        standing = self.form.experts[type_name]
        return EngineRate(
            type=type_name,
            threads=self.threads,
            columns=1,
            bytes_per_s=self._shared(type_name, standing.kernel, standing.factor),
            relative_error=standing.error,
            kind="experts",
        )

    def attention_rate(self, standing: AttentionStanding) -> AttentionRate:
        """Return the rate of an attention setting."""
        return AttentionRate(
            kv_type_k=standing.kv_type_k,
            kv_type_v=standing.kv_type_v,
            flash_attn=standing.flash_attn,
            head_dim=standing.head_dim,
            threads=self.threads,
            bytes_per_s=self._grown(standing, self.form.attention_growth),
            relative_error=self._error(standing, self.form.attention_growth),
        )

    def state_rate(self, kind: str) -> StateRate:
        """Return the rate of a kind of recurrence."""
        standing = self.form.states[kind]
        return StateRate(
            kind=kind,
            threads=self.threads,
            bytes_per_s=self._grown(standing, self.form.state_growth),
            relative_error=self._error(standing, self.form.state_growth),
        )

    def cost(self) -> EngineCost:
        """Return what a step costs whatever its bytes."""
        costs, doublings = self.form.costs, math.log2(self.threads)
        return EngineCost(
            threads=self.threads,
            seconds_per_token=costs.token.at(doublings) / self.speed,
            seconds_per_product=costs.product.at(doublings) / self.speed,
            seconds_per_expert_layer=costs.expert_layer.at(doublings) / self.speed,
        )

    def _shared(self, type_name: str, kernel: str, factor: float) -> float:
        """Return the bytes per second of weights, which memory may bound."""
        bits = quant_type(type_name).bits_per_weight / quant_type(kernel).bits_per_weight
        return share_memory(
            self.own[kernel] * factor * bits, self.threads, self.limit, self.form.sharpness
        )

    def _grown(self, standing: Standing, growth: Growth) -> float:
        own = self.own.get(standing.kernel)
        if own is None:
            own = self.form.kernels[standing.kernel].bytes_per_s * self.speed
        return float(min(own * standing.factor * self.threads**growth.exponent, self.limit))

    def _error(self, standing: Standing, growth: Growth) -> float:
        other = 0.0 if standing.kernel in self.own else OTHER_KERNEL_ERROR
        return math.hypot(standing.error, other, growth.error * math.log(self.threads))


def estimate_engine(
    profile: MachineProfile, threads: int, forms: Mapping[str, KernelForm] | None = None
) -> EngineCalibration | None:
    """Estimate what calibration through llama.cpp would find at a thread count.

    Parameters
    ----------
    profile : a type whose kernel of ours was not measured is left out.
    threads : at least 1.
    forms : by instruction set, instead of the shipped ones.

    Returns None where no kernel was measured.
    """
    estimate = estimate_form(profile, threads, read_forms() if forms is None else forms)
    if estimate is None:
        return None
    form = estimate.form

    def told(standings: Mapping[str, TypeStanding] | Mapping[str, Standing]) -> list[str]:
        return [name for name, s in standings.items() if s.kernel in estimate.own]

    return EngineCalibration(
        name="estimated",
        version="",
        build="",
        rates=(
            *(rate for name in told(form.types) for rate in estimate.weight_rates(name)),
            *(estimate.expert_rate(name) for name in told(form.experts)),
        ),
        batch_rates=tuple(
            rate for name in told(form.batches) for rate in estimate.batch_rates(name)
        ),
        costs=(estimate.cost(),),
        attention=tuple(estimate.attention_rate(standing) for standing in form.attention),
        state_rates=tuple(estimate.state_rate(kind) for kind in form.states),
    )


def estimate_form(
    profile: MachineProfile, threads: int, forms: Mapping[str, KernelForm]
) -> Estimate | None:
    """Choose the form of a machine and measure our kernels there against it."""
    form = form_of(profile, forms)
    own = {
        name: interpolate(points, 1)
        for name in form.kernels
        if (points := own_kernel_rates(profile, name))
    }
    if not own:
        return None
    speeds = [rate / form.kernels[name].bytes_per_s for name, rate in own.items()]
    return Estimate(
        form=form,
        own=own,
        speed=stats.median(speeds),
        threads=threads,
        limit=memory_limit(profile, threads),
    )


def form_of(profile: MachineProfile, forms: Mapping[str, KernelForm]) -> KernelForm:
    """Return the form of a machine's instruction set, or the one it borrows."""
    isa = isa_of(profile.machine.architecture)
    return forms[isa] if isa in forms else forms[BORROWED_FORM]


def standing_error(profile: MachineProfile, forms: Mapping[str, KernelForm] | None = None) -> float:
    """Return how far all estimated rates of a machine may be off together, relative.

    Nothing more on the CPU that the form was measured on.
    """
    form = form_of(profile, read_forms() if forms is None else forms)
    differs = [
        all(m.isa != kernel.isa for m in measured.values())
        for name, kernel in form.kernels.items()
        if (measured := profile.measurements(f"gemv_{name.lower()}", "anon_4k"))
    ]
    # Of one or two kernels another variant may just have been the fastest.
    if 2 * sum(differs) > len(differs):
        return OTHER_ISA_ERROR
    return 0.0 if profile.machine.cpu_model == form.cpu_model else OTHER_CPU_ERROR


def standing_assumptions(
    profile: MachineProfile, forms: Mapping[str, KernelForm] | None = None
) -> tuple[str, ...]:
    """Return what a prediction from our kernels assumes on another CPU than the form's."""
    forms = read_forms() if forms is None else forms
    error = standing_error(profile, forms)
    if not error:
        return ()
    return (
        f"how llama.cpp stands to our kernels was measured on {form_of(profile, forms).cpu_model}: "
        f"on this CPU it may differ by {error * 100:.0f} %",
    )


def isa_of(architecture: str) -> str:
    """Return the instruction set of an architecture as ``uname -m`` names it."""
    return _ARCHITECTURES.get(architecture.lower(), architecture.lower())


def memory_limit(profile: MachineProfile, threads: int) -> float:
    """Return the most bytes per second that our kernels or plain reading reach at threads."""
    types = {m.kernel.removeprefix("gemv_") for m in profile.bandwidth if "gemv_" in m.kernel}
    curves = [points for name in types if (points := own_kernel_rates(profile, name))]
    return max(
        weights_bandwidth(profile, threads) or 0.0,
        *(interpolate(points, threads) for points in curves),
    )


def kernel_noise(profile: MachineProfile) -> float:
    """Return how far two halves of our kernels' samples lie apart, relative (the median)."""
    runs = [m.samples_s for m in profile.bandwidth if m.kernel.startswith("gemv_")]
    halves = [stats.split_half_distance([(s,) for s in samples]) for samples in runs]
    distances = [distance for distance in halves if distance is not None]
    return stats.median(distances) if distances else 0.0


def share_memory(alone: float, threads: int, limit: float, sharpness: float) -> float:
    """Return what threads reach together that each reach ``alone``: the law of saturation.

    One thread's own rate holds what memory gives one thread.
    """
    if threads == 1:
        return alone
    together = alone * threads
    low, high = min(together, limit), max(together, limit)
    return float(low / (1 + (low / high) ** sharpness) ** (1 / sharpness))
