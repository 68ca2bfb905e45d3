"""How much machines differ from their kin, by maximum marginal likelihood.

The covariance of ``cost.kin`` has a variance for each parameter and level. They are those under
which what was observed is most likely (Rasmussen and Williams, ch. 5), families apart from each
other, with a weak prior that keeps them finite. What one server adds is taken from servers of one
CPU at one thread count. A CPU or a row that stands out counts less: variances are scaled as
under Student's t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from cpubound.cost.kin import (
    LEVELS,
    ROBUSTNESS,
    Form,
    Kin,
    Points,
    Rows,
    Spread,
    covariance,
    learn,
    likeness,
    linearise,
)

Array = Any

# Standard deviations that are believed before anything is seen, and how surely (of logarithms).
USUAL_SPREAD = 0.2
USUAL_LEFT_OUT = 0.05
USUAL_NOISE = 0.03
USUAL_SERVER, USUAL_READ = 0.1, 0.15
SURENESS, SURENESS_LEFT_OUT = 0.7, 0.4
SURE = 0.05
ALL_SPREAD = 0.3
ROUNDS = 2
ITERATIONS = 10
LOOSEST = 20.0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Fitted:
    """The variances, the points and rows with their scales, and where parameters lie."""

    spread: Spread
    points: Points
    rows: Rows
    parameters: Array


def fit_spread(
    form: Form,
    points: Points,
    rows: Rows,
    server: Array,
    noise: Array,
    *,
    rounds: int = ROUNDS,
    before: Fitted | None = None,
) -> Fitted:
    """Fit the variances of one form to points of several families.

    Parameters
    ----------
    server : variances of what one server adds to each parameter.
    noise : variances of a row: of each server, of a read bandwidth.
    before : an earlier fit of the same points, to go on from.
    """
    place = _usual(form)
    points = replace(points, scale=np.ones(len(points.threads)))
    rows = replace(rows, looseness=np.ones(len(rows.point)))
    parameters = None
    if before is not None:
        points, rows, parameters = before.points, before.rows, before.parameters
    for _ in range(rounds):
        blocks = [_Block(form, points, rows, one) for one in families(points)]
        starts = [None if parameters is None else parameters[block.chosen] for block in blocks]
        spread = _spread(form, place, server, noise)
        kins = [
            learn(form, spread, block.points, block.rows, start)
            for block, start in zip(blocks, starts, strict=True)
        ]
        place = _most_likely(form, blocks, kins, place, server, noise)
        spread = _spread(form, place, server, noise)
        parameters = np.zeros((len(points.threads), len(form.parameters)))
        for block, kin in zip(blocks, kins, strict=True):
            settled = learn(form, spread, block.points, block.rows, kin.parameters)
            parameters[block.chosen] = settled.parameters
            scale, looseness = _stand_out(settled)
            points.scale[block.chosen] *= scale
            rows.looseness[block.of_rows] *= looseness
    return Fitted(spread=spread, points=points, rows=rows, parameters=parameters)


def _most_likely(
    form: Form, blocks: Sequence[_Block], kins: Sequence[Kin], start: Array, *own: Array
) -> Array:
    """Return the logarithms of the deviations under which the rows are most likely."""
    usual, sureness = _usual(form), _sureness(form)

    def objective(h: Array) -> tuple[float, Array]:
        total = 0.5 * float(np.sum(((h - usual) / sureness) ** 2))
        slope = (h - usual) / sureness**2
        for block, kin in zip(blocks, kins, strict=True):
            value, gradient = block.likelihood(_spread(form, h, *own), kin)
            total, slope = total + value, slope + gradient
        return total, slope

    options = {"maxiter": ITERATIONS}
    return minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x


def families(points: Points) -> list[str]:
    """Return the families of points, in order."""
    return sorted(set(points.family))


def block_of(points: Points, rows: Rows, chosen: Array) -> tuple[Points, Rows, Array]:
    """Return some points, their rows, and which rows those are."""
    number = np.cumsum(chosen) - 1
    of_rows = chosen[rows.point]
    mine = rows.take(of_rows)
    return points.take(chosen), replace(mine, point=number[mine.point]), of_rows


class _Block:
    """Points of one family with what the likelihood's derivatives need."""

    def __init__(self, form: Form, points: Points, rows: Rows, family: str) -> None:
        self.form, self.family = form, family
        self.chosen = points.family == family
        self.points, self.rows, self.of_rows = block_of(points, rows, self.chosen)
        self.bases = {by_links: self._bases(by_links) for by_links in (False, True)}
        step = ~self.rows.is_bandwidth
        self.alike = likeness(self.rows.log_bytes, self.rows.log_bytes) * np.outer(step, step)
        self.members = np.zeros((len(self.rows.point), len(self.points.threads)))
        self.members[np.arange(len(self.rows.point)), self.rows.point] = 1

    def _bases(self, by_links: bool) -> list[Array]:
        found = []
        for level in range(len(LEVELS)):
            for kind in range(2):
                only = np.zeros((len(LEVELS), 2))
                only[level, kind] = 1
                found.append(covariance(only, self.points, self.points, by_links))
        return found

    def likelihood(self, spread: Spread, kin: Kin) -> tuple[float, Array]:
        """Return the negative logarithm of the marginal likelihood and its derivatives."""
        here = linearise(self.form, spread, self.points, self.rows, kin.parameters)
        value = 0.5 * (here.distance @ here.pull - np.linalg.slogdet(here.precision)[1])
        weight = np.outer(here.pull, here.pull) - here.precision
        slopes = []
        for place in range(len(self.form.parameters)):
            own = self.members * here.slopes[:, place, None]
            by_point = own.T @ weight @ own
            slopes += self._level_slopes(by_point, self.form.follows_links(place))
        by_point = self.members.T @ (weight * self.alike) @ self.members
        slopes += self._level_slopes(by_point, False)
        diagonal = np.diag(weight) * self.rows.looseness * ~self.rows.is_bandwidth
        slopes.append(-0.5 * diagonal.sum())
        variances = np.append(spread.levels.ravel(), spread.noise[0])
        return value, np.array(slopes) * 2 * variances

    def _level_slopes(self, by_point: Array, by_links: bool) -> list[float]:
        return [-0.5 * np.sum(by_point * basis) for basis in self.bases[by_links]]


def _usual(form: Form) -> Array:
    """Return the logarithms of the standard deviations that are believed beforehand."""
    levels = np.full((len(form.parameters) + 1, len(LEVELS), 2), USUAL_SPREAD)
    levels[:, 0] = ALL_SPREAD
    levels[-1] = USUAL_LEFT_OUT
    return np.log(np.append(levels.ravel(), USUAL_NOISE))


def _sureness(form: Form) -> Array:
    sure = np.full((len(form.parameters) + 1, len(LEVELS), 2), SURENESS)
    sure[-1] = SURENESS_LEFT_OUT
    sure[:, 0] = SURE  # families are fitted apart: they do not tell what all share
    return np.append(sure.ravel(), SURENESS)


def _spread(form: Form, h: Array, server: Array, noise: Array) -> Spread:
    variances = np.exp(2 * h)
    levels = variances[:-1].reshape(len(form.parameters) + 1, len(LEVELS), 2)
    return Spread(levels=levels, server=server, noise=np.append(variances[-1], noise))


def _stand_out(kin: Kin) -> tuple[Array, Array]:
    """Return by how much the variances of CPUs and of rows should grow.

    From how far each lies from where the others put it: the block of a CPU, then each row.
    """
    scale = np.ones(len(kin.points.threads))
    names = kin.points.name[kin.rows.point]
    for name in set(names):
        mine = np.nonzero(names == name)[0]
        distance = np.linalg.solve(kin.precision[np.ix_(mine, mine)], kin.pull[mine])
        squares = distance @ kin.pull[mine]
        grown = (ROBUSTNESS + squares) / (ROBUSTNESS + len(mine))
        scale[kin.points.name == name] = np.clip(grown, 0.3, LOOSEST)
    squares = kin.pull**2 / np.diag(kin.precision)
    loose = (ROBUSTNESS + squares) / (ROBUSTNESS + 1)
    return scale, np.clip(loose, 1.0, LOOSEST)


def server_spread(
    slopes: Sequence[Array], distances: Sequence[Array], is_bandwidth: Sequence[Array], count: int
) -> tuple[Array, Array]:
    """Return what one server adds: variances of its parameters, and of its rows.

    Parameters
    ----------
    slopes, distances, is_bandwidth : of each server's rows: derivatives by parameter, the
        logarithm's distance from the median of its like, and whether it is a read bandwidth.
    count : of parameters.
    """
    usual = np.log([USUAL_SERVER] * count + [USUAL_NOISE, USUAL_READ])
    if not distances:
        return np.exp(2 * usual[:count]), np.exp(2 * usual[count:])
    size = max(len(d) for d in distances)
    one = np.zeros((len(distances), size, count))
    off, band = np.zeros((len(distances), size)), np.zeros((len(distances), size), dtype=bool)
    there = np.zeros((len(distances), size), dtype=bool)
    for place, (slope, distance, mine) in enumerate(
        zip(slopes, distances, is_bandwidth, strict=True)
    ):
        one[place, : len(distance)], off[place, : len(distance)] = slope, distance
        band[place, : len(distance)], there[place, : len(distance)] = mine, True
    rows = there.sum(axis=1)

    def objective(h: Array) -> float:
        variances = np.exp(2 * h)
        total = np.einsum("nip,p,njp->nij", one, variances[:count], one)
        own = np.where(there, np.where(band, variances[-1], variances[-2]), 1.0)
        total[:, np.arange(size), np.arange(size)] += own
        squares = np.einsum("ni,nij,nj->n", off, np.linalg.inv(total), off)
        spread = (ROBUSTNESS + rows) * np.log1p(squares / ROBUSTNESS)
        prior = np.sum(((h - usual) / SURENESS) ** 2)
        return float(0.5 * np.sum(spread + np.linalg.slogdet(total)[1]) + 0.5 * prior)

    found = np.exp(2 * minimize(objective, usual, method="L-BFGS-B", options={"maxiter": 40}).x)
    return found[:count], found[count:]
