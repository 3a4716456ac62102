"""Equal rows are one row of their mass: the same objective, the same cut, and the losses of all rows come back."""

import numpy as np
import pytest
from scipy.special import expit

from rankrange import AoRRClassifier
from rankrange.core.aggregates import WorstGroup
from rankrange.core.losses import LOSSES
from rankrange.core.objective import Design, Objective
from rankrange.solvers import equal_rows, solve

N, D = 900, 3
RNG = np.random.default_rng(5)
X = (RNG.random((N, D)) < 0.4).astype(np.float64)
Y = np.where(RNG.random(N) < expit(X @ [2.0, -1.0, 1.0] - 0.5), 1.0, -1.0)


def objective(X=X, **changes):
    settings = {"m": 90, "k": 800, **changes}
    return Objective(Design(X, True), Y, LOSSES["logistic"](), 500.0, 1, **settings)


@pytest.mark.parametrize("weighted", [False, True])
def test_merged_rows_have_the_same_objective_and_gradient_everywhere(weighted):
    weight = RNG.integers(1, 4, size=N).astype(float) if weighted else None
    problem = objective(sample_weight=weight)
    small, which = equal_rows.merged(problem)
    assert small.design.n == len(np.unique(np.column_stack([X, Y]), axis=0))
    assert small.total == problem.total
    np.testing.assert_array_equal(small.design.X[which], X)
    np.testing.assert_array_equal(small.y[which], Y)
    for W in RNG.normal(size=(5, 1, D + 1)):
        value, gradient = problem.value_and_gradient(W)
        merged_value, merged_gradient = small.value_and_gradient(W)
        assert merged_value == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(merged_gradient, gradient, atol=1e-10)


def test_rows_that_differ_only_in_small_numbers_beside_large_ones_stay_apart():
    """A sum of all cells is the same for them: the small numbers are lost in its rounding."""
    large = np.column_stack([np.full(N, 1e25), X[:, 1:]])
    assert len(np.unique(large @ RNG.normal(size=D))) == 1
    small, which = equal_rows.merged(objective(large))
    np.testing.assert_array_equal(small.design.X[which], large)


def test_rows_of_different_groups_stay_apart():
    groups = RNG.integers(2, size=N)
    small, which = equal_rows.merged(objective(aggregate=WorstGroup(groups)))
    np.testing.assert_array_equal(small.aggregate.groups[which], groups)


def test_a_solver_gives_the_losses_of_all_rows():
    problem = objective()
    result = solve(problem)
    np.testing.assert_allclose(result.losses, problem.losses(problem.design.scores(result.w)), atol=1e-12)


def test_a_table_of_binary_columns_is_fitted_with_a_certificate_and_drops_the_largest_losses():
    fit = AoRRClassifier(m=0.13, k=0.81, random_state=0).fit(X, Y)
    assert fit.certificate_ <= 1e-6
    losses = np.logaddexp(0, -Y * (X @ fit.coef_[0] + fit.intercept_[0]))
    assert fit.dropped_.shape == (N,)
    assert fit.dropped_.sum() <= round(0.13 * N)
    assert losses[fit.dropped_].min() >= losses[~fit.dropped_].max() - 1e-12
