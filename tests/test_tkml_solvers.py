"""The solvers of TKML-AoRR: bounds that lie above the loss, exact inner solves, descent, and Algorithm 3 in batches."""

import cvxpy as cp
import numpy as np
import pytest
import sklearn
from sklearn.datasets import make_multilabel_classification

from rankrange import TKMLClassifier, noise, ranked_range
from rankrange.core.losses import TKML
from rankrange.core.objective import Design
from rankrange.solvers.blocks import Blocks
from rankrange.solvers.inner.bounds import level_of_mass, onto_simplex
from rankrange.solvers.inner.separation import Pairs, Separation, solve
from rankrange.solvers.label_ranking import (
    LabelObjective,
    by_separation,
    descend_and_polish,
    quasi_newton,
    separating_sets,
)
from rankrange.solvers.minmax import _tracked, minmax
from rankrange.solvers.per_label import logistic_per_label
from reproduction import data
from test_tkml import tkml_by_definition


def made(n=120, n_labels=5, seed=0):
    X, Y = make_multilabel_classification(n, 6, n_classes=n_labels, n_labels=2, random_state=seed)
    return (X - X.mean(axis=0)) / X.std(axis=0), Y == 1


def objective_of(X, Y, k=2, two_sided=True, m=0, kept_to=None, C=10.0):
    kept_to = len(X) if kept_to is None else kept_to
    return LabelObjective(Design(X, True), Y, TKML(k, two_sided), C, Y.shape[1], m=m, k=kept_to)


def start_of(objective):
    return logistic_per_label(objective.design, objective.blocks, objective.C)[0]


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
    solution = solve(Separation(objective, Pairs(down, up), kept_to - m, caps), W, tol=1e-4)

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
    problem = Separation(objective, Pairs(down, up), kept_to, np.ones(24))
    reached = solve(problem, start, tol=1e-4).value
    for W in (start, np.zeros((4, 3)), 10.0 * start, start * [1.0, 1.0, 30.0], rng.normal(size=(4, 3))):
        for budget in (0, 1, 3):
            early = solve(problem, W, tol=1e-12, max_iter=budget)
            assert early.value * (1 - early.gap) <= reached * (1 + 1e-9)


def test_level_is_the_least_at_which_the_weights_have_the_mass():
    """Against bisection of the definition, from any guess."""
    rng = np.random.default_rng(0)
    for width in (1, 4):
        pushed, caps = rng.normal(size=(30, width)), rng.random(30)

        def mass(level, pushed=pushed, caps=caps):
            return caps @ np.minimum(np.maximum(pushed - level, 0).sum(axis=1), 1)

        for K in (0.5, 3.0, 100.0):
            low, high = 0.0, float(pushed.max())
            for _ in range(100):
                middle = 0.5 * (low + high)
                low, high = (middle, high) if mass(middle) > K else (low, middle)
            expected = 0.0 if mass(0.0) <= K else high
            for guess in (0.0, 0.7, 50.0):
                assert level_of_mass(pushed, caps, K, guess) == pytest.approx(expected, abs=1e-12)


def test_projection_onto_the_simplex_is_the_nearest_point():
    rows = np.random.default_rng(0).normal(size=(20, 4))
    nearest = onto_simplex(rows)
    np.testing.assert_allclose(nearest.sum(axis=1), 1.0)
    others = np.random.default_rng(1).dirichlet(np.ones(4), size=500)
    for row, near in zip(rows, nearest, strict=True):
        assert ((row - near) ** 2).sum() <= ((row - others) ** 2).sum(axis=1).min() + 1e-12


SOLVERS = {"quasi_newton": quasi_newton, "by_separation": by_separation, "descend_and_polish": descend_and_polish}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("two_sided", [True, False])
@pytest.mark.parametrize(("m", "kept_to"), [(0, 120), (0, 70), (12, 120), (12, 100)])
def test_no_step_raises_the_objective(solver, two_sided, m, kept_to):
    X, Y = made()
    objective = objective_of(X, Y, 2, two_sided, m, kept_to)
    seen = []
    start = start_of(objective)
    result = SOLVERS[solver](objective, start, max_iter=6, watch=seen.append)
    values = [value_by_definition(objective, W) for W in [start, *seen]]
    assert len(values) >= 2
    if solver != "descend_and_polish":  # it may go on from a second start, which is another path
        assert max(np.diff(values)) <= 1e-10
    assert result.value == pytest.approx(value_by_definition(objective, result.w), rel=1e-12)
    assert result.value <= min(values) + 1e-12


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["emotions", *(pytest.param(name, marks=pytest.mark.slow) for name in ("scene", "yeast"))]
)
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_no_step_raises_the_objective_on_the_papers_data(name, rate):
    """Small and large k of the paper on 200 rows and 15 features; benchmarks/tkml_descent.py does the same on all."""
    bunch = data.load(name)
    X = ((bunch.data - bunch.data.mean(axis=0)) / bunch.data.std(axis=0))[:, :15]
    rows = np.random.default_rng(0).choice(len(X), 200, replace=False)
    Y = noise.multilabel(bunch.target[rows], rate, random_state=0) == 1
    for k in (1, 3, 5):
        objective = objective_of(X[rows], Y, k, m=20)
        start = start_of(objective)
        for solver in (quasi_newton, by_separation):
            seen = [start]
            solver(objective, start, max_iter=3, tol=1e-2, watch=seen.append)
            values = [objective.value(W) for W in seen]
            assert len(values) > 1
            assert max(np.diff(values)) <= 1e-10


def test_certificate_bounds_what_other_starts_can_gain_nearby():
    X, Y = made()
    result = by_separation(objective_of(X, Y, m=12), np.zeros((5, 7)) + start_of(objective_of(X, Y)), tol=1e-4)
    assert result.converged
    assert result.certificate <= 1e-4
    objective = objective_of(X, Y, m=12)
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


def test_descending_solvers_end_no_higher_than_algorithm_3():
    """Two minima of a function that is not convex may differ a little either way: a thousandth is allowed."""
    for seed in range(3):
        X, Y = made(200, seed=seed)
        for m in (0, 20):
            objective = objective_of(X, Y, m=m)
            start = start_of(objective)
            reference = minmax(objective, start, rate=0.3, max_iter=1000)
            assert descend_and_polish(objective, start).value <= reference.value * (1 + 1e-3)


def test_exact_steps_that_would_not_fit_in_memory_are_refused():
    X, Y = made()
    with sklearn.config_context(working_memory=0.01), pytest.raises(ValueError, match="working memory"):
        TKMLClassifier(2, solver="dca").fit(X, Y)


def test_estimator_reaches_its_certificate():
    X, Y = made()
    for solver in ("auto", "dca"):
        model = TKMLClassifier(2, m=0.1, C=0.1, solver=solver, validation=None).fit(X, Y)
        assert model.converged_
        assert model.certificate_ <= 1e-3
        early = TKMLClassifier(2, m=0.1, C=0.1, solver=solver, max_iter=4).fit(X, Y)
        assert early.certificate_ == np.inf or solver == "dca"
        assert early.converged_


# Algorithm 3


def test_thresholds_of_algorithm_3_keep_k_minus_m_rows():
    """lam_hat is measured on the losses less lam (docs/paper.md): with W held still both thresholds find their rows."""
    X, Y = made(400)
    objective = objective_of(X, Y, m=40, kept_to=200)
    s = objective.losses_of(start_of(objective))
    lam, lam_hat, kept = 0.0, 5.0, []
    for _ in range(20000):
        weights, lam, lam_hat = _tracked(objective, s, lam, lam_hat, 0.002)
        kept.append(weights.sum())
    order = np.sort(s)[::-1]
    assert lam == pytest.approx(order[199], abs=0.02)
    assert lam + lam_hat == pytest.approx(order[39], abs=0.02)
    assert np.mean(kept[-5000:]) == pytest.approx(160, abs=5)


def test_algorithm_3_is_gradient_descent_where_nothing_is_cut():
    X, Y = made()
    objective = objective_of(X, Y)
    start = W = start_of(objective)
    for _ in range(5):
        point = objective.at(W)
        W = W - 0.1 * point.gradient
    # Rows at zero loss lie on the threshold lam = s_[n]; their slope is zero, so that counting them or not is the same.
    np.testing.assert_allclose(minmax(objective, start, rate=0.1, max_iter=5, ranking="batch").w, W)


def one_label(n=90, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    classes = rng.integers(n_classes, size=n)
    X = rng.normal(size=(n, 3)) + 1.5 * rng.normal(size=(n_classes, 3))[classes]
    return X, np.eye(n_classes, dtype=bool)[classes], classes


def batch_sgd(X, classes, W, size, rate, steps, penalty, seed, chosen, rank):
    """Mini-batch SGD on one class a row, from its definition: `chosen` says which places of the sorted losses count."""
    rng = np.random.default_rng(seed)
    done = 0
    while done < steps:
        order = rng.permutation(len(X))
        for at in range(0, len(X) - size + 1, size):
            if done == steps:
                break
            rows = order[at : at + size]
            f = X[rows] @ W[:, :-1].T + W[:, -1]
            own = f[np.arange(size), classes[rows]]
            rival = np.argsort(-f, axis=1)[:, rank]
            loss = np.maximum(0, 1 + f[np.arange(size), rival] - own)
            places = np.argsort(-loss, kind="stable")[chosen]
            gradient = np.zeros_like(W)
            for i in places:
                if loss[i] > 0 and rival[i] != classes[rows[i]]:
                    x = np.append(X[rows[i]], 1.0)
                    gradient[rival[i]] += x / len(places)
                    gradient[classes[rows[i]]] -= x / len(places)
            W = W - rate * (gradient + np.c_[W[:, :-1], np.zeros(len(W))] * penalty)
            done += 1
    return W


SPECIAL_CASES = {
    # name: (m, k) of a batch of 15, top_k, the places of the sorted losses that the method learns from
    "ordered SGD (Kawaguchi and Lu)": (0, 5, 1, slice(0, 5)),
    "ITLM (Shen and Sanghavi)": (10, 15, 1, slice(10, 15)),
    "MKL-SGD (Shah et al.)": (14, 15, 1, slice(14, 15)),
    "doubly-stochastic mining (Rawat et al.)": (0, 5, 2, slice(0, 5)),
}


@pytest.mark.parametrize("name", SPECIAL_CASES)
def test_batches_give_the_named_methods_by_settings_alone(name):
    m, k, top_k, chosen = SPECIAL_CASES[name]
    X, Y, classes = one_label()
    n, size = len(X), 15
    objective = LabelObjective(Design(X, True), Y, TKML(top_k), 100.0, 4, m=m * n // size, k=k * n // size)
    start = np.random.default_rng(1).normal(size=(4, 4))
    ours = minmax(
        objective,
        start,
        rate=0.1,
        max_iter=14,
        batch_size=size,
        ranking="batch",
        rng=np.random.default_rng(5),
    )
    theirs = batch_sgd(X, classes, start, size, 0.1, 14, 0.01, 5, chosen, top_k)
    np.testing.assert_allclose(ours.w, theirs, atol=1e-12)


@pytest.mark.parametrize("ranking", ["stream", "batch"])
def test_estimator_learns_in_batches(ranking):
    X, Y = made(300)
    settings = {"solver": "minmax", "batch_size": 32, "learning_rate": 0.05, "max_iter": 300, "m": 0.1}
    model = TKMLClassifier(2, C=0.04, ranking=ranking, validation=None, random_state=0, **settings).fit(X, Y)
    start = TKMLClassifier(2, C=0.04, m=0.1, random_state=0, max_iter=1, validation=None).fit(X, Y)
    assert model.objective_ < 1.5 * start.objective_
    assert model.score(X, Y) > 0.6
    again = TKMLClassifier(2, C=0.04, ranking=ranking, validation=None, random_state=0, **settings).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, again.coef_)


def test_tkml_aorr_value_is_the_ranked_range_of_the_losses():
    X, Y = made()
    objective = objective_of(X, Y, m=12, kept_to=100)
    W = start_of(objective)
    expected = ranked_range(objective.losses_of(W), 12, 100) + objective.penalty(W)
    assert objective.value(W) == pytest.approx(expected)
    assert Blocks(objective.design, Y).length == 120
