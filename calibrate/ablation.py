"""What each term of the form buys: held-out errors with it and without it.

Each form is fitted to the probes of every kept run again and judged on the same
observations: those of the development set, unless another is named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from calibrate.kept_runs import JudgedCell, KeptRun, judge_run, parse_runs, read_runs, runs_parser
from cpubound import stats
from cpubound.cost.engine_rates import derive_tables
from cpubound.profile.values import ProbeRun, RateTable
from cpubound.report.tables import Table, render_table
from cpubound.units import format_percent


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form of the model: the keys it has no term for, and those it takes for others."""

    name: str
    forgets: tuple[str, ...] = ()
    takes: Callable[[str], str] = lambda key: key

    def terms(self, run: ProbeRun) -> dict[str, float]:
        """Return a probe's equation in this form."""
        sums: dict[str, float] = {}
        for key, amount in run.terms.items():
            if not key.startswith(self.forgets) or not self.forgets:
                taken = self.takes(key)
                sums[taken] = sums.get(taken, 0.0) + amount
        return sums

    def table(self, fitted: RateTable, keys: Sequence[str]) -> RateTable:
        """Return the fitted table under the keys that predictions ask for."""
        by_key = fitted.by_key
        known = [key for key in keys if self.takes(key) in by_key]
        dropped = [key for key in keys if self.forgets and key.startswith(self.forgets)]
        return RateTable(
            threads=fitted.threads,
            keys=(*known, *dropped),
            seconds=(*(by_key[self.takes(key)] for key in known), *(0.0 for _ in dropped)),
            relative_errors=(
                *(fitted.relative_error_of(self.takes(key)) for key in known),
                *(0.0 for _ in dropped),
            ),
            residuals=fitted.residuals,
        )


def _one_stride(key: str) -> str:
    return key.replace(":slim:", ":wide:")


def _one_band(key: str) -> str:
    return key.replace(":deep", ":near").replace(":far", ":near")


def _experts_as_dense(key: str) -> str:
    return key.replace("experts:MXFP4", "experts:Q4_0").replace("experts:", "bytes:")


FORMS = (
    Form(name="as it is"),
    Form(name="no rows", forgets=("rows:",)),
    Form(name="no cost per product", forgets=("product",)),
    Form(name="no cost per token", forgets=("token",)),
    Form(name="nothing kept by the cache", forgets=("cached@",)),
    Form(name="experts at the rate of dense matrices", takes=_experts_as_dense),
    Form(name="recurrent state not measured", forgets=("state:",)),
    Form(name="attention by query heads alone", forgets=("kv:",)),
    Form(name="attention with one stride", takes=_one_stride),
    Form(name="attention with one band", takes=_one_band),
)


def main(argv: Sequence[str]) -> int:
    """Print the table of forms."""
    options = parse_runs(runs_parser("ablation", __doc__, default_set="development"), argv)
    runs = read_runs(options.runs)
    judged = {
        form.name: [cell for run in runs for cell in judge_form(run, form, options.set)]
        for form in FORMS
    }
    print(render_table(ablation_table(judged), "markdown"))
    return 0


def judge_form(run: KeptRun, form: Form, set_name: str) -> list[JudgedCell]:
    """Judge a run's cells by another form, fitted to the same probes."""
    engine = run.profile.engine
    if engine is None:
        return []
    fitted, _ = derive_tables(engine.probes, form.terms)
    keys = {table.threads: table.keys for table in engine.tables}
    tables = tuple(form.table(table, keys[table.threads]) for table in fitted)
    changed = msgspec.structs.replace(engine, tables=tables)
    return judge_run(run, msgspec.structs.replace(run.profile, engine=changed), sets=(set_name,))


def ablation_table(judged: dict[str, list[JudgedCell]]) -> Table:
    """Return one row for each form: how far off it is at one thread and at several."""
    rows = []
    for name, cells in judged.items():
        row = [name, str(len(cells))]
        for alone in (True, False):
            mine = [cell for cell in cells if (cell.cell.threads == 1) == alone]
            absolute = [abs(cell.error) for cell in mine]
            row += (
                [
                    f"{stats.median(absolute) * 100:.1f} %",
                    f"{stats.quantile(absolute, 0.95) * 100:.1f} %",
                    format_percent(stats.median([cell.error for cell in mine])),
                ]
                if mine
                else ["–", "–", "–"]
            )
        rows.append(tuple(row))
    columns = (
        "form",
        "cells",
        "1 thread: median error",
        "1 thread: 95th percentile",
        "1 thread: bias",
        "more: median error",
        "more: 95th percentile",
        "more: bias",
    )
    return Table(columns=columns, rows=tuple(rows), right=frozenset(columns[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
