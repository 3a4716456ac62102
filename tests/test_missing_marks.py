"""Cells that say "missing" in their own way: marks in columns of numbers and dates, and numbers that are codes."""

from __future__ import annotations

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

from rankrange.audit.row_problems import find_row_problems  # noqa: E402
from rankrange.audit.target import find_target  # noqa: E402
from rankrange.tables.columns import typed  # noqa: E402
from rankrange.tables.encode import TableEncoder  # noqa: E402

MARKS = [".", "-", "missing", "n.a.", "unknown", "None", "na", "#DIV/0!", "--", "N/A", "Unknown"]


def _texts(values, mark, every=5):
    return [mark if i % every == 0 else value for i, value in enumerate(values)]


@pytest.mark.parametrize("mark", MARKS)
def test_a_column_of_numbers_with_marks_is_encoded_like_the_same_column_with_empty_cells(mark):
    numbers = [f"{x:.4f}" for x in np.random.default_rng(0).normal(size=200)]
    marked, empty = ({"x": _texts(numbers, text)} for text in (mark, None))
    encoder = TableEncoder()
    np.testing.assert_array_equal(encoder.fit_transform(marked), TableEncoder().fit_transform(empty))
    assert encoder.report_[0].used
    assert encoder.report_[0].missing == 40
    assert f"40 cells with '{mark}' count as missing" in encoder.report_[0].how


@pytest.mark.parametrize("form", ["${:.2f}", "{:.1f}%", "2024-01-{:02.0f}", "{:02.0f}.03.2024"])
def test_marks_are_missing_in_columns_of_money_percent_and_dates(form):
    texts = [form.format(1 + i % 28) for i in range(200)]
    marked, empty = ({"x": _texts(texts, text)} for text in ("unknown", None))
    np.testing.assert_array_equal(TableEncoder().fit_transform(marked), TableEncoder().fit_transform(empty))


def test_all_spellings_of_a_mark_are_counted():
    texts = ["-", " -", "- ", "-", "NA", "na"] + [str(i / 7) for i in range(60)]
    encoder = TableEncoder().fit({"x": texts})
    assert encoder.report_[0].missing == 6
    assert "6 cells with '-', 'NA', 'na' count as missing" in encoder.report_[0].how


@pytest.mark.parametrize("cells", [[None, None], ["-", None], ["NA", "unknown"]])
def test_a_column_of_numbers_may_have_only_missing_cells_in_a_new_table(cells):
    encoder = TableEncoder().fit({"x": [1.0, 2.5, 3.0], "b": [True, False, True]})
    new, same = (pa.table({"x": column, "b": column}) for column in (pa.array(cells, pa.string()), pa.nulls(2)))
    np.testing.assert_array_equal(encoder.transform(new), encoder.transform(same))
    with pytest.raises(ValueError, match="'x' must hold numbers as in the fit, got text"):
        encoder.transform(pa.table({"x": ["high", "-"], "b": [True, False]}))


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.null()])
def test_a_column_without_any_value_is_left_out(kind):
    encoder = TableEncoder().fit(pa.table({"x": [1.0, 2.5, 3.0], "t": pa.array([None] * 3, kind)}))
    assert encoder.feature_names_ == ["x"]
    assert "no cell has a value" in encoder.report_[1].how


def test_marks_among_texts_are_values():
    levels = ["none", "low", "high", "-"]
    encoder = TableEncoder().fit({"x": [levels[i % 4] for i in range(80)], "y": list(range(3)) * 26 + [0, 1]})
    assert set(encoder.columns_[0]["levels"]) == set(levels)
    assert "count as missing" not in encoder.report_[0].how


def test_a_class_named_unknown_beside_numbers_stays_a_class():
    target = find_target(pa.table({"y": ["0", "1", "unknown"] * 20}), ["y"])
    assert target.names == ["0", "1", "unknown"]


def test_a_target_of_numbers_with_marks_leaves_these_rows_out_and_says_so():
    values = [f"{x:.5f}" for x in np.random.default_rng(1).normal(size=300)]
    target = find_target(pa.table({"y": _texts(values, "-")}), ["y"])
    assert (target.task, len(target.y)) == ("numbers", 240)
    assert "60" in " ".join(target.notes)


def test_marks_alone_make_no_column_of_numbers():
    table, forms = typed(pa.table({"x": ["-", "unknown"] * 30}))
    assert not forms
    assert table.column("x").to_pylist()[:2] == ["-", "unknown"]


# ---- numbers that stand for missing cells ----------------------------------------------------------------------------


def _problems(values, kind="placeholder"):
    y = ["a", "b"] * (len(values) // 2)
    table = pa.table({"x": pa.array(values), "y": y})
    found = find_row_problems(table.select(["x"]), find_target(table, ["y"]))
    return [problem for problem in found if problem.kind == kind]


@pytest.mark.parametrize("code", [-999.0, 9999.0, -99.0, 99999.0, -9.9])
def test_a_code_far_from_all_other_values_is_one_finding(code):
    values = np.random.default_rng(0).normal(3.0, 1.0, size=600).round(3)
    values[::10] = code
    (problem,) = _problems(values)
    assert problem.rows == tuple(range(1, 601, 10))
    assert "placeholder for a missing value" in problem.sentence
    assert not _problems(values, "outlier")


@pytest.mark.parametrize(("centre", "spread", "digits"), [(32.0, 0.2, 1), (72.0, 0.15, 0), (125.0, 0.7, 0)])
def test_zeros_where_nothing_comes_near_zero_are_one_finding(centre, spread, digits):
    values = (centre * np.exp(spread * np.random.default_rng(1).normal(size=700))).round(digits)
    values[::4] = 0.0
    (problem,) = _problems(values)
    assert len(problem.rows) == 175
    assert problem.value == "0"


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
        assert not _problems(values)


def test_minus_one_beside_whole_numbers_of_zero_and_more_is_a_code():
    values = np.random.default_rng(3).integers(0, 400, size=600).astype(float)
    values[::3] = -1.0
    (problem,) = _problems(values)
    assert len(problem.rows) == 200


@pytest.mark.parametrize("extreme", [20_000.0, -20_000.0])
@pytest.mark.parametrize("code", [-999.0, 9999.0])
def test_one_extreme_cell_does_not_hide_a_code(code, extreme):
    values = np.random.default_rng(0).normal(3.0, 1.0, size=600).round(3)
    values[::10], values[5] = code, extreme
    (problem,) = _problems(values)
    assert problem.rows == tuple(range(1, 601, 10))


def test_a_block_of_codes_is_one_finding():
    values = np.random.default_rng(0).normal(3.0, 1.0, size=600).round(3)
    values[200:260] = -999.0
    assert len(_problems(values)) == 1
    assert not _problems(values, "batch")


@pytest.mark.parametrize("code", [-999.0, 9999.0])
def test_two_cells_of_a_code_are_found_if_nothing_lies_near(code):
    values = np.random.default_rng(0).normal(3.0, 1.0, size=500).round(3)
    values[[20, 300]] = code
    (problem,) = _problems(values)
    assert problem.rows == (21, 301)
    assert not _problems(values, "outlier")


def test_two_equal_extremes_are_no_code():
    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 1.0, size=500).round(3)
    for pair in ((-99.0, -99.0), (-998.0, -998.0), (-999.0, -20_000.0), (-999.0, -1000.0)):
        assert not _problems(np.concatenate([values[2:], pair]))
    tail = rng.lognormal(4.0, 1.5, size=500).round()
    tail[:2] = 999.0  # one of many large values
    assert not _problems(tail)
