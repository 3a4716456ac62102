"""The share of outliers, and its interval."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankrange.outliers import outlier_posterior, outlier_share


@pytest.mark.parametrize("n", [20, 100, 900])
@pytest.mark.parametrize("clean", ["normal", "skewed"])
def test_the_posterior_of_outliers_leaves_room_for_three_more(n, clean):
    found = outlier_posterior(np.linspace(-1.0, 1.0, n), clean=clean)
    assert found.rate == pytest.approx(0.0, abs=1e-6)
    assert found.interval == pytest.approx((0.0, 3.0 / n), abs=1e-6)


@pytest.mark.parametrize("n", [20, 100, 900])
def test_rows_without_an_outlier_leave_room_for_three_in_the_interval(n):
    """The rule of three: of n rows none was an outlier, so that up to 3/n of all rows may be."""
    residual = np.linspace(-1.0, 1.0, n)
    rate, low, high = outlier_share(residual, np.ones(n))
    assert (rate, low) == (0.0, 0.0)
    assert 3.0 / n - 0.0028 <= high <= 3.0 / n


@settings(max_examples=50)
@given(st.integers(20, 300), st.integers(0, 5), st.integers(0, 10_000))
def test_the_interval_of_outliers_holds_their_share(n, outliers, seed):
    rng = np.random.default_rng(seed)
    residual = np.clip(rng.normal(size=n), -2.0, 2.0)
    residual[:outliers] = 50.0
    rate, low, high = outlier_share(residual, np.ones(n))
    assert 0.0 <= low <= rate <= high <= 1.0
    assert low <= outliers / n <= high + 0.0028
