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
    """

    def __init__(self, shards: Any, kernel: Any, message: Any, n: int) -> None:
        self._shards, self._kernel, self._message, self._n = shards, kernel, message, n

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Array]:
        return iter(self._shards.map_lazy(self._kernel, self._message))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.concatenate(list(self)).astype(dtype or bool, copy=False)

    def indices(self) -> Array:
        """Numbers of the rows where the value is true, without an array of all rows."""
        at, found = 0, []
        for part in self:
            found.append(at + np.flatnonzero(part))
            at += len(part)
        return np.concatenate(found) if found else np.zeros(0, dtype=np.intp)
