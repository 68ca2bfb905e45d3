"""How long a step takes: rate table × terms -> Prediction. Pure arithmetic.

The table is the one measured through llama.cpp (basis ``engine``), else what our own kernels
let expect of it (``kernel``), else there is only bytes over read bandwidth (``ceiling``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from cpubound.cost.interval import (
    CEILING_LOW_SHARE,
    MAX_ERROR,
    NORMAL_90,
    FormErrors,
    read_form_errors,
    seconds_interval,
)
from cpubound.cost.rates import (
    Cost,
    cost_of,
    find_price,
    grid_of,
    interpolate,
    table_at,
)
from cpubound.cost.terms import Grid, Term, step_terms
from cpubound.cost.transfer import (
    Transfer,
    estimate_table,
    kernel_noise,
    transfer_assumptions,
    transfer_error,
)
from cpubound.cost.values import PartPrediction, Prediction, PromptPrediction, SecondsByPart
from cpubound.errors import ProfileError, UsageError
from cpubound.model.parts import PARTS
from cpubound.model.values import ModelTraffic
from cpubound.profile.values import MachineProfile, RateTable
from cpubound.units import format_count

# A type counts as memory-bound where its bytes pass at least at this share of read bandwidth.
MEMORY_BOUND_SHARE = 0.80
# What was not measured is taken at read bandwidth, a lower bound of its time.
UNMEASURED_ERROR = 0.5
# Pauses cost more than their time: under a quota of half a CPU a model of 135M ran at 74 tok/s,
# where half of its unpaused rate was 87 (2026-11-30, two virtual CPUs of EPYC family 26).
PAUSE_ERROR = 0.15
# A basis must cover this share of the weight bytes.
COVERED_SHARE = 0.9
_GROUPS = {
    "weights": ("bytes", "rows", "experts", "cached"),
    "attention": ("attention", "kv", "prompt", "state"),
    "overhead": ("product", "token"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Basis:
    """What a prediction rests on: its level, its rate table (None: only the bandwidth)."""

    name: str  # "engine", "kernel", "ceiling"
    table: RateTable | None
    bandwidth: float  # of reading, bytes per second
    duty_cycle: float = 1.0  # share of the time in which a quota lets the threads run

    @property
    def grid(self) -> Grid:
        return Grid() if self.table is None else grid_of(self.table)

    def terms(self, traffic: ModelTraffic, *, is_prompt: bool = False) -> list[Term]:
        """Return a step's terms; where no number of tokens was measured, at its own number."""
        grid = (
            self.grid if self.grid.tokens else self.grid._replace(tokens=(traffic.setting.batch,))
        )
        return step_terms(traffic, grid, is_prompt=is_prompt)

    def cost(self, terms: Sequence[Term]) -> Cost:
        """Return what terms cost by the clock, pauses that a quota makes included."""
        cost = self._running_cost(terms)
        if self.duty_cycle == 1.0:
            return cost
        share = self.duty_cycle
        return replace(cost, seconds=cost.seconds / share, error_s=cost.error_s / share)

    def _running_cost(self, terms: Sequence[Term]) -> Cost:
        """Return what terms cost; what the table does not tell goes at read bandwidth."""
        if self.table is None:
            return Cost(seconds=_bytes_of(terms) / self.bandwidth)
        cost = cost_of(self.table, terms)
        if not cost.unpriced:
            return cost
        seconds = _bytes_of(cost.unpriced) / self.bandwidth
        return Cost(
            seconds=cost.seconds + seconds,
            error_s=math.hypot(cost.error_s, UNMEASURED_ERROR * seconds),
            assumptions=(*cost.assumptions, *_missing(cost.unpriced)),
            unpriced=cost.unpriced,
        )

    def memory_seconds(self, terms: Sequence[Term]) -> float:
        """Return the seconds of terms that memory sets."""
        return sum(self.cost([term]).seconds for term in terms if self._is_memory_bound(term.key))

    def _is_memory_bound(self, key: str) -> bool:
        if not key.startswith(("bytes:", "experts:", "cached@", "state:", "kv:")):
            return False
        if self.table is None:
            return True
        price = find_price(self.table, key)
        if price is None or key.startswith("cached@"):
            return True
        seconds = sum(n * self.table.seconds_of(known) for known, n in price.amounts.items())
        return seconds > 0 and 1 / seconds >= MEMORY_BOUND_SHARE * self.bandwidth


def predict_decode(
    profile: MachineProfile,
    traffic: ModelTraffic,
    threads: int,
    transfers: Mapping[str, Transfer] | None = None,
) -> Prediction:
    """Predict the median decode speed at a thread count, of all sequences of the batch together.

    Parameters
    ----------
    profile : what the machine can do.
    traffic : what one decode step of the model moves, at its depth and settings.
    threads : decode threads, at least 1.
    transfers : ratios of llama.cpp to our kernels, instead of the shipped ones.

    Raises
    ------
    UsageError : threads below 1.
    ProfileError : the profile holds no read bandwidth.
    """
    basis = choose_basis(profile, traffic, threads, transfers)
    terms = basis.terms(traffic)
    cost = basis.cost(terms)
    parts = _by_group(basis, terms)
    memory_s = basis.memory_seconds(terms)
    fastest, slowest = _interval(profile, basis, threads, traffic, cost, transfers)
    memory = profile.machine.usable_memory_bytes
    fast_ratio = basis.table.fast_time_ratio if basis.table is not None else 1.0
    return Prediction(
        model=traffic.model,
        quant_label=traffic.quant_label,
        setting=structs.replace(traffic.setting, threads=threads),
        tokens_per_s=traffic.setting.batch / parts.total,
        low=traffic.setting.batch / slowest,
        high=traffic.setting.batch / fastest,
        fast_tokens_per_s=traffic.setting.batch / (parts.total * fast_ratio),
        ceiling_tokens_per_s=traffic.setting.batch / ceiling_seconds(traffic, basis.bandwidth),
        bound=_name_bound(parts, memory_s, otherwise="kernel"),
        basis=basis.name,
        bytes_per_token=traffic.total_bytes // traffic.setting.batch,
        file_bytes=traffic.file_bytes,
        resident_bytes=traffic.resident_bytes,
        seconds=parts,
        memory_seconds=memory_s,
        fits_in_memory=None if memory is None else traffic.resident_bytes <= memory,
        assumptions=(
            *traffic.assumptions,
            *(transfer_assumptions(profile, transfers) if basis.name == "kernel" else ()),
            *cost.assumptions,
            *profile_assumptions(profile, threads),
        ),
    )


def predict_prompt(
    profile: MachineProfile,
    steps: Sequence[ModelTraffic],
    step_after: ModelTraffic,
    threads: int,
) -> PromptPrediction:
    """Predict how long a prompt takes.

    Parameters
    ----------
    steps : the traffic of its physical batches (``model.traffic.prompt_steps``), at least one.
    step_after : the traffic of the first decode step behind it.
    threads : batch threads, at least 1.

    Raises
    ------
    UsageError : threads below 1.
    ProfileError : the profile holds no rates of llama.cpp for several tokens at once.
    """
    basis = choose_basis(profile, steps[0], threads)
    if basis.name != "engine" or not basis.grid.tokens:
        raise ProfileError(
            "the profile has no rates for prompts: run `cpubound calibrate` with llama.cpp again"
        )
    terms = [term for step in steps for term in basis.terms(step, is_prompt=True)]
    cost = basis.cost(terms)
    parts = _by_group(basis, terms)
    low_s, high_s = _interval(profile, basis, threads, steps[0], cost)
    first, tokens = steps[0], sum(step.setting.batch for step in steps)
    memory = profile.machine.usable_memory_bytes
    after = predict_decode(profile, step_after, threads)
    return PromptPrediction(
        model=first.model,
        quant_label=first.quant_label,
        setting=structs.replace(
            step_after.setting,
            threads=threads,
            depth_tokens=step_after.setting.depth_tokens - tokens,
        ),
        prompt_tokens=tokens,
        seconds=parts.total,
        low_s=low_s,
        high_s=high_s,
        tokens_per_s=tokens / parts.total,
        time_to_first_token_s=parts.total + 1 / after.tokens_per_s,
        operations=sum(prompt_operations(step) for step in steps),
        bound=_name_bound(parts, basis.memory_seconds(terms), otherwise="compute"),
        parts=parts,
        fits_in_memory=None if memory is None else first.resident_bytes <= memory,
        assumptions=tuple(
            dict.fromkeys(
                (
                    *first.assumptions,
                    *cost.assumptions,
                    *profile_assumptions(profile, threads),
                )
            )
        ),
    )


def predict_parts(
    profile: MachineProfile, traffic: ModelTraffic, threads: int
) -> dict[str, PartPrediction]:
    """Predict the seconds of each part that ``breakdown`` measures; raises as ``predict_decode``.

    A part's matrix products carry their cost per product; what a step costs whatever its
    products is ``rest``. Together the parts are ``predict_decode``'s time.
    """
    basis = choose_basis(profile, traffic, threads)
    by_part: dict[str, list[Term]] = {}
    for term in basis.terms(traffic):
        by_part.setdefault(term.part, []).append(term)
    found = {}
    for part in PARTS:
        cost = basis.cost(by_part.get(part, []))
        if cost.seconds:
            low, high = _interval(profile, basis, threads, traffic, cost)
            found[part] = PartPrediction(seconds=cost.seconds, low=low, high=high)
    return found


def choose_basis(
    profile: MachineProfile,
    traffic: ModelTraffic,
    threads: int,
    transfers: Mapping[str, Transfer] | None = None,
) -> Basis:
    """Take the deepest level that covers at least nine tenths of the weight bytes.

    Raises
    ------
    UsageError : threads below 1.
    ProfileError : the profile holds no read bandwidth.
    """
    if threads < 1:
        raise UsageError(f"threads must be at least 1 ({threads})")
    bandwidth = weights_bandwidth(profile, threads)
    if bandwidth is None:
        raise ProfileError("the profile has no read bandwidth: run `cpubound calibrate` again")
    duty_cycle = profile.machine.duty_cycle(threads)
    weight_bytes = {f"bytes:{name}": n for name, n in traffic.by_type.items() if n}
    needed = COVERED_SHARE * sum(weight_bytes.values())

    def covers(table: RateTable) -> bool:
        known = [n for key, n in weight_bytes.items() if find_price(table, key) is not None]
        cost = cost_of(table, step_terms(traffic))
        # A time that may be twice as long or nothing was not measured.
        return sum(known) >= needed and cost.seconds > 0 and cost.error_s < MAX_ERROR * cost.seconds

    measured = None if profile.engine is None else table_at(profile.engine.tables, threads)
    if measured is not None and covers(measured):
        return Basis(name="engine", table=measured, bandwidth=bandwidth, duty_cycle=duty_cycle)
    estimated = estimate_table(profile, threads, transfers)
    if estimated is not None and covers(estimated):
        return Basis(name="kernel", table=estimated, bandwidth=bandwidth, duty_cycle=duty_cycle)
    return Basis(name="ceiling", table=None, bandwidth=bandwidth, duty_cycle=duty_cycle)


def ceiling_seconds(traffic: ModelTraffic, bandwidth: float) -> float:
    """Return bytes over bandwidth: the textbook formula."""
    return traffic.total_bytes / bandwidth


def read_bandwidth(
    profile: MachineProfile, threads: int, page_kind: str = "anon_4k"
) -> float | None:
    """Return the median read bandwidth at a thread count, or None if none was measured."""
    points = {t: m.median_bytes_per_s for t, m in profile.measurements("read", page_kind).items()}
    return interpolate(points, threads) if points else None


def weights_bandwidth(profile: MachineProfile, threads: int) -> float | None:
    """Return the read bandwidth of pages as weights lie on them: mapped from a file.

    Where that was not measured, of 4 KiB pages.
    """
    mapped = read_bandwidth(profile, threads, "file")
    return read_bandwidth(profile, threads) if mapped is None else mapped


def prompt_operations(step: ModelTraffic) -> int:
    """Return the floating-point operations of a step's matrix products and attention."""
    products = sum(2 * w.rows * w.columns * w.count * w.tokens for w in step.products)
    return round(products) + step.setting.batch * step.attention_operations


def profile_assumptions(profile: MachineProfile, threads: int) -> tuple[str, ...]:
    """Return what a profile itself makes a prediction assume at a thread count."""
    found = []
    if profile.noise.note is not None:
        found.append(profile.noise.note)
    if profile.engine is not None and profile.engine.residual >= MAX_ERROR:
        found.append("what was measured contradicts itself: the interval says next to nothing")
    if profile.fitted_to is not None:
        found.append(f"nothing was measured on that machine: rates fitted to {profile.fitted_to}")
    most = profile.machine.effective_cpus
    share = profile.machine.duty_cycle(threads)
    if share < 1:
        team = format_count(threads, "thread")
        found.append(
            f"a quota of {profile.machine.quota_cpus:g} CPUs lets {team} run {share:.0%} of the "
            "time: the speed is by the clock, pauses included"
        )
    elif threads > most and profile.fitted_to is not None:
        found.append(f"no row used more than {most} threads")
    elif threads > most:
        found.append(
            f"{threads} threads are more than the {most} effective CPUs: expect less than predicted"
        )
    return tuple(found)


def _by_group(basis: Basis, terms: Sequence[Term]) -> SecondsByPart:
    seconds = {
        group: basis.cost([t for t in terms if t.key.startswith(kinds)]).seconds
        for group, kinds in _GROUPS.items()
    }
    return SecondsByPart(**seconds)


def _interval(
    profile: MachineProfile,
    basis: Basis,
    threads: int,
    traffic: ModelTraffic,
    cost: Cost,
    transfers: Mapping[str, Transfer] | None = None,
) -> tuple[float, float]:
    """Return the 90 % interval of predicted seconds."""
    if basis.name == "ceiling":
        noise = 1 + profile.noise.spread
        return cost.seconds / noise, cost.seconds / CEILING_LOW_SHARE
    errors: FormErrors = read_form_errors(basis.name, threads, traffic.setting.depth_tokens)
    common = transfer_error(profile, transfers) if basis.name == "kernel" else 0.0
    if profile.fitted_to is not None and profile.engine is not None:
        common = profile.engine.residual
    if basis.duty_cycle < 1:
        common = math.hypot(common, PAUSE_ERROR)
    halves = _noise(profile, basis)
    return seconds_interval(
        cost.seconds, math.hypot(cost.error_s / cost.seconds, common), halves, errors
    )


def _noise(profile: MachineProfile, basis: Basis) -> float:
    """Return how far two halves of the samples lay apart: how far a later run may lie."""
    if basis.name == "engine" and profile.engine is not None and profile.engine.noise:
        return profile.engine.noise
    return kernel_noise(profile) or profile.noise.spread / NORMAL_90


def _bytes_of(terms: Sequence[Term]) -> float:
    """Return the bytes that terms name, each once."""
    kinds = ("bytes:", "experts:", "kv:", "state:")
    return sum(term.amount for term in terms if term.key.startswith(kinds))


def _missing(terms: Sequence[Term]) -> tuple[str, ...]:
    names = []
    for term in terms:
        kind, _, rest = term.key.partition(":")
        if kind == "kv":
            k, v, flash, _ = rest.split(":")
            names.append(f"attention with {k}:{v} KV, flash-attn {flash},")
        elif kind == "state":
            names.append("recurrent state")
        elif kind in ("bytes", "experts"):
            names.append(rest)
    return tuple(f"{n} was not measured: taken at read bandwidth, a lower bound" for n in names)


def _name_bound(parts: SecondsByPart, memory_seconds: float, *, otherwise: str) -> str:
    """Name what takes most of a step: memory, ``otherwise``, attention or overhead.

    ``otherwise`` is what weights wait for where memory does not set their rate.
    """
    of_memory = min(memory_seconds, parts.weights)
    shares = {
        "memory": of_memory,
        otherwise: parts.weights - of_memory,
        "attention": parts.attention,
        "overhead": parts.overhead,
    }
    return max(shares, key=lambda name: shares[name])
