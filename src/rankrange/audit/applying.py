"""Apply decisions to a table: the only way to make a new one. If a row is not the reviewed one, nothing is applied."""

from __future__ import annotations

import codecs
import gzip
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..core.arrays import Array
from ..errors import UserError
from ..issues.out_of_fold import index_of
from ..pages.text import csv_safe, plural, visible
from ..tables.cell_formats import means_one
from ..tables.columns import find_column
from ..tables.encode import as_table
from ..tables.read import Source, in_memory, texts_of
from ..tables.records import fields, records
from ..tables.write import Writer, csv_lines, packed
from .decisions import (
    NO_LABELS,
    Decision,
    Decisions,
    identify_rows,
    same_label,
    same_number,
    split_labels,
)
from .target import RowNames

Cells = dict[int, dict[int, str]]  # new texts by row and column, both from 0


@dataclass(frozen=True)
class Changes:
    """The changes to a table: new texts of cells, a mask of rows to drop, and the number of decisions of each kind."""

    cells: Cells
    dropped: Array
    counts: dict[str, int]

    def in_words(self) -> str:
        """The number of decisions of each kind, in words."""
        relabelled, dropped, kept, unsure = (
            self.counts.get(choice, 0) for choice in ("relabel", "drop", "keep", "unsure")
        )
        left = f", {unsure:,} left undecided" if unsure else ""
        return f"{plural(relabelled, 'row')} relabelled, {dropped:,} dropped, {kept:,} kept{left}"


def apply_decisions(table: Any, decisions: Decisions, *, new_labels: bool = False) -> Any:
    """Apply decisions to a table in memory. If one does not match its row, an error is raised and none is applied.

    Parameters
    ----------
    table : pandas.DataFrame, pyarrow.Table or dict of columns
        The table that was audited; it is not changed.
    decisions : Decisions
        The decisions, for example `Audit.decisions`.
    new_labels : bool, default=False
        For a target with classes: whether a new label may be one that no row of the table has.

    Returns
    -------
    table
        A table of the same type with the new labels and without the dropped rows.

    Examples
    --------
    >>> from rankrange.audit import apply_decisions, audit_table
    >>> table = {"x": [i % 7 + i // 20 * 9 for i in range(40)], "kind": ["a"] * 20 + ["b"] * 20}
    >>> table["kind"][3] = "b"  # among the a's
    >>> audit = audit_table(table, "kind")
    >>> audit.decide(3, "relabel")
    >>> apply_decisions(table, audit.decisions)["kind"][3]
    'a'
    """
    arrow, names = as_table(table), RowNames(index_of(table))
    changes = changes_of(decisions, in_memory(arrow), names, new_labels=new_labels)
    if type(table).__module__.split(".")[0] == "pandas":
        fixed = table.copy()
        for row, new in changes.cells.items():
            for position, text in new.items():
                fixed.iloc[row, position] = _typed(text, arrow.schema.field(position).type)
        return fixed[~changes.dropped]
    result = _changed(arrow, changes.cells, changes.dropped)
    return result.to_pydict() if isinstance(table, dict) else result


def changes_of(
    decisions: Decisions, source: Source, names: RowNames | None = None, *, new_labels: bool = False
) -> Changes:
    """Compare each decision with its row and return the changes to the table, without applying them.

    It is an error if a row, or the table, is not the one that was reviewed, and a new class that no row has, unless
    `new_labels` is true. Rows are by default numbered as in a file.
    """
    names = names or RowNames(first=1)
    for name in decisions.target:
        find_column(source.names, name, source.path, "the target of the decisions")
    columns = [source.names.index(name) for name in decisions.target]
    labels, n_rows = _labels_in(source, decisions.target)
    positions = [(names.positions(made.row) or [-1])[-1] for made in decisions.made]
    found = identify_rows(source, decisions.target, n_rows, positions)
    cells: Cells = {}
    dropped = np.zeros(n_rows, dtype=bool)
    for i, (row, made) in enumerate(zip(positions, decisions.made, strict=True)):
        if not found.cells[i]:
            raise UserError(
                f"decisions must be about rows of the table, got row {visible(made.row, 40)} of a table of {n_rows:,} "
                f"rows, which are named {names.in_words()}; give the decisions that were made on this table, or "
                "name all files that were audited together, then --decisions"
            )
        if found.contents[i] != made.contents:
            raise UserError(
                f"a decision applies to the row that was reviewed, but row {made.row} of {source.path} has other cells "
                "now: the table has changed, or the decisions belong to another table; audit it again with --decisions"
            )
        if not same_label(found.given[i], made.given):
            raise UserError(
                f"a decision applies to the label that was reviewed, '{visible(made.given, 60)}', but row {made.row} "
                f"of {source.path} has '{visible(found.given[i], 60)}' now; check whether the decisions were already "
                "applied"
            )
        if made.choice == "relabel" and len(columns) > 1:
            cells[row] = _yes_and_no(made, found.cells[i], columns, labels, decisions.target)
        elif made.choice == "relabel":
            cells[row] = {columns[0]: _new_cell(made, sorted(labels[0]), decisions.task, new_labels)}
        dropped[row] = made.choice == "drop"
    if decisions.table and found.table != decisions.table:
        raise UserError(
            f"decisions apply to the table that was audited, but {source.path} has other rows or columns now; audit it "
            "again with --decisions"
        )
    return Changes(cells, dropped, dict(Counter(made.choice for made in decisions.made)))


def _labels_in(source: Source, target: list[str]) -> tuple[list[set[str]], int]:
    """The distinct texts of each target column, and the number of rows."""
    labels: list[set[str]] = [set() for _ in target]
    n_rows = 0
    for batch in source.batches(target, as_written=True):
        rows = texts_of(batch)
        n_rows += len(rows)
        for texts, column in zip(labels, zip(*rows, strict=True), strict=False):  # a batch may have no rows
            texts.update(column)
    return labels, n_rows


def _new_cell(made: Decision, given_labels: list[str], task: str, new_labels: bool) -> str:
    """The new target cell of a relabelled row, spelt as in the table; "(none)" becomes an empty cell.

    A label that the target cannot have, has hidden characters or looks like a formula is an error.
    """
    label = made.new_label
    spelt = (
        [text for text in given_labels if text in (label, csv_safe(label))]
        or [text for text in given_labels if task == "classes" and same_label(text, label)]
        or [text for text in given_labels if visible(text) == label]  # as review tools show it
    )
    if spelt:
        return spelt[0]
    shown = f"'{visible(label, 60)}' for row {made.row}"
    if task == "numbers" and not same_number(label, label):
        raise UserError(f"the target of a row needs a number, got {shown}; correct the decision")
    if task == "classes" and not new_labels:
        examples = ", ".join(f"'{visible(text, 30)}'" for text in given_labels[:5])
        raise UserError(
            f"a new label must be one that the table has ({examples}{' ...' if len(given_labels) > 5 else ''}), got "
            f"{shown}; correct the decision, or allow it with --new-labels"
        )
    if label.strip() == "" or visible(label) != label:
        raise UserError(f"a new label must be text without hidden characters, got {shown}; correct the decision")
    if csv_safe(label) != label:
        raise UserError(f"a new label must not look like a formula, got {shown}; correct it")
    return "" if label == NO_LABELS else label


def _yes_and_no(
    made: Decision, cells: list[str], columns: list[int], column_texts: list[set[str]], target: list[str]
) -> dict[int, str]:
    """The cells of 0/1 target columns that change, by column, in the words that each column uses for yes and no."""
    labels = split_labels(made.new_label)
    odd = [label for label in labels if label not in target]
    if odd:
        raise UserError(
            f"new labels must be names of the target columns, got '{visible(odd[0], 60)}' for row {made.row}; fix it"
        )
    new = {}
    for column, name, texts in zip(columns, target, column_texts, strict=True):
        if means_one(cells[column]) != (name in labels):
            words = sorted(text for text in texts if text and means_one(text) == (name in labels))
            new[column] = words[0] if words else str(int(name in labels))
    return new


# ---- writing ---------------------------------------------------------------------------------------------------------


def fixed_contents(source: Source, changes: Changes, path: Path, *, copy: bool = True) -> Writer:
    """A function that writes the changed table.

    .parquet, .arrow and .feather keep types, any other path is CSV, and .gz is compressed. From CSV to CSV, other rows
    stay the same, byte for byte, unless `copy` is false: cells like formulas then get a leading apostrophe.
    """
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".arrow", ".feather"):
        return lambda file: _write_typed(source, changes, file, suffix)
    write = _fixed_csv if source.kind == "CSV" and copy else _fixed_texts
    return packed(path, lambda file: write(source, changes, file))


def _fixed_texts(source: Source, changes: Changes, file: BinaryIO) -> None:
    """Write a changed table as CSV. Cells like formulas get a leading apostrophe."""
    file.write(csv_lines([source.names], source.delimiter))
    row = 0
    for batch in source.batches(as_written=True):
        lines = []
        for cells in texts_of(batch):
            for index, text in changes.cells.get(row, {}).items():
                cells[index] = text
            lines += [] if changes.dropped[row] else [cells]
            row += 1
        file.write(csv_lines(lines, source.delimiter))


def _fixed_csv(source: Source, changes: Changes, file: BinaryIO) -> None:
    """Copy the text of the file with the changed cells, without the dropped rows; inconsistent quotes are an error."""
    opener: Any = gzip.open if source.zipped else open
    encoding = _without_mark(source, opener)
    with opener(source.path, "rt", encoding=encoding, newline="") as text:
        for _ in range(source.header_lines):
            file.write(next(text).encode(encoding))
        row = 0
        for record, cells, _ in records(text, source.delimiter):
            is_row = bool(cells)  # an empty line is not a row
            if is_row and row < len(changes.dropped) and row in changes.cells:
                record = _with_cells(record, source.delimiter, changes.cells[row])
            if not is_row or (row < len(changes.dropped) and not changes.dropped[row]):
                file.write(record.encode(encoding))
            row += is_row
    if row != len(changes.dropped):
        raise UserError(
            f"quotes and line ends of {source.path} must be consistent, got {row:,} rows by one reading and "
            f"{len(changes.dropped):,} by another; check its quotes, or give --out a name that ends in .parquet"
        )


def _without_mark(source: Source, opener: Any) -> str:
    """The encoding for which a byte order mark is an ordinary character, so that it is copied with the header."""
    with opener(source.path, "rb") as file:
        start = file.read(4)
    name = codecs.lookup(source.encoding).name
    if name in ("utf-16", "utf-32"):
        big = (codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)[name == "utf-32"]
        return f"{name}-be" if start.startswith(big) else f"{name}-le"
    return "utf-8" if name == "utf-8-sig" else source.encoding


def _with_cells(record: str, delimiter: str, new: dict[int, str]) -> str:
    """Replace some cells of a record; the other cells and the line end stay the same, byte for byte."""
    body = record.rstrip("\r\n")
    cells = fields(body, delimiter)
    for column, label in new.items():
        cells[column] = csv_lines([[label]], delimiter, safe=False).decode("utf-8").removesuffix("\n")
    return delimiter.join(cells) + record[len(body) :]


def _write_typed(source: Source, changes: Changes, file: BinaryIO, suffix: str) -> None:
    """Write the changed table with its types; a data set in batches, because it may be larger than memory."""
    import pyarrow
    import pyarrow.parquet

    batches = [] if source.data is None else source.batches()
    tables = [source.read()] if source.data is None else (pyarrow.Table.from_batches([one]) for one in batches)
    start, writer = 0, None
    for table in tables:
        rows = range(start, start + table.num_rows)
        here = {row - start: new for row, new in changes.cells.items() if row in rows}
        table = _changed(table, here, changes.dropped[rows.start : rows.stop])
        if writer is None:
            new_file = pyarrow.parquet.ParquetWriter if suffix == ".parquet" else pyarrow.ipc.new_file
            writer = new_file(file, table.schema)
        writer.write_table(table)
        start = rows.stop
    if writer is not None:
        writer.close()


def _changed(table: Any, cells: Cells, dropped: Array) -> Any:
    """The pyarrow table with the new cells, in the types of their columns, and without the dropped rows."""
    import pyarrow

    for column in sorted({column for new in cells.values() for column in new}):
        kind = table.schema.field(column).type
        values = table.column(column).to_pylist()
        for row, new in cells.items():
            if column in new:
                values[row] = _typed(new[column], kind)
        table = table.set_column(column, table.schema.field(column), pyarrow.array(values, type=kind))
    return table.filter(pyarrow.array(~dropped))


def _typed(text: str, kind: Any) -> Any:
    """Convert a label to the type of its column, several labels to a list; an error if that is impossible."""
    import pyarrow

    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return split_labels(text)
    kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    try:
        return pyarrow.array([text]).cast(kind)[0].as_py()
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise UserError(
            f"a new label must be of the type of its column, {kind}, got '{visible(text, 60)}'; correct the decision"
        ) from error
