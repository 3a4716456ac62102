"""Edge cases of inference: weights, starts, the largest number of steps."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from rankrange import AoRRClassifier, AoRRRegressor
from rankrange.inference.mm import s_estimate
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
