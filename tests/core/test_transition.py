"""The model of class-conditional noise of linear scores."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import softmax

from rankrange.core import transition as mislabel
from rankrange.core.transition import wrong_rate


def drawn(n, T, a=3.0, seed=0):
    """Scores, and labels drawn from the model of class-conditional noise."""
    rng = np.random.default_rng(seed)
    K = len(T)
    Z = rng.normal(size=(n, K)) * a
    pick = lambda P: (rng.random((len(P), 1)) > np.cumsum(P, axis=1)).sum(axis=1).clip(max=K - 1)  # noqa: E731
    true = pick(softmax(Z, axis=1))
    return Z, true, pick(T[true])


@pytest.mark.parametrize(
    "T", [[[0.9, 0.1], [0.3, 0.7]], [[0.8, 0.1, 0.1], [0.0, 1.0, 0.0], [0.0, 0.3, 0.7]]], ids=["two", "three"]
)
def test_the_model_of_flips_is_recovered_from_its_own_draws(T):
    T = np.array(T)
    Z, true, given = drawn(20_000, T)
    for temperature in (0.4, 1.0, 3.0):
        assert wrong_rate(temperature * Z, given) == pytest.approx((true != given).mean(), abs=0.02)


def test_a_row_of_weight_two_counts_as_two_rows():
    Z, _, given = drawn(400, np.array([[0.9, 0.1], [0.2, 0.8]]))
    mass = np.random.default_rng(1).integers(1, 4, 400)
    repeated = np.repeat(np.arange(400), mass)
    assert wrong_rate(Z, given, mass) == pytest.approx(wrong_rate(Z[repeated], given[repeated]), abs=0.005)


def test_the_gradient_of_the_flips_is_right():
    rng = np.random.default_rng(0)
    model = mislabel._Model(rng.normal(size=(50, 4)), rng.integers(0, 4, 50), 0.1)
    x = model.start(0.1) + 0.3 * rng.normal(size=len(model.start(0.1)))
    share = rng.dirichlet(np.ones(50))
    error = check_grad(
        lambda x: model._value_and_gradient(x, share)[0], lambda x: model._value_and_gradient(x, share)[1], x
    )
    assert error < 1e-5


def test_slices_lose_nothing_that_matters():
    Z, _, given = drawn(5000, np.array([[0.9, 0.1], [0.2, 0.8]]))
    scores = mislabel.normed(Z)
    coarse = mislabel.coarse(scores, given, np.full(5000, 1 / 5000))
    assert len(coarse[0]) <= 500
    assert coarse[2].sum() == pytest.approx(1)
    quick, full = mislabel._Model(*coarse[:2]), mislabel._Model(scores, given)
    share = np.full(5000, 1 / 5000)
    rates = [full.rate(m.fit(m.start(0.1), w).x, share) for m, w in ((quick, coarse[2]), (full, share))]
    assert rates[0] == pytest.approx(rates[1], abs=0.01)


def test_where_no_label_is_wrong_the_rate_is_nothing():
    Z, _, given = drawn(2000, np.eye(2), a=8.0)
    assert wrong_rate(Z, given) < 0.005
