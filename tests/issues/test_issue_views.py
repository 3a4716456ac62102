"""Views and decisions of label issues."""

from __future__ import annotations

import numpy as np
import pytest

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
