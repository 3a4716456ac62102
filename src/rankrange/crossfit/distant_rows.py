"""Detection of high-leverage rows. They are excluded from training, because their predictions are extrapolations."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from ..core.arrays import Array

# A row has high leverage if its distance from the centre exceeds this multiple of the 75% quantile, and few rows do.
_DISTANT, _MAX_DISTANT = 2.5, 0.25
# A row with neighbours is not a high-leverage row: the rank of the neighbour, the largest multiple of the 75% quantile
# of such distances, the number of rows to search, and the largest number of pairs to compare.
_NEXT, _AS_NEAR, _NEIGHBOUR_ROWS, _COMPARED = 5, 3.0, 20_000, 2e8
# A value is not extreme if it occurs in this many rows: in a column where most rows have the same value, and in other
# columns. Two cells with the same code for "missing" are two outliers.
_COMMON_LEVEL, _COMMON_VALUE = 2, _NEXT
# The largest number of shared values of a column, the least number of unique values of a flagged row, and the number of
# rows in samples.
_LEVELS, _ODD_LEVELS, _SAMPLED = 20, 3, 2000


def rows_with_unique_levels(X: Any) -> Array:
    """A mask (n,) of the rows whose values are unique in columns in which the other rows share a few values.

    Such rows are outliers, whatever their label. Columns with 2 to 20 shared values are used, if at most a quarter of
    the rows has a unique value. A row is flagged if its value is unique in at least three and in at least half of these
    columns. No row of a sparse X is flagged.
    """
    n = X.shape[0]
    n_unique, candidates = np.zeros(n, dtype=np.intp), 0
    for column in () if sp.issparse(X) else X.T:
        sample = column[:: 1 + n // _SAMPLED]
        if len(np.unique(sample)) > _LEVELS + _MAX_DISTANT * len(sample):
            continue
        values, counts = np.unique(column, return_counts=True)
        single = values[counts == 1]
        if 2 <= len(values) - len(single) <= _LEVELS and len(single) <= _MAX_DISTANT * n:
            n_unique[np.isin(column, single)] += 1
            candidates += 1
    return np.asarray(n_unique >= max(_ODD_LEVELS, candidates / 2.0))


def high_leverage_rows(X: Any, codes: Array) -> Array:
    """A mask (n,) of the high-leverage rows: isolated rows that are distant from the medians of the columns.

    Distances are in robust units of each column; a row is distant beyond 2.5 times the 75% quantile. Values that
    several rows share do not count as distant, distant rows that are close to each other are not flagged, nor are rows
    of a class (`codes`) in which most rows would be flagged. If more than a quarter of all rows is distant, or if X is
    sparse or has no columns, none is flagged.
    """
    none = np.zeros(len(codes), dtype=bool)
    if sp.issparse(X) or X.shape[1] == 0:
        return none
    centre = np.median(X, axis=0)
    low, high = np.quantile(X, [0.1, 0.9], axis=0)
    width = np.maximum(1.4826 * np.median(np.abs(X - centre), axis=0), (high - low) / 2.56)
    spread = X.std(axis=0)
    measured = width > 1e-9 * spread
    width = np.where(measured, width, spread)
    Z = (X - centre) / np.where(width > 0, width, 1.0)
    radius = np.sqrt((Z**2).mean(axis=1))
    limit = _DISTANT * float(np.quantile(radius, 0.75))
    candidates = np.flatnonzero(radius > limit)
    if not len(candidates):
        return none
    outlying = Z[candidates]
    for column in range(X.shape[1]):
        values, counts = np.unique(X[:, column], return_counts=True)
        common = counts >= (_COMMON_VALUE if measured[column] else _COMMON_LEVEL)
        outlying[np.isin(X[candidates, column], values[common]), column] = 0.0
    distant = none
    distant[candidates] = np.sqrt((outlying**2).mean(axis=1)) > limit
    if distant.mean() > _MAX_DISTANT:
        return np.zeros(len(codes), dtype=bool)
    distant[distant] = _isolated(Z, np.flatnonzero(distant))
    mostly = np.bincount(codes, weights=distant) > 0.5 * np.bincount(codes)
    return distant & ~mostly[codes]


def _isolated(Z: Array, rows: Array) -> Array:
    """A mask of those of `rows` whose fifth neighbour in Z is more than three times as distant as usual.

    Rows of a distant cluster have near neighbours; outliers have none. Neighbours are searched in a sample of at most
    20,000 rows of Z. If Z has five rows or fewer, all are isolated.
    """
    rng, n = np.random.default_rng(0), len(Z)
    size = int(min(n, _NEIGHBOUR_ROWS, max(_COMPARED / max(len(rows), 1), 10 * _NEXT)))
    if not len(rows) or size <= _NEXT:
        return np.ones(len(rows), dtype=bool)
    pool = rng.choice(n, size, replace=False)
    # one more, because a row of the pool is its own neighbour
    search = NearestNeighbors(n_neighbors=_NEXT + 1).fit(Z[pool])
    typical = float(np.quantile(search.kneighbors(Z[pool[:_SAMPLED]])[0][:, -1], 0.75))
    return np.asarray(search.kneighbors(Z[rows])[0][:, -1] > _AS_NEAR * typical)
