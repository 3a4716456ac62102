"""One value per row, computed when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..core.arrays import Array


class LazyRows:
    """One value per row, computed shard by shard when it is asked for: iterate over it, or take `np.asarray`.

    Parameters
    ----------
    shards : Shards
        The rows.
    kernel : callable
        Called as kernel(shard, message), gives the values of one shard.
    message : object
        What the kernel needs.
    n : int
        The number of rows.
    dtype : dtype, default=bool
        Of the values.
    names : ndarray, optional
        What values stand for, looked up by value.
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
            values = part.compute() if hasattr(part, "compute") else part  # of Dask
            yield values if self._names is None else self._names[values]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.concatenate(list(self)).astype(dtype or self.dtype, copy=False)

    def indices(self) -> Array:
        """Numbers of the rows where the value is true, without an array of all rows."""
        at, found = 0, []
        for part in self:
            found.append(at + np.flatnonzero(part))
            at += len(part)
        return np.concatenate(found) if found else np.zeros(0, dtype=np.intp)
