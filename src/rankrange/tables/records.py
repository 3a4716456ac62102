"""Split CSV into records without changing their text.

Records are those of Python's csv module, but cells may have any length. The module's limit on the length is global to
the process and is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_LINE_END = re.compile(r"\r\n|\r|\n")


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


def _ends_inside(line: str, inside: bool, first: bool, delimiter: str) -> bool:
    """Whether a quoted cell continues after the line. Only a quote at the start of a cell opens one.

    `inside`: whether the line begins within a quoted cell. `first`: whether it is the first line of its record.
    """
    at = 0
    if '"' not in line:
        return inside
    if first and line[0] == '"':
        inside, at = True, 1
    while True:
        if inside:
            at = _closing(line, at)
            if at < 0:
                return True
            inside = False
        at = line.find(delimiter, at) + 1
        if at == 0:
            return False
        if line[at : at + 1] == '"':
            inside, at = True, at + 1


def _closing(text: str, at: int) -> int:
    """The position after the closing quote, sought from `at`, or -1 if there is none. Doubled quotes do not close."""
    while True:
        quote = text.find('"', at)
        if quote < 0:
            return -1
        if text[quote + 1 : quote + 2] != '"':
            return quote + 1
        at = quote + 2


def _cells(record: str, delimiter: str) -> list[str]:
    if '"' not in record:
        return record.split(delimiter) if record else []
    cells, at = [], 0
    while True:
        held = ""
        if record[at : at + 1] == '"':
            stop = _closing(record, at + 1)
            held = record[at + 1 : stop - 1 if stop > 0 else len(record)].replace('""', '"')
            at = stop if stop > 0 else len(record)
        stop = record.find(delimiter, at)
        cells.append(held + (record[at:] if stop < 0 else record[at:stop]))
        if stop < 0:
            return cells
        at = stop + 1
