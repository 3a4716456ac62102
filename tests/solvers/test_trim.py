"""The trim search: cuts that take whole classes, columns of very different scale, and what random starts find."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from rankrange import AoRRClassifier
from rankrange.core.losses import LOSSES
from rankrange.core.objective import Design, Objective
from rankrange.solvers import Settings
from rankrange.solvers.concentration import concentrate
from rankrange.solvers.trim import near_minimum


def test_an_l1_penalty_copes_with_a_huge_a_constant_and_a_copied_column():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1101, 18))
    y = (X[:, :5] + 0.5 * rng.normal(size=(1101, 5))).argmax(axis=1)
    ordinary = LogisticRegression().fit(X, y).score(X, y)
    X[:, 3] *= 1e12
    X[:, 7] = 1.0
    X[:, 9] = X[:, 8]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing may be proved for columns of such scales; then a warning says so
        fit = AoRRClassifier(m=0.1, k=1.0, l1_ratio=1.0, random_state=0).fit(X, y)
    assert fit.n_iter_ <= 200
    assert fit.score(X, y) > ordinary - 0.1


@pytest.mark.parametrize("l1_ratio", [0.0, 0.8])
@pytest.mark.parametrize("name", ["logistic", "squared", "huber"])
def test_random_starts_are_hardly_ever_lower(name, l1_ratio):
    lower = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 4))
        z = 2 * X[:, 0] + rng.normal(size=60)
        z[:12] = -3.0 * z[:12] + 2.0
        y = np.where(z > 0, 1.0, -1.0) if name == "logistic" else z
        objective = Objective(Design(X, True), y, LOSSES[name](), 20.0, 1, m=15, k=60, l1_ratio=l1_ratio)
        _, value = concentrate(objective, near_minimum(objective, None, Settings()), rounds=20)
        starts = rng.normal(size=(40, 1, 5))
        lower += min(concentrate(objective, W, rounds=20)[1] for W in starts) < value * (1 - 5e-3)
    assert lower <= 1
