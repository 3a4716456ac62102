"""`ShardList`: the engine that runs kernels by an ordered map, with the methods that estimators call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..core.arrays import Array
from .engine import SAMPLE_ROWS, Kernel, Shard, Task, merged


class ShardList:
    """A list of shards and an ordered map over them: the built-in `map`, or that of an executor.

    To compute on another engine, pass its ordered map.

    Parameters
    ----------
    shards : sequence of Shard
        The shards, in the order of their rows.
    ordered_map : callable, default=map
        Called as ordered_map(function, shards); returns the results in order, as `concurrent.futures.Executor.map`
        does. With processes the shards must be picklable, as those of `rankrange.scan` are.
    columns : list of str, optional
        Names of the features.
    sample_rows : int, default=131072
        About the number of rows of the sample that is used to search for starts and to choose m and C; fewer if there
        are hundreds of columns. The sample must fit into memory.
    collected_rows : int, optional
        The largest number of rows near a cut that one pass may load into memory; by default, and at most, as many as
        take 96 MB. With fewer, some cuts need another pass.

    Examples
    --------
    >>> import numpy as np
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from rankrange import AoRRClassifier
    >>> from rankrange.shards import ShardList, array_shards
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3))
    >>> y = X[:, 0] > 0.5
    >>> shards = array_shards([X[:7_000], X[7_000:]], [y[:7_000], y[7_000:]])
    >>> with ThreadPoolExecutor(2) as pool:
    ...     model = AoRRClassifier(m=0.1, k=1.0, random_state=0).fit(ShardList(shards, pool.map))
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        ordered_map: Callable[..., Iterable[Any]] = map,
        columns: list[str] | None = None,
        *,
        sample_rows: int = SAMPLE_ROWS,
        collected_rows: int | None = None,
    ) -> None:
        self.shards = list(shards)
        self.ordered_map = ordered_map
        self.columns = columns
        self.sample_rows, self.collected_rows = sample_rows, collected_rows

    def reduce(self, kernel: Kernel, message: Any) -> Any:
        """Run the kernel on every shard and merge the results in the order of the shards."""
        return merged(self.ordered_map(Task(kernel, message), self.shards))

    def map_lazy(self, kernel: Kernel, message: Any) -> Iterator[Any]:
        """The result of the kernel for each shard, computed lazily in this process, without `ordered_map`."""
        return map(Task(kernel, message), self.shards)

    def __rankrange_fit__(self, estimator: Any) -> Any:
        from .fit import fit_on_shards

        return fit_on_shards(self, estimator)

    def __rankrange_issues__(self, **options: Any) -> Any:
        from .label_issues import find_on_shards

        return find_on_shards(self, **options)

    def __rankrange_rows__(self) -> Iterator[Any]:
        """The features of all rows, in batches."""
        for shard in self.shards:
            for batch in shard.batches():
                yield batch.X

    def __rankrange_targets__(self) -> tuple[Array, Array | None]:
        """The targets of all rows, and their weights, or None if there are none."""
        y, weights = zip(*((b.y, b.weight) for shard in self.shards for b in shard.batches()), strict=True)
        if all(weight is None for weight in weights):
            return np.concatenate(y), None
        filled = [np.ones(len(t)) if w is None else w for t, w in zip(y, weights, strict=True)]
        return np.concatenate(y), np.concatenate(filled)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        raise TypeError(
            "only find_label_issues and fit, predict and score of AoRRClassifier and AoRRRegressor accept a scan, got "
            "it in a function that needs an array, such as a scaler or another model; read the table into memory, or "
            "prepare the columns before the scan"
        )
