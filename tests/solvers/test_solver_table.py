"""The solver with every loss and every aggregate of the tables, so that new ones are tested without a change here."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from definitions import GemanMcClure
from rankrange.core.aggregates import AGGREGATES, Aggregate
from rankrange.core.losses import LOSSES
from rankrange.core.objective import Design, Objective
from rankrange.solvers import Settings, solve
from rankrange.solvers.descent import descend

N, D = 60, 3
ALL = [name for name, loss in LOSSES.items() if loss().targets != "labels"]  # `tests/test_tkml_solvers.py` has those
CONVEX = [name for name in ALL if getattr(LOSSES[name], "convex", True)]
WITH_CAPS = [name for name, make in AGGREGATES.items() if hasattr(make(np.arange(N) % 2), "caps")]


def objective_of(loss_name, aggregate_name, m=6, k=48, weights=None, seed=0, l1_ratio=0.0):
    rng = np.random.default_rng(seed)
    loss = LOSSES[loss_name]()
    X = rng.normal(size=(N, D))
    classes = np.clip(np.round(X[:, 0] + 0.7 * rng.normal(size=N)), -1, 1).astype(int) + 1
    y = {"binary": np.where(classes > 0, 1.0, -1.0), "numbers": X @ rng.normal(size=D) + rng.normal(size=N)}
    aggregate = AGGREGATES[aggregate_name](classes % 2)
    outputs = 3 if loss.targets == "classes" else 1
    return Objective(
        Design(X, True),
        y.get(loss.targets, classes),
        loss,
        5.0,
        outputs,
        m,
        k,
        sample_weight=weights,
        aggregate=aggregate,
        l1_ratio=l1_ratio,
    )


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("loss", ALL)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_weights_are_the_derivative_of_the_aggregate(loss, aggregate, weighted):
    weights = np.random.default_rng(1).uniform(0.5, 2.0, N) if weighted else None
    problem = objective_of(loss, aggregate, weights=weights)
    assert isinstance(problem.aggregate, Aggregate)
    s = np.random.default_rng(2).exponential(size=N)
    chosen = problem.select(s)
    assert (chosen.weights >= 0).all()
    assert chosen.weights.sum() == pytest.approx(problem.kept)
    assert chosen.total == pytest.approx(chosen.weights @ s)
    step = 1e-6 * np.random.default_rng(3).normal(size=N)
    change = problem.select(s + step).total - problem.select(s - step).total
    assert change / 2 == pytest.approx(chosen.weights @ step, rel=1e-4, abs=1e-12)


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("loss", ALL)
@pytest.mark.parametrize("l1_ratio", [0.0, 0.3])
def test_the_gradient_is_the_finite_difference(loss, aggregate, l1_ratio):
    problem = objective_of(loss, aggregate, l1_ratio=l1_ratio)
    rng = np.random.default_rng(4)
    W, step = rng.normal(size=(problem.n_outputs, D + 1)), 1e-6 * rng.normal(size=(problem.n_outputs, D + 1))
    slope = (problem.value(W + step) - problem.value(W - step)) / 2
    assert slope == pytest.approx(np.vdot(problem.at(W).gradient, step), rel=2e-4)
    values, gradients = problem.batch(np.stack([W, W + 0.1]))
    assert values == pytest.approx([problem.value(W), problem.value(W + 0.1)])
    np.testing.assert_allclose(gradients[0], problem.at(W).gradient, atol=1e-10)


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("l1_ratio", [0.0, 0.3, 1.0])
def test_some_of_the_rows_are_an_objective_of_their_own_with_the_same_penalty(aggregate, l1_ratio):
    problem = objective_of("logistic", aggregate, l1_ratio=l1_ratio)
    rows = np.arange(10, 40)
    part = problem.rows(rows, 3, 25)
    W = np.random.default_rng(5).normal(size=(1, D + 1))
    s = problem.losses(problem.design.scores(W))[rows]
    penalty = (1 - l1_ratio) / 2 * (W[0, :D] ** 2).sum() + l1_ratio * np.abs(W[0, :D]).sum()
    expected = part.aggregate.select(s, 3, 25, None).total / 22 + penalty / 5
    assert part.value(W) == pytest.approx(expected)
    if aggregate in WITH_CAPS:
        assert part.cutting(s).value(W) == pytest.approx(expected)


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("loss", ALL)
def test_the_solver_descends(loss, aggregate):
    problem = objective_of(loss, aggregate)
    start = np.random.default_rng(6).normal(size=(problem.n_outputs, D + 1))
    result = solve(problem, start, Settings(max_iter=25, tol=1e-5, n_starts=2))
    assert result.value == pytest.approx(problem.value(result.w), rel=1e-9)
    assert result.value <= problem.value(start)
    assert result.certificate >= 0
    values = [value for _, value in result.history]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(values[1:]))


def provable(problem):
    """Whether a certificate is promised: the loss bends or has margins, and its slopes in a row add up to zero."""
    loss, W = problem.loss, np.random.default_rng(7).normal(size=(problem.n_outputs, D + 1))
    Z = problem.design.scores(W)
    if problem.n_outputs > 1:
        return np.abs(problem.losses_and_slopes(Z)[1].sum(axis=0)).max() < 1e-9
    return hasattr(loss, "margins") or bool(loss.curvature(problem.y, Z[0]).any())


@pytest.mark.parametrize("loss", CONVEX)
@pytest.mark.parametrize("aggregate", WITH_CAPS)
def test_a_certificate_bounds_what_a_descent_finds(loss, aggregate):
    """m = 0: one minimum, so that nothing may lie below the bound."""
    problem = objective_of(loss, aggregate, m=0, k=45)
    result = solve(problem, None, Settings(max_iter=200))
    starts = np.random.default_rng(8).normal(size=(5, problem.n_outputs, D + 1))
    least = min(descend(problem.batch, starts, max_iter=300, tol=1e-12)[1])
    assert result.value * (1 - result.certificate) <= least * (1 + 1e-9)
    if provable(problem):
        assert result.certificate <= 1e-6
        assert result.value <= least * (1 + 1e-6)


def test_a_loss_that_lacks_something_is_named_before_anything_runs():
    class OnlyValues:
        targets = "binary"

        def value(self, y, z):
            return (1 - y * z) ** 4

        def value_and_derivative(self, y, z):
            return (1 - y * z) ** 4, -4 * y * (1 - y * z) ** 3

    rng = np.random.default_rng(0)
    problem = Objective(
        Design(rng.normal(size=(20, 2)), True), np.sign(rng.normal(size=20)), OnlyValues(), 1.0, 1, 2, 20
    )
    with pytest.raises(TypeError, match=r"needs a loss with curvature; OnlyValues has none"):
        solve(problem)


def test_a_loss_that_is_not_convex_is_descended_and_nothing_is_proved():
    problem = replace(objective_of("squared", "ranked"), loss=GemanMcClure())
    start = np.random.default_rng(6).normal(size=(1, D + 1))
    result = solve(problem, start, Settings(max_iter=60))
    assert result.value < problem.value(start)
    assert result.certificate == np.inf
    assert "tied" not in result.message  # which is another reason for a missing certificate
