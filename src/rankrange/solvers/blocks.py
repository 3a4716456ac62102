"""Rows in blocks: only one block of the n x L score matrix is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import get_config

from ..core.arrays import Array
from ..core.objective import Design

# The number of arrays of a block's size that an evaluation needs at once, at 8 bytes per entry.
_TEMPORARY_ARRAYS = 6
# The largest number of entries of a block: several passes over a block in the cache cost little more than one.
_CACHED = 1 << 20


@dataclass(frozen=True, eq=False)
class Block:
    rows: slice
    design: Design
    true: Array  # bool (rows, L)

    @cached_property
    def n_true(self) -> Array:
        return self.true.sum(axis=1)

    def scores(self, W: Array) -> Array:
        """Scores (rows, L), contiguous along the labels."""
        return np.ascontiguousarray(self.design.scores(W).T)


@dataclass(frozen=True, eq=False)
class Blocks:
    """The rows of a design with their labels, bool (n, L) or sparse, in blocks.

    A block fits into the cache and into scikit-learn's `working_memory` (in MiB, 1024 by default; set by
    `sklearn.set_config`), unless one row alone does not, or all rows are in one block (`whole`).
    """

    design: Design
    Y: Any
    whole: bool = False  # all rows in one block, regardless of memory
    _kept: list[Block] = field(default_factory=list)  # after the first pass; empty if a sparse Y needs several

    @property
    def n_labels(self) -> int:
        return int(self.Y.shape[1])

    @property
    def length(self) -> int:
        return self.design.n if self.whole else min(self.design.n, rows_that_fit(self.n_labels))

    def __iter__(self) -> Iterator[Block]:
        if self._kept:
            return iter(self._kept)
        if not sp.issparse(self.Y) or self.length >= self.design.n:
            self._kept.extend(self._made())  # views, or the only block
            return iter(self._kept)
        return self._made()

    def _made(self) -> Iterator[Block]:
        for start in range(0, self.design.n, self.length):
            rows = slice(start, min(start + self.length, self.design.n))
            yield Block(rows, Design(self.design.X[rows], self.design.fit_intercept), _dense(self.Y[rows]))


def rows_that_fit(n_labels: int) -> int:
    """The number of rows whose scores (n_labels each) fit into the cache and the working memory; at least 1."""
    memory = float(get_config()["working_memory"]) * 2**20 / (8 * _TEMPORARY_ARRAYS)
    return max(1, int(min(memory, _CACHED) / n_labels))


def _dense(Y: Any) -> Array:
    return np.asarray(Y.toarray() if sp.issparse(Y) else Y, dtype=bool)
