"""Write ``cpubound/cost/kin.toml``: medians, variances and parameters as the package reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibrate.servers_fit import Fitted
from cpubound.cost.kin_table import KinCpu, KinModel

HEADER = """\
# Medians of seconds per token and per prompt of 512 tokens by CPU and thread count, six models at
# Q4_K_M, and what was fitted to them. Derived from the public benchmark data of Spare Cores
# (github.com/SpareCores/sc-inspector-data, snapshot of 2026-08-22): CC BY-SA 4.0, as is this file.
# Written by: python -m calibrate servers cloud-decode.csv.xz --write cpubound/cost/kin.toml
"""
SOURCE = "Spare Cores, github.com/SpareCores/sc-inspector-data, snapshot of 2026-08-22"
COMMAND = "python -m calibrate servers cloud-decode.csv.xz --write cpubound/cost/kin.toml"


def kin_table_text(
    made: str,
    cpus: Sequence[KinCpu],
    models: Mapping[str, KinModel],
    fits: Mapping[str, Fitted],
    widths: Mapping[str, Mapping[str, tuple[float, float]]],
    doubts: Mapping[str, float],
) -> str:
    """Return the file's text; the fits hold the points of the CPUs in their order."""
    lines = [
        HEADER,
        f"made = {json.dumps(made)}",
        f"source = {json.dumps(SOURCE)}",
        'license = "CC BY-SA 4.0"',
        f"command = {json.dumps(COMMAND)}",
    ]
    for kind, fitted in fits.items():
        lines += [
            "",
            f"[spread.{kind}]",
            f"levels = {_numbers(np.sqrt(fitted.spread.levels))}",
            f"server = {_numbers(np.sqrt(fitted.spread.server))}",
            f"noise = {_numbers(np.sqrt(fitted.spread.noise))}",
            f"read_error = {_number(doubts[kind] ** 0.5)}",
            f"[spread.{kind}.widths]",
            *(f"{told} = {_numbers(np.array(width))}" for told, width in widths[kind].items()),
        ]
    for name, model in models.items():
        lines += [
            "",
            f'[models."{name}"]',
            f"weight_bytes = {model.weight_bytes:.0f}.0",
            f"decode = {_numbers(np.array(model.decode), 10)}",
            f"prompt = {_numbers(np.array(model.prompt), 10)}",
        ]
    place = 0
    for cpu in cpus:
        scales = ", ".join(f"{k} = {float(f.points.scale[place]):.3g}" for k, f in fits.items())
        lines += ["", "[[cpus]]", f"kinship = {_kinship(cpu)}", f"scale = {{ {scales} }}"]
        lines.append("points = [")
        for point in cpu.points:
            fields = [
                f"threads = {point.threads}",
                f"servers = {point.servers}",
                f"read_bytes_per_s = {_number(point.read_bytes_per_s)}",
            ]
            for kind, fitted in fits.items():
                fields.append(f"{kind} = {_numbers(np.array(getattr(point, kind)))}")
                loose = _looseness(fitted, place, getattr(point, kind))
                if max(loose) > 1:
                    fields.append(f"{kind}_loose = {_numbers(np.array(loose), 3)}")
                fields.append(f"{kind}_parameters = {_numbers(fitted.parameters[place], 5)}")
            lines.append("  { " + ", ".join(fields) + " },")
            place += 1
        lines.append("]")
    return "\n".join(lines) + "\n"


def _looseness(fitted: Fitted, place: int, seconds: Sequence[float]) -> list[float]:
    """Return each model's looseness and that of the read bandwidth, 1 where there is no row."""
    mine = fitted.rows.point == place
    steps = iter(fitted.rows.looseness[mine & ~fitted.rows.is_bandwidth])
    read = list(fitted.rows.looseness[mine & fitted.rows.is_bandwidth])
    return [*(float(next(steps)) if s else 1.0 for s in seconds), float(read[0]) if read else 1.0]


def _kinship(cpu: KinCpu) -> str:
    fields = {
        "name": cpu.kinship.name,
        "micro_architecture": cpu.kinship.micro_architecture,
        "family": cpu.kinship.family,
        "architecture": cpu.kinship.architecture,
        "cluster_cores": cpu.kinship.cluster_cores,
        "is_scattered": cpu.kinship.is_scattered or None,
    }
    told = [f"{name} = {json.dumps(v)}" for name, v in fields.items() if v is not None]
    return "{ " + ", ".join(told) + " }"


def _numbers(values: Any, digits: int = 4) -> str:
    if np.ndim(values) == 0:
        return _number(float(values), digits)
    return "[" + ", ".join(_numbers(value, digits) for value in values) + "]"


def _number(value: float, digits: int = 4) -> str:
    """Write a TOML float."""
    text = f"{value:.{digits}g}"
    return text if any(mark in text for mark in ".en") else f"{text}.0"
