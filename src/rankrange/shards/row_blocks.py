"""Blocks of rows at fixed positions, which make results independent of the chunks.

Row i of all data belongs to block i // BLOCK_ROWS. Rounding in BLAS depends on the shapes of arrays, and rounding in
sums on their order. Every product is therefore over one whole block, and block sums are added in the order of
`TreeSum`. Shards begin at a multiple of BLOCK_ROWS, whatever the chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array

# The number of BLAS threads changes the rounding, so kernels use one thread.
from ..core.threads import one_thread as one_thread

BLOCK_ROWS = 1 << 13


class Batch(NamedTuple):
    """A batch of consecutive rows.

    Parameters
    ----------
    first_row : int
        The number of the first row among all rows.
    X : array or sparse matrix of shape (n, d)
        Features.
    y : ndarray of shape (n,)
        Targets.
    weight : ndarray of shape (n,) or None
        Weights, if there are any.
    source : str, default=""
        The origin of the rows, for error messages.
    """

    first_row: int
    X: Any
    y: Array
    weight: Array | None
    source: str = ""


class Piece(NamedTuple):
    """Rows [start, stop) of the chunk with this number."""

    chunk: int
    start: int
    stop: int


class Range(NamedTuple):
    """Rows [start, stop) of all the data, and the pieces of chunks that they consist of."""

    start: int
    stop: int
    pieces: list[Piece]


def aligned_ranges(lengths: Sequence[int]) -> list[Range]:
    """One range for each chunk that contains the first row of a block.

    Its last block may include rows of later chunks.
    """
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))])
    n = int(offsets[-1])
    up = [min(-(-int(offset) // BLOCK_ROWS) * BLOCK_ROWS, n) for offset in offsets]
    ranges = []
    for start, stop in pairwise(up):
        if start == stop:
            continue
        first = int(np.searchsorted(offsets, start, side="right")) - 1
        last = int(np.searchsorted(offsets, stop, side="left"))
        pieces = [
            Piece(i, max(start - int(offsets[i]), 0), min(stop, int(offsets[i + 1])) - int(offsets[i]))
            for i in range(first, last)
            if lengths[i]
        ]
        ranges.append(Range(start, stop, pieces))
    return ranges


def split_rows(n: int, parts: int) -> list[tuple[int, int]]:
    """At most `parts` ranges (start, stop) of n rows, of about equal length, that begin at block boundaries."""
    n_blocks = -(-n // BLOCK_ROWS)
    edges = [n_blocks * i // parts * BLOCK_ROWS for i in range(parts)] + [n]
    return [(a, b) for a, b in pairwise(edges) if a < b]


def aligned_blocks(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the rows in whole blocks, the last maybe shorter; rows are copied only if a block spans several batches."""
    waiting: list[Batch] = []
    for batch in batches:
        at, n = 0, batch.X.shape[0]
        while at < n:
            end = min(n, at + BLOCK_ROWS - (batch.first_row + at) % BLOCK_ROWS)
            part = _part(batch, at, end)
            waiting.append(part)
            if (batch.first_row + end) % BLOCK_ROWS == 0:
                yield joined(waiting)
                waiting = []
            at = end
    if waiting:
        yield joined(waiting)


def _part(batch: Batch, start: int, stop: int) -> Batch:
    weight = None if batch.weight is None else batch.weight[start:stop]
    return Batch(batch.first_row + start, batch.X[start:stop], batch.y[start:stop], weight)


def joined(parts: list[Batch]) -> Batch:
    """The rows of consecutive batches as one batch; missing weights are 1 if some batch has weights."""
    if len(parts) == 1:
        return parts[0]
    X = (
        sp.vstack([part.X for part in parts], format="csr")
        if any(sp.issparse(part.X) for part in parts)
        else np.concatenate([part.X for part in parts])
    )
    weight = None
    if any(part.weight is not None for part in parts):
        weight = np.concatenate([np.ones(len(p.y)) if p.weight is None else p.weight for p in parts])
    return Batch(parts[0].first_row, X, np.concatenate([part.y for part in parts]), weight)


def as_rows(X: Any, dtype: Any) -> Any:
    """X in this dtype and in the layout that kernels use: row-major, or CSR with sorted column indices."""
    if sp.issparse(X):
        X = sp.csr_array(X).astype(dtype, copy=False)
        if not X.has_sorted_indices:
            X = X.sorted_indices()
        return X
    return np.ascontiguousarray(X, dtype=dtype)


class TreeSum:
    """A sum over consecutive blocks whose rounding does not depend on how the blocks are divided among shards.

    It is a list of nodes (first block, level, value). The value of a node of level l is the sum of 2^l blocks.
    """

    def __init__(self) -> None:
        self.nodes: list[tuple[int, int, Array]] = []

    def add(self, block: int, value: Array) -> None:
        """Add the value of the next block."""
        self._push(block, 0, value)

    def extend(self, later: TreeSum) -> None:
        """Append the sum over the following blocks."""
        for node in later.nodes:
            self._push(*node)

    def _push(self, first: int, level: int, value: Array) -> None:
        nodes = self.nodes
        while (
            nodes and nodes[-1][1] == level and nodes[-1][0] == first - (1 << level) and not nodes[-1][0] >> level & 1
        ):
            first, _, left = nodes.pop()
            value, level = left + value, level + 1
        nodes.append((first, level, value))

    def copy(self) -> TreeSum:
        """A copy that can be added to."""
        same = TreeSum()
        same.nodes = list(self.nodes)
        return same

    def total(self) -> Array:
        """The sum over all blocks; the nodes are added from the last to the first."""
        values = [value for _, _, value in self.nodes]
        total = values[-1]
        for value in reversed(values[:-1]):
            total = value + total
        return total

    def __iter__(self) -> Iterator[Array]:
        return (value for _, _, value in self.nodes)

    def __bool__(self) -> bool:
        return bool(self.nodes)
