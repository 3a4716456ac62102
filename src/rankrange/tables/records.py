"""Split CSV into records and fields without changing their text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..core.shared_context import SharedContext

_QUOTED = r'(?:"[^"]*(?:""[^"]*)*(?:"|\Z))?'


@contextmanager
def _without_limit() -> Iterator[None]:
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


# The limit on the length of a cell is global to the process: while records are read there is none.
_cells_of_any_length = SharedContext(_without_limit)


def records(lines: Iterable[str], delimiter: str) -> Iterator[tuple[str, list[str], int]]:
    """Yield the text of each record, its cells without quotes (none of an empty line), and the number of lines so far.

    Lines have their line ends, as from a file opened with newline="".
    """
    held: list[str] = []

    def remembered() -> Iterator[str]:
        for line in lines:
            held.append(line)
            yield line

    with _cells_of_any_length():
        reader = csv.reader(remembered(), delimiter=delimiter)
        for cells in reader:
            yield "".join(held), cells, reader.line_num
            held.clear()


def fields(record: str, delimiter: str) -> list[str]:
    """The cells of a record as written, with their quotes. `record` is without its line end."""
    field = re.compile(rf"(?:^|{re.escape(delimiter)})({_QUOTED}[^{re.escape(delimiter)}]*)", re.DOTALL)
    return [match[1] for match in field.finditer(record)]
