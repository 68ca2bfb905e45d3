"""What was seen of a probe at one setting, and the record of it that a profile keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cpubound.measuring.probes import Probe, ProbeCell, probe_traffic
from cpubound.profile.values import REFERENCE_QUERY_HEADS, ProbeRun


@dataclass(kw_only=True)
class MeasuredCell:
    """One (probe, setting, threads) with what was seen of it so far."""

    probe: Probe
    setting: ProbeCell
    threads: int
    tokens: int
    runs_s: list[tuple[float, ...]] = field(default_factory=list)
    references: list[float] = field(default_factory=list)

    @property
    def samples_s(self) -> tuple[float, ...]:
        return tuple(sample for run in self.runs_s for sample in run)

    def record(self) -> ProbeRun:
        """Return what the probe moved and every token's (or prompt's) time."""
        traffic = probe_traffic(self.probe, self.setting, self.tokens)
        flash_attn = self.setting.flash_attn
        return ProbeRun(
            probe=self.probe.name,
            type=self.probe.type,
            threads=self.threads,
            depth_tokens=self.setting.depth_tokens,
            kv_type_k=self.setting.kv_type_k,
            kv_type_v=self.setting.kv_type_v,
            flash_attn=flash_attn,
            matrices=_as_rows(traffic.bytes_by_columns("matmul")),
            kv_bytes=traffic.kv_touched_bytes if flash_attn else traffic.kv_read_bytes,
            products=traffic.matrix_products,
            samples_s=self.samples_s,
            reference_bytes_per_s=tuple(self.references),
            experts=_as_rows(traffic.bytes_by_columns("experts")),
            expert_layers=traffic.expert_layers,
            state_kind=traffic.state_kind,
            state_bytes=traffic.state_read_bytes + traffic.state_write_bytes,
            prompt_tokens=self.setting.prompt_tokens,
            is_batch=self.probe.is_batch,
            head_dim=max((read.head_dim_k for read in traffic.attention), default=0),
            query_heads=max(
                (read.query_heads for read in traffic.attention), default=REFERENCE_QUERY_HEADS
            ),
            attention_operations=traffic.batch * traffic.attention_operations,
        )


def _as_rows(by_place: Mapping[tuple[str, int], int]) -> tuple[tuple[str, int, int], ...]:
    return tuple((name, columns, n_bytes) for (name, columns), n_bytes in by_place.items())
