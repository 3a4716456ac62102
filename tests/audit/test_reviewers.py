"""Several reviewers, and what reviewed rows say about p_wrong."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from rankrange import cli
from rankrange.audit import Decision, Decisions, audit_file, merge_decisions, read_decisions, read_reviews, recalibrate
from rankrange.audit.reviewers import reviews_in_words
from rankrange.errors import UserError

CHOICES = ["keep", "drop", "relabel", "unsure"]


def review(choices):
    """Decisions about the rows in turn; "relabel c" is to relabel to c, and "relabel" to a."""
    made = []
    for i, choice in enumerate(choices):
        kind, _, label = (choice or "").partition(" ")
        made += [Decision(str(i), "b", kind, label or "a" * (kind == "relabel"), 0.5, "r1")] if choice else []
    return Decisions(["kind"], "classes", "t", made)


KINDS = st.sampled_from([*CHOICES[:3], "relabel c"])


@given(st.lists(st.tuples(KINDS, KINDS), min_size=1, max_size=30))
def test_kappa_is_that_of_scikit_learn(pairs):
    ours = merge_decisions({"a": review([a for a, _ in pairs]), "b": review([b for _, b in pairs])})
    kappa, n = ours.kappa["a", "b"]
    assert n == len(pairs)
    if len({choice for pair in pairs for choice in pair}) > 1:
        assert kappa == pytest.approx(cohen_kappa_score(*zip(*pairs, strict=True)))
    else:
        assert np.isnan(kappa)


@given(st.lists(st.lists(st.sampled_from([*CHOICES, None]), min_size=3, max_size=3), min_size=1, max_size=8))
def test_a_row_is_decided_by_more_votes_than_any_other_choice_has(rows):
    reviews = {str(j): review([row[j] for row in rows]) for j in range(3)}
    merged = merge_decisions(reviews)
    by_row = {made.row: made.choice for made in merged.decisions.made}
    differing = {found.row: found.settled for found in merged.disagreements}
    for i, row in enumerate(rows):
        votes = [vote for vote in row if vote not in (None, "unsure")]
        counts = sorted((votes.count(choice) for choice in CHOICES), reverse=True)
        clear = counts[0] > counts[1]
        if any(row):
            assert by_row[str(i)] == (max(CHOICES, key=votes.count) if clear else "unsure")
        assert (str(i) in differing) == (len(set(votes)) > 1)
        assert differing.get(str(i), clear) == clear


def test_the_command_merges_files_and_lists_conflicts(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x = rng.normal(size=150)
    label = np.where((x > 0) ^ (rng.random(150) < 0.1), "a", "b")
    table = tmp_path / "table.csv"
    table.write_text("x,kind\n" + "".join(f"{v:.3f},{t}\n" for v, t in zip(x, label, strict=True)))
    audit = audit_file(table, "kind", models="linear")
    first, second = (suspect.row for suspect in audit.suspects(2))
    for name, choice in (("anna", "relabel"), ("ben", "keep")):
        audit.decide(first, "relabel")
        audit.decide(second, choice)
        audit.save_decisions(tmp_path / f"{name}.csv")
    out, conflicts = tmp_path / "fixed.csv", tmp_path / "conflicts.csv"
    files = [str(tmp_path / f"{name}.csv") for name in ("anna", "ben")]
    words = ["apply", str(table), "--decisions", *files, "--out", str(out), "--conflicts", str(conflicts)]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "Cohen's kappa" in said
    p = audit.suspects(1)[0].p_wrong
    assert f"Wrong: 1 of 1 decided row; the audit had expected {p:.1f}." in said
    assert "1 row relabelled" in said
    (again,) = read_decisions(conflicts).made
    assert (again.row, again.choice) == (str(second), "unsure")
    assert "relabel to" in conflicts.read_text()
    assert cli.main(["apply", str(table), "--out", str(out)]) == 2
    # The list of conflicts, filled in, is one more vote.
    filled = tmp_path / "filled.csv"
    filled.write_text(re.sub(",unsure,,", f",relabel,{audit.suspects(2)[1].suggested},", conflicts.read_text()))
    assert cli.main(["apply", str(table), "--decisions", *files, str(filled), "--out", str(out)]) == 0
    assert "2 rows relabelled, 0 dropped" in capsys.readouterr().out
    assert len(out.read_text().splitlines()) == 151


def test_reviewers_of_another_table_task_or_row_are_refused():
    one = review(["keep", "drop"])
    changed = replace(one, made=[one.made[0], one.made[1]._replace(contents="r2")])
    for reviews, message in (
        ({}, "at least one"),
        ({"anna": one, "ben": replace(one, table="u")}, "same table and target, got another one from ben"),
        ({"anna": one, "ben": replace(one, task="numbers")}, "another one from ben"),
        ({"anna": one, "ben": changed}, "must have seen the same row 1, got different cells"),
    ):
        with pytest.raises(UserError, match=message):
            merge_decisions(reviews)


def test_a_list_of_conflicts_that_nobody_completed_decides_nothing(tmp_path):
    reviews = {"anna": review(["keep", "drop"]), "ben": review(["keep", "keep"]), "carl": review(["drop", "relabel"])}
    merged = merge_decisions(reviews)
    assert [one.settled for one in merged.disagreements] == [True, False]
    (tmp_path / "conflicts.csv").write_bytes(merged.conflicts_csv())
    again = merge_decisions({**reviews, "more": read_decisions(tmp_path / "conflicts.csv")})
    assert again.decisions == merged.decisions


def test_recalibrated_probabilities_are_those_that_reviewers_found():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.3, 1.0, 20_000)
    found = recalibrate(p, rng.random(len(p)) < p**2)
    new = np.linspace(0.35, 0.95, 13)
    np.testing.assert_allclose(found.predict(new), new**2, atol=0.06)


def test_what_the_majority_found_is_compared_with_what_the_audit_expected():
    choices = ["relabel"] * 70 + ["keep"] * 2 + ["unsure"] * 5
    made = [Decision(str(i), "b", c, "a" if c == "relabel" else "", 0.9, "r1") for i, c in enumerate(choices)]
    decisions = Decisions(["kind"], "classes", "t", made)
    assert reviews_in_words(decisions) == ["Wrong: 70 of 72 decided rows; the audit had expected 64.8."]
    assert reviews_in_words(Decisions(["kind"], "classes", "t", made[-5:])) == []


def test_decisions_are_taken_as_they_are_and_nonsense_is_refused():
    decisions = review(["keep", "drop", "relabel", "unsure"] * 10)
    found = recalibrate(decisions)
    assert found.predict([0.5])[0] == pytest.approx(2 / 3)
    for p_wrong, wrong in (([2.0], [True]), ([np.nan], [True]), ([], None), ([], []), ([0.9] * 60, ["keep"] * 60)):
        with pytest.raises(UserError, match="True or False for each row"):
            recalibrate(p_wrong, wrong)


def test_a_file_of_decisions_counts_once(tmp_path):
    with pytest.raises(UserError, match="counts once"):
        read_reviews([tmp_path / "anna.csv"] * 2)
