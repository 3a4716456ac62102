"""The elastic net of an objective: its value, its gradient and its proximal point, against their definitions."""

import numpy as np
import pytest

from rankrange.core.losses import Logistic
from rankrange.core.objective import Design, Objective

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 4)), RNG.choice([-1.0, 1.0], 30)


def objective(l1_ratio, C=3.0):
    return Objective(Design(X, True), Y, Logistic(), C, 1, m=3, k=25, l1_ratio=l1_ratio)


def by_definition(coef, l1_ratio, C=3.0):
    return ((1 - l1_ratio) / 2 * (coef**2).sum() + l1_ratio * np.abs(coef).sum()) / C


@pytest.mark.parametrize("l1_ratio", [0.0, 0.3, 1.0])
def test_value_gradient_and_batch_have_the_elastic_net(l1_ratio):
    F, Ws = objective(l1_ratio), RNG.normal(size=(3, 1, 5))
    values, gradients = F.batch(Ws)
    for W, value, gradient in zip(Ws, values, gradients, strict=True):
        losses = np.sort(np.logaddexp(0, -Y * (X @ W[0, :4] + W[0, 4])))[::-1]
        assert value == pytest.approx(losses[3:25].mean() + by_definition(W[0, :4], l1_ratio), rel=1e-12)
        assert F.value(W) == pytest.approx(value, rel=1e-12)
        assert F.cutting(F.losses(F.design.scores(W))).value(W) == pytest.approx(value, rel=1e-12)
        for column in range(5):
            step = np.zeros((1, 5))
            step[0, column] = 1e-6
            slope = (F.value(W + step) - F.value(W - step)) / 2e-6
            assert gradient[0, column] == pytest.approx(slope, abs=1e-6)
