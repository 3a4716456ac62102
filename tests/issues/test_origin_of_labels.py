"""`labels=` and `classes=` of find_label_issues, and what is said about the share of wrong labels."""

import json

import numpy as np
import pytest

from rankrange import find_label_issues, noise
from rankrange.audit import audit_table
from rankrange.issues.sentences import percent, remark, share_sentence


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
