"""Machines by name, from ``presets.toml``: published peaks, measured bandwidth apart."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from cpubound.errors import UsageError
from cpubound.package_data import read_toml
from cpubound.theory.budget import Roofs, memory_bandwidth, require_positive

DEFAULT_CHANNELS = 2
MAX_CHANNELS = 24
_MODULES = "modules"
_MODULE_NAME = re.compile(r"(ddr[0-9])-([0-9]{1,6})(?:-([0-9]{1,6})ch)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """What is published of a machine; ``sources`` says where each value is from.

    ``flops_per_s`` holds dense peaks by precision; what no source gives is absent or None.
    """

    name: str
    title: str
    peak_bytes_per_s: float
    measured_bytes_per_s: float | None = None
    memory_bytes: float | None = None
    flops_per_s: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def peak_flops(self, precision: str) -> float | None:
        """Return the dense peak at a precision, None where no peak is published at all.

        Raises ``UsageError`` for a precision that this machine does not list.
        """
        if not self.flops_per_s:
            return None
        if precision not in self.flops_per_s:
            raise UsageError(
                f"no peak of {self.name} is known at this precision ({precision}): give one of "
                f"{', '.join(self.flops_per_s)}, or --peak-flops"
            )
        return self.flops_per_s[precision]

    def roofs(self, precision: str = "bf16") -> Roofs:
        """Return the two ceilings as published."""
        return Roofs(bytes_per_s=self.peak_bytes_per_s, flops_per_s=self.peak_flops(precision))


def preset_names() -> tuple[str, ...]:
    """Return the names of all machines, without the memory modules by speed."""
    return tuple(name for name in _data() if name != _MODULES)


def find_preset(name: str) -> Preset:
    """Find a machine by name (any case), or memory modules as ``ddr5-5600`` or ``ddr4-3200-4ch``.

    Raises ``UsageError`` that names the nearest ones.
    """
    wanted = name.strip().lower()
    if wanted != _MODULES and wanted in _data():
        return _preset(wanted, _data()[wanted])
    module = _MODULE_NAME.fullmatch(wanted)
    if module is not None and module[1] in _data()[_MODULES]:
        return _module_preset(wanted, module[1], int(module[2]), int(module[3] or DEFAULT_CHANNELS))
    raise UsageError(f"no machine of this name ({name}): {_nearest(wanted)}")


def _preset(name: str, row: Mapping[str, Any]) -> Preset:
    return Preset(
        name=name,
        title=row["title"],
        peak_bytes_per_s=row["peak"],
        measured_bytes_per_s=row.get("measured"),
        memory_bytes=row.get("memory"),
        flops_per_s=dict(row.get("flops", {})),
        sources=dict(row["source"]),
    )


def _module_preset(name: str, kind: str, speed: int, channels: int) -> Preset:
    row = _data()[_MODULES][kind]
    if speed not in row["speeds"]:
        speeds = ", ".join(str(known) for known in row["speeds"])
        raise UsageError(f"no {kind.upper()} of this speed ({speed}): give one of {speeds}")
    require_positive("a number of channels", channels)
    if channels > MAX_CHANNELS:
        raise UsageError(f"too many channels ({channels}): give at most {MAX_CHANNELS}")
    return Preset(
        name=name,
        title=f"{kind.upper()}-{speed}, {channels} channel{'s' if channels > 1 else ''}",
        peak_bytes_per_s=memory_bandwidth(speed * 1e6, channels),
        sources={"peak": row["source"]},
    )


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, preset_names(), n=4, cutoff=0.4)
    near = near or [known for known in preset_names() if name.partition("-")[0] in known][:4]
    if near:
        return f"did you mean {', '.join(near)}?"
    return f"give mine, one of {', '.join(preset_names())}, or memory as ddr5-5600-2ch"


@cache
def _data() -> Mapping[str, Any]:
    return read_toml("theory", "presets.toml")
