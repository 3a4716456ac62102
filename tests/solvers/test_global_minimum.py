"""How often the search finds the least value of all, on problems small enough to try every set of rows to cut.

F is the least, over all sets of m rows, of the ordinary problem without them; that one is convex, and Newton steps
solve it for all sets together.
"""

import itertools
from functools import cache

import numpy as np
import pytest

from rankrange.core.losses import LOSSES
from rankrange.core.objective import Design, Objective
from rankrange.solvers import Settings, search
from rankrange.solvers.concentration import hessian
from rankrange.solvers.descent import Metric, descend
from rankrange.solvers.trim import Centred, improved

C = 100.0
# (rows, columns, rows to cut): each class has more rows than are cut, so that the intercept stays finite.
SIZES = ((12, 2, 3), (13, 3, 3), (14, 2, 4))
SEEDS = range(12)
PROBLEMS = [(*size, seed) for size in SIZES for seed in SEEDS]


def problem_of(n, d, seed):
    """Labels that have nothing to do with the rows: many minima, none of them easy to find."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.permutation(np.where(np.arange(n) % 2, 1.0, -1.0))


def values_at(rows, W, penalty):
    return np.logaddexp(0, -np.einsum("shp,sp->sh", rows, W)).mean(axis=1) + (W**2 * penalty).sum(axis=1) / 2


def searched(objective, W=None, **settings):
    return search(objective, W, Settings(**settings))


@cache
def least_of_all(n, d, m, seed):
    X, y = problem_of(n, d, seed)
    kept = np.array(list(itertools.combinations(range(n), n - m)))
    rows = (np.column_stack([X, np.ones(n)]) * y[:, None])[kept]
    penalty = np.r_[np.full(d, 1 / C), 1e-12]
    W = np.zeros((len(kept), d + 1))
    value = values_at(rows, W, penalty)
    for _ in range(40):
        q = 1 / (1 + np.exp(np.einsum("shp,sp->sh", rows, W)))
        gradient = W * penalty - np.einsum("sh,shp->sp", q, rows) / (n - m)
        bent = rows * (q * (1 - q) / (n - m))[..., None]
        hessian = bent.transpose(0, 2, 1) @ rows + np.diag(penalty)
        if np.abs(gradient).max() < 1e-9:
            break
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        for length in 0.5 ** np.arange(12):
            trial = values_at(rows, W - length * step, penalty)
            better = trial < value
            W[better] -= length * step[better]
            value[better] = trial[better]
            step[better] = 0.0
            if not step.any():
                break
    return float(value.min())


@cache
def reached(n, d, m, seed, n_starts):
    X, y = problem_of(n, d, seed)
    objective = Objective(Design(X, True), y, LOSSES["logistic"](), C, 1, m=m, k=n)
    return searched(objective, n_starts=n_starts, rng=np.random.default_rng(seed)).value


def shares_of_the_least(n_starts):
    return np.array([reached(*problem, n_starts) / least_of_all(*problem) for problem in PROBLEMS])


def test_searches_end_at_the_least_of_all_the_more_often_the_more_starts_they_have():
    none, few, many = (shares_of_the_least(count) for count in (0, 10, 100))
    assert many.min() >= 1 - 1e-6  # which is what makes the counts mean something
    assert (many <= 1 + 1e-4).sum() >= len(PROBLEMS) - 1
    assert (few <= 1 + 1e-4).mean() >= 0.9
    # Fits of rows that are not far out, followed along a path of falling m: on noise they have little to go by.
    assert (none <= 1 + 1e-4).mean() >= 2 / 3
    assert (few <= none * (1 + 1e-3)).all()
    assert (many <= few * (1 + 1e-3)).all()
    assert (few < none * (1 - 1e-3)).sum() >= 3


def test_a_search_of_problems_nearby_never_ends_higher_and_often_ends_lower():
    lower = 0
    for seed in range(20):
        X, y = problem_of(60, 2, seed)
        objective = Objective(Design(X, True), y, LOSSES["logistic"](), C, 1, m=10, k=60)
        start = np.random.default_rng(seed).normal(size=(1, 1, 3))
        metric = Metric(hessian(objective, start[0]))
        ends, values, _ = descend(objective.batch, start, metric, tol=1e-8)
        found = objective.value(improved(objective, ends[0], float(values[0]), metric, 3, 200))
        assert found <= values[0]
        lower += found < (1 - 1e-3) * values[0]
    assert lower >= 5


def test_centred_columns_keep_the_objective():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) + np.array([1e5, -30.0, 0.0])
    y = np.where(X[:, 2] + rng.normal(size=200) > 0, 1.0, -1.0)
    objective = Objective(Design(X, True), y, LOSSES["logistic"](), C, 1, m=20, k=150)
    centred, W = Centred.of(objective), rng.normal(size=(4, 1, 4))
    assert np.abs(centred.objective.design.X.mean(axis=0)).max() < 1e-6
    assert centred.objective.batch(W)[0] == pytest.approx(objective.batch(centred.outward(W))[0], rel=1e-8)
    assert centred.inward(centred.outward(W)) == pytest.approx(W, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("n_starts", [0, 10])
def test_a_start_that_is_given_is_never_made_worse(n_starts):
    for n, d, m, seed in PROBLEMS[::10]:
        X, y = problem_of(n, d, seed)
        objective = Objective(Design(X, True), y, LOSSES["logistic"](), C, 1, m=m, k=n)
        good = searched(objective, n_starts=100, rng=np.random.default_rng(seed)).w
        again = searched(objective, good, n_starts=n_starts, rng=np.random.default_rng(1))
        assert again.value <= objective.value(good) * (1 + 1e-9)
