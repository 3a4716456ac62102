"""The baselines: each loss against its definition, each fit against another solver."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression

from rankrange.estimators import LogisticPerLabel, LSEPClassifier, TopKSVMClassifier
from rankrange.estimators.baselines import _capped_simplex, lsep, top_k_hinge


def cases(seed=0, one_label=False):
    rng = np.random.default_rng(seed)
    for _ in range(200):
        n_labels = int(rng.integers(2, 7))
        f = rng.normal(size=(1, n_labels)) * rng.choice([0.1, 1.0, 30.0])
        true = rng.random((1, n_labels)) < rng.random()
        if one_label:
            true = np.eye(n_labels, dtype=bool)[[rng.integers(n_labels)]]
        yield true, f


def test_lsep_is_the_log_of_one_plus_a_sum_over_pairs():
    for true, f in cases():
        pairs = [np.exp(f[0, u] - f[0, v]) for u in np.flatnonzero(~true[0]) for v in np.flatnonzero(true[0])]
        assert lsep(true, f)[0][0] == pytest.approx(np.log1p(sum(pairs)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("mu", [0.5, 0.05])
def test_slopes_are_finite_differences(mu):
    step = 1e-6
    losses = [(True, lambda true, f: top_k_hinge(true, f, 2, mu))]
    for one_label, loss in losses if mu < 0.5 else [(False, lsep), *losses]:
        for true, f in cases(one_label=one_label):
            if one_label and f.shape[1] < 3:
                continue
            slope = loss(true, f)[1][0]
            for j in range(f.shape[1]):
                d = step * np.eye(f.shape[1])[j]
                expected = (loss(true, f + d)[0][0] - loss(true, f - d)[0][0]) / (2 * step)
                assert slope[j] == pytest.approx(expected, abs=1e-4)


def test_top_k_hinge_is_lapins_and_its_smoothing_lies_within_mu():
    for true, f in cases(one_label=True):
        for k in range(1, f.shape[1]):
            b = [f[0, j] - f[0][true[0]][0] + (not true[0, j]) for j in range(f.shape[1])]
            expected = max(0.0, sum(sorted(b, reverse=True)[:k]) / k)
            assert top_k_hinge(true, f, k, 0.0)[0][0] == pytest.approx(expected, abs=1e-12)
            assert expected - 0.1 - 1e-9 <= top_k_hinge(true, f, k, 0.1)[0][0] <= expected + 1e-12


def test_capped_simplex_is_the_nearest_point():
    rows = np.random.default_rng(0).normal(size=(10, 5)) * 3
    near = _capped_simplex(rows, 0.4)
    for row, x in zip(rows, near, strict=True):
        variable = cp.Variable(5)
        constraints = [variable >= 0, variable <= 0.4, cp.sum(variable) == 1]
        cp.Problem(cp.Minimize(cp.sum_squares(variable - row)), constraints).solve(solver="CLARABEL")
        np.testing.assert_allclose(x, variable.value, atol=1e-5)


@pytest.fixture(scope="module")
def problem():
    X, Y = make_multilabel_classification(60, 4, n_classes=4, n_labels=2, allow_unlabeled=False, random_state=0)
    return (X - X.mean(axis=0)) / X.std(axis=0), Y


def test_logistic_per_label_is_scikit_learns(problem):
    X, Y = problem
    model = LogisticPerLabel(2, C=0.05, tol=1e-12, max_iter=1000).fit(X, Y)
    for j in range(4):
        reference = LogisticRegression(C=0.05, tol=1e-10, max_iter=5000).fit(X, Y[:, j])
        np.testing.assert_allclose(model.coef_[j], reference.coef_[0], atol=1e-4)


def test_lsep_fit_is_the_minimum(problem):
    X, Y = problem
    V, b = cp.Variable((4, 4)), cp.Variable(4)
    scores = X @ V.T + np.ones((60, 1)) @ cp.reshape(b, (1, 4), order="C")
    losses = []
    for i in range(60):
        pairs = [scores[i, u] - scores[i, v] for u in np.flatnonzero(Y[i] == 0) for v in np.flatnonzero(Y[i] == 1)]
        if pairs:
            losses.append(cp.log_sum_exp(cp.hstack([0, *pairs])))
    best = cp.Problem(cp.Minimize(0.05 * cp.sum(losses) + cp.sum_squares(V) / 2)).solve(solver="CLARABEL")
    assert LSEPClassifier(2, C=0.05).fit(X, Y).objective_ == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_top_k_svm_fit_is_the_minimum(k):
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=60)
    X = rng.normal(size=(60, 3)) + rng.normal(size=(4, 3))[y]
    V, b = cp.Variable((4, 3)), cp.Variable(4)
    scores = X @ V.T + np.ones((60, 1)) @ cp.reshape(b, (1, 4), order="C")
    losses = [cp.pos(cp.sum_largest(scores[i] - scores[i, y[i]] + (np.arange(4) != y[i]), k) / k) for i in range(60)]
    best = cp.Problem(cp.Minimize(0.05 * cp.sum(losses) + cp.sum_squares(V) / 2)).solve(solver="CLARABEL")
    model = TopKSVMClassifier(k, C=0.05).fit(X, y)
    assert best - 1e-6 <= model.objective_ <= best * 1.005
    assert model.score(X, y) > 0.4


def test_top_k_svm_refuses_sets_of_labels(problem):
    X, Y = problem
    with pytest.raises(ValueError, match="exactly one class per row"):
        TopKSVMClassifier(2).fit(X, Y)


def test_bad_settings_get_a_clear_error(problem):
    X, Y = problem
    with pytest.raises(ValueError, match="C must be"):
        LogisticPerLabel(C=-1).fit(X, Y)
    with pytest.warns(UserWarning, match="raise max_iter"):
        LSEPClassifier(max_iter=1).fit(X, Y)
