"""Parts of the search for sparse models by their definitions: conjugates, balanced slopes, costs of rows, gaps."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankrange.core.losses import Absolute, Huber, Logistic, Softmax, Squared
from rankrange.solvers.sparse import Cut, ElasticNet, follow
from rankrange.solvers.sparse.conjugates import balanced, conjugate
from rankrange.solvers.sparse.exchange import costs_of_rows

LOSSES = {
    "squared": Squared(),
    "huber": Huber(0.7),
    "absolute": Absolute(),
    "logistic": Logistic(),
    "softmax": Softmax(),
}


def targets(name, rng, n):
    if name == "softmax":
        return rng.permutation(np.arange(n) % 3)
    return rng.choice([-1.0, 1.0], n) if name == "logistic" else rng.normal(size=n)


def values(name, y, Z):
    """Losses (n,) and slopes (r, n) at scores (r, n)."""
    loss = LOSSES[name]
    s, slopes = loss.value_and_derivative(y, Z.T if name == "softmax" else Z[0])
    return s, slopes.T if name == "softmax" else slopes[None]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(list(LOSSES)), st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 5.0]))
def test_a_conjugate_is_above_every_tangent_and_touches_its_own(name, seed, scale):
    """Fenchel and Young: conjugate(a) >= a z - loss(z) for all z, with equality if a is the slope at z."""
    rng = np.random.default_rng(seed)
    r, n = 3 if name == "softmax" else 1, 20
    y, Z, other = targets(name, rng, n), scale * rng.normal(size=(r, n)), scale * rng.normal(size=(r, n))
    s, slopes = values(name, y, Z)
    found = conjugate(LOSSES[name], y, slopes)
    np.testing.assert_allclose(found, (slopes * Z).sum(axis=0) - s, atol=1e-9 * (1 + np.abs(s).max()))
    assert (found >= (slopes * other).sum(axis=0) - values(name, y, other)[0] - 1e-9 * (1 + np.abs(s).max())).all()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(LOSSES)), st.integers(0, 10**6), st.sampled_from([-3.0, 0.0, 3.0]), st.booleans())
def test_balanced_slopes_sum_to_zero_and_have_a_conjugate(name, seed, shift, one_missing):
    """At scores that are all too low or too high, as at a bad intercept, and if a class has no weight."""
    rng = np.random.default_rng(seed)
    r, n = 3 if name == "softmax" else 1, 24
    y, h = targets(name, rng, n), rng.uniform(0.0, 2.0, n)
    if one_missing and name == "softmax":
        h[y == 1] = 0.0
    _, slopes = values(name, y, rng.normal(size=(r, n)) + shift * np.arange(1, r + 1)[:, None])
    found = balanced(LOSSES[name], y, slopes, h)
    used = h > 0
    np.testing.assert_allclose(found @ h, 0.0, atol=1e-9 * h.sum())
    Z = rng.normal(size=(r, n))  # a slope outside of the domain has a tangent above the loss
    below = (found * Z).sum(axis=0) - conjugate(LOSSES[name], y, found)
    assert (below <= values(name, y, Z)[0] + 1e-9)[used].all()
    for score, far in itertools.product(range(r), (-50.0, 50.0)):
        Z = np.zeros((r, n))
        Z[score] = far
        below = (found * Z).sum(axis=0) - conjugate(LOSSES[name], y, found)
        assert (below <= values(name, y, Z)[0] + 1e-9)[used].all()


@pytest.mark.parametrize(("name", "slack"), [("squared", 1e-6), ("logistic", 0.05)])
def test_the_cost_of_a_row_is_what_the_fit_without_it_gains(name, slack):
    """Exact for squared losses as long as the same coefficients are not zero; to second order for others."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 4)), targets(name, rng, 40)
    net, C = ElasticNet(X, y, LOSSES[name], 1, 0.01, True), 0.3
    h = np.full(40, C)
    h[7] = 0.0
    fit = net.fit(h, tol=1e-12)
    costs = costs_of_rows(net, fit, h, C)
    assert costs[7] == -np.inf
    for row in (0, 3, 12, 25):
        without = h.copy()
        without[row] = 0.0
        other = net.fit(without, tol=1e-12)
        assert ((other.coef != 0) == (fit.coef != 0)).all()
        assert costs[row] == pytest.approx(fit.value - other.value, rel=slack)


@pytest.mark.parametrize("max_iter", [1, 2, 4, 200])
def test_a_finite_gap_bounds_what_further_concentration_gains(max_iter):
    """If the steps end before the dropped rows settle, nothing is proved."""
    proved = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(150, 20))
        y = X[:, 0] - X[:, 1] + rng.normal(size=150) + 3.0 * (np.arange(150) < 45)
        net, cut = ElasticNet(X, y, Squared(), 1, 1.0, True), Cut(40, None, 0.1)
        fit = follow(net, cut, net.zero(), tol=1e-9, max_iter=max_iter)
        after = follow(net, cut, (fit.coef, fit.intercept), tol=1e-9, max_iter=200)
        assert fit.value - after.value <= fit.gap + 1e-9 * fit.value
        proved += np.isfinite(fit.gap)
    assert proved < 8 if max_iter == 1 else proved == 8 or max_iter < 200
