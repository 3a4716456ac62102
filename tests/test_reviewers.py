"""Several reviewers, and what reviewed rows say about p_wrong."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom
from sklearn.metrics import cohen_kappa_score

pytest.importorskip("pyarrow")
pytest.importorskip("jinja2")

from rankrange import cli
from rankrange.audit import Decision, Decisions, audit_file, merge_decisions, read_decisions, recalibrate
from rankrange.audit.recalibration import reviews_in_words
from rankrange.errors import UserError

CHOICES = ["keep", "drop", "relabel", "unsure"]


def review(choices, **about):
    made = [Decision(str(i), "b", c, "a" if c == "relabel" else "", 0.5, "r1") for i, c in enumerate(choices) if c]
    return Decisions(["kind"], "classes", about.get("table", "t"), made)


@given(st.lists(st.tuples(st.sampled_from(CHOICES[:3]), st.sampled_from(CHOICES[:3])), min_size=1, max_size=30))
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


def test_reviewers_of_other_tables_are_refused():
    with pytest.raises(UserError, match="same table"):
        merge_decisions({"a": review(["keep"]), "b": review(["keep"], table="u")})
    with pytest.raises(UserError, match="at least one"):
        merge_decisions({})


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
    assert f"1 of 1 decided row was wrong; the audit had expected {p:.1f}." in said
    assert "drawn at random from the suspects: 1 reviewed row does not show a cut" in said
    assert "1 row relabelled" in said
    (again,) = read_decisions(conflicts).made
    assert (again.row, again.choice) == (str(second), "unsure")
    assert "relabel to" in conflicts.read_text()
    assert cli.main(["apply", str(table), "--out", str(out)]) == 2
    # The list of conflicts, filled in, is the arbiter's file.
    filled = tmp_path / "filled.csv"
    filled.write_text(conflicts.read_text().replace(",unsure,", ",drop,"))
    assert cli.main(["apply", str(table), "--decisions", *files, "--arbiter", str(filled), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "The arbiter decided 1 row." in said
    assert "1 row relabelled, 1 dropped" in said
    assert len(out.read_text().splitlines()) == 150


def test_reviewers_of_another_task_or_of_other_cells_are_refused():
    one = review(["keep", "drop"])
    with pytest.raises(UserError, match="another one from ben"):
        merge_decisions({"anna": one, "ben": replace(one, task="numbers")})
    changed = replace(one, made=[one.made[0], one.made[1]._replace(contents="r2")])
    with pytest.raises(UserError, match="must have seen the same row 1, got different cells"):
        merge_decisions({"anna": one, "ben": changed})


def test_reviewers_who_relabel_to_different_classes_disagree():
    one, other = (
        Decisions(["kind"], "classes", "t", [Decision(str(i), "b", "relabel", label) for i, label in enumerate(labels)])
        for labels in ("aacc", "acca")
    )
    kappa, n = merge_decisions({"anna": one, "ben": other}).kappa["anna", "ben"]
    assert (kappa, n) == (pytest.approx(cohen_kappa_score(list("aacc"), list("acca"))), 4)


def test_a_list_of_conflicts_that_nobody_completed_decides_nothing(tmp_path):
    reviews = {"anna": review(["keep", "drop"]), "ben": review(["keep", "keep"]), "carl": review(["drop", "relabel"])}
    merged = merge_decisions(reviews)
    assert [one.settled for one in merged.disagreements] == [True, False]
    (tmp_path / "conflicts.csv").write_bytes(merged.conflicts_csv())
    again = merge_decisions(reviews, arbiter=read_decisions(tmp_path / "conflicts.csv"))
    assert again.decisions == merged.decisions
    assert again.arbitrated == 0


def test_an_arbiter_overrules_the_majority_unless_unsure():
    reviews = {"a": review(["keep", "keep", "keep", None]), "b": review(["keep", "keep", "drop", None])}
    merged = merge_decisions(reviews, arbiter=review(["drop", "unsure", "relabel", "drop"]))
    assert [made.choice for made in merged.decisions.made] == ["drop", "keep", "relabel", "drop"]
    assert merged.arbitrated == 3
    (found,) = merged.disagreements
    assert found.settled
    assert found.votes["the arbiter"] == "relabel to a"
    assert not merged.conflicts
    with pytest.raises(UserError, match="another one from the arbiter"):
        merge_decisions(reviews, arbiter=review(["keep"], table="u"))


@pytest.mark.parametrize("n", [1, 2])
def test_sentences_count_one_row_and_many(n):
    several = {"a": review(["keep"] * n), "b": review(["drop"] * n)}
    said = " ".join(merge_decisions(several).in_words()) + recalibrate([0.5] * n, [True] * n).in_words()
    assert ("1 rows" in said, "2 row " in said, "1 row" in said) == (False, False, n == 1)


def test_what_the_majority_found_is_compared_with_what_the_audit_expected():
    choices = ["relabel"] * 70 + ["keep"] * 2 + ["unsure"] * 5
    made = [Decision(str(i), "b", c, "a" if c == "relabel" else "", 0.9, "r1") for i, c in enumerate(choices)]
    decisions = Decisions(["kind"], "classes", "t", made)
    first, second = reviews_in_words(decisions)
    assert first == "70 of 72 decided rows were wrong; the audit had expected 64.8."
    assert recalibrate(decisions, next_rows=100).in_words()[1:] in second
    assert reviews_in_words(Decisions(["kind"], "classes", "t", made[-5:])) == []


# ---- the guarantee ---------------------------------------------------------------------------------------------------

GRID = np.linspace(0.3, 1.0, 4001)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0], ids=["p_wrong too low", "calibrated", "too high"])
def test_the_share_of_right_rows_above_the_cut_exceeds_the_limit_in_at_most_a_tenth_of_reviews(power):
    rng = np.random.default_rng(int(10 * power))
    missed = 0
    for _ in range(500):
        p = rng.uniform(0.3, 1.0, 150)
        cut = recalibrate(p, rng.random(150) < p**power, share=0.2).threshold
        above = GRID[cut <= GRID]
        missed += len(above) > 0 and (1 - above**power).mean() > 0.2
    assert missed <= 50 + 2.6 * np.sqrt(500 * 0.1 * 0.9)  # one sided, 99.5%


def test_of_the_next_rows_more_than_the_limit_are_right_in_at_most_a_tenth_of_reviews():
    rng = np.random.default_rng(0)
    missed = found = 0
    for _ in range(300):
        p = rng.uniform(0.3, 1.0, 300)
        cut = recalibrate(p, rng.random(300) < np.sqrt(p), share=0.2, next_rows=50).threshold
        if cut <= 1.0:
            found += 1
            new = rng.uniform(cut, 1.0, 50)
            missed += (rng.random(50) >= np.sqrt(new)).sum() > 10
    assert found > 60
    assert missed <= 30 + 2.6 * np.sqrt(300 * 0.1 * 0.9)


@given(st.lists(st.tuples(st.integers(5, 8), st.booleans()), min_size=30, max_size=90))
def test_the_guarantee_is_about_all_rows_from_the_cut_on_whatever_ties_there_are(rows):
    """The exact test rejects for all rows with at least the p_wrong of the cut. Of tied rows wrong ones come first."""
    rows = sorted(rows, key=lambda row: not row[1])
    p, wrong = np.array([tenths for tenths, _ in rows]) / 10.0, np.array([found for _, found in rows])
    found = recalibrate(p, wrong, share=0.4)
    if np.isfinite(found.threshold):
        above = p >= found.threshold
        assert binom.cdf((~wrong[above]).sum(), above.sum(), 0.4) <= 0.1 + 1e-9


@pytest.mark.parametrize(("share", "next_rows", "risk"), [(0.1, 100, 0.1), (0.05, 40, 0.2), (0.29, 100, 0.001)])
def test_half_of_the_risk_is_for_the_share_and_half_for_the_next_rows(share, next_rows, risk):
    """None of n reviewed rows was right: their share is at most that with which this has half of the risk."""
    allowed = round(share * next_rows)
    largest = brentq(lambda q: binom.sf(allowed, next_rows, q) - risk / 2, 1e-9, share)
    enough = int(np.ceil(np.log(risk / 2) / np.log1p(-largest)))
    for n, found in ((enough - 1, False), (enough, True)):
        p, wrong = np.full(n, 0.9), np.ones(n, dtype=bool)
        cut = recalibrate(p, wrong, share=share, confidence=1 - risk, next_rows=next_rows)
        assert np.isfinite(cut.threshold) == found


def test_more_reviewed_rows_find_a_lower_cut():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.3, 1.0, 20_000)
    wrong = rng.random(len(p)) < p
    few = np.median([recalibrate(p[i : i + 300], wrong[i : i + 300], share=0.2).threshold for i in range(0, 6000, 300)])
    many = recalibrate(p, wrong, share=0.2).threshold
    # The right share above t is (1 - t) / 2 here: .2 at t = .6.
    assert 0.6 < many < few
    assert many < 0.66
    assert np.abs(recalibrate(p, wrong).predict([0.5, 0.9]) - [0.5, 0.9]).max() < 0.05


def test_ties_belong_to_the_cut_together():
    p = np.array([0.9] * 30 + [0.8] * 30)
    wrong = np.array([True] * 30 + [True] * 10 + [False] * 20)
    assert recalibrate(p, wrong).threshold in (0.9, float("inf"))


def test_decisions_are_taken_as_they_are_and_nonsense_is_refused():
    decisions = review(["keep", "drop", "relabel", "unsure"] * 10)
    found = recalibrate(decisions)
    assert found.n == 30
    assert found.predict([0.5])[0] == pytest.approx(2 / 3)
    assert "do not show a cut" in found.in_words()
    for bad in ({"p_wrong": [2.0], "wrong": [True]}, {"p_wrong": [np.nan], "wrong": [True]}, {"p_wrong": []}):
        with pytest.raises(UserError):
            recalibrate(**bad)
    for bad in ({"share": 0.0}, {"confidence": 1.0}, {"next_rows": 5}):
        with pytest.raises(UserError):
            recalibrate([0.5] * 30, [True] * 30, **bad)


def test_recalibration_refuses_decisions_in_words_and_files_count_once(tmp_path):
    from rankrange.audit import read_reviews

    with pytest.raises(UserError, match="True or False for each row"):
        recalibrate([0.9] * 60, ["keep"] * 60)
    path = tmp_path / "anna.csv"
    with pytest.raises(UserError, match="counts once"):
        read_reviews([path, path])
