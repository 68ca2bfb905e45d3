"""From probe times to a rate table: one robust fit with bounds for each thread count.

    minimise Σ ρ((Σ amount(key) · seconds(key) / time − 1) / σ)     seconds ≥ 0

Each probe is an equation, divided by its time so that all count alike by their relative error.
ρ is Huber's loss; σ joins a probe's own standard error with what equal probes differ by. Only
what the cache keeps (``cached@``) is negative. No prior: a rate that the probes leave open
is refused (``check_design``), not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cpubound.profile.values import RateTable

# Where the pages of a probe lie decides by about as much.
USUAL_RESIDUAL = 0.01
# A few samples of two speeds have no standard error to speak of: a cell is known to this at least.
MAX_CELL_ERROR = 0.3
# Residuals beyond this many σ count linearly: 95 % efficient for normal noise (Huber 1964).
HUBER = 1.345
# Beyond it probes do not tell one rate from another; the plans are below 100 with every choice of
# types but F32 alone (170).
MAX_CONDITION_NUMBER = 300.0
# A key that is left open has at least this part of the largest in an open direction.
OPEN_SHARE = 0.3
# A key is a real part of an equation from this part of its largest amount over time on.
REAL_PART = 0.05


class Equation(NamedTuple):
    """One probe at one thread count: the amounts of its terms, its time and standard error."""

    amounts: Mapping[str, float]
    seconds: float
    standard_error_s: float = 0.0


class Undetermined(ValueError):
    """The probes do not determine the rates; names those that they leave open."""


def fit_rates(equations: Sequence[Equation], threads: int) -> RateTable:
    """Fit a rate table to the probes of one thread count.

    Raises
    ------
    Undetermined : the design matrix has not full column rank, or nearly so.
    """
    import numpy as np
    from scipy.optimize import least_squares

    keys, design = design_matrix(equations)
    check_design(keys, design)
    scale = np.linalg.norm(design, axis=0)
    matrix = design / scale
    sigma = np.array(
        [
            np.hypot(USUAL_RESIDUAL, min(e.standard_error_s / e.seconds, MAX_CELL_ERROR))
            for e in equations
        ]
    )
    weighted = matrix / sigma[:, None]
    is_saving = np.array([key.startswith("cached@") for key in keys])
    lower = np.where(is_saving, -np.inf, 0.0)
    upper = np.where(is_saving, 0.0, np.inf)
    start = np.where(is_saving, -1e-6, 1e-6) + np.linalg.lstsq(weighted, 1 / sigma, rcond=None)[0]
    start = np.clip(start, np.where(is_saving, -np.inf, 1e-9), np.where(is_saving, -1e-9, np.inf))
    found = least_squares(
        lambda x: weighted @ x - 1 / sigma,
        start,
        jac=lambda x: weighted,
        bounds=(lower, upper),
        loss="huber",
        f_scale=HUBER,
        x_scale=1.0,
        max_nfev=500,
        xtol=1e-12,
        ftol=1e-12,
        gtol=1e-10,
    )
    solution = np.where(np.abs(found.x) < 1e-7, 0.0, found.x)
    residuals = matrix @ solution - 1
    covariance = _covariance(found.jac, residuals / sigma, solution)
    return RateTable(
        threads=threads,
        keys=keys,
        seconds=tuple(float(x) for x in solution / scale),
        covariance=tuple(
            tuple(float(v) for v in row) for row in covariance / np.outer(scale, scale)
        ),
        residuals=tuple(float(r) for r in residuals),
    )


def design_matrix(equations: Sequence[Equation]) -> tuple[tuple[str, ...], Any]:
    """Return the keys of some probes and their amounts over their times, a row for each."""
    import numpy as np

    keys = tuple(sorted({key for e in equations for key in e.amounts}))
    rows = [[e.amounts.get(key, 0.0) / e.seconds for key in keys] for e in equations]
    return keys, np.array(rows).reshape(len(equations), len(keys))


def condition_number(design: Any) -> float:
    """Return the condition number of a design whose columns are brought to one length."""
    import numpy as np

    if design.shape[0] < design.shape[1]:
        return float("inf")
    values = np.linalg.svd(design / np.linalg.norm(design, axis=0), compute_uv=False)
    return float(values[0] / values[-1]) if values[-1] > 0 else float("inf")


def check_design(keys: Sequence[str], design: Any) -> None:
    """Raise ``Undetermined`` if the rows do not determine every key."""

    if not len(keys):
        raise Undetermined("a fit needs at least one probe")
    if condition_number(design) <= MAX_CONDITION_NUMBER:
        return
    open_keys = _open_keys(keys, design)
    raise Undetermined(
        f"{design.shape[0]} probes do not determine {len(keys)} rates ({', '.join(open_keys)})"
    )


def determined(equations: Sequence[Equation]) -> tuple[list[Equation], tuple[str, ...]]:
    """Return the equations whose rates they determine together, and the keys left out.

    Of the subjects that a near-null direction of the design shows, the one that is a real part
    of the fewest equations leaves with them, and alone from the others, until the rest is
    determined.
    """

    kept, left_out = list(equations), []
    while kept:
        keys, design = design_matrix(kept)
        if condition_number(design) <= MAX_CONDITION_NUMBER:
            break
        is_real = design >= REAL_PART * design.max(axis=0)
        loss = {
            subject: is_real[:, [_subject(key) == subject for key in keys]].any(axis=1)
            for subject in map(_subject, _open_keys(keys, design))
        }
        gone = min(loss, key=lambda subject: (int(loss[subject].sum()), subject))
        left_out += [key for key in keys if _subject(key) == gone]
        kept = [
            e._replace(amounts={k: n for k, n in e.amounts.items() if _subject(k) != gone})
            for e, is_lost in zip(kept, loss[gone], strict=True)
            if not is_lost
        ]
    return kept, tuple(left_out)


def _open_keys(keys: Sequence[str], design: Any) -> list[str]:
    """Return the keys that the direction which the rows tell least is made of."""
    import numpy as np

    _, _, directions = np.linalg.svd(design / np.linalg.norm(design, axis=0))
    weakest = np.abs(directions[-1])
    least = OPEN_SHARE * weakest.max()
    return [key for key, share in zip(keys, weakest, strict=True) if share >= least]


def _subject(key: str) -> str:
    """Name what a key is measured for: attention of a setting and head size, weights of a type."""
    kind, _, rest = key.partition(":")
    if kind in ("attention", "kv"):
        return ":".join(("attention", *rest.split(":")[:4]))
    if kind in ("bytes", "rows"):
        type_name, at, _ = rest.partition("@")
        return f"bytes:{type_name}{at}"
    return key


def _covariance(jacobian: Any, scaled_residuals: Any, solution: Any) -> Any:
    """Return the covariance from the Jacobian; what lies on its bound has no variance."""
    import numpy as np

    used = np.flatnonzero(solution)
    jacobian = jacobian[:, used]
    freedom = max(len(scaled_residuals) - len(used), 1)
    capped = np.clip(scaled_residuals, -HUBER, HUBER)
    # Huber's second proposal: 0.71 is the mean of the capped squares of normal noise.
    variance = max(float(capped @ capped) / freedom / 0.71, 0.25)
    covariance = np.zeros((len(solution), len(solution)))
    covariance[np.ix_(used, used)] = np.linalg.pinv(jacobian.T @ jacobian) * variance
    return covariance
