"""Newton steps: the small problem is a conic solver's, the bound holds, no step rises, trivial minima are minima."""

import cvxpy as cp
import numpy as np
import pytest

import conic
from rankrange import AoRRClassifier
from rankrange.core.losses import LOSSES, Logistic, Softmax
from rankrange.core.objective import Design, Objective
from rankrange.solvers.descent import Log
from rankrange.solvers.inner.band import solve_band
from rankrange.solvers.polish import bilevel
from rankrange.solvers.trim import one_class_left

# The conic solver warns where it stops a little short of what it was asked for; tolerances below allow for it.
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")


def problem(name="logistic", n=60, d=3, m=0, k=40, C=20.0, seed=0, weighted=False, noise=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    score = offset + X @ rng.normal(size=d) + noise * rng.normal(size=n)
    y = np.where(score > 0, 1.0, -1.0) if name == "logistic" else score
    weight = rng.integers(1, 4, size=n).astype(float) if weighted else None
    return Objective(Design(X, True), y, LOSSES[name](), C, 1, m=m, k=k, sample_weight=weight)


@pytest.mark.parametrize("seed", range(6))
def test_the_small_problem_is_minimised_as_by_a_conic_solver(seed):
    rng = np.random.default_rng(seed)
    size, p = (30, 4) if seed % 2 else (80, 7)
    A, values = 0.5 * rng.normal(size=(size, p)), 0.3 + 0.05 * rng.normal(size=size)
    caps = np.ones(size) if seed < 3 else rng.uniform(0.1, 2.0, size)
    K, g = 0.4 * caps.sum(), rng.normal(size=p)
    root = rng.normal(size=(2 * p, p))
    H = root.T @ root
    d, t = cp.Variable(p), cp.Variable()
    best = cp.Problem(
        cp.Minimize(g @ d + 0.5 * cp.sum_squares(root @ d) + K * t + caps @ cp.pos(values + A @ d - t))
    ).solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11)
    found = solve_band(g, H, A, values, caps, K, 1e-9)
    assert found.value == pytest.approx(best, abs=1e-6)
    assert (found.weights >= 0).all()
    assert (found.weights <= caps + 1e-12).all()
    assert found.weights.sum() <= K * (1 + 1e-12)
    np.testing.assert_allclose(g + H @ found.step + found.weights @ A, 0.0, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("m", "k"), [(0, 60), (0, 40), (6, 60), (6, 45)])
@pytest.mark.parametrize("name", ["logistic", "squared", "huber"])
def test_the_certificate_bounds_what_is_left_with_the_same_rows_cut(name, m, k, weighted):
    objective = problem(name, m=m, k=k, weighted=weighted, seed=3)
    if k == 60:
        objective = problem(name, m=m, k=objective.total, weighted=weighted, seed=3)
    result = bilevel(objective, np.full((1, 4), 0.1))
    caps = objective.cutting(objective.losses(objective.design.scores(result.w))).risk.caps
    best = conic.least_value(name, objective.design.X, objective.y, objective.C, objective.kept, caps)
    assert result.value == pytest.approx(objective.value(result.w), rel=1e-12)
    if np.isfinite(result.certificate):
        assert result.value - best <= result.certificate * result.value + 1e-7
    if m == 0:
        assert result.converged
        assert result.value == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "classes", "l1_ratio"),
    [("logistic", 2, 0.0), ("logistic", 3, 0.0), ("hinge", 2, 0.0), ("logistic", 2, 0.5)],
)
def test_where_one_class_is_left_the_objective_is_nothing_and_certified(loss, classes, l1_ratio):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), np.zeros(400, dtype=int)
    y[:30], y[30:40] = 1, classes - 1  # as many as are cut
    with pytest.warns(UserWarning, match="were dropped"):
        fit = AoRRClassifier(m=0.1, k=0.9, loss=loss, C=100.0, l1_ratio=l1_ratio, random_state=0).fit(X, y)
    assert fit.objective_ <= 1e-15  # F is not negative: no other fit can be better
    assert fit.n_iter_ <= 1
    assert not fit.coef_.any()
    assert fit.converged_
    assert fit.certificate_ <= 1e-6
    assert l1_ratio or "only one class remains" in fit.message_
    assert (fit.predict(X) == 0).all()
    np.testing.assert_array_equal(fit.dropped_, y != 0)


def test_a_class_that_the_cut_does_not_hold_is_fitted():
    X = problem(n=200).design.X
    rare = Objective(Design(X, True), np.r_[np.ones(21), -np.ones(179)], Logistic(), 1.0, 1, m=20, k=200)
    assert one_class_left(rare, Log()) is None
    rare = Objective(Design(X, False), np.r_[np.ones(5), -np.ones(195)], Logistic(), 1.0, 1, m=20, k=200)
    assert one_class_left(rare, Log()) is None  # without an intercept nothing is trivial


@pytest.mark.parametrize("K", [0.0, 3.0])
def test_the_small_problem_has_an_answer_where_no_row_is_free(K):
    """All rows in, or none: what is left is a quadratic, whose minimum is known."""
    rng = np.random.default_rng(0)
    A, g, H = rng.normal(size=(3, 2)), rng.normal(size=2), np.diag([2.0, 5.0])
    found = solve_band(g, H, A, rng.normal(size=3), np.ones(3), K, 1e-9)
    weights = np.full(3, K / 3.0)
    np.testing.assert_allclose(found.step, -np.linalg.solve(H, g + weights @ A), rtol=1e-9)
    np.testing.assert_allclose(found.weights, weights)


def test_ties_that_fill_the_band_leave_a_fit():
    """Titanic has 24 distinct rows: whole ties lie above and below both cuts."""
    rows = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    X, y = np.repeat(rows, 50, axis=0), np.repeat([0, 1, 1, 1], 50)
    y[::7] = 1 - y[::7]
    for m, k in ((29, 200), (20, 150), (50, 100), (0, 50)):
        fit = AoRRClassifier(m=m, k=k, C=100.0, random_state=0).fit(X, y)
        assert np.isfinite(fit.coef_).all()


def test_a_few_steps_are_enough_if_curved_losses_tie_at_the_lower_cut():
    """The Hessian weights tied rows by their multipliers. With weights of 0 and 1 the gap shrinks by .6 per step."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(2, size=(300, 8))
    Z = X @ rng.normal(size=(8, 5))
    y = (Z / Z.std(axis=0) + rng.gumbel(size=Z.shape)).argmax(axis=1)
    objective = Objective(Design(X, True), y, Softmax(), 30.0, 5, m=0, k=180)
    rough = bilevel(objective, np.zeros((5, 9)), tol=1e-2)
    result = bilevel(objective, rough.w, tol=1e-9, max_iter=7)
    assert result.certificate <= 1e-9


@pytest.mark.filterwarnings("ignore:.*of the rows of class")
@pytest.mark.parametrize("seed", [2, 65])
def test_a_rare_class_under_a_weak_penalty_takes_more_than_twenty_steps(seed):
    """Between 22 and 36 steps on these rows; after 20 the relative gap is between 1e-4 and .1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(1.5, size=(60, 5))
    y = (X @ rng.normal(size=(5, 7)) + 2.0 * rng.gumbel(size=(60, 7))).argmax(axis=1)
    y[y == 6] = 0
    y[rng.choice(60, 2, replace=False)] = 6
    model = AoRRClassifier(m=0.1, k=0.9, C=1e6, random_state=0, n_starts=2).fit(X, y)
    assert model.converged_
    assert model.certificate_ <= 1e-6
