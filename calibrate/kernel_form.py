"""How llama.cpp stands to our own kernels, from saved profiles that measured both.

Prints ``cpubound/cost/kernel_form.toml``. Only what calibration itself measured goes in:
the rates of our kernels and those fitted to the probes, never a held-out observation.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Hashable, Sequence

from calibrate.kernel_form_toml import form_lines, header_lines
from cpubound import stats
from cpubound.cost.batch_rates import product_rate
from cpubound.cost.estimated_engine import isa_of, memory_limit, share_memory
from cpubound.cost.kernel_form import (
    AttentionStanding,
    Cost,
    Costs,
    Growth,
    KernelForm,
    OwnKernel,
    Standing,
    TypeStanding,
)
from cpubound.cost.rates import KERNEL_FAMILIES, interpolate, own_kernel_rates, weight_rate
from cpubound.model.quant import quant_type
from cpubound.model.values import WeightRead
from cpubound.profile.file import load_profile
from cpubound.profile.values import EngineCalibration, MachineProfile

# Row lengths at which a type's factor is told; between them it is interpolated.
COLUMNS = (512, 1024, 2048, 4096, 8192)
# Numbers of tokens at which a batch's factor is told.
TOKENS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 256)
# The row length at which one token's rate bounds a batch's.
BATCH_COLUMNS = 2048
# Sharpnesses that are tried: from gentle to nearly the lesser of the two rates.
SHARPNESSES = tuple(n / 4 for n in range(4, 41))
# A median distance over the standard deviation of a normal distribution.
NORMAL_MEDIAN = 0.6745
# Our kernel that attention over types of cache without one is told by, and recurrences.
ATTENTION_KERNEL = "F16"
STATE_KERNEL = "F32"


class Measured:
    """One profile: our kernels on one thread beside llama.cpp's rates.

    Raises ValueError where it holds not both.
    """

    def __init__(self, profile: MachineProfile) -> None:
        self.profile = profile
        names = {m.kernel.removeprefix("gemv_").upper() for m in profile.bandwidth}
        self.own = {
            name: interpolate(points, 1)
            for name in sorted(names)
            if (points := own_kernel_rates(profile, name))
        }
        engine = profile.engine
        if engine is None or not self.own or all(cost.threads != 1 for cost in engine.costs):
            raise ValueError(
                f"a profile does not tell how llama.cpp stands to our kernels ({profile.created}): "
                "give one of `cpubound calibrate` with llama.cpp"
            )
        self.engine: EngineCalibration = engine
        rates = [row for row in engine.rates if row.kind == "matmul"]
        self.types = sorted({row.type for row in rates if self.kernel_of(row.type)})
        self.thread_counts = sorted({row.threads for row in rates})

    def kernel_of(self, type_name: str) -> str | None:
        """Return our kernel of a type, or the first of its family."""
        family = next((f for f in KERNEL_FAMILIES if type_name in f), ())
        return next((name for name in (type_name, *family) if name in self.own), None)

    def rate(self, type_name: str, columns: int, threads: int) -> float:
        """Return llama.cpp's bytes per second of a measured type."""
        rate = weight_rate(self.engine, type_name, columns, threads)
        assert rate is not None
        return rate.bytes_per_s

    def factor(self, type_name: str, columns: int) -> float:
        """Return one thread's weights per second over our kernel's."""
        return self._over_own(type_name, self.rate(type_name, columns, 1))

    def batch_factor(self, type_name: str, tokens: int) -> float:
        """Return one thread's weights per second over our kernel's, where tokens share them."""
        read = WeightRead(
            role="other",
            kind="matmul",
            type=type_name,
            rows=1,
            columns=BATCH_COLUMNS,
            count=1,
            n_bytes=1,
            tokens=tokens,
        )
        rate = product_rate(self.engine, read, 1)
        assert rate is not None
        return self._over_own(type_name, rate.bytes_per_s)

    def _over_own(self, type_name: str, bytes_per_s: float) -> float:
        kernel = self.kernel_of(type_name)
        assert kernel is not None
        return bytes_per_s / self.own[kernel] * _bits(kernel) / _bits(type_name)

    def saturation_errors(self, sharpness: float) -> list[float]:
        """Return how far the law lies from the rates of several threads (logarithms)."""
        return [
            math.log(
                share_memory(
                    self.rate(name, columns, 1),
                    threads,
                    memory_limit(self.profile, threads),
                    sharpness,
                )
                / self.rate(name, columns, threads)
            )
            for name in self.types
            for columns in COLUMNS
            for threads in self.thread_counts
            if threads > 1
        ]


def main(argv: Sequence[str]) -> int:
    """Print the forms of the instruction sets that the profiles are of."""
    parser = argparse.ArgumentParser(prog="python -m calibrate kernel_form", description=__doc__)
    parser.add_argument("profiles", nargs="+", metavar="PROFILE")
    profiles = [load_profile(path) for path in parser.parse_args(argv).profiles]
    try:
        print(forms_toml(profiles), end="")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def fit_form(profiles: Sequence[MachineProfile]) -> KernelForm:
    """Return how llama.cpp stood to our kernels: medians over profiles of one machine.

    Raises
    ------
    ValueError : a profile without one thread's rates of our kernels and of llama.cpp.
    """
    measured = [Measured(profile) for profile in profiles]
    return KernelForm(
        cpu_model=profiles[0].machine.cpu_model or "unknown",
        columns=COLUMNS,
        tokens=TOKENS,
        sharpness=_fit_sharpness(measured),
        attention_growth=_growth([_exponents(_attention_rates(one)) for one in measured]),
        state_growth=_growth([_exponents(_state_rates(one)) for one in measured]),
        kernels=_kernels(measured),
        types=_types(measured),
        attention=_attention(measured),
        batches=_batches(measured),
        experts=_experts(measured),
        states=_states(measured),
        costs=Costs(
            token=_cost(measured, "seconds_per_token"),
            product=_cost(measured, "seconds_per_product"),
            expert_layer=_cost(measured, "seconds_per_expert_layer"),
        ),
    )


def _fit_sharpness(measured: Sequence[Measured]) -> float:
    def distance(sharpness: float) -> float:
        errors = [error for one in measured for error in one.saturation_errors(sharpness)]
        return stats.median([abs(error) for error in errors]) if errors else 0.0

    return min(SHARPNESSES, key=distance)


def _kernels(measured: Sequence[Measured]) -> dict[str, OwnKernel]:
    found: dict[str, list[float]] = {}
    isas: dict[str, str] = {}
    for one in measured:
        for name, rate in one.own.items():
            found.setdefault(name, []).append(rate)
            rows = one.profile.measurements(f"gemv_{name.lower()}", "anon_4k")
            isas[name] = rows[min(rows)].isa
    return {
        name: OwnKernel(isa=isas[name], bytes_per_s=stats.median(rates))
        for name, rates in found.items()
    }


def _types(measured: Sequence[Measured]) -> dict[str, TypeStanding]:
    def errors(one: Measured, name: str) -> list[float]:
        rows = [row for row in one.engine.rates if row.kind == "matmul" and row.threads == 1]
        return [row.relative_error for row in rows if row.type == name]

    return _type_standings(measured, Measured.factor, COLUMNS, errors)


def _batches(measured: Sequence[Measured]) -> dict[str, TypeStanding]:
    def errors(one: Measured, name: str) -> list[float]:
        rows = [row for row in one.engine.batch_rates if row.threads == 1]
        return [row.relative_error for row in rows if row.type == name]

    return _type_standings(measured, Measured.batch_factor, TOKENS, errors)


def _type_standings(
    measured: Sequence[Measured],
    factor_at: Callable[[Measured, str, int], float],
    places: Sequence[int],
    errors: Callable[[Measured, str], list[float]],
) -> dict[str, TypeStanding]:
    """Return the median factors of the types that have errors, as only measured ones do."""
    found = {}
    for name in sorted({name for one in measured for name in one.types}):
        mine = [one for one in measured if name in one.types and errors(one, name)]
        kernel = next((one.kernel_of(name) for one in mine), None)
        mine = [one for one in mine if one.kernel_of(name) == kernel]
        if kernel is None:
            continue
        factors = [[factor_at(one, name, place) for one in mine] for place in places]
        scatter = stats.median([_scatter([math.log(f) for f in at]) for at in factors])
        fitted = stats.median([error for one in mine for error in errors(one, name)])
        found[name] = TypeStanding(
            kernel=kernel,
            factors=tuple(stats.median(at) for at in factors),
            error=math.hypot(scatter, fitted),
        )
    return found


def _attention(measured: Sequence[Measured]) -> tuple[AttentionStanding, ...]:
    found: dict[tuple[str, str, bool, int], list[tuple[float, float]]] = {}
    kernels: dict[Hashable, str] = {}
    for one in measured:
        for row in one.engine.attention:
            kernel = row.kv_type_k if row.kv_type_k in one.own else ATTENTION_KERNEL
            if row.threads != 1 or kernel not in one.own:
                continue
            key = (row.kv_type_k, row.kv_type_v, row.flash_attn, row.head_dim)
            kernels.setdefault(key, kernel)
            factor = row.bytes_per_s / one.own[kernels[key]]
            found.setdefault(key, []).append((factor, row.relative_error))
    return tuple(
        AttentionStanding(
            kv_type_k=key[0],
            kv_type_v=key[1],
            flash_attn=key[2],
            head_dim=key[3],
            kernel=kernels[key],
            factor=stats.median([factor for factor, _ in rows]),
            error=_error(rows),
        )
        for key, rows in sorted(found.items())
    )


def _experts(measured: Sequence[Measured]) -> dict[str, Standing]:
    found: dict[str, list[tuple[float, float]]] = {}
    kernels: dict[str, str] = {}
    for one in measured:
        for row in one.engine.rates:
            kernel = kernels.get(row.type) or one.kernel_of(row.type)
            if kernel and kernel in one.own and (row.kind, row.threads) == ("experts", 1):
                kernels[row.type] = kernel
                factor = row.bytes_per_s / one.own[kernel] * _bits(kernel) / _bits(row.type)
                found.setdefault(row.type, []).append((factor, row.relative_error))
    return {name: _standing(kernels[name], rows) for name, rows in sorted(found.items())}


def _states(measured: Sequence[Measured]) -> dict[str, Standing]:
    found: dict[str, list[tuple[float, float]]] = {}
    for one in measured:
        for row in one.engine.state_rates:
            if row.threads == 1 and STATE_KERNEL in one.own:
                factor = row.bytes_per_s / one.own[STATE_KERNEL]
                found.setdefault(row.kind, []).append((factor, row.relative_error))
    return {kind: _standing(STATE_KERNEL, rows) for kind, rows in sorted(found.items())}


def _standing(kernel: str, rows: Sequence[tuple[float, float]]) -> Standing:
    return Standing(
        kernel=kernel, factor=stats.median([factor for factor, _ in rows]), error=_error(rows)
    )


def _bits(type_name: str) -> float:
    return quant_type(type_name).bits_per_weight


def _cost(measured: Sequence[Measured], field: str) -> Cost:
    """Return the median at one thread, and of what each doubling of them adds."""
    singles, more = [], []
    for one in measured:
        by_threads = {cost.threads: float(getattr(cost, field)) for cost in one.engine.costs}
        singles.append(by_threads[1])
        more += [
            (seconds - by_threads[1]) / math.log2(threads)
            for threads, seconds in by_threads.items()
            if threads > 1
        ]
    return Cost(seconds=stats.median(singles), more=max(stats.median(more), 0.0) if more else 0.0)


Rates = dict[Hashable, dict[int, float]]


def _attention_rates(one: Measured) -> Rates:
    found: Rates = {}
    for row in one.engine.attention:
        key = (row.kv_type_k, row.kv_type_v, row.flash_attn, row.head_dim)
        found.setdefault(key, {})[row.threads] = row.bytes_per_s
    return found


def _state_rates(one: Measured) -> Rates:
    found: Rates = {}
    for row in one.engine.state_rates:
        found.setdefault(row.kind, {})[row.threads] = row.bytes_per_s
    return found


def _exponents(rates: Rates) -> list[float]:
    """Return the exponents of the threads that rates of several threads stand to one's at."""
    return [
        math.log(rate / by_threads[1]) / math.log(threads)
        for by_threads in rates.values()
        for threads, rate in by_threads.items()
        if threads > 1 and 1 in by_threads
    ]


def _growth(exponents: Sequence[Sequence[float]]) -> Growth:
    """Return the median exponent; rates are as the threads where none was measured."""
    found = [value for values in exponents for value in values]
    middle = stats.median(found) if found else 1.0
    return Growth(exponent=max(middle, 0.0), error=_scatter(found))


def _error(rows: Sequence[tuple[float, float]]) -> float:
    """Join how far values lie apart and how far each may be off."""
    return math.hypot(
        _scatter([math.log(value) for value, _ in rows]), stats.median([e for _, e in rows])
    )


def _scatter(values: Sequence[float]) -> float:
    """Return the standard deviation of normal values from their median distance."""
    if not values:
        return 0.0
    middle = stats.median(values)
    return stats.median([abs(value - middle) for value in values]) / NORMAL_MEDIAN


def forms_toml(profiles: Sequence[MachineProfile]) -> str:
    """Return the file: where it is from, and a form for each instruction set.

    Raises
    ------
    ValueError : as ``fit_form``.
    """
    by_isa: dict[str, list[MachineProfile]] = {}
    for profile in profiles:
        by_isa.setdefault(isa_of(profile.machine.architecture), []).append(profile)
    lines = header_lines(profiles)
    for isa, mine in sorted(by_isa.items()):
        lines += ["", *form_lines(isa, fit_form(mine))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
