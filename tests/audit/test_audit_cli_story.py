"""An audit tells one story: reason, loss, suggestion and probability agree, and the headline hides no loss."""

import dataclasses
import re

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
for package in ("jinja2", "rich", "skops"):
    pytest.importorskip(package)

from rankrange import cli  # noqa: E402
from rankrange.audit import audit_table  # noqa: E402
from rankrange.audit.task_result import Interval, Measure  # noqa: E402

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


def test_if_members_of_the_ensemble_disagree_each_is_named():
    from rankrange.audit.classification import _explanation

    def explanation(wrong, **members):
        members = {name: np.array([shares]) for name, shares in members.items()}
        return _explanation(members, np.mean(list(members.values()), axis=0), 0, (0, 1), wrong, ["sick", "well"])

    why = explanation(0.4, ordinary=[0.03, 0.97], robust=[0.995, 0.005])
    assert "disagree: the linear model 'sick' 3%, 'well' 97%" in why
    assert "the robust linear model 'sick' over 99%, 'well' under 1%" in why
    assert "'sick' is often wrong" in explanation(0.9, ordinary=[0.03, 0.97], robust=[0.995, 0.005])
    agreed = explanation(0.9, ordinary=[0.03, 0.97], neighbours=[0.13, 0.87])
    assert agreed.endswith("predict 'sick' 8%, 'well' 92%")


def with_measures(audit, *measures, **more):
    return dataclasses.replace(audit, result=dataclasses.replace(audit.result, measures=list(measures), **more))


def test_the_headline_names_a_measure_that_gets_worse(audits):
    at = lambda v: Interval(v, v - 0.01, v + 0.01)  # noqa: E731
    better = Measure("accuracy", True, True, at(0.6), at(0.7), Interval(0.1, 0.05, 0.15))
    worse = Measure("log loss", False, False, at(0.28), at(0.72), Interval(-0.44, -0.6, -0.3))
    even = dataclasses.replace(worse, gain=Interval(-0.1, -0.3, 0.1))
    headline = with_measures(audits[0], better, worse, m=9).sentences()[-2]
    assert "log loss gets worse, 0.72 instead of 0.28" in headline
    assert "9 rows" in headline
    assert "need not be errors" in headline
    assert "worse" not in with_measures(audits[0], better, even, m=9).sentences()[-2]


def test_rows_that_the_linear_model_ignores_are_mentioned_only_if_that_matters(audits):
    level = Measure("accuracy", True, True, *[Interval(0.6, 0.5, 0.7)] * 2, Interval(0.0, -0.1, 0.1))
    assert "ignores" not in " ".join(with_measures(audits[0], level, m=84).sentences())


def test_a_saved_model_reads_the_table_as_pandas_does(tmp_path, capsys):
    pd = pytest.importorskip("pandas")
    from rankrange.audit import load_model
    from rankrange.tables.read import open_table

    table = pd.DataFrame(outlying(1))
    table["visit"] = pd.date_range("2023-01-01", periods=len(table), freq="3D").strftime("%Y-%m-%d")
    table["smoker"] = [("yes", "no", None, "no", "yes")[i % 5] for i in range(len(table))]
    path = tmp_path / "patients.csv"
    table.to_csv(path, index=False)
    assert cli.main(["audit", str(path), "-t", "diagnosis", "-q", "--model", str(tmp_path / "m.skops")]) == 0
    model = load_model(tmp_path / "m.skops")
    as_read = model.predict_proba(open_table(path).read())
    np.testing.assert_allclose(model.predict_proba(pd.read_csv(path)), as_read)
    np.testing.assert_allclose(model.predict_proba(pd.read_csv(path, parse_dates=["visit"])), as_read)
    kinds = {column.name: column.kind for column in audit_table(pd.read_csv(path), "diagnosis", jobs=1).columns}
    assert (kinds["visit"], kinds["smoker"]) == ("dates", "yes or no")


# ---- what the command says -------------------------------------------------------------------------------------------


def houses(n=120):
    rng = np.random.default_rng(4)
    size = rng.normal(100, 20, size=n)
    price = 3000 * size + rng.normal(scale=5000, size=n)
    price[:4] += 200_000
    return {"size": size, "age": rng.normal(size=n), "same": [7] * n, "price": price}


@pytest.fixture(scope="module")
def regression():
    return audit_table(houses(), "price", ignore=["age"], jobs=1)


def saved(path, table):
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table(table), path)
    return str(path)


def test_relabel_of_numbers_is_refused_before_anything_is_fitted(tmp_path, capsys):
    path = saved(tmp_path / "t.parquet", houses())
    options = ["--clean-how", "relabel", "--clean", str(tmp_path / "c.csv")]
    assert cli.main(["audit", path, "-t", "price", *options]) == 2
    error = capsys.readouterr().err
    assert "--clean-how relabel needs a target with classes, got a numeric target; use --clean-how drop" in error
    assert "fitting" not in error
    assert "encoding" not in error


def test_the_terminal_says_how_many_rows_were_relabelled_and_dropped(tmp_path, capsys):
    path, out = saved(tmp_path / "t.parquet", outlying(3)), tmp_path / "s.csv"
    options = ["--clean-how", "relabel", "--clean", str(tmp_path / "c.csv"), "--out", str(out)]
    assert cli.main(["audit", path, "-t", "diagnosis", "-q", "--clean-if", "0.5", *options]) == 0
    actions = re.findall(r",(relabel|drop|look),", out.read_text())
    told = re.search(r"The table with (\d+) rows? relabelled and (\d+) dropped", capsys.readouterr().out)
    assert [int(count) for count in told.groups()] == [actions.count("relabel"), actions.count("drop")]
    assert actions.count("drop") > 0


def test_the_terminal_says_why_columns_are_left_out_and_that_there_are_no_suspects(tmp_path, capsys):
    x = np.linspace(-1, 1, 60)
    table = {"x": x, "same": [7] * 60, "y": 3 * x + 0.1 * np.sin(40 * x)}
    path = saved(tmp_path / "t.parquet", table)
    assert cli.main(["audit", path, "-t", "y", "-q", "--out", str(tmp_path / "s.csv")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Left out: same (all values are the same)." in out
    assert "No suspects, only the header: " in out


def test_settings_list_the_ignored_columns(regression, audits):
    assert regression.settings["ignored columns"] == "age"
    assert audits[0].settings["ignored columns"] == "none"


def test_the_reason_for_a_number_starts_with_the_expected_value_and_how_far_off_it_is(regression):
    price = np.array(houses()["price"])
    worst = regression.suspects(4)
    assert {suspect.row for suspect in worst} == {0, 1, 2, 3}
    for suspect in worst:
        told = re.match(r"Expected (\S+) by .*; the value is (\S+) more, (\S+) standard deviations", suspect.why)
        expected, off, spreads = map(float, told.groups())
        assert expected + off == pytest.approx(price[suspect.row], rel=1e-3)
        assert suspect.residual == pytest.approx(off, rel=1e-3)
        assert off / spreads == pytest.approx(5000, rel=0.5)  # how the prices were made
    assert "squared error divided by" in regression.to_dict()["model"]["loss"]


def test_numbers_in_csv_and_terminal_say_how_far_off_they_are(tmp_path, capsys):
    import csv

    path, out = saved(tmp_path / "t.parquet", houses()), tmp_path / "s.csv"
    assert cli.main(["audit", path, "-t", "price", "-q", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "off by: given minus expected" in told
    assert "e+0" not in told.split("\nThe first ")[1]
    with out.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            off = float(row["price"]) - float(row["suggested"])
            assert float(row["residual"]) == pytest.approx(off, rel=1e-3)


def test_far_outliers_leave_the_other_rows_room_in_the_chart(regression):
    far = dataclasses.replace(regression.result, losses=np.append(np.geomspace(1e-4, 1.0, 119), 1e6))
    bars = dataclasses.replace(regression, result=far).distribution()
    assert max(bars["rows"]) < 30


def test_a_line_that_explains_the_numbers_is_not_shrunk_away(regression):
    errors = regression.result.measures[1]  # without the outliers; the prices were made with a deviation of 5,000
    assert errors.robust.value < 1.5 * 5000 * np.sqrt(2 / np.pi)


def test_the_page_of_a_regression_does_not_speak_of_classes(regression):
    page = regression.report()
    main = page[page.index("<main") : page.index('<script type="application/json"')]
    assert "one other label fits" not in main
    assert "New value" in main
    assert not re.search(r"\b[Aa] class\b", main)
    assert "A range of the target" in main


def test_cuts_that_cut_nothing_are_not_drawn_and_counts_above_the_cut_are_shown(audits):
    audit = next(audit for audit in audits if audit.result.m)
    j = audit.result
    assert j.k == len(j.wrong)
    page = audit.report()
    assert "λ ≈ 0" not in page
    assert "lower cut" not in page
    above = int((j.losses > j.lam_hat).sum())
    assert f"ignores the {j.m} training rows with the largest losses" in page
    assert f"{above} rows have an out-of-fold loss above λ̂" in page
    assert "the cut that the slider moves" in page
    lower = with_measures(audit, *j.measures, k=j.k - 5, lam=0.1).report()
    assert "λ: the lower cut" in lower


def test_label_issues_without_pandas_say_what_to_install(monkeypatch):
    import sys

    from rankrange import find_label_issues

    x = np.random.default_rng(0).normal(size=60)
    issues = find_label_issues(y=x > 0, pred_probs=np.column_stack([1 - (x > 0.2), x > 0.2]))
    monkeypatch.setitem(sys.modules, "pandas", None)
    for call in (issues.to_pandas, issues.to_cleanlab):
        with pytest.raises(ImportError, match=r"needs pandas, .* run: pip install 'rankrange\[data\]'"):
            call()


# ---- progress --------------------------------------------------------------------------------------------------------


def test_progress_shows_the_elapsed_time_and_the_step_and_promises_no_remaining_time(capsys):
    from rankrange.cli.terminal import Progress

    with Progress() as progress:
        progress("reading a file")
    assert re.fullmatch(r"\[ *\d+\.\d s\] reading a file\n", capsys.readouterr().err)


def test_where_nothing_moves_a_long_step_says_that_it_goes_on(capsys):
    from rankrange.cli import terminal

    with terminal.Progress(still=0.02) as progress:
        progress("reading a long file")
        for _ in range(200):
            if progress.over.wait(0.01) or "still running" in (said := capsys.readouterr().err):
                break
    assert "reading a long file, still running" in said
