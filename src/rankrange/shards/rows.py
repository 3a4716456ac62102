"""The interface of the streaming engine: rows in chunks, pure kernels, and results that add up in order.

A kernel is a module-level function kernel(chunk, message) -> result; the message has its parameters. Results have
`__add__`. A `Rows` runs a kernel on each chunk, on any machine, and adds up the results in the order of the rows.
Chunks keep no state between calls, so all results of a lost worker can be computed again.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.threads import one_thread

Kernel = Callable[[Any, Any], Any]


class LostDataError(RuntimeError):
    """Raised if data are lost that cannot be computed again, if workers die repeatedly, or if the cluster is gone."""


class Chunk(NamedTuple):
    """Consecutive rows.

    Parameters
    ----------
    first_row : int
        The number of the first row among all rows.
    X, y, weight : array, sparse matrix or tensor
        Features (n, d), targets (n,), and weights (n,) or None.
    source : str, default=""
        The origin of the rows, for error messages.
    """

    first_row: int
    X: Any
    y: Any
    weight: Any = None
    source: str = ""

    def rows(self, which: Any) -> Chunk:
        """Some of the rows; a chunk of rows that are not consecutive keeps the number of the first row."""
        start = which.start if isinstance(which, slice) else 0
        weight = None if self.weight is None else self.weight[which]
        return Chunk(self.first_row + start, self.X[which], self.y[which], weight, self.source)


class Rows(ABC):
    """All rows of a fit, with their targets and weights: what `fit`, `predict`, `score` and `find_label_issues` use.

    Subclass it to compute elsewhere: `reduce` and `each` are all that a fit needs.

    Attributes
    ----------
    n_rows, n_columns : int
        The numbers of rows and of features.
    columns : list of str or None
        Names of the features.
    labels : ndarray or None
        The labels, if the targets are their codes.
    sample_rows : int
        About the number of rows of the sample that m, C and the start come from; no larger tables are fitted in memory.
    collected_bytes : int
        The largest size of the rows near a cut that one pass may send to the process of the fit.
    """

    n_rows: int
    n_columns: int
    columns: list[str] | None = None
    labels: Array | None = None
    sample_rows: int = 1 << 17
    collected_bytes: int = 96_000_000
    place: str = "out of core"
    __rankrange_rows__ = True

    @abstractmethod
    def reduce(self, kernel: Kernel, message: Any) -> Any:
        """The sum of kernel(chunk, message) over all chunks, in the order of the rows."""

    @abstractmethod
    def each(self, kernel: Kernel, message: Any) -> Iterable[Any]:
        """kernel(chunk, message) for each chunk, in the order of the rows, computed lazily."""

    def per_row(self, kernel: Kernel, message: Any, dtype: Any = bool) -> Any:
        """One lazy value per row."""
        return LazyRows(self, kernel, message, dtype)

    def named(self, y: Array) -> Array:
        return y if self.labels is None else self.labels[y]

    def spaced(self) -> Chunk | None:
        """Many rows, evenly spaced, that brackets and Hessians come from; None means those of the sample."""
        return None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        raise TypeError(
            "only find_label_issues and fit, predict and score of AoRRClassifier and AoRRRegressor accept a scan, got "
            "it in a function that needs an array, such as a scaler or another model; read the table into memory, or "
            "prepare the columns before the scan"
        )


class LocalRows(Rows):
    """Rows that this process reads chunk by chunk."""

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """The chunks in order; may be called repeatedly."""

    def reduce(self, kernel: Kernel, message: Any) -> Any:
        """The sum of kernel(chunk, message) over all chunks, computed one by one."""
        with one_thread():  # the number of BLAS threads changes the rounding
            return added(kernel(chunk, message) for chunk in self.chunks())

    def each(self, kernel: Kernel, message: Any) -> Iterator[Any]:
        """kernel(chunk, message) for each chunk."""
        for chunk in self.chunks():
            with one_thread():
                yield kernel(chunk, message)

    def targets(self) -> tuple[Array, Array | None]:
        """The targets of all rows, and their weights, or None if there are none."""
        y, weights = zip(*((chunk.y, chunk.weight) for chunk in self.chunks()), strict=True)
        return self.named(np.concatenate(y)), None if weights[0] is None else np.concatenate(weights)


class ArrayRows(LocalRows):
    """Rows in memory, in chunks.

    Parameters
    ----------
    Xs, ys, weights : sequence of array_like
        The features (n_i, d) of each chunk, which may be CSR, its targets (n_i,) and perhaps its weights.
    columns : list of str, optional
        Names of the features.

    Examples
    --------
    >>> import numpy as np, rankrange
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3))
    >>> y = X[:, 0] > 0.5
    >>> rows = ArrayRows([X[:7_000], X[7_000:]], [y[:7_000], y[7_000:]])
    >>> rankrange.AoRRClassifier(m=0.1, random_state=0).fit(rows).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        Xs: Sequence[Any],
        ys: Sequence[Any],
        weights: Sequence[Any] | None = None,
        columns: list[str] | None = None,
    ) -> None:
        self._parts: list[Chunk] = []
        at = 0
        for number, (X, y, weight) in enumerate(
            zip(Xs, ys, [None] * len(Xs) if weights is None else weights, strict=True)
        ):
            lengths = {np.shape(part)[0] for part in (X, y, weight) if part is not None}
            if len(lengths) > 1:
                raise ValueError(
                    f"X, y and the weights of a chunk must have the same number of rows, got {sorted(lengths)} in "
                    f"chunk {number}; split them alike"
                )
            given = None if weight is None else np.asarray(weight)
            self._parts.append(Chunk(at, X, np.asarray(y), given, f"chunk {number}"))
            at += X.shape[0]
        self.n_rows, self.n_columns = at, Xs[0].shape[1] if len(Xs) else 0
        self.columns = columns

    def chunks(self) -> Iterator[Chunk]:
        return iter(self._parts)


def added(results: Iterable[Any]) -> Any:
    """The sum of the results of consecutive chunks, in order; None if there are none."""
    each = iter(results)
    first = next(each, None)
    return first if first is None else reduce(operator.add, each, first)


def given(chunk: Chunk, values: Array) -> Array:
    """The kernel of values of all rows that are known already."""
    return values[chunk.first_row :][: chunk.X.shape[0]]


class LazyRows:
    """One value per row, computed when it is read: each use reads the rows again. Iteration yields one array per chunk.

    Parameters
    ----------
    rows, kernel, message, dtype : Rows, callable, object and dtype
        kernel(chunk, message) returns the values of one chunk of the rows, in this dtype.
    """

    def __init__(self, rows: Rows, kernel: Kernel, message: Any, dtype: Any) -> None:
        self._rows, self._kernel, self._message = rows, kernel, message
        self.dtype, self.shape = np.dtype(dtype), (rows.n_rows,)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return iter(self._rows.each(self._kernel, self._message))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.concatenate([np.empty(0, self.dtype), *self]).astype(dtype or self.dtype, copy=False)

    def indices(self) -> Array:
        """The numbers of the rows whose value is true, without an array of all rows."""
        at, found = 0, [np.zeros(0, dtype=np.intp)]
        for values in self:
            found.append(at + np.flatnonzero(values))
            at += len(values)
        return np.concatenate(found)
