"""What each term of the model buys: held-out errors with it and without it.

Reads what ``accuracy --out FOLDER`` left: profiles with every probe's samples, and what was
observed. Each form is fitted to the same probes again and judged on the same observations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from calibrate.accuracy import Group, load_groups
from calibrate.kept_runs import parse_folders, predict_cells, read_runs
from cpubound import stats
from cpubound.cost.fit import ProbeTime
from cpubound.engine.values import EngineIdentity
from cpubound.measuring.engine_rates import derive_rates, probe_time
from cpubound.profile.values import (
    REFERENCE_QUERY_HEADS,
    EngineCalibration,
    MachineProfile,
    ProbeRun,
)
from cpubound.report.tables import Table, render_table

Equation = Callable[[ProbeRun], ProbeTime]


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form of the model: how a probe becomes an equation, and which probes it knows.

    ``forgets`` takes out of the fitted rates what the form has no term for.
    """

    name: str
    equation: Equation = probe_time
    keeps: Callable[[ProbeRun], bool] = lambda run: True
    forgets: Callable[[EngineCalibration], EngineCalibration] = lambda engine: engine


def one_rate_per_type(run: ProbeRun) -> ProbeTime:
    """Forget how long the rows are."""
    row = probe_time(run)
    by_type: dict[tuple[str, int], int] = {}
    for (name, _), n_bytes in row.matrices.items():
        by_type[name, 1] = by_type.get((name, 1), 0) + n_bytes
    return replace(row, matrices=by_type)


def no_cost_per_product(run: ProbeRun) -> ProbeTime:
    """Leave only the cost of a token."""
    return replace(probe_time(run), products=0)


def experts_as_dense(run: ProbeRun) -> ProbeTime:
    """Count experts among the dense matrices."""
    row = probe_time(run)
    matrices = dict(row.matrices)
    for name, columns, n_bytes in run.experts:
        matrices[name, columns] = matrices.get((name, columns), 0) + n_bytes
    return replace(row, matrices=matrices, experts={}, expert_layers=0)


def attention_by_kv_heads(run: ProbeRun) -> ProbeTime:
    """Forget how many query heads share a KV head."""
    return replace(probe_time(run), query_heads=REFERENCE_QUERY_HEADS)


def _without_query_heads(engine: EngineCalibration) -> EngineCalibration:
    # The fit takes the usual share where all probes are alike.
    alone = tuple(msgspec.structs.replace(row, query_share=0.0) for row in engine.attention)
    return msgspec.structs.replace(engine, attention=alone)


def _without_attention(engine: EngineCalibration) -> EngineCalibration:
    return msgspec.structs.replace(engine, attention=())


FORMS = (
    Form(name="as it is"),
    Form(name="one rate per type, whatever the row's length", equation=one_rate_per_type),
    Form(name="no cost per matrix product", equation=no_cost_per_product),
    Form(name="experts at the rate of dense matrices", equation=experts_as_dense),
    Form(name="recurrent layers not measured", keeps=lambda run: run.state_kind is None),
    Form(
        name="attention by KV heads alone",
        equation=attention_by_kv_heads,
        forgets=_without_query_heads,
    ),
    Form(
        name="attention at read bandwidth",
        keeps=lambda run: not run.probe.startswith("kv"),
        forgets=_without_attention,
    ),
)


def refit(profile: MachineProfile, form: Form) -> MachineProfile:
    """Return the profile with rates of another form, from its own probes.

    Raises
    ------
    ValueError : the profile has no engine stage.
    """
    engine = profile.engine
    if engine is None:
        raise ValueError("the profile has no engine stage")
    derived = derive_rates(
        EngineIdentity(name=engine.name, version=engine.version, build=engine.build),
        [run for run in engine.probes if form.keeps(run)],
        noise=engine.noise,
        equation=form.equation,
    )
    return msgspec.structs.replace(profile, engine=form.forgets(derived))


def errors_of(
    profile: MachineProfile, groups: Sequence[Group], observed: Sequence[float]
) -> list[float]:
    """Return predicted / observed − 1 of every cell, in the experiment's order."""
    predicted = predict_cells(profile, groups)
    return [p.tokens_per_s / o - 1 for p, o in zip(predicted, observed, strict=True)]


def main(argv: Sequence[str]) -> int:
    """Print the table of forms."""
    options = parse_folders("ablation", __doc__, argv)
    groups = load_groups(options.groups, options.real)
    errors: dict[str, list[float]] = {form.name: [] for form in FORMS}
    for folder in options.folders:
        for run in read_runs(folder):
            for form in FORMS:
                errors[form.name] += errors_of(refit(run.profile, form), groups, run.observed)
    print(render_table(ablation_table(errors), "markdown"))
    return 0


def ablation_table(errors: dict[str, list[float]]) -> Table:
    """Return one row for each form: how far off it is, and where it is worst."""
    rows = tuple(
        (
            name,
            str(len(found)),
            f"{stats.median([abs(e) for e in found]) * 100:.1f} %",
            f"{stats.quantile([abs(e) for e in found], 0.95) * 100:.1f} %",
            f"{stats.median(found) * 100:+.1f} %",
        )
        for name, found in errors.items()
        if found
    )
    return Table(
        columns=("form", "cells", "median error", "95th percentile", "bias"),
        rows=rows,
        right=frozenset({"cells", "median error", "95th percentile", "bias"}),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
