"""The convex part equals scikit-learn where it has the model, a conic solver everywhere, and its gap holds."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import random_array
from sklearn.linear_model import QuantileRegressor

import conic
from rankrange import AoRRClassifier, AoRRRegressor, RankedRange
from rankrange.core.losses import LOSSES
from rankrange.core.objective import ConvexProblem, Design
from rankrange.core.risks import TopRisk
from rankrange.solvers import convex

RNG = np.random.default_rng(7)
N, D = 80, 4
X = RNG.normal(size=(N, D))
SCORE = X @ RNG.normal(size=D)
REAL = (SCORE + RNG.standard_t(4, size=N)) / 3


def unbalanced(name, n=40, d=3):
    """One row in eight is of a rare class, and all lie away from zero: the best intercept does too."""
    rng, eighth = np.random.default_rng(0), np.arange(n) % 8
    y = np.where(eighth == 0, 1.0, -1.0)
    rows = rng.normal(size=(n, d)) + 0.5 * y[:, None] + 1.0
    return rows, np.where(eighth < 2, eighth + 1, 0) if name == "softmax" else y


def starts_for(shape):
    """Zero, and points near and far: far out the slopes of most rows point one way, and no intercept balances them."""
    rng = np.random.default_rng(0)
    yield np.zeros(shape)
    for scale in (0.1, 3.0, 20.0):
        for _ in range(2):
            start = rng.normal(size=shape)
            start[:, -1] *= scale
            yield start
            yield scale * start


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("C", [1.0, 10.0, 1e3])
@pytest.mark.parametrize("K", [1, 6, 30, 40])
@pytest.mark.parametrize("name", conic.LOSSES)
def test_minima_are_those_of_a_conic_solver_and_the_gap_is_a_bound_at_every_step_from_every_start(name, K, C):
    """K = n, which an ordinary fit has, K < n, and an intercept that is not penalised."""
    rows, y = unbalanced(name)
    best, outputs = conic.least_value(name, rows, y, C, K), 3 if name == "softmax" else 1
    problem = ConvexProblem(Design(rows, True), y, LOSSES[name](), C, outputs, TopRisk(np.ones(40), float(K)))
    end = convex.minimise(problem, tol=1e-8, max_iter=500)
    assert end.value == pytest.approx(best, rel=1e-7)
    assert end.gap <= 1e-6
    for start, budget in itertools.product(starts_for((outputs, 4)), (0, 1, 2, 3, 5, 8) if C == 10.0 else ()):
        early = convex.minimise(problem, start, tol=1e-12, max_iter=budget)
        assert early.value == pytest.approx(problem.value(early.W), rel=1e-12)
        assert early.value - best <= early.gap * early.value + 1e-7 * abs(best)


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
