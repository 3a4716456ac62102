"""Results of the audit by group: the number of rows, the mean loss, the share of ignored and of wrong rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..pages.text import number, visible
from .target import group_numbers
from .task_result import TaskResult

# Groups with fewer rows are listed, but none is reported as the worst, because their mean losses vary too much.
_MIN_ROWS = 20


@dataclass(frozen=True)
class GroupRow:
    """One group: number of rows, share that the robust model ignores, expected share of wrong targets, mean loss."""

    name: str
    rows: int
    ignored: float
    wrong: float
    loss: float


def by_group(column: Any, result: TaskResult) -> list[GroupRow]:
    """The groups of a column (pyarrow), the one with the largest mean out-of-fold loss first.

    A row with a missing cell is its own group, named "None".
    """
    codes, texts = group_numbers(column), [str(value) for value in column.to_pylist()]
    rows = np.bincount(codes)
    ignored, wrong, loss = (
        np.bincount(codes, weights=np.asarray(values, dtype=np.float64)) / np.maximum(rows, 1)
        for values in (result.dropped, result.wrong, result.losses)
    )
    first = np.unique(codes, return_index=True)[1]
    found = [
        GroupRow(texts[row], int(rows[c]), float(ignored[c]), float(wrong[c]), float(loss[c]))
        for c, row in zip(np.unique(codes).tolist(), first.tolist(), strict=True)
    ]
    return sorted(found, key=lambda group: -group.loss)


def in_words(groups: list[GroupRow], name: str, loss_name: str) -> list[str]:
    """A note on the group with the largest loss, of those with at least 20 rows; empty if at most one is that large.

    `groups` must be sorted by loss, as `by_group` returns them.
    """
    large = [group for group in groups if group.rows >= _MIN_ROWS]
    if len(large) < 2:
        return []
    worst, total = large[0], sum(group.rows for group in groups)
    mean = sum(group.rows * group.loss for group in groups) / total
    return [
        f"By {visible(name, 60)}, the models fit '{visible(worst.name, 40)}' worst ({worst.rows:,} rows): its "
        f"out-of-fold {loss_name} is {number(worst.loss, 3)}, and {number(mean, 3)} over all rows. The robust model "
        f"ignores {worst.ignored:.0%} of its rows; about {worst.wrong:.0%} have a wrong target."
    ]
