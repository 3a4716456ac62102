"""The result of an audit: planted errors are found, and reason, loss, suggestion, probability and groups agree."""

import dataclasses
import re

import numpy as np
import pyarrow as pa
import pytest

from rankrange import cli
from rankrange.audit import audit_table
from rankrange.audit.export import certain
from rankrange.audit.target import find_target
from rankrange.audit.task_result import Interval, Measure

SHARE = r"'{}' ([<>]?)(\d+)%"


def shares(why, given, suggested):
    """Of each opinion in the reason: (share of the given label, share of the suggested one)."""
    found = [[int(p) / 100 for _, p in re.findall(SHARE.format(name), why)] for name in (given, suggested)]
    return list(zip(*found, strict=True))


def test_loss_reason_suggestion_and_probability_of_a_suspect_agree(audit):
    checked = 0
    for suspect in audit.suspects():
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


def test_if_members_of_the_ensemble_disagree_each_is_named():
    from rankrange.audit.classification import prediction

    def explanation(wrong, **members):
        members = {name: np.array([shares]) for name, shares in members.items()}
        return prediction(members, np.mean(list(members.values()), axis=0), 0, (0, 1), wrong, ["sick", "well"])

    why = explanation(0.4, ordinary=[0.03, 0.97], robust=[0.995, 0.005])
    assert "disagree: the linear model 'sick' 3%, 'well' 97%" in why
    assert "the robust linear model 'sick' >99%, 'well' <1%" in why
    assert "'sick' is often wrong" in explanation(0.9, ordinary=[0.03, 0.97], robust=[0.995, 0.005])
    agreed = explanation(0.9, ordinary=[0.03, 0.97], neighbours=[0.13, 0.87])
    assert agreed.endswith("predict 'sick' 8%, 'well' 92%")


def with_measures(audit, *measures, **more):
    return dataclasses.replace(audit, result=dataclasses.replace(audit.result, measures=list(measures), **more))


def test_the_headline_names_a_measure_that_gets_worse_and_is_there_only_if_it_matters(audit):
    at = lambda v: Interval(v, v - 0.01, v + 0.01)  # noqa: E731
    better = Measure("accuracy", True, True, at(0.6), at(0.7), Interval(0.1, 0.05, 0.15))
    worse = Measure("log loss", False, False, at(0.28), at(0.72), Interval(-0.44, -0.6, -0.3))
    even = dataclasses.replace(worse, gain=Interval(-0.1, -0.3, 0.1))
    headline = with_measures(audit, better, worse, m=9).sentences()[-2]
    for words in ("predicts better", "; log loss gets worse", "9 rows", "errors or not"):
        assert words in headline
    assert "worse" not in with_measures(audit, better, even, m=9).sentences()[-2]
    headline = with_measures(audit, even, worse, m=9).sentences()[-2]
    assert "no significant difference to the ordinary one in log loss: 0.72, a gain of \N{MINUS SIGN}0.1" in headline
    assert "; log loss gets worse." in headline
    assert "predicts worse" in with_measures(audit, worse, m=9).sentences()[-2]
    assert "ignores none and equals the ordinary one" in with_measures(audit, even, m=0).sentences()[-2]
    assert "ignores" not in " ".join(with_measures(audit, even, m=9).sentences())


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ([0.9], "1 of 500 rows is suspect, and likely wrong."),
        ([0.3], "1 of 500 rows is suspect, but not likely wrong."),
        ([0.3, 0.3], "2 of 500 rows are suspect, none of them likely wrong."),
        ([0.9, 0.3], "2 of 500 rows are suspect, 1 of them likely wrong."),
    ],
)
def test_likely_wrong_rows_are_counted_in_words(audit, wrong, sentence):
    p = np.zeros(500)
    p[audit.result.order[: len(wrong)]] = wrong
    found = dataclasses.replace(audit, result=dataclasses.replace(audit.result, wrong=p)).sentences()[1]
    assert sentence in found
    assert ("contradict none with confidence" in found) == (max(wrong) < 0.5)


def test_large_scores_have_separators_or_an_exponent():
    one = Measure("mean squared error", False, False, *3 * [Interval(0.5, 0, 1)])
    assert [one.text(value) for value in (0.12345, 2481.88, 1e7)] == ["0.1235", "2,482", "1e+07"]
    assert one.gain_text(-12345.6) == "\N{MINUS SIGN}12,346"


def test_a_gain_has_no_digits_that_the_score_does_not_show():
    one = Measure("log loss", False, False, *2 * [Interval(0.1577, 0, 1)], Interval(-0.01, -0.0201, 7.3e-5))
    assert (one.text(0.1577), one.gain_range) == ("0.1577", "\N{MINUS SIGN}0.0201 to +0.0001")
    tiny = dataclasses.replace(one, robust=Interval(3e-7, 2e-7, 4e-7))
    assert tiny.gain_text(1e-8) == "+1e\N{MINUS SIGN}08"


def test_a_saved_model_reads_the_table_as_pandas_does(outlying, tmp_path, capsys):
    import pandas as pd

    from rankrange.audit import load_model
    from rankrange.tables.read import open_table

    table = pd.DataFrame({name: column[:150] for name, column in outlying[0].items()})
    table["diagnosis"] = np.where(table.pop("y") > 100, "sick", "well")
    table["visit"] = pd.date_range("2023-01-01", periods=len(table), freq="3D").strftime("%Y-%m-%d")
    table["smoker"] = [("yes", "no", None, "no", "yes")[i % 5] for i in range(len(table))]
    path = tmp_path / "patients.csv"
    table.to_csv(path, index=False)
    words = ["audit", str(path), "-t", "diagnosis", "-q", "--models", "linear", "--model", str(tmp_path / "m.skops")]
    assert cli.main(words) == 0
    model = load_model(tmp_path / "m.skops")
    as_read = model.predict_proba(open_table(path).read())
    np.testing.assert_allclose(model.predict_proba(pd.read_csv(path)), as_read)
    np.testing.assert_allclose(model.predict_proba(pd.read_csv(path, parse_dates=["visit"])), as_read)
    audit = audit_table(pd.read_csv(path), "diagnosis", models="linear", jobs=1)
    kinds = {column.name: column.kind for column in audit.columns}
    assert (kinds["visit"], kinds["smoker"]) == ("dates", "yes or no")


@pytest.mark.parametrize("values", [["man", "woman"], ["man", "woman", "child"]])
def test_the_reason_names_each_value_of_a_text_column_that_decides_the_target(values):
    """Of two texts one has no 0/1 column."""
    sex = np.array(values)[np.arange(240) % len(values)]
    y = np.where(sex == "woman", "yes", "no")
    wrong = np.arange(len(values))
    y[wrong] = np.where(y[wrong] == "yes", "no", "yes")
    audit = audit_table({"sex": sex, "x": np.random.default_rng(0).normal(size=240), "y": y}, "y", models="linear")
    why = {suspect.row: suspect.why for suspect in audit.suspects()}
    for row in wrong.tolist():
        assert f"sex '{sex[row]}': " in why[row]


def test_a_frequent_text_is_no_reason_for_a_number():
    """There is no other label to compare with."""
    rng = np.random.default_rng(0)
    district, x = np.array(list("abcd"))[np.arange(200) % 4], rng.normal(size=200)
    district[:2] = "e", "f"
    y = x + np.where(np.isin(district, ["a", "e"]), 3.0, 0.0) + 0.1 * rng.normal(size=200)
    y[:8] += 5.0
    audit = audit_table({"district": district, "x": x, "y": y}, "y", models="linear")
    assert not any(f"district '{name}'" in suspect.why for suspect in audit.suspects() for name in "abcd")


def test_numbers_are_dropped_and_never_relabelled(outlying):
    _, bad, audit = outlying
    decisions = certain(audit, True, 0.5)
    assert set(decisions) >= set(bad.tolist())
    assert {made.choice for made in decisions.values()} == {"drop"}


def test_the_reason_for_a_number_starts_with_the_expected_value_and_how_far_off_it_is(outlying):
    table, bad, audit = outlying
    worst = audit.suspects(18)
    assert {suspect.row for suspect in worst} == set(bad.tolist())
    for suspect in worst:
        told = re.match(r"Expected (\S+) by .*; the value is (\S+) (more|less), (\S+) standard", suspect.why)
        expected, off, spreads = (float(told[i]) for i in (1, 2, 4))
        off *= {"more": 1, "less": -1}[told[3]]
        assert expected + off == pytest.approx(table["y"][suspect.row], rel=1e-3)
        assert suspect.residual == pytest.approx(off, rel=1e-3)
        assert abs(off) / spreads == pytest.approx(0.5, rel=0.5)  # how the values were made
    assert "squared error divided by" in audit.to_dict()["model"]["loss"]


@pytest.mark.parametrize(
    ("expected", "residual", "text"), [(20.0, 3.0, "20"), (650.901536, -0.0015, "650.90154"), (0.0, 0.0, "0")]
)
def test_an_expected_value_has_the_digits_in_which_it_differs_from_the_given_one(expected, residual, text):
    from rankrange.audit.regression import expected_text

    assert expected_text(expected, residual) == text


def test_an_interval_of_a_mean_covers_it_at_its_rate():
    draws = np.random.default_rng(0).normal(1.0, 3.0, size=(2000, 50))
    inside = [i.low <= 1.0 <= i.high for i in map(Interval.of_mean, draws)]
    assert np.mean(inside) == pytest.approx(0.945, abs=0.02)


@pytest.mark.parametrize("ties", [False, True])
def test_the_cut_curve_counts_the_rows_at_or_above_each_cut(audit, ties):
    if ties:
        result = dataclasses.replace(audit.result, losses=audit.result.losses.round(0))
        audit = dataclasses.replace(audit, result=result)
    losses, wrong = audit.result.losses, audit.result.wrong
    curve = audit.cut_curve()
    for cut, count, precision, found in zip(*curve.values(), strict=True):
        above = losses >= cut
        assert count == above.sum()
        assert precision == pytest.approx(wrong[above].mean())
        assert found == pytest.approx(wrong[above].sum() / wrong.sum())


def test_the_bars_count_every_row_once(audit):
    bars = audit.distribution()
    assert sum(bars["rows"]) == len(audit.p_wrong)
    assert sum(bars["wrong"]) == pytest.approx(audit.result.wrong.sum())


@pytest.mark.parametrize("task", ["classes", "labels"])
def test_where_columns_do_not_predict_the_target_no_row_is_called_wrong(task):
    rng = np.random.default_rng(5)
    table = {"x": rng.normal(size=300), "z": rng.choice(list("ab"), 300)}
    target = ["a label", "another", "third"] if task == "labels" else "y"
    if task == "labels":
        table |= {name: rng.integers(0, 2, 300) for name in target}
    else:
        table["y"] = rng.choice(["p", "q"], 300)
    audit = audit_table(table, target)
    assert audit.n_likely == 0
    assert audit.sentences()[1].startswith("The other columns do not predict the target better than chance")
    found = audit.to_dict()
    assert found["noise"]["low"] == 0.0
    assert 0.0 < found["noise"]["estimate"] < found["noise"]["high"] < 0.6
    assert found["suspects"]  # the rows most worth a look are listed, with their probability
    assert "unknown" in audit.report()


def test_regression_finds_planted_outliers_and_ignores_them(outlying):
    table, bad, audit = outlying
    assert audit.result.task == "numbers"
    assert audit.n_likely == pytest.approx(len(bad), abs=2)
    gain = audit.result.measures[1].gain  # without the outliers
    assert gain.value > 0
    guess = audit.pipeline.predict({name: table[name] for name in "abc"})
    clean = np.setdiff1d(np.arange(300), bad)
    assert np.abs(guess - table["y"])[clean].mean() < 0.6  # in the units of y


def test_features_speak_against_a_number_in_the_direction_that_they_push_it(outlying):
    """A number far too small: the features that push the expectation up speak against it, the others for it."""
    table, bad, audit = outlying
    found = dict(zip(audit.result.order.tolist(), audit.result.against, strict=True))
    for place, row in enumerate(bad.tolist()):
        up = np.sign([table["a"][row], -table["b"][row]])
        clear = np.abs([table["a"][row], table["b"][row]]) > 0.5  # away from the mean, which pushes nowhere
        assert (np.sign(found[row][:2]) == (up if place < 15 else -up))[clear].all()


@pytest.mark.parametrize("form", ["columns", "cells", "lists"])
def test_multi_label_targets_in_all_three_forms_are_the_same(form, moods):
    table, columns, Y, names = moods(form)
    names_of = [columns] if isinstance(columns, str) else columns
    target = find_target(pa.table(table), names_of, separator="|" if form == "cells" else None)
    assert target.task == "labels"
    assert target.names == names
    np.testing.assert_array_equal(target.y, Y)


def test_an_audit_of_a_multi_label_table_says_which_labels_to_add_and_remove(multilabel):
    Y, names, audit = multilabel
    assert audit.result.task == "labels"
    np.testing.assert_array_equal(audit.target.y, Y)
    assert Y.all(axis=1).any()
    assert not audit.result.losses[Y.all(axis=1)].any()  # as in the model, which predicts two of three true labels
    worst = set(audit.result.order[:10].tolist())
    assert len(worst & set(range(8))) >= 6
    mended = [suspect for suspect in audit.suspects() if suspect.action == "relabel"]
    assert {s.rank for s in mended} == {s.rank for s in audit.suspects() if s.p_wrong >= 0.8} != set()
    told = [(s.row, *change) for s in mended for change in re.findall(r"(add|remove) '(\w+)'", s.why.lower())]
    assert all((verb == "add") != Y[row, names.index(label)] for row, verb, label in told)
    assert np.mean([row < 8 for row, _, _ in told]) > 0.8  # the planted ones
    for s in mended:
        suggested = [] if s.suggested == "(none)" else re.split(r"\W+", s.suggested)
        changed = {name for name in names if (name in suggested) != Y[s.row, names.index(name)]}
        assert changed == {label for row, _, label in told if row == s.row}


@pytest.mark.parametrize("higher", [True, False])
def test_a_gain_is_positive_where_the_robust_model_is_better(higher):
    worse = np.random.default_rng(0).uniform(0.2, 0.6, 50)
    better = worse + 0.2 if higher else worse - 0.1
    for ordinary, robust, sign in ((worse, better, 1), (better, worse, -1)):
        measure = Measure.of_rows("score", ordinary, robust, higher=higher)
        assert sign * measure.gain.value > 0
        assert measure.ordinary.value == pytest.approx(ordinary.mean())
        assert measure.robust.value == pytest.approx(robust.mean())
        assert measure.gain.low <= measure.gain.value <= measure.gain.high


@pytest.mark.parametrize("percent", [True, False])
def test_intervals_of_scores_stay_where_scores_can_be(percent):
    for right in (np.eye(1, 8)[0], 1.0 - np.eye(1, 8)[0]):
        measure = Measure.of_rows("score", right, right, percent=percent)
        for score in (measure.ordinary, measure.robust):
            assert 0.0 <= score.low <= score.value <= score.high
            assert score.high <= 1.0 or not percent


def test_an_audit_by_linear_models_alone_says_so():
    """Two columns tell the class by the product of their signs, which no linear model predicts."""
    x, z = np.random.default_rng(0).uniform(-1, 1, size=(2, 120))
    table = {"x": x, "z": z, "kind": np.where(x * z > 0, "same", "other"), "price": x * z}
    for target, other, models in (("kind", "price", "linear"), ("price", "kind", "linear"), ("price", "kind", "trees")):
        notes = audit_table(table, target, ignore=[other], models=models).notes
        assert any("Only linear models were used" in note for note in notes) is (models == "linear")


def test_the_group_with_wrong_labels_comes_first_and_is_named():
    rng = np.random.default_rng(0)
    site = np.array([f"<s{i}>" for i in range(8)])[rng.integers(0, 8, 480)]
    x = rng.normal(size=480)
    bad = (site == "<s3>") & (rng.random(480) < 0.4)  # one site confuses the labels
    table = {"x": x, "kind": np.where((x > 0) ^ bad, "a", "b"), "site": site}
    found = audit_table(table, "kind", group="site", models="linear")
    assert found.by_group[0].name == "<s3>"
    assert sum(group.rows for group in found.by_group) == 480
    assert any("By site, the models fit '<s3>' worst" in note for note in found.notes)
    for group in found.by_group:
        rows = site == group.name
        assert group.loss == pytest.approx(found.result.losses[rows].mean())
        assert group.wrong == pytest.approx(found.result.wrong[rows].mean())
        assert group.ignored == pytest.approx(found.result.dropped[rows].mean())
    assert [group["name"] for group in found.to_dict()["by_group"]] == [group.name for group in found.by_group]


@pytest.mark.filterwarnings("error")
def test_the_picture_of_a_column_shows_its_usual_values_beside_placeholders_and_far_ones():
    from rankrange.audit.pictures import column_picture
    from rankrange.tables.columns import Column

    def bars(values):
        return np.sum(column_picture(Column("x", "numbers", values), np.arange(600) % 2, 2).counts, axis=0)

    values = np.random.default_rng(0).normal(20.0, 3.0, 600)
    values[::60] = -999.0
    assert bars(values).sum() == 590
    assert (bars(values) > 5).sum() > 8
    constant = np.zeros(600)
    constant[[5, 9]] = 1e6, -3.0
    assert bars(constant).sum() == 600


def test_the_picture_of_texts_counts_the_most_frequent_ones():
    from rankrange.audit.pictures import column_picture
    from rankrange.tables.columns import Column

    texts = np.repeat([f"text {i:02}" for i in range(20)], np.arange(1, 21))
    picture = column_picture(Column.of("x", pa.array(texts)), np.zeros(len(texts), dtype=int), 1)
    assert picture.counts == [list(range(20, 8, -1))]
    assert picture.values == [f"text {i:02}" for i in range(19, 7, -1)]


def test_a_text_is_as_unusual_as_texts_that_are_as_rare_are_together():
    """Of fifty towns with four rows each none is unusual; of two frequent colours and a rare one the rare one is."""
    from rankrange.audit.evidence import Groups, Values
    from rankrange.tables.columns import Column

    groups = Groups(find_target(pa.table({"y": np.arange(200.0)}), ["y"]))
    for texts, shares in (
        ([f"town {i % 50}" for i in range(200)], {0: 1.0}),
        (["red"] * 110 + ["blue"] * 88 + ["grey"] * 2, {0: 1.0, 110: 0.45, 199: 0.01}),
    ):
        values = Values(Column.of("x", pa.array(texts)), groups)
        assert {i: values.unusual(i, 0, None)[0] for i in shares} == pytest.approx(shares)


def test_colours_are_the_most_frequent_classes_in_their_order():
    from rankrange.audit.pictures import colours

    y = np.repeat(np.arange(6), [10, 30, 20, 5, 40, 8])
    labels, colour = colours(find_target(pa.table({"y": [f"kind {c}" for c in y]}), ["y"]))
    assert labels == ["kind 1", "kind 2", "kind 4", "other labels"]
    assert np.bincount(colour).tolist() == [30, 20, 40, 23]


# ---- noise that differs between rows, and shares ---------------------------------------------------------------------


def test_numbers_that_scatter_because_a_cell_is_missing_are_right():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    missing, wrong = rng.random((2, 500)) < [[0.1], [0.05]]
    right = 3.0 * X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=500)
    X[missing, 0] = np.nan
    with_errors = right + np.where(wrong, 8.0 * rng.choice([-1.0, 1.0], 500), 0.0)
    for y, planted, models in ((right, np.zeros(500, dtype=bool), "all"), (with_errors, wrong, "linear")):
        table = {name: column.tolist() for name, column in zip("abc", X.T, strict=True)} | {"y": y.tolist()}
        likely = audit_table(table, "y", models=models).result.wrong >= 0.5
        assert (likely & ~planted).sum() <= 2
        assert likely[planted & ~missing].all()


def _without_suspects(audit, low, high):
    j = audit.result
    empty = {"order": j.order[:0], "actions": j.actions[:0], "suggested": [], "expected": [], "against": j.against[:0]}
    noise = Interval(0.5 * (low + high), low, high)
    result = dataclasses.replace(j, wrong=np.zeros(len(j.wrong)), noise=noise, **empty)
    return dataclasses.replace(audit, result=result, row_problems=[])


def test_an_uncertain_share_is_never_reported_together_with_nothing_to_do(audit):
    unclear = _without_suspects(audit, 0.0, 0.269)
    said, page = " ".join(unclear.sentences()), unclear.report()
    worst = int(np.argmax(audit.result.losses))
    assert unclear.share_unclear
    assert "nothing to review" not in said
    assert f"row {worst}" in said
    assert "Nothing to do" not in page
    assert "nothing to review" not in page
    assert "begin with those that fit worst" in page
    clear = _without_suspects(audit, 0.0, 0.004)
    assert "There is nothing to review." in clear.sentences()
    assert "There is nothing to review." in clear.report()


def test_a_row_that_is_almost_certainly_right_is_not_recommended_for_review(audit):
    j, first = audit.result, audit.suspects(1)[0].row
    for p, low, high, sentence in (
        (0.004, 0.0, 0.004, "There is nothing to review."),
        (0.1, 0.0, 0.004, f"If you review rows, begin with row {first}: its label is"),
        (0.004, 0.0, 0.269, f"begin with those that fit worst; the first is row {first}."),
    ):
        result = dataclasses.replace(j, wrong=np.full(len(j.wrong), p), noise=Interval(0.5 * (low + high), low, high))
        said = dataclasses.replace(audit, result=result, row_problems=[]).sentences()[-1]
        assert sentence in said
        assert ("probability of" in said) == (p == 0.1)


def test_values_of_a_column_of_two_are_counted_not_ranked():
    rng = np.random.default_rng(0)
    ill = rng.random(200) < 0.4
    mostly = [ill ^ (rng.random(200) < 0.1) for _ in range(3)]
    ill[:6] = ~ill[:6]
    table = {"smoker": np.where(mostly[0], "yes", "no"), "fever": mostly[1].astype(int), "cough": mostly[2]}
    table |= {"age": rng.normal(50, 9, 200).round(), "state": np.where(ill, "ill", "well")}
    audit = audit_table(table, "state", jobs=1)
    why, seen = " ".join(suspect.why for suspect in audit.suspects()), set()
    pattern = r"(smoker|fever|cough) '(\w+)': (\d+)% of the ([\d,]+) rows labelled '(\w+)', (\d+)% of those labelled"
    for name, cell, share, count, label, other in re.findall(pattern, why):
        yes, given = np.isin(table[name], ["yes"] if name == "smoker" else [1]), ill == (label == "ill")
        has = yes if cell in ("yes", "1") else ~yes
        found = has[given].mean(), given.sum(), has[~given].mean()
        assert found == pytest.approx((int(share) / 100, int(count), int(other) / 100), abs=0.0051)
        seen.add((name, cell))
    assert seen == {(name, cell) for name in ("smoker", "cough") for cell in ("yes", "no")} | {
        ("fever", "0"),
        ("fever", "1"),
    }
    assert not re.search(r"(smoker|fever|cough) [^;.]* as (high|low)", why)


def test_empty_columns_are_named_without_a_picture_and_none_of_their_cells_counts_as_filled_in():
    rng = np.random.default_rng(0)
    x, empty = rng.normal(size=60), pa.nulls(60)
    table = {"x": [None, *x[1:]], "note": empty, "y": np.where(x > 0, "up", "down")}
    audit = audit_table(pa.table(table), "y", models="linear", jobs=1)
    said = "1 of 2 columns were used; left out: note (no cell has a value). Filled in and marked: 1 missing cell."
    assert said in audit.report()
    assert [picture.name for picture in audit.evidence.columns] == ["x"]


def test_a_number_is_expected_and_does_not_fit_better(outlying):
    audit = outlying[2]
    first = audit.suspects(1)[0]
    assert audit.sentences()[-1] == (
        f"Look at row {first.row} first: its value is {first.given}, and models expect {first.suggested}."
    )
