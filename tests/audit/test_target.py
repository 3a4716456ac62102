"""Targets: classes, numbers and several labels from cells as they are; rows that cannot be used; folds."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankrange.audit.study import _folds
from rankrange.audit.target import find_target
from rankrange.errors import UserError
from rankrange.tables.columns import read_columns


def test_a_class_named_unknown_beside_numbers_stays_a_class():
    target = find_target(pa.table({"y": ["0", "1", "unknown"] * 20}), ["y"])
    assert target.names == ["0", "1", "unknown"]


@pytest.mark.parametrize("dictionary", [True, False])
def test_an_empty_text_is_a_missing_label(dictionary):
    cells = pa.array(["b", "a", "", " "] * 20)
    target = find_target(pa.table({"y": cells.dictionary_encode() if dictionary else cells}), ["y"])
    assert (target.names, len(target.y)) == (["a", "b"], 40)
    assert [target.text_of(i) for i in range(4)] == ["b", "a", "b", "a"]


def test_a_target_of_numbers_with_marks_leaves_these_rows_out_and_says_so():
    values = [f"{x:.5f}" for x in np.random.default_rng(1).normal(size=300)]
    target = find_target(pa.table({"y": ["-" if i % 5 == 0 else value for i, value in enumerate(values)]}), ["y"])
    assert (target.task, len(target.y)) == ("numbers", 240)
    assert "60" in " ".join(target.notes)


def test_multi_label_cells_are_distinguished_from_plain_texts_with_a_comma():
    sets = find_target(pa.table({"y": ["a|b", "a", "b", "b|c", "c"] * 10}), ["y"], separator="|")
    assert (sets.task, sets.names, sets.separator) == ("labels", ["a", "b", "c"], "|")
    places = find_target(pa.table({"y": ["Paris, France", "Rome, Italy"] * 20}), ["y"])
    assert (places.task, places.names) == ("classes", ["Paris, France", "Rome, Italy"])


def test_classes_from_numbers_texts_and_booleans():
    x = np.random.default_rng(2).normal(size=120)
    for y, expected in (
        (np.digitize(x, [-0.5, 0.5]), ["0", "1", "2"]),
        ((x > 0).tolist(), ["false", "true"]),
        (np.where(x > 0, 1.0, -1.0), ["-1", "1"]),
        (np.where(x > 0, "b", "a"), ["a", "b"]),
    ):
        target = find_target(pa.table({"y": y}), ["y"])
        assert target.task == "classes"
        assert [name.lower() for name in target.names] == expected
        np.testing.assert_array_equal([target.names[code].lower() for code in target.y], [_text(v) for v in y])


def _text(value):
    return str(value).lower().removesuffix(".0")


def test_many_different_numbers_are_a_regression_unless_the_task_says_otherwise():
    y = np.arange(60) % 30
    assert find_target(pa.table({"y": y}), ["y"]).task == "numbers"
    assert find_target(pa.table({"y": np.repeat(np.arange(5), 20)}), ["y"]).task == "classes"
    assert find_target(pa.table({"y": np.repeat(np.arange(5), 20)}), ["y"], "numbers").task == "numbers"
    assert find_target(pa.table({"y": np.repeat(np.arange(5), 20)}), ["y"], "classes").names == list("01234")


def folds_of(n, by, cells, seed=0):
    """The folds of a numeric target of n rows, and the groups or periods."""
    column = read_columns(pa.table({by: cells}))[0]
    target = find_target(pa.table({"y": np.arange(float(n))}), ["y"])
    return _folds(target, [column if by == "group" else None, column if by == "time" else None], seed)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 12) | st.none(), min_size=60, max_size=60))
@example([i % 5 for i in range(60)])
@example([0] * 60)
@example([None] * 60)
def test_a_group_is_never_in_two_parts_and_a_row_without_one_is_a_group_of_its_own(cells):
    groups = np.array([i + 100 if g is None else g for i, g in enumerate(cells)])
    if len(set(groups)) < 5:
        with pytest.raises(UserError, match="needs at least 5 groups"):
            folds_of(60, "group", cells)
        return
    tests = folds_of(60, "group", cells)[0].test
    assert (tests.sum(axis=0) == 1).all()
    for g in set(groups):
        assert (tests[:, groups == g].any(axis=1) == tests[:, groups == g].all(axis=1)).all()
    assert set(cells) != {None} or np.ptp(tests.sum(axis=1)) == 0


def test_folds_along_time_are_in_order_and_the_past_predicts_the_future():
    when = np.random.default_rng(0).permutation(60)
    folds, periods, along_time = folds_of(60, "time", when)
    assert along_time
    assert all(when[periods == f].max() < when[periods == f + 1].min() for f in range(4))
    for f in range(1, 5):
        assert when[folds.train[f] > 0].max() < when[folds.test[f] > 0].min()
    assert not ((folds.train > 0) & (folds.test > 0)).any()


@pytest.mark.parametrize("task", ["auto", "numbers"])
def test_money_is_a_target_of_numbers(task):
    plain = np.random.default_rng(0).normal(2000, 50, 260).round(2)
    target = find_target(pa.table({"amount": [f"${value:,.2f}" for value in plain]}), ["amount"], task)
    assert target.task == "numbers"
    np.testing.assert_allclose(target.y, plain)
