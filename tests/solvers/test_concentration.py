"""Concentration steps: never upwards, and at the minimum of the kept rows when they end."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, LogisticRegression

from rankrange.core.aggregates import Stratified
from rankrange.core.losses import LOSSES
from rankrange.core.objective import Design, Objective
from rankrange.solvers.concentration import concentrate

NAMES = ("logistic", "hinge", "squared", "absolute", "huber", "softmax")


def objective_of(name, n=120, d=4, *, m=0, k=None, l1_ratio=0.0, C=20.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 3.0
    z = (X - 3.0) @ rng.normal(size=(d, 3)) + 0.5 * rng.normal(size=(n, 3))
    loss = LOSSES[name]()
    y = {"binary": np.where(z[:, 0] > 0, 1.0, -1.0), "classes": z.argmax(axis=1), "numbers": z[:, 0]}[loss.targets]
    outputs = 3 if loss.targets == "classes" else 1
    return Objective(Design(X, True), y, loss, C, outputs, m=m, k=n if k is None else k, l1_ratio=l1_ratio)


@pytest.mark.parametrize("l1_ratio", [0.0, 0.7])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_no_step_increases_the_objective(name, sparse, l1_ratio):
    objective = objective_of(name, m=20, k=100, l1_ratio=l1_ratio)
    if sparse:
        import scipy.sparse as sp

        objective = replace(objective, design=Design(sp.csr_array(objective.design.X), True))
        objective.design.factored = False
    W = np.random.default_rng(1).normal(size=(objective.n_outputs, objective.design.p))
    values = [objective.value(W)]
    for rounds in (1, 2, 4, 8):
        found, value = concentrate(objective, W, rounds=rounds)
        assert value == pytest.approx(objective.value(found), rel=1e-12)
        values.append(value)
    assert (np.diff(values) <= 0).all()
    assert values[-1] < 0.9 * values[0]


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_without_a_cut_the_end_is_the_fit_of_scikit_learn(name, l1_ratio):
    objective = objective_of(name, l1_ratio=l1_ratio)
    W, value = concentrate(objective, np.zeros((objective.n_outputs, objective.design.p)), rounds=50)
    settings = {} if l1_ratio == 0.0 else {"solver": "saga", "l1_ratio": l1_ratio}
    fit = LogisticRegression(C=objective.C_of_sum, tol=1e-10, max_iter=100_000, **settings)
    fit.fit(objective.design.X, objective.y)
    theirs = objective.value(np.column_stack([fit.coef_, fit.intercept_]))
    assert value <= theirs * (1 + 1e-5)
    if l1_ratio == 1.0:
        assert ((W[:, :-1] == 0) == (fit.coef_ == 0)).mean() > 0.9


def test_an_elastic_net_of_more_columns_than_a_step_has():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 900))
    y = X[:, :3].sum(axis=1) + 0.1 * rng.normal(size=60)
    objective = Objective(Design(X, True), y, LOSSES["squared"](), 5.0, 1, m=0, k=60, l1_ratio=0.9)
    _, value = concentrate(objective, np.zeros((1, 901)), rounds=50)
    fit = ElasticNet(alpha=0.5 / objective.C, l1_ratio=0.9, tol=1e-10, max_iter=100_000).fit(X, y)
    assert value == pytest.approx(objective.value(np.append(fit.coef_, fit.intercept_)[None]), rel=1e-5)


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_end_is_stationary_for_the_rows_that_it_keeps(weighted, per_class):
    objective = objective_of("logistic", m=20)
    if weighted:
        mass = np.random.default_rng(2).uniform(0.5, 1.5, size=120)
        objective = replace(objective, sample_weight=mass * 120 / mass.sum(), k=120.0)
    if per_class:
        objective = replace(objective, aggregate=Stratified(objective.strata))
    start = np.random.default_rng(3).normal(size=(1, 5))
    W, _ = concentrate(objective, start, rounds=100, tol=1e-12)
    assert np.abs(objective.at(W).gradient).max() < 1e-5
