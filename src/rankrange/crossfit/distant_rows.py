"""Detection of high-leverage rows. They are excluded from training, because their predictions are extrapolations."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from ..core.arrays import Array

# A row has high leverage if its distance from the centre exceeds this multiple of the 75% quantile, and at most a
# quarter of the rows does.
_DISTANT, _MAX_DISTANT = 2.5, 0.25
# A row with neighbours has no high leverage: the rank of the neighbour, the largest multiple of the 75% quantile of
# such distances, and the number of rows to search.
_NEXT, _AS_NEAR, _SAMPLED = 5, 3.0, 2000
# The largest number of values that rows share in a column of levels, and the least number of unique values of a flagged
# row.
_LEVELS, _ODD_LEVELS = 20, 3


def rows_with_unique_levels(X: Any) -> Array:
    """A mask (n,) of the rows whose values are unique in columns in which the other rows share a few values.

    A row is flagged if its value is unique in at least three and in at least half of the columns with 2 to 20 shared
    values and at most a quarter of unique ones. No row of a sparse X is flagged.
    """
    n = X.shape[0]
    n_unique, candidates = np.zeros(n, dtype=np.intp), 0
    for column in () if sp.issparse(X) else X.T:
        _, value_of, counts = np.unique(column, return_inverse=True, return_counts=True)
        single = int((counts == 1).sum())
        if 2 <= len(counts) - single <= _LEVELS and single <= _MAX_DISTANT * n:
            n_unique += counts[value_of] == 1
            candidates += 1
    return np.asarray(n_unique >= max(_ODD_LEVELS, candidates / 2.0))


def high_leverage_rows(X: Any, codes: Array) -> Array:
    """A mask (n,) of the high-leverage rows: isolated rows that are distant from the medians of the columns.

    Distances are in robust units of each column; a row is distant beyond 2.5 times the 75% quantile. Values that
    several rows share are not distant. Rows of a class (`codes`) in which most rows would be flagged are not, and none
    if more than a quarter of all rows is distant, or if X is sparse or has no columns.
    """
    none = np.zeros(len(codes), dtype=bool)
    if sp.issparse(X) or X.shape[1] == 0:
        return none
    centre, spread = np.median(X, axis=0), X.std(axis=0)
    low, high = np.quantile(X, [0.1, 0.9], axis=0)
    width = np.maximum(1.4826 * np.median(np.abs(X - centre), axis=0), (high - low) / 2.56)
    measured = width > 1e-9 * spread
    width = np.where(measured, width, spread)
    Z = (X - centre) / np.where(width > 0, width, 1.0)
    radius = np.sqrt((Z**2).mean(axis=1))
    limit = _DISTANT * float(np.quantile(radius, 0.75))
    rows = np.flatnonzero(radius > limit)
    outlying = Z[rows]
    for column in range(X.shape[1]) if len(rows) else ():
        values, counts = np.unique(X[:, column], return_counts=True)
        # two cells with the same code for "missing" are outliers; a level of an otherwise constant column is none
        common = values[counts >= (_NEXT if measured[column] else 2)]
        outlying[np.isin(X[rows, column], common), column] = 0.0
    rows = rows[np.sqrt((outlying**2).mean(axis=1)) > limit]
    if not 0 < len(rows) <= _MAX_DISTANT * len(X):
        return none
    distant = none.copy()
    distant[rows[_isolated(Z, rows)]] = True
    mostly = np.bincount(codes, weights=distant) > 0.5 * np.bincount(codes)
    return distant & ~mostly[codes]


def _isolated(Z: Array, rows: Array) -> Array:
    """A mask of those of `rows` whose fifth neighbour in a sample of Z is more than three times as distant as usual."""
    if len(Z) <= _NEXT:
        return np.ones(len(rows), dtype=bool)
    pool = Z[np.random.default_rng(0).choice(len(Z), min(len(Z), _SAMPLED), replace=False)]
    # one more, because a row of the pool is its own neighbour
    search = NearestNeighbors(n_neighbors=_NEXT + 1).fit(pool)
    usual, own = (search.kneighbors(part)[0][:, -1] for part in (pool, Z[rows]))
    return np.asarray(own > _AS_NEAR * np.quantile(usual, 0.75))
