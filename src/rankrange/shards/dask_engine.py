"""Shards of Dask collections. Chunks stay on their workers; only parameters and merged results are sent.

A pass has about one Dask task per chunk. If a worker is lost, Dask computes its chunks and tasks again. Sums are over
blocks of BLOCK_ROWS rows. If a block spans several chunks, its rows are sent once to the worker of the first one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Any

import dask
import dask.array
import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from .engine import SAMPLE_ROWS, ArrayShard, Kernel, cut_chunk, merged
from .row_blocks import aligned_ranges, as_rows

# Results are merged on the workers in a tree with this fan-in.
_FAN_IN = 16
# Seconds without any worker after which a fit fails, unless Dask's configuration has `rankrange.worker-timeout`.
_WORKER_TIMEOUT = 8.0


class LostDataError(RuntimeError):
    """Raised if data are lost that cannot be computed again, if workers die repeatedly, or if the cluster is gone."""


class DaskShards:
    """Rows of a Dask array or dataframe, as an engine of `shards`.

    Parameters
    ----------
    X : dask array or dataframe
        Features, in chunks of rows; chunk lengths may be unknown, chunks may be empty or sparse.
    y : dask array or series
        Targets, with the same chunks of rows.
    weight : dask array or series, optional
        Weights, with the same chunks of rows.
    client : distributed.Client, optional
        The client to compute with; by default the current client, or Dask's scheduler in this process.

    Notes
    -----
    Dask's configuration may have `rankrange.sample-rows` (rows of the sample that is used to search for starts and to
    choose m and C, 131072 by default) and `rankrange.worker-timeout` (seconds without any worker after which a fit
    fails, 8 by default).
    """

    def __init__(self, X: Any, y: Any, weight: Any = None, client: Any = None) -> None:
        self.client = client if client is not None else _default_client()
        self.columns = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        self.n_columns = X.shape[1]
        self.sample_rows = int(dask.config.get("rankrange.sample-rows", SAMPLE_ROWS))
        self._collections = [part for part in (X, y, weight) if part is not None]
        columns = [_chunks(X, "X"), _chunks(y, "y")] + (
            [_chunks(weight, "sample_weight")] if weight is not None else []
        )
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
        self._chunks = self._persisted(self._lazy)
        lengths = self._known_lengths()
        self.lengths = self._checked(self._count() if lengths is None else lengths)
        self.n_rows = int(sum(self.lengths))
        self.ranges = aligned_ranges(self.lengths)
        self._borrowed = self._borrow(self._chunks)

    def _persisted(self, parts: list[Any]) -> list[Any]:
        if self.client is None or not parts:
            return parts
        return list(self.client.persist(parts))

    def _known_lengths(self) -> list[list[int]] | None:
        """For each chunk, the numbers of rows in X, y and the weights; None if some are unknown and must be counted."""
        if not all(hasattr(part, "chunks") for part in self._collections):
            return None
        lengths = list(zip(*(part.chunks[0] for part in self._collections), strict=True))
        if any(length != length for chunk in lengths for length in chunk):  # NaN
            return None
        return [[int(length) for length in chunk] for chunk in lengths]

    def _count(self) -> Sequence[list[int]]:
        return self._compute([dask.delayed(chunk_lengths, pure=True)(chunk) for chunk in self._chunks])

    def _checked(self, rows: Sequence[list[int]]) -> list[int]:
        for number, lengths in enumerate(rows):
            if len(set(lengths)) > 1:
                raise ValueError(
                    f"X, y and sample_weight must have the same number of rows in each chunk, got {lengths} in chunk "
                    f"{number}; split them alike"
                )
        return [lengths[0] for lengths in rows]

    def _borrow(self, chunks: list[Any]) -> list[list[Any]]:
        """For each range of rows, delayed objects with the rows of later chunks that complete its last block.

        They are kept on the workers, unless the chunks are those of the original collection.
        """
        cut = dask.delayed(cut_chunk, pure=True)
        pieces = [[cut(chunks[i], a, b) for i, a, b in at.pieces[1:]] for at in self.ranges]
        if chunks is self._lazy or self.client is None:
            return pieces
        flat = iter(self._persisted([piece for group in pieces for piece in group]))
        return [[next(flat) for _ in group] for group in pieces]

    def _tasks(self, kernel: Kernel, message: Any, chunks: list[Any], borrowed: list[list[Any]]) -> list[Any]:
        run = dask.delayed(run_kernel, pure=False)
        shared = dask.delayed(Sealed(message), pure=False)  # once in the graph, because trees take megabytes
        return [
            run(Sealed((kernel, at)), shared, chunks[at.pieces[0].chunk], *others)
            for at, others in zip(self.ranges, borrowed, strict=True)
        ]

    def reduce(self, kernel: Kernel, message: Any) -> Any:
        """Run the kernel on every range of rows and merge the results in the order of the rows."""
        level = self._tasks(kernel, message, self._chunks, self._borrowed)
        join = dask.delayed(merged, pure=False)
        while len(level) > 1:
            level = [join(level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
        return self._compute(level)[0]

    def map_lazy(self, kernel: Kernel, message: Any) -> list[Any]:
        """Delayed results, one per range of rows. They use the original collection and keep nothing on the workers."""
        return self._tasks(kernel, message, self._lazy, self._borrow(self._lazy))

    def lazy_rows(self, kernel: Kernel, message: Any) -> Any:
        """The results of a kernel with one boolean per row, as a Dask array in the nonempty chunks of the rows."""
        parts = [
            dask.array.from_delayed(part, (at.stop - at.start,), dtype=bool)
            for at, part in zip(self.ranges, self.map_lazy(kernel, message), strict=True)
        ]
        return dask.array.concatenate(parts).rechunk((tuple(n for n in self.lengths if n),))

    def _compute(self, parts: list[Any]) -> Sequence[Any]:
        if not parts:
            return []
        if self.client is None:
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
        """Wait until all futures are done.

        Raise a LostDataError if the scheduler has stopped or there is no worker for too long, because Dask would wait
        forever.
        """
        from distributed import wait

        alone_since: float | None = None
        patience = float(dask.config.get("rankrange.worker-timeout", _WORKER_TIMEOUT))
        while True:
            try:
                wait(futures, timeout=1.0)
                return
            except TimeoutError:
                if self.client.status not in ("running", "connecting"):
                    raise LostDataError(
                        "a fit needs its cluster, but the scheduler has stopped; start a cluster and fit again"
                    ) from None
                workers = self.client.nthreads() if self.client.status == "running" else {}
                alone_since = None if workers else (alone_since or time.monotonic())
                if alone_since is not None and time.monotonic() - alone_since > patience:
                    raise LostDataError(
                        f"a fit needs at least one worker, got none for {patience:g} s; start workers and fit again"
                    ) from None

    def _what_was_lost(self) -> str:
        from distributed import futures_of

        lost = [str(f.key) for f in futures_of(self._collections) if f.status in ("cancelled", "lost")]
        which = f"{len(lost)} pieces of data, {lost[0]} the first" if lost else "some chunks"
        return (
            f"each chunk must be held by a worker or be computable again, got {which}, lost with a worker; data that "
            "were scattered exist once: read or compute them in Dask instead (dask.dataframe.read_parquet), or scatter "
            "them with broadcast=True"
        )


def _default_client() -> Any:
    """The client that Dask itself would use; None if another scheduler is configured or there is no cluster."""
    if dask.config.get("scheduler", None) not in (None, "dask.distributed", "distributed"):
        return None
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


def frame_chunks(frame: Any) -> list[Any]:
    """The partitions of a dataframe or series as delayed objects.

    Dask combines Parquet files into larger partitions if few columns are read, so X and y of one table would have
    different partitions. The plan before that step is used, which still reads only the needed columns.
    """
    chunks = list(frame.to_delayed())
    if len(chunks) == frame.npartitions:
        return chunks
    return list(frame.simplify().to_delayed(optimize_graph=False))


def _chunks(collection: Any, name: str) -> list[Any]:
    """The chunks of rows as delayed objects; an error for other collections, and for several chunks of columns."""
    if not hasattr(collection, "__dask_graph__"):
        raise TypeError(
            f"{name} must be a Dask array, dataframe or series, got {type(collection).__name__}; use the plain "
            "estimator for data in memory, or dask.array.from_array"
        )
    if hasattr(collection, "npartitions") and not hasattr(collection, "numblocks"):
        return frame_chunks(collection)
    if collection.ndim == 2 and collection.numblocks[1] > 1:
        raise ValueError(
            f"{name} must be split into chunks of whole rows, got {collection.numblocks[1]} chunks of columns; use "
            f"{name}.rechunk({{1: -1}})"
        )
    return list(collection.to_delayed().ravel())


def as_chunk(X: Any, y: Any, weight: Any = None) -> tuple[Any, Any, Any]:
    """Convert a chunk of X (array, sparse matrix or dataframe), y and the weights to arrays for the kernels.

    Sparse X becomes CSR; y and weights of shape (n, 1) become (n,).
    """
    return _matrix(X), _vector(y), None if weight is None else _vector(weight)


def _matrix(X: Any) -> Any:
    X = X.to_numpy() if hasattr(X, "to_numpy") else X
    if sp.issparse(X):
        return as_rows(X, np.float32 if X.dtype == np.float32 else np.float64)
    X = np.asarray(X)
    return np.ascontiguousarray(X) if X.dtype.kind == "f" else X


def _vector(y: Any) -> Array:
    y = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def chunk_lengths(chunk: tuple[Any, Any, Any]) -> list[int]:
    """The numbers of rows of X, y and the weights of one chunk."""
    return [int(part.shape[0]) for part in chunk if part is not None]


class Sealed:
    """A wrapper that prevents Dask from searching a value for collections."""

    def __init__(self, value: Any) -> None:
        self.value = value


def run_kernel(task: Sealed, message: Sealed, chunk: Any, *others: Any) -> Any:
    """Apply the kernel to the rows of one range: its own part of a chunk, and the rows received from later chunks.

    `task` has the kernel and the range, `others` have the later rows.
    """
    kernel, at = task.value
    parts = [cut_chunk(chunk, *at.pieces[0][1:]), *others]
    named = [(f"chunk {piece.chunk}", *part) for piece, part in zip(at.pieces, parts, strict=True)]
    return kernel(ArrayShard(at.start, at.stop, named), message.value)
