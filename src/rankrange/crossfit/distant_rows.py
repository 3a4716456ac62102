"""High-leverage rows: rows so far from all others that they should not train, because predictions there extrapolate."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from ..core.arrays import Array

# Rows whose distance from the centre is so many times that of three quarters of the rows are far, if they are few.
_FAR, _FEW_FAR = 2.5, 0.25
# A row is not far, wherever it lies, if its neighbour of this rank is at most so many times as far away as that of
# three quarters of the rows; it is looked for among so many rows, and so many pairs of rows are compared at most.
_NEXT, _AS_NEAR, _LOOKED_AMONG, _COMPARED = 5, 3.0, 20_000, 2e8
# A value that so many rows have is not extreme in its column: a level, if most rows of the column share one value, and
# a measurement. Two cells with the same code for "missing" are two outliers.
_COMMON_LEVEL, _COMMON_VALUE = 2, _NEXT
# Columns of at most so many levels; in how many of them an odd row has a level of its own; and rows that show whether a
# column may be one of these.
_LEVELS, _ODD_LEVELS, _SHOWN = 20, 3, 2000


def odd_rows(X: Any) -> Array:
    """Which rows have levels of their own where all others share a few: outliers, whatever their label.

    Asked are the columns of 2 to 20 levels that several rows have. A row is odd that has a value of its own in at least
    three of them, and in half of them.
    """
    n = X.shape[0]
    alone, asked = np.zeros(n, dtype=np.intp), 0
    for column in () if sp.issparse(X) else X.T:
        shown = column[:: 1 + n // _SHOWN]
        if len(np.unique(shown)) > _LEVELS + _FEW_FAR * len(shown):
            continue
        values, counts = np.unique(column, return_counts=True)
        single = values[counts == 1]
        if 2 <= len(values) - len(single) <= _LEVELS and len(single) <= _FEW_FAR * n:
            alone[np.isin(column, single)] += 1
            asked += 1
    return np.asarray(alone >= max(_ODD_LEVELS, asked / 2.0))


def far_rows(X: Any, codes: Array) -> Array:
    """Which rows lie so far out that they should not train: few, alone, and of classes that mostly lie near.

    Distances are in units of each column's middle rows. A value that many rows share is not far out in its column, rows
    that are close together are a kind of their own, and a class most of whose rows are far lies where it lies.
    """
    nowhere = np.zeros(len(codes), dtype=bool)
    if sp.issparse(X) or X.shape[1] == 0:
        return nowhere
    centre = np.median(X, axis=0)
    low, high = np.quantile(X, [0.1, 0.9], axis=0)
    width = np.maximum(1.4826 * np.median(np.abs(X - centre), axis=0), (high - low) / 2.56)
    spread = X.std(axis=0)
    measured = width > 1e-9 * spread
    width = np.where(measured, width, spread)
    Z = (X - centre) / np.where(width > 0, width, 1.0)
    radius = np.sqrt((Z**2).mean(axis=1))
    limit = _FAR * float(np.quantile(radius, 0.75))
    asked = np.flatnonzero(radius > limit)
    if not len(asked):
        return nowhere
    own = Z[asked]
    for column in range(X.shape[1]):
        values, counts = np.unique(X[:, column], return_counts=True)
        common = counts >= (_COMMON_VALUE if measured[column] else _COMMON_LEVEL)
        own[np.isin(X[asked, column], values[common]), column] = 0.0
    far = nowhere
    far[asked] = np.sqrt((own**2).mean(axis=1)) > limit
    if far.mean() > _FEW_FAR:
        return np.zeros(len(codes), dtype=bool)
    far[far] = _alone(Z, np.flatnonzero(far))
    mostly = np.bincount(codes, weights=far) > 0.5 * np.bincount(codes)
    return far & ~mostly[codes]


def _alone(Z: Array, rows: Array) -> Array:
    """Which of these rows of Z have no others around them, compared with what is usual for all rows.

    A kind of row that lies far out, whatever its labels say, has neighbours; outliers have none.
    """
    rng, n = np.random.default_rng(0), len(Z)
    size = int(min(n, _LOOKED_AMONG, max(_COMPARED / max(len(rows), 1), 10 * _NEXT)))
    if not len(rows) or size <= _NEXT:
        return np.ones(len(rows), dtype=bool)
    pool = rng.choice(n, size, replace=False)
    search = NearestNeighbors(n_neighbors=_NEXT + 1).fit(Z[pool])  # one more, because a row of the pool finds itself
    usual = float(np.quantile(search.kneighbors(Z[pool[:_SHOWN]])[0][:, -1], 0.75))
    return np.asarray(search.kneighbors(Z[rows])[0][:, -1] > _AS_NEAR * usual)
