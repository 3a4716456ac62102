"""Training rows in the form the solvers want: without rows of no weight, and in an order that does not depend on how
they were given.

sample_weight means repetition: weight 2 equals the row twice. A search from random starts keeps that promise only if
both forms of the data become the same arrays, so a small set is sorted and its repetitions are written out or, where
they are many, merged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array

# Sorting rows costs little up to this many, and repetition is exact there.
_SORTED_UP_TO = 5000
# A sparse matrix of up to this many entries is quicker as a dense one.
_DENSE_UP_TO = 1_000_000


def canonical_rows(X: Any, y: Array, weight: Array | None) -> tuple[Any, Array, Array | None]:
    """Training rows as a solver wants them: without rows of no weight, small sets in one order.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        The rows.
    y : ndarray of shape (n,) or (n, L)
        Their targets.
    weight : ndarray of shape (n,) or None
        Their weights.

    Returns
    -------
    X, y, weight
        A weight of None means that each row counts once.
    """
    if sp.issparse(X) and X.shape[0] * X.shape[1] <= _DENSE_UP_TO:
        X = X.toarray()
    if weight is not None:
        if not (weight > 0).all():
            present = np.flatnonzero(weight > 0)
            X, y, weight = X[present], y[present], weight[present]
        if (weight == 1.0).all():
            weight = None
    whole = weight is None or bool((weight == np.floor(weight)).all())
    total = len(y) if weight is None else float(weight.sum())
    if sp.issparse(X) or not whole or total > _SORTED_UP_TO:
        return X, y, weight
    return _sorted(X, y, weight, int(total))


def _sorted(X: Array, y: Array, weight: Array | None, total: int) -> tuple[Array, Array, Array | None]:
    joined = np.column_stack([X, y]) + 0.0  # -0.0 becomes 0.0: they are the same value
    keys = np.ascontiguousarray(joined).view(np.dtype((np.void, joined.dtype.itemsize * joined.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    counts = np.bincount(inverse, weights=weight, minlength=len(first))
    if len(first) <= total // 2:
        return X[first], y[first], counts
    order = np.repeat(first, counts.astype(np.intp))
    return X[order], y[order], None
