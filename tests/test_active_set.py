"""The quadratic elastic net against optimality conditions and scikit-learn, and starts with many columns."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import ElasticNet

from rankrange.solvers.elemental import TrimmedSquares, elemental_fits
from rankrange.solvers.sparse.active_set import quadratic_net, sparse_quadratic_net


def value(M, response, theta, l1_ratio):
    return ((response - M @ theta) ** 2).sum() / 2 + (1 - l1_ratio) / 2 * theta @ theta + l1_ratio * abs(theta).sum()


def violation(M, response, theta, l1_ratio):
    """The distance of zero from the subdifferential."""
    slope = M.T @ (response - M @ theta) - (1 - l1_ratio) * theta
    at_zero = np.maximum(np.abs(slope) - l1_ratio, 0)
    return np.where(theta != 0, np.abs(slope - l1_ratio * np.sign(theta)), at_zero).max()


@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
@pytest.mark.parametrize("shape", [(40, 30), (30, 90)])
@pytest.mark.parametrize("weight", [0.3, 3.0, 30.0])
def test_optimality_conditions_hold_with_weak_penalties(shape, weight, l1_ratio):
    rng = np.random.default_rng(int(10 * weight))
    M, response = weight * rng.normal(size=shape), weight * rng.normal(size=shape[0])
    theta = quadratic_net(M, response, l1_ratio, np.zeros(shape[1]), 1e-9)
    assert violation(M, response, theta, l1_ratio) < 1e-4
    warm = quadratic_net(M, response, l1_ratio, theta + rng.normal(size=shape[1]), 1e-9)
    assert value(M, response, warm, l1_ratio) == pytest.approx(value(M, response, theta, l1_ratio), rel=1e-8)


def test_equal_columns_do_not_stop_the_steps():
    rng = np.random.default_rng(0)
    M, response = 20 * rng.normal(size=(20, 30)), 20 * rng.normal(size=20)
    twice = quadratic_net(np.hstack([M, M]), response, 1.0, np.zeros(60), 1e-9)
    once = quadratic_net(M, response, 1.0, np.zeros(30), 1e-9)
    assert value(np.hstack([M, M]), response, twice, 1.0) == pytest.approx(value(M, response, once, 1.0), rel=1e-8)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_sparse_rows_have_the_solution_of_scikit_learn(fit_intercept):
    rng = np.random.default_rng(1)
    X = sp.random(60, 150, density=0.1, random_state=2, format="csc")
    target, weights = 3 + rng.normal(size=60), rng.integers(0, 3, size=60) * 4.0
    theta, intercept = sparse_quadratic_net(X, target, weights, fit_intercept, 0.9, np.zeros(150), 1e-10)
    kept = weights > 0
    plain = ElasticNet(alpha=1 / weights.sum(), l1_ratio=0.9, fit_intercept=fit_intercept, tol=1e-12, max_iter=100_000)
    plain.fit(X[kept], target[kept], sample_weight=weights[kept])
    np.testing.assert_allclose(theta, plain.coef_, atol=1e-5)
    assert intercept == pytest.approx(plain.intercept_, abs=1e-5)


def test_starts_differ_if_there_are_as_many_coefficients_as_rows():
    rng = np.random.default_rng(3)
    problem = TrimmedSquares(rng.normal(size=(30, 30)), rng.normal(size=30), 24, 0.1 * np.eye(30))
    starts = elemental_fits(problem, 20, rng)
    distance = np.linalg.norm(starts[:, None] - starts[None], axis=2)
    assert (distance[~np.eye(20, dtype=bool)] > 1e-3 * np.linalg.norm(starts, axis=1).min()).all()
