"""Audits do not depend on how a table is written: formulas, order of columns, signs of zero, rows without a group."""

import csv
import io
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from rankrange import cli

pa = pytest.importorskip("pyarrow")
for package in ("jinja2", "rich"):
    pytest.importorskip(package)

from rankrange.audit import Decision, Decisions, audit_table, read_decisions  # noqa: E402
from rankrange.audit.classification import _other_class  # noqa: E402
from rankrange.audit.decisions import COLUMNS, contents_of_row  # noqa: E402
from rankrange.audit.review import Review, _learnt, match  # noqa: E402
from rankrange.audit.row_problems import find_row_problems  # noqa: E402
from rankrange.audit.target import RowNames, find_target, folds_by_group, group_numbers  # noqa: E402
from rankrange.audit.task_result import Measure  # noqa: E402
from rankrange.pages.text import csv_safe  # noqa: E402
from rankrange.tables.columns import Column  # noqa: E402
from rankrange.tables.encode import TableEncoder  # noqa: E402
from rankrange.tables.read import open_table  # noqa: E402

# ---- formulas --------------------------------------------------------------------------------------------------------

TEXTS = st.sampled_from(["=1+1", "+cmd", "-x", "@a", "plain", "'quoted", "a,b", "\t=1", "-3.5", ""])


@given(st.lists(TEXTS, min_size=5, max_size=5), TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_no_cell_of_decisions_is_a_formula(cells, table, target):
    row, said, choice, new, contents = cells
    made = [Decision(row, said, choice, new, 0.5, contents)]
    written = Decisions(target, cells[0], table, made).as_csv().decode()
    lines = list(csv.reader(io.StringIO(written)))
    assert len(lines[1]) == len(COLUMNS)
    assert all(cell[:1] == "'" or csv_safe(cell) == cell for line in lines for cell in line)


@pytest.mark.parametrize("name", ["=kind", "+kind", "-kind", "@kind", "[kind", "'kind", "kind", "a,b", '"kind"', "-3"])
def test_decisions_about_a_target_of_any_name_are_carried_out(tmp_path, name):
    rows = [["x", name], *([str(i), "ab"[i % 2]] for i in range(6))]
    with open(tmp_path / "t.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    made = [Decision("3", "a", "relabel", "b", 0.9, contents_of_row(rows[3], [1]))]
    (tmp_path / "d.csv").write_bytes(Decisions([name], "classes", "", made).as_csv())
    assert read_decisions(tmp_path / "d.csv").target == [name]
    files = [str(tmp_path / file) for file in ("t.csv", "d.csv", "f.csv")]
    assert cli.main(["apply", *files[:2], "--out", files[2]]) == 0
    with open(files[2], newline="") as file:
        assert list(csv.reader(file)) == [*rows[:3], [rows[3][0], "b"], *rows[4:]]


def test_formulas_of_a_typed_table_are_quoted_when_it_is_written_as_csv(tmp_path):
    import pyarrow.parquet

    table = pa.table({"=x": ["=1+1", "plain", "@cmd", "-2"], "label": ["a", "b", "a", "b"]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    made = [Decision("2", "b", "relabel", "a", 0.9, contents_of_row(["plain", "b"], [1]))]
    (tmp_path / "d.csv").write_bytes(Decisions(["label"], "classes", "", made).as_csv())
    command = ["apply", str(tmp_path / "t.parquet"), str(tmp_path / "d.csv"), "--out", str(tmp_path / "f.csv")]
    assert cli.main(command) == 0
    with open(tmp_path / "f.csv", newline="") as file:
        lines = list(csv.reader(file))
    assert lines == [["'=x", "label"], ["'=1+1", "a"], ["plain", "a"], ["'@cmd", "a"], ["-2", "b"]]


# ---- decisions about rows that are equal -----------------------------------------------------------------------------


@pytest.mark.parametrize("times", [2, 3])
def test_no_decision_about_equal_rows_takes_the_place_of_another(times, tmp_path):
    """Of equal rows the first was dropped since; in whatever order decisions come, each is found or counted as lost."""
    lines = ["x,y", *["700,a"] * times, *[f"{i},b" for i in range(20)], *[f"{i},a" for i in range(20, 40)]]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    source = open_table(tmp_path / "t.csv")
    target = find_target(source.read(), ["y"])
    contents = contents_of_row(["700", "a"], [1])
    made = [Decision("1", "a", "drop", "", 0.9, contents)]
    made += [Decision(str(row), "a", "keep", "", 0.9, contents) for row in range(2, times + 2)]
    for order in permutations(made):
        review = match(Decisions(["y"], "classes", "r0", list(order)), source, target, RowNames(first=1))
        found = list(review.decided.values())
        assert set(review.decided) <= set(range(times))
        assert len({one.row for one in found}) == len(found)
        assert sum(one.choice == "keep" for one in found) + review.lost == times


def test_of_equal_rows_that_moved_each_has_one_decision(tmp_path):
    """One of three equal rows stands where it was; the others are found by their contents, beside it."""
    lines = ["x,y", "700,a", *[f"{i},b" for i in range(20)], "700,a", *[f"{i},a" for i in range(20, 40)], "700,a"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    source = open_table(tmp_path / "t.csv")
    contents = contents_of_row(["700", "a"], [1])
    made = [Decision(row, "a", "keep", "", 0.9, contents) for row in ("1", "900", "901")]
    review = match(
        Decisions(["y"], "classes", "r0", made), source, find_target(source.read(), ["y"]), RowNames(first=1)
    )
    assert {row: decision.row for row, decision in review.decided.items()} == {0: "1", 21: "900", 42: "901"}
    assert review.lost == 0


# ---- rows and columns ------------------------------------------------------------------------------------------------


def problems(table):
    table = pa.table(table)
    target = find_target(table, ["y"])
    return find_row_problems(table.drop_columns(["y"]).take(target.rows), target)


def measured(n=400, seed=0):
    """Four columns that depend on each other, on scales of their own."""
    rng = np.random.default_rng(seed)
    height = rng.normal(170, 10, n)
    weight = 70 + 0.9 * (height - 170) + rng.normal(0, 6, n)
    return {
        "height": height,
        "weight": weight,
        "income": rng.lognormal(10, 0.7, n),
        "balance": rng.normal(0, 1, n),
        "y": np.where(rng.random(n) < 0.5, "u", "v"),
    }


def test_zero_and_minus_zero_are_one_value():
    table = measured()
    for name in ("height", "weight", "income", "balance"):
        table[name][7] = table[name][300]
    table["balance"][7], table["balance"][300] = 0.0, -0.0
    for target in ("u", "v"):
        table["y"][300] = target
        kind = "duplicate" if table["y"][7] == target else "conflicting duplicate"
        assert [(problem.kind, problem.rows) for problem in problems(table)] == [(kind, (8, 301))]


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_rows_without_a_group_are_groups_of_their_own(seed):
    rng = np.random.default_rng(seed)
    groups = [f"g{g}" if rng.random() < 0.5 else None for g in rng.integers(0, 10, 80)]
    target = find_target(pa.table({"y": np.arange(80.0)}), ["y"])
    numbers = group_numbers(Column.of("g", pa.chunked_array([groups])))
    parts = folds_by_group(numbers, "g", target, 4, seed).test.argmax(axis=0)
    alone = parts[[g is None for g in groups]]
    assert len(set(alone.tolist())) == 4
    known = np.array([g or "" for g in groups])
    assert all(len(set(parts[known == g])) == 1 for g in set(known) - {""})
    assert np.ptp(np.bincount(parts, minlength=4)) <= 15


@pytest.mark.parametrize("far", [1e9, -1e9])
def test_a_cell_far_outside_is_encoded_as_the_end_of_the_usual_range(far):
    x = np.random.default_rng(0).normal(size=200)
    encoder = TableEncoder().fit({"x": np.append(x, [1e6, -1e6]), "z": np.append(x[::-1], [0.0, 0.0])})
    ends = encoder.transform({"x": [1e6, -1e6], "z": [0.0, 0.0]})
    there = encoder.transform({"x": [far], "z": [0.0]})
    np.testing.assert_array_equal(there[0], ends[0 if far > 0 else 1])
    assert np.abs(there).max() < 50.0


def test_the_order_of_label_columns_changes_nothing_about_a_multi_label_target():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 3))
    Y = X + 0.2 * rng.normal(size=X.shape) > 0
    Y[:6] = ~Y[:6]
    found = {}
    for order in ([0, 1, 2], [2, 0, 1]):
        names = [["a", "b", "c"][j] for j in order]
        table = {f"x{j}": X[:, j] for j in range(3)} | {"abc"[j]: Y[:, j].astype(int) for j in order}
        audit = audit_table(table, names)
        found[tuple(order)] = dict(zip(audit.result.order.tolist(), audit.result.against, strict=True))
    one, other = found.values()
    common = sorted(set(one) & set(other) & set(range(6)))
    assert len(common) >= 4
    for row in common:  # which cells speak against a label does not depend on the order of the others
        np.testing.assert_allclose(one[row], other[row], rtol=0.3, atol=0.5)


# ---- what is said of suspects ----------------------------------------------------------------------------------------


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


def test_features_speak_against_a_number_in_the_direction_that_they_push_it():
    """A number far too small: the features that push the expectation up speak against it, the others for it."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 200))
    y = 5.0 * x - 3.0 * z + 0.2 * rng.normal(size=200)
    x[[3, 50]], z[[3, 50]] = 2.0, 1.0
    y[3], y[50] = -40.0, 60.0
    audit = audit_table({"x": x, "z": z, "y": y}, "y")
    found = dict(zip(audit.result.order.tolist(), audit.result.against, strict=True))
    assert {3, 50} <= set(found)
    assert (np.sign(found[3]) == [1, -1]).all()
    assert (np.sign(found[50]) == [-1, 1]).all()


@given(st.integers(0, 1000))
@settings(max_examples=50)
def test_the_other_class_is_the_most_probable_one_but_the_given(seed):
    rng = np.random.default_rng(seed)
    mean, codes, suggested = rng.dirichlet(np.ones(4), 20), rng.integers(0, 4, 20), rng.integers(0, 4, 20)
    found = _other_class(suggested, codes, mean)
    for i in range(20):
        best = max((c for c in range(4) if c != codes[i]), key=lambda c: mean[i, c])
        assert found[i] == (suggested[i] if suggested[i] != codes[i] else best)


@given(st.lists(st.tuples(st.floats(0.01, 0.99), st.booleans()), min_size=1, max_size=30))
@settings(max_examples=50)
def test_decisions_move_the_odds_to_the_mode_of_the_posterior(judged):
    """A normal prior of standard deviation 1 on the shift: at the mode it equals what the decisions say too much."""
    made = [Decision(str(i), "a", "drop" if wrong else "keep", "", p, "") for i, (p, wrong) in enumerate(judged)]
    shift = _learnt(Decisions(["y"], "classes", "r0", made), Review({})).shift
    p, wrong = np.array(judged).T
    excess = (wrong - expit(logit(p) + shift)).sum()
    assert shift == pytest.approx(np.clip(excess, -6.0, 6.0), abs=1e-3)
