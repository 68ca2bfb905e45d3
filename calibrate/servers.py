"""Estimate cloud servers from the others, their CPUs left out one by one.

    python -m calibrate servers ../shared/cases/cloud-decode.csv.xz

The rows are llama-bench runs of CPU-only cloud servers, from the public benchmark data of Spare
Cores (github.com/SpareCores/sc-inspector-data), CC BY-SA 4.0; what is derived from them carries
that licence. Whatever is fitted is fitted without the CPUs that are judged: the variances on the
other three quarters of the CPUs, the parameters on all CPUs but the judged one, the width of the
interval on the CPUs of the other quarters. ``--write`` fits them all and writes the table that
ships with the package; ``--shipped`` judges that table on servers of CPUs that it does not hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np

from calibrate.servers_judge import (
    FOLDS,
    Case,
    Series,
    fit_kind,
    judge,
    judge_cpu,
    servers_by_cpu,
)
from calibrate.servers_rows import MODELS, Server, group_servers, kin_models, read_servers
from calibrate.servers_write import kin_table_text
from cpubound import stats
from cpubound.cost.interval import NORMAL_90
from cpubound.cost.kin_table import FORMS, kin_of, read_kin_table, table_points, widths
from cpubound.report.tables import Table, render_table

# Places in MODELS from which on a model is large: 2B.
LARGE = 2
TOLERANCE = 0.05
FEW_COUNTS = 3
NAMES = {
    ("decode", "bandwidth"): "name, threads, read bandwidth",
    ("decode", "name"): "name and threads",
    ("decode", "rows"): "two rows (135M, 7B)",
    ("prompt", "name"): "prompts: name and threads",
    ("prompt", "rows"): "prompts: a prompt row (7B)",
}
Widths = Mapping[str, tuple[float, float]]


def main(argv: Sequence[str]) -> int:
    """Judge estimates and print the table; write the package's data if asked."""
    options = _parse(argv)
    servers = read_servers(options.rows)
    lines, kept, series, doubts = [], {}, {}, {}
    for kind in FORMS:
        if options.shipped:
            cases, series[kind] = _judge_shipped(kind, servers)
            bands = {told: dict.fromkeys(_cpus(cases), widths(kind)[told]) for told in widths(kind)}
        else:
            models = list(kin_models().values())
            tried, series[kind] = judge(kind, group_servers(servers), models, servers)
            cases = chosen_cases(tried)
            doubts[kind] = best_doubt(tried)
            bands = fold_widths(cases)
        kept[kind] = cases
        lines += list(_lines(kind, cases, bands))
    print(render_table(_table(lines), options.format))
    print()
    print("\n".join(_thread_choice(kept["decode"], series["decode"])))
    print(
        f"\n{len(servers)} servers of {len({s.cpu for s in servers})} CPU names. Derived from the"
        " public benchmark data of Spare Cores\n(github.com/SpareCores/sc-inspector-data), CC BY-SA"
        " 4.0; so is this table."
    )
    if options.write is not None:
        options.write.write_text(_fit_all(servers, kept, doubts), encoding="utf-8")
    return 0


def case_widths(cases: Sequence[Case]) -> tuple[float, float]:
    """Return how many deviations nine of ten cases stay within: faster and slower."""
    far = [(case.observed - case.expected) / case.deviation for case in cases]
    if not far:
        return NORMAL_90, NORMAL_90
    return max(-stats.quantile(far, 0.05), 0.0), max(stats.quantile(far, 0.95), 0.0)


def fold_widths(cases: Sequence[Case]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return each CPU's widths by what is told, from the CPUs of the other folds."""
    names = _cpus(cases)
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for told in sorted({case.told for case in cases}):
        mine = [case for case in cases if case.told == told]
        for fold in range(FOLDS):
            held = set(names[fold::FOLDS])
            width = case_widths([case for case in mine if case.cpu not in held])
            found.setdefault(told, {}).update(dict.fromkeys(held, width))
    return found


def best_doubt(cases: Sequence[Case]) -> float:
    """Return the doubt of a read bandwidth that estimates are best with, by mean |logarithm|."""
    off: dict[float, list[float]] = {0.0: []}
    for case in cases:
        if case.told == "bandwidth":
            off.setdefault(case.doubt, []).append(abs(case.observed - case.expected))
    return min(off, key=lambda doubt: float(np.mean(off[doubt])) if off[doubt] else 0.0)


def chosen_cases(cases: Sequence[Case]) -> list[Case]:
    """Return cases with the doubt of a read bandwidth that is best on the CPUs of other folds."""
    names = _cpus(cases)
    kept: list[Case] = []
    for fold in range(FOLDS):
        held = set(names[fold::FOLDS])
        doubt = best_doubt([case for case in cases if case.cpu not in held])
        kept += [c for c in cases if c.cpu in held and (c.told != "bandwidth" or c.doubt == doubt)]
    return kept


def is_inside(case: Case, width: tuple[float, float]) -> bool:
    """Return whether a case lies in its interval."""
    far = (case.observed - case.expected) / case.deviation
    return -width[0] <= far <= width[1]


def _judge_shipped(kind: str, servers: Sequence[Server]) -> tuple[list[Case], list[Series]]:
    table = read_kin_table()
    known = {cpu.kinship.name for cpu in table.cpus}
    by_cpu = servers_by_cpu(servers)
    cases: list[Case] = []
    series: list[Series] = []
    for cpu in group_servers(servers):
        if cpu.kinship.name in known:
            continue
        kin = kin_of(kind, cpu.kinship.family, cpu.kinship.architecture)
        mine = by_cpu[cpu.kinship.name]
        doubts = (table.spread[kind].read_error ** 2,)
        found = judge_cpu(kind, kin, cpu, list(table.models.values()), mine, doubts)
        cases += found[0]
        series.append(found[1])
    if not cases:
        sys.exit("the shipped table holds every CPU of these rows: nothing to judge it on")
    return cases, series


def _fit_all(
    servers: Sequence[Server], kept: Mapping[str, Sequence[Case]], doubts: Mapping[str, float]
) -> str:
    models, cpus = kin_models(), group_servers(servers)
    fits, bands = {}, {}
    for kind, cases in kept.items():
        points, rows, _ = table_points(kind, cpus, list(models.values()))
        every = np.ones(len(points.threads), dtype=bool)
        fits[kind] = fit_kind(kind, points, rows, every, servers)
        told = sorted({case.told for case in cases})
        bands[kind] = {t: case_widths([c for c in cases if c.told == t]) for t in told}
    return kin_table_text(date.today().isoformat(), cpus, models, fits, bands, doubts)


def _cpus(cases: Sequence[Case]) -> list[str]:
    return sorted({case.cpu for case in cases})


def _lines(
    kind: str, cases: Sequence[Case], bands: Mapping[str, Widths]
) -> Iterator[tuple[str, ...]]:
    for (of_kind, told), name in NAMES.items():
        mine = [case for case in cases if case.told == told]
        if of_kind != kind or not mine:
            continue
        errors = [abs(case.error) for case in mine]
        inside = [is_inside(case, bands[told][case.cpu]) for case in mine]
        spans = [
            np.exp(c.deviation * bands[told][c.cpu][0])
            - np.exp(-c.deviation * bands[told][c.cpu][1])
            for c in mine
        ]
        small = [abs(case.error) for case in mine if case.model < LARGE]
        large = [abs(case.error) for case in mine if case.model >= LARGE]
        yield (
            name,
            str(len(mine)),
            *(_percent(stats.median(part)) if part else "" for part in (small, large, errors)),
            _percent(stats.quantile(errors, 0.9)),
            f"{sum(inside) / len(inside) * 100:.0f} %",
            _percent(stats.median([float(span) for span in spans])),
        )


def _table(lines: Sequence[tuple[str, ...]]) -> Table:
    columns = ("known", "rows", "135M, 0.5B", "2B … 70B", "all", "90th", "inside", "width")
    return Table(columns=columns, rows=tuple(lines), right=frozenset(columns[1:]))


def _thread_choice(cases: Sequence[Case], series: Sequence[Series]) -> Iterator[str]:
    """Yield how often the fastest tried thread count is found, from the name and from rows."""
    observed: dict[tuple[str, int], dict[int, list[float]]] = {}
    by_rows: dict[tuple[str, int], dict[int, list[float]]] = {}
    for case in cases:
        key = (case.cpu, case.model)
        if case.told == "name":
            observed.setdefault(key, {}).setdefault(case.threads, []).append(case.observed)
        if case.told == "rows":
            by_rows.setdefault(key, {}).setdefault(case.threads, []).append(case.expected)
    by_name = {
        (one.cpu, model): {t: float(seconds[model]) for t, seconds in one.expected.items()}
        for one in series
        for model in range(len(MODELS))
    }
    medians = {key: _medians(found) for key, found in observed.items()}
    rows = {key: _medians(found) for key, found in by_rows.items()}
    for name, expected in (("the name", by_name), ("two rows at each count", rows)):
        found = []
        for key, seen in medians.items():
            tried = sorted(set(seen) & set(expected.get(key, {})))
            if len(tried) >= FEW_COUNTS:
                chosen = min(tried, key=lambda t: expected[key][t])
                found.append(np.exp(seen[chosen] - min(seen[t] for t in tried)) - 1)
        if found:
            good = sum(loss <= TOLERANCE for loss in found) / len(found)
            yield (
                f"The fastest of a CPU's thread counts, from {name}: within {TOLERANCE * 100:.0f} %"
                f" of the best in {good * 100:.0f} % of {len(found)} series of a CPU and a model;"
                f" the loss is {_percent(stats.quantile(found, 0.9))} at the 90th percentile."
            )


def _medians(found: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {threads: stats.median(values) for threads, values in found.items()}


def _percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m calibrate servers", description=__doc__)
    parser.add_argument("rows", type=Path, help="cloud-decode.csv.xz, or rows of its form")
    parser.add_argument("--format", choices=("table", "markdown", "csv"), default="table")
    parser.add_argument("--write", type=Path, help="fit all rows and write kin.toml there")
    parser.add_argument(
        "--shipped", action="store_true", help="judge the table of the package, fit nothing"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
