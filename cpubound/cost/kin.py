"""What machines of one CPU, micro-architecture or family have in common: the prior of an estimate.

A machine's parameters (logarithms of a core's rate, a bandwidth, what a layer costs, ...) are
a sum of what all machines share, its family, its micro-architecture, its CPU and the one server
add. Each part is constant or changes smoothly with the logarithm of the threads; how much each
level varies is data. So a CPU that was never seen borrows from its micro-architecture, that from
its family, and its interval says so. This is Gaussian process regression (Rasmussen and Williams,
*Gaussian Processes for Machine Learning*, ch. 2) with nested random effects as its covariance;
what is observed are logarithms of seconds, linearised where the parameters come to lie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

# Levels of kinship, widest first; ``all`` has no label. A server's own part is beside them.
LEVELS = ("all", "family", "micro_architecture", "name")
# Parameters change over about this many doublings of the threads.
THREAD_SCALE = 2.0
# What the form leaves out of a model is shared with models within this factor of its bytes
# (doublings), but for this share, which is the model's own.
SIZE_SCALE = 1.0
OWN_SHARE = 0.3
# Steps of Gauss and Newton, each at most so large in the logarithm. Those of many machines go half
# the way: a core's rate and a bandwidth that change places overshoot otherwise.
STEPS, STEPS_ON = 14, 3
LARGEST_STEP = 0.7
CAUTION = 0.5
SETTLED = 1e-3
# How far a CPU that was not seen may depart from its kin (a variance ratio): as likely each. Most
# of those that were seen do by far less than a few that do by far more.
SCALES = (0.1, 0.5, 2.5, 12.0)
# Degrees of freedom of Student's t for what is observed of a machine: one row in some is off.
ROBUSTNESS = 4.0
FEWEST_WITNESSES = 3

Array = Any  # numpy.ndarray: numpy is loaded where an estimate is made, not with the package


class Form(Protocol):
    """How parameters make seconds."""

    parameters: tuple[str, ...]
    amounts: int  # of a row
    bandwidth: tuple[str, ...]  # the parameters whose product a read bandwidth is

    def follows_links(self, place: int) -> bool:
        """Return whether a parameter changes with the links to memory, not with the threads."""

    def usual(self, threads: Array, links: Array) -> Array:
        """Return the logarithms that parameters scatter around: (points, parameters)."""

    def log_seconds(self, parameters: Array, threads: Array, amounts: Array) -> tuple[Array, Array]:
        """Return the logarithm of the seconds of each row and its derivatives by parameter."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Points:
    """Where parameters are wanted or known: machines at a thread count. All arrays of one length.

    ``links`` counts what brings data from memory: clusters of cores, or threads where a core
    reaches memory by itself. ``servers`` is how many machines a point is the median of, ``scale``
    how much more than others this CPU departs from its kin (a variance ratio).
    """

    family: Array
    micro_architecture: Array
    name: Array
    threads: Array
    links: Array
    servers: Array
    scale: Array

    def take(self, chosen: Array) -> Points:
        """Return some of the points."""
        return Points(**{field: getattr(self, field)[chosen] for field in self.__slots__})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rows:
    """What was observed at points, or is asked: seconds of a step, or a read bandwidth.

    ``amounts`` are what the form multiplies with its parameters (rows, amounts); ``log_bytes``
    (base 2) tell models apart. A read bandwidth has no amounts: it is the parameter ``bandwidth``
    times ``read_ratio``, its ``log_value`` that of bytes per second.
    """

    point: Array
    amounts: Array
    log_bytes: Array
    is_bandwidth: Array
    log_value: Array  # not a number where it is asked
    looseness: Array  # how much further than others this row may be off (a variance ratio)

    def take(self, chosen: Array) -> Rows:
        """Return some of the rows."""
        return Rows(**{field: getattr(self, field)[chosen] for field in self.__slots__})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Spread:
    """How much parameters vary, as variances of logarithms.

    ``levels`` is (parameters + 1, levels, 2): the constant and the changing part of each parameter
    and, last, of what the form leaves out. ``server`` is a server's own part of each parameter.
    ``noise`` of a row: of a point whatever its servers, of each server, of a read bandwidth.
    """

    levels: Array
    server: Array
    noise: Array


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Belief:
    """Parameters at points, then what the form leaves out of rows: mean and covariance."""

    mean: Array
    covariance: Array


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Kin:
    """Observed machines and how they are related, ready to be asked about others."""

    form: Form
    spread: Spread
    points: Points
    rows: Rows
    parameters: Array  # where the rows are linearised: (points, parameters)
    slopes: Array  # derivatives of the rows' logarithms by parameter, there
    precision: Array  # the inverse of the rows' covariance
    distance: Array  # of the rows' logarithms from what is usual
    pull: Array  # ``precision`` times that

    def believe(self, points: Points, log_bytes: Array, at: Array) -> Belief:
        """Return what is believed of servers that were not observed.

        Parameters
        ----------
        points : of them, each one server.
        log_bytes, at : of rows: the logarithm (base 2) of the model's bytes, and the row's point.
        """
        import numpy as np

        count = len(self.form.parameters)
        size = len(points.threads) * count
        between = np.zeros((size + len(at), len(self.rows.point)))
        prior = np.zeros((size + len(at), size + len(at)))
        for place, levels in enumerate(self.spread.levels[:-1]):
            own = slice(place, size, count)
            shared = covariance(levels, points, self.points, self.form.follows_links(place))
            between[own] = shared[:, self.rows.point] * self.slopes[:, place]
            prior[own, own] = covariance(levels, points, points, self.form.follows_links(place))
            prior[own, own] += np.diag(np.full(len(points.threads), self.spread.server[place]))
        left_out, asked = self.spread.levels[-1], points.take(at)
        alike = likeness(log_bytes, self.rows.log_bytes) * ~self.rows.is_bandwidth
        between[size:] = covariance(left_out, asked, self.points)[:, self.rows.point] * alike
        prior[size:, size:] = covariance(left_out, asked, asked) * likeness(log_bytes, log_bytes)
        usual = self.form.usual(points.threads, points.links).ravel()
        return Belief(
            mean=np.concatenate([usual, np.zeros(len(at))]) + between @ self.pull,
            covariance=prior - between @ self.precision @ between.T,
        )

    def posterior_parameters(self) -> Array:
        """Return the parameters of the observed points, all rows considered."""
        import numpy as np

        found = self.form.usual(self.points.threads, self.points.links)
        for place, levels in enumerate(self.spread.levels[:-1]):
            pulled = np.zeros(len(found))
            np.add.at(pulled, self.rows.point, self.slopes[:, place] * self.pull)
            shared = covariance(levels, self.points, self.points, self.form.follows_links(place))
            found[:, place] += shared @ pulled
            found[:, place] += self.spread.server[place] / self.points.servers * pulled
        return found


def learn(
    form: Form, spread: Spread, points: Points, rows: Rows, start: Array | None = None
) -> Kin:
    """Return kin that know these rows, linearised where their parameters come to lie.

    ``start`` is where they are known to lie nearly: then few steps do.
    """
    import numpy as np

    at = form.usual(points.threads, points.links) if start is None else start
    kin = linearise(form, spread, points, rows, at)
    for _ in range(STEPS if start is None else STEPS_ON):
        step = CAUTION * (kin.posterior_parameters() - at)
        at = at + np.clip(step, -LARGEST_STEP, LARGEST_STEP)
        kin = linearise(form, spread, points, rows, at)
    return kin


def linearise(form: Form, spread: Spread, points: Points, rows: Rows, at: Array) -> Kin:
    """Return kin whose rows are linearised at these parameters."""
    import numpy as np

    value, slopes = linear_rows(form, points, rows, at)
    precision = np.linalg.inv(rows_covariance(spread, form, points, rows, slopes))
    usual = form.usual(points.threads, points.links)
    distance = rows.log_value - value + np.einsum("ij,ij->i", slopes, (at - usual)[rows.point])
    return Kin(
        form=form,
        spread=spread,
        points=points,
        rows=rows,
        parameters=at,
        slopes=slopes,
        precision=precision,
        distance=distance,
        pull=precision @ distance,
    )


def consider(kin: Kin, points: Points, rows: Rows, own_variance: Array) -> tuple[Array, Array]:
    """Return every row's logarithm for a server that was not observed: mean and variance.

    Rows without a value are asked. How far a CPU that is not among the kin departs from them is
    not known: each of ``SCALES`` is tried, and weighs as much as it makes the known rows likely.

    Parameters
    ----------
    points : of the server.
    own_variance : of each row beside its noise, as of a ratio that is not known well.
    """
    import numpy as np

    known = np.isfinite(rows.log_value)
    noise = row_noise(kin.spread, points, rows) + own_variance
    means, variances, evidence = [], [], []
    seen = kin.points.scale[kin.points.name == points.name[0]]
    for scale in seen[:1] if len(seen) else SCALES:
        scaled = replace(points, scale=np.full(len(points.threads), scale))
        belief = kin.believe(scaled, rows.log_bytes, rows.point)
        mean, variance, likelihood = condition(kin.form, points, belief, rows, known, noise)
        means.append(mean)
        variances.append(variance)
        evidence.append(likelihood)
    weights = np.exp(np.array(evidence) - max(evidence))
    weights = (weights / weights.sum())[:, None]
    mean = np.sum(weights * means, axis=0)
    return mean, np.sum(weights * (np.array(variances) + (np.array(means) - mean) ** 2), axis=0)


def condition(
    form: Form, points: Points, belief: Belief, rows: Rows, known: Array, noise: Array
) -> tuple[Array, Array, float]:
    """Return mean and variance of every row's logarithm once some are known, and their evidence.

    Parameters
    ----------
    belief : of parameters at the points and of what the form leaves out of the rows.
    known : whether a row has a value; the others are asked.
    noise : variance of each row's own deviation.
    """
    import numpy as np

    mean, left, evidence = belief.mean, belief.covariance, 0.0
    own_noise = noise[known]
    loose = np.ones(len(own_noise))
    # A bandwidth was read by another program; of rows, others must say which one is wrong.
    is_bandwidth = rows.is_bandwidth[known]
    doubtful = is_bandwidth | (np.sum(~is_bandwidth) >= FEWEST_WITNESSES)
    for _ in range(STEPS if known.any() else 0):
        value, slopes = _rows_of(form, points, rows, mean)
        value, slopes = value[known], slopes[known]
        shared = slopes @ belief.covariance
        total = shared @ slopes.T + np.diag(own_noise * loose)
        distance = rows.log_value[known] - value - slopes @ (belief.mean - mean)
        gain = np.linalg.solve(total, shared).T
        target = belief.mean + gain @ distance
        evidence = -0.5 * (distance @ np.linalg.solve(total, distance))
        evidence -= 0.5 * np.linalg.slogdet(total)[1]
        missed = rows.log_value[known] - value - slopes @ (target - mean)
        grown = np.maximum((ROBUSTNESS + missed**2 / own_noise) / (ROBUSTNESS + 1), 1.0)
        loose = np.where(doubtful, grown, 1.0)
        step = np.clip(target - mean, -LARGEST_STEP, LARGEST_STEP)
        mean = mean + step
        left = belief.covariance - gain @ shared
        if np.abs(step).max() < SETTLED:
            break
    value, slopes = _rows_of(form, points, rows, mean)
    variance = np.einsum("ij,jk,ik->i", slopes, left, slopes) + noise
    return value, variance, float(evidence)


def covariance(levels: Array, one: Points, other: Points, by_links: bool = False) -> Array:
    """Return how parameters (or what the form leaves out) vary together between points."""
    import numpy as np

    mine, theirs = (p.links if by_links else p.threads for p in (one, other))
    near = likeness(np.log2(mine), np.log2(theirs), scale=THREAD_SCALE, own_share=0.0)
    total = levels[0, 0] + levels[0, 1] * near
    for (constant, changing), level in zip(levels[1:], LEVELS[1:], strict=True):
        mine, theirs = getattr(one, level)[:, None], getattr(other, level)[None, :]
        related = (mine == theirs) & (mine != "")
        scale = one.scale[:, None] if level == "name" else 1.0
        total = total + related * scale * (constant + changing * near)
    return total


def likeness(
    one: Array, other: Array, scale: float = SIZE_SCALE, own_share: float = OWN_SHARE
) -> Array:
    """Return how alike numbers are, from 0 to 1: by their distance, and exactly equal ones."""
    import numpy as np

    distance = one[:, None] - other[None, :]
    smooth = np.exp(-0.5 * (distance / scale) ** 2)
    return (1 - own_share) * smooth + own_share * (distance == 0)


def row_noise(spread: Spread, points: Points, rows: Rows) -> Array:
    """Return the variance of each row's own deviation: of the median of its point's servers."""
    import numpy as np

    point, server, bandwidth = spread.noise
    return rows.looseness * np.where(
        rows.is_bandwidth, bandwidth, point + server / points.servers[rows.point]
    )


def rows_covariance(spread: Spread, form: Form, points: Points, rows: Rows, slopes: Array) -> Array:
    """Return the covariance of the rows' logarithms, linearised by ``slopes``."""
    import numpy as np

    at = rows.point
    total = np.diag(row_noise(spread, points, rows))
    for place, levels in enumerate(spread.levels[:-1]):
        shared = covariance(levels, points, points, form.follows_links(place))
        shared = shared + np.diag(spread.server[place] / points.servers)
        total += np.outer(slopes[:, place], slopes[:, place]) * shared[np.ix_(at, at)]
    left_out = covariance(spread.levels[-1], points, points)[np.ix_(at, at)]
    is_step = ~rows.is_bandwidth
    total += left_out * likeness(rows.log_bytes, rows.log_bytes) * np.outer(is_step, is_step)
    return total


def linear_rows(form: Form, points: Points, rows: Rows, parameters: Array) -> tuple[Array, Array]:
    """Return each row's logarithm by the form and its derivatives by its point's parameters."""
    import numpy as np

    own = parameters[rows.point]
    value, slopes = form.log_seconds(own, points.threads[rows.point], rows.amounts)
    bandwidth = np.zeros(len(form.parameters))
    bandwidth[[form.parameters.index(name) for name in form.bandwidth]] = 1.0
    value = np.where(rows.is_bandwidth, own @ bandwidth, value)
    return value, np.where(rows.is_bandwidth[:, None], bandwidth, slopes)


def _rows_of(form: Form, points: Points, rows: Rows, mean: Array) -> tuple[Array, Array]:
    """Return the rows' logarithms and their derivatives by all that is believed."""
    import numpy as np

    count = len(form.parameters)
    size = len(points.threads) * count
    value, own = linear_rows(form, points, rows, mean[:size].reshape(-1, count))
    slopes = np.zeros((len(value), len(mean)))
    places = np.arange(len(value))
    slopes[places[:, None], rows.point[:, None] * count + np.arange(count)] = own
    slopes[places, size + places] = ~rows.is_bandwidth
    return value + slopes[:, size:] @ mean[size:], slopes
