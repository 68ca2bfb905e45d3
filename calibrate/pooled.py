"""The held-out errors of several runs of ``accuracy`` together, by the present form.

Reads what ``accuracy --out FOLDER`` left: each profile's rates are derived again from its own
probes, and its predictions held beside what was observed after it. Columns beside them say
what simpler rules make of the same cells.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations

from calibrate.ablation import FORMS, refit
from calibrate.accuracy import CELL_COLUMNS, Group, cell_fields, load_groups
from calibrate.kept_runs import Run, parse_folders, predict_cells, read_runs
from calibrate.own_kernels import judge_runs
from cpubound import stats
from cpubound.cost.rates import read_bandwidth
from cpubound.cost.values import Prediction
from cpubound.profile.values import MachineProfile
from cpubound.report.tables import Table, render_table
from cpubound.units import format_percent, format_significant


@dataclass(frozen=True, kw_only=True)
class PooledCell:
    """One cell of one run: what each rule says of it, and what was seen (tok/s)."""

    prediction: Prediction
    observed: float
    paired_error: float | None
    noise: float | None
    naive_error: float
    file_size_error: float  # file size over the machine's peak bandwidth
    kernel_error: float | None  # our own kernels alone, None with one run only
    roofline_error: float | None  # llama-roofline's fit, None without it or where it says nothing

    @property
    def error(self) -> float:
        return self.prediction.tokens_per_s / self.observed - 1

    @property
    def is_inside(self) -> bool:
        return self.prediction.low <= self.observed <= self.prediction.high

    @property
    def relative_width(self) -> float:
        return (self.prediction.high - self.prediction.low) / self.prediction.tokens_per_s


def main(argv: Sequence[str]) -> int:
    """Print every cell with its errors in all runs, and the statistics of the marks."""
    options = parse_folders("pooled", __doc__, argv)
    groups = load_groups(options.groups, options.real)
    runs = [run for folder in options.folders for run in read_runs(folder)]
    pooled = pool(runs, groups)
    print(render_table(cell_table(pooled), "markdown"))
    print()
    print(render_table(summary_table(pooled), "markdown"))
    return 0


def pool(runs: Sequence[Run], groups: Sequence[Group]) -> list[list[PooledCell]]:
    """Return each run's cells, in the experiment's order."""
    kernels = judge_runs(runs, groups) if len(runs) > 1 else {}
    pooled = []
    for run in runs:
        profile = refit(run.profile, FORMS[0])
        predictions = list(predict_cells(profile, groups))
        alone = [p.tokens_per_s for p, _ in kernels[run.name]] if kernels else None
        fitted = _roofline_bandwidth(predictions, run.observed)
        peak = _peak(profile)
        cells = []
        for place, (prediction, observed, seen) in enumerate(
            zip(predictions, run.observed, run.seen, strict=True)
        ):
            cells.append(
                PooledCell(
                    prediction=prediction,
                    observed=observed,
                    paired_error=seen.get("paired_error"),
                    noise=seen.get("noise_floor"),
                    naive_error=prediction.ceiling_tokens_per_s / observed - 1,
                    file_size_error=peak / prediction.file_bytes / observed - 1,
                    kernel_error=None if alone is None else alone[place] / observed - 1,
                    roofline_error=None
                    if fitted is None or prediction.threads != profile.machine.effective_cpus
                    else fitted / prediction.file_bytes / observed - 1,
                )
            )
        pooled.append(cells)
    return pooled


def _peak(profile: MachineProfile) -> float:
    """Return the machine's bandwidth as its memory modules say it, else the most that was read."""
    theory = profile.machine.theoretical_bytes_per_s
    counts = profile.measurements("read", "anon_4k")
    measured = [read_bandwidth(profile, threads) or 0.0 for threads in counts]
    return theory or max(measured)


def _roofline_bandwidth(
    predictions: Sequence[Prediction], observed: Sequence[float]
) -> float | None:
    """Fit llama-roofline's bandwidth to the cells it is for; None where it is not installed.

    Dense models with an empty cache, at the thread count that decodes each fastest. It
    predicts those cells in sample.
    """
    if find_spec("llama_roofline") is None:
        return None
    best: dict[tuple[str, str], tuple[float, float]] = {}
    for p, rate in zip(predictions, observed, strict=True):
        is_dense = p.bytes_per_token > 0.7 * p.file_bytes
        if p.depth_tokens == 0 and is_dense:
            key = (p.model, p.quant_label)
            best[key] = max(best.get(key, (0.0, 0.0)), (rate, float(p.file_bytes)))
    roofline = import_module("llama_roofline.roofline")
    fit = roofline.fit_through_origin([b for _, b in best.values()], [r for r, _ in best.values()])
    return float(fit["bw_eff_bytes_s"])


def cell_table(pooled: Sequence[Sequence[PooledCell]]) -> Table:
    """Return a row for each cell: the last run, and the error in each; * marks one outside."""
    rows = []
    for seen in zip(*pooled, strict=True):
        rows.append(
            (
                *cell_fields(seen[-1].prediction),
                format_significant(seen[-1].observed),
                *(format_percent(c.error) + ("" if c.is_inside else " *") for c in seen),
            )
        )
    errors = tuple(f"error, run {number}" for number in range(1, len(pooled) + 1))
    return Table(
        columns=(*CELL_COLUMNS, "observed", *errors),
        rows=tuple(rows),
        right=frozenset({"threads", "depth", "observed", *errors}),
    )


def summary_table(pooled: Sequence[Sequence[PooledCell]]) -> Table:
    """Return the statistics of each run, of each thread count, and of all."""
    flat = [cell for cells in pooled for cell in cells]
    counts = sorted({cell.prediction.threads for cell in flat})
    rows = [_summary(f"run {n}", [cells]) for n, cells in enumerate(pooled, 1)]
    rows += [
        _summary(
            f"{threads} thread{'s' if threads > 1 else ''}",
            [[c for c in cells if c.prediction.threads == threads] for cells in pooled],
        )
        for threads in counts
    ]
    rows.append(_summary("all", pooled))
    columns = (
        "",
        "cells",
        "median error",
        "95th percentile",
        "bias",
        "inside",
        "median width",
        "another run",
        "noise",
        "paired",
        "own kernels",
        "bytes/bandwidth",
        "file size/peak",
        "llama-roofline",
    )
    return Table(columns=columns, rows=tuple(rows), right=frozenset(columns[1:]))


def _summary(name: str, runs: Sequence[Sequence[PooledCell]]) -> tuple[str, ...]:
    cells = [cell for run in runs for cell in run]

    def median_of(value: Callable[[PooledCell], float | None]) -> str:
        known = [abs(v) for v in map(value, cells) if v is not None]
        return f"{stats.median(known) * 100:.1f} %" if known else "–"

    distances = run_distances(runs)
    return (
        name,
        str(len(cells)),
        median_of(lambda c: c.error),
        f"{stats.quantile([abs(c.error) for c in cells], 0.95) * 100:.1f} %",
        format_percent(stats.median([c.error for c in cells])),
        f"{sum(c.is_inside for c in cells) / len(cells) * 100:.0f} %",
        f"{stats.median([c.relative_width for c in cells]) * 100:.0f} %",
        f"{stats.median(distances) * 100:.1f} %" if distances else "–",
        median_of(lambda c: c.noise),
        median_of(lambda c: c.paired_error),
        median_of(lambda c: c.kernel_error),
        median_of(lambda c: c.naive_error),
        median_of(lambda c: c.file_size_error),
        median_of(lambda c: c.roofline_error),
    )


def run_distances(runs: Sequence[Sequence[PooledCell]]) -> list[float]:
    """Return how far each cell's observation in one run is from that in another, relative."""
    return [
        abs(a.observed / b.observed - 1)
        for first, second in combinations(runs, 2)
        for a, b in zip(first, second, strict=True)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
