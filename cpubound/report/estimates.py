"""Estimates for machines that were never measured, as text and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cpubound.cost.values import MachineEstimate
from cpubound.foreign import showing
from cpubound.machine.described import DescribedMachine
from cpubound.report.tables import Table
from cpubound.units import GB, format_significant

SCHEMA = "cpubound.estimates/1"


def estimate_document(
    model: str, machine: DescribedMachine, estimates: Sequence[MachineEstimate]
) -> dict[str, Any]:
    """Return the JSON document."""
    return {
        "schema": SCHEMA,
        "model": model,
        "machine": msgspec.to_builtins(machine),
        "estimates": [msgspec.to_builtins(one) for one in estimates],
    }


def estimate_table(estimates: Sequence[MachineEstimate]) -> Table:
    """Return a row for each model and setting."""
    columns = ("model", "file type", "threads", "context", "tok/s [90 % interval]")
    return Table(
        columns=columns,
        rows=tuple(
            (
                one.model,
                one.quant_label,
                str(one.threads),
                str(one.depth_tokens),
                f"{format_significant(one.tokens_per_s)} "
                f"[{format_significant(one.low)}, {format_significant(one.high)}]",
            )
            for one in estimates
        ),
        right=frozenset({"threads", "context"}),
    )


def estimate_rows(estimates: Sequence[MachineEstimate]) -> Table:
    """Return one row for each estimate with plain numbers, for CSV."""
    columns = tuple(field for field in MachineEstimate.__struct_fields__ if field != "machine")
    rows = tuple(tuple(str(getattr(one, name)) for name in columns) for one in estimates)
    return Table(columns=columns, rows=rows)


@showing()
def machine_line(machine: DescribedMachine, cores: int) -> str:
    """Say what was understood of the words."""
    cpu = machine.cpu
    parts = ["a CPU that is not known" if cpu is None else cpu.name]
    if cpu is not None:
        parts.append(cpu.micro_architecture.title)
    if machine.sockets > 1:
        parts.append(f"{machine.sockets} sockets")
    parts.append(f"threads on {cores} cores")
    if machine.read_bytes_per_s is not None:
        parts.append(f"reads {machine.read_bytes_per_s / GB:.0f} GB/s")
    elif machine.memory is not None and machine.peak_bytes_per_s is not None:
        told = "" if machine.memory_given else ", the most it takes"
        peak = machine.peak_bytes_per_s / GB
        parts.append(f"{machine.memory.type} of {peak:.0f} GB/s at its peak{told}")
    return "Understood: " + ", ".join(parts) + "."


@showing()
def estimate_notes(machine: DescribedMachine) -> str:
    """Return what the numbers rest on, and what would narrow them most."""
    lines = [f"Note: {note}." for note in machine.notes]
    lines.append(
        "Basis: estimate, from servers of the CPU's family (benchmark data of Spare Cores, CC BY-SA"
        " 4.0); nothing was measured on that machine."
    )
    if machine.read_bytes_per_s is None:
        lines.append("A measured read bandwidth narrows it: add bandwidth=85GB/s to the words.")
    lines.append("Rows of llama-bench from it narrow it most: cpubound calibrate --from FILE.")
    return "\n".join(lines)
