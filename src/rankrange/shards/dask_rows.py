"""Rows of Dask collections. Chunks stay on their workers; only parameters and sums are sent.

A pass has one Dask task per chunk. If a worker is lost, Dask computes its chunks and tasks again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from copy import copy
from typing import Any

import dask
import dask.array
import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.threads import one_thread
from .rows import Chunk, Kernel, LostDataError, Rows, added

# Results are added up on the workers in a tree with this fan-in.
_FAN_IN = 16
# Seconds without any worker after which a fit fails, unless Dask's configuration has `rankrange.worker-timeout`.
_WORKER_TIMEOUT = 8.0


class DaskRows(Rows):
    """Rows of a Dask array or dataframe, computed by the current client or Dask's scheduler in this process.

    Features, targets and weights have the same chunks of rows, whose lengths may be unknown and which may be empty or
    sparse. Dask's configuration may have `rankrange.sample-rows` (rows of the sample) and `rankrange.worker-timeout`
    (seconds without any worker after which a fit fails).
    """

    def __init__(self, X: Any, y: Any, weight: Any = None) -> None:
        self.client = _default_client()
        self.columns = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        self.n_columns = X.shape[1]
        self.sample_rows = int(dask.config.get("rankrange.sample-rows", Rows.sample_rows))
        self._collections = [part for part in (X, y, weight) if part is not None]
        names = ("X", "y", "sample_weight")
        columns = [_chunks(part, name) for part, name in zip(self._collections, names, strict=False)]
        counts = [len(column) for column in columns]
        if len(set(counts)) > 1:
            raise ValueError(
                f"X, y and sample_weight must be cut into the same chunks of rows, got {counts} chunks; rechunk or "
                "repartition them alike"
            )
        as_one = dask.delayed(as_chunk, pure=True)
        self._lazy = [as_one(*parts) for parts in zip(*columns, strict=True)]
        # A cluster keeps the chunks in memory during the fit. In a single process they might not fit, so they are
        # computed in each pass.
        self._chunks = self._lazy
        if self.client is not None and self._lazy:
            self._chunks = list(self.client.persist(self._lazy))
        self.lengths = self._checked_lengths()
        self.n_rows = sum(self.lengths)

    def _checked_lengths(self) -> list[int]:
        """The number of rows of each chunk. Unknown numbers are counted."""
        known = all(hasattr(part, "chunks") for part in self._collections)
        lengths: Any = list(zip(*(part.chunks[0] for part in self._collections), strict=True)) if known else []
        if not known or any(length != length for chunk in lengths for length in chunk):  # NaN
            lengths = self._compute([dask.delayed(chunk_lengths, pure=True)(chunk) for chunk in self._chunks])
        for number, found in enumerate(lengths):
            if len(set(found)) > 1:
                raise ValueError(
                    f"X, y and sample_weight must have the same number of rows in each chunk, got {list(found)} in "
                    f"chunk {number}; split them alike"
                )
        return [int(found[0]) for found in lengths]

    def _tasks(self, kernel: Kernel, message: Any, chunks: list[Any]) -> list[Any]:
        run, shared = dask.delayed(run_kernel, pure=False), dask.delayed(Sealed((kernel, message)), pure=False)
        starts = np.cumsum([0, *self.lengths]).tolist()
        return [run(shared, start, i, chunk) for i, (start, chunk) in enumerate(zip(starts, chunks, strict=False))]

    def reduce(self, kernel: Kernel, message: Any) -> Any:
        """The sum of kernel(chunk, message) over all chunks, added up on the workers."""
        level = self._tasks(kernel, message, self._chunks)
        add = dask.delayed(added, pure=False)
        for _ in range(len(level).bit_length()):
            if len(level) > 1:
                level = [add(level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
        return self._compute(level)[0]

    def each(self, kernel: Kernel, message: Any) -> Iterator[Any]:
        """kernel(chunk, message) for each chunk, computed in turn from the original collection."""
        for part in self._tasks(kernel, message, self._lazy):
            yield part.compute()

    def per_row(self, kernel: Kernel, message: Any, dtype: Any = bool) -> Any:
        """A lazy Dask array in the chunks of the rows. It uses the original collection and keeps nothing on workers."""
        tasks = zip(self._tasks(kernel, message, self._lazy), self.lengths, strict=True)
        return dask.array.concatenate([dask.array.from_delayed(part, (n,), dtype=dtype) for part, n in tasks])

    def _compute(self, parts: list[Any]) -> Any:
        if self.client is None or not parts:
            return dask.compute(*parts)
        from distributed import KilledWorker

        # Dask warns about large graphs; the trees of a forest take about 20 MB, which the user cannot change.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            futures = self.client.compute(parts)
        try:
            self._wait(futures)
            return list(self.client.gather(futures))
        except CancelledError as error:
            raise LostDataError(self._what_was_lost()) from error
        except KilledWorker as error:
            reason = str(error).strip().splitlines()[0][:200]
            raise LostDataError(
                f"workers must survive each task, got workers that died repeatedly ({reason}); "
                "most likely a chunk does not fit into the memory of a worker: use smaller chunks or larger workers"
            ) from error
        finally:
            self.client.cancel(futures)

    def _wait(self, futures: list[Any]) -> None:
        """Wait until all futures are done; a LostDataError without scheduler or workers, for which Dask would wait."""
        patience = float(dask.config.get("rankrange.worker-timeout", _WORKER_TIMEOUT))
        last_worker = time.monotonic()
        while not _done(futures):
            if self.client.status not in ("running", "connecting"):
                raise LostDataError(
                    "a fit needs its cluster, but the scheduler has stopped; start a cluster and fit again"
                )
            if self.client.status == "running" and self.client.nthreads():
                last_worker = time.monotonic()
            if time.monotonic() - last_worker > patience:
                raise LostDataError(
                    f"a fit needs at least one worker, got none for {patience:g} s; start workers and fit again"
                )

    def _what_was_lost(self) -> str:
        from distributed import futures_of

        lost = [str(f.key) for f in futures_of(self._collections) if f.status in ("cancelled", "lost")]
        which = f"{len(lost)} pieces of data, {lost[0]} the first" if lost else "some chunks"
        return (
            f"each chunk must be held by a worker or be computable again, got {which}, lost with a worker; data that "
            "were scattered exist once: read or compute them in Dask instead (dask.dataframe.read_parquet), or scatter "
            "them with broadcast=True"
        )


def _done(futures: list[Any]) -> bool:
    """Whether all futures are done after at most a second."""
    from distributed import wait

    try:
        wait(futures, timeout=1.0)
    except TimeoutError:
        return False
    return True


def _default_client() -> Any:
    """The client that Dask itself would use; None if another scheduler is configured or there is no cluster."""
    if dask.config.get("scheduler", None) not in (None, "dask.distributed", "distributed"):
        return None
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


def _chunks(collection: Any, name: str) -> list[Any]:
    """The chunks of rows as delayed objects.

    Dask combines Parquet files into larger partitions if few columns are read, so X and y of one table would have
    different partitions. The plan before that step is used, which still reads only the needed columns.
    """
    if not hasattr(collection, "__dask_graph__"):
        raise TypeError(
            f"{name} must be a Dask array, dataframe or series, got {type(collection).__name__}; pass all arguments as "
            "Dask collections or all as arrays"
        )
    if not hasattr(collection, "numblocks"):
        chunks = list(collection.to_delayed())
        same = len(chunks) == collection.npartitions
        return chunks if same else list(collection.simplify().to_delayed(optimize_graph=False))
    if collection.ndim == 2 and collection.numblocks[1] > 1:
        raise ValueError(
            f"{name} must be split into chunks of whole rows, got {collection.numblocks[1]} chunks of columns; use "
            f"{name}.rechunk({{1: -1}})"
        )
    return list(collection.to_delayed().ravel())


def as_chunk(X: Any, y: Any, weight: Any = None) -> tuple[Any, Any, Any]:
    """Arrays or CSR for the kernels; y and weights of shape (n, 1) become (n,)."""
    X = X.to_numpy() if hasattr(X, "to_numpy") else X
    X = sp.csr_array(X) if sp.issparse(X) else np.ascontiguousarray(X)
    return X, _vector(y), None if weight is None else _vector(weight)


def _vector(y: Any) -> Array:
    y = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def chunk_lengths(chunk: tuple[Any, Any, Any]) -> list[int]:
    return [int(part.shape[0]) for part in chunk if part is not None]


class Sealed:
    """A wrapper that prevents Dask from searching a value for collections."""

    def __init__(self, value: Any) -> None:
        self.value = value


def run_kernel(task: Sealed, first_row: int, number: int, chunk: tuple[Any, Any, Any]) -> Any:
    """Apply a kernel with its message, both in `task`, to a chunk."""
    kernel, message = task.value
    with one_thread():
        return kernel(Chunk(first_row, *chunk, f"chunk {number}"), message)


def predicted(method: str, model: Any, X: Any, none: Array) -> Any:
    """A lazy Dask array of a method of the model, for each chunk of X; `none` is the result for no rows."""
    lengths = X.chunks[0] if hasattr(X, "numblocks") else [np.nan] * X.npartitions
    apply, shared = dask.delayed(_applied, pure=True), dask.delayed(Sealed((method, _without_rows(model))), pure=False)
    parts = [
        dask.array.from_delayed(apply(shared, chunk, none), (length, *none.shape[1:]), dtype=none.dtype)
        for chunk, length in zip(_chunks(X, "X"), lengths, strict=True)
    ]
    return dask.array.concatenate(parts, allow_unknown_chunksizes=True)


def _without_rows(model: Any) -> Any:
    """A copy of the model without the attributes that refer to its training rows."""
    same = copy(model)
    same.__dict__.pop("dropped_", None)
    return same


def _applied(task: Sealed, X: Any, none: Array) -> Any:
    method, model = task.value
    return getattr(model, method)(X) if X.shape[0] else none
