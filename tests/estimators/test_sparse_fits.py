"""Fits of sparse rows: the minimum of the same rows as a dense matrix, proved, whatever ties at the cut."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from rankrange import AoRRClassifier
from rankrange.core import risks
from rankrange.core.losses import LOSSES, Softmax
from rankrange.core.objective import Design, Objective
from rankrange.solvers import solve
from rankrange.solvers.descent import descend
from rankrange.solvers.polish import bilevel


def words(n, d, seed=0, noise=0.3):
    """Twenty words per row of a Zipf law and of unit length; most columns are empty if d is large."""
    rng = np.random.default_rng(seed)
    word = np.minimum(rng.zipf(1.4, size=20 * n) - 1, d - 1)
    X = sp.csr_matrix((np.ones(20 * n), word, np.arange(0, 20 * n + 1, 20)), shape=(n, d))
    X.sum_duplicates()
    X = sp.csr_matrix(sp.diags(1.0 / np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())) @ X)
    z = X @ rng.normal(size=d)
    return X, (z + noise * rng.logistic(size=n) > np.quantile(z, 0.6)).astype(int)


@pytest.mark.parametrize(("m", "k"), [(0, 120), (30, 180), (60, 300)])
def test_columns_that_no_row_has_change_nothing(m, k):
    X, y = words(300, 2000)
    used = np.unique(X.indices)
    assert len(used) < 1000
    sign = np.where(y == 1, 1.0, -1.0)
    whole, part = (
        solve(Objective(Design(rows, True), sign, LOSSES["logistic"](), 100.0, 1, m=m, k=k)).w
        for rows in (X, X[:, used])
    )
    np.testing.assert_allclose(whole[:, [*used, 2000]], part, rtol=1e-12, atol=1e-15)
    assert not np.delete(whole[:, :2000], used, axis=1).any()


def test_a_hinge_of_which_all_kept_rows_lie_on_the_margin_ends_with_a_certificate():
    """One binary column decides all kept rows: their losses are zero, and none has a spread to smooth by."""
    rng = np.random.default_rng(0)
    X = (rng.random((600, 4)) < 0.5).astype(float)
    y = np.where(rng.random(600) < 0.25, 1 - X[:, 3], X[:, 3]).astype(int)
    m = int((y != X[:, 3]).sum()) + 5
    fit = AoRRClassifier(m, 0.6, loss="hinge", C=1.5, random_state=0).fit(X, y)
    assert fit.certificate_ <= 1e-6
    z = np.where(y == 1, 1, -1) * fit.decision_function(X)
    assert np.sort(np.maximum(0, 1 - z))[::-1][m:].max() <= 1e-6


def test_cutting_again_in_each_step_never_raises_the_objective_and_proves_the_end():
    X, y = words(500, 600)
    rng = np.random.default_rng(1)
    design = Design(X, True)
    design.factored = False
    objective = Objective(design, np.where(y == 1, 1.0, -1.0), LOSSES["logistic"](), 40.0, 1, m=60, k=300)
    for seed in range(3):
        W = np.random.default_rng(seed).normal(size=(1, 601))
        result = bilevel(objective, W, max_iter=400)
        values = [value for _, value in result.history]
        assert (np.diff(values) <= 0).all()
        assert result.value == pytest.approx(objective.value(result.w))
        assert result.certificate <= 1e-6
        for scale in (1e-4, 1e-3, 1e-2):
            V = result.w + scale * rng.normal(size=result.w.shape)
            assert objective.value(V) >= result.value * (1 - 2e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 0.95), st.floats(1.0, 9.0))
def test_the_level_leaves_the_mass_that_is_asked_for(seed, share, digits):
    """Also where the weights are differences of numbers far larger than themselves."""
    rng = np.random.default_rng(seed)
    pushed = rng.normal(size=200) + 10.0**digits
    caps = rng.uniform(0.5, 2.0, size=200)
    K = share * float(caps.sum())
    level = risks._level_of_mass(pushed, caps, K, 0.0)
    mass = float(caps @ np.clip(pushed - level, 0.0, 1.0))
    assert mass == pytest.approx(K, abs=1e-12 * K + 200 * 8e-16 * 10.0**digits)


def test_the_starts_of_a_softmax_are_evaluated_together_as_one_by_one():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 4)), rng.integers(3, size=80)
    for weight in (None, rng.integers(1, 4, size=80).astype(float)):
        objective = Objective(Design(X, True), y, Softmax(), 5.0, 3, m=10, k=60, sample_weight=weight)
        Ws = rng.normal(size=(6, 3, 5))
        values, gradients = objective.batch(Ws)
        for W, value, gradient in zip(Ws, values, gradients, strict=True):
            assert value == pytest.approx(objective.value(W), rel=1e-13)
            np.testing.assert_allclose(gradient, objective.at(W).gradient, rtol=1e-12, atol=1e-14)


def test_the_lowest_end_of_many_starts_is_that_of_each_alone():
    """Starts that cannot catch up are finished early, which must not change where the best one ends."""

    def wells(W):
        x = W[:, 0]
        value = ((x**2 - 1) ** 2 + 0.2 * x * np.arange(1, 7)).sum(axis=1) + 10.0
        return value, (4 * x * (x**2 - 1) + 0.2 * np.arange(1, 7))[:, None]

    starts = np.random.default_rng(0).normal(size=(20, 1, 6))
    apart = [descend(wells, start[None], max_iter=100)[1][0] for start in starts]
    together = descend(wells, starts, max_iter=100)[1]
    assert len(np.unique(np.round(apart, 6))) > 3
    assert together.min() == pytest.approx(min(apart), rel=1e-9)


def test_a_fit_without_a_certificate_says_why():
    X, y = words(400, 300)
    objective = Objective(Design(X, True), np.where(y == 1, 1.0, -1.0), LOSSES["logistic"](), 40.0, 1, m=60, k=300)
    result = bilevel(objective, np.ones((1, 301)), max_iter=1)
    assert not result.converged
    assert result.message == "no certificate after 1 of 1 iterations: the dropped rows still change"
