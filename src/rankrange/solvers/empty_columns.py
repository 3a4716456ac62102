"""Leave out the columns of sparse rows that no row has: a penalty keeps their coefficients at zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.objective import Design, Objective
from .descent import Result

# The share of the columns up to which the others are worth leaving out.
_USED = 0.9


def without_empty_columns(objective: Objective) -> tuple[Objective, Array | None]:
    """The objective of the columns that some row has, and which columns of W these are.

    Returns None and the objective itself if hardly any column is empty, and for dense rows.
    """
    design = objective.design
    X: Any = design.X
    if not design.sparse or X.format != "csr":
        return objective, None
    used = np.bincount(X.indices, minlength=design.d) > 0
    count = int(np.count_nonzero(used))
    if not 0 < count <= _USED * design.d:
        return objective, None
    place = np.cumsum(used, dtype=X.indices.dtype) - 1
    # The entries are shared with X: only their columns have other numbers.
    few = sp.csr_array((X.data, place[X.indices], X.indptr), shape=(design.n, count))
    columns = np.append(np.flatnonzero(used), np.arange(design.d, design.p))
    return replace(objective, design=Design(few, design.fit_intercept)), columns


def with_empty_columns(result: Result, columns: Array | None, p: int) -> Result:
    """The result with coefficients of zero for the columns that were left out."""
    if columns is None:
        return result
    W = np.zeros((len(result.w), p))
    W[:, columns] = result.w
    return replace(result, w=W)
