"""The interface between a fit and its engine: shards of rows, pure kernels, results merged in order.

A kernel is a module-level function kernel(shard, message) -> result; the message has its parameters. Results to merge
have the methods `merge(later)` and `copy()`. An engine is a `Shards`: it runs a kernel on each shard, on any machine,
and merges the results in the order of the shards. Shards keep no state between calls, so all results of a lost worker
can be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..core.arrays import Array
from .row_blocks import Batch, aligned_ranges

Kernel = Callable[[Any, Any], Any]
# Rows of the sample: the accuracy of brackets and metric grows with its square root, the time of the search in
# proportion.
SAMPLE_ROWS = 1 << 17


@runtime_checkable
class Shard(Protocol):
    """Rows [start, stop) of all the data; `start` is a multiple of BLOCK_ROWS. `batches` may be called repeatedly."""

    @property
    def start(self) -> int:
        """The number of the first row among all rows."""

    @property
    def stop(self) -> int:
        """One more than the number of the last row."""

    def batches(self) -> Iterator[Batch]:
        """The rows, batch by batch."""


class Shards(Protocol):
    """The interface of an engine. `columns` are the names of the features, if they have names.

    An engine also has the number of rows, `n_rows`, or the list `shards`. It may limit the rows that are sent to the
    driver, the process of the fit: `sample_rows` in the sample, `collected_rows` near a cut of the losses. `fit`
    also uses other attributes if an engine has them; `device_rows.DeviceRows` has them all.
    """

    columns: list[str] | None

    def reduce(self, kernel: Kernel, message: Any) -> Any:
        """The results of kernel(shard, message), merged in the order of the shards."""
        ...

    def map_lazy(self, kernel: Kernel, message: Any) -> Any:
        """kernel(shard, message) for each shard, in order, computed lazily."""
        ...


@dataclass(frozen=True)
class ArrayShard:
    """Rows in memory, as slices of the original arrays.

    Parameters
    ----------
    start, stop : int
        The range of row numbers, without `stop`.
    parts : sequence of (name, X, y, weight)
        The slices, in order; the name is for error messages, and weight may be None.
    """

    start: int
    stop: int
    parts: Sequence[tuple[str, Any, Any, Any]]  # (name, X, y, weight or None) for each part

    def batches(self) -> Iterator[Batch]:
        """The rows of the shard, batch by batch."""
        at = self.start
        for name, X, y, weight in self.parts:
            yield Batch(at, X, np.asarray(y), None if weight is None else np.asarray(weight), name)
            at += X.shape[0]


@dataclass(frozen=True)
class Task:
    """A kernel with its message: a picklable function of the shard."""

    kernel: Kernel
    message: Any

    def __call__(self, shard: Shard) -> Any:
        return self.kernel(shard, self.message)


def merged(results: Iterable[Any]) -> Any:
    """The results of consecutive shards, merged into one in order; None if there are none."""
    total = None
    for result in results:
        if total is None:
            total = result.copy()  # a copy, because an engine may keep the results and merge them again after a failure
        else:
            total.merge(result)
    return total


def array_shards(Xs: Sequence[Any], ys: Sequence[Any], weights: Sequence[Any] | None = None) -> list[ArrayShard]:
    """Make shards from chunks of arrays in memory; chunks may have any length, including 0.

    Parameters
    ----------
    Xs : sequence of ndarray or CSR matrix (n_i, d)
        Chunks of features.
    ys : sequence of array-like (n_i,)
        Their targets.
    weights : sequence of array-like (n_i,), optional
        Their weights.

    Returns
    -------
    list of ArrayShard
        One for each chunk that contains the first row of a block of BLOCK_ROWS rows.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.ones((14_000, 1)), np.ones(14_000)
    >>> [shard.stop for shard in array_shards([X[:5_000], X[5_000:]], [y[:5_000], y[5_000:]])]
    [8192, 14000]
    """
    given = [None] * len(Xs) if weights is None else weights
    chunks = list(zip(Xs, ys, given, strict=True))
    for number, (X, y, weight) in enumerate(chunks):
        lengths = {
            len(part) if not hasattr(part, "shape") else part.shape[0] for part in (X, y, weight) if part is not None
        }
        if len(lengths) > 1:
            raise ValueError(
                f"X, y and the weights of a chunk must have the same number of rows, got {sorted(lengths)} in chunk "
                f"{number}; split them alike"
            )
    shards = []
    for at in aligned_ranges([X.shape[0] for X, _, _ in chunks]):
        parts = [(f"chunk {i}", *cut_chunk(chunks[i], start, stop)) for i, start, stop in at.pieces]
        shards.append(ArrayShard(at.start, at.stop, parts))
    return shards


def cut_chunk(chunk: tuple[Any, Any, Any], start: int, stop: int) -> tuple[Any, Any, Any]:
    """Rows [start, stop) of a chunk (X, y, weights or None)."""
    X, y, weight = chunk
    return X[start:stop], y[start:stop], None if weight is None else weight[start:stop]


class LazyRows:
    """One value per row, computed lazily. Iteration yields one array per shard; `np.asarray` computes all values.

    Values are not stored: each use reads the rows again.

    Parameters
    ----------
    shards : Shards
        The rows.
    kernel : callable
        A function; kernel(shard, message) returns the values of one shard.
    message : object
        The second argument of the kernel.
    n : int
        The number of rows.
    dtype : dtype, default=bool
        The dtype of the values.
    names : ndarray, optional
        If given, values are indices into this array, and its entries are returned instead.
    """

    def __init__(
        self, shards: Any, kernel: Any, message: Any, n: int, dtype: Any = bool, names: Array | None = None
    ) -> None:
        self._shards, self._kernel, self._message, self._n = shards, kernel, message, n
        self.dtype, self._names = np.dtype(dtype), names

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Array]:
        for part in self._shards.map_lazy(self._kernel, self._message):
            values = part.compute() if hasattr(part, "compute") else part  # Dask returns delayed objects
            yield values if self._names is None else self._names[values]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.concatenate(list(self)).astype(dtype or self.dtype, copy=False)

    def indices(self) -> Array:
        """The numbers of the rows whose value is true, without an array of all rows."""
        at, found = 0, []
        for part in self:
            found.append(at + np.flatnonzero(part))
            at += len(part)
        return np.concatenate(found) if found else np.zeros(0, dtype=np.intp)
