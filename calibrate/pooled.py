"""The held-out errors of all kept runs together, by thread count, depth and machine.

Rate tables are derived anew from each run's own probes by the present form. The basis
without llama.cpp is judged with ratios from runs of other machines, or, where only one kind
of machine was met, from the other runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from calibrate.kept_runs import (
    JudgedCell,
    KeptRun,
    judge_run,
    parse_runs,
    read_runs,
    runs_parser,
)
from calibrate.transfer import fit_transfer
from cpubound import stats
from cpubound.cost.interval import DEEP_TOKENS
from cpubound.cost.transfer import isa_of
from cpubound.report.tables import Table, render_table
from cpubound.temporary import write_file
from cpubound.units import format_percent, format_significant

CELL_COLUMNS = ("model", "threads", "depth", "KV", "fa", "predicted", "observed")
SUMMARY_COLUMNS = (
    "",
    "cells",
    "median error",
    "95th percentile",
    "bias",
    "inside",
    "median width",
    "noise",
    "bytes/bandwidth",
)


def main(argv: Sequence[str]) -> int:
    """Print every cell with its errors in all runs, and the statistics of the marks."""
    parser = runs_parser("pooled", __doc__)
    parser.add_argument("--golden", type=Path, help="write the figures that a test pins here")
    options = parse_runs(parser, argv)
    runs = read_runs(options.runs)
    if options.golden is not None:
        figures = msgspec.json.format(msgspec.json.encode(golden_figures(runs)), indent=1)
        write_file(options.golden, figures + b"\n")
    judged = [judge_run(run, sets=(options.set,)) for run in runs]
    print(render_table(cell_table(judged), "markdown"))
    print(f"\nThrough llama.cpp, set {options.set}:\n")
    print(render_table(summary_table([cell for cells in judged for cell in cells]), "markdown"))
    if len(runs) > 1:
        kernels = [cell for run in runs for cell in judge_without_engine(run, runs, options.set)]
        print(f"\nFrom our own kernels, ratios of {_others(runs)}:\n")
        print(render_table(summary_table(kernels), "markdown"))
    return 0


def judge_without_engine(run: KeptRun, runs: Sequence[KeptRun], set_name: str) -> list[JudgedCell]:
    """Predict a run's cells from our kernels, by ratios of other machines or other runs."""
    others = [other for other in runs if other.machine != run.machine]
    others = others or [other for other in runs if other is not run]
    transfer = fit_transfer([other.profile for other in others])
    alone = msgspec.structs.replace(run.profile, engine=None)
    isa = isa_of(run.profile.machine.architecture)
    return judge_run(run, alone, {isa: transfer}, (set_name,))


def golden_figures(runs: Sequence[KeptRun]) -> dict[str, dict[str, float]]:
    """Return the figures of the judged set that a test pins, by run, thread count and basis."""
    judged = [cell for run in runs for cell in judge_run(run, sets=("judged",))]
    groups = {name: list(cells) for name, cells in _groups(judged).items()}
    if len(runs) > 1:
        groups["without llama.cpp"] = [
            cell for run in runs for cell in judge_without_engine(run, runs, "judged")
        ]
    return {
        name: {figure: round(value, 4) for figure, value in _figures(cells).items()}
        for name, cells in groups.items()
    }


def _figures(cells: Sequence[JudgedCell]) -> dict[str, float]:
    absolute = [abs(cell.error) for cell in cells]
    return {
        "cells": float(len(cells)),
        "median_abs_error": stats.median(absolute),
        "p95_abs_error": stats.quantile(absolute, 0.95),
        "bias": stats.median([cell.error for cell in cells]),
        "inside": sum(cell.is_inside for cell in cells) / len(cells),
        "median_width": stats.median([cell.width for cell in cells]),
    }


def _others(runs: Sequence[KeptRun]) -> str:
    kinds = {run.machine for run in runs}
    return "the other runs (one kind of machine)" if len(kinds) == 1 else "other machines"


def cell_table(judged: Sequence[Sequence[JudgedCell]]) -> Table:
    """Return a row for each cell: the last run, and the error in each; * marks one outside."""
    rows: dict[tuple[str, ...], list[JudgedCell]] = {}
    for cells in judged:
        for one in cells:
            rows.setdefault(_key(one), []).append(one)
    most = max((len(row) for row in rows.values()), default=0)
    errors = tuple(f"error, run {number}" for number in range(1, most + 1))
    return Table(
        columns=(*CELL_COLUMNS, *errors),
        rows=tuple((*key, *_last(row), *_errors(row, most)) for key, row in rows.items()),
        right=frozenset({"threads", "depth", "observed", *errors}),
    )


def _key(judged: JudgedCell) -> tuple[str, ...]:
    cell = judged.cell
    flash = "on" if cell.flash_attn else "off"
    model = f"{cell.model} (trained)" if cell.is_real else cell.model
    return (model, str(cell.threads), str(cell.depth_tokens), cell.kv_type_k, flash)


def _last(row: Sequence[JudgedCell]) -> tuple[str, str]:
    p, cell = row[-1].prediction, row[-1].cell
    predicted = (
        f"{format_significant(p.tokens_per_s)} "
        f"[{format_significant(p.low)}, {format_significant(p.high)}]"
    )
    return predicted, format_significant(cell.observed_tokens_per_s)


def _errors(row: Sequence[JudgedCell], most: int) -> list[str]:
    texts = [format_percent(one.error) + ("" if one.is_inside else " *") for one in row]
    return texts + ["–"] * (most - len(texts))


def summary_table(judged: Sequence[JudgedCell]) -> Table:
    """Return the statistics of each run, thread count, depth group and machine, and of all."""
    groups = _groups(judged)
    order = sorted(groups, key=lambda name: (name == "all", name.startswith("machine"), name))
    return Table(
        columns=SUMMARY_COLUMNS,
        rows=tuple(_summary(name, groups[name]) for name in order),
        right=frozenset(SUMMARY_COLUMNS[1:]),
    )


def _groups(judged: Sequence[JudgedCell]) -> dict[str, list[JudgedCell]]:
    groups: dict[str, list[JudgedCell]] = {}
    for one in judged:
        threads = one.cell.threads
        depth = "shallow" if one.cell.depth_tokens < DEEP_TOKENS else "deep"
        for name in (
            one.run,
            f"{threads} thread{'s' if threads > 1 else ''}",
            f"{threads} thread{'s' if threads > 1 else ''}, {depth}",
            f"machine {one.machine}",
            "all",
        ):
            groups.setdefault(name, []).append(one)
    return groups


def _summary(name: str, cells: Sequence[JudgedCell]) -> tuple[str, ...]:
    figures = _figures(cells)
    noise = [c.cell.noise_floor for c in cells if c.cell.noise_floor is not None]
    naive = [
        abs(c.prediction.ceiling_tokens_per_s / c.cell.observed_tokens_per_s - 1) for c in cells
    ]
    return (
        name,
        str(len(cells)),
        f"{figures['median_abs_error'] * 100:.1f} %",
        f"{figures['p95_abs_error'] * 100:.1f} %",
        format_percent(figures["bias"]),
        f"{figures['inside'] * 100:.0f} %",
        f"{figures['median_width'] * 100:.0f} %",
        f"{stats.median(noise) * 100:.1f} %" if noise else "–",
        f"{stats.median(naive) * 100:.1f} %",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
