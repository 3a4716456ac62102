"""Binary columns, such as indicators of missing cells and of categories."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .arrays import Array

# The number of rows that are checked first, and the least number of rows with each value.
_SHOWN, _MIN_SIDE = 2000, 20


class Side(NamedTuple):
    """The rows with one of the two values of a column; `lacking` if another column is constant on these rows."""

    column: int
    value: float
    lacking: bool

    def of(self, X: Any) -> Array:
        """Array (n,): a mask of these rows."""
        return np.asarray(X[:, self.column] == self.value)


def sides(X: Any) -> list[Side]:
    """Both sides of each binary column in which each value occurs in at least 20 rows.

    Missing cells were filled with one value, so another column is constant where an indicator marks missing cells.
    """
    found: list[Side] = []
    if sp.issparse(X):
        return found
    n = X.shape[0]
    shown = X[:: 1 + n // _SHOWN]
    two = _only_ends(shown)
    others = shown[:, ~two]  # sparse word counts have no binary columns
    for column in np.flatnonzero(two & (shown.min(axis=0) < shown.max(axis=0))).tolist():
        low, high = X[:, column].min(), X[:, column].max()
        counts = [int((X[:, column] == end).sum()) for end in (low, high)]
        if sum(counts) == n and min(counts) >= _MIN_SIDE:
            parts = [others[shown[:, column] == end] for end in (low, high)]
            lacking = [bool((part == part[:1]).all(axis=0).any()) for part in parts]
            found += [Side(column, float(end), lacks) for end, lacks in zip((low, high), lacking, strict=True)]
    return found


def _only_ends(X: Array) -> Array:
    """Which columns have only two values, their minimum and their maximum."""
    return np.asarray(((X.min(axis=0) == X) | (X.max(axis=0) == X)).all(axis=0))
