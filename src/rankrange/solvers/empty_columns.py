"""Remove empty columns of sparse X, whose coefficients are zero because of the penalty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.objective import Design, Objective
from .descent import Result

# Empty columns are removed if at most this share of the columns has entries.
_USED = 0.9


def without_empty_columns(objective: Objective) -> tuple[Objective, Array | None]:
    """The objective without empty columns, and the indices of the remaining columns of W, the intercept included.

    Returns the objective itself and None if less than a tenth or all of the columns are empty, or if X is not in CSR
    format.
    """
    design = objective.design
    X: Any = design.X
    if not design.sparse or X.format != "csr":
        return objective, None
    used = np.bincount(X.indices, minlength=design.d) > 0
    count = int(np.count_nonzero(used))
    if not 0 < count <= _USED * design.d:
        return objective, None
    new_index = np.cumsum(used, dtype=X.indices.dtype) - 1
    # The entries are shared with X; only the column indices are new.
    few = sp.csr_array((X.data, new_index[X.indices], X.indptr), shape=(design.n, count))
    columns = np.append(np.flatnonzero(used), np.arange(design.d, design.p))
    return replace(objective, design=Design(few, design.fit_intercept)), columns


def with_empty_columns(result: Result, columns: Array | None, p: int) -> Result:
    """The result with zero coefficients for the removed columns."""
    if columns is None:
        return result
    W = np.zeros((len(result.w), p))
    W[:, columns] = result.w
    return replace(result, w=W)
