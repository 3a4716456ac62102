"""Choosing m and k with a clean validation set (Algorithm 2), k by the adaptive schedule, and cuts within classes."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB

from rankrange import AoRRClassifier, AoRRRegressor, RankedRangeClassifier, RankedRangeRegressor, RankWeights, noise
from rankrange.core.aggregates import Stratified, quotas
from rankrange.core.losses import Logistic
from rankrange.core.objective import Design, Objective
from rankrange.crossfit import choose as tuning
from rankrange.crossfit import with_clean as validation


def blobs(n, wrong=0.0, classes=3, seed=0):
    X, y = make_blobs(n, centers=np.eye(classes) * 4, random_state=seed)
    return X, y, noise.symmetric(y, wrong, seed)


def test_wrong_labels_are_counted_with_a_clean_validation_set():
    X, y, given = blobs(1500, 0.2)
    X_val, y_val, _ = blobs(500, seed=1)
    fit = AoRRClassifier(C=0.1, random_state=0).fit(X, given, X_val=X_val, y_val=y_val)
    assert fit.noise_estimate_ == pytest.approx(0.2, abs=0.02)
    assert fit.noise_interval_[0] < 0.2 < fit.noise_interval_[1]
    assert fit.dropped_[given != y].mean() > 0.9
    assert 0.2 < fit.m_ / 1500 < 0.3
    assert fit.k_ == 1500


def test_only_what_is_left_open_is_learnt():
    X, _, given = blobs(300, 0.1)
    X_val, y_val, _ = blobs(100, seed=1)
    assert AoRRClassifier(m="auto", k=0.9, random_state=0).fit(X, given, X_val=X_val, y_val=y_val).k_ == 270
    assert AoRRClassifier(m=0.2, k="auto", random_state=0).fit(X, given, X_val=X_val, y_val=y_val).m_ == 60


def test_a_regression_learns_its_cuts_too():
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(300, 2)), rng.normal(size=(100, 2))
    y, y_val = X.sum(axis=1) + 0.1 * rng.normal(size=300), X_val.sum(axis=1) + 0.1 * rng.normal(size=100)
    y[:45] += 10
    fit = AoRRRegressor(C=1e4, random_state=0).fit(X, y, X_val=X_val, y_val=y_val)
    assert fit.dropped_[:45].all()
    assert fit.noise_estimate_ == pytest.approx(0.15, abs=0.04)


def test_class_dependent_noise_is_read_from_the_confusions():
    rng = np.random.default_rng(0)
    rates = np.array([[0.8, 0.1], [0.2, 0.9]])  # P(predicted | true)
    joint = np.array([[0.4, 0.1], [0.0, 0.5]])  # P(true, given)
    # a rare class among the clean rows
    known = np.stack([rng.multinomial(n, rates[:, c]) for c, n in ((0, 20_000), (1, 200_000))], axis=1).astype(float)
    given = rng.multinomial(100_000, (rates @ joint).ravel()).reshape(2, 2).astype(float)
    assert validation._wrong_share(known[None], given[None])[0] == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_val": None}, "needs X_val and y_val, got X_val alone"),
        ({"X_val": None}, "needs X_val and y_val, got y_val alone"),
        ({"X_val": np.empty((0, 3)), "y_val": []}, "0 sample"),
        ({"X_val": np.zeros((5, 7))}, "7 features"),
        ({"y_val": [0, 1, 2, 3, 9]}, r"classes of y only, got \[3, 9\]"),
        ({"y_val": [0, 1]}, "inconsistent numbers of samples"),
        ({"X_val": np.full((5, 3), np.nan)}, "NaN"),
    ],
)
def test_a_bad_validation_set_is_refused(change, message):
    X, _, given = blobs(60)
    valid = {"X_val": np.zeros((5, 3)), "y_val": [0, 1, 2, 0, 1]}
    with pytest.raises(ValueError, match=message):
        AoRRClassifier().fit(X, given, **{**valid, **change})


@pytest.mark.parametrize("options", [{"m": 0.1, "k": 1.0}, {"aggregate": RankWeights("extremile")}])
def test_a_validation_set_with_nothing_to_choose_is_refused(options):
    X, y, _ = blobs(60)
    with pytest.raises(ValueError, match="leave nothing to choose"):
        AoRRClassifier(**options).fit(X, y, X_val=X, y_val=y)


@pytest.mark.parametrize(("spread", "m", "k"), [(0.3, 2, 10), (2.2, 2, 80), (0.3, 50, 320)])
def test_k_falls_with_the_training_accuracy_and_stays_above_m(spread, m, k):
    X, y = make_blobs(320, centers=np.eye(2) * 4, cluster_std=spread, random_state=0)
    fit = AoRRClassifier(m=m, k="adaptive", C=1e3, random_state=0).fit(X, y)
    assert fit.k_ == k
    level = {320 // divisor: accuracy for accuracy, divisor in tuning.ADAPTIVE}
    assert fit.score(X, y) >= level.get(k, 0.0) - 0.02


def test_a_regression_has_no_accuracy_to_adapt_to():
    with pytest.raises(ValueError, match="'k' parameter of AoRRRegressor must be"):
        AoRRRegressor(k="adaptive").fit(np.eye(5), np.arange(5.0))


@pytest.mark.parametrize("model", [AoRRRegressor(0), RankedRangeRegressor(Ridge(), random_state=0)])
def test_a_target_of_objects_is_converted_and_must_not_be_missing(model):
    X = np.random.default_rng(0).normal(size=(30, 2))
    y = X[:, 0].astype(object)
    np.testing.assert_array_equal(clone(model).fit(X, y).predict(X), clone(model).fit(X, X[:, 0]).predict(X))
    for value, message in ((None, "contains NaN"), ("high", "y must be numeric: .*high.* use a classifier")):
        y[3] = value
        with pytest.raises(ValueError, match=message):
            clone(model).fit(X, y)


def rare():
    """A rare class inside a common one: cutting the largest losses cuts the rare class."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(180, 2)), rng.normal(size=(20, 2)) + [2, 0]])
    return X, np.repeat([0, 1], [180, 20])


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (AoRRClassifier(m=0.1, k=1.0, C=100.0, random_state=0), "aggregate='per-class'"),
        (RankedRangeClassifier(GaussianNB(), m=0.1, random_state=0), "pass a smaller m"),
    ],
)
def test_a_class_that_is_mostly_cut_is_named(model, remedy):
    with pytest.warns(UserWarning, match=rf"of the rows of class 1 were dropped .* {remedy}"):
        model.fit(*rare())


@pytest.mark.parametrize(("m", "wrong"), [(0.1, 0.0), ("auto", 0.1)])
def test_stratified_cuts_take_the_same_share_of_each_class(m, wrong):
    X, y = rare()
    y = noise.symmetric(y, wrong, 0)
    fit = AoRRClassifier(m=m, C=100.0, aggregate="per-class", random_state=0).fit(X, y)
    shares = [fit.dropped_[y == c].mean() for c in (0, 1)]
    assert abs(shares[0] - shares[1]) <= (1 / (y == 1).sum() if m == "auto" else 0.0)
    assert fit.dropped_.sum() == fit.m_ == (20 if m == 0.1 else fit.m_)
    assert fit.lam_hat_.shape == (2,)
    assert fit.converged_


@pytest.mark.parametrize("weights", [None, np.arange(40) % 3 + 0.5])
@pytest.mark.parametrize("kept", [0, 10])
def test_the_stratified_objective_is_its_definition(weights, kept):
    rng = np.random.default_rng(0)
    y = rng.choice([-1.0, 1.0], 40, p=[0.3, 0.7])
    groups = (y > 0).astype(int)
    total = 40.0 if weights is None else weights.sum()
    m, k = 8.0, total - kept
    design = Design(rng.normal(size=(40, 3)), True)
    objective = Objective(design, y, Logistic(), 2.0, 1, m, k, weights, Stratified(groups))
    W = rng.normal(size=(1, 4))
    s = objective.losses(design.scores(W))
    mass = np.ones(40) if weights is None else weights.copy()
    for group, quota in enumerate(quotas(np.array([m]), np.array([[mass[groups == g].sum() for g in (0, 1)]]))[0]):
        for i in sorted(np.flatnonzero(groups == group), key=lambda i: -s[i]):
            taken = min(mass[i], quota)
            mass[i], quota = mass[i] - taken, quota - taken
    value, left = 0.0, k - m
    for i in np.argsort(-s):
        value, left = value + s[i] * min(mass[i], left), left - min(mass[i], left)
    expected = value / (k - m) + (W[0, :3] ** 2).sum() / 4
    assert objective.value(W) == pytest.approx(expected)
    assert objective.cutting(s).value(W) == pytest.approx(expected)
    step = 1e-6 * rng.normal(size=W.shape)
    slope = (objective.value(W + step) - objective.value(W - step)) / 2
    assert slope == pytest.approx(np.vdot(objective.at(W).gradient, step), rel=1e-4)


def test_labels_that_were_fitted_do_not_hide_that_they_are_wrong():
    estimates, covered = [], []
    for seed in range(4):  # one estimate has a standard error of .06
        rng = np.random.default_rng(seed)
        X, X_val = rng.normal(size=(600, 80)), rng.normal(size=(600, 80))
        y, y_val = (X[:, 0] > 0).astype(int), (X_val[:, 0] > 0).astype(int)
        given = noise.symmetric(y, 0.2, seed)
        fit = AoRRClassifier(C=1e4, random_state=0).fit(X, given, X_val=X_val, y_val=y_val)
        covered.append(fit.noise_interval_[0] < 0.2 < fit.noise_interval_[1])
        estimates.append(fit.noise_estimate_)
    assert np.mean(covered) >= 0.75
    assert np.mean(estimates) == pytest.approx(0.2, abs=0.06)
