"""Binary columns, such as indicators of missing cells and of categories."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .arrays import Array

# About this many rows are examined first; and the least number of rows with each value.
_SAMPLED, _MIN_ROWS = 2000, 20


class Side(NamedTuple):
    """The rows of X in which a binary column has a given value.

    `lacking` is True if another column, which is not binary, is constant on these rows, as far as a sample shows.
    """

    column: int
    value: float
    lacking: bool

    def of(self, X: Any) -> Array:
        """A mask (n,) of the rows of X in which the column has the value."""
        return np.asarray(X[:, self.column] == self.value)


def sides(X: Any) -> list[Side]:
    """Two `Side` objects, one per value, for each binary column with at least 20 rows of each value.

    The list is empty for a sparse X. Missing cells of X must have been filled with a constant. If a binary column then
    indicates the missing cells of another column, that column is constant on the indicated rows, and `lacking` is True.
    Columns are first examined on a sample of at most 2000 rows; those that are constant there are left out.
    """
    found: list[Side] = []
    if sp.issparse(X):
        return found
    n = X.shape[0]
    sample = X[:: 1 + n // _SAMPLED]
    binary = _at_most_two_values(sample)
    others = sample[:, ~binary]
    for column in np.flatnonzero(binary & (sample.min(axis=0) < sample.max(axis=0))).tolist():
        low, high = X[:, column].min(), X[:, column].max()
        counts = [int((X[:, column] == value).sum()) for value in (low, high)]
        if sum(counts) == n and min(counts) >= _MIN_ROWS:
            parts = [others[sample[:, column] == value] for value in (low, high)]
            lacking = [bool((part == part[:1]).all(axis=0).any()) for part in parts]
            found += [Side(column, float(value), lacks) for value, lacks in zip((low, high), lacking, strict=True)]
    return found


def _at_most_two_values(X: Array) -> Array:
    """A mask of the columns whose entries all equal the column's minimum or its maximum."""
    return np.asarray(((X.min(axis=0) == X) | (X.max(axis=0) == X)).all(axis=0))
