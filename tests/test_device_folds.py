"""Folds scored on all rows of a device: the scores, errors and costs of folds scored row by row."""

import numpy as np
import pytest

from rankrange import AoRRClassifier
from rankrange.core.losses import Logistic, Softmax, Squared
from rankrange.core.objective import Design, Objective
from rankrange.crossfit.choose import choose_C
from rankrange.crossfit.folds import CrossFit, split

torch = pytest.importorskip("torch")
from rankrange.device.device_folds import DeviceCrossFit  # noqa: E402
from rankrange.device.device_rows import rows_on_device  # noqa: E402
from rankrange.device.passes import Data, Sizes  # noqa: E402
from rankrange.shards.shard_kernels import Model  # noqa: E402


def problem(kind, n=900, d=4):
    """The same rows as an objective on the host and as tensors."""
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(n, d)), rng.normal(size=(d, 3))
    weight = rng.integers(0, 3, n).astype(np.float64) if kind == "weighted" else None
    if kind == "numbers":
        y, loss, outputs, name, classes = X @ Z[:, 0] + rng.standard_t(2, n), Squared(), 1, "squared", None
    elif kind == "classes":
        y, loss, outputs, name, classes = (X @ Z).argmax(1), Softmax(), 3, "softmax", np.arange(3)
    else:
        y = np.where(X @ Z[:, 0] + rng.logistic(size=n) > 0.5, 1.0, -1.0)
        loss, outputs, name, classes = Logistic(), 1, "logistic", np.array([0, 1])
    objective = Objective(Design(X, True), y, loss, 1.0, outputs, sample_weight=weight)
    model = Model(name, outputs, True, np.dtype(float), classes)
    there = None if weight is None else torch.as_tensor(weight)
    return objective, Data(torch.as_tensor(X), torch.as_tensor(y), there, model, Sizes(chunk_numbers=1000))


@pytest.mark.parametrize("kind", ["logistic", "weighted", "classes", "numbers"])
def test_scores_errors_and_cost_are_those_by_row(kind):
    objective, data = problem(kind)
    rng = np.random.default_rng(1)
    tests = split(objective, objective.strata, rng, (1, -3, 1))
    sampled = torch.arange(data.n)
    host, there = CrossFit(objective, tests), DeviceCrossFit(data, sampled, 1.0, objective, tests)
    assert there.C == host.C
    fits = host.trimmed(np.array([0.1, 0.3]))
    right, found = host.scored(fits), there.scored(fits)
    # For numbers the unit of residuals is a quantile of them, by another rule for its place.
    tolerance = {"rtol": 1e-2 if kind == "numbers" else 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(found.mass, right.mass)
    np.testing.assert_allclose(found.mean, right.mean, **tolerance)
    for candidate in range(3):
        np.testing.assert_allclose(found.errors(candidate), right.errors(candidate), **tolerance)
    ordinary = host.ordinary
    assert there._cost(ordinary) == pytest.approx(host._cost(ordinary), rel=1e-9)
    in_units = DeviceCrossFit(data, sampled, 4.0, objective, tests).scored(fits)  # a row has the mass 4
    assert in_units.mass == pytest.approx(found.mass / 4.0)
    np.testing.assert_allclose(in_units.mean, found.mean)
    np.testing.assert_allclose(in_units.errors(0), 2.0 * found.errors(0), atol=1e-12)


def test_rows_outside_of_the_sample_score_too():
    """A candidate that is right on the sample alone is not the best on all rows."""
    objective, data = problem("logistic")
    sampled = torch.arange(0, 900, 3)
    part = objective.rows(sampled.numpy(), 0, 1)
    tests = split(part, part.strata, np.random.default_rng(0), (1, -3, 1))
    wrong = torch.ones(900)
    wrong[sampled] = -1.0
    found = DeviceCrossFit(data, sampled, 1.0, part, tests).scored(CrossFit(part, tests).trimmed(np.array([0.1])))
    turned = Data(data.X, data.y * -wrong, None, data.model)
    other = DeviceCrossFit(turned, sampled, 1.0, part, tests).scored(CrossFit(part, tests).trimmed(np.array([0.1])))
    assert found.mass == 900 - (~tests[0].astype(bool)).sum()
    assert other.mean[0] < 0.5 < found.mean[0]


@pytest.mark.parametrize("m", [0, 30])
def test_c_chosen_on_a_sample_is_about_all_rows(m):
    """The grid has steps of ten: for ten times the rows C is a tenth, because the same penalty is best."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20))
    y = np.where(X[:, 0] + rng.logistic(size=300) > 0, 1.0, -1.0)
    objective = Objective(Design(X, True), y, Logistic(), 1.0, 1, m=m, k=300)
    alone, larger = (choose_C(objective, np.random.default_rng(0), total=total) for total in (None, 3000.0))
    assert 0.001 < alone < 100
    assert larger == pytest.approx(alone / 10)


def test_a_device_chooses_the_penalty_of_the_cpu():
    """Before, a sample of 1,500 rows was penalised as if it were all 30,000, and C came out twenty times too large."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 30)) * 1e-2
    y = 30 * X[:, 0] + rng.logistic(size=len(X)) > 0
    here, there = (AoRRClassifier(m=0, k=1.0, C="auto", random_state=0) for _ in range(2))
    here.fit(X, y), there.fit(rows_on_device(there, X, y, None, Sizes(choice_rows=1500)))
    assert pytest.approx(here.C_, rel=1e-9) == there.C_


def test_a_device_chooses_on_the_rows_of_the_cpu_if_they_fit_the_sample():
    """The training set of a hold-out has 4,000 rows at any n, so other rows would choose another of nearly equal C."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 10))
    y = X @ (rng.normal(size=10) * np.sqrt(0.4)) + rng.logistic(size=len(X)) > 0
    y ^= rng.random(len(X)) < 0.1
    here, there = (AoRRClassifier(m=0.1, k=1.0, C="auto", random_state=0, device=d).fit(X, y) for d in (None, "cpu"))
    assert pytest.approx(here.C_, rel=1e-9) == there.C_
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-6)
