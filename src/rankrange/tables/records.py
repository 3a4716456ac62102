"""Split CSV into records and fields without changing their text.

Records are those of Python's csv module, but cells may have any length. The module's limit on the length is global to
the process and is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

_LINE_END = re.compile(r"\r\n|\r|\n")
_QUOTED = re.compile(r'"([^"]*(?:""[^"]*)*)("|\Z)')
_CLOSING = re.compile(r'[^"]*(?:""[^"]*)*"(?!")')


def records(lines: Iterable[str], delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the text of each record, with its line end, and its cells without quotes; an empty line has no cells.

    Lines have their line ends, as from a file opened with newline="". A record has several lines if a quoted cell
    contains line ends.
    """
    held: list[str] = []
    inside = False
    for line in lines:
        inside = _ends_inside(line, inside, not held, delimiter)
        held.append(line)
        if not inside:
            record = "".join(held)
            yield record, _cells(record.rstrip("\r\n"), delimiter)
            held = []
    if held:
        record = "".join(held)
        yield record, _cells(record, delimiter)


def line_count(record: str) -> int:
    """The number of lines of a record."""
    ends = len(_LINE_END.findall(record))
    return ends + (not record.endswith(("\r", "\n")))


def fields(record: str, delimiter: str) -> list[str]:
    """The cells of a record as written, with their quotes. `record` is without its line end."""
    found, start, pattern = [], 0, _field(delimiter)
    for _ in range(len(record) + 1):
        end = pattern.match(record, start).end()  # type: ignore[union-attr]
        found.append(record[start:end])
        start = end + 1
        if end == len(record):
            break
    return found


def _cells(record: str, delimiter: str) -> list[str]:
    if '"' not in record:
        return record.split(delimiter) if record else []
    return [_unquoted(field) for field in fields(record, delimiter)]


def _unquoted(field: str) -> str:
    quoted = _QUOTED.match(field)
    return field if quoted is None else quoted[1].replace('""', '"') + field[quoted.end() :]


@cache
def _field(delimiter: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{_QUOTED.pattern})?[^{re.escape(delimiter)}]*", re.DOTALL)


def _ends_inside(line: str, inside: bool, first: bool, delimiter: str) -> bool:
    """Whether a quoted cell continues after the line. Only a quote at the start of a cell opens one.

    `inside`: whether the line begins within a quoted cell. `first`: whether it is the first line of its record.
    """
    start = int(first and line.startswith('"'))
    inside = inside or bool(start)
    for _ in range(len(line) if '"' in line else 0):
        if inside:
            closed = _CLOSING.match(line, start)
            if closed is None:
                return True
            start = closed.end()
        opened = line.find(delimiter + '"', start)
        if opened < 0:
            return False
        inside, start = True, opened + 2
    return inside
