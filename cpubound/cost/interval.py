"""The 90 % interval of a prediction, and what it was set on.

In the logarithm of the time, so that a wide interval never reaches zero:

    half width = factor · √(noise² + rates² + form²)

*noise* is how far two halves of a cell's samples lay apart while the machine was measured,
*rates* the standard error of the predicted time from the fit's covariance, *form* what the
form of the model leaves out (the model-form error), by basis, thread count and depth. The
form errors are data (``interval.toml``), set on the interval set of the kept runs alone by
``python -m calibrate interval``.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated

import msgspec

from cpubound.package_data import read_toml

# Two-sided 90 % of a normal distribution.
NORMAL_90 = 1.645
# A median distance over the standard deviation of a normal distribution; two halves of n
# samples lie √2 times as far apart as one of them from the truth.
NORMAL_MEDIAN = 0.6745
# llama.cpp reached 1 / 2.9 (IQ4_XS) to 1 / 1.16 (F16) of bytes over bandwidth on models of
# 1 B and more; a prediction with nothing but the bandwidth spans just that.
CEILING_LOW_SHARE = 1 / 2.9
# A time that is known worse than this is not known: the interval then spans a factor of five
# to either side.
MAX_ERROR = 1.0
# From here on the cache's share of a token counts.
DEEP_TOKENS = 512

Relative = Annotated[float, msgspec.Meta(ge=0, le=3)]


class FormErrors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model-form error of predicted seconds, as standard deviations of the logarithm.

    ``faster`` where the observed time is shorter than the predicted one, ``slower`` longer.
    """

    faster: Relative
    slower: Relative


def seconds_interval(
    seconds: float, rates_error: float, halves_distance: float, form: FormErrors
) -> tuple[float, float]:
    """Return the shortest and the longest time that nine of ten runs stay between.

    Parameters
    ----------
    rates_error : standard error of the predicted seconds from the fit, relative.
    halves_distance : the median distance of two halves of a cell's samples, relative.
    """
    if not seconds:
        return 0.0, 0.0
    noise = halves_distance / NORMAL_MEDIAN / math.sqrt(2)
    shared = min(noise**2 + rates_error**2, MAX_ERROR**2)
    faster = NORMAL_90 * math.sqrt(shared + form.faster**2)
    slower = NORMAL_90 * math.sqrt(shared + form.slower**2)
    return math.exp(-faster) * seconds, math.exp(slower) * seconds


def read_form_errors(basis: str, threads: int, depth_tokens: int) -> FormErrors:
    """Return the form errors of a basis at one or several threads, shallow or deep."""
    threads_name = "one_thread" if threads == 1 else "several_threads"
    depth_name = "deep" if depth_tokens >= DEEP_TOKENS else "shallow"
    return read_table()[basis][threads_name][depth_name]


@cache
def read_table() -> dict[str, dict[str, dict[str, FormErrors]]]:
    """Read ``interval.toml``: form errors by basis, threads and depth."""
    data = read_toml("cost", "interval.toml")
    return msgspec.convert(
        {basis: data[basis] for basis in ("engine", "kernel")},
        dict[str, dict[str, dict[str, FormErrors]]],
    )
