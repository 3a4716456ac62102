"""Faults that users met: each a few lines, each with what must hold instead."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from rankrange import AoRRClassifier, RankedRangeClassifier, find_label_issues, scan
from rankrange.crossfit.numeric import numeric_view
from rankrange.crossfit.predictions import sides

# ---- frames ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bool", "int", "float", "decimal"])
def test_missing_cells_of_polars_are_filled_and_marked(kind):
    pl = pytest.importorskip("polars")
    from decimal import Decimal

    make = {"bool": bool, "int": int, "float": float, "decimal": lambda v: Decimal(v)}[kind]
    cells = [None if i % 9 == 0 else make(i % 2) for i in range(90)]
    found = numeric_view(pl.DataFrame({"b": pl.Series(cells)}))
    known = np.array([np.nan if cell is None else float(cell) for cell in cells])
    assert found.shape == (90, 2)
    np.testing.assert_array_equal(found[:, 1], np.isnan(known))
    np.testing.assert_array_equal(found[~np.isnan(known), 0], known[~np.isnan(known)])


def test_a_polars_frame_with_missing_booleans_is_fitted_and_searched_for_issues():
    pl = pytest.importorskip("polars")
    from sklearn.tree import DecisionTreeClassifier

    x = np.random.default_rng(0).normal(size=200)
    frame = pl.DataFrame({"x": x, "b": [None if i % 9 == 0 else bool(i % 2) for i in range(200)]})
    y = np.where(x > 0, "a", "b")
    model = RankedRangeClassifier(DecisionTreeClassifier(max_depth=3), random_state=0).fit(frame, y)
    assert model.score(frame, y) > 0.9
    assert len(find_label_issues(frame, y, random_state=0).score) == 200


def test_sides_are_the_values_of_columns_of_two_and_know_what_is_missing_there():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=300), rng.normal(size=300), rng.random(300) < 0.3, rng.random(300) < 0.5])
    missing = X[:, 2] == 1
    X[missing, 0] = 0.25  # filled with one value
    found = {(side.column, side.value): side.lacking for side in sides(X)}
    assert found == {(2, 0.0): False, (2, 1.0): True, (3, 0.0): False, (3, 1.0): False}
    assert not any(side.lacking for side in sides(X[:, 2:]))  # nothing but columns of two values


# ---- what is shown ---------------------------------------------------------------------------------------------------


def test_the_top_rows_print_their_columns_by_name():
    issues = find_label_issues(y=[0, 0, 1, 1], pred_probs=[[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])
    top = issues.top(3)
    head, *lines = repr(top).splitlines()
    assert head.split() == list(top.dtype.names)
    assert len(lines) == 3
    assert lines[0].split()[0] == str(top["row"][0])
    assert top["row"].tolist() == issues.ranked["row"][:3].tolist()
    assert isinstance(repr(top["row"]), str)


def test_a_column_of_one_value_and_a_few_others_draws_no_warning():
    pa = pytest.importorskip("pyarrow")
    from rankrange.audit.pictures import column_picture
    from rankrange.audit.target import find_target
    from rankrange.tables.columns import Column

    values = np.zeros(3000)
    values[[5, 9]] = 1e6, -3.0
    target = find_target(pa.table({"y": ["a", "b"] * 1500}), ["y"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = column_picture(Column("x", "numbers", values), target, ["a", "b"])
        spread = column_picture(Column("x", "numbers", np.arange(3000.0)), target, ["a", "b"])
    assert np.sum(picture.counts) == 3000
    assert (np.sum(spread.counts, axis=0) > 100).all()


# ---- audits ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def audit():
    for package in ("pyarrow", "jinja2", "rich"):
        pytest.importorskip(package)
    from rankrange.audit import audit_table

    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    kind = np.where(x + 0.3 * rng.logistic(size=300) > 0, "a", "b")
    return audit_table({"x": x.tolist(), "kind": kind.tolist()}, "kind", models="linear", jobs=1)


def _without_suspects(audit, low, high):
    from rankrange.audit.task_result import Interval

    j = audit.result
    empty = {"order": j.order[:0], "actions": j.actions[:0], "suggested": [], "expected": [], "against": j.against[:0]}
    result = replace(j, wrong=np.zeros(300), noise=Interval(0.5 * (low + high), low, high), **empty)
    return replace(audit, result=result, row_problems=[])


def test_an_uncertain_share_is_never_reported_together_with_nothing_to_do(audit):
    unclear = _without_suspects(audit, 0.0, 0.269)
    said, page = " ".join(unclear.sentences()), unclear.report()
    worst = int(np.argmax(audit.result.losses))
    assert unclear.share_unclear
    assert "nothing to look at" not in said
    assert f"row {worst}" in said
    assert "Nothing to do" not in page
    assert "nothing to look at" not in page
    assert "begin with those that fit worst" in page
    clear = _without_suspects(audit, 0.0, 0.004)
    assert "There is nothing to look at first." in clear.sentences()
    assert "There is nothing to look at first." in clear.report()


def test_a_csv_scan_refuses_an_empty_label_and_names_a_mistyped_target(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.csv"
    path.write_text("a,b,kind\n" + "".join(f"{i},{-i},{'pq'[i % 2] if i != 7 else ''}\n" for i in range(40)))
    with pytest.raises(ValueError, match="the target must not be missing"):
        AoRRClassifier(m=0, k=1.0).fit(scan(path, target="kind"))
    with pytest.raises(ValueError, match="target must be a column of the table, got 'Kind'"):
        scan(path, target="Kind")


def test_a_decision_takes_a_label_only_to_relabel_and_shows_plain_values():
    issues = find_label_issues(y=[0, 0, 1, 1], pred_probs=[[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])
    with pytest.raises(ValueError, match="goes with the decision 'relabel'"):
        issues.decide(1, "keep", 0)
    with pytest.raises(ValueError, match=r"got 71, which 0 rows"):
        issues.decide(np.int64(71), "drop")


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_a_squared_hinge_that_is_zero_in_all_kept_rows_gives_no_warning(seed):
    """Without curvature the scale of the intercept was so small that its inverse overflowed."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 4))
    y = X @ [1, 2, 0, -1] + 0.3 * rng.normal(size=200) > 0
    model = AoRRClassifier(loss="squared_hinge", m=0.1, C=1e6, random_state=0).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.score(X[~model.dropped_], y[~model.dropped_]) == 1.0


def test_label_issues_without_pandas_say_what_to_install(monkeypatch):
    import sys

    from rankrange import find_label_issues

    x = np.random.default_rng(0).normal(size=60)
    issues = find_label_issues(y=x > 0, pred_probs=np.column_stack([1 - (x > 0.2), x > 0.2]))
    monkeypatch.setitem(sys.modules, "pandas", None)
    for call in (issues.to_pandas, issues.to_cleanlab):
        with pytest.raises(ImportError, match=r"needs pandas, .* run: pip install 'rankrange\[data\]'"):
            call()
