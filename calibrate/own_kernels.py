"""The held-out error of predictions from our own kernels alone (basis ``kernel``).

Reads what ``accuracy --out FOLDER`` left. Each profile predicts its cells without its engine
stage, by how llama.cpp stood to our kernels in the other calibrations.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from calibrate.accuracy import Group, load_groups, predict_without_engine
from calibrate.kept_runs import Run, parse_folders, read_runs
from calibrate.kernel_form import fit_form
from cpubound import stats
from cpubound.cost.estimated_engine import isa_of
from cpubound.cost.kernel_form import KernelForm
from cpubound.cost.values import Prediction
from cpubound.model.resolve import resolve_model
from cpubound.profile.values import MachineProfile
from cpubound.report.tables import Table, render_table
from cpubound.units import format_percent
from cpubound.validation.cells import tokens_for


def main(argv: Sequence[str]) -> int:
    """Print a row for each run, thread count and group of cells, and one for all."""
    options = parse_folders("own_kernels", __doc__, argv)
    runs = [run for folder in options.folders for run in read_runs(folder)]
    if len(runs) < 2:
        print("one calibration cannot be judged by another: give two runs", file=sys.stderr)
        return 2
    judged = judge_runs(runs, load_groups(options.groups, options.real))
    print(render_table(error_table(judged), "markdown"))
    return 0


def judge_runs(
    runs: Sequence[Run], groups: Sequence[Group]
) -> dict[str, list[tuple[Prediction, float]]]:
    """Return predictions beside what was observed, by run, thread count and group, and all."""
    by_kind: list[dict[str, list[tuple[Prediction, float]]]] = [{}, {}, {}, {}]
    for run in runs:
        others = [other.profile for other in runs if other is not run]
        forms = {isa_of(run.profile.machine.architecture): fit_form(others)}
        observed = iter(run.observed)
        for group in groups:
            for prediction in predict_group(run.profile, group, forms):
                pair = prediction, next(observed)
                names = (run.name, f"T = {prediction.threads}", _name(group), "all")
                for rows, name in zip(by_kind, names, strict=True):
                    rows.setdefault(name, []).append(pair)
    return {name: pairs for rows in by_kind for name, pairs in sorted(rows.items())}


def predict_group(
    profile: MachineProfile, group: Group, forms: Mapping[str, KernelForm]
) -> list[Prediction]:
    """Predict a group's cells, in the experiment's order, from our kernels by these forms."""
    found = []
    for model in group.models:
        spec = resolve_model(model)
        for setting in group.settings(profile.machine.effective_cpus):
            first = predict_without_engine(profile, spec, setting, 0, forms)
            tokens = tokens_for(first.seconds.total)
            found.append(predict_without_engine(profile, spec, setting, tokens, forms))
    return found


def error_table(rows: Mapping[str, Sequence[tuple[Prediction, float]]]) -> Table:
    """Return the errors and the interval of predictions beside what was observed (tok/s)."""
    cells = []
    for name, pairs in rows.items():
        errors = [p.tokens_per_s / observed - 1 for p, observed in pairs]
        absolute = [abs(error) for error in errors]
        inside = sum(p.low <= observed <= p.high for p, observed in pairs) / len(pairs)
        width = stats.median([(p.high - p.low) / p.tokens_per_s for p, _ in pairs])
        cells.append(
            (
                name,
                str(len(pairs)),
                f"{stats.median(absolute) * 100:.1f} %",
                f"{stats.quantile(absolute, 0.95) * 100:.1f} %",
                format_percent(stats.median(errors)),
                f"{inside * 100:.0f} %",
                f"{width * 100:.0f} %",
            )
        )
    columns = ("", "cells", "median error", "95th percentile", "bias", "inside", "median width")
    return Table(columns=columns, rows=tuple(cells), right=frozenset(columns[1:]))


def _name(group: Group) -> str:
    depth = f", {min(group.depths)} … {max(group.depths)} tokens" if any(group.depths) else ""
    more = " …" if len(group.models) > 1 else ""
    return f"{Path(group.models[0]).name}{more}{depth}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
