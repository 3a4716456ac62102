"""Slopes where labels tie, and Hessians of samples: by finite differences, and on average."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankrange.core.losses import LOSSES, TKML
from rankrange.core.objective import Design, Objective
from rankrange.solvers import Settings, solve
from rankrange.solvers.newton import Curvature, evaluate_at
from rankrange.solvers.subgradient import subgradient


def slope_without_ties(z, true, k, two_sided):
    """By the definition: one label is pushed down and one pulled up."""
    order = np.argsort(-z)
    down, up = order[k], min(np.flatnonzero(true), key=lambda label: z[label])
    if two_sided and true.sum() > k:
        down = max(np.flatnonzero(~true), key=lambda label: z[label])
        up = [label for label in order if true[label]][k - 1]
    slope = np.zeros(len(z))
    slope[down] += 1.0
    slope[up] -= 1.0
    return slope


@given(
    st.lists(st.integers(-1, 1), min_size=4, max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.integers(1, 3),
    st.booleans(),
)
def test_the_slope_of_tkml_is_the_mean_over_all_ways_to_break_ties(scores, true, k, two_sided):
    z, mask = np.array(scores, dtype=float), np.array(true)
    value, slope = TKML(k, two_sided).value_and_derivative(mask[None], z[None])
    if value[0] == 0 or not mask.any() or (two_sided and mask.all()):
        assert not slope.any()
        return
    ways = [slope_without_ties(z + 1e-6 * np.array(way), mask, k, two_sided) for way in permutations(range(4))]
    np.testing.assert_allclose(slope[0], np.mean(ways, axis=0), atol=1e-12)


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_subgradient_steps_follow_the_cut_that_they_are_asked_for(share):
    """The largest losses alone: what is reached is close to the least value of these, far below that of the average."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.where(X[:, 0] + 0.8 * rng.normal(size=200) > 0.8, 1.0, -1.0)
    objective = Objective(Design(X, True), y, LOSSES["logistic"](), 100.0, m=0, k=round(share * 200))
    zero = np.zeros((1, 3))
    exact = solve("bilevel", objective, zero, Settings())
    average = solve("bilevel", replace(objective, k=200), zero, Settings())
    reached = subgradient(objective, zero, outer=1, inner=3_000, rate=0.2).value
    assert exact.value <= reached + 1e-9
    assert reached - exact.value < 0.1 * (objective.value(average.w) - exact.value)


@pytest.mark.parametrize(("loss", "outputs"), [("logistic", 1), ("softmax", 3)])
def test_hessians_of_samples_are_right_on_average(loss, outputs):
    """Rows are drawn by their part of the curvature and count inversely to that: far rows are among them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, 2))
    X[:20] *= 20.0
    y = rng.integers(0, outputs, 2_000) if outputs > 1 else rng.choice([-1.0, 1.0], 2_000)
    objective = Objective(Design(X, True), y, LOSSES[loss](), 1e6, outputs, m=0, k=2_000)
    iterate = evaluate_at(objective, 0.1 * rng.normal(size=(outputs, 3)))
    exact = Curvature(objective, 2_000, rng).hessian(iterate, iterate.q)
    drawn = np.mean([Curvature(objective, 400, rng).hessian(iterate, iterate.q) for _ in range(60)], axis=0)
    np.testing.assert_allclose(drawn, exact, atol=0.05 * np.abs(exact).max())
    np.testing.assert_allclose(np.diag(drawn), np.diag(exact), rtol=0.1)
