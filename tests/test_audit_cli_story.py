"""An audit tells one story: reason, loss, suggestion and probability agree, and the headline hides no loss."""

import dataclasses
import re

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
for package in ("jinja2", "rich", "skops"):
    pytest.importorskip(package)

from rankrange.study import audit_table  # noqa: E402
from rankrange.study.common import Interval, Measure  # noqa: E402

SHARE = r"'{}' (over |under )?(\d+)%"


def outlying(seed, n=150):
    """Rows whose label is flipped are far out in one column, which misleads the ordinary model."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = X @ np.linspace(1, 0.3, 3) + 0.5 * rng.normal(size=n) > 0
    flip = rng.random(n) < 0.08
    X[flip, 0] *= 10
    return {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "diagnosis": np.where(y ^ flip, "sick", "well")}


def shares(why, given, suggested):
    """Of each opinion in the reason: (share of the given label, share of the suggested one)."""
    found = [[int(p) / 100 for _, p in re.findall(SHARE.format(name), why)] for name in (given, suggested)]
    return list(zip(*found, strict=True))


@pytest.fixture(scope="module")
def audits():
    return [audit_table(outlying(seed), "diagnosis", jobs=1) for seed in (1, 2, 3)]


def test_loss_reason_suggestion_and_probability_of_a_suspect_agree(audits):
    checked = 0
    for suspect in (s for audit in audits for s in audit.suspects()):
        told = shares(suspect.why, suspect.given, suspect.suggested)
        if "disagree" in suspect.why:
            assert {own > other for own, other in told} == {True, False}
            checked += 1
            continue
        [(own, other)] = told
        assert own == pytest.approx(np.exp(-suspect.loss), abs=0.011)
        if suspect.p_wrong >= 0.5:
            assert own < other or "is often wrong in this table" in suspect.why
            checked += 1
    assert checked > 5


def test_where_those_that_judge_disagree_each_is_named():
    from rankrange.study.classes import _said

    opinions = [("ordinary", 0.5, np.array([[0.03, 0.97]])), ("robust", 0.5, np.array([[0.995, 0.005]]))]
    why = _said(opinions, 0, (0, 1), 0.4, ["sick", "well"])
    assert "disagree: the ordinary one gives 'sick' 3%, 'well' 97%" in why
    assert "the one that ignores the worst rows 'sick' over 99%, 'well' under 1%" in why
    assert "'sick' is often wrong" in _said(opinions, 0, (0, 1), 0.9, ["sick", "well"])
    agreed = [opinions[0], ("neighbours", 0.5, np.array([[0.13, 0.87]]))]
    assert _said(agreed, 0, (0, 1), 0.9, ["sick", "well"]).endswith("give 'sick' 8%, 'well' 92%")


def with_measures(audit, *measures, **more):
    return dataclasses.replace(audit, judgement=dataclasses.replace(audit.judgement, measures=list(measures), **more))


def test_the_headline_names_a_measure_that_gets_worse(audits):
    at = lambda v: Interval(v, v - 0.01, v + 0.01)  # noqa: E731
    better = Measure("accuracy", True, True, at(0.6), at(0.7), Interval(0.1, 0.05, 0.15))
    worse = Measure("log loss", False, False, at(0.28), at(0.72), Interval(-0.44, -0.6, -0.3))
    even = dataclasses.replace(worse, gain=Interval(-0.1, -0.3, 0.1))
    headline = with_measures(audits[0], better, worse, m=9).sentences()[1]
    assert "better by one measure and worse by another" in headline
    assert "log loss gets worse, 0.72 instead of 0.28" in headline
    assert "worse" not in with_measures(audits[0], better, even, m=9).sentences()[1]
    level = dataclasses.replace(better, gain=Interval(0.0, -0.1, 0.1))
    assert "about as well" not in with_measures(audits[0], level, worse, m=9).sentences()[1]


def test_where_nothing_is_cut_overall_but_in_folds_the_page_says_so(audits):
    audit = with_measures(audits[0], *audits[0].judgement.measures, m=0, fold_m=[0, 12, 0, 0, 5])
    assert "0, 12, 0, 0, 5" in audit.scores_note()
    assert audit.scores_note() in audit.report()
    assert with_measures(audit, *audit.judgement.measures, m=3).scores_note() == ""
    assert with_measures(audit, *audit.judgement.measures, fold_m=[0] * 5).scores_note() == ""
    assert len(audits[0].judgement.fold_m) == 5
