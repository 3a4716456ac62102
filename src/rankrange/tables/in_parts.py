"""Tables that are read some rows at a time, so that they are never held whole.

Parquet and Arrow say their types. CSV has to be read to its end to know them: a column of numbers may hold a text in
its last row. `count_rows` does so once, and what it finds is given to `batches` from then on.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .read import MISSING, Source


class StrayCell(ValueError):
    """A cell of CSV that is not of the type that the first rows of its column have; the argument is the column."""


def batches(source: Source, columns: Sequence[str] | None = None, types: Mapping[str, Any] | None = None) -> Any:
    """Record batches of typed columns, cells of `MISSING` being null.

    Parameters
    ----------
    source : Source
        The file.
    columns : sequence of str, optional
        Which columns; all of them by default.
    types : mapping, optional
        What `count_rows` found; it is asked where this is left out.

    Returns
    -------
    iterator of pyarrow.RecordBatch
        The rows, in their order.
    """
    if source.kind != "csv":
        return source.packed_batches(columns)
    found = count_rows(source)[1] if types is None else types
    return _csv_batches(source, list(source.names if columns is None else columns), dict(found))


def count_rows(source: Source) -> tuple[int, dict[str, Any]]:
    """How many rows there are, and the columns of CSV that are text although their first rows are not."""
    import pyarrow

    if source.kind == "parquet":
        import pyarrow.parquet

        return int(pyarrow.parquet.read_metadata(source.path).num_rows), {}
    types: dict[str, Any] = {}
    while True:
        try:
            return sum(batch.num_rows for batch in batches(source, None, types)), types
        except StrayCell as stray:
            types[str(stray.args[0])] = pyarrow.string()


def _csv_batches(source: Source, columns: list[str], types: dict[str, Any]) -> Iterator[Any]:
    import pyarrow.csv

    convert = pyarrow.csv.ConvertOptions(
        null_values=list(MISSING), strings_can_be_null=True, include_columns=columns, column_types=types
    )
    try:
        with source._stream() as file:
            yield from pyarrow.csv.open_csv(file, source._read_options(), source._parse_options(), convert)
    except (OSError, ValueError, EOFError, zlib.error, MemoryError) as error:
        stray = re.search(r"In CSV column #(\d+).*conversion error", str(error))
        if stray:
            raise StrayCell(columns[int(stray.group(1))]) from error
        raise source._unreadable(error) from error
