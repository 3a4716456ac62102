"""The checks of rows: planted problems are found, ordinary tables have none."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankrange.audit.problems import KINDS, RowProblem, count_problems, most_certain, problems_in_words
from rankrange.audit.row_problems import CHECKS, PLACEHOLDERS, explained_share, find_row_problems, tail_limit
from rankrange.audit.target import find_target
from rankrange.tables.columns import Column


def a_table(n=600, seed=0):
    """Columns that depend on each other, on scales of their own, with digits as measured."""
    rng = np.random.default_rng(seed)
    height = rng.normal(170, 10, n).round(1)
    weight = (70 + 0.9 * (height - 170) + rng.normal(0, 6, n)).round(1)
    return {
        "height": height,
        "weight": weight,
        "income": rng.lognormal(10, 0.7, n).round(0),
        "visits": rng.poisson(3, n),
        "town": rng.choice(["A", "B", "C"], n),
        "y": np.where(rng.random(n) < 0.5, "u", "v"),
    }


def problems(table, task="auto", **options):
    table = pa.table(table)
    target = find_target(table, ["y"], task)
    return find_row_problems(table.drop_columns(["y"]).take(target.rows), target, **options)


def of_column(values, kind):
    found = problems({"x": pa.array(values), "y": ["a", "b"] * (len(values) // 2)})
    return [problem for problem in found if problem.kind == kind]


def rows_of(found, kind):
    return {row for problem in found if problem.kind == kind for row in problem.rows}


@pytest.mark.parametrize("seed", range(3))
def test_an_ordinary_table_has_no_problems(seed):
    assert problems(a_table(seed=seed)) == []
    assert problems_in_words([]) == ""


# ---- outliers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.normal(size=n),
        lambda rng, n: rng.lognormal(0, 2, n),
        lambda rng, n: rng.pareto(1.0, n),
        lambda rng, n: rng.standard_cauchy(n),
        lambda rng, n: rng.exponential(size=n),
        lambda rng, n: rng.poisson(0.1, n),
        lambda rng, n: np.where(rng.random(n) < 0.9, 0.0, rng.lognormal(0, 1, n)),
        lambda rng, n: np.concatenate([rng.normal(0, 1, n - n // 5), rng.normal(30, 1, n // 5)]),
    ],
    ids=["normal", "lognormal", "Pareto", "Cauchy", "exponential", "counts", "mostly zero", "two clusters"],
)
def test_heavy_tails_skew_and_clusters_have_hardly_any_outliers(draw):
    false = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        false += len({row for p in of_column(rng.permutation(draw(rng, 1000)), "outlier") for row in p.rows})
    assert false <= 10  # of 10,000 rows


@settings(deadline=None)
@given(st.floats(0.1, 10.0), st.integers(50, 10**6))
def test_the_limit_of_a_tail_is_equivariant_and_grows_with_the_rows(unit, n):
    base = (0.6745, 1.2816, 1.6449)
    limit = tail_limit(base, n)
    assert tail_limit(tuple(unit * q for q in base), n) == pytest.approx(unit * limit)
    assert tail_limit(base, 10 * n) > 0.8 * limit
    assert tail_limit(base, n, 0.005) > limit
    assert tail_limit((0.6745, 2.0, 5.0), n) > limit > 3.5


def test_an_outlier_is_reported_with_its_value_and_the_usual_range():
    table = a_table()
    table["weight"][41] = 41200.0
    (problem,) = problems(table, row_names=np.arange(600) + 1000)
    assert (problem.kind, problem.rows, problem.column) == ("outlier", (1041,), "weight")
    high = np.quantile(np.delete(table["weight"], 41), 0.99)
    assert problem.sentence == f"weight is 41200 in row 1,041: 99% of the 599 other rows are below {high:.5g}"
    assert problem.strength == 1.0
    assert problems_in_words([problem]) == "Other problems: 1 row with an outlier."


def test_each_outlying_cell_of_a_row_is_named_and_the_row_counts_once():
    table = a_table()
    table["weight"][41], table["income"][41] = 41200.0, 1e12
    found = problems(table)
    assert {(problem.column, problem.rows) for problem in found} == {("weight", (42,)), ("income", (42,))}
    assert count_problems(found) == {"outlier": 1}


def test_equal_outliers_are_one_finding_also_among_more_rows_than_are_sorted():
    values = np.random.default_rng(0).normal(size=210_000)
    values[100:900:50] = 5000.0
    (problem,) = of_column(values, "outlier")
    assert problem.rows == tuple(range(101, 901, 50))
    assert "16 rows" in problem.sentence


# ---- texts and placeholders ------------------------------------------------------------------------------------------


def test_texts_among_numbers_are_impossible_and_named():
    table = a_table()
    cells = [str(value) for value in table["weight"]]
    cells[9] = "heavy"
    (problem,) = problems(table | {"weight": cells})
    assert (problem.kind, problem.rows, problem.action) == ("impossible", (10,), "fix")
    assert problem.sentence == "weight has 1 cell with text instead of numbers, such as 'heavy' (row 10)"


@pytest.mark.parametrize("code", [code for code in PLACEHOLDERS if code not in (-1.0, -9.0)])
def test_a_code_of_the_list_outside_of_all_other_values_is_one_finding(code):
    values = np.random.default_rng(0).normal(3.0, 1.0, size=600).round(3)
    values[::10], values[5] = code, 20_000.0 if abs(code) < 20_000 else 1e11  # one extreme cell does not hide it
    (problem,) = of_column(values, "placeholder")
    assert problem.rows == tuple(range(1, 601, 10))
    assert "placeholder for a missing value" in problem.sentence
    assert len(of_column(values, "outlier")) == 1


DAYS = np.datetime64("2019-01-01") + np.random.default_rng(0).integers(0, 900, 600)
POSITIVE = [
    (centre * np.exp(spread * np.random.default_rng(1).normal(size=600))).round(digits)
    for centre, spread, digits in ((32.0, 0.2, 1), (72.0, 0.15, 0), (125.0, 0.7, 0))
]
WHOLE = np.random.default_rng(3).integers(0, 400, size=600).astype(float)


@pytest.mark.parametrize(
    ("values", "code", "shown", "step"),
    [
        (DAYS, np.datetime64("1900-01-01"), "1900-01-01", 20),
        *((values, 0.0, "0", 4) for values in POSITIVE),  # no value comes near zero
        (WHOLE, -1.0, "-1", 3),
    ],
)
def test_a_value_outside_of_what_a_column_can_hold_is_a_placeholder(values, code, shown, step):
    values = values.copy()
    values[::step] = code
    (problem,) = of_column(values, "placeholder")
    assert (len(problem.rows), problem.value) == (600 // step, shown)


def test_counts_and_measures_that_reach_zero_have_no_placeholder():
    rng = np.random.default_rng(2)
    for values in (
        rng.poisson(3.0, size=600).astype(float),
        rng.poisson(20.0, size=600).astype(float),
        rng.exponential(size=600).round(2),
        np.maximum(0.0, rng.normal(size=600)).round(3),
        rng.normal(size=600),
        rng.integers(0, 100, size=600).astype(float),  # 99 is the last of its kind
        np.where(rng.random(600) < 0.9, 0.0, rng.lognormal(7.0, 1.0, 600)),  # a gain that most do not have
        rng.integers(-1, 2, size=600).astype(float),
        rng.standard_cauchy(size=600).round(2),
        rng.lognormal(0.0, 2.0, size=600).round(3),
        np.where(rng.random(600) < 0.02, 0.0, rng.gamma(1.2, 0.07, size=600)),  # an area that may be empty
    ):
        assert not of_column(values, "placeholder")


def test_two_equal_cells_are_a_placeholder_only_if_they_have_three_digits_and_nothing_lies_near():
    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 1.0, size=500).round(3)
    for code, found in ((-999.0, 1), (9999.0, 1), (-99.0, 0), (-998.0, 0)):
        pair = np.concatenate([values[2:], [code, code]])
        assert len(of_column(pair, "placeholder")) == found
    for pair in ((-999.0, -20_000.0), (-999.0, -1000.0)):
        assert not of_column(np.concatenate([values[2:], pair]), "placeholder")
    tail = rng.lognormal(4.0, 1.5, size=500).round()
    tail[:2] = 999.0  # one of many large values
    assert not of_column(tail, "placeholder")


# ---- duplicates ------------------------------------------------------------------------------------------------------


def test_repeated_rows_are_found_with_the_same_target_and_with_another():
    table = a_table()
    again = {name: np.append(values, values[[3, 5, 5]]) for name, values in table.items()}
    again["y"][-1] = "v" if again["y"][5] == "u" else "u"
    found = problems(again)
    assert rows_of(found, "duplicate") == {4, 601}
    assert rows_of(found, "conflicting duplicate") == {6, 602, 603}
    assert count_problems(found) == {"duplicate": 1, "conflicting duplicate": 3}
    assert all("such pairs are expected by chance" in problem.sentence for problem in found)


def test_zero_and_minus_zero_are_one_value():
    X, y = many_numbers()
    X[300], X[7, 0], X[300, 0] = X[7], 0.0, -0.0
    for target, kind in (("v", "duplicate"), ("u", "conflicting duplicate")):
        y[[7, 300]] = "v", target
        found = problems(as_columns(X, y))
        assert [(problem.kind, problem.rows) for problem in found] == [(kind, (8, 301))]


def test_equal_rows_of_columns_with_few_values_are_chance():
    rng = np.random.default_rng(0)
    table = {name: rng.integers(0, 3, 500) for name in ("a", "b", "c")} | {"y": rng.choice(["u", "v"], 500)}
    assert problems(table) == []


def many_numbers(n=800, p=9, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, p))
    return X @ (np.eye(p) + 0.3), np.array(["u", "v"])[np.arange(n) % 2]


def as_columns(X, y):
    return {**{f"c{j}": X[:, j] for j in range(X.shape[1])}, "y": y}


def test_rows_that_are_equal_but_for_a_few_cells_or_by_very_little_are_near_duplicates():
    X, y = many_numbers()
    X[700:705] = X[100:105]
    for i, changed in enumerate(([0], [1, 2], [3, 7, 8], [0, 4], [2, 5, 6])):
        X[700 + i, changed] = X[400 + i, changed]
    X[710:720] = X[110:120] + 1e-4 * np.random.default_rng(1).normal(size=(10, X.shape[1]))
    found = [p for p in problems(as_columns(X, y)) if p.kind == "near duplicate"]
    assert {p.rows for p in found} == {(101 + i, 701 + i) for i in [*range(5), *range(10, 20)]}
    sentence = next(p.sentence for p in found if p.rows == (103, 703))
    assert [j for j in range(9) if f"c{j} (" in sentence] == [3, 7, 8]
    assert {p.action for p in found} == {"look"}


@pytest.mark.parametrize("seed", range(2))
def test_rows_that_are_alike_by_nature_are_no_near_duplicates(seed):
    rng = np.random.default_rng(seed)
    walk = np.repeat(np.cumsum(rng.normal(size=(750, 6)), axis=0), 4, axis=0) + np.arange(3000)[:, None] % 4 * 1e-3
    plane = rng.normal(size=(20_000, 2)) @ rng.normal(size=(2, 8))  # two numbers determine eight columns
    for X in (walk, plane):
        found = problems(as_columns(X, np.arange(len(X)) % 2))
        assert rows_of(found, "duplicate") | rows_of(found, "near duplicate") == set()


# ---- leaks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_a_column_that_determines_the_target_is_named(task):
    table = a_table()
    rng = np.random.default_rng(1)
    table["y"] = rng.normal(size=600) if task == "numbers" else np.array(["u", "v"])[np.arange(600) % 2]
    assert problems(table, task) == []
    if task == "numbers":
        table["result"] = 3 * table["y"] + 0.001 * rng.normal(size=600)
    else:
        table["result"] = np.where(table["y"] == "u", "code 7", "code 9")
    table["copy"] = table["result"]  # a second leak does not hide the first
    found = [(p.kind, p.column, p.rows, p.action) for p in problems(table, task)]
    assert found == [("leak", "result", (), "drop"), ("leak", "copy", (), "drop")]


@pytest.mark.parametrize("zeros", [0.2, 0.5, 0.8])
def test_a_copy_of_a_numeric_target_with_ties_is_a_leak(zeros):
    """Ties have their average rank: ordinal ranks of equal targets cannot be predicted."""
    table, rng = a_table(), np.random.default_rng(1)
    table["y"] = np.where(rng.random(600) < zeros, 0.0, rng.lognormal(size=600))
    table["paid"] = table["y"]
    assert [(p.kind, p.column) for p in problems(table, "numbers")] == [("leak", "paid")]


@pytest.mark.parametrize("task", ["numbers", "classes"])
@pytest.mark.parametrize("text", [True, False])
def test_a_column_removes_the_errors_of_the_rows_in_which_it_is_the_target(task, text):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 6000)
    copy = np.where(rng.random(6000) < 0.7, y, 7)
    target = find_target(pa.table({"y": y}), ["y"], task)
    column = Column.of("copy", pa.array([f"code {c}" for c in copy] if text else copy))
    assert explained_share(column, target) == pytest.approx(0.7, abs=0.03)


def test_the_order_of_rows_is_no_leak():
    table = a_table() | {"name": [f"name {i}" for i in range(600)], "y": np.repeat(["u", "v"], 300)}
    assert problems(table) == []


# ---- the table of checks ---------------------------------------------------------------------------------------------


def test_each_check_has_a_rule_in_one_sentence_and_a_parameter_that_counts():
    assert {check.name for check in CHECKS} <= set(KINDS)
    for check in CHECKS:
        assert check.rule.endswith(".")
        assert check.rule.count(". ") == 0
    table = a_table()
    table["weight"][41] = 41200.0
    strict = [check._replace(parameter=1e-300) if check.name == "outlier" else check for check in CHECKS]
    table["income"][7] = 3e6
    assert len(problems(table, checks=strict)) < len(problems(table))


def test_a_bad_leverage_point_names_the_feature_that_is_outlying(outlying):
    table, bad, audit = outlying
    found = [problem for problem in audit.row_problems if problem.kind == "bad leverage point"]
    planted = [problem for problem in found if problem.rows[0] in bad[:15]]
    named = [problem for problem in planted if problem.column == "a"]
    assert len(named) == len(planted) >= 7
    for problem in named:
        assert float(problem.value) == pytest.approx(table["a"][problem.rows[0]], rel=1e-3)
        assert f"most of all a ({problem.value})" in problem.sentence


def test_the_first_problems_include_the_strongest_of_each_kind():
    cells = [RowProblem("outlier", (i,), "x", "", "", "", 1.0) for i in range(50)]
    many = RowProblem("placeholder", tuple(range(100, 17_524)), "x", "", "", "", 0.9)
    shorter = RowProblem("placeholder", tuple(range(9)), "x", "", "", "", 0.9)
    leak = RowProblem("leak", (), "x", "", "", "", 0.6)
    shown = most_certain([*cells, shorter, many, leak], 10)
    assert len(shown) == 10
    assert {many, leak} <= set(shown[:3])
    assert shorter not in shown[:3]
