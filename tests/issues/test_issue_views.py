"""Views and decisions of label issues."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from rankrange import (
    RankedRangeClassifier,
    find_label_issues,
)


def test_a_polars_frame_with_missing_booleans_is_fitted_and_searched_for_issues():
    pl = pytest.importorskip("polars")
    from sklearn.tree import DecisionTreeClassifier

    x = np.random.default_rng(0).normal(size=200)
    frame = pl.DataFrame({"x": x, "b": [None if i % 9 == 0 else bool(i % 2) for i in range(200)]})
    y = np.where(x > 0, "a", "b")
    model = RankedRangeClassifier(DecisionTreeClassifier(max_depth=3), random_state=0).fit(frame, y)
    assert model.score(frame, y) > 0.9
    assert len(find_label_issues(frame, y, random_state=0).score) == 200


def test_the_top_rows_print_their_columns_by_name():
    issues = find_label_issues(y=[0, 0, 1, 1], pred_probs=[[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])
    top = issues.top(3)
    head, *lines = repr(top).splitlines()
    assert head.split() == list(top.dtype.names)
    assert len(lines) == 3
    assert lines[0].split()[0] == str(top["row"][0])
    assert top["row"].tolist() == issues.ranked["row"][:3].tolist()
    assert isinstance(repr(top["row"]), str)


def test_a_decision_takes_a_label_only_to_relabel_and_shows_plain_values():
    issues = find_label_issues(y=[0, 0, 1, 1], pred_probs=[[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])
    with pytest.raises(ValueError, match="goes with the decision 'relabel'"):
        issues.decide(1, "keep", 0)
    with pytest.raises(ValueError, match=r"got 71, which 0 rows"):
        issues.decide(np.int64(71), "drop")


def test_label_issues_without_pandas_say_what_to_install(monkeypatch):
    import sys

    from rankrange import find_label_issues

    x = np.random.default_rng(0).normal(size=60)
    issues = find_label_issues(y=x > 0, pred_probs=np.column_stack([1 - (x > 0.2), x > 0.2]))
    monkeypatch.setitem(sys.modules, "pandas", None)
    for call in (issues.to_pandas, issues.to_cleanlab):
        with pytest.raises(ImportError, match=r"needs pandas, .* run: pip install 'rankrange\[data\]'"):
            call()


def test_decisions_change_no_label_of_the_issues():
    issues = find_label_issues(y=[0, 0, 1, 1], pred_probs=[[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])
    given = issues.given.copy()
    issues.decide(1, "relabel", 1)
    issues.decide(2, "drop")
    first, again = issues.decided(), issues.decided()
    np.testing.assert_array_equal(issues.given, given)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    issues.decide(1, "keep")
    np.testing.assert_array_equal(issues.decided()[0], given)


def test_issues_name_rows_by_the_index_and_take_decisions():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x, wrong = rng.normal(size=200), rng.random(200) < 0.1
    y = np.where((x > 0) ^ wrong, "up", "down")
    frame = pandas.DataFrame({"x": x, "z": rng.normal(size=200)}, index=np.arange(1000, 1200))
    options = {"estimator": LogisticRegression(), "neighbours": False, "random_state": 0}
    issues, plain = find_label_issues(frame, y, **options), find_label_issues(frame.to_numpy(), y, **options)
    assert len(issues) > 3
    assert (issues["row"] == plain["row"] + 1000).all()
    first, second = issues["row"][:2].tolist()
    issues.decide(first, "relabel")
    issues.decide(second, "drop")
    labels, kept = issues.decided()
    assert np.flatnonzero(labels != y).tolist() == [first - 1000]
    assert np.flatnonzero(~kept).tolist() == [second - 1000]
    with pytest.raises(ValueError, match="the name of one row, got 3, which 0 rows have"):
        issues.decide(3, "keep")
    with pytest.raises(ValueError, match="one of those in y, got 'sideways'"):
        issues.decide(first, "relabel", "sideways")
    with pytest.raises(TypeError, match="about one row, got 3 of them"):
        issues.decide(issues["row"][:3], "keep")
    twice = replace(issues, index=np.where(issues.index == second, first, issues.index))
    with pytest.raises(ValueError, match="which 2 rows have; call reset_index"):
        twice.decide(first, "keep")


def test_relabelling_takes_the_label_that_the_table_suggests():
    """The best class of a row may be its given one; a relabel without a label of one's own still changes it."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    P = rng.dirichlet(np.ones(3), 60)
    issues = find_label_issues(y=y, pred_probs=P)
    ranked = issues.top(60)
    assert (issues.suggested == y).any()
    for row in range(60):
        issues.decide(row, "relabel")
    labels, kept = issues.decided()
    np.testing.assert_array_equal(labels[ranked["row"]], ranked["suggested"])
    assert (labels != y).all()
    assert kept.all()


def test_issues_read_named_probabilities_by_name_and_say_what_takes_texts():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 200)
    y = np.array(["category_a", "category_b", "category_c"])[np.where(rng.random(200) < 0.1, (true + 1) % 3, true)]
    P = np.full((200, 3), 0.02)
    P[np.arange(200), true] = 0.96
    plain = find_label_issues(y=y, pred_probs=P)
    frame = pandas.DataFrame(P, columns=["category_a", "category_b", "category_c"])
    turned = find_label_issues(y=y, pred_probs=frame[["category_c", "category_a", "category_b"]])
    assert len(plain) > 5
    np.testing.assert_array_equal(plain.p_wrong, turned.p_wrong)
    assert all(name in repr(plain) for name in ("category_a", "category_b"))
    with pytest.raises(ValueError, match=r"X must be numeric if no estimator is given.*audit_table"):
        find_label_issues(pandas.DataFrame({"text": ["a b"] * 200}), y)
