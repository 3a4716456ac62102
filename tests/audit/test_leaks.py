"""No prediction of a row learns from rows that its plan forbids: later ones, or those of its group."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sklearn.ensemble import ExtraTreesRegressor

from rankrange import AoRRClassifier, AoRRRegressor, find_label_issues
from rankrange.audit import multilabel
from rankrange.audit.plan import Plan
from rankrange.audit.target import group_numbers, time_periods
from rankrange.crossfit.folds import Folds, draw_folds
from rankrange.tables.columns import Column
from rankrange.tables.encode import TableEncoder

N = 160


def _data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3))
    return X, X @ np.array([1.0, -1.0, 0.5]) + 0.3 * rng.normal(size=N)


def _plan(how):
    rng = np.random.default_rng(3)
    if how == "time":
        periods = time_periods(Column("day", "numbers", rng.permutation(N).astype(float)), 4)
        return Plan(Folds.forward(periods), periods, forward=True)
    groups = group_numbers(Column.of("who", pa.chunked_array([[f"g{i}" for i in rng.integers(0, 30, size=N)]])))
    return Plan(draw_folds(N, rng, groups=groups, n_folds=4, n_repeats=1), groups)


def _changed(X, y, rows, kind):
    """Another table in these rows, with as many of each class or label as before."""
    rng = np.random.default_rng(9)
    X, y = X.copy(), y.copy()
    order = rng.permutation(rows)
    X[rows] = 3.0 * rng.normal(size=(len(rows), X.shape[1]))
    y[rows] = y[order] if kind in ("classes", "labels") else 5.0 * rng.normal(size=len(rows))
    return X, y


def _target(z, kind):
    if kind in ("numbers", "trees"):
        return z
    if kind == "classes":
        return (z > 0).astype(np.intp)
    return np.column_stack([z > 0, z > 0.5, z < 0.3])


def _linear_members(X, y, plan):
    issues = find_label_issues(X, y, estimator=AoRRClassifier(C=1.0), cv=plan.folds, trees=False, neighbours=False)
    return next(P for name, _, P in issues.members if name == "ordinary")


MEMBERS = {
    "numbers": lambda X, y, plan: plan.out_of_fold(AoRRRegressor(0.1, C=1.0), X, y),
    "classes": _linear_members,
    "labels": lambda X, y, plan: plan.out_of_fold(multilabel._logistic(1.0), X, y.astype(int), "decision_function"),
    "trees": lambda X, y, plan: plan.out_of_fold(ExtraTreesRegressor(5, random_state=0), X, y),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("how", ["time", "group"])
@pytest.mark.parametrize("kind", list(MEMBERS))
def test_fits_of_an_audit_see_only_rows_that_the_plan_allows(kind, how):
    (X, z), plan = _data(), _plan(how)
    y = _target(z, kind)
    before = MEMBERS[kind](X, y, plan)
    for f, (allowed, test) in enumerate(zip(plan.folds.train, plan.folds.test, strict=True)):
        assert not (allowed & test).any()
        if how == "time" and f:
            assert plan.groups[allowed].max() < f
        if f not in (0, 2):  # the first, which along time is predicted by the second, and one of the others
            continue
        X2, y2 = _changed(X, y, np.flatnonzero(~allowed), kind)
        X2[test] = X[test]  # what is asked is the same
        # Linear members of all folds are fitted together and stop together.
        close = {"rtol": 0.02, "atol": 0.02} if kind == "classes" else {"rtol": 1e-9}
        np.testing.assert_allclose(MEMBERS[kind](X2, y2, plan)[test], before[test], **close)


def _tables():
    """One table per kind of column that is encoded."""
    rng = np.random.default_rng(1)
    words = np.array(["red", "green", "blue", "small", "large", "old", "new", "fast", "slow", "round"])
    return {
        "numbers": {"x": rng.normal(size=N), "z": np.where(rng.random(N) < 0.1, np.nan, rng.normal(size=N))},
        "few values": {"x": rng.choice(list("abc"), N), "z": rng.choice(["yes", "no"], N)},
        "many values": {"x": rng.choice([f"n{i}" for i in range(60)], N)},
        "more values": {"x": np.array([f"n{i}" for i in rng.integers(0, 130, 2 * N)])},
        "prose": {"x": np.array([" ".join(rng.choice(words, 6)) for _ in range(N)])},
        "dates": {"x": np.datetime64("2024-01-01") + rng.integers(0, 900, N)},
    }


@pytest.mark.parametrize("kind", list(_tables()))
def test_no_feature_depends_on_the_label_of_any_row(kind):
    """So no out-of-fold prediction depends on the label of its own row, as with a target encoding of all rows."""
    table = pa.table(_tables()[kind])
    y = np.random.default_rng(2).integers(0, 2, table.num_rows)
    one, other = (TableEncoder().fit_transform(table, labels) for labels in (y, 1 - y))
    np.testing.assert_array_equal(one, other)


def test_neighbours_predict_no_multi_label_target_with_groups_or_time():
    """The label of another row changes what its neighbours predict, unless the plan keeps the rows apart."""
    (X, z), noisy = _data(), np.random.default_rng(3)
    Y = _target(z, "labels")
    P = np.clip(Y * 0.8 + 0.1 + 0.05 * noisy.normal(size=Y.shape), 0.01, 0.99)
    moved = X + 3.0 * noisy.normal(size=X.shape)
    for plan, same in ((_plan("time"), True), (Plan(_plan("group").folds), False)):
        before, after = (multilabel._wrong_cells(rows, Y, P, plan)[0] for rows in (X, moved))
        assert np.allclose(before, after) is same
