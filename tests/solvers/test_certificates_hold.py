"""A certificate is never below the true gap: every loss, weight by rank, group aggregate and penalty, drawn problems.

The reference is the same problem solved far more tightly. It need not be the minimum: the true gap is at least the
difference to any lower point.
"""

import warnings

import numpy as np
import pytest

from definitions import slow
from rankrange import AoRRClassifier, AoRRRegressor, RankWeights

LOSSES = {
    "logistic": AoRRClassifier,
    "hinge": AoRRClassifier,
    "squared_hinge": AoRRClassifier,
    "softmax": AoRRClassifier,
    "one_vs_rest": AoRRClassifier,
    "squared": AoRRRegressor,
    "absolute": AoRRRegressor,
    "huber": AoRRRegressor,
}
WEIGHTS = {
    "average": {"m": 0, "k": 1.0},
    "top": {"m": 0, "k": 0.3},
    "trimmed": {"m": 0.1, "k": 0.9},
    "exponential": {"aggregate": RankWeights("exponential", rate=5.0)},
    "superquantile": {"aggregate": RankWeights("superquantile", alphas=[0.05, 0.5])},
    "worst-group": {"m": 0, "k": 1.0, "aggregate": "worst-group"},
    "group-cvar": {"m": 0, "k": 1.0, "aggregate": "group-cvar"},
}
PENALTIES = {"l2": 0.0, "elastic net": 0.5, "l1": 1.0}
WITH_L1 = ("logistic", "softmax", "squared", "huber")


def supported(loss, weights, penalty):
    """The combinations that the estimators offer."""
    return penalty == "l2" or (loss in WITH_L1 and weights in ("average", "top", "trimmed"))


CASES = [(a, b, c) for a in LOSSES for b in WEIGHTS for c in PENALTIES if supported(a, b, c)]


def drawn(loss, rng):
    """Few rows of one class, and columns away from zero: the best intercept is far from zero, and has no penalty."""
    n, d = int(rng.integers(60, 200)), int(rng.integers(2, 6))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-0.5, 0.5, size=d) + rng.normal(size=d)
    groups = rng.integers(0, 3, n)
    if loss in ("softmax", "one_vs_rest"):
        y = np.minimum(rng.geometric(0.6, n) - 1, 2)
        y[:3] = [0, 1, 2]
    elif LOSSES[loss] is AoRRClassifier:
        y = (np.arange(n) < max(2, int(n * rng.choice([0.02, 0.2, 0.5])))).astype(int)
    else:
        y = X @ rng.normal(size=d) + rng.standard_t(2, n) + 30 * (rng.random(n) < 0.05)
    if loss not in ("squared", "absolute", "huber"):
        X[:, 0] += 1.5 * y
    return X, y, groups


def fitted(loss, settings, X, y, groups, **more):
    name = {"softmax": "logistic", "one_vs_rest": "squared_hinge"}.get(loss, loss)
    model = LOSSES[loss](loss=name, random_state=0, n_starts=2, **settings, **more)
    grouped = isinstance(settings.get("aggregate"), str)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y, groups=groups) if grouped else model.fit(X, y)


@pytest.mark.parametrize("draw", [0, *slow(1, 2)])
@pytest.mark.parametrize(("loss", "weights", "penalty"), CASES)
def test_the_certificate_is_never_below_the_true_gap(loss, weights, penalty, draw):
    rng = np.random.default_rng([CASES.index((loss, weights, penalty)), draw])
    X, y, groups = drawn(loss, rng)
    settings = {"l1_ratio": PENALTIES[penalty], "C": float(10.0 ** rng.uniform(-3.5, 1)), **WEIGHTS[weights]}
    best = fitted(loss, settings, X, y, groups, tol=1e-11, max_iter=1000)
    for tol, max_iter in ((0.1, 200), (1e-3, 200), (1e-5, 200), (1e-12, 2)):
        early = fitted(loss, settings, X, y, groups, tol=tol, max_iter=max_iter)
        if settings.get("m") and not np.array_equal(early.dropped_, best.dropped_):
            continue  # the certificate is about the rows that are kept
        excess = early.objective_ - best.objective_
        assert excess <= early.certificate_ * early.objective_ + 1e-11 * abs(early.objective_)
