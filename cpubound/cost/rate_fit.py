"""From a few decode rates of one machine to its rates: the saturation law with priors.

    t = Σ over types  bytes / R(type, T)  +  KV bytes / A(T)  +  state bytes / R(fastest, T)
        +  products · c · (1 + log2 T)

    R(type, T) = ((K(type) · T)^−p + B^−p)^(−1/p),  the law of ``cost.law``
    A(T) = ((a · T)^−2 + B^−2)^(−1/2)

Few rows never tell all of this. Every parameter has a prior in its logarithm, and the fit is
the most probable point with Student-t residuals, so that a row from a bad minute counts less.
What rows leave open stays as wide as its prior was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cpubound.cost.kernel_priors import KernelPriors
from cpubound.cost.law import saturate
from cpubound.cost.terms import attention_setting
from cpubound.model.quant import quant_type
from cpubound.setting import Setting

# Degrees of freedom of the residuals: tails heavy enough for rows that went wrong.
FREEDOM = 4.0
# Rows of one machine scattered by 2 … 5 % around the law (docs/accuracy.md): what is believed
# before a row is seen, and how many rows that belief counts for.
USUAL_SPREAD, USUAL_SPREAD_ROWS = 0.04, 4.0
# The limit may lie just above the fastest row or far away: the fit is tried from each of these.
LIMIT_STARTS = (1.02, 1.4, 3.0, 10.0)
# Attention nears the limit more gently than the one long stream of weights does.
KV_SHARPNESS = 2.0
# Kernels of one kind share their inner loop: held-out types of published series were off by
# 14.5 % (median) without, 11.2 % with this correlation (python -m calibrate published).
KIND_CORRELATION = 0.5
# The 90 % quantile of Student's t with FREEDOM over that of a normal of the same scale.
TAIL_WIDTH = 2.132 / 1.645
_MOST_STEPS, _MOST_ROUNDS = 200, 12
_STEP = 1e-4  # of a logarithm, for derivatives
_FIXED = ("limit", "sharpness", "speed", "attention", "product")


@dataclass(frozen=True, kw_only=True, slots=True)
class RateRow:
    """How fast one model was decoded at a setting, and what a step of it moves."""

    tokens_per_s: float
    setting: Setting
    weight_bytes: Mapping[str, int]  # that matrix products read, by type
    kv_bytes: int = 0
    state_bytes: int = 0
    products: int = 0
    label: str = ""  # the model and file type


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A fitted value and its standard error, relative."""

    value: float
    relative_error: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RatesFit:
    """The most probable parameters, in logarithms, with their covariance."""

    names: tuple[str, ...]
    logarithms: Any  # numpy vector
    covariance: Any  # numpy matrix
    spread: float  # of the rows around the law, relative: as a normal's standard deviation
    residuals: tuple[float, ...]  # fitted / observed − 1 of the seconds, one per row

    def weight_rate(self, type_name: str, threads: int) -> Estimate:
        """Return the bytes per second of a type's matrix products."""
        per_weight = quant_type(type_name).bits_per_weight / 8

        def rate(limit: float, sharpness: float, speed: float, factor: float) -> float:
            return float(saturate(speed * factor * per_weight * threads, limit, sharpness))

        return self._estimate(("limit", "sharpness", "speed", type_name), rate)

    def read_rate(self, threads: int) -> Estimate:
        """Return the bytes per second of the fastest type: the least that memory gives."""
        return max(
            (self.weight_rate(name, threads) for name in self.types), key=lambda rate: rate.value
        )

    def attention_rate(self, key: str, threads: int) -> Estimate:
        """Return the KV bytes per second of an attention setting (``attention_setting``)."""

        def rate(limit: float, attention: float, factor: float) -> float:
            return float(saturate(attention * factor * threads, limit, KV_SHARPNESS))

        return self._estimate(("limit", "attention", key), rate)

    def product_seconds(self, threads: int) -> Estimate:
        """Return what a matrix product costs whatever its bytes."""
        return self._estimate(("product",), lambda product: product * (1 + math.log2(threads)))

    @property
    def types(self) -> tuple[str, ...]:
        """The weight types, those of the rows and those of the priors."""
        return tuple(name for name in self.names if name not in _FIXED and ":" not in name)

    @property
    def attention_keys(self) -> tuple[str, ...]:
        """The attention settings."""
        return tuple(name for name in self.names if ":" in name)

    def parameter(self, name: str) -> Estimate:
        """Return one parameter: ``limit``, ``sharpness``, ``speed``, …, or a type's factor."""
        place = self.names.index(name)
        return Estimate(
            value=math.exp(self.logarithms[place]),
            relative_error=math.sqrt(max(self.covariance[place, place], 0.0)),
        )

    def _estimate(self, names: Sequence[str], function: Callable[..., float]) -> Estimate:
        """Carry the covariance of some parameters through a function of them."""
        places = [self.names.index(name) for name in names]
        at = [float(self.logarithms[place]) for place in places]
        value = function(*map(math.exp, at))
        slopes = []
        for moved in range(len(at)):
            there = [x + _STEP * (place == moved) for place, x in enumerate(at)]
            slopes.append(math.log(function(*map(math.exp, there)) / value) / _STEP)
        variance = sum(
            a * b * float(self.covariance[i, j])
            for i, a in zip(places, slopes, strict=True)
            for j, b in zip(places, slopes, strict=True)
        )
        return Estimate(value=value, relative_error=math.sqrt(max(variance, 0.0)))


def fit_rates(rows: Sequence[RateRow], priors: KernelPriors) -> RatesFit:
    """Fit one machine's rates to at least one row of it.

    Parameters
    ----------
    rows : of one machine and one build.
    priors : what is believed of kernels before the rows are seen.

    Raises
    ------
    ValueError : no rows, or one with a rate that is not positive.
    """
    if not rows or any(not row.tokens_per_s > 0 for row in rows):
        raise ValueError("a fit needs rows with positive rates")
    problem = _Problem(rows, priors)
    fastest = max(row.tokens_per_s * sum(row.weight_bytes.values()) for row in rows)
    fits = [problem.solve(fastest * start) for start in LIMIT_STARTS]
    return min(fits, key=lambda found: found[0])[1]


class _Problem:
    """The rows as arrays, with the priors of the parameters that they meet."""

    def __init__(self, rows: Sequence[RateRow], priors: KernelPriors) -> None:
        import numpy as np

        seen = {name for row in rows for name in row.weight_bytes}
        self.types = sorted(seen | set(priors.types))
        keys = {attention_setting(r.setting) for r in rows if r.kv_bytes}
        self.keys = sorted(keys | set(priors.attention_keys))
        self.names = (*_FIXED, *self.types, *self.keys)
        beliefs = [priors.belief(name) for name in self.names]
        self.mean = np.log([belief.value for belief in beliefs])
        deviation = np.array([belief.relative_error for belief in beliefs])
        self.precision = np.linalg.inv(_prior_covariance(self.names, deviation))
        self.bytes = np.array([[r.weight_bytes.get(t, 0) for t in self.types] for r in rows], float)
        self.bytes_per_weight = np.array([quant_type(t).bits_per_weight / 8 for t in self.types])
        self.kv_bytes = np.array([float(row.kv_bytes) for row in rows])
        self.places = np.array([self._key_place(row) for row in rows])
        self.state_bytes = np.array([float(row.state_bytes) for row in rows])
        self.products = np.array([float(row.products) for row in rows])
        self.threads = np.array([float(row.setting.threads) for row in rows])
        self.observed = -np.log([row.tokens_per_s for row in rows])

    def _key_place(self, row: RateRow) -> int:
        key = attention_setting(row.setting)
        return self.keys.index(key) if key in self.keys else 0

    def seconds(self, logarithms: Any) -> Any:
        """Return every row's logarithm of the seconds per token."""
        import numpy as np

        limit, sharpness, speed, attention, product = np.exp(logarithms[:5])
        factors = np.exp(logarithms[5 : 5 + len(self.types)])
        kv_factors = np.exp(logarithms[5 + len(self.types) :])
        alone = speed * (factors * self.bytes_per_weight)[None, :] * self.threads[:, None]
        rates = saturate(alone, limit, sharpness)
        seconds = (self.bytes / rates).sum(axis=1)
        kv_alone = attention * kv_factors[self.places] * self.threads
        seconds = seconds + self.kv_bytes / saturate(kv_alone, limit, KV_SHARPNESS)
        seconds = seconds + self.state_bytes / rates.max(axis=1)
        seconds = seconds + self.products * product * (1 + np.log2(self.threads))
        return np.log(seconds)

    def solve(self, limit: float) -> tuple[float, RatesFit]:
        """Fit from a first guess of the limit; return −2 log probability and the fit."""
        import numpy as np

        current = self.mean.copy()
        current[0] = math.log(limit)
        spread = USUAL_SPREAD
        for _ in range(_MOST_ROUNDS):
            current, cost = self._most_probable(current, spread)
            residuals = self.seconds(current) - self.observed
            weights = _student_weights(residuals / spread)
            slopes = self._slopes(current)
            information = slopes.T @ (slopes * (weights / spread**2)[:, None])
            covariance = np.linalg.inv(information + self.precision)
            # Rows that only fix what no other row tells say nothing about the spread.
            free = max(len(residuals) - float(np.trace(covariance @ information)), 0.0)
            total = float(weights @ residuals**2) + USUAL_SPREAD_ROWS * USUAL_SPREAD**2
            updated = math.sqrt(total / (USUAL_SPREAD_ROWS + free))
            settled = abs(updated / spread - 1) < 0.01
            spread = updated
            if settled:
                break
        cost += 2 * (len(residuals) + USUAL_SPREAD_ROWS) * math.log(spread)
        cost += USUAL_SPREAD_ROWS * (USUAL_SPREAD / spread) ** 2
        return cost, RatesFit(
            names=self.names,
            logarithms=current,
            covariance=covariance,
            spread=TAIL_WIDTH * spread,
            residuals=tuple(float(r) for r in np.expm1(residuals)),
        )

    def _most_probable(self, start: Any, spread: float) -> tuple[Any, float]:
        """Return the most probable point at a spread, and its −2 log probability.

        The rows' residuals have Student's t as their loss, the priors' are squared.
        """
        import numpy as np
        from scipy.optimize import least_squares

        rows = len(self.observed)
        root = np.linalg.cholesky(self.precision).T

        def residuals(x: Any) -> Any:
            from_rows = (self.seconds(x) - self.observed) / spread
            return np.concatenate([from_rows, root @ (x - self.mean)])

        def slopes(x: Any) -> Any:
            return np.vstack([self._slopes(x) / spread, root])

        def loss(squares: Any) -> Any:
            rho = np.vstack([squares, np.ones_like(squares), np.zeros_like(squares)])
            z = squares[:rows]
            rho[0, :rows] = (FREEDOM + 1) * np.log1p(z / FREEDOM)
            rho[1, :rows] = (FREEDOM + 1) / (FREEDOM + z)
            rho[2, :rows] = -(FREEDOM + 1) / (FREEDOM + z) ** 2
            return rho

        found = least_squares(residuals, start, jac=slopes, loss=loss, max_nfev=_MOST_STEPS)
        return found.x, 2 * float(found.cost)

    def _slopes(self, current: Any) -> Any:
        import numpy as np

        here = self.seconds(current)
        columns = []
        for place in range(len(current)):
            moved = current.copy()
            moved[place] += _STEP
            columns.append((self.seconds(moved) - here) / _STEP)
        return np.array(columns).T


def _prior_covariance(names: Sequence[str], deviation: Any) -> Any:
    """Return the covariance of the priors: kernels of one kind are fast or slow together."""
    import numpy as np

    kinds = [_kernel_kind(name) for name in names]
    together = np.array([[bool(a) and a == b for b in kinds] for a in kinds])
    correlation = np.where(together, KIND_CORRELATION, 0.0)
    np.fill_diagonal(correlation, 1.0)
    return correlation * deviation[:, None] * deviation[None, :]


def _kernel_kind(name: str) -> str:
    """Return what the inner loop of a type's kernel works on, empty for another parameter."""
    if name in _FIXED or ":" in name:
        return ""
    if name.startswith("IQ") and not name.startswith("IQ4"):
        return "table of patterns"
    return "super-blocks" if name.endswith("_K") else "blocks" if "Q" in name else "numbers"


def _student_weights(scaled: Any) -> Any:
    return (FREEDOM + 1) / (FREEDOM + scaled**2)
