"""Reading rows from files in batches: Parquet and Arrow with pyarrow, .npy with plain reads."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..errors import missing_package
from .row_blocks import BLOCK_ROWS, Batch

# Parquet row groups up to this size are decoded at once, which is faster; larger ones in parts.
_GROUP_BYTES = 64_000_000
_ROWS_AT_A_TIME = 1 << 16


class Part(NamedTuple):
    """Consecutive rows of one file: a row group, a record batch, or a whole .npy file."""

    path: str
    number: int  # of the row group or record batch in its file
    first_row: int  # the number of the first row among all rows
    n_rows: int
    name: str  # for error messages


@dataclass(frozen=True)
class Layout:
    """The columns of features, target and weight, and the dtype of the features."""

    kind: str  # "parquet", "arrow" or "npy"
    features: tuple[Any, ...]  # columns; for .npy their numbers, or names if the file has only features
    target: Any  # a column; for .npy its number, or the path of another file
    weight: Any  # as `target`, or None
    dtype: Any
    labels: Array | None = None  # the labels, if the target is stored as codes


@dataclass(frozen=True)
class FileShard:
    """Rows [start, stop) of some files. It has only names and numbers, so it can be sent to any process."""

    start: int
    stop: int
    parts: tuple[Part, ...]
    layout: Layout

    def batches(self) -> Iterator[Batch]:
        """The rows, batch by batch; the next batches are read in advance."""
        return read_ahead(self._batches)

    def _batches(self) -> Iterator[Batch]:
        read = {"parquet": _parquet, "arrow": _arrow, "npy": _npy}[self.layout.kind]
        for part in self.parts:
            low, high = max(self.start - part.first_row, 0), min(self.stop - part.first_row, part.n_rows)
            if low < high:
                with readable(part.path, part.name):
                    yield from read(part, self.layout, low, high)


@contextmanager
def readable(path: str, name: str) -> Iterator[None]:
    """Context manager that turns read errors into messages with the file name and the remedy."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"the files of a scan must not be moved or deleted, got no file at {path}; restore it, or scan again"
        ) from error
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(
            f"every file of a scan must be readable, got {name}, which is damaged or cut off ({_short(error)}); write "
            "it again, or leave it out"
        ) from error


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) < 160 else text[:157] + "..."


def read_ahead(produce: Callable[[], Iterator[Any]], depth: int = 4) -> Iterator[Any]:
    """Yield the items of `produce()`; a thread produces up to `depth` items in advance. Its errors are raised here."""
    items: queue.Queue[tuple[str, Any]] = queue.Queue(depth)
    stopped = threading.Event()

    def work() -> None:
        try:
            for item in produce():
                if not _put(items, ("item", item), stopped):
                    return
            _put(items, ("end", None), stopped)
        except BaseException as error:  # raised again in the consumer
            _put(items, ("error", error), stopped)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            kind, item = items.get()
            if kind == "error":
                raise item
            if kind == "end":
                return
            yield item
    finally:
        stopped.set()
        thread.join()


def _put(items: queue.Queue[tuple[str, Any]], item: tuple[str, Any], stopped: threading.Event) -> bool:
    while not stopped.is_set():
        try:
            items.put(item, timeout=0.05)
            return True
        except queue.Full:
            continue
    return False


def pyarrow_module(name: str = "") -> Any:
    """pyarrow or one of its modules; if it is missing, the error contains the command to install it."""
    import importlib

    try:
        return importlib.import_module("pyarrow" + (f".{name}" if name else ""))
    except ImportError as error:
        raise missing_package("pyarrow", "scanning Parquet, Arrow and CSV") from error


def _parquet(part: Part, layout: Layout, low: int, high: int) -> Iterator[Batch]:
    parquet = pyarrow_module("parquet")
    columns = list(
        dict.fromkeys([*layout.features, layout.target, *([] if layout.weight is None else [layout.weight])])
    )
    with parquet.ParquetFile(part.path, memory_map=True) as file:
        if file.metadata.row_group(part.number).total_byte_size <= _GROUP_BYTES:
            tables = iter([file.read_row_group(part.number, columns=columns, use_threads=False)])
        else:
            tables = file.iter_batches(_ROWS_AT_A_TIME, row_groups=[part.number], columns=columns, use_threads=False)
        yield from _tables(tables, part, layout, low, high)


def _arrow(part: Part, layout: Layout, low: int, high: int) -> Iterator[Batch]:
    pyarrow, ipc = pyarrow_module(), pyarrow_module("ipc")
    with pyarrow.memory_map(part.path) as source:
        batch = ipc.open_file(source).get_batch(part.number)
        yield from _tables(iter([batch]), part, layout, low, high)


def _tables(tables: Iterator[Any], part: Part, layout: Layout, low: int, high: int) -> Iterator[Batch]:
    """Rows [low, high) of the part, in batches that end at block boundaries."""
    at = 0
    for table in tables:
        start, stop = max(low - at, 0), min(high - at, table.num_rows)
        if start < stop:
            yield from _rows_of(table.slice(start, stop - start), part.first_row + at + start, part.name, layout)
        at += table.num_rows


def _rows_of(table: Any, first_row: int, name: str, layout: Layout) -> Iterator[Batch]:
    columns = [_numbers(table.column(column), layout.dtype) for column in layout.features]
    y = _target(table.column(layout.target))
    weight = None if layout.weight is None else _numbers(table.column(layout.weight), np.float64)
    n = table.num_rows
    start = 0
    while start < n:
        stop = min(n, start + BLOCK_ROWS - (first_row + start) % BLOCK_ROWS)
        part = None if weight is None else weight[start:stop]
        yield Batch(first_row + start, _row_major(columns, start, stop, layout.dtype), y[start:stop], part, name)
        start = stop


def _row_major(columns: list[Array], start: int, stop: int, dtype: Any) -> Array:
    """Rows [start, stop) of the columns as a row-major matrix."""
    # Padding: columns at a distance of a power of two would share cache lines.
    padded = np.empty((len(columns), stop - start + 16), dtype=dtype)
    for row, column in zip(padded, columns, strict=True):
        row[: stop - start] = column[start:stop]
    return np.ascontiguousarray(padded[:, : stop - start].T)


def _numbers(column: Any, dtype: Any) -> Array:
    pyarrow, compute = pyarrow_module(), pyarrow_module("compute")
    kind = pyarrow.from_numpy_dtype(np.dtype(dtype))
    if column.type != kind:
        column = compute.cast(column, kind, safe=False)
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
        column = column.chunk(0) if hasattr(column, "chunk") else column
    return column.to_numpy(zero_copy_only=False)


def _target(column: Any) -> Array:
    pyarrow = pyarrow_module()
    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.to_numpy() if hasattr(column, "num_chunks") else column.to_numpy(zero_copy_only=False)


def _npy(part: Part, layout: Layout, low: int, high: int) -> Iterator[Batch]:
    """Rows [low, high) of a .npy file; target and weight are columns of it or separate files."""
    X = Npy(part.path)
    at = low
    while at < high:
        stop = min(high, at + BLOCK_ROWS - (part.first_row + at) % BLOCK_ROWS)
        rows = X.read(at, stop)
        y, weight = (_npy_column(which, rows, at, stop) for which in (layout.target, layout.weight))
        features = rows if len(layout.features) == rows.shape[1] else rows[:, list(layout.features)]
        y = y if layout.labels is None else layout.labels[y]
        yield Batch(part.first_row + at, features.astype(layout.dtype, copy=False), y, weight, part.name)
        at = stop


def _npy_column(which: Any, rows: Array, start: int, stop: int) -> Any:
    if which is None:
        return None
    return rows[:, which].copy() if isinstance(which, int) else Npy(which).read(start, stop)


class Npy:
    """A .npy file, read without a memory map, whose pages would count as memory of this process.

    Only matrices in column-major order are read through a memory map.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        with open(path, "rb") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            self.shape, self.by_columns, self.dtype = read(file)
            self._offset = file.tell()
        if self.dtype.hasobject:
            raise ValueError(f"a .npy file must hold plain numbers, got Python objects in {self.path}; save numbers")

    def read(self, start: int, stop: int) -> Array:
        """Rows [start, stop); an error if the file ends before."""
        if self.by_columns and len(self.shape) > 1:
            return np.ascontiguousarray(np.load(self.path, mmap_mode="r", allow_pickle=False)[start:stop])
        width = int(np.prod(self.shape[1:]))
        out = np.fromfile(
            self.path, self.dtype, (stop - start) * width, offset=self._offset + start * width * self.dtype.itemsize
        )
        if len(out) != (stop - start) * width:
            raise EOFError(f"the header has {self.shape[0]} rows, but row {stop - 1} is missing")
        return out.reshape(stop - start, *self.shape[1:])
