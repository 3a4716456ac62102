"""The share of outliers, its interval, and the local scale of residuals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankrange.outliers import Widths, outlier_posterior, outlier_share


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


@pytest.mark.parametrize("times", [2, 3])
def test_a_mark_that_stands_several_times_counts_once(times):
    rng = np.random.default_rng(0)
    mark = (rng.random(600) < 0.3).astype(float)
    residual = rng.normal(size=600) * np.where(mark == 1.0, 4.0, 1.0)
    one, many = (Widths.of(residual, np.column_stack([mark] * count + [rng.normal(size=600)])) for count in (1, times))
    assert len(one.sides) == len(many.sides) == 1
    np.testing.assert_array_equal(one.of_rows(mark[:, None]), many.of_rows(mark[:, None]))
    assert np.median(one.of_rows(mark[:, None])[mark == 1.0]) == pytest.approx(4.0, rel=0.25)


def test_residuals_are_as_wide_as_those_of_rows_with_the_same_mark():
    rng = np.random.default_rng(0)
    mark, other = rng.random(800) < 0.15, rng.random(800) < 0.5
    X = np.column_stack([rng.normal(size=800), mark, other])
    residual = rng.normal(size=800)
    assert Widths.of(residual, X).sides == ()
    width = Widths.of(np.where(mark, 4.0, 1.0) * residual, X).of_rows(X)
    np.testing.assert_allclose(width[~mark], 1.0)
    np.testing.assert_allclose(width[mark], 4.0, rtol=0.25)
    tight = Widths.of(np.where(mark, 0.2, 1.0) * residual, X).of_rows(X)
    assert tight[~mark].min() > 3.0 * tight[mark].max()
