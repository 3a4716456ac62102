"""Decisions of a reviewer about rows: their CSV format and the fingerprints that identify rows.

A decision has the name of its row and a fingerprint of all cells except the target, as written in the file. So it is
never applied to another row, and its row is found again after other rows were removed.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..errors import UserError
from ..issues.label_studio import fingerprint, read_small
from ..issues.suspects import CHOICES
from ..pages.text import csv_safe, csv_unsafe, visible
from ..tables.cell_formats import means_one, plain_number
from ..tables.read import rows_as_text
from ..tables.write import csv_lines

if TYPE_CHECKING:
    from .findings import Audit

COLUMNS = ("row", "given", "decision", "new_label", "p_wrong", "contents", "table", "target", "task")
TASKS = ("classes", "numbers", "labels")
NO_LABELS = "(none)"
# The number of evenly spaced rows in the fingerprint of a table, besides the column names and the number of rows.
_SAMPLED = 200


class Decision(NamedTuple):
    """A decision about one row.

    Attributes
    ----------
    row, given : str
        The row's name, its number in a file (from 1, below the header) or its label in a data frame, and its target.
    choice, new_label : str
        "relabel", "keep", "drop" or "unsure", and the new target of a row that is relabelled, otherwise "".
    p_wrong : float
        The probability that the target is wrong, as estimated by the audit; NaN if it is not known.
    contents : str
        A fingerprint of all cells of the row except the target.
    """

    row: str
    given: str
    choice: str
    new_label: str = ""
    p_wrong: float = float("nan")
    contents: str = ""


@dataclass(frozen=True)
class Decisions:
    """Decisions about one table.

    Parameters
    ----------
    target, task : list of str and str
        The target columns; "classes", "numbers" or "labels".
    table : str
        A fingerprint of the table; "" if it is not known.
    made : list of Decision
        The decisions, in the order in which they were made or read.
    """

    target: list[str]
    task: str
    table: str
    made: list[Decision] = field(default_factory=list)

    def as_csv(self, more: Mapping[str, Sequence[str]] | None = None) -> bytes:
        """The decisions as CSV in UTF-8, with `more` columns; cells like formulas get a leading apostrophe."""
        about = (self.table, target_as_text(self.target), self.task)
        extra = dict(more or {})
        lines = [[*COLUMNS, *extra]]
        for i, made in enumerate(self.made):
            p = "" if np.isnan(made.p_wrong) else f"{made.p_wrong:.4f}"
            cells = (made.row, made.given, made.choice, made.new_label, p, made.contents, *about)
            lines.append([*cells, *(column[i] for column in extra.values())])
        return csv_lines(lines)


def target_as_text(target: Sequence[str]) -> str:
    """The target columns as text: the name of one column, or a JSON list, also for a name like a formula or a list."""
    plain = len(target) == 1 and target[0][:1] != "[" and csv_safe(target[0]) == target[0]
    return target[0] if plain else json.dumps(list(target))


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_decisions(path: str | os.PathLike[str]) -> Decisions:
    """Read decisions from a CSV file: from the page of an audit, or its list of suspects with the decisions filled in.

    In that list, rows without a decision are left out, and "relabel" without a new label takes the suggested one; a
    numeric target needs a new label.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    Decisions
        The decisions, checked as far as that is possible without the table.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from rankrange.audit import Decision, Decisions, read_decisions
    >>> written = Decisions(["kind"], "classes", "0123", [Decision("3", "b", "drop")])
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "decisions.csv")
    ...     _ = path.write_bytes(written.as_csv())
    ...     read_decisions(path).made[0].choice
    'drop'
    """
    path = Path(path)
    text = read_small(path, "a list of decisions")
    first = text.partition("\n")[0]
    delimiter = ";" if first.count(";") > first.count(",") else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    absent = [name for name in COLUMNS if name not in (reader.fieldnames or ()) and name != "new_label"]
    if absent and "probability" in (reader.fieldnames or ()):
        raise UserError(
            f"observed outcomes are not decided, got a list of surprising rows in {path}; if people or programs "
            "assigned the target, audit with labels='annotated'"
        )
    if absent:
        raise UserError(
            f"decisions need the columns {', '.join(COLUMNS)}, got none named '{absent[0]}' in {path}; download them "
            "from the page of the audit again, or fill in the column decision of the file that --out writes; if there "
            "are several tables, name the decisions after --decisions"
        )
    try:
        read = [(_one(line, f"line {reader.line_num} of {path}"), line) for line in reader]
    except csv.Error as error:
        raise UserError(f"cannot read {path} as CSV ({visible(str(error), 80)}); check its quotes") from error
    return collected(((path.stem, _about(line, path), made) for made, line in read if made), path)[path.stem]


def collected(
    found: Iterable[tuple[str, tuple[str, tuple[str, ...], str], Decision]], path: Path
) -> dict[str, Decisions]:
    """The decisions of each reviewer: one per row, all about one table and target.

    `found` has the reviewer, the table, target and task, and the decision of each line or task.
    """
    rows: dict[str, dict[str, Decision]] = {}
    about = set()
    for reviewer, facts, made in found:
        about.add(facts)
        if rows.setdefault(reviewer, {}).setdefault(made.row, made) is not made:
            raise UserError(f"a row has one decision, got two for row {visible(made.row, 40)} in {path}; drop one")
    if not about:
        raise UserError(f"a list of decisions needs at least one, got none in {path}; decide a row first")
    if len(about) > 1:
        raise UserError(f"decisions must be about one table and one target, got several in {path}; keep one file each")
    table, target, task = about.pop()
    if task not in TASKS:
        raise UserError(f"task must be one of {', '.join(TASKS)}, got '{visible(task, 40)}' in {path}; correct it")
    return {name: Decisions(list(target), task, table, list(made.values())) for name, made in rows.items()}


def _about(line: dict[str, Any], path: Path) -> tuple[str, tuple[str, ...], str]:
    table, target, task = (csv_unsafe(line[name].strip()) for name in ("table", "target", "task"))
    names = _json_texts(target) if target.startswith("[") else [target]
    if not names:
        raise UserError(f"target must name columns, got '{visible(target, 60)}' in {path}; correct it")
    return table, tuple(names), task


def _one(line: dict[str, Any], where: str) -> Decision | None:
    """The decision of a line; None if it has none and is a line of `suspects.csv`."""
    cells = {name: line.get(name, "") for name in COLUMNS}
    if None in cells.values() or None in line:
        raise UserError(f"a decision has {len(line)} cells, got another number in {where}; correct that line")
    choice, of_suspects = cells["decision"].strip().casefold(), "suggested" in line
    if choice == "" and of_suspects:
        return None
    if choice not in CHOICES:
        raise UserError(
            f"a decision is one of {', '.join(CHOICES)}, got '{visible(choice, 40)}' in {where}; correct that line"
        )
    suggested = line["suggested"] if of_suspects and cells["task"] != "numbers" else ""  # a prediction is no new value
    new = csv_unsafe(cells["new_label"] or suggested) if choice == "relabel" else ""
    if choice == "relabel" and new == "":
        row = visible(cells["row"], 40)
        raise UserError(
            f"a row that is relabelled needs a new_label, got none for row {row} in {where}; fill it in, or write drop"
        )
    p = plain_number(cells["p_wrong"].replace(",", "."))
    if np.isnan(p) and cells["p_wrong"]:
        raise UserError(f"p_wrong must be a number, got '{visible(cells['p_wrong'], 40)}' in {where}; correct it")
    row, given, contents = cells["row"].strip(), cells["given"], cells["contents"].strip()
    return Decision(csv_unsafe(row), csv_unsafe(given), choice, new, p, contents)


def _json_texts(text: str) -> list[str]:
    """The texts of a JSON list, [] if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) and all(isinstance(one, str) for one in found) else []


# ---- fingerprints of rows -------------------------------------------------------------------------------------


class IdentifiedRows(NamedTuple):
    """The cells, fingerprints and targets of some rows, for decisions about them, and the fingerprint of the table."""

    cells: list[list[str]]
    contents: list[str]  # fingerprints
    given: list[str]
    table: str  # the fingerprint of the table


def identify_rows(source: Any, target: Sequence[str], n_rows: int, rows: Sequence[int] | Array) -> IdentifiedRows:
    """Read the rows at these positions (from 0), and compute their fingerprints and that of the table, in one pass.

    The latter is that of the column names, of `n_rows` and of at most 200 rows.
    """
    sample = np.unique(np.linspace(0, n_rows - 1, min(n_rows, _SAMPLED)).astype(int))
    cells = rows_as_text(source, [*rows, *sample])
    columns = [source.names.index(name) for name in target]
    return IdentifiedRows(
        cells[: len(rows)],
        [contents_of_row(row, columns) for row in cells[: len(rows)]],
        [given_of(row, columns, target) for row in cells[: len(rows)]],
        fingerprint([source.names, n_rows, cells[len(rows) :]]),
    )


def contents_of_row(cells: list[str], target_columns: Sequence[int]) -> str:
    """The fingerprint of a row without its target."""
    return fingerprint([cell for index, cell in enumerate(cells) if index not in target_columns])


def given_of(cells: list[str], columns: Sequence[int], target: Sequence[str]) -> str:
    """The target as written in the file; for several 0/1 columns, the names of those that are 1. '' without cells."""
    if len(columns) == 1 or not cells:
        return cells[columns[0]] if cells else ""
    return join_labels([name for column, name in zip(columns, target, strict=True) if means_one(cells[column])])


def join_labels(labels: Sequence[str], separator: str = "") -> str:
    """Join labels into one text for `split_labels`; "(none)" if there are none.

    Without a separator by commas if that can be split again, otherwise as JSON.
    """
    text = (separator or ", ").join(labels) or NO_LABELS
    return text if separator or split_labels(text) == list(labels) else json.dumps(list(labels), ensure_ascii=False)


def split_labels(text: str, separator: str = "") -> list[str]:
    """Split a text of `join_labels` into labels; "" and "(none)" have none."""
    if text in ("", NO_LABELS, "[]"):
        return []
    if separator:
        return [label.strip() for label in text.split(separator) if label.strip()]
    found = _json_texts(text) if text.startswith("[") else []
    return found or [label.strip() for label in text.split(",")]


def same_label(cell: str, text: str) -> bool:
    """Whether a cell of the table is the label of a decision: the same text, number, or true or false."""
    truth = cell.casefold() == text.casefold() in ("true", "false")
    return truth or text in (cell, csv_safe(cell)) or same_number(cell, text)


def same_number(one: str, other: str) -> bool:
    """Whether both texts are the same number. `same_number(text, text)` tests whether a text is a number."""
    return plain_number(one) == plain_number(other)


def decisions_about(audit: Audit, made: Mapping[int, Decision]) -> Decisions:
    """Decisions about the rows at these positions, with the fingerprints of the rows and of the table."""
    identified = identify_rows(audit.source, audit.target.columns, audit.n_rows, list(made))
    found = [
        decision._replace(given=identified.given[i], contents=identified.contents[i])
        for i, decision in enumerate(made.values())
    ]
    return Decisions(audit.target.columns, audit.target.task, identified.table, found)
