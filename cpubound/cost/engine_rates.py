"""From the records of probe runs to rate tables, one for each thread count. Arithmetic only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cpubound import stats
from cpubound.cost.fit import Equation, determined, fit_rates
from cpubound.profile.values import ProbeRun, RateTable


def derive_tables(
    runs: Sequence[ProbeRun],
    terms_of: Callable[[ProbeRun], dict[str, float]] = lambda run: run.terms,
) -> tuple[tuple[RateTable, ...], tuple[str, ...]]:
    """Fit a rate table at each thread count to what the probes took; return warnings too.

    Parameters
    ----------
    terms_of : another form of the model than the runs' own terms, for an ablation.

    A saved profile's ``engine.probes`` give its tables again. Where probes failed, what the
    others leave undetermined is left out with a warning.
    """
    tables, warnings = [], []
    for threads in sorted({run.threads for run in runs if run.prompt_tokens is None}):
        mine = [run for run in runs if run.threads == threads]
        equations = [_equation(run, terms_of(run)) for run in mine]
        kept, left_out = determined(equations)
        if left_out:
            warnings.append(f"not determined at {threads} threads: {', '.join(left_out)}")
        if not kept:
            continue
        table = fit_rates(kept, threads)
        decoded = [run for run in mine if run.prompt_tokens is None]
        ratio = stats.median([_fast_ratio(run) for run in decoded])
        tables.append(msgspec.structs.replace(table, fast_time_ratio=min(ratio, 1.0)))
    return tuple(tables), tuple(warnings)


def _equation(run: ProbeRun, amounts: dict[str, float]) -> Equation:
    # A prompt is seen in few moments, and computing has two speeds on shared cores: its
    # fast quartile is one of them, its median would be of both.
    quantile = 0.5 if run.prompt_tokens is None else 0.25
    seconds = stats.quantile(run.samples_s, quantile)
    return Equation(
        amounts=amounts,
        seconds=seconds,
        standard_error_s=stats.median_standard_error(run.samples_s),
    )


def _fast_ratio(run: ProbeRun) -> float:
    return stats.quantile(run.samples_s, 0.25) / stats.median(run.samples_s)
