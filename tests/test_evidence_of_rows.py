"""The sentence of a finding shows what it says: a value outside the range it names, one finding for one cause."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.datasets import load_digits

pa = pytest.importorskip("pyarrow")

from rankrange.audit.problems import RowProblem  # noqa: E402
from rankrange.audit.row_problems import find_row_problems, most_certain  # noqa: E402
from rankrange.audit.target import find_target  # noqa: E402


def _problems(columns, n):
    table = pa.table({**columns, "y": ["a", "b"] * (n // 2)})
    return find_row_problems(table.select(list(columns)), find_target(table, ["y"]))


def _correlated(n=600, p=4, seed=0):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n)
    return {f"x{j}": base + 0.05 * rng.normal(size=n) for j in range(p)}


def test_a_missing_cell_is_never_the_one_that_does_not_go_together():
    columns = _correlated()
    for j in range(4):
        columns[f"x{j}"][j::40] = np.nan
    found = _problems(columns, 600)
    assert not [p for p in found if p.kind == "outlier"], [p.sentence for p in found]


def test_a_cell_that_contradicts_the_others_is_found_beside_missing_ones():
    columns = _correlated()
    columns["x0"][::40] = np.nan
    row = int(np.argmin(np.abs(columns["x1"] - 1.5)))
    columns["x1"][row], columns["x0"][row] = -1.5, np.nan
    found = [p for p in _problems(columns, 600) if p.kind == "outlier"]
    assert [(p.rows, p.column) for p in found] == [((row + 1,), "x1")]


def test_a_value_called_unexpected_lies_outside_of_what_is_expected():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        base = rng.normal(size=500)
        columns = {f"x{j}": np.round(base + 0.1 * rng.normal(size=500)) * 250 + 2000 for j in range(3)}
        columns["x3"] = np.minimum(np.round(2000 + 300 * base), 2501.0)
        columns["x0"][rng.integers(0, 500, size=3)] = 2000.0
        for problem in _problems(columns, 500):
            if "is expected given" in problem.sentence:
                ends = [float(end.replace(",", "")) for end in problem.usual.split(" to ")]
                low, high = ends[0], ends[-1]
                assert not low <= float(problem.value.replace(",", "")) <= high, problem.sentence


def test_a_range_of_one_value_is_written_as_this_value():
    pixels = load_digits().data[:600]
    found = [p for p in _problems({f"p{j}": pixels[:, j] for j in range(64)}, 600) if "is expected given" in p.sentence]
    assert found
    for problem in found:
        ends = problem.usual.split(" to ")
        assert len(set(ends)) == len(ends)
        assert f"but {problem.usual} is expected" in problem.sentence


def test_the_sentence_of_a_batch_never_has_two_equal_numbers():
    rng = np.random.default_rng(0)
    values = np.where(rng.random(2000) < 0.8, 0.0, rng.normal(size=2000).round(2))
    values[700:740] = np.where(rng.random(40) < 0.55, 0.0, 6.0 + rng.normal(size=40).round(2))
    other = rng.normal(size=2000)
    follows = other + 0.1 * rng.normal(size=2000)
    follows[300:400] = -follows[300:400]
    batches = [p for p in _problems({"x": values, "a": other, "b": follows}, 2000) if p.kind == "batch"]
    assert batches
    for problem in batches:
        compared = re.search(r"there is (\S+), in the other rows (\S+)", problem.sentence)
        assert compared is None or compared[1] != compared[2], problem.sentence


def test_far_cells_of_one_value_are_one_finding():
    values = np.random.default_rng(0).normal(size=1000)
    values[100:900:50] = 5000.0
    far = [p for p in _problems({"x": values}, 1000) if p.kind == "outlier"]
    assert [p.rows for p in far] == [tuple(range(101, 901, 50))]
    assert "16 rows" in far[0].sentence


def test_what_is_printed_first_has_the_surest_of_each_kind():
    cells = [RowProblem("outlier", (i,), "x", "", "", "", 1.0) for i in range(50)]
    frozen = RowProblem("batch", tuple(range(100, 17_524)), "x", "", "", "", 0.9)
    shorter = RowProblem("batch", tuple(range(9)), "x", "", "", "", 0.9)
    drift = RowProblem("drift", (), "x", "", "", "", 0.6)
    shown = most_certain([*cells, shorter, frozen, drift], 10)
    assert len(shown) == 10
    assert frozen in shown[:3]
    assert drift in shown[:3]
    assert shorter not in shown[:3]
