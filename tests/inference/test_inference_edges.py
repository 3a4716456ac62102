"""Edge cases of inference: weights, starts, the largest number of steps."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from rankrange import AoRRClassifier, AoRRRegressor
from rankrange.inference.mm import s_estimate
from rankrange.inference.trimmed_logistic import _at_cut
from rankrange.solvers.elemental import TrimmedSquares


def test_class_weights_have_no_summary():
    """Standard errors ignore weights, so a weighted fit has none."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = X[:, 0] + rng.logistic(size=100) > 1
    assert AoRRClassifier(0, 1.0).fit(X, y).summary()
    with pytest.raises(AttributeError, match="no weights"):
        AoRRClassifier(0, 1.0, class_weight="balanced").fit(X, y).summary()


def test_trimmed_squares_that_end_at_max_iter_say_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_500, 8))
    y = X.sum(axis=1) + rng.normal(size=10_500)
    y[:3_500] += 50.0
    with pytest.warns(ConvergenceWarning, match="after 1 steps"):
        model = AoRRRegressor(m=4_500, k=1.0, max_iter=1, n_starts=1, random_state=0).fit(X, y)
    assert not model.converged_
    assert model.certificate_ > model.tol


def test_an_s_estimate_leaves_its_start_alone():
    rng = np.random.default_rng(0)
    Z = np.column_stack([rng.normal(size=(6_000, 2)), np.ones(6_000)])
    problem, start = TrimmedSquares(Z, Z.sum(axis=1) + rng.normal(size=6_000), 3_003, np.zeros((3, 3))), np.zeros(3)
    s_estimate(problem, start, rng)
    assert (start == 0.0).all()


def test_the_curvature_lost_at_the_cut_does_not_depend_on_the_mean_slope():
    """It is the scatter of the slopes of the rows near the cut around their mean, over the width of their losses."""
    rng = np.random.default_rng(0)
    losses, slopes, shift = rng.exponential(size=200), rng.normal(size=(200, 3)), np.array([5.0, -2.0, 1.0])
    curvature, mean = _at_cut(losses, slopes, 20)
    moved, moved_mean = _at_cut(losses, slopes + shift, 20)
    np.testing.assert_allclose(moved, curvature, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(moved_mean, mean + shift)
    assert np.linalg.eigvalsh(curvature).min() > 0


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute"])
def test_a_fit_without_penalty_is_the_limit_of_weak_ones_for_every_loss_weight_and_matrix(loss):
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(120, 3)), rng.uniform(0.5, 2.0, 120)
    y = X @ [1.0, 2.0, 3.0] + 0.3 * rng.normal(size=120)
    y[:12] += 20.0
    found = [
        AoRRRegressor(0.1, k, loss=loss, C=C, random_state=0).fit(rows, y, sample_weight=weight)
        for rows in (X, sp.csr_matrix(X))
        for k in (1.0, 0.9)
        for C in (np.inf, 1e8)
    ]
    for free, weak in zip(found[::2], found[1::2], strict=True):
        assert free.certificate_ <= 1e-6
        np.testing.assert_allclose(free.coef_, weak.coef_, atol=1e-3)
