"""The baselines: each fit against another solver. Their losses are in test_losses.py."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from reproduction import baselines


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    scores = X @ rng.normal(size=(4, 5)) + 0.5 * rng.normal(size=(80, 5))
    Y = (scores >= np.sort(scores, axis=1)[:, -2:-1]).astype(int)
    return X, Y


@pytest.mark.parametrize("cap", [1.0, 0.5, 0.2])
def test_the_capped_simplex_is_the_nearest_point(cap):
    rows = np.random.default_rng(4).normal(size=(20, 5)) * 2.0
    rows[0] = 1.0  # all tied
    for row, x in zip(rows, baselines.capped_simplex(rows, cap), strict=True):
        found = minimize(
            lambda z, row=row: ((z - row) ** 2).sum(),
            np.full(5, 0.2),
            jac=lambda z, row=row: 2 * (z - row),
            bounds=[(0, cap)] * 5,
            constraints={"type": "eq", "fun": lambda z: z.sum() - 1},
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(x, found.x, atol=1e-5)


def test_one_vs_rest_is_scikit_learns_logistic_regression(problem):
    X, Y = problem
    fit = baselines.one_vs_rest(0.3, tol=1e-14).fit(X, Y)
    for label in range(5):
        theirs = LogisticRegression(C=0.3, tol=1e-10, max_iter=1000).fit(X, Y[:, label])
        np.testing.assert_allclose(fit.coef_[label], theirs.coef_[0], atol=1e-4)


def test_fits_are_minima_by_a_convex_solver(problem):
    cp = pytest.importorskip("cvxpy")
    X, Y = (part[:30] for part in problem)
    y = np.arange(30) % 5
    W, b = cp.Variable((5, 4)), cp.Variable(5)
    scores = X @ W.T + np.ones((30, 1)) @ cp.reshape(b, (1, 5), order="C")
    pairs, hinge = 0, 0
    for i in range(30):
        false, true = np.flatnonzero(Y[i] == 0), np.flatnonzero(Y[i] == 1)
        differences = [scores[i, u] - scores[i, v] for u in false for v in true]
        pairs += cp.log_sum_exp(cp.hstack([0.0, *differences]))
        hinge += cp.pos(cp.sum_largest(scores[i] - scores[i, y[i]] + (np.arange(5) != y[i]), 2) / 2)
    fits = {pairs: baselines.lsep(0.05).fit(X, Y), hinge: baselines.top_k_svm(2, 0.05).fit(X, y)}
    exact = {pairs: baselines.pairwise_losses, hinge: lambda true, f: baselines.top_k_hinge(true, f, 2, 0.0)}
    for loss, fit in fits.items():
        true = (Y if loss is pairs else np.eye(5)[y]) == 1
        value = 0.05 * exact[loss](true, fit.decision_function(X))[0].sum() + (fit.coef_**2).sum() / 2
        defined = cp.Problem(cp.Minimize(0.05 * loss + cp.sum_squares(W) / 2))
        defined.solve(solver=cp.CLARABEL)
        assert value == pytest.approx(defined.value, rel=1e-5 if loss is pairs else 1e-3)


@pytest.mark.parametrize("slack", [0.5, 3.0])
def test_robust_max_equals_its_definition_with_slack_variables(slack, problem):
    cp = pytest.importorskip("cvxpy")
    X, y = problem[0], problem[1][:, 0]
    coef, intercept, xi = cp.Variable(4), cp.Variable(), cp.Variable(80, nonneg=True)
    losses = cp.logistic(-cp.multiply(2 * y - 1, X @ coef + intercept))
    defined = cp.Problem(cp.Minimize(cp.max(losses - xi) + cp.sum_squares(coef) / 20), [cp.norm(xi, 2) <= slack])
    defined.solve(solver=cp.CLARABEL)
    assert baselines.RobustMax(slack, C=10.0).fit(X, y).objective_ == pytest.approx(defined.value, rel=1e-5)
