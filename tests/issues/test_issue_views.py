"""Views and decisions of label issues."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from rankrange import RankedRangeClassifier, find_label_issues, noise
from rankrange.audit import audit_table
from rankrange.issues.sentences import percent, remark, share_sentence


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


def test_frames_without_pandas_say_what_to_install(monkeypatch):
    import sys

    from rankrange import AoRRRegressor, find_label_issues

    x = np.random.default_rng(0).normal(size=60)
    issues = find_label_issues(y=x > 0, pred_probs=np.column_stack([1 - (x > 0.2), x > 0.2]))
    regression = AoRRRegressor(0.1).fit(x[:, None], x)
    frames = (regression.summary().to_frame, regression.diagnostics().to_frame)
    monkeypatch.setitem(sys.modules, "pandas", None)
    for call in (issues.to_pandas, issues.to_cleanlab, *frames):
        with pytest.raises(ImportError, match=r"needs pandas, .* run: pip install pandas"):
            call()


def test_decisions_change_no_label_of_the_issues_and_take_one_only_to_relabel():
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
    with pytest.raises(ValueError, match="goes with the decision 'relabel'"):
        issues.decide(1, "keep", 0)
    with pytest.raises(ValueError, match=r"got 71, which 0 rows"):
        issues.decide(np.int64(71), "drop")


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


def outcomes(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.where(X @ [3.0, -2.0, 0.0] + rng.logistic(size=n) > 0, "bought", "left")
    return X, y


@pytest.fixture(scope="module")
def observed():
    X, y = outcomes()
    return X, find_label_issues(X, y, labels="observed", random_state=0)


def test_observed_outcomes_are_surprising_and_never_wrong(observed):
    X, issues = observed
    assert issues.table.dtype.names == ("row", "given", "expected", "probability", "loss")
    assert (issues["probability"] < 0.05).all()
    assert (np.diff(issues.ranked["probability"]) >= 0).all()
    assert (issues.p_wrong == 0).all()
    tasks = issues.to_label_studio({"a": X[:, 0]}, limit=5)
    shown = [repr(issues), issues._repr_html_() or "", issues.to_pandas().to_csv()]
    for view in (*shown, json.dumps(tasks.tasks), tasks.config):
        assert not {"wrong", "relabel", "drop", "suspect"} & set(view.lower().replace("_", " ").split())
        assert "wrong" not in view
    assert "labels='annotated'" in repr(issues)


def test_the_number_of_surprising_outcomes_is_that_of_calibrated_predictions(observed):
    _, issues = observed
    assert len(issues) <= issues.expected_surprises + 3 * np.sqrt(issues.expected_surprises) + 3
    assert f"about {issues.expected_surprises:.0f} are expected" in repr(issues)


@pytest.mark.parametrize("decision", ["relabel", "drop"])
def test_observed_outcomes_are_not_changed(observed, decision):
    _, issues = observed
    with pytest.raises(ValueError, match="neither relabelled nor dropped"):
        issues.decide(0, decision)
    with pytest.raises(ValueError, match="labels='observed'"):
        issues.to_cleanlab()


def test_an_unknown_origin_and_classes_without_probabilities_are_errors():
    X, y = outcomes(60)
    with pytest.raises(ValueError, match="labels must be 'annotated'"):
        find_label_issues(X, y, labels="guessed")
    with pytest.raises(ValueError, match="classes names the columns of pred_probs"):
        find_label_issues(X, y, classes=["bought", "left", "none"])


def test_probabilities_may_have_a_column_for_a_class_that_no_row_has():
    rng = np.random.default_rng(0)
    y = rng.choice(["b", "c"], 100)
    P = np.where(y[:, None] == np.array(["c", "a", "b"]), 0.9, 0.05)
    P[7] = [0.05, 0.9, 0.05]
    issues = find_label_issues(y=y, pred_probs=P, classes=["c", "a", "b"])
    assert issues.top(1)["suggested"][0] == "a"
    assert issues.transition.shape == (3, 3)
    assert issues.top(1)["row"][0] == 7
    in_order = find_label_issues(y=y, pred_probs=P[:, [1, 2, 0]], classes=["a", "b", "c"])
    np.testing.assert_array_equal(issues.p_wrong, in_order.p_wrong)
    for classes, message in ((["a", "b"], "include every label"), (["a", "b", "b"], "must differ")):
        with pytest.raises(ValueError, match=message):
            find_label_issues(y=y, pred_probs=P, classes=classes)


def test_an_order_of_columns_that_the_user_names_is_kept():
    y = np.tile(["a", "b", "c"], 20)
    P = np.where(y[:, None] == np.array(["c", "a", "b"]), 0.9, 0.05)
    with pytest.raises(ValueError, match=r"classes=\['c', 'a', 'b'\]; pass these"):
        find_label_issues(y=y, pred_probs=P)
    right = find_label_issues(y=y, pred_probs=P, classes=["c", "a", "b"])
    assert right.contradicted == 0.0
    assert find_label_issues(y=y, pred_probs=P, classes=["a", "b", "c"]).contradicted == 1.0


def test_a_class_that_no_label_has_does_not_hide_errors_of_the_others():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 100)
    P = np.where(y[:, None] == np.arange(3), 0.9, 0.05)
    given = np.where(y == 2, rng.integers(0, 2, 300), y)
    wrong = rng.choice(200, 13, replace=False)
    given[wrong] = 1 - given[wrong]
    issues = find_label_issues(y=given, pred_probs=P, classes=[0, 1, 2])
    assert set(wrong) <= set(issues["row"].tolist())


def test_the_headline_names_rows_of_a_class_that_no_label_has_and_contradictions_that_are_not_listed():
    y = np.repeat([0, 1, 2], 100)
    P = np.where(y[:, None] == np.arange(3), 0.94, 0.03)
    assert "no label has" not in repr(find_label_issues(y=y, pred_probs=P))
    given = np.where(y == 2, 1, y)
    issues = find_label_issues(y=given, pred_probs=P, classes=[0, 1, 2])
    assert "100 rows are predicted to be of a class that no label has (2)" in repr(issues)
    assert len(issues) >= 50 or "to 100 labels and more than 90% to another class" in repr(issues)


def test_both_numbers_are_said_and_never_zero_per_cent():
    X, y = outcomes(800, seed=2)
    issues = find_label_issues(X, y, random_state=0)
    low, high = issues.noise_interval
    assert low <= issues.noise_estimate <= high
    assert high >= issues.contradicted > 0.1  # overlap could hide as many wrong labels
    assert f"models disagree with {percent(issues.contradicted)} of the labels" in repr(issues)
    for text in (share_sentence(0.0, (0.0, 0.12), 0.12), share_sentence(0.0, (0.0, 0.0)), repr(issues)):
        assert "0.0%" not in text
    assert "disagree" not in share_sentence(0.03, (0.014, 0.051), 0.029)  # fewer than those with confidence


def test_a_reason_explains_a_p_wrong_above_what_the_models_give():
    assert "less certain" in remark("a", "b", 0.11, 0.89, 0.68)
    assert "'a' is often wrong" in remark("a", "b", 0.6, 0.4, 0.68)
    assert remark("a", "b", 0.01, 0.99, 0.9) == remark("a", "b", 0.3, 0.7, 0.4) == ""


def test_the_reasons_of_an_audit_explain_it_too():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    given = noise.symmetric(y, 0.2, random_state=0)
    P = np.where(y[:, None] == np.arange(2), 0.85, 0.15) + 0.02 * rng.normal(size=400)[:, None] * [1, -1]
    table = {"x": rng.normal(size=400).tolist(), "y": [f"class {c}" for c in given]}
    audit = audit_table(table, "y", pred_probs=P)
    np.testing.assert_array_equal(audit.p_wrong, find_label_issues(y=table["y"], pred_probs=P).p_wrong)
    suspects = [s for s in audit.suspects(400) if s.p_wrong >= 0.5]
    assert len(suspects) > 50
    assert all("less certain" in suspect.why for suspect in suspects)


def test_linear_models_alone_are_less_certain_than_with_trees():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1500, 3))
    pocket = (X[:, 1] > 0.7) & (X[:, 2] > 0.7)  # 2% of the rows, which only trees predict
    y = np.where((X[:, 0] > 0) ^ pocket, 1, 0)
    linear = find_label_issues(X, y, trees=False, neighbours=False, random_state=0)
    assert linear.p_wrong[pocket].max() < 0.5  # 0.9 before
    assert linear.noise_interval[0] == 0.0
    assert linear.noise_interval[1] >= linear.contradicted
