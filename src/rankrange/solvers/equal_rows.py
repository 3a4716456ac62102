"""Merge equal rows into one row with their total weight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from .descent import Result

# The size of the sample that decides whether to merge, and the least number of repetitions in it: if half of all rows
# are distinct, a sample of 1,000 contains more than 5 repetitions for up to 200,000 rows.
_SAMPLED, _REPEATED = 1000, 5
_BLOCK = 1 << 14


def merged(objective: Objective) -> tuple[Objective, Array | None]:
    """The objective with equal rows merged into one of their total mass, and the index of the merged row for each row.

    Equal rows have the same features, target and group. Returns the objective itself and None if more than half of the
    rows are distinct or a sample of them has few repetitions, if X is sparse, or if the target is multi-label.
    """
    design, rows = objective.design, objective.design.n
    if design.sparse or rows <= 1 or objective.y.ndim > 1:
        return objective, None
    sample = np.arange(0, rows, max(1, rows // _SAMPLED))
    if len(sample) - len(np.unique(_keys(objective, sample))) < min(_REPEATED, rows // 4):
        return objective, None
    _, first, which = np.unique(_keys(objective, None), return_index=True, return_inverse=True)
    if 2 * len(first) > rows or not _are_equal(objective, first, which):
        return objective, None
    mass = np.bincount(which, weights=objective.sample_weight, minlength=len(first)).astype(np.float64)
    small = objective.rows(first, objective.m, objective.k)
    return replace(small, sample_weight=mass), which


def undone(result: Result, which: Array | None) -> Result:
    """The result for the merged rows, with its losses expanded to all rows."""
    return result if which is None or result.losses is None else replace(result, losses=result.losses[which])


def _keys(objective: Objective, rows: Array | None) -> Array:
    """A hash of each row with its target and group, for some rows or for all (None)."""
    X = objective.design.X if rows is None else objective.design.X[rows]
    y = objective.y if rows is None else objective.y[rows]
    mix = np.random.default_rng(0).normal(size=objective.design.d + 2)
    keys = X @ mix[:-2].astype(X.dtype) + mix[-2] * y
    groups = getattr(objective.aggregate, "groups", None)
    return keys if groups is None else keys + mix[-1] * (groups if rows is None else groups[rows])


def _are_equal(objective: Objective, first: Array, which: Array) -> bool:
    """Whether rows with the same hash are equal; `first` has a row of each hash, `which` the hash of each row."""
    groups = getattr(objective.aggregate, "groups", None)
    if (objective.y[first][which] != objective.y).any():
        return False
    if groups is not None and (groups[first][which] != groups).any():
        return False
    X = objective.design.X
    few = X[first]
    blocks = (slice(a, a + _BLOCK) for a in range(0, len(which), _BLOCK))
    return all((few[which[block]] == X[block]).all() for block in blocks)
