"""Few rows of many columns, in coordinates of the space that the rows span.

A squared penalty keeps the minimiser of any loss of X w in the span of the rows: whatever stands at right angles to it
changes no score and costs penalty. With fewer rows than columns the same problem therefore has only as many unknowns as
rows. The basis is orthonormal, so that the penalty, the optimum and every score stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from .arrays import Array

# Up to so many rows a matrix of rows by rows is factored quickly; with more, solvers multiply with X instead.
_MOST_ROWS = 1000


@dataclass(frozen=True, eq=False)
class RowSpace:
    """The span of the rows of a matrix.

    Parameters
    ----------
    X : ndarray of shape (n, r)
        The rows in coordinates of the span.
    basis : ndarray of shape (p, r)
        Orthonormal columns: the rows as they were given are ``X @ basis.T``.
    """

    X: Array
    basis: Array

    @classmethod
    def of(cls, X: Any) -> RowSpace | None:
        """The span of the rows, or None where it would save nothing: sparse rows, many rows, or as many as columns."""
        n, p = X.shape
        if sp.issparse(X) or not n < p or n > _MOST_ROWS:
            return None
        basis, lower = np.linalg.qr(np.asarray(X, dtype=np.float64).T)
        return cls(np.ascontiguousarray(lower.T, dtype=X.dtype), basis)

    def coordinates(self, X: Any) -> Array:
        """Rows (n, p), or coefficients (outputs, p), in coordinates of the span; what lies outside it is left out."""
        return np.asarray(X @ self.basis, dtype=X.dtype)

    def coefficients(self, w: Array) -> Array:
        """Coefficients (outputs, p) of the columns as they were given, from those in coordinates of the span."""
        return np.asarray(w @ self.basis.T)


def spanned(X: Any) -> Any:
    """X in coordinates of the span of its rows if there are fewer rows than columns, otherwise X itself.

    For fits with a squared penalty of which only scores of these rows are asked.
    """
    space = RowSpace.of(X)
    return X if space is None else space.X
