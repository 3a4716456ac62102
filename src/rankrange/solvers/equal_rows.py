"""Merge equal rows into one row with their total weight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from .descent import Result

# The size of the sample that decides whether to merge, and the least number of repetitions in it: if half of all rows
# are distinct, a sample of 1,000 contains more than 5 repetitions for up to 200,000 rows.
_SAMPLED, _REPEATED = 1000, 5


def merged(objective: Objective) -> tuple[Objective, Array | None]:
    """The objective with equal rows merged into one of their total mass, and the index of the merged row for each row.

    Equal rows have the same features, target and group. Returns the objective itself and None if more than half of the
    rows are distinct or a sample of them has few repetitions, if X is sparse, or if the target is multi-label.
    """
    design, rows = objective.design, objective.design.n
    if design.sparse or rows <= 1 or objective.y.ndim > 1:
        return objective, None
    sample = np.arange(0, rows, max(1, rows // _SAMPLED))
    if len(sample) - len(np.unique(_rows(objective, sample))) < min(_REPEATED, rows // 4):
        return objective, None
    _, first, which = np.unique(_rows(objective, slice(None)), return_index=True, return_inverse=True)
    if 2 * len(first) > rows:
        return objective, None
    mass = np.bincount(which, weights=objective.sample_weight, minlength=len(first)).astype(np.float64)
    small = objective.rows(first, objective.m, objective.k)
    return replace(small, sample_weight=mass), which


def undone(result: Result, which: Array | None) -> Result:
    """The result for the merged rows, with its losses expanded to all rows."""
    return result if which is None or result.losses is None else replace(result, losses=result.losses[which])


def _rows(objective: Objective, rows: Any) -> Array:
    """Some rows, each with its target and group as one value; values are equal only if all of their bytes are."""
    groups = getattr(objective.aggregate, "groups", None)
    parts = [objective.design.X[rows], objective.y[rows], *([] if groups is None else [groups[rows]])]
    table = np.column_stack(parts).astype(np.float64) + 0.0  # -0.0 becomes 0.0
    return np.ascontiguousarray(table).view(np.dtype((np.void, 8 * table.shape[1])))[:, 0]
