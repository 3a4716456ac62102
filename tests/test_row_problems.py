"""Everything besides the target that can be wrong with a row: planted problems are found, ordinary tables give none."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rankrange.audit import row_problems  # noqa: E402
from rankrange.audit.column_problems import _explained_share  # noqa: E402
from rankrange.audit.problems import KINDS, Column, RowProblem, count_problems, problems_in_words, quantiles  # noqa: E402
from rankrange.audit.row_problems import _positions_in, find_row_problems, tail_limit  # noqa: E402
from rankrange.audit.target import find_target  # noqa: E402


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


def rows_of(found, kind):
    return {row for problem in found if problem.kind == kind for row in problem.rows}


@pytest.mark.parametrize("seed", range(3))
def test_an_ordinary_table_has_no_problems(seed):
    assert problems(a_table(seed=seed)) == []
    assert problems_in_words([]) == ""


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
def test_heavy_tails_skew_and_clusters_do_not_alarm(draw):
    false = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        table = {"x": rng.permutation(draw(rng, 1000)), "y": rng.choice(["u", "v"], 1000)}
        false += len(rows_of(problems(table), "outlier"))
    assert false <= 10  # of 10,000 rows


@settings(max_examples=30, deadline=None)
@given(st.floats(0.1, 10.0), st.floats(-100.0, 100.0), st.integers(50, 10**6))
def test_the_limit_of_a_tail_goes_with_the_unit_and_grows_with_the_rows(unit, shift, n):
    base = (0.6745, 1.2816, 1.6449)
    limit = tail_limit(base, n)
    assert tail_limit(tuple(unit * q for q in base), n) == pytest.approx(unit * limit)
    assert tail_limit(base, 10 * n) > 0.8 * limit
    assert tail_limit((0.6745, 2.0, 5.0), n) > limit
    assert limit > 3.5


def test_an_outlying_cell_is_reported_with_its_value_and_the_usual_range():
    table = a_table()
    table["weight"][41] = 41200.0
    (problem,) = problems(table)
    assert (problem.kind, problem.rows, problem.column) == ("outlier", (42,), "weight")
    high = np.quantile(np.delete(table["weight"], 41), 0.99)
    assert problem.sentence == f"weight is 41200 in row 42: 99% of the 599 other rows are below {high:.5g}"
    assert problem.strength == 1.0
    assert problems_in_words([problem]) == "Besides the target, there is 1 row with an outlier."


def test_values_that_are_usual_alone_but_not_together_are_found():
    table = a_table(2000)
    table["height"][7], table["weight"][7] = 194.0, 45.0  # both within what others have
    found = problems(table)
    assert rows_of(found, "outlier") == {8}
    assert "these values are inconsistent" in found[0].sentence


def test_rows_are_numbered_as_the_audit_numbers_them():
    table = a_table()
    table["weight"][41] = 41200.0
    (problem,) = problems(table, row_numbers=np.arange(600) + 1000)
    assert problem.rows == (1041,)


def test_repeated_rows_are_found_with_the_same_target_and_with_another():
    table = a_table()
    again = {name: np.append(values, values[[3, 5, 5]]) for name, values in table.items()}
    again["y"][-1] = "v" if again["y"][5] == "u" else "u"
    found = problems(again)
    assert rows_of(found, "duplicate") == {4, 601}
    assert rows_of(found, "conflicting duplicate") == {6, 602, 603}
    assert count_problems(found) == {"duplicate": 1, "conflicting duplicate": 3}


def test_rows_that_are_equal_but_for_one_cell_are_found():
    rng = np.random.default_rng(0)
    table = {f"x{j}": rng.normal(size=400).round(4) for j in range(5)} | {"y": rng.choice(["u", "v"], 400)}
    table["x2"][300], other = table["x2"][20] + 0.001, [name for name in table if name != "x2"]
    for name in other:
        table[name][300] = table[name][20]
    (problem,) = problems(table)
    assert (problem.kind, problem.rows, problem.column, problem.action) == ("duplicate", (21, 301), "x2", "look")


def many_numbers(n=800, p=9, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, p))
    return X @ (np.eye(p) + 0.3), np.array(["u", "v"])[np.arange(n) % 2]


def as_columns(X, y):
    return {**{f"c{j}": X[:, j] for j in range(X.shape[1])}, "y": y}


def test_rows_that_are_equal_but_for_a_few_cells_are_found():
    X, y = many_numbers()
    X[700:705] = X[100:105]
    for i, changed in enumerate(([0], [1, 2], [3, 7, 8], [0, 4], [2, 5, 6])):
        X[700 + i, changed] = X[400 + i, changed]
    found = [p for p in problems(as_columns(X, y)) if p.kind == "duplicate"]
    assert {p.rows for p in found} == {(101 + i, 701 + i) for i in range(5)}
    said = next(p.sentence for p in found if p.rows == (103, 703))
    assert [j for j in range(9) if f"c{j} (" in said] == [3, 7, 8]


def test_rows_that_were_measured_again_are_found():
    X, y = many_numbers()
    X[700:710] = X[100:110] + 1e-4 * np.random.default_rng(1).normal(size=(10, X.shape[1]))
    found = problems(as_columns(X, y))
    assert {p.rows for p in found if p.kind == "duplicate"} == {(101 + i, 701 + i) for i in range(10)}


@pytest.mark.parametrize("seed", range(2))
def test_rows_that_are_alike_by_nature_are_no_repetitions(seed):
    rng = np.random.default_rng(seed)
    walk = np.repeat(np.cumsum(rng.normal(size=(750, 6)), axis=0), 4, axis=0) + np.arange(3000)[:, None] % 4 * 1e-3
    plane = rng.normal(size=(20_000, 2)) @ rng.normal(size=(2, 8))  # eight columns that two numbers tell
    for X in (walk, plane):
        assert rows_of(problems(as_columns(X, np.arange(len(X)) % 2)), "duplicate") == set()


@settings(max_examples=60)
@given(
    st.lists(st.floats(-1e6, 1e6) | st.integers(-3, 3).map(float), min_size=1, max_size=60),
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
)
def test_quantiles_are_those_of_numpy(values, levels):
    x = np.array(values)
    np.testing.assert_allclose(quantiles(x, levels), np.quantile(x, levels), rtol=1e-12, atol=1e-9)


@settings(max_examples=30)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=50), st.integers(0, 2**31))
def test_places_in_a_grid_are_those_of_searchsorted(grid, seed):
    grid = np.sort(np.array(grid))
    rng = np.random.default_rng(seed)
    values = rng.choice([*grid, *rng.normal(scale=700, size=50), -np.inf, np.inf, 0.0], 20_000)
    np.testing.assert_array_equal(_positions_in(grid, values), np.searchsorted(grid, values))


def test_problems_do_not_depend_on_how_many_columns_are_looked_at_at_a_time():
    table = a_table()
    table["weight"][77] *= 1000
    table["height"][200:230] *= 2.54
    found = problems(table)
    assert {"outlier", "batch"} <= {p.kind for p in found}
    assert problems(table, jobs=3) == found


def test_problems_among_more_rows_than_are_sorted_are_found_by_a_sample():
    """Beyond 200,000 rows quantiles are those of a sample. Classes alternate, which is no pattern of a column."""
    rng = np.random.default_rng(3)
    n = 210_000
    X = rng.normal(size=(n, 3)) @ (np.eye(3) + 0.4)
    X[:, 1] += 20.0
    X[50, 0], X[3000:3200, 1] = 900.0, X[3000:3200, 1] * 25.4
    found = problems(as_columns(X, np.arange(n) % 2))
    batch = set(range(3001, 3201))
    assert {problem.kind for problem in found} == {"outlier", "batch"}
    assert rows_of(found, "outlier") - batch == {51}
    assert rows_of(found, "batch") >= batch
    assert len(rows_of(found, "batch") - batch) <= 4


def test_equal_rows_of_columns_with_few_values_are_no_problem():
    rng = np.random.default_rng(0)
    table = {name: rng.integers(0, 3, 500) for name in ("a", "b", "c")} | {"y": rng.choice(["u", "v"], 500)}
    assert problems(table) == []


@pytest.mark.parametrize("factor", [0.4536, 2.2046, 100.0, 0.001])
def test_a_batch_in_another_unit_is_found_to_its_edges(factor):
    table = a_table(1000)
    table["weight"][300:340] = table["weight"][300:340] * factor
    found = [problem for problem in problems(table) if problem.kind == "batch"]
    named = {row for problem in found if problem.column == "weight" for row in problem.rows}
    assert named == set(range(301, 341))
    assert {problem.column for problem in found} <= {"weight", "height"}  # which goes with it


def test_a_sensor_that_is_stuck_is_found():
    table = a_table(1000)
    table["income"][500:512] = 20000.0
    (problem,) = [p for p in problems(table) if p.kind == "batch"]
    assert problem.rows == tuple(range(501, 513))
    assert problem.value == "20000"


def test_a_table_sorted_by_its_target_has_no_batches():
    rng = np.random.default_rng(0)
    y = np.repeat(["u", "v", "w"], 300)
    shift, scale = np.repeat([0.0, 5.0, 9.0], 300), np.repeat([1.0, 4.0, 0.3], 300)
    table = {f"x{j}": shift + scale * rng.normal(size=900) for j in range(3)} | {"y": y}
    assert [p for p in problems(table) if p.kind == "batch"] == []


def test_a_step_is_a_batch_to_its_edges_and_the_flank_of_a_rise_is_none():
    from rankrange.audit.column_problems import _has_edges, _shifted_spans

    noise = np.random.default_rng(0).normal(0, 0.3, 4000)
    step = 4.0 * ((np.arange(4000) >= 1900) & (np.arange(4000) < 2100))
    ((start, stop),) = _shifted_spans(step + noise, 1)
    assert abs(start - 1900) <= 2
    assert abs(stop - 2100) <= 2
    assert _has_edges(step + noise, 1900, 2100)
    rise = np.maximum(0.0, np.arange(4000) - 2500) / 100.0
    assert not _has_edges(rise + noise, 2900, 3100)


@pytest.mark.parametrize("seed", range(3))
def test_numbers_that_moved_by_one_column_are_found_and_nothing_else(seed):
    table = a_table(800, seed)
    names = ["height", "weight", "income", "visits"]
    rows = [10, 200, 555]
    moved = np.roll(np.stack([table[name][rows] for name in names]), 1, axis=0)
    table["visits"] = table["visits"].astype(float)
    for name, values in zip(names, moved, strict=True):
        table[name][rows] = values
    found = problems(table)
    assert {problem.kind for problem in found} == {"outlier"}
    assert rows_of(found, "outlier") == {row + 1 for row in rows}


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_a_column_that_gives_the_target_away_is_named(task):
    table = a_table()
    rng = np.random.default_rng(1)
    if task == "numbers":
        table["y"] = rng.normal(size=600)
        table["result"] = 3 * table["y"] + 0.001 * rng.normal(size=600)
    else:
        table["result"] = np.where(table["y"] == "u", "code 7", "code 9")
    found = problems(table, task)
    assert [(p.kind, p.column, p.rows, p.action) for p in found] == [("leak", "result", (), "drop")]


def test_a_leak_is_found_where_classes_alternate():
    """Counting every second row would show one class alone."""
    table = a_table()
    table["y"] = np.array(["u", "v"])[np.arange(600) % 2]
    assert problems(table) == []
    table["result"] = np.where(table["y"] == "u", "code 7", "code 9")
    assert [(p.kind, p.column) for p in problems(table)] == [("leak", "result")]


def test_drift_along_time_is_reported_only_with_a_time_column():
    table = a_table()
    table["when"] = np.arange(600) * 3
    table["height"] = table["height"] + np.arange(600) * 0.2
    assert [p for p in problems(table) if p.kind == "drift"] == []
    found = [p for p in problems(table, time="when") if p.kind == "drift"]
    assert {p.column for p in found} == {"height"}


def test_texts_among_numbers_are_impossible_and_named():
    table = a_table()
    cells = [str(value) for value in table["weight"]]
    cells[9] = "heavy"
    (problem,) = problems(table | {"weight": cells})
    assert (problem.kind, problem.rows, problem.action) == ("impossible", (10,), "fix")


def test_an_audit_says_nothing_only_where_nothing_of_any_kind_was_found():
    for package in ("jinja2", "rich", "skops"):
        pytest.importorskip(package)
    from rankrange.audit import audit_table

    table = a_table(200)
    table["y"] = np.where(table["height"] + np.tile([0.5, -0.5], 100) > 170, "tall", "short")
    table["income"][17] = 1e12
    audit = audit_table(pa.table(table), "y", models="linear")
    assert "1 row with an outlier" in " ".join(audit.sentences()[:3])
    listed = json.loads(json.dumps(audit.to_dict()))["row_problems"]
    assert listed["counts"]["outlier"] == 1
    assert set(listed["counts"]) <= set(KINDS)
    assert "Nothing to do here" not in audit.report()


def test_a_new_check_is_one_entry_in_a_table():
    """A kind that has no words of its own is counted, named and listed after the others."""

    def find_whitespace(rows):  # as in docs/development/extending.md
        found = []
        for column in rows.columns:
            for code, text in enumerate(column.levels):  # no levels in a column of numbers
                usual = text.strip()
                if text != usual and usual in column.levels:
                    at = rows.numbers[np.flatnonzero(column.codes == code)]
                    sentence = f"{column.name} is {text!r} in {len(at)} rows, and {usual!r} in others"
                    found.append(
                        RowProblem("whitespace", tuple(at.tolist()), column.name, text, usual, sentence, 0.9, "fix")
                    )
        return found

    table = a_table()
    table["town"] = ["A " if row in (2, 4) else "A" if row % 2 else "B" for row in range(len(table["income"]))]
    table["income"][17] = 1e12
    found = problems(table, checks=(find_whitespace, *row_problems.CHECKS))
    assert [problem.kind for problem in found] == ["outlier", "whitespace"]
    assert found[1].rows == (3, 5)
    assert count_problems(found) == {"outlier": 1, "whitespace": 2}
    assert "1 row with an outlier and 2 rows with whitespace" in problems_in_words(found)
    assert {problem.kind for problem in row_problems.most_certain(found, 2)} == {"outlier", "whitespace"}


@pytest.mark.parametrize("task", ["numbers", "classes"])
def test_a_value_without_training_rows_is_predicted_by_the_constant(task):
    """Pairs of rows with their own value: a test row is predicted exactly, or by the constant if its pair is new."""
    rng = np.random.default_rng(0)
    pair = np.arange(300) // 2
    y = np.repeat(rng.normal(size=150) if task == "numbers" else rng.choice([0, 1, 1], 150), 2)
    target = find_target(pa.table({"y": y}), ["y"], task)
    half = rng.random(300) < 0.5
    share = _explained_share(
        Column("t", "text", None, pair, [str(i) for i in range(150)]), target, np.arange(300), half
    )
    known = np.isin(pair, pair[half])[~half]
    if task == "numbers":
        loss = (np.argsort(np.argsort(y, kind="stable")) - 149.5) ** 2
    else:
        loss = (y != 1).astype(float)
    expected = 1.0 - (loss[~half] * ~known).mean() / loss.mean()
    assert share == pytest.approx(expected, abs=0.01)
    assert 0.3 < share < 0.7
