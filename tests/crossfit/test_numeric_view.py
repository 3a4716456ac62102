"""Numbers of a data frame: missing cells are filled and marked, levels become columns."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from rankrange.crossfit.numeric import numeric_view
from rankrange.crossfit.predictions import missing_cells


@pytest.mark.parametrize("kind", ["bool", "int", "float", "decimal"])
def test_missing_cells_of_polars_are_filled_and_marked(kind):
    pl = pytest.importorskip("polars")
    from decimal import Decimal

    make = {"bool": bool, "int": int, "float": float, "decimal": lambda v: Decimal(v)}[kind]
    cells = [None if i % 9 == 0 else make(i % 2) for i in range(90)]
    found = numeric_view(pl.DataFrame({"b": pl.Series(cells)}))
    known = np.array([np.nan if cell is None else float(cell) for cell in cells])
    assert found.shape == (90, 2)
    np.testing.assert_array_equal(found[:, 1], np.isnan(known))
    np.testing.assert_array_equal(found[~np.isnan(known), 0], known[~np.isnan(known)])


def test_columns_of_two_values_mark_what_is_missing():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=300), rng.normal(size=300), rng.random(300) < 0.3, rng.random(300) < 0.5])
    missing = X[:, 2] == 1
    X[missing, 0] = 0.25  # filled with one value
    np.testing.assert_array_equal(missing_cells(X), [missing])
    assert not len(missing_cells(X[:, 2:]))  # nothing but columns of two values
    assert not len(missing_cells(sp.csr_matrix(X)))
    X[:, 2] = np.arange(300) < 19  # too few rows
    X[:19, 0] = 0.25
    assert not len(missing_cells(X))


def test_a_date_that_is_missing_is_marked_and_filled_as_a_number_is():
    pd = pytest.importorskip("pandas")
    day = pd.Series(pd.date_range("2024-01-01", periods=30))
    late = day.copy()
    late[[3, 17]] = pd.NaT
    number = day.astype("int64").astype(float)
    number[[3, 17]] = np.nan
    np.testing.assert_allclose(numeric_view(pd.DataFrame({"x": late})), numeric_view(pd.DataFrame({"x": number})))
    filled = numeric_view(pd.DataFrame({"x": late}))
    np.testing.assert_array_equal(np.flatnonzero(filled[:, 1]), [3, 17])
    assert filled[3, 0] == np.median(np.delete(filled[:, 0], [3, 17]))


def test_the_most_frequent_levels_of_a_column_are_kept():
    pd = pytest.importorskip("pandas")
    counts = np.arange(1, 31)  # thirty levels, each more frequent than the one before
    cells = np.random.default_rng(0).permutation(np.repeat([f"level {i:02d}" for i in range(30)], counts))
    columns = numeric_view(pd.DataFrame({"x": cells}))
    assert sorted(columns.sum(axis=0).astype(int).tolist()) == list(range(11, 31))
