"""Results of the audit by group: the number of rows, the mean loss, the share of ignored and of wrong rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arrays import Array
from .task_result import TaskResult


@dataclass(frozen=True)
class GroupRow:
    """One group: number of rows, share that the robust model ignores, expected share of wrong targets, mean loss."""

    name: str
    rows: int
    ignored: float
    wrong: float
    loss: float


def by_group(column: Any, codes: Array, result: TaskResult) -> list[GroupRow]:
    """The groups of a column (pyarrow) with these group numbers, the one with the largest mean loss first.

    A row with a missing cell is its own group, named "None".
    """
    texts = [str(value) for value in column.to_pylist()]
    numbers, first, codes, rows = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    ignored, wrong, loss = (
        np.bincount(codes, weights=np.asarray(values, dtype=np.float64)) / rows
        for values in (result.dropped, result.wrong, result.losses)
    )
    found = [
        GroupRow(texts[first[c]], int(rows[c]), float(ignored[c]), float(wrong[c]), float(loss[c]))
        for c in range(len(numbers))
    ]
    return sorted(found, key=lambda group: -group.loss)
