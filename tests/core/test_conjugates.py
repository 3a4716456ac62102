"""Conjugates of the losses, and slopes that are balanced for an intercept: what every lower bound rests on."""

import numpy as np
import pytest

from rankrange.core.losses import LOSSES

CONVEX = {name: loss for name, loss in LOSSES.items() if hasattr(loss, "fenchel")}


def drawn(name, n=40, seed=0):
    rng = np.random.default_rng(seed)
    loss = CONVEX[name]()
    if loss.targets == "classes":
        return loss, rng.integers(0, 3, n), rng.normal(scale=2.0, size=(n, 3))
    y = rng.normal(size=n) if loss.targets == "numbers" else rng.choice([-1.0, 1.0], n, p=[0.8, 0.2])
    return loss, y, rng.normal(scale=2.0, size=n)


def times(a, z):
    return a * z if a.ndim == 1 else (a * z).sum(axis=1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CONVEX)
def test_the_conjugate_is_tight_at_the_derivative_and_a_bound_elsewhere(name, seed):
    """Fenchel and Young: loss(z) + conjugate(a) >= a z for all z and a, with equality if a is a derivative at z."""
    loss, y, z = drawn(name, seed=seed)
    s, a = loss.value_and_derivative(y, z)
    np.testing.assert_allclose(s + loss.fenchel(y, z, a), 0.0, atol=1e-12)
    rng = np.random.default_rng(seed)
    for share in (1.0, 0.7, 0.0):
        other = z + rng.normal(scale=3.0, size=z.shape)
        conjugate = loss.fenchel(y, other, share * a)
        assert np.isfinite(conjugate).all()
        assert (loss.value(y, other) + conjugate >= -1e-12).all()


@pytest.mark.parametrize("name", [name for name in CONVEX if name != "squared"])
def test_the_conjugate_is_infinite_outside_of_its_domain(name):
    loss, y, z = drawn(name)
    a = loss.value_and_derivative(y, z)[1]
    assert np.isinf(loss.fenchel(y, z, -100.0 * np.where(a == 0, -1.0, a))).any()


@pytest.mark.parametrize("towards", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CONVEX)
def test_balanced_slopes_have_the_sums_asked_for_and_stay_in_the_domain(name, seed, towards):
    loss, y, z = drawn(name, seed=seed)
    h = np.random.default_rng(seed).uniform(0.0, 2.0, len(y))
    a = loss.value_and_derivative(y, z)[1]
    target = towards * (h @ a)
    balanced = loss.balanced(y, a, h, target)
    np.testing.assert_allclose(h @ balanced, target, atol=1e-12)
    assert np.isfinite(loss.fenchel(y, z, balanced)).all()


@pytest.mark.parametrize("name", [name for name in CONVEX if name != "squared"])
def test_there_is_no_balance_beyond_the_domain(name):
    loss, y, z = drawn(name)
    a = loss.value_and_derivative(y, z)[1]
    size = np.abs(a).sum()
    target = 10 * size if z.ndim == 1 else 10 * size * np.array([1.0, -1.0, 0.0])
    assert loss.balanced(y, a, np.ones(len(y)), target) is None
