"""The convex part equals scikit-learn where it has the model, a conic solver everywhere, and its gap holds."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import random_array
from sklearn.linear_model import QuantileRegressor

from rankrange import AoRRClassifier, AoRRRegressor, RankedRange
from rankrange.core.losses import LOSSES, Softmax
from rankrange.core.objective import ConvexProblem, Design
from rankrange.core.risks import TopRisk
from rankrange.solvers import convex

RNG = np.random.default_rng(7)
N, D = 80, 4
X = RNG.normal(size=(N, D))
SCORE = X @ RNG.normal(size=D)
SIGN = np.where(SCORE + RNG.normal(size=N) > 0, 1.0, -1.0)
REAL = (SCORE + RNG.standard_t(4, size=N)) / 3

CONIC = {
    "logistic": (SIGN, lambda z: cp.logistic(-cp.multiply(SIGN, z))),
    "hinge": (SIGN, lambda z: cp.pos(1 - cp.multiply(SIGN, z))),
    "squared": (REAL, lambda z: cp.square(z - REAL)),
    "absolute": (REAL, lambda z: cp.abs(z - REAL)),
    "huber": (REAL, lambda z: cp.huber(z - REAL, 1.0) / 2),
}


def conic_minimum(losses, K, C, coef):
    problem = cp.Problem(cp.Minimize(cp.sum_largest(losses, K) / K + cp.sum_squares(coef) / (2 * C)))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return problem.value


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("C", [1.0, 1e3])
@pytest.mark.parametrize("K", [1, 10, 40, N])
@pytest.mark.parametrize("name", CONIC)
def test_the_largest_losses_are_minimised_as_by_a_conic_solver(name, K, C):
    y, losses = CONIC[name]
    coef, intercept = cp.Variable(D), cp.Variable()
    best = conic_minimum(losses(X @ coef + intercept), K, C, coef)
    problem = ConvexProblem(Design(X, True), y, LOSSES[name](), C, 1, TopRisk(np.ones(len(y)), float(K)))
    solution = convex.minimise(problem, np.zeros((1, D + 1)), tol=1e-8, max_iter=300)
    assert solution.value == pytest.approx(best, rel=1e-7)
    assert solution.gap <= 1e-6


@pytest.mark.parametrize("K", [15, N])
def test_several_classes_are_minimised_as_by_a_conic_solver(K):
    y = np.argmax(np.stack([SCORE, -SCORE, 0.5 + RNG.normal(size=N)]), axis=0)
    coef, intercept = cp.Variable((D, 3)), cp.Variable(3)
    scores = X @ coef + np.ones((N, 1)) @ cp.reshape(intercept, (1, 3), order="C")
    losses = cp.log_sum_exp(scores, axis=1) - cp.sum(cp.multiply(np.eye(3)[y], scores), axis=1)
    best = conic_minimum(losses, K, 10.0, coef)
    problem = ConvexProblem(Design(X, True), y, Softmax(), 10.0, 3, TopRisk(np.ones(len(y)), float(K)))
    solution = convex.minimise(problem, np.zeros((3, D + 1)), tol=1e-8, max_iter=500)
    assert solution.value == pytest.approx(best, rel=1e-7)


def test_average_absolute_equals_median_regression():
    ours = AoRRRegressor(m=0, k=1.0, C=1e9, loss="absolute", tol=1e-9, max_iter=500).fit(X, REAL)
    theirs = QuantileRegressor(quantile=0.5, alpha=0.0).fit(X, REAL)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-5)


def test_maximum_hinge_equals_a_linear_program():
    """Without a penalty the largest hinge loss is a linear program in (coef, intercept, t)."""
    y = np.where(SCORE > 0.2, 1.0, -1.0)
    rows = np.column_stack([-y[:, None] * X, -y, -np.ones(N)])
    best = linprog([0.0] * (D + 1) + [1.0], rows, -np.ones(N), bounds=[(None, None)] * (D + 1) + [(0, None)]).fun
    ours = AoRRClassifier(m=RankedRange.maximum(), loss="hinge", C=1e8, max_iter=500).fit(X, y)
    penalty = float((ours.coef_**2).sum()) / 2
    assert (ours.objective_ - penalty) / 1e8 == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize(("loss", "C", "d", "r"), [("logistic", 0.03, 30, 10), ("squared_hinge", 100.0, 12, 5)])
def test_several_classes_end_with_a_certificate_in_any_units_of_the_columns(loss, C, d, r):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, d))
    scores = rows @ rng.normal(size=(d, r))
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    units = 10.0 ** rng.uniform(-3, 3, size=d)
    fit = AoRRClassifier(loss=loss, m=0, k=1.0, C=C, random_state=0).fit(rows * units, y)
    assert fit.certificate_ <= 1e-6


@pytest.mark.parametrize("name", ["logistic", "hinge", "squared", "absolute"])
@pytest.mark.parametrize("K", [200, 300])
def test_wide_sparse_rows_end_where_the_same_rows_do_when_they_are_dense(name, K):
    """Steps by products with sparse rows prove the minimum that factored Hessians find."""
    rng = np.random.default_rng(5)
    sparse = random_array((300, 1100), density=0.03, format="csr", rng=rng)
    score = sparse @ rng.normal(size=1100) + rng.normal(size=300)
    y = np.sign(score) if name in ("logistic", "hinge") else score
    problem = ConvexProblem(Design(sparse, True), y, LOSSES[name](), 10.0, 1, TopRisk(np.ones(len(y)), float(K)))
    end = convex.minimise(problem, np.zeros((1, 1101)), tol=1e-7, max_iter=200)
    assert end.gap <= 1e-6
    # By kernels: W is a sum of rows, so that the dense problem in as many columns as rows is the same one.
    square, _ = np.linalg.qr(sparse.toarray().T)
    small = ConvexProblem(Design(sparse @ square, True), y, LOSSES[name](), 10.0, 1, TopRisk(np.ones(len(y)), float(K)))
    assert end.value == pytest.approx(
        convex.minimise(small, np.zeros((1, 301)), tol=1e-7, max_iter=200).value, rel=2e-6
    )
