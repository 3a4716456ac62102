"""Smoothed risks: a lower bound, weights that are its gradient and lie in the polytope, and their derivative."""

import numpy as np
import pytest

from rankrange import RankWeights
from rankrange.core.aggregates import WorstGroup
from rankrange.core.risks import GroupRisk, TopRisk

RNG = np.random.default_rng(0)
N = 12
S = RNG.gamma(1.0, size=N)
CAPS = np.where(np.arange(N) % 5 == 0, 0.0, RNG.uniform(0.5, 1.5, N))
GROUPS = np.arange(N) % 4
MIXED = RankWeights("superquantile", alphas=[0.1, 0.6])
RISKS = {
    "top": TopRisk(CAPS, 3.3),
    "all": TopRisk(CAPS, 1e3),
    "spectrum": MIXED.majorant(S, 0, None)[0],
    "weighted spectrum": MIXED.majorant(S, 0, CAPS)[0],
    "worst group": WorstGroup(GROUPS).majorant(S, 0, None)[0],
    "worst groups": WorstGroup(GROUPS, 0.6).majorant(S, 0, CAPS)[0],
    "groups by rank": GroupRisk(MIXED._spectrum(np.zeros(4), None), GROUPS, CAPS),
}


def centres(risk):
    """The exact weights, those of another point, and equal ones."""
    return [risk.densities(risk.exact(s)[1]) for s in (S, RNG.gamma(1.0, size=N), np.ones(N))]


@pytest.mark.parametrize("width", [0.01, 0.3, 10.0])
@pytest.mark.parametrize("name", RISKS)
def test_smoothed_values_are_lower_bounds_with_feasible_weights(name, width):
    risk = RISKS[name]
    value, q = risk.exact(S)
    assert value == pytest.approx(q @ S, rel=1e-12)
    for centre in centres(risk):
        found = risk.smoothed(S, width, centre)
        assert found.value <= value + 1e-12
        assert found.weights.sum() == pytest.approx(q.sum(), rel=1e-12)
        for other in RNG.gamma(1.0, size=(20, N)):  # never above the exact maximum, whatever the losses
            assert found.weights @ other <= risk.exact(other)[0] + 1e-12


@pytest.mark.parametrize("name", RISKS)
def test_weights_are_the_gradient_and_their_change_is_the_second_derivative(name):
    risk, ds = RISKS[name], RNG.normal(size=N)
    for centre in centres(risk):
        at = [risk.smoothed(S + t * ds, 0.5, centre) for t in (-1e-6, 0.0, 1e-6)]
        assert at[1].weights @ ds == pytest.approx((at[2].value - at[0].value) / 2e-6, abs=1e-8)
        np.testing.assert_allclose(at[1].change(ds), (at[2].weights - at[0].weights) / 2e-6, atol=1e-7)


def test_a_narrow_width_gives_the_exact_weights():
    for risk in RISKS.values():
        value, q = risk.exact(S)
        found = risk.smoothed(S, 1e-6, centres(risk)[1])
        assert found.value == pytest.approx(value, abs=1e-5)
        np.testing.assert_allclose(found.weights, q, atol=1e-8)
