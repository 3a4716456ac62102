"""Marks of missing cells in columns of numbers and dates, and in the target."""

from __future__ import annotations

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

from rankrange.audit.target import find_target  # noqa: E402
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
