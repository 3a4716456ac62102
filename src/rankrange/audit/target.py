"""The target of an audit: classes, numbers or several labels per row, from one column or several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..errors import UserError
from ..pages.text import number, visible
from ..tables.cell_values import codes_of, is_text, marks_in, numbers_of
from ..tables.columns import typed
from .decisions import NO_LABELS, join_labels, split_labels

TASKS = ("classes", "numbers", "labels")
# The least number of rows of a table, and of a class, which must be in every fold.
MIN_ROWS, MIN_OF_CLASS = 20, 5
_MAX_CLASSES, _MAX_LABELS = 200, 500
# Whole numbers with at most this many distinct values are classes, unless `task` is given.
_FEW_VALUES = 20
# This many of the largest groups are assigned to folds by size; the others are small.
_DEALT_BY_SIZE = 10_000
_SEPARATORS = ("|", ";", ",")
_YES = {"1", "true", "yes", "y", "t"}
_NO = {"0", "false", "no", "n", "f"}


@dataclass(frozen=True)
class Target:
    """The target of the rows that have one.

    y has codes of `names` (classes), floats (numbers), or a mask of shape (rows, labels). `rows` are the positions of
    these rows in the table. `separator` separates labels within a cell. `given` is y before decisions, if there are
    any. The share of wrong targets is estimated on `given`, because correcting the worst rows does not make the
    unreviewed rows more accurate.
    """

    task: str
    columns: list[str]
    y: Array
    names: list[str]
    rows: Array
    notes: list[str] = field(default_factory=list)
    separator: str = ""
    given: Array | None = None

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
        return self.labels_text(self.y[i])

    def labels_text(self, mask: Array) -> str:
        """The labels of a mask as text; "(none)" if there are none."""
        labels = [name for name, true in zip(self.names, mask, strict=True) if true]
        return (self.separator.join(labels) or NO_LABELS) if self.separator else join_labels(labels)

    def labels_in(self, text: str) -> list[str]:
        """The labels in a text of `labels_text`."""
        if not self.separator:
            return split_labels(text)
        return [] if text == NO_LABELS else text.split(self.separator)


def find_target(
    table: Any,
    columns: Sequence[str],
    task: str = "auto",
    separator: str | None = None,
    reading: tuple[str | None, str | None] = (None, None),
) -> Target:
    """Determine the learning task from the target columns, and encode the target.

    Parameters
    ----------
    table : pyarrow.Table
        All columns.
    columns : sequence of str
        The target column, or several columns of 0 and 1.
    task : str, default="auto"
        "classes", "numbers" or "labels"; "auto" decides by the values.
    separator : str or None
        The separator of labels within one cell.
    reading : tuple of str or None
        The options `dates` and `decimal` of `tables.columns.typed`, which resolve ambiguous dates and numbers.

    Returns
    -------
    Target
        The targets of the rows that have one, without classes and labels that are too rare.

    Raises
    ------
    UserError
        If the target cannot be used; the message contains the remedy.
    """
    if task not in ("auto", *TASKS):
        raise UserError(f"task must be one of auto, {', '.join(TASKS)}, got {task!r}; leave it out to detect it")
    if separator is not None and (len(columns) > 1 or task not in ("auto", "labels")):
        what = f"{len(columns)} target columns" if len(columns) > 1 else f"task={task!r}"
        raise UserError(
            f"labels_by separates the labels of one target column, got {what} as well; leave one of them out"
        )
    if len(columns) > 1:
        target = _indicators(table, list(columns))
    else:
        column = table.column(columns[0])
        if is_text(column.type) and (
            task == "numbers" or (task == "auto" and separator is None and _has_many_values(column))
        ):
            column = typed(table.select(list(columns)), dates=reading[0], decimal=reading[1])[0].column(0)
        target = _one_column(column, columns[0], task, separator)
    target = _without_missing(target, table.num_rows)
    if target.task == "classes":
        target = _without_rare(target)
    elif target.task == "labels":
        target = _without_rare_labels(target)
    elif len(np.unique(target.y)) < 2:
        raise UserError(
            f"a target must vary, got {target.y[0]:g} in all rows of {_quoted(columns)}; choose another column"
        )
    return target


def _has_many_values(column: Any) -> bool:
    """Whether a text column has too many values for classes and no separator of labels, such as sums of money."""
    return len(codes_of(column)[1]) > _MAX_CLASSES and _separator_in(column) is None


def _one_column(column: Any, name: str, task: str, separator: str | None) -> Target:
    import pyarrow as pa

    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return _multilabel(name, [None if v is None else [str(x) for x in v] for v in column.to_pylist()], "")
    numbers, kind, strays = numbers_of(column)
    marks = sum(marks_in(column).values()) if is_text(column.type) and numbers is not None else 0
    if task == "numbers":
        if numbers is None or kind not in ("numbers", "whole numbers", "dates"):
            raise UserError(
                f"task='numbers' needs a column of numbers, got {kind} in {_quoted([name])}; use task='classes'"
            )
        return _numbers(name, numbers, strays + marks)
    if task == "labels" or separator is not None:
        found = separator or _separator_in(column)
        if not found:
            raise UserError(
                "task='labels' needs several target columns of 0 and 1, or labels in one cell with a separator between "
                f"them, got neither in {_quoted([name])}; name it with labels_by="
            )
        return _multilabel(name, _split(column, found), found)
    if numbers is not None and not strays and task == "auto" and not _looks_like_classes(numbers, kind):
        return _numbers(name, numbers, marks)
    if marks:  # "unknown" among 0 and 1 is a class
        numbers, kind = None, "text"
    found = _separator_in(column) if task == "auto" and numbers is None else None
    return _multilabel(name, _split(column, found), found) if found else _classes(name, column, numbers, kind)


def _looks_like_classes(numbers: Array, kind: str) -> bool:
    present = numbers[~np.isnan(numbers)]
    values = np.unique(present)
    if kind == "yes or no" or len(values) <= 2:
        return True
    return bool((values == np.floor(values)).all()) and len(values) <= min(_FEW_VALUES, len(present) // MIN_OF_CLASS)


def _numbers(name: str, numbers: Array, strays: int) -> Target:
    notes = [f"{strays:,} targets that are not numbers count as missing"] if strays else []
    return Target("numbers", [name], numbers, [], np.arange(len(numbers)), notes)


def _classes(name: str, column: Any, numbers: Array | None, kind: str) -> Target:
    if numbers is not None and kind != "yes or no" and (numbers[~np.isnan(numbers)] % 1 == 0).all():
        values, codes = np.unique(numbers, return_inverse=True)
        present = values[~np.isnan(values)]
        names = [str(int(v)) for v in present]
        codes = np.where(np.isnan(numbers), -1, codes)
    else:
        codes, names = codes_of(column)
        order = np.argsort(np.array(names, dtype=object)) if names else np.empty(0, dtype=np.intp)
        code_of = np.empty(len(names) + 1, dtype=np.intp)
        code_of[order], code_of[-1] = np.arange(len(names)), -1
        codes, names = code_of[codes], [names[i] for i in order]
    return Target("classes", [name], codes, names, np.arange(len(codes)))


def _indicators(table: Any, columns: list[str]) -> Target:
    """The target from several 0/1 columns; rows with a missing cell are left out."""
    masks, complete = [], np.ones(table.num_rows, dtype=bool)
    for name in columns:
        codes, levels = codes_of(table.column(name))
        folded = [level.strip().casefold().removesuffix(".0") for level in levels]
        odd = [level for level, f in zip(levels, folded, strict=True) if f not in _YES | _NO]
        if odd:
            raise UserError(
                f"with several target columns each must hold 0 and 1 (or yes and no), got '{visible(odd[0], 40)}' in "
                f"{_quoted([name])}; name one target, or make it 0 and 1"
            )
        masks.append(np.array([f in _YES for f in folded] + [False])[codes])
        complete &= codes >= 0
    target = Target("labels", columns, np.stack(masks, axis=1), columns, np.arange(len(complete)))
    return _kept(target, complete, "{:,} rows with a missing target are left out")


def _separator_in(column: Any) -> str | None:
    """The separator of labels, "|", ";" or ",", if at least 10% of the cells seem to have several; otherwise None."""
    if not is_text(column.type):
        return None
    codes, levels = codes_of(column)
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    for separator in _SEPARATORS:
        several = np.array([separator in level for level in levels], dtype=bool)
        if not len(levels) or counts[several].sum() < 0.1 * counts.sum():
            continue
        pieces = {
            p.strip() for level, joined in zip(levels, several, strict=True) if joined for p in level.split(separator)
        }
        singles = {level.strip() for level, joined in zip(levels, several, strict=True) if not joined}
        # Labels repeat: a cell has one of them alone, or there are fewer labels than combinations.
        again = bool(singles & pieces) or (separator != "," and len(pieces) < several.sum())
        if again and 1 < len(pieces | singles) <= _MAX_LABELS:
            return separator
    return None


def _split(column: Any, separator: str) -> list[list[str] | None]:
    codes, levels = codes_of(column)
    pieces = [[p.strip() for p in level.split(separator) if p.strip()] for level in levels]
    return [None if code < 0 else pieces[code] for code in codes.tolist()]


def _multilabel(name: str, sets: Sequence[list[str] | None], separator: str) -> Target:
    # An empty cell is a row without labels, because CSV does not distinguish missing and empty sets.
    names = sorted({label for labels in sets for label in labels or ()})
    if len(names) < 2:
        raise UserError(
            f"a multi-label target needs at least two labels, got {len(names)} in {_quoted([name])}; check labels_by="
        )
    index_of = {label: i for i, label in enumerate(names)}
    Y = np.zeros((len(sets), len(names)), dtype=bool)
    for row, labels in zip(Y, sets, strict=True):
        row[[index_of[label] for label in labels or ()]] = True
    return Target("labels", [name], Y, names, np.arange(len(sets)), separator=separator)


# ---- rows that cannot be used ----------------------------------------------------------------------------------------


def _kept(target: Target, keep: Array, note: str, y: Array | None = None, names: list[str] | None = None) -> Target:
    n_missing = int((~keep).sum())
    notes = target.notes + ([_in_words(note, n_missing)] if n_missing else [])
    return replace(
        target,
        y=(target.y if y is None else y)[keep],
        names=target.names if names is None else names,
        rows=target.rows[keep],
        notes=notes,
    )


def _in_words(note: str, rows: int) -> str:
    """A note about this many rows, in the singular for one row."""
    text = re.sub(r"\b1 classes\b", "1 class", note.format(rows))
    return text.replace("1 rows", "1 row").replace(" are left out", " is left out") if rows == 1 else text


def _without_missing(target: Target, n_rows: int) -> Target:
    if target.task != "labels":
        labelled = ~np.isnan(target.y) if target.task == "numbers" else target.y >= 0
        target = _kept(target, labelled, "{:,} rows without a target are left out")
    if len(target.y) < MIN_ROWS:
        raise UserError(
            f"an audit needs at least {MIN_ROWS} rows with a target, got {len(target.y)} of {n_rows:,} in "
            f"{_quoted(target.columns)}; add rows"
        )
    return target


def _without_rare(target: Target) -> Target:
    counts = np.bincount(target.y, minlength=len(target.names))
    common = counts >= MIN_OF_CLASS
    if len(target.names) > _MAX_CLASSES:
        raise UserError(
            f"at most {_MAX_CLASSES} classes are audited, got {len(target.names):,} in {_quoted(target.columns)}; "
            "group them, or use task='numbers' for a column of numbers"
        )
    if common.sum() < 2:
        only = ", ".join(visible(name, 40) for name in target.names[:3])
        raise UserError(
            f"a target needs two classes of at least {MIN_OF_CLASS} rows, got {int((counts > 0).sum())} class(es) "
            f"({only}{' ...' if len(target.names) > 3 else ''}) in {_quoted(target.columns)}; choose another column"
        )
    new_code = np.cumsum(common) - 1
    names = [name for name, kept in zip(target.names, common, strict=True) if kept]
    rare = int((~common & (counts > 0)).sum())
    note = f"{{:,}} rows of {rare} classes with fewer than {MIN_OF_CLASS} rows are left out"
    return _kept(target, common[target.y], note, new_code[target.y], names)


def _without_rare_labels(target: Target) -> Target:
    true = target.y.sum(axis=0)
    common = (true >= MIN_OF_CLASS) & (len(target.y) - true >= MIN_OF_CLASS)
    if common.sum() < 2:
        raise UserError(
            f"a multi-label target needs two labels that at least {MIN_OF_CLASS} rows have and as many do not, got "
            f"{int(common.sum())} in {_quoted(target.columns)}; choose other columns"
        )
    if common.sum() > _MAX_LABELS:
        raise UserError(f"at most {_MAX_LABELS} labels are audited, got {int(common.sum()):,}; keep the relevant ones")
    names = [name for name, kept in zip(target.names, common, strict=True) if kept]
    notes = [*target.notes]
    if not common.all():
        notes.append(f"{int((~common).sum())} labels that nearly all or nearly no rows have are left out")
    return replace(target, y=target.y[:, common], names=names, notes=notes)


def _quoted(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - 3} more" if len(columns) > 3 else ""
    return ", ".join(f"'{visible(name, 60)}'" for name in columns[:3]) + more


# ---- folds by group and by time --------------------------------------------------------------------------------------


def group_numbers(column: Any) -> Array:
    """The group number of each row; a row without a group is its own group."""
    codes, levels = codes_of(column)
    alone = codes < 0
    return np.where(alone, len(levels) + np.cumsum(alone) - 1, codes)


def folds_by_group(column: Any, name: str, target: Target, folds: int, rng: np.random.Generator) -> Array:
    """The fold of each row (n,), from 0 to folds - 1, such that no group is split.

    A row without a group is its own group. Each class must be in the training rows of all folds.
    """
    codes = group_numbers(column)
    sizes = np.bincount(codes)
    if (sizes > 0).sum() < folds:
        raise UserError(
            f"group needs at least {folds} groups, got {int((sizes > 0).sum())} in {_quoted([name])}; name another"
        )
    part_of = np.empty(len(sizes), dtype=np.intp)
    filled = np.zeros(folds)
    order = np.argsort(-(sizes + rng.random(len(sizes))))
    for group in order[:_DEALT_BY_SIZE].tolist():
        part_of[group] = np.argmin(filled)
        filled[part_of[group]] += sizes[group]
    part_of[order[_DEALT_BY_SIZE:]] = np.arange(max(0, len(order) - _DEALT_BY_SIZE)) % folds
    return _with_all_classes(part_of[codes], target, f"group={_quoted([name])}", lambda parts, f: parts != f)


def folds_by_time(column: Any, name: str, target: Target, folds: int) -> Array:
    """The fold of each row (n,): up to `folds` periods of about equal size, numbered from 0 in the order of time.

    Rows with the same time are in the same fold. Each class must be in the training rows of all folds.
    """
    values, _, _ = numbers_of(column)
    if values is None or np.isnan(values).any():
        got = "texts" if values is None else f"{int(np.isnan(values).sum()):,} cells without a date"
        raise UserError(f"time needs a date or a number in each row, got {got} in {_quoted([name])}; fix the column")
    edges = np.quantile(values, np.arange(1, folds) / folds, method="higher")
    parts = np.searchsorted(np.unique(edges), values, side="left")
    parts = np.unique(parts, return_inverse=True)[1].ravel()
    if parts.max() < 1:
        raise UserError(f"time needs at least two different times, got one in {_quoted([name])}; name another column")
    return _with_all_classes(parts, target, f"time={_quoted([name])}", lambda p, f: p < f if f else p == 1)


def _with_all_classes(parts: Array, target: Target, option: str, trains_on: Any) -> Array:
    """Return the folds if the training rows of each fold have each class at least twice; otherwise raise an error.

    Other targets than classes are not checked. `trains_on(parts, f)` is the mask of the training rows of fold f, and
    `option` is for the message.
    """
    if target.task == "classes":
        for f in range(int(parts.max()) + 1):
            counts = np.bincount(target.y[trains_on(parts, f)], minlength=len(target.names))
            if counts.min() < 2:
                lost = visible(target.names[int(counts.argmin())], 40)
                raise UserError(
                    f"with {option} the training rows of each fold must have each class at least twice, got '{lost}' "
                    f"{int(counts.min())} times; leave its rows out, or audit without this option"
                )
    return parts


# ---- names of rows ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowNames:
    """Names of rows: the `index` of a data frame, or numbers that begin with `first`: 1 in files, 0 in memory."""

    index: Array | None = None
    first: int = 0

    def name(self, position: int) -> Any:
        """The name of the row at a position."""
        return position + self.first if self.index is None else self.index[position]

    def position_of(self, name: Any, n_rows: int) -> int:
        """The position of the row with this name; an error if there is none or more than one."""
        if self.index is None:
            position = int(name) - self.first if isinstance(name, int | np.integer) else -1
            fits = [position] if 0 <= position < n_rows else []
        else:
            fits = np.flatnonzero(self.index == name).tolist()
        if len(fits) != 1:
            many = (
                f"{len(fits)} rows have that name: call reset_index() first"
                if fits
                else f"rows are named {self.in_words()}"
            )
            raise UserError(f"a decision needs the name of one row, got {name!r}; {many}")
        return int(fits[0])

    def position_of_text(self, name: str) -> int:
        """The position of the row whose name is this text, as in a decision; -1 if it is the name of none.

        Of equal names in an index the last counts. Without an index, the position may lie beyond the table.
        """
        if self.index is None:
            return max(int(name) - self.first, -1) if name.isdecimal() and len(name) < 18 else -1
        return self._positions.get(name, -1)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {} if self.index is None else {str(name): i for i, name in enumerate(self.index)}

    def numbers(self, rows: Array) -> Array:
        """The rows' names if these are integers, otherwise their numbers, which begin with `first`."""
        if self.index is not None and self.index.dtype.kind in "iu":
            return self.index[rows]
        return rows + self.first

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
