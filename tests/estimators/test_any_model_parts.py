"""What the estimators around any model are made of: numbers, judgement, any X for find_label_issues; and the guide."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_moons
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from test_any_model import mixed, moons

from rankrange import AoRRClassifier, PartialAUCClassifier, RankedRangeClassifier, RankedRangeRegressor, noise
from rankrange.core.transition import temperature, tempered
from rankrange.crossfit.folds import Folds
from rankrange.crossfit.numeric import numeric_view
from rankrange.outliers.scatter import sizes

# ---- probabilities


def odds(P):
    """log p1 / p0 of probabilities, none below .0001."""
    P = np.clip(P, 1e-4, 1.0)
    return np.log(P[:, 1] / P[:, 0])


def test_an_ensemble_predicts_the_mean_of_its_models_at_a_temperature():
    X, y = moons(300)
    model = RankedRangeClassifier(GaussianNB(), random_state=0).fit(X, noise.symmetric(y, 0.2, 0))
    assert len(model.estimators_) == 10
    np.testing.assert_allclose(model.estimator_weights_, [0.15] * 5 + [0.05] * 5)
    weighed = zip(model.estimator_weights_, model.estimators_, strict=True)
    mean = sum(weight * m.predict_proba(X) for weight, m in weighed)
    np.testing.assert_allclose(odds(model.predict_proba(X)), odds(mean) / model.temperature_)
    np.testing.assert_array_equal(model.predict(X), mean.argmax(axis=1))
    given = model.set_params(m=0.2).fit(X, y)
    assert given.temperature_ == 1.0
    np.testing.assert_allclose(given.predict_proba(X), np.mean([m.predict_proba(X) for m in given.estimators_], axis=0))


@pytest.mark.parametrize(
    "model",
    [RankedRangeClassifier(KNeighborsClassifier(1), m=0, ensemble=False), AoRRClassifier(0), PartialAUCClassifier()],
)
def test_the_logarithm_of_probability_0_is_minus_infinity(model):
    """Far out every probability is 0 or 1; a warning of NumPy would be an error here."""
    X, y = moons(60)
    found = clone(model).fit(X, y).predict_log_proba(1e6 * X)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.tile([-np.inf, 0.0], (60, 1)))


def test_without_a_cut_the_model_of_all_rows_is_the_one_that_was_given():
    X, y = make_blobs(300, centers=[[0, 0], [9, 0]], random_state=0)
    forest = RandomForestClassifier(5, random_state=7)
    model = RankedRangeClassifier(forest, random_state=0).fit(X, y)
    assert not model.dropped_.any()
    alone = clone(forest).fit(X, y)
    np.testing.assert_array_equal(model.estimators_[-1].predict_proba(X), alone.predict_proba(X))
    np.testing.assert_allclose(model.estimator_weights_, [0.05] * 5 + [0.75])
    single = model.set_params(ensemble=False).fit(X, y)
    np.testing.assert_array_equal(single.estimator_.predict_proba(X), alone.predict_proba(X))
    states = [part.random_state for part in model.set_params(ensemble=True).fit(X, y).estimators_]
    assert len(set(states)) == 6  # the others have states of their own


def test_trimming_makes_rows_look_easier_and_the_temperature_corrects_for_it():
    X, y = make_moons(2400, noise=0.5, random_state=0)  # one row in five is on the wrong side
    given = noise.symmetric(y[:400], 0.2, 0)
    model = RankedRangeClassifier(KNeighborsClassifier(3), random_state=0).fit(X[:400], given)
    assert model.dropped_.mean() > 0.1
    P, accuracy = model.predict_proba(X[400:]), model.score(X[400:], y[400:])
    own = model.estimators_[:5]  # the others saw what was dropped
    untempered = np.mean([part.predict_proba(X[400:]) for part in own], axis=0)
    overconfident = untempered.max(axis=1).mean() - accuracy
    assert overconfident > 0.07
    assert abs(P.max(axis=1).mean() - accuracy) < overconfident
    assert log_loss(y[400:], P) < log_loss(y[400:], untempered.clip(1e-3, 1.0 - 1e-3))


def test_a_single_model_is_the_model_itself_on_the_rows_that_are_left():
    X, y = moons(300)
    given = noise.symmetric(y, 0.2, 0)
    model = RankedRangeClassifier(GaussianNB(), ensemble=False, random_state=0).fit(X, given)
    alone = GaussianNB().fit(X[~model.dropped_], given[~model.dropped_])
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    np.testing.assert_allclose(model.estimator_.predict_proba(X), alone.predict_proba(X))
    np.testing.assert_allclose(odds(model.predict_proba(X)), odds(alone.predict_proba(X)) / model.temperature_)
    assert not hasattr(model, "estimators_")
    assert not hasattr(model.set_params(ensemble=True).fit(X, given), "estimator_")


def drawn(seed=0, n=4000, classes=3):
    """Probabilities, and classes drawn from them."""
    rng = np.random.default_rng(seed)
    P = softmax(rng.normal(0.0, 2.0, (n, classes)), axis=1)
    return P, (rng.random((n, 1)) > P.cumsum(axis=1)).sum(axis=1), rng


@pytest.mark.parametrize("heat", [0.5, 1.0, 3.0])
def test_a_temperature_is_found_again_behind_wrong_labels(heat):
    P, true, rng = drawn()
    T = np.array([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]])
    given = (rng.random((4000, 1)) > T[true].cumsum(axis=1)).sum(axis=1)
    told = P**heat / (P**heat).sum(axis=1, keepdims=True)
    found = temperature(told, given, T, np.ones(4000))
    assert found == pytest.approx(heat, rel=0.1)
    usual = told.min(axis=1) > 1e-4
    np.testing.assert_allclose(tempered(told, heat)[usual], P[usual])
    assert temperature(told, given, np.eye(3), np.ones(4000)) > 1.3 * heat  # wrong labels look like less to be sure of


# ---- numbers


def waves(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1], rng


@pytest.mark.parametrize("by", ["feature", "target"])
def test_noise_that_grows_is_not_taken_for_outliers(by):
    X, f, rng = waves(1500)
    scale = 0.05 + 0.6 * (X[:, 1] + 3) / 6 if by == "feature" else 0.05 + 0.5 * (f - f.min())
    y = f + scale**1.5 * rng.normal(size=1500)
    model = RankedRangeRegressor(KNeighborsRegressor(15), random_state=0).fit(X, y)
    assert model.dropped_.mean() < 0.015


def test_rows_that_trees_cannot_reach_are_not_dropped_and_the_fit_is_no_worse():
    """Residuals are large at the edge of the data, where trees cannot follow a slope; no target is wrong."""
    rng = np.random.default_rng(0)
    X, X_test = rng.normal(size=(500, 3)), rng.normal(size=(2000, 3))
    y = X.sum(axis=1) + 0.15 * rng.normal(size=500)
    model = RankedRangeRegressor(random_state=0).fit(X, y)
    plain = HistGradientBoostingRegressor(random_state=0).fit(X, y)
    assert not model.dropped_.any()
    assert model.noise_interval_[0] == 0.0
    worse = np.mean((model.predict(X_test) - X_test.sum(axis=1)) ** 2)
    assert worse <= 1.05 * np.mean((plain.predict(X_test) - X_test.sum(axis=1)) ** 2)
    assert model.p_wrong_.max() > 0.5  # they do look like outliers


# ---- what they are made of


def test_folds_average_the_predictions_of_each_row():
    test = np.array([[1, 1, 0, 0], [1, 0, 1, 0]], dtype=bool)
    found = Folds(~test, test).average([np.array([1.0, 2.0]), np.array([3.0, 5.0])])
    np.testing.assert_array_equal(found, [2.0, 2.0, 5.0, np.nan])


def test_a_numeric_view_keeps_numbers_and_encodes_the_rest():
    frame, _, _ = mixed(40)
    frame["name"] = [f"row {i}" for i in range(40)]  # says nothing of other rows
    frame["count"] = pd.array([None, *range(39)], dtype="Int64")
    frame["day"] = pd.date_range("2020-01-01", periods=40)
    view = numeric_view(frame)
    assert np.isfinite(view).all()
    assert view.shape == (40, 1 + 2 + 3 + 2 + 2 + 1)
    assert numeric_view(["some text", "more"]) is None
    assert numeric_view(np.array([["a long text"], ["another"], ["third"]])) is None
    X = np.arange(6.0).reshape(3, 2)
    assert numeric_view(X) is X


# ---- find_label_issues with any X


def test_never_more_than_half_of_the_rows_are_dropped():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(700, 4))
    y = np.where(rng.random(700) < 0.3, 8, 4 * (X[:, 0] > 0) + rng.integers(0, 4, 700))  # 580 rows were
    assert RankedRangeClassifier(GaussianNB(), random_state=0).fit(X, y).dropped_.mean() <= 0.5


def test_rows_without_a_residual_do_not_lower_the_expected_size():
    residual = np.random.default_rng(0).normal(size=400)
    residual[:100] = np.nan  # as the first rows of a series, which no fold tests
    found = sizes(residual)
    np.testing.assert_array_equal(found[100:], sizes(residual[100:]))
    np.testing.assert_allclose(found[:100], found[100:].mean())
