from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubound import stats

SAMPLES = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=60)


@given(SAMPLES, st.floats(0, 1))
def test_quantiles_equal_those_of_numpy(samples: list[float], fraction: float) -> None:
    assert stats.quantile(samples, fraction) == pytest.approx(
        float(np.quantile(samples, fraction)), rel=1e-9
    )


def test_a_quantile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        stats.median([])


def test_a_fraction_outside_the_range_is_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        stats.quantile([1.0], 1.5)


def test_spread_is_half_the_range_over_the_median() -> None:
    assert stats.relative_spread([1.0] * 10) == 0
    assert stats.relative_spread([0.9, 1.0, 1.1]) == pytest.approx(0.09)


def test_drift_compares_the_second_half_with_the_first() -> None:
    assert stats.relative_drift([1.0, 1.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert stats.relative_drift([3.0]) == 0.0


def test_the_error_of_a_median_shrinks_with_the_root_of_the_count() -> None:
    random = np.random.default_rng(1)
    few = stats.median_standard_error(random.normal(10, 1, 100).tolist())
    many = stats.median_standard_error(random.normal(10, 1, 10000).tolist())
    assert few / many == pytest.approx(10, rel=0.3)
    assert many == pytest.approx(1.2533 / 100, rel=0.1)
