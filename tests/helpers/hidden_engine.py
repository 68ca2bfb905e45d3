"""An engine whose seconds follow from a hidden rate table, and the probes that it is asked for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from cpubound.engine.values import RunSettings
from cpubound.measuring.plan import Plan
from cpubound.measuring.probes import (
    Probe,
    ProbeCell,
    plan_probes,
    probe_grid,
    probe_terms,
    probe_traffic,
)
from cpubound.model.values import ModelSpec
from cpubound.units import MIB

LAST_LEVEL = 32 * MIB
UNIT_S = {
    "bytes": 1 / 25e9,
    "rows": 5e-9,
    "experts": 1 / 22e9,
    "attention": 1 / 15e9,
    "kv": 1 / 30e9,
    "prompt": 1 / 90e9,
    "state": 1 / 9e9,
    "product": 5e-6,
    "token": 9e-5,
    "cached": -1 / 120e9,
}


def hidden_seconds(key: str, threads: int) -> float:
    """What a unit costs in the fake engine: every key another, costs more with more threads."""
    kind, _, number = key.partition("@")
    unit = UNIT_S[kind.partition(":")[0]]
    if number and not key.startswith("cached"):
        unit *= max(1.0, int(number) / 4)
    differs = 0.8 + 0.4 * hashlib.sha256(key.encode()).digest()[0] / 255
    is_cost = key in ("product", "token")
    return unit * differs * (1 + 0.3 * (threads - 1) if is_cost else 1 / threads)


@dataclass(kw_only=True)
class Lab:
    """A plan's probes, an engine of hidden seconds for them, a disk and a clock.

    Each time the stage shows its progress, a second has passed.
    """

    plan: Plan
    size: int = 16 * MIB
    last_level: int | None = LAST_LEVEL
    has_caches: bool = True
    written: list[str] = field(default_factory=list)
    most: int = 0
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.probes = plan_probes(self.plan, self.size, self.last_level)
        self.by_file = {probe.file_name: probe for probe in self.probes}
        self.grid = probe_grid(self.plan, self.probes)
        if not self.has_caches:
            self.grid = self.grid._replace(cached_bytes=())

    def seconds_of(self, settings: RunSettings) -> float:
        probe, cell = self.asked_for(settings)
        terms = probe_terms(probe, cell, settings.tokens, self.grid)
        return sum(n * hidden_seconds(key, settings.setting.threads) for key, n in terms.items())

    def bytes_of(self, settings: RunSettings) -> int:
        """Return what a token of a probe reads."""
        traffic = probe_traffic(*self.asked_for(settings), settings.tokens)
        return traffic.weights_read_bytes + traffic.kv_read_bytes

    def asked_for(self, settings: RunSettings) -> tuple[Probe, ProbeCell]:
        """Return the probe and the cell that a request is of."""
        probe = self.by_file[Path(settings.model_path).name]
        asked = structs.replace(settings.setting, threads=1, allocated_context_tokens=None)
        cell = next(
            c
            for c in probe.cells
            if (c.setting, c.prompt_tokens) == (asked, settings.prompt_tokens)
        )
        return probe, cell

    def write(self, spec: ModelSpec, path: Path) -> None:
        path.write_bytes(b"x")
        self.written.append(path.name)
        self.most = max(self.most, len(list(path.parent.iterdir())))

    def monotonic(self) -> float:
        return self.now_s

    def show(self, stage: str, share: float) -> None:
        assert 0 <= share <= 1
        self.now_s += 1.0
