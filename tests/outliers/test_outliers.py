"""The posterior of outliers: planted ones are found, and skewed or heavy-tailed residuals are none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankrange.outliers import outlier_posterior, outlier_share

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("clean", ["normal", "skewed"])
def test_outliers_among_normal_residuals_are_flagged_and_normal_ones_are_not(clean):
    residual = RNG.normal(size=2000)
    assert (outlier_posterior(residual, clean=clean).p_wrong >= 0.5).mean() < 0.01
    residual[:100] += 12.0
    found = outlier_posterior(residual, clean=clean)
    assert (found.p_wrong[:100] >= 0.5).all()
    assert (found.p_wrong[100:] >= 0.5).mean() < 0.01
    assert found.interval[0] <= 0.05 <= found.interval[1]


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(lambda rng: rng.laplace(size=3000), id="laplace"),
        pytest.param(lambda rng: rng.exponential(size=3000) - 0.7, id="exponential"),
        pytest.param(lambda rng: rng.gamma(2.0, size=3000) - 2.0, id="gamma"),
        pytest.param(lambda rng: np.exp(0.6 * rng.normal(size=3000)) - 1.0, id="lognormal"),
    ],
)
def test_skewed_amounts_and_long_tails_are_no_errors_and_hide_none(right):
    rng = np.random.default_rng(0)
    residual = right(rng)
    for same in (residual, -residual):
        assert (outlier_posterior(same, clean="skewed").p_wrong >= 0.5).mean() < 0.005
    residual[:60] += rng.choice([-1.0, 1.0], 60) * rng.uniform(8, 20, 60) * residual.std()
    found = outlier_posterior(residual, clean="skewed")
    assert (found.p_wrong[:60] >= 0.5).mean() > 0.95
    assert (found.p_wrong[60:] >= 0.5).mean() < 0.005
    assert found.interval[0] <= 0.025


def test_errors_of_one_side_do_not_widen_it():
    """A fifth of all rows, which is a third of the side that they are on."""
    residual = np.random.default_rng(0).normal(size=2000)
    residual[:400] = 15.0 + residual[:400]
    wrong = outlier_posterior(residual, clean="skewed").p_wrong
    assert (wrong[:400] >= 0.5).all()
    assert (wrong[400:] >= 0.5).mean() < 0.01


# ---- their share, and its interval ----------------------------------------------------------------------------------


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
