"""Records of CSV as they are written, separated by their quotes.

What Python's csv module takes for a record is one here, with cells of any length: its limit on them belongs to the
whole process, and is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_LINE_END = re.compile(r"\r\n|\r|\n")


def records(lines: Iterable[str], delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Each record as it is written, its line end included, and its cells; an empty line has none.

    Parameters
    ----------
    lines : iterable of str
        Lines with their ends, as of a file that was opened with ``newline=""``.
    delimiter : str
        What separates cells.

    Yields
    ------
    record : str
        One line, or several where a cell in quotes holds line ends.
    cells : list of str
        Without their quotes.
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
    """How many lines a record takes in its file."""
    ends = len(_LINE_END.findall(record))
    return ends + (not record.endswith(("\r", "\n")))


def _ends_inside(line: str, inside: bool, first: bool, delimiter: str) -> bool:
    """Whether a cell in quotes goes on after the line; only a quote at the start of a cell opens one."""
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
    """The place after the quote that closes a cell, or -1; two quotes are one that belongs to it."""
    while True:
        place = text.find('"', at)
        if place < 0:
            return -1
        if text[place + 1 : place + 2] != '"':
            return place + 1
        at = place + 2


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
