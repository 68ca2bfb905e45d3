"""Estimate servers from the others, whole CPUs left out, and say how far each estimate was off."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrate.servers_fit import Fitted, block_of, fit_spread, server_spread
from calibrate.servers_rows import Server
from cpubound.api.kinship import kinship_of_name
from cpubound.cost.kin import (
    Form,
    Kin,
    Points,
    Rows,
    condition,
    consider,
    learn,
    linear_rows,
    row_noise,
)
from cpubound.cost.kin_table import (
    FORMS,
    KinCpu,
    KinModel,
    machine_points,
    make_rows,
    table_points,
)

Array = Any

# CPUs are dealt to so many folds: variances are fitted without the fold of the judged CPU.
FOLDS = 4
# Servers of one CPU and thread count tell what one server adds from so many on.
FEW_SERVERS = 3
# Before that is known: what one server adds to a parameter, and to a row and a read bandwidth.
ROUGH_SERVER, ROUGH_NOISE = 0.08, (0.05, 0.2)
# What is added to the variance of a read bandwidth as told of a server, by another program, perhaps
# of another host: tried each, and chosen on other CPUs than the judged ones.
READ_DOUBTS = (0.0, 0.03, 0.1, 0.4)
# Which models' rows are given where rows are (places in ``servers_rows.MODELS``): 135M and 7B.
GIVEN_DECODE, GIVEN_PROMPT = (0, 3), (3,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One row of one server beside what was expected of it: logarithms of seconds."""

    told: str  # "name", "bandwidth", "rows"
    doubt: float  # of READ_DOUBTS, where a bandwidth is told
    cpu: str
    threads: int
    model: int
    observed: float
    expected: float
    deviation: float

    @property
    def error(self) -> float:
        """Estimated over observed rate − 1."""
        return math.exp(self.observed - self.expected) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A CPU's expected seconds by thread count and model, for a server that is not known."""

    cpu: str
    expected: Mapping[int, Array]


def judge(
    kind: str, cpus: Sequence[KinCpu], models: Sequence[KinModel], servers: Sequence[Server]
) -> tuple[list[Case], list[Series]]:
    """Leave each CPU out in turn and estimate its servers from the others."""
    points, rows, _ = table_points(kind, cpus, models)
    names = sorted(set(points.name))
    by_cpu = servers_by_cpu(servers)
    cases: list[Case] = []
    series: list[Series] = []
    for fold in range(FOLDS):
        held = set(names[fold::FOLDS])
        chosen = ~np.isin(points.name, list(held))
        fitted = fit_kind(kind, points, rows, chosen, servers)
        print(f"{kind}: variances without fold {fold + 1} of {FOLDS}", file=sys.stderr)
        for name in sorted(held):
            cpu = next(cpu for cpu in cpus if cpu.kinship.name == name)
            kin = _others(FORMS[kind], fitted, name, cpu.kinship.family)
            found = judge_cpu(kind, kin, cpu, models, by_cpu[name])
            cases += found[0]
            series.append(found[1])
    return cases, series


def fit_kind(
    kind: str, points: Points, rows: Rows, chosen: Array, servers: Sequence[Server]
) -> Fitted:
    """Fit one form's variances to some points; the other points stay as they were."""
    form = FORMS[kind]
    some, mine, _ = block_of(points, rows, chosen)
    rough = np.full(len(form.parameters), ROUGH_SERVER**2), np.array(ROUGH_NOISE) ** 2
    first = fit_spread(form, some, mine, *rough, rounds=1)
    one = server_spread(*_distances(kind, first, servers), len(form.parameters))
    fitted = fit_spread(form, some, mine, *one, before=first)
    return _with_others(form, fitted, points, rows, chosen)


def judge_cpu(
    kind: str,
    kin: Kin,
    cpu: KinCpu,
    models: Sequence[KinModel],
    servers: Sequence[Server],
    doubts: Sequence[float] = READ_DOUBTS,
) -> tuple[list[Case], Series]:
    """Estimate the servers of one CPU from kin that do not know it, with each of the doubts."""
    cases: list[Case] = []
    expected = {}
    for threads in sorted({server.threads for server in servers}):
        points = machine_points(cpu.kinship, [threads], threads)
        asked = make_rows(
            kin.form,
            [(0, getattr(m, kind), m.weight_bytes, None) for m in models],
            [(0, 1.0)] if kind == "decode" else [],
        )
        expected[threads] = consider(kin, points, asked, np.zeros(len(asked.point)))[0]
        for server in (s for s in servers if s.threads == threads):
            values = np.log([x or math.nan for x in _values(kind, server)])
            for told, known, doubt in _given(kind, values, doubts):
                rows = replace(asked, log_value=np.where(known, values, math.nan))
                mean, variance = consider(kin, points, rows, doubt * rows.is_bandwidth)
                cases += [
                    Case(
                        told=told,
                        doubt=doubt,
                        cpu=cpu.kinship.name,
                        threads=threads,
                        model=place,
                        observed=float(values[place]),
                        expected=float(mean[place]),
                        deviation=math.sqrt(variance[place]),
                    )
                    for place in range(len(models))
                    if np.isfinite(values[place]) and not known[place]
                ]
    return cases, Series(cpu=cpu.kinship.name, expected=expected)


def servers_by_cpu(servers: Sequence[Server]) -> dict[str, list[Server]]:
    """Return the servers of each CPU, by the name in the table of CPUs."""
    names = {cpu: kinship_of_name(cpu).name for cpu in {server.cpu for server in servers}}
    found: dict[str, list[Server]] = {}
    for server in servers:
        found.setdefault(names[server.cpu], []).append(server)
    return found


def _values(kind: str, server: Server) -> tuple[float | None, ...]:
    """Return what was observed of a server, in the order of the rows that are asked."""
    if kind == "prompt":
        return server.prompt
    return (*server.decode, server.read_bytes_per_s)


def _given(kind: str, values: Array, doubts: Sequence[float]) -> Iterator[tuple[str, Array, float]]:
    """Yield what is told of a server beside its name: nothing, its bandwidth, rows."""
    none = np.zeros(len(values), dtype=bool)
    yield "name", none, 0.0
    if kind == "decode" and np.isfinite(values[-1]):
        known = none.copy()
        known[-1] = True
        yield from (("bandwidth", known, doubt) for doubt in doubts)
    given = list(GIVEN_DECODE if kind == "decode" else GIVEN_PROMPT)
    if np.isfinite(values[given]).all():
        known = none.copy()
        known[given] = True
        yield "rows", known, 0.0


def _others(form: Form, fitted: Fitted, name: str, family: str) -> Kin:
    """Return the kin of a CPU: its family without it, or all but it where it has none."""
    points = fitted.points
    chosen = (points.family == family) & (points.name != name)
    if not chosen.any():
        chosen = points.name != name
    some, rows, _ = block_of(points, fitted.rows, chosen)
    return learn(form, fitted.spread, some, rows, fitted.parameters[chosen])


def _with_others(form: Form, fitted: Fitted, points: Points, rows: Rows, chosen: Array) -> Fitted:
    """Add the points that took no part in a fit: where it puts them, and how far they stand out."""
    scale, looseness = np.ones(len(points.threads)), np.ones(len(rows.point))
    parameters = form.usual(points.threads, points.links)
    scale[chosen] = fitted.points.scale
    looseness[chosen[rows.point]] = fitted.rows.looseness
    parameters[chosen] = fitted.parameters
    for family in sorted(set(points.family[~chosen])):
        known = fitted.points.family == family
        known = known if known.any() else np.ones(len(known), dtype=bool)
        some, mine, _ = block_of(fitted.points, fitted.rows, known)
        kin = learn(form, fitted.spread, some, mine, fitted.parameters[known])
        for name in sorted(set(points.name[~chosen & (points.family == family)])):
            own = points.name == name
            asked, its, _ = block_of(points, rows, own)
            belief = kin.believe(asked, its.log_bytes, its.point)
            none = np.zeros(len(its.point), dtype=bool)
            noise = row_noise(fitted.spread, asked, its)
            mean, variance, _ = condition(form, asked, belief, its, none, noise)
            far = float(np.mean((its.log_value - mean) ** 2 / variance))
            scale[own] = max(far, 1.0)
            count = asked.threads.size * len(form.parameters)
            parameters[own] = belief.mean[:count].reshape(-1, len(form.parameters))
    return Fitted(
        spread=fitted.spread,
        points=replace(points, scale=scale),
        rows=replace(rows, looseness=looseness),
        parameters=parameters,
    )


def _distances(
    kind: str, fitted: Fitted, servers: Sequence[Server]
) -> tuple[list[Array], list[Array], list[Array]]:
    """Return how far servers lie from the median of their like, with the form's derivatives."""
    form, points, rows = FORMS[kind], fitted.points, fitted.rows
    slopes = linear_rows(form, points, rows, fitted.parameters)[1]
    by_cpu = servers_by_cpu(servers)
    found: tuple[list[Array], list[Array], list[Array]] = ([], [], [])
    for place, (name, threads) in enumerate(zip(points.name, points.threads, strict=True)):
        like = [s for s in by_cpu[name] if s.threads == threads]
        if len(like) < FEW_SERVERS:
            continue
        values = np.log([[x or math.nan for x in _values(kind, s)] for s in like])
        there = np.isfinite(values)
        mine = rows.point == place  # in the order of the values, those that any server has
        apart = values[:, there.any(axis=0)] - rows.log_value[mine]
        apart *= math.sqrt(len(like) / (len(like) - 1))
        for one in apart:
            own = np.isfinite(one)
            found[0].append(slopes[mine][own])
            found[1].append(one[own])
            found[2].append(rows.is_bandwidth[mine][own])
    return found
