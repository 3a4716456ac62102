"""Columns of two values, such as indicators of missing cells and of levels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .arrays import Array

# Rows that show which columns have two values; and rows that each value needs.
_SHOWN, _LEAST_SIDE = 2000, 20


class Side(NamedTuple):
    """The rows that have one of the two values of a column; `lacking` if another column is constant on them."""

    column: int
    value: float
    lacking: bool

    def of(self, X: Any) -> Array:
        """(n,): which rows these are."""
        return np.asarray(X[:, self.column] == self.value)


def sides(X: Any) -> list[Side]:
    """Both sides of each column of two values that 20 rows or more have each.

    A missing cell has been filled with one value: that is how an indicator of missing cells is recognised.
    """
    found: list[Side] = []
    if sp.issparse(X):
        return found
    n = X.shape[0]
    shown = X[:: 1 + n // _SHOWN]
    two = _only_ends(shown)
    others = shown[:, ~two]  # a table of words has none
    for column in np.flatnonzero(two & (shown.min(axis=0) < shown.max(axis=0))).tolist():
        low, high = X[:, column].min(), X[:, column].max()
        counts = [int((X[:, column] == end).sum()) for end in (low, high)]
        if sum(counts) == n and min(counts) >= _LEAST_SIDE:
            parts = [others[shown[:, column] == end] for end in (low, high)]
            lacking = [bool((part == part[:1]).all(axis=0).any()) for part in parts]
            found += [Side(column, float(end), lacks) for end, lacks in zip((low, high), lacking, strict=True)]
    return found


def _only_ends(X: Array) -> Array:
    """Which columns hold nothing but their least and their largest value."""
    return np.asarray(((X.min(axis=0) == X) | (X.max(axis=0) == X)).all(axis=0))
