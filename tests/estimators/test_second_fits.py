"""A fit leaves nothing of an earlier one; what ends a fit is said once."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB

from rankrange import AoRRClassifier, AoRRRegressor, RankedRangeClassifier, RankedRangeRegressor
from rankrange.shards import ArrayRows


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_a_squared_hinge_that_is_zero_in_all_kept_rows_gives_no_warning(seed):
    """Without curvature the scale of the intercept was so small that its inverse overflowed."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 4))
    y = X @ [1, 2, 0, -1] + 0.3 * rng.normal(size=200) > 0
    model = AoRRClassifier(loss="squared_hinge", m=0.1, C=1e6, random_state=0).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.score(X[~model.dropped_], y[~model.dropped_]) == 1.0


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
    "one or many": (RankedRangeClassifier(GaussianNB(), m=0.1), {"ensemble": False}, {"ensemble": True}),
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


def test_a_fit_that_ends_at_max_iter_does_not_say_that_no_step_is_left():
    X, y = make_classification(200, 5, random_state=0)
    model = AoRRClassifier(m=0, k=1.0, aggregate="group-cvar", max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, y, groups=np.arange(200) % 4)
    assert "no step lowers" not in str(caught[0].message)
