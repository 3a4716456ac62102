"""What stands beside the main result: ends of intervals, settings that are used again, fields of an earlier fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB

from rankrange import (
    AoRRClassifier,
    AoRRRegressor,
    RankedRangeClassifier,
    RankedRangeRegressor,
    find_label_issues,
)
from rankrange.core.losses import LOSSES
from rankrange.core.objective import Design, Objective
from rankrange.crossfit.alternate import alternate, by_rank
from rankrange.crossfit.numeric import numeric_view
from rankrange.crossfit.with_clean import _confusions
from rankrange.outliers import Widths, outlier_posterior, outlier_share
from rankrange.shards import ArrayRows

# ---- the share of outliers -------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("weighted", [False, True])
def test_confusions_count_each_clean_and_each_training_row_once(weighted):
    """How many rows there are decides how wide the interval of the share of wrong labels is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    weight = rng.integers(1, 4, 110).astype(float) if weighted else None
    loss = LOSSES["logistic"]()
    total = 110 if weight is None else weight.sum()
    noisy = Objective(Design(X[:110], True), y[:110], loss, 10.0, m=0, k=total, sample_weight=weight)
    clean = Objective(Design(X[110:], True), y[110:], loss, 1.0)
    known, given_ = _confusions(noisy, clean, 0.1, 2)
    np.testing.assert_allclose(known.sum(axis=0), [np.sum(y[110:] < 0), np.sum(y[110:] > 0)])
    mass = np.ones(110) if weight is None else weight
    np.testing.assert_allclose(given_.sum(axis=0), [mass[y[:110] < 0].sum(), mass[y[:110] > 0].sum()])


# ---- the choice of m on some of the rows -----------------------------------------------------------------------------


# ---- widths of residuals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [2, 3])
def test_a_mark_that_stands_several_times_counts_once(times):
    rng = np.random.default_rng(0)
    mark = (rng.random(600) < 0.3).astype(float)
    residual = rng.normal(size=600) * np.where(mark == 1.0, 4.0, 1.0)
    one, many = (Widths.of(residual, np.column_stack([mark] * count + [rng.normal(size=600)])) for count in (1, times))
    assert len(one.sides) == len(many.sides) == 1
    np.testing.assert_array_equal(one.of_rows(mark[:, None]), many.of_rows(mark[:, None]))
    assert np.median(one.of_rows(mark[:, None])[mark == 1.0]) == pytest.approx(4.0, rel=0.25)


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_a_date_that_is_missing_is_marked_and_filled_as_a_number_is():
    pd = pytest.importorskip("pandas")
    day = pd.Series(pd.date_range("2024-01-01", periods=30))
    late = day.copy()
    late[[3, 17]] = pd.NaT
    number = day.astype("int64").astype(float)
    number[[3, 17]] = np.nan
    np.testing.assert_allclose(numeric_view(pd.DataFrame({"x": late})), numeric_view(pd.DataFrame({"x": number})))
    filled = numeric_view(pd.DataFrame({"x": late}))
    np.testing.assert_array_equal(np.flatnonzero(filled[:, 1]), [3, 17])
    assert filled[3, 0] == np.median(np.delete(filled[:, 0], [3, 17]))


def test_the_most_frequent_levels_of_a_column_are_kept():
    pd = pytest.importorskip("pandas")
    counts = np.arange(1, 31)  # thirty levels, each more frequent than the one before
    cells = np.random.default_rng(0).permutation(np.repeat([f"level {i:02d}" for i in range(30)], counts))
    columns = numeric_view(pd.DataFrame({"x": cells}))
    assert sorted(columns.sum(axis=0).astype(int).tolist()) == list(range(11, 31))


# ---- settings that are used again, and what an earlier fit left ------------------------------------------------------


def fitted(model, on):
    """The names of what a fit stored; `on` says what it was fitted to."""
    X = np.random.default_rng(0).normal(size=(80, 2))
    y = (X[:, 0] > 0).astype(int)
    if on == "scan":
        model.fit(ArrayRows([X[:40], X[40:]], [y[:40], y[40:]]))
    else:
        model.fit(X, y)
    return {name for name in vars(model) if name.endswith("_")}


SECOND_FITS = {
    "a classifier": (AoRRClassifier(random_state=0), {"m": "auto"}, {"m": 0.1}),
    "a regressor": (AoRRRegressor(random_state=0), {"m": "auto"}, {"m": 0.1}),
    "any classifier": (RankedRangeClassifier(GaussianNB(), random_state=0), {"m": "auto"}, {"m": 0.1}),
    "any regressor": (RankedRangeRegressor(LinearRegression(), random_state=0), {"m": "auto"}, {"m": 0.1}),
    "one or many": (RankedRangeClassifier(GaussianNB(), m=0.1), {"refit": "single"}, {"refit": "ensemble"}),
    "class by class": (AoRRClassifier(0.1, random_state=0), {"aggregate": "per-class"}, {"aggregate": None}),
}


@pytest.mark.parametrize("case", SECOND_FITS)
def test_a_second_fit_leaves_nothing_of_the_first(case):
    model, *both = SECOND_FITS[case]
    fresh = [fitted(clone(model).set_params(**given), "arrays") for given in both]
    again = clone(model)
    for number in (0, 1, 0):
        assert fitted(again.set_params(**both[number]), "arrays") == fresh[number]


@pytest.mark.parametrize("model", [AoRRClassifier(0.1), AoRRRegressor(0.1)], ids=["classifier", "regressor"])
def test_a_fit_leaves_nothing_of_a_fit_to_another_kind_of_rows(model):
    fresh = {on: fitted(clone(model), on) for on in ("arrays", "scan")}
    again = clone(model)
    for on in ("scan", "arrays", "scan", "arrays"):
        assert fitted(again, on) == fresh[on]


@pytest.mark.parametrize("rounds", [1, 2, 3, 6])
@pytest.mark.parametrize("seed", range(3))
def test_dropped_rows_are_those_of_the_largest_losses_that_are_returned(rounds, seed):
    X, y = make_regression(60, 2, noise=5.0, random_state=seed)
    y[:9] += 400.0
    mass = np.ones(60)

    def fit(keep):
        return np.linalg.lstsq(X[keep], y[keep], rcond=None)[0]

    end = alternate(fit, lambda coef: (X @ coef - y) ** 2, 6, 55, mass, rounds)
    dropped, easy = by_rank(end.losses, np.ones(60, dtype=bool), 6, 55, mass)
    np.testing.assert_array_equal(end.dropped, dropped)
    np.testing.assert_array_equal(end.easy, easy)
    np.testing.assert_allclose(end.last, fit(~dropped & ~easy))
    assert (np.diff(end.values[:-1]) < 0).all()


def test_decisions_change_no_label_of_the_issues():
    issues = find_label_issues(y=[0, 0, 1, 1], pred_probs=[[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])
    given = issues.given.copy()
    issues.decide(1, "relabel", 1)
    issues.decide(2, "drop")
    first, again = issues.decided(), issues.decided()
    np.testing.assert_array_equal(issues.given, given)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    issues.decide(1, "keep")
    np.testing.assert_array_equal(issues.decided()[0], given)
