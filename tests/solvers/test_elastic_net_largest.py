"""Elastic nets of the ranks m+1 to k: other solvers, all sets of dropped rows, and the definition of the objective."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import make_regression
from test_elastic_net import LOSSES, drawn, least_over_dropped_rows, objective_of

from rankrange import AoRRClassifier, AoRRRegressor
from rankrange.solvers import solve


def least_by_slsqp(problem):
    """Minimise over (positive part, negative part, intercepts, level, excesses): smooth with smooth constraints."""
    n, d, r = problem.design.n, problem.design.d, problem.n_outputs
    K, C, ratio, X = problem.k, problem.C_of_sum, problem.l1_ratio, problem.design.X

    def split(v):
        up, down, intercept, rest = np.split(v, [r * d, 2 * r * d, 2 * r * d + r])
        return (up - down).reshape(r, d), intercept, rest[0], rest[1:]

    def value(v):
        coef, _, level, excess = split(v)
        ridge = (1 - ratio) / 2 * (coef**2).sum()
        return C * (K * level + excess.sum()) + ridge + ratio * v[: 2 * r * d].sum()

    def room(v):
        coef, intercept, level, excess = split(v)
        return excess + level - problem.losses(coef @ X.T + intercept[:, None])

    start = np.concatenate([np.full(2 * r * d, 0.1), np.zeros(r), [1.0], np.full(n, 10.0)])
    bounds = [(0, None)] * (2 * r * d) + [(None, None)] * (r + 1) + [(0, None)] * n
    limits = [{"type": "ineq", "fun": room}]
    return minimize(value, start, bounds=bounds, constraints=limits, options={"maxiter": 500, "ftol": 1e-12}).fun


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("K", [3, 12])
def test_the_largest_losses_have_the_least_value_of_another_solver(loss, K):
    problem = objective_of(*drawn(K, 16, 3, loss), loss, 0.5, 0.6, k=K)
    found = solve(problem)
    assert found.certificate <= 1e-6
    least = least_by_slsqp(problem) / problem.C
    assert found.value == pytest.approx(least, rel=2e-6)
    assert found.value * (1 - found.certificate) <= least * (1 + 1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_in_a_small_table_no_other_rows_are_better_to_drop(loss):
    problem = objective_of(*drawn(3, 9, 4, loss), loss, 0.7, 1.0, m=1, k=6)
    assert solve(problem).value <= least_over_dropped_rows(problem, 1) * (1 + 2e-3)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_the_objective_is_that_of_the_ranks_kept_and_certified_for_the_rows_cut(loss):
    X, y = drawn(5, 50, 80)
    y[:5] += 40
    m, k, C = 5, 30, 0.1
    model = AoRRRegressor(m, k, loss=loss, l1_ratio=0.6, C=C, n_starts=2, random_state=0).fit(X, y)
    r = y - model.predict(X)
    of_loss = {"squared": r**2, "huber": np.where(np.abs(r) <= 1, r**2 / 2, np.abs(r) - 0.5)}
    kept = sorted(of_loss[loss], reverse=True)[m:k]
    penalty = 0.6 * np.abs(model.coef_).sum() + 0.2 * (model.coef_**2).sum()
    assert model.objective_ == pytest.approx(C * sum(kept) + penalty)
    assert model.certificate_ <= 1e-6
    assert model.dropped_[:5].all()
    assert model.lam_ == pytest.approx(kept[-1])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("stratify", [False, True])
def test_a_vanishing_l1_penalty_is_the_l2_penalty(classes, stratify):
    X, y = drawn(6, 60, 5, "logistic" if classes == 2 else "softmax")
    settings = {"C": 0.5, "aggregate": "per-class" if stratify else None}
    fits = [AoRRClassifier(0, 0.6, l1_ratio=ratio, **settings).fit(X, y) for ratio in (0.0, 1e-7)]
    assert fits[1].objective_ == pytest.approx(fits[0].objective_, rel=1e-5)
    np.testing.assert_allclose(fits[1].coef_, fits[0].coef_, atol=1e-2)


@pytest.mark.parametrize("seed", [0, 1])
def test_fewer_ranks_never_cost_more(seed):
    """The losses of ranks m+1 to k are some of those of ranks m+1 to n: the search must not end above the latter."""
    X, y = make_regression(n_samples=40, n_features=60, n_informative=6, noise=5, random_state=seed)
    y[:4] += 1000
    settings = {"l1_ratio": 1.0, "C": 0.01, "random_state": 0}
    ends = [AoRRRegressor(0.15, k, **settings).fit(X, y).objective_ for k in (1.0, 0.8)]
    assert ends[1] <= ends[0]


def test_all_ranks_are_no_range():
    X, y = drawn(7, 40, 20)
    settings = {"l1_ratio": 0.5, "C": 0.1, "random_state": 0}
    ends = [AoRRRegressor(0, k, **settings).fit(X, y).objective_ for k in (40, 39, 0.5)]
    assert ends[0] == pytest.approx(AoRRRegressor(0, **settings).fit(X, y).objective_, rel=1e-9)
    assert ends[0] >= ends[1] >= ends[2]  # fewer losses cost less
