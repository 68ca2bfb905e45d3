"""The model-form errors of ``cost/interval.toml``, from the interval set of the kept runs.

For each basis, thread count and depth group, and each side: the smallest standard deviation
of the form with which nineteen of twenty cells are not beyond that side. The cells of a run are
fast or slow together, and runs are few: it is widened as Student's quantile is for so many.
Nothing else is set on these cells, and no figure that is claimed is of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from datetime import datetime, timezone

from calibrate.kept_runs import JudgedCell, judge_run, parse_runs, read_runs, runs_parser
from calibrate.pooled import judge_without_engine
from cpubound import stats
from cpubound.cost.interval import DEEP_TOKENS, NORMAL_90, FormErrors, read_form_errors

# Errors of a side are known from few cells: no form error is believed smaller than this.
LEAST_ERROR = 0.02
# How a machine moves between calibration and use has no side, and runs are few: no side is
# narrower than this share of the other.
HEDGE = 0.8
# Of each side, so that nine cells in ten lie between the two.
SIDE = 0.95


def main(argv: Sequence[str]) -> int:
    """Print ``interval.toml``."""
    options = parse_runs(runs_parser("interval", __doc__, default_set="interval"), argv)
    runs = read_runs(options.runs)
    judged = {
        "engine": [cell for run in runs for cell in judge_run(run, sets=(options.set,))],
        "kernel": [
            cell
            for run in runs
            if len(runs) > 1
            for cell in judge_without_engine(run, runs, options.set)
        ],
    }
    machines = sorted({run.machine for run in runs})
    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    print("# The model-form error of predicted times, as standard deviations of the logarithm.")
    print("# Printed by: python -m calibrate interval")
    print(f'measured = "{today}, {len(runs)} runs on {", ".join(machines)}"')
    for basis, cells in judged.items():
        for name, wanted in (("one_thread", True), ("several_threads", False)):
            print(f"\n[{basis}.{name}]")
            for depth, is_deep in (("shallow", False), ("deep", True)):
                mine = [
                    cell
                    for cell in cells
                    if (cell.cell.threads == 1) == wanted
                    and (cell.cell.depth_tokens >= DEEP_TOKENS) == is_deep
                ]
                form = form_errors(mine, widening(len(runs)))
                print(f"{depth} = {{ faster = {form.faster:.3f}, slower = {form.slower:.3f} }}")
    return 0


def widening(runs: int) -> float:
    """Return Student's 95 % quantile for a variance of so many runs over the normal one."""
    from scipy.stats import norm, t

    return float(t.ppf(SIDE, max(runs - 1, 1)) / norm.ppf(SIDE))


def form_errors(cells: Sequence[JudgedCell], widened: float = 1.0) -> FormErrors:
    """Return the form errors that hold 95 % of the cells on each side, times ``widened``."""
    faster, slower = [], []
    for cell in cells:
        p = cell.prediction
        now = read_form_errors(p.basis, p.setting.threads, p.setting.depth_tokens)
        # Observed over predicted seconds, and what the interval has beside the form.
        distance = math.log(p.tokens_per_s / cell.cell.observed_tokens_per_s)
        beside_fast = (math.log(p.high / p.tokens_per_s) / NORMAL_90) ** 2 - now.faster**2
        beside_slow = (math.log(p.tokens_per_s / p.low) / NORMAL_90) ** 2 - now.slower**2
        faster.append(_needed(-distance, beside_fast))
        slower.append(_needed(distance, beside_slow))
    fast, slow = widened * _quantile(faster), widened * _quantile(slower)
    return FormErrors(faster=max(fast, HEDGE * slow), slower=max(slow, HEDGE * fast))


def _needed(distance: float, beside: float) -> float:
    """Return the form error at which a distance lies on the interval's end."""
    if distance <= 0:
        return 0.0
    return math.sqrt(max((distance / NORMAL_90) ** 2 - max(beside, 0.0), 0.0))


def _quantile(needed: Sequence[float]) -> float:
    return max(stats.quantile(needed, SIDE), LEAST_ERROR) if needed else 0.1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
