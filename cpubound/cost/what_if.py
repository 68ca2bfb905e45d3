"""What would change: the same prediction with other memory, file type, cache or setting.

Faster memory cannot be measured, so it comes from the law by which rates grow with threads,

    R(T) = ((K · T)^−p + B^−p)^(−1/p)

K · T is what the cores do, B what memory gives at most. Of a measured rate R the cores' part is
what B does not explain, and with memory f times as fast

    R' = (R^−p − B^−p + (f · B)^−p)^(−1/p)

A rate at the limit scales with the memory, one far below hardly moves. B and p are the law's, as
fitted to the read bandwidth; the interval covers half to twice the sharpness p.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
from msgspec import structs

from cpubound.cost.law import MemoryLaw, rate_with_memory
from cpubound.cost.predict import predict_decode
from cpubound.cost.rates import find_price, table_at
from cpubound.cost.terms import BANDS, STRIDES, attention_setting
from cpubound.cost.transfer import estimate_table
from cpubound.cost.values import Prediction
from cpubound.errors import ProfileError, UsageError
from cpubound.llama_facts import needs_flash_attn
from cpubound.model.ftype import file_type
from cpubound.model.retype import retype
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelSpec
from cpubound.profile.values import MachineProfile, RateTable
from cpubound.setting import Setting, split_kv_type
from cpubound.theory.presets import find_preset

_KINDS = ("bandwidth", "channels", "memory", "quant", "kv", "threads", "depth", "flash-attn")
# What memory may set the pace of.
_READ = ("bytes:", "experts:", "kv:", "state:")
_MAX_FACTOR = 100.0
_MAX_COUNT = 2**27
_MODULES = re.compile(r"(ddr[0-9]-[0-9]{1,6})x([0-9]{1,6})", re.IGNORECASE | re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,9}")
_DECIMAL = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,12})?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A model at a setting, about which is asked."""

    spec: ModelSpec
    setting: Setting
    memory_factor: float = 1.0


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """One change: the prediction before and after it.

    ``gain`` is the change of the rate; ``gain_low`` … ``gain_high`` spans the interval of the
    changed prediction over the rate before.
    """

    change: str
    before: Prediction
    after: Prediction
    gain: float
    gain_low: float
    gain_high: float
    note: str | None = None


def ask(profile: MachineProfile, question: Question, change: str, law: MemoryLaw) -> WhatIf:
    """Predict a model with one or more changes (``bandwidth=1.5x,threads=4``) and without.

    Raises
    ------
    UsageError : a change that is none, or a value it cannot have.
    ProfileError : a change that this profile cannot answer.
    """
    changed = question
    for part in change.split(","):
        changed = _apply(profile, changed, part.strip())
    before = _predict(profile, question)
    factor = changed.memory_factor
    after = _predict(faster_memory(profile, factor, law), changed)
    _check_measured(profile, before, after, change)
    low, high = after.low, after.high
    if factor != 1:
        for share in (0.5, 2.0):
            other = replace(law, sharpness=law.sharpness * share)
            p = _predict(faster_memory(profile, factor, other), changed)
            low, high = min(low, p.low), max(high, p.high)
    after = structs.replace(after, low=low, high=high)
    rate = before.tokens_per_s
    return WhatIf(
        change=change,
        before=before,
        after=after,
        gain=after.tokens_per_s / rate - 1,
        gain_low=low / rate - 1,
        gain_high=high / rate - 1,
        note=_note(change, before, after, factor, law),
    )


def faster_memory(profile: MachineProfile, factor: float, law: MemoryLaw) -> MachineProfile:
    """Return what a machine with memory ``factor`` times as fast would have measured."""
    if factor == 1:
        return profile

    def scale(rate: float) -> float:
        return rate_with_memory(rate, factor, law) / rate

    bandwidth = tuple(
        structs.replace(
            row, samples_s=tuple(s / scale(row.median_bytes_per_s) for s in row.samples_s)
        )
        for row in profile.bandwidth
    )
    engine = profile.engine
    if engine is not None:
        tables = tuple(_scaled(table, factor, scale) for table in engine.tables)
        engine = structs.replace(engine, tables=tables)
    return structs.replace(profile, bandwidth=bandwidth, engine=engine)


def _scaled(table: RateTable, factor: float, scale: Callable[[float], float]) -> RateTable:
    """Return a table whose bytes pass as fast as the memory lets them then."""

    def seconds(key: str, before: float) -> float:
        if key.startswith("cached@"):
            return before / factor
        is_read = key.startswith(_READ) and "@" not in key
        return before / scale(1 / before) if is_read and before > 0 else before

    after = tuple(seconds(k, s) for k, s in zip(table.keys, table.seconds, strict=True))
    return structs.replace(table, seconds=after)


def _predict(profile: MachineProfile, q: Question) -> Prediction:
    return predict_decode(profile, compute_traffic(q.spec, q.setting), q.setting.threads)


def _check_measured(
    profile: MachineProfile, before: Prediction, after: Prediction, change: str
) -> None:
    """Refuse a comparison of something measured with something that was not."""
    if after.basis != before.basis:
        raise ProfileError(
            f"the profile has no rate for {after.quant_label} ({change}): calibrate with "
            "--types and one of its tensor types"
        )
    engine = profile.engine
    table = table_at(engine.tables, before.setting.threads) if engine is not None else None
    if before.basis == "kernel":
        table = estimate_table(profile, before.setting.threads)
    if table is not None and _knows(table, before) and not _knows(table, after):
        state = "on" if after.setting.flash_attn else "off"
        keys = [key.split(":") for key in table.keys if key.startswith("attention:")]
        known = ", ".join(sorted({f"{k}:{v}" for _, k, v, *_ in keys})).lower()
        raise ProfileError(
            f"the profile has no attention rate for {':'.join(after.setting.kv_types)} "
            f"with flash-attention {state} ({change}): measured were {known}"
        )


def _knows(table: RateTable, p: Prediction) -> bool:
    """Tell whether a table prices attention with a prediction's KV types."""
    key = f"attention:{attention_setting(p.setting)}:128:{STRIDES[0][0]}:{BANDS[0][0]}"
    return find_price(table, key) is not None


def _apply(profile: MachineProfile, q: Question, change: str) -> Question:
    kind, separator, value = change.partition("=")
    kind, value = kind.strip().lower(), value.strip()
    if not separator or not value or kind not in _KINDS:
        raise UsageError(
            f"a what-if is NAME=VALUE ({change!r}): names are {', '.join(_KINDS)}; "
            "try bandwidth=1.5x"
        )
    if kind in ("bandwidth", "channels", "memory"):
        factor = _memory_factor(profile, kind, value)
        if not 1 / _MAX_FACTOR <= factor <= _MAX_FACTOR:
            raise UsageError(
                f"memory {factor:.3g} times as fast is out of range ({change}): "
                f"give a factor up to {_MAX_FACTOR:g}"
            )
        return replace(q, memory_factor=q.memory_factor * factor)
    if kind == "quant":
        return replace(q, spec=retype(q.spec, file_type(value).name))
    return replace(q, setting=_changed_setting(q.setting, kind, value, change))


def _changed_setting(setting: Setting, kind: str, value: str, change: str) -> Setting:
    if kind == "kv":
        k, v = split_kv_type(value)
        flash_attn = setting.flash_attn or needs_flash_attn(v)
        return structs.replace(setting, kv_type_k=k, kv_type_v=v, flash_attn=flash_attn)
    if kind == "threads":
        return structs.replace(setting, threads=_count(value, change, least=1))
    if kind == "depth":
        depth = _count(value, change, least=0)
        return structs.replace(setting, depth_tokens=depth, allocated_context_tokens=None)
    if value.lower() not in ("on", "off"):
        raise UsageError(f"flash-attn is on or off ({change})")
    return structs.replace(setting, flash_attn=value.lower() == "on")


def _count(value: str, change: str, *, least: int) -> int:
    if not _WHOLE.fullmatch(value) or not least <= int(value) <= _MAX_COUNT:
        raise UsageError(f"not a whole number of at least {least} ({change}): try 8")
    return int(value)


def _memory_factor(profile: MachineProfile, kind: str, value: str) -> float:
    """Return how much faster the memory would be; ``A:B`` names what is there and what would be."""
    there, separator, wanted = value.partition(":")
    if not separator:
        there, wanted = "", value
    if kind == "bandwidth":
        return _bandwidth_factor(profile, value)
    if kind == "channels":
        channels = _count(wanted, value, least=1)
        return channels / (_count(there, value, least=1) if there else _channels(profile))
    bandwidth = _module_bandwidth(wanted)
    return bandwidth / (_module_bandwidth(there) if there else _theoretical(profile))


def _bandwidth_factor(profile: MachineProfile, value: str) -> float:
    """Read ``1.5x``, or a bandwidth in GB/s beside the best that was measured."""
    text = value.lower().removesuffix("gb/s").strip()
    number = text.removesuffix("x")
    if not _DECIMAL.fullmatch(number) or float(number) == 0:
        raise UsageError(f"no bandwidth ({value}): give a factor as 1.5x, or GB/s as 80")
    if text.endswith("x"):
        return float(number)
    rates = [m.median_bytes_per_s for m in profile.measurements("read", "anon_4k").values()]
    if not rates:
        raise ProfileError("the profile has no read bandwidth: run `cpubound calibrate` again")
    return float(number) * 1e9 / max(rates)


def _module_bandwidth(text: str) -> float:
    match = _MODULES.fullmatch(text)
    if match is None:
        raise UsageError(f"no memory ({text}): give speed and channels as DDR5-6400x2")
    return find_preset(f"{match[1]}-{int(match[2])}ch").peak_bytes_per_s


def _theoretical(profile: MachineProfile) -> float:
    now = profile.machine.theoretical_bytes_per_s
    if now is None:
        raise ProfileError(
            "the profile does not know this machine's memory modules (a virtual machine, or read "
            "without root): name both as memory=DDR5-5600x2:DDR5-6400x2, or give bandwidth=1.5x"
        )
    return now


def _channels(profile: MachineProfile) -> int:
    modules = profile.machine.memory_modules
    channels = {module.channel for module in modules}
    if profile.machine.hypervisor is not None or not modules or None in channels:
        raise ProfileError(
            "the profile does not know how many memory channels are filled (a virtual machine, or "
            "read without root): name both as channels=1:2, or give bandwidth=2x"
        )
    return len(channels)


def _note(
    change: str, before: Prediction, after: Prediction, factor: float, law: MemoryLaw
) -> str | None:
    """Say why faster memory alone helps less than it is faster."""
    if factor == 1 or "," in change:
        return None
    if math.isinf(law.limit_bytes_per_s):
        return (
            "reads still grew with every thread that was measured: memory is not the limit of "
            "this profile"
        )
    gain = after.tokens_per_s / before.tokens_per_s - 1
    if abs(gain) >= 0.5 * abs(factor - 1):
        return None
    return (
        f"memory {factor:.3g} times as fast gives {after.tokens_per_s:.3g} instead of "
        f"{before.tokens_per_s:.3g} tok/s: {before.quant_label} is then limited by {after.bound}"
    )
