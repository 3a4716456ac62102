"""The target of an audit: classes, numbers or several labels per row, from one column or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.preprocessing import MultiLabelBinarizer

from ..core.arrays import Array
from ..crossfit.folds import Folds
from ..errors import UserError
from ..pages.text import number, plural, visible
from ..tables.cell_formats import TEXT, plain_number, yes_or_no
from ..tables.columns import FEW, Column, listed, shown
from .decisions import TASKS as TASKS
from .decisions import join_labels

# The least number of rows of a class, which must be in every fold.
MIN_OF_CLASS = 5
_MAX_CLASSES, _MAX_LABELS = 200, 500


@dataclass(frozen=True)
class Target:
    """The target of the rows that have one, at the positions `rows` of the table.

    y has codes of `names` (classes), floats (numbers), or a mask of shape (rows, labels). `separator` separates labels
    within a cell. `given` is y before decisions: the share of wrong targets is estimated on it, because correcting the
    worst rows does not make the unreviewed rows more accurate.
    """

    task: str
    columns: list[str]
    y: Array
    names: list[str]
    rows: Array
    notes: list[str] = field(default_factory=list)
    separator: str = ""
    given: Array | None = None
    rare: Array | None = None  # (rows, rare labels): mask of the labels that are not audited, which have `rare_names`
    rare_names: list[str] = field(default_factory=list)

    @property
    def original(self) -> Array:
        """The target before decisions, on which the share of wrong targets is estimated."""
        return self.y if self.given is None else self.given

    @property
    def relabelled(self) -> Array:
        """Mask of the kept rows that were relabelled."""
        differs = self.original != self.y
        return differs.any(axis=1) if differs.ndim == 2 else differs

    def text_of(self, i: int) -> str:
        """The target of the i-th kept row as text."""
        if self.task == "classes":
            return self.names[self.y[i]]
        if self.task == "numbers":
            return number(float(self.y[i]))
        return self.labels_text(i, self.y[i])

    def labels_text(self, i: int, mask: Array) -> str:
        """The labels of a mask, and those of the i-th kept row that are not audited, as text; "(none)" without any."""
        labels = [name for name, true in zip(self.names, mask, strict=True) if true]
        return join_labels([*labels, *self.rare_of(i)], self.separator)

    def rare_of(self, i: int) -> list[str]:
        """The labels of the i-th kept row that are too rare or too frequent to be audited."""
        found = () if self.rare is None else self.rare[i]
        return [name for name, true in zip(self.rare_names, found, strict=True) if true]


def find_target(
    table: Any,
    columns: Sequence[str],
    task: str = "auto",
    separator: str | None = None,
    reading: tuple[str | None, str | None] = (None, None),
) -> Target:
    """Determine the learning task from the target columns, and encode the target of the rows that have one.

    `columns` is the target column, or several columns of 0 and 1. `reading` has the options `dates` and `decimal` of
    `read_columns`. Classes and labels that are too rare are left out.
    """
    if separator is not None and (len(columns) > 1 or task not in ("auto", "labels")):
        what = f"{len(columns)} target columns" if len(columns) > 1 else f"task={task!r}"
        raise UserError(
            f"labels_by separates the labels of one target column, got {what} as well; leave one of them out"
        )
    if len(columns) > 1:
        target = _indicators(table, list(columns))
    else:
        target = _one_column(table.column(columns[0]), columns[0], task, separator, reading)
    target = _without_missing(target, table.num_rows)
    if target.task != "numbers":
        return _without_rare(target)
    if len(np.unique(target.y)) < 2:
        raise UserError(
            f"a target must vary, got {target.y[0]:g} in all rows of {listed(columns)}; choose another column"
        )
    return target


def _one_column(cells: Any, name: str, task: str, separator: str | None, reading: Any) -> Target:
    import pyarrow as pa

    if pa.types.is_list(cells.type) or pa.types.is_large_list(cells.type):
        return _multilabel(name, [[str(label) for label in labels or ()] for labels in cells.to_pylist()], "")
    if separator is not None:
        return _multilabel(name, _split(Column.of(name, cells, TEXT), separator), separator)
    if task == "labels":
        raise UserError(
            "task='labels' needs several target columns of 0 and 1, or labels in one cell with a separator between "
            f"them, got neither in {shown(name)}; name it with labels_by="
        )
    column = Column.of(name, cells, TEXT if task == "classes" else None, dates=reading[0], decimal=reading[1])
    odd = sum(column.marks.values()) + (0 if column.strays is None else int(column.strays.sum()))
    if task == "numbers" and column.kind not in ("numbers", "whole numbers", "dates"):
        raise UserError(
            f"task='numbers' needs a column of numbers, got {column.kind} in {shown(name)}; use task='classes'"
        )
    if task == "numbers" or (column.values is not None and column.strays is None and not _looks_like_classes(column)):
        notes = [f"{odd:,} targets that are not numbers count as missing"] if odd else []
        return Target("numbers", [name], column.cells, [], np.arange(len(column)), notes)
    return _classes(column if column.levels else Column.of(name, cells, TEXT))


def _looks_like_classes(column: Column) -> bool:
    """Whether numbers are probably classes: yes and no, two values, or few whole numbers that repeat."""
    present = column.cells[~column.missing]
    values = np.unique(present)
    if column.kind == "yes or no" or len(values) <= 2:
        return True
    return bool((values == np.floor(values)).all()) and len(values) <= min(FEW, len(present) // MIN_OF_CLASS)


def _classes(column: Column) -> Target:
    """The classes of a column of texts, sorted: whole numbers by size, others as texts. A mark is one of them."""
    numbers = np.array([plain_number(level) for level in column.levels])
    if len(numbers) and (numbers % 1 == 0).all():
        values, code_of = np.unique(numbers, return_inverse=True)
        names = [str(int(value)) for value in values]
    else:
        order = sorted(range(len(column.levels)), key=column.levels.__getitem__)
        names, code_of = [column.levels[i] for i in order], np.argsort(order)
    code_of = np.where([not level.strip() for level in column.levels], -1, code_of)  # an empty text is no class
    codes = np.append(code_of, -1)[column.codes].astype(np.intp)
    return Target("classes", [column.name], codes, names, np.arange(len(column)))


def target_of(cells: Any, like: Target, form: str) -> Array:
    """The target of further rows: class codes (-1: missing or not in `like`), or numbers in the format `form`."""
    if like.task == "numbers":
        column = Column.of(like.columns[0], cells, form)
        return np.full(len(column), np.nan) if column.values is None else column.values
    found = _classes(Column.of(like.columns[0], cells, TEXT))
    code_of = {name: code for code, name in enumerate(like.names)}
    return np.array([*(code_of.get(name, -1) for name in found.names), -1], dtype=np.intp)[found.y]


def _indicators(table: Any, columns: list[str]) -> Target:
    """The target from several 0/1 columns; rows with a missing cell are left out."""
    masks, complete = [], np.ones(table.num_rows, dtype=bool)
    for name in columns:
        column = Column.of(name, table.column(name), TEXT)
        meanings = np.array([*map(yes_or_no, column.levels), 0.0])
        odd = [level for level, meaning in zip(column.levels, meanings, strict=False) if np.isnan(meaning)]
        if odd:
            raise UserError(
                f"with several target columns each must hold 0 and 1 (or yes and no), got '{visible(odd[0], 40)}' in "
                f"{shown(name)}; name one target, or make it 0 and 1"
            )
        masks.append(meanings[column.codes] == 1.0)
        complete &= column.codes >= 0
    target = Target("labels", columns, np.stack(masks, axis=1), columns, np.arange(len(complete)))
    return _kept(target, complete, "with a missing target")


def _split(column: Column, separator: str) -> list[list[str]]:
    pieces = [[p.strip() for p in level.split(separator) if p.strip()] for level in [*column.levels, ""]]
    return [pieces[code] for code in column.cells.tolist()]


def _multilabel(name: str, sets: Sequence[list[str]], separator: str) -> Target:
    """The target of the labels of each row. A missing cell has none, because CSV knows no other empty sets."""
    binarizer = MultiLabelBinarizer().fit(sets)
    names = [str(label) for label in binarizer.classes_]
    if len(names) < 2:
        raise UserError(
            f"a multi-label target needs at least two labels, got {len(names)} in {shown(name)}; check labels_by="
        )
    Y = binarizer.transform(sets).astype(bool)
    return Target("labels", [name], Y, names, np.arange(len(sets)), separator=separator)


# ---- rows that cannot be used ----------------------------------------------------------------------------------------


def _kept(target: Target, keep: Array, why: str, **changed: Any) -> Target:
    """The target of these rows, with a note on the others if there are any: that they are left out, and why."""
    left_out = int((~keep).sum())
    notes = target.notes + ([f"Left out: {plural(left_out, 'row')} {why}"] if left_out else [])
    return replace(target, **{"y": target.y[keep], "rows": target.rows[keep], "notes": notes, **changed})


def _without_missing(target: Target, n_rows: int) -> Target:
    if target.task != "labels":
        labelled = ~np.isnan(target.y) if target.task == "numbers" else target.y >= 0
        target = _kept(target, labelled, "without a target")
    if len(target.y) < FEW:
        raise UserError(
            f"an audit needs at least {FEW} rows with a target, got {len(target.y)} of {n_rows:,} in "
            f"{listed(target.columns)}; add rows"
        )
    return target


def _without_rare(target: Target) -> Target:
    """The target without classes of fewer than five rows, or without labels that fewer than five rows have or lack."""
    classes, n = target.task == "classes", len(target.y)
    counts = np.bincount(target.y, minlength=len(target.names)) if classes else target.y.sum(axis=0)
    common = (counts >= MIN_OF_CLASS) & (classes | (n - counts >= MIN_OF_CLASS))
    count, most = (len(target.names), _MAX_CLASSES) if classes else (int(common.sum()), _MAX_LABELS)
    what = "classes" if classes else "labels"
    if count > most:
        raise UserError(
            f"at most {most} {what} are audited, got {count:,} in {listed(target.columns)}; group them, keep the "
            "relevant ones, or use task='numbers' for a column of numbers"
        )
    if common.sum() < 2:
        raise UserError(
            f"a target needs two {what} of at least {MIN_OF_CLASS} rows{'' if classes else ' with and without them'}, "
            f"got {int(common.sum())} in {listed(target.columns)} (of {listed(target.names)}); choose other columns"
        )
    names = [name for name, kept in zip(target.names, common, strict=True) if kept]
    if classes:
        kept, rare = common[target.y], plural(int((~common & (counts > 0)).sum()), "class")
        y = (np.cumsum(common) - 1)[target.y[kept]]
        return _kept(target, kept, f"of {rare} with fewer than {MIN_OF_CLASS} rows", y=y, names=names)
    rare = plural(int((~common).sum()), "label")
    notes = [] if common.all() else [f"Left out: {rare} that nearly all or nearly no rows have"]
    others = [name for name, kept in zip(target.names, common, strict=True) if not kept]
    left_out: dict[str, Any] = {"rare": target.y[:, ~common], "rare_names": others}
    return replace(target, y=target.y[:, common], names=names, notes=target.notes + notes, **left_out)


# ---- folds by group and by time --------------------------------------------------------------------------------------


def group_numbers(column: Column, least: int = 1) -> Array:
    """The group number of each row; a row without a group is its own group. Fewer groups than `least` are an error."""
    codes = np.unique(column.cells, return_inverse=True)[1] if not column.levels else column.codes
    codes = np.where(column.missing, -1, codes)
    groups = np.where(codes < 0, codes.max() + np.cumsum(codes < 0), codes)
    if (count := len(np.unique(groups))) < least:
        raise UserError(f"group needs at least {least} groups, got {count} in {shown(column.name)}; name another")
    return groups


def time_periods(column: Column, count: int) -> Array:
    """The number of the period of each row, of up to `count` of about equal size; equal times are in one period."""
    name = shown(column.name)
    if column.values is None or column.missing.any():
        got = "texts" if column.values is None else f"{int(column.missing.sum()):,} cells without a date"
        raise UserError(f"time needs a date or a number in each row, got {got} in {name}; fix the column")
    edges = np.quantile(column.values, np.arange(1, count) / count, method="higher")
    periods = np.searchsorted(np.unique(edges), column.values, side="left")
    periods = np.unique(periods, return_inverse=True)[1].ravel()
    if periods.max() < 1:
        raise UserError(f"time needs at least two different times, got one in {name}; name another column")
    return periods


def check_folds(folds: Folds, target: Target) -> None:
    """Raise an error unless the training rows of each fold have each class at least twice."""
    for train in folds.train if target.task == "classes" else ():
        counts = np.bincount(target.y[train], minlength=len(target.names))
        if counts.min() < 2:
            lost = visible(target.names[int(counts.argmin())], 40)
            raise UserError(
                f"with group= or time= the training rows of each fold need each class at least twice, got '{lost}' "
                f"{int(counts.min())} times; leave its rows out, or audit without this option"
            )


# ---- names of rows ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowNames:
    """Names of rows: the `index` of a data frame, or numbers that begin with `first`: 1 in files, 0 in memory."""

    index: Array | None = None
    first: int = 0

    def name(self, position: Any) -> Any:
        """The name of the row at a position, or the names of those at several."""
        return position + self.first if self.index is None else self.index[position]

    def positions(self, name: str) -> list[int]:
        """The positions of the rows whose name is this text; without an index, one that may lie beyond the table."""
        if self.index is None:
            position = int(name) - self.first if name.isdecimal() and len(name) < 18 else -1
            return [position] if position >= 0 else []
        return self._positions.get(name, [])

    @cached_property
    def _positions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for position, name in enumerate([] if self.index is None else self.index):
            found.setdefault(str(name), []).append(position)
        return found

    def in_words(self) -> str:
        """A description of the row names."""
        if self.index is not None:
            return "by the index of the data frame"
        return "by their number, counted from 1 below the header" if self.first else "by their number, counted from 0"


def row_text(row: Any) -> str:
    """The name of a row as text: numbers with commas, labels in quotes."""
    return f"{row:,}" if isinstance(row, int | np.integer) else f"'{visible(row, 60)}'"


def plain_name(name: Any) -> Any:
    """The name of a row for JSON: an int, or a text for other names."""
    return int(name) if isinstance(name, int | np.integer) else str(name)
