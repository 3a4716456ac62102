"""Edge cases that docstrings state: empty batches, diagonals, losses without a second derivative, undecided rows."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning

from rankrange import AoRRClassifier, AoRRRegressor, scan
from rankrange.core.objective import Design, Objective
from rankrange.inference.mm import s_estimate
from rankrange.shards import ArrayRows
from rankrange.solvers import solve
from rankrange.solvers.elemental import TrimmedSquares


class Quartic:
    """(z - y)^4, without a second derivative."""

    targets = "numbers"

    def value(self, y, z):
        return (z - y) ** 4

    def value_and_derivative(self, y, z):
        return (z - y) ** 4, 4 * (z - y) ** 3


def test_a_subgradient_fit_of_a_loss_without_a_second_derivative_ends_without_a_certificate():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    problem = Objective(Design(X, True), X[:, 0], Quartic(), 10.0, 1, m=2, k=40)
    result = solve("subgradient", problem)
    assert result.certificate == np.inf


def test_class_weights_have_no_summary():
    """Standard errors ignore weights, so a weighted fit has none."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = X[:, 0] + rng.logistic(size=100) > 1
    assert AoRRClassifier(0, 1.0).fit(X, y).summary()
    with pytest.raises(AttributeError, match="no weights"):
        AoRRClassifier(0, 1.0, class_weight="balanced").fit(X, y).summary()


def test_several_npy_files_are_refused(tmp_path):
    """Only the first of them would be read."""
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"one \.npy"):
        scan(tmp_path, target=1)


@pytest.mark.parametrize(("choice", "flagged"), [("unsure", True), ("keep", False), ("drop", True)])
def test_an_unsure_decision_leaves_a_flag_of_the_schema(choice, flagged):
    from rankrange.audit import audit_table
    from rankrange.audit.schema import _flagged

    rng = np.random.default_rng(0)
    x = np.append(rng.normal(size=60), 1e6)
    table = {"x": x.tolist(), "kind": np.where(x > 0, "a", "b").tolist()}
    audit = audit_table(table, "kind")
    audit.decide(60, choice)
    assert _flagged(audit, "x")[60] == flagged


@pytest.mark.parametrize(
    "settings",
    [
        {"l1_ratio": 1.0},
        {"aggregate": "worst-group"},
        {"step": "reweight"},
        {"step": "mm"},
        {"C": np.inf},
    ],
    ids=lambda settings: next(iter(settings)),
)
@pytest.mark.parametrize("where", ["shards", "dask"])
def test_settings_that_need_rows_in_memory_are_refused_elsewhere(settings, where):
    X = np.random.default_rng(0).normal(size=(60, 2))
    if where == "dask":
        arrays = pytest.importorskip("dask.array")
        rows = arrays.from_array(X), arrays.from_array(X[:, 0])
    else:
        rows = (ArrayRows([X], [X[:, 0]]),)
    with pytest.raises(ValueError, match=next(iter(settings))):
        AoRRRegressor(0.1, 1.0, **settings).fit(*rows)


def test_trimmed_squares_that_end_at_max_iter_say_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_500, 8))
    y = X.sum(axis=1) + rng.normal(size=10_500)
    y[:3_500] += 50.0
    with pytest.warns(ConvergenceWarning, match="after 1 steps"):
        model = AoRRRegressor(m=4_500, k=1.0, max_iter=1, n_starts=1, random_state=0).fit(X, y)
    assert not model.converged_
    assert model.certificate_ > model.tol


def test_a_fit_that_ends_at_max_iter_does_not_say_that_no_step_is_left():
    X, y = make_classification(200, 5, random_state=0)
    model = AoRRClassifier(m=0, k=1.0, aggregate="group-cvar", max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, y, groups=np.arange(200) % 4)
    assert "no step lowers" not in str(caught[0].message)


def test_an_s_estimate_leaves_its_start_alone():
    rng = np.random.default_rng(0)
    Z = np.column_stack([rng.normal(size=(6_000, 2)), np.ones(6_000)])
    problem, start = TrimmedSquares(Z, Z.sum(axis=1) + rng.normal(size=6_000), 3_003, np.zeros((3, 3))), np.zeros(3)
    s_estimate(problem, start, rng)
    assert (start == 0.0).all()
