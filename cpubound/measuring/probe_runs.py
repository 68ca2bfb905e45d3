"""What was seen of a probe at one setting, and the record of it that a profile keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from cpubound.cost.terms import Grid
from cpubound.measuring.probes import Probe, ProbeCell, probe_terms, probe_traffic
from cpubound.profile.values import ProbeRun


@dataclass(kw_only=True)
class MeasuredCell:
    """One cell of a probe at a thread count with what was seen of it so far."""

    probe: Probe
    cell: ProbeCell
    threads: int
    tokens: int
    grid: Grid
    runs_s: list[tuple[float, ...]] = field(default_factory=list)
    references: list[float] = field(default_factory=list)

    @cached_property
    def turn_bytes(self) -> int:
        """Bytes that a token of it reads: what it pushes out of the caches in its turn."""
        traffic = probe_traffic(self.probe, self.cell, self.tokens)
        return traffic.weights_read_bytes + traffic.kv_read_bytes

    @property
    def samples_s(self) -> tuple[float, ...]:
        return tuple(sample for run in self.runs_s for sample in run)

    def record(self) -> ProbeRun:
        """Return the equation's amounts and every token's (or prompt's) time."""
        setting = self.cell.setting
        return ProbeRun(
            probe=self.probe.name,
            type=self.probe.type,
            threads=self.threads,
            depth_tokens=setting.depth_tokens,
            kv_type_k=setting.kv_type_k,
            kv_type_v=setting.kv_type_v,
            flash_attn=setting.flash_attn,
            terms=probe_terms(self.probe, self.cell, self.tokens, self.grid),
            samples_s=self.samples_s,
            reference_bytes_per_s=tuple(self.references),
            takes_turns=self.cell.takes_turns,
            prompt_tokens=self.cell.prompt_tokens,
        )
