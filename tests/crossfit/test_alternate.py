"""Alternating fits of a given m, and rates from clean rows."""

import numpy as np
import pytest
from sklearn.datasets import make_regression

from rankrange.core.losses import LOSSES
from rankrange.core.objective import Design, Objective
from rankrange.crossfit.alternate import alternate, by_rank
from rankrange.crossfit.with_clean import _confusions


@pytest.mark.parametrize("weighted", [False, True])
def test_confusions_count_each_clean_and_each_training_row_once(weighted):
    """How many rows there are decides how wide the interval of the share of wrong labels is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    weight = rng.integers(1, 4, 110).astype(float) if weighted else None
    loss = LOSSES["logistic"]()
    total = 110 if weight is None else weight.sum()
    noisy = Objective(Design(X[:110], True), y[:110], loss, 10.0, m=0, k=total, sample_weight=weight)
    clean = Objective(Design(X[110:], True), y[110:], loss, 1.0)
    known, given_ = _confusions(noisy, clean, 0.1, 2)
    np.testing.assert_allclose(known.sum(axis=0), [np.sum(y[110:] < 0), np.sum(y[110:] > 0)])
    mass = np.ones(110) if weight is None else weight
    np.testing.assert_allclose(given_.sum(axis=0), [mass[y[:110] < 0].sum(), mass[y[:110] > 0].sum()])


@pytest.mark.parametrize("rounds", [1, 2, 3, 6])
@pytest.mark.parametrize("seed", range(3))
def test_dropped_rows_are_those_of_the_largest_losses_that_are_returned(rounds, seed):
    X, y = make_regression(60, 2, noise=5.0, random_state=seed)
    y[:9] += 400.0
    mass = np.ones(60)

    def fit(keep):
        return np.linalg.lstsq(X[keep], y[keep], rcond=None)[0]

    end = alternate(fit, lambda coef: (X @ coef - y) ** 2, 6, 55, mass, rounds)
    dropped, easy = by_rank(end.losses, np.ones(60, dtype=bool), 6, 55, mass)
    np.testing.assert_array_equal(end.dropped, dropped)
    np.testing.assert_array_equal(end.easy, easy)
    np.testing.assert_allclose(end.last, fit(~dropped & ~easy))
    assert (np.diff(end.values[:-1]) < 0).all()
