"""Out-of-fold predictions of nearest neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

from ..core.arrays import Array
from .folds import Folds

# The number of neighbours, and the weight in rows by which their mean is shrunk towards that of all training rows.
_NEIGHBOURS, _SHRUNK = 15, 2.0
# The largest number of rows to search.
POOL = 20_000


def neighbour_means(X: Any, targets: Array, folds: Folds, rng: np.random.Generator, mass: Array | None = None) -> Array:
    """Array (n, targets): means of the `targets` of the 15 nearest training rows; NaN for rows that no fold tests.

    A row of weight 2 counts as two neighbours. With many training rows, a sample of them is searched. For classes,
    `targets` has a column of zeros and ones for each.
    """
    parts, weight = [], np.ones(X.shape[0]) if mass is None else mass
    for train, test in zip(folds.train, folds.test, strict=True):
        pool, rows = np.flatnonzero(train & (weight > 0)), np.flatnonzero(test)
        if len(pool) > POOL:
            pool = np.sort(rng.choice(pool, POOL, replace=False))
        search = NearestNeighbors(n_neighbors=min(_NEIGHBOURS, len(pool))).fit(X[pool])
        near = pool[search.kneighbors(X[rows], return_distance=False)] if len(rows) else np.empty((0, 1), dtype=np.intp)
        before = np.cumsum(weight[near], axis=1) - weight[near]
        votes = np.clip(_NEIGHBOURS - before, 0.0, weight[near])
        total = (
            np.einsum("rn,rnt->rt", votes, targets[near])
            + _SHRUNK * (weight[pool] @ targets[pool]) / weight[pool].sum()
        )
        parts.append(total / (votes.sum(axis=1, keepdims=True) + _SHRUNK))
    return folds.average(parts)
