"""TKML and TKML-AoRR: the objective and its blocks, bounds that lie above the loss, exact inner solves, descent."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression

from definitions import tkml_by_definition
from rankrange import noise
from rankrange.core.losses import TKML, Envelope, _onto_simplex
from rankrange.core.objective import ConvexProblem, Design, Objective
from rankrange.core.risks import TopRisk
from rankrange.solvers.convex import minimise as solve
from rankrange.solvers.label_pairs import LabelPairs
from rankrange.solvers.label_ranking import (
    Blocks,
    LabelObjective,
    by_separation,
    logistic_per_label,
    minimise,
    quasi_newton,
    separating_sets,
)


def made(n=120, n_labels=5, seed=0, features=6):
    X, Y = make_multilabel_classification(n, features, n_classes=n_labels, n_labels=2, random_state=seed)
    return (X - X.mean(axis=0)) / X.std(axis=0), Y == 1


def with_unknown(Y, rng, share=0.3):
    return np.where(rng.random(Y.shape) < share, -1, Y).astype(np.int8)


def objective_of(X, Y, k=2, two_sided=True, m=0, kept_to=None, C=10.0):
    kept_to = len(X) if kept_to is None else kept_to
    return LabelObjective(Design(X, True), Y, TKML(k, two_sided), C, Y.shape[1], m=m, k=kept_to)


def start_of(objective):
    return logistic_per_label(objective.design, objective.blocks, objective.C)[0]


def pairs_problem(objective, down, up, caps):
    """The convex problem with these label sets and caps."""
    parts = (objective.design, objective.y, LabelPairs(down, up), objective.C, objective.n_outputs)
    return ConvexProblem(*parts, TopRisk(down.any(axis=1) * np.asarray(caps, dtype=float), objective.kept))


def value_by_definition(objective, W):
    """F from sorted losses and sorted scores."""
    Z = objective.design.X @ W[:, :-1].T + W[:, -1]
    k, two_sided = objective.loss.top_k, objective.loss.two_sided
    s = sorted((tkml_by_definition(t, f, k, two_sided) for t, f in zip(objective.y, Z, strict=True)), reverse=True)
    m, kept_to = int(objective.m), int(objective.k)
    return sum(s[m:kept_to]) / (kept_to - m) + (W[:, :-1] ** 2).sum() / (2 * objective.C)


@pytest.mark.parametrize("two_sided", [True, False])
def test_separated_loss_lies_above_the_loss_and_touches_it(two_sided):
    """The bound of docs/paper.md, in 1,000 random cases with ties, rows without and with all labels."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        n_labels = int(rng.integers(2, 7))
        loss = TKML(int(rng.integers(1, n_labels)), two_sided)
        true = rng.random((1, n_labels)) < rng.random()
        here, there = rng.integers(-3, 4, size=(2, 1, n_labels)) * rng.choice([0.5, 1.0])
        down, up = separating_sets(true, here, loss)

        def bound(f, down=down, up=up):
            if not up.any() or not down.any():
                return 0.0
            return max(0.0, 1 + f[down].max() - f[up].min())

        assert bound(here) == pytest.approx(loss.value(true, here)[0])
        assert bound(there) >= loss.value(true, there)[0] - 1e-12


@pytest.mark.parametrize("two_sided", [True, False])
@pytest.mark.parametrize(("m", "kept_to"), [(0, 60), (0, 40), (6, 50)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_inner_problem_is_solved_to_its_gap(two_sided, m, kept_to, fit_intercept):
    """Against a conic solver, which is told the same sets and the same caps."""
    X, Y = made(60)
    objective = LabelObjective(Design(X, fit_intercept), Y, TKML(2, two_sided), 3.0, 5, m=m, k=kept_to)
    W = np.random.default_rng(0).normal(size=(5, 6 + fit_intercept))
    Z = objective.design.scores(W).T
    down, up = separating_sets(Y, Z, objective.loss)
    s = objective.losses_of(W)
    caps = np.ones(60)
    caps[np.argsort(-s)[:m]] = 0.0
    solution = solve(pairs_problem(objective, down, up, caps), W, tol=1e-4)

    V, b = cp.Variable((5, 6)), cp.Variable(5)
    scores = X @ V.T + (np.ones((60, 1)) @ cp.reshape(b, (1, 5), order="C") if fit_intercept else 0)
    losses = cp.hstack(
        [
            cp.pos(1 + cp.max(scores[i, np.flatnonzero(down[i])]) - cp.min(scores[i, np.flatnonzero(up[i])]))
            for i in range(60)
            if caps[i] and up[i].any()
        ]
    )
    kept = cp.sum_largest(losses, min(kept_to - m, losses.shape[0]))
    problem = cp.Problem(cp.Minimize(kept / (kept_to - m) + cp.sum_squares(V) / (2 * 3.0)))
    best = problem.solve(solver="CLARABEL")
    assert best - 1e-7 <= solution.value <= best * (1 + 1e-4) + 1e-7
    assert solution.gap <= 1e-4
    assert solution.value * (1 - solution.gap) <= best + 1e-7  # the bound is a bound


def unbalanced(seed, n=24, n_labels=4):
    """Labels of very different frequency: the pulls on their intercepts are far from balanced."""
    rng = np.random.default_rng(seed)
    Y = rng.random((n, n_labels)) < np.linspace(0.1, 0.8, n_labels)
    return rng.normal(size=(n, 2)) + 1.0, Y


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kept_to", [24, 10])
def test_the_gap_is_a_bound_at_every_step_and_from_every_start(seed, kept_to):
    """Against the best value that a long run reaches, which is above the least: the bound must not pass it."""
    X, Y = unbalanced(seed)
    objective = objective_of(X, Y, 1, kept_to=kept_to, C=3.0)
    rng = np.random.default_rng(seed)
    start = rng.normal(size=(4, 3))
    down, up = separating_sets(Y, objective.design.scores(start).T, objective.loss)
    problem = pairs_problem(objective, down, up, np.ones(24))
    reached = solve(problem, start, tol=1e-4).value
    for W in (start, np.zeros((4, 3)), 10.0 * start, start * [1.0, 1.0, 30.0], rng.normal(size=(4, 3))):
        for budget in (0, 1, 3):
            early = solve(problem, W, tol=1e-12, max_iter=budget)
            assert early.value * (1 - early.gap) <= reached * (1 + 1e-9)


def test_smoothed_pairs_have_their_derivatives_and_lie_just_below_the_loss():
    """Against finite differences, for rows with full, partial and no weights, at three widths."""
    rng = np.random.default_rng(0)
    true = rng.random((60, 5)) < 0.4
    z, dz = 2.0 * rng.normal(size=(2, 60, 5))
    pairs = LabelPairs(*separating_sets(true, z, TKML(2)))
    exact, slope = pairs.value_and_derivative(None, z)
    np.testing.assert_allclose(exact, TKML(2).value(true, z))
    for width in (0.01, 0.3, 3.0):
        smooth = Envelope(pairs, width, np.zeros_like(pairs.margins(None, z)))
        s, slope = smooth.value_and_derivative(None, z)
        assert (s <= exact).all()
        assert (s >= exact - 0.5 * width).all()
        ahead, slope_ahead = smooth.value_and_derivative(None, z + 1e-6 * dz)
        np.testing.assert_allclose((slope * dz).sum(axis=1), (ahead - s) / 1e-6, atol=1e-3 / width)
        bent = smooth.hessian_operator(None, z)(dz)
        near = np.abs((slope_ahead - slope) / 1e-6 - bent).max(axis=1) < 1e-4 / width
        assert near.mean() > 0.9  # kinks of the slope between the two points
        assert (pairs.fenchel(None, z, slope) + exact >= -1e-9).all()  # the inequality of Fenchel and Young


def test_projection_onto_the_simplex_is_the_nearest_point():
    rows = np.random.default_rng(0).normal(size=(20, 4))
    nearest = _onto_simplex(rows)
    np.testing.assert_allclose(nearest.sum(axis=1), 1.0)
    others = np.random.default_rng(1).dirichlet(np.ones(4), size=500)
    for row, near in zip(rows, nearest, strict=True):
        assert ((row - near) ** 2).sum() <= ((row - others) ** 2).sum(axis=1).min() + 1e-12


@pytest.mark.parametrize("unknown", [0.0, 0.05])
@pytest.mark.parametrize("descend", [by_separation, minimise])
def test_certificate_bounds_what_other_starts_can_gain_nearby(descend, unknown):
    X, Y = made()
    objective = objective_of(X, with_unknown(Y, np.random.default_rng(0), unknown), m=12)
    start = start_of(objective)
    result = descend(objective, start, tol=1e-4)
    assert result.value < objective.value(start)
    assert result.converged
    assert result.certificate <= 1e-4
    rng = np.random.default_rng(0)
    near = [objective.value(result.w + 1e-4 * rng.normal(size=result.w.shape)) for _ in range(200)]
    assert min(near) >= result.value * (1 - 1e-4)


def test_no_certificate_if_compared_labels_tie_with_labels_that_are_left_out():
    """Each row twice, once with either label. With both told apart the least value is that of W = 0, without a gap; but
    the loss lets one label go first for nothing, so that every W near zero is lower."""
    rng = np.random.default_rng(0)
    X, Y = np.repeat(rng.normal(size=(20, 2)), 2, axis=0), np.tile(np.eye(2, dtype=bool), (20, 1))
    objective, zero = objective_of(X, Y, 1), np.zeros((2, 3))
    assert value_by_definition(objective, 1e-3 * rng.normal(size=(2, 3))) < value_by_definition(objective, zero)
    result = by_separation(objective, zero)
    assert result.value == value_by_definition(objective, zero)
    assert result.certificate == np.inf


def test_no_certificate_where_losses_tie_at_the_cut():
    """Rows at +1 and at -1 that tie: cut in equal parts they hold each other, cut on one side they do not.

    The penalised column of ones makes the labels' scores differ by 2 C = 0.5, so that no labels tie.
    """
    X, Y = np.column_stack([np.ones(40), np.tile([-1.0, 1.0], 20)]), np.tile([True, False], (40, 1))
    objective = LabelObjective(Design(X, False), Y, TKML(1), 0.25, 2, m=20, k=40)
    start, aside = np.array([[0.25, 0.0], [-0.25, 0.0]]), np.array([[0.0, 1e-2], [0.0, -1e-2]])
    assert objective.value(start + aside) < objective.value(start) - 1e-2
    assert objective.value(start - aside) < objective.value(start) - 1e-2
    result = by_separation(objective, start)
    assert result.value == objective.value(start)
    assert result.certificate == np.inf


@pytest.mark.parametrize("sparse", [False, True])
def test_blocks_give_what_the_whole_gives(sparse):
    X, Y = made(150, features=8)
    wide = np.tile(Y, 20) * (np.random.default_rng(0).random((150, 100)) < 0.2)
    true = sp.csr_array(wide == 1) if sparse else wide == 1
    design = Design(sp.csr_array(X) if sparse else X, True)
    W = np.random.default_rng(1).normal(size=(100, 9))
    plain = Objective(Design(X, True), wide == 1, TKML(3), 1.0, 100, m=5, k=140).at(W)
    start = logistic_per_label(design, Blocks(design, true), 1.0)[0]
    with sklearn.config_context(working_memory=0.1):
        assert Blocks(design, true).length < 30
        blocked = LabelObjective(design, true, TKML(3), 1.0, 100, m=5, k=140).at(W)
        start_in_blocks = logistic_per_label(design, Blocks(design, true), 1.0)[0]
    assert blocked.value == pytest.approx(plain.value, rel=1e-13)
    np.testing.assert_allclose(blocked.gradient, plain.gradient, atol=1e-14)
    np.testing.assert_allclose(start_in_blocks, start, atol=1e-7)


@pytest.mark.parametrize("unknown", [0.0, 0.3])
def test_start_is_the_logistic_regression_of_the_known_rows_of_each_label(unknown):
    X, Y = made(150, features=8)
    design, labels = Design(X, True), with_unknown(Y, np.random.default_rng(1), unknown)
    W, _, _ = logistic_per_label(design, Blocks(design, labels), C=3.0, tol=1e-12, max_iter=500)
    for j in range(5):
        known = labels[:, j] >= 0
        reference = LogisticRegression(C=3.0 / len(X), tol=1e-10, max_iter=5000).fit(X[known], labels[known, j])
        np.testing.assert_allclose(W[j], np.r_[reference.coef_[0], reference.intercept_], atol=1e-4)


@pytest.mark.parametrize("two_sided", [True, False])
@pytest.mark.parametrize(("m", "kept_to"), [(0, 120), (0, 70), (12, 120), (12, 100)])
def test_no_step_raises_the_objective(two_sided, m, kept_to):
    X, Y = made()
    objective = objective_of(X, Y, 2, two_sided, m, kept_to)
    start, seen = start_of(objective), []
    result = quasi_newton(objective, start, max_iter=6, watch=seen.append)
    values = [value_by_definition(objective, W) for W in [start, *seen]]
    assert len(values) >= 2
    assert max(np.diff(values)) <= 1e-10
    assert result.value == pytest.approx(values[-1], rel=1e-12)
    for run in (by_separation(objective, start, tol=1e-2), minimise(objective, start, tol=1e-2, max_iter=6)):
        assert max(np.diff([value for _, value in run.history])) <= 1e-10
        assert run.value == pytest.approx(value_by_definition(objective, run.w), rel=1e-12)


def test_several_starts_never_end_above_majorisation_from_the_first():
    for seed in range(3):
        X, Y = made(80, seed=seed)
        objective = objective_of(X, noise.multilabel(Y, 0.2, random_state=seed) == 1, k=1 + seed, m=10 * seed)
        start = start_of(objective)
        lowest = by_separation(objective, start).value
        for n_starts in (1, 5):
            assert minimise(objective, start, n_starts=n_starts).value <= lowest


# ---- unknown labels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("two_sided", [True, False])
def test_loss_with_unknown_labels_is_that_of_the_known_ones(two_sided):
    """Against the definition on the known labels alone, in 1,000 rows, with as few as no known label."""
    rng = np.random.default_rng(0)
    for _ in range(250):
        n_labels = int(rng.integers(2, 8))
        labels = with_unknown(rng.random((4, n_labels)) < rng.random(), rng, rng.random())
        loss = TKML(int(rng.integers(1, n_labels)), two_sided)
        objective = LabelObjective(Design(np.eye(4), False), labels, loss, 1.0, n_labels)
        Z = rng.normal(size=(4, n_labels))
        s, down, up = objective.moving_labels(Z.T)
        known = labels >= 0
        expected = [
            tkml_by_definition(y[there] == 1, f[there], loss.top_k, two_sided)
            for y, f, there in zip(labels, Z, known, strict=True)
        ]
        np.testing.assert_allclose(s, expected)
        assert not objective.pull(down, up, (s > 0) * 1.0).T[~known].any()
