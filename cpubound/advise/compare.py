"""Two profiles side by side: what differs, whether it is more than noise, what it means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import product

import msgspec

from cpubound.cost.rates import (
    Rate,
    attention_rate,
    measured_attention,
    measured_types,
    weight_rate,
)
from cpubound.cost.values import Prediction
from cpubound.machine.values import Machine, MemoryModule
from cpubound.profile.values import EngineCalibration, MachineProfile
from cpubound.setting import Setting
from cpubound.units import format_binary_bytes

# Rates are compared at one row length, that of a common hidden size.
ROW_LENGTH = 4096
# Two-sided 90 % of a normal distribution, as intervals are.
_NORMAL_90 = 1.645


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the machine, the engine or the profile that is not the same in both."""

    field: str
    a: str
    b: str


class RateDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One measured rate in both; ``beyond_noise`` where the change is larger than both errors."""

    what: str
    threads: int
    a_bytes_per_s: float
    b_bytes_per_s: float
    change: float  # b / a − 1
    beyond_noise: bool


class ModelDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One model predicted on both; ``beyond_intervals`` where the intervals do not touch."""

    a: Prediction
    b: Prediction
    change: float
    beyond_intervals: bool


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What ``compare`` found."""

    same_machine: bool
    same_engine: bool
    identity: tuple[Difference, ...]
    noise_a: float
    noise_b: float
    rates: tuple[RateDifference, ...]
    models: tuple[ModelDifference, ...]


def compare_profiles(
    a: MachineProfile, b: MachineProfile, models: Iterable[tuple[Prediction, Prediction]] = ()
) -> Comparison:
    """Compare two profiles; ``models`` are predictions of the same models on each."""
    hardware = _differences(_hardware(a.machine), _hardware(b.machine))
    engine = _differences(_engine(a.engine), _engine(b.engine))
    state = _differences(_state(a), _state(b))
    return Comparison(
        same_machine=not hardware,
        same_engine=not engine,
        identity=(*hardware, *engine, *state),
        noise_a=a.noise.spread,
        noise_b=b.noise.spread,
        rates=(*_bandwidths(a, b), *_engine_rates(a, b), *_attention_rates(a, b)),
        models=tuple(_model(first, second) for first, second in models),
    )


def _differences(a: Mapping[str, object], b: Mapping[str, object]) -> tuple[Difference, ...]:
    return tuple(
        Difference(field=name, a=_text(a[name]), b=_text(b[name]))
        for name in a
        if a[name] != b[name]
    )


def _text(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _hardware(machine: Machine) -> dict[str, object]:
    """Return what makes a machine another one."""
    return {
        "CPU": machine.cpu_model,
        "architecture": machine.architecture,
        "cores": machine.physical_cores,
        "logical CPUs": len(machine.logical_cpus),
        "instructions": " ".join(sorted(machine.isa_flags)),
        "caches": " ".join(
            f"L{c.level}:{c.instances}×{format_binary_bytes(c.size_bytes)}"
            for c in machine.caches
            if c.size_bytes and c.type != "instruction"
        ),
        "memory": format_binary_bytes(machine.memory_bytes) if machine.memory_bytes else None,
        "memory modules": " ".join(_module(m) for m in machine.memory_modules) or None,
        "NUMA nodes": len(machine.numa_nodes),
    }


def _module(module: MemoryModule) -> str:
    speed = module.transfers_per_s
    return f"{module.type or '?'}-{speed // 10**6}" if speed else module.type or "?"


def _engine(engine: EngineCalibration | None) -> dict[str, object]:
    if engine is None:
        return dict.fromkeys(("engine", "build", "features"))
    return {
        "engine": f"{engine.name} {engine.version}",
        "build": engine.build,
        "features": " ".join(engine.features),
    }


def _state(profile: MachineProfile) -> dict[str, object]:
    """Return what may change from day to day on one machine."""
    machine = profile.machine
    return {
        "operating system": machine.operating_system,
        "effective CPUs": machine.effective_cpus,
        "quota": machine.quota_cpus,
        "huge pages": machine.transparent_huge_pages,
        "governor": machine.governor,
        "boost": machine.boost,
        "energy preference": machine.energy_preference,
        "platform profile": machine.platform_profile,
        "on battery": machine.on_battery,
        "hypervisor": machine.hypervisor,
        "noise": f"{profile.noise.verdict} (±{profile.noise.spread * 100:.0f} %)",
        "made": profile.created,
        "by cpubound": profile.cpubound_version,
    }


def _bandwidths(a: MachineProfile, b: MachineProfile) -> list[RateDifference]:
    """Compare every kernel and page kind at the thread counts that both have."""
    keys = dict.fromkeys((m.kernel, m.page_kind) for m in a.bandwidth)
    noise = math.hypot(a.noise.spread, b.noise.spread)
    found = []
    for kernel, page_kind in keys:
        mine, theirs = (p.measurements(kernel, page_kind) for p in (a, b))
        for threads in sorted(set(mine) & set(theirs)):
            rates = (mine[threads].median_bytes_per_s, theirs[threads].median_bytes_per_s)
            found.append(_rate(f"{kernel}, {page_kind} pages", threads, *rates, noise))
    return found


def _engine_rates(a: MachineProfile, b: MachineProfile) -> list[RateDifference]:
    """Compare llama.cpp's rates of the types and thread counts that both measured."""
    if a.engine is None or b.engine is None:
        return []
    types = set(measured_types(a.engine)) & set(measured_types(b.engine))
    counts = set(a.engine.threads) & set(b.engine.threads)
    found = []
    for name in sorted(types):
        for threads in sorted(counts):
            first, second = (
                weight_rate(engine, name, ROW_LENGTH, threads) for engine in (a.engine, b.engine)
            )
            found += _pair(a, b, f"llama.cpp {name}", threads, first, second)
    return found


def _attention_rates(a: MachineProfile, b: MachineProfile) -> list[RateDifference]:
    if a.engine is None or b.engine is None:
        return []
    settings = set(measured_attention(a.engine)) & set(measured_attention(b.engine))
    counts = set(a.engine.threads) & set(b.engine.threads)
    found = []
    for (k, v, flash, head_dim), threads in product(sorted(settings), sorted(counts)):
        setting = Setting(
            threads=threads, kv_type_k=k.lower(), kv_type_v=v.lower(), flash_attn=flash
        )
        first, second = (
            attention_rate(engine, setting, head_dim) for engine in (a.engine, b.engine)
        )
        what = f"attention {k}:{v}, flash-attn {'on' if flash else 'off'}, heads of {head_dim}"
        found += _pair(a, b, what, threads, first, second)
    return found


def _pair(
    a: MachineProfile,
    b: MachineProfile,
    what: str,
    threads: int,
    first: Rate | None,
    second: Rate | None,
) -> list[RateDifference]:
    if first is None or second is None:
        return []
    noise = math.hypot(
        a.noise.spread,
        b.noise.spread,
        _NORMAL_90 * first.relative_error,
        _NORMAL_90 * second.relative_error,
    )
    return [_rate(what, threads, first.bytes_per_s, second.bytes_per_s, noise)]


def _rate(what: str, threads: int, a: float, b: float, noise: float) -> RateDifference:
    return RateDifference(
        what=what,
        threads=threads,
        a_bytes_per_s=a,
        b_bytes_per_s=b,
        change=b / a - 1,
        beyond_noise=abs(math.log(b / a)) > noise,
    )


def _model(a: Prediction, b: Prediction) -> ModelDifference:
    return ModelDifference(
        a=a,
        b=b,
        change=b.tokens_per_s / a.tokens_per_s - 1,
        beyond_intervals=a.low > b.high or b.low > a.high,
    )
