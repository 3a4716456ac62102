"""Coordinates in the span of the rows, for data with fewer rows than columns.

With a squared penalty, the minimiser of any loss of X w lies in the span of the rows, because an orthogonal component
changes no score and increases the penalty. With fewer rows than columns, the problem therefore has only as many
unknowns as rows. The basis is orthonormal, so penalty, optimum and scores do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from .arrays import Array

# Up to this many rows, factoring a matrix of rows by rows is fast; with more rows, solvers use products with X.
_MAX_ROWS = 1000


@dataclass(frozen=True, eq=False)
class RowSpace:
    """The span of the rows of a matrix.

    X (n, r) has the rows in coordinates of the span, and `basis` (p, r) its orthonormal columns: the original rows are
    ``X @ basis.T``.
    """

    X: Array
    basis: Array

    @classmethod
    def of(cls, X: Any) -> RowSpace | None:
        """The span of the rows of X; None if X is sparse, has more than 1000 rows, or at least as many rows as columns.

        In these cases the coordinates would save no time.
        """
        n, p = X.shape
        if sp.issparse(X) or not n < p or n > _MAX_ROWS:
            return None
        basis, lower = np.linalg.qr(np.asarray(X, dtype=np.float64).T)
        return cls(np.ascontiguousarray(lower.T, dtype=X.dtype), basis)

    def coordinates(self, X: Any) -> Array:
        """Project rows (n, p) or coefficients (outputs, p) onto the span and return their coordinates."""
        return np.asarray(X @ self.basis, dtype=X.dtype)

    def coefficients(self, w: Array) -> Array:
        """Coefficients (outputs, p) of the original columns, from coefficients in coordinates of the span."""
        return np.asarray(w @ self.basis.T)


def spanned(X: Any) -> Any:
    """X in coordinates of the span of its rows; X itself if `RowSpace.of` returns None.

    Use it for fits with a squared penalty of which only the scores of these rows are needed.
    """
    space = RowSpace.of(X)
    return X if space is None else space.X
