"""Columns of a table: found by name or pattern, and each converted once to numbers, or to codes of its texts."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..errors import UserError
from ..pages.text import number, visible
from .cell_formats import DATES, DECIMALS, HUGE, NUMBER, TEXT, YES_OR_NO, find_form, is_mark, read_texts

# Delimiters of CSV files, and their names in messages.
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar", " ": "space", ":": "colon"}
# Fewer rows say little about the usual values of a column or the share of errors; up to this many distinct values are
# few: whole numbers may be classes, and texts are no identifiers.
FEW = 20
# Dates further from 1970 than this, in days, are shown as numbers.
_LAST_DATE = 2e6


# ---- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table, converted once."""

    name: str
    # "numbers", "whole numbers", "yes or no", "dates", "times", "empty" (only nulls), "text", or "other" for cells that
    # are neither, such as lists.
    kind: str
    values: Array | None = None  # numbers, NaN if missing; dates are days since 1970; None for texts and other cells
    # Of texts, also if they were read as numbers: positions in `levels`, -1 if missing. Others: 0, numbers none.
    codes: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    levels: list[str] = field(default_factory=list)  # the distinct texts as written, in the order of their first cells
    form: str = TEXT  # the format of the texts (`find_form`), by which another table is read in the same way

    @classmethod
    def of(
        cls, name: str, column: Any, form: str | None = None, *, dates: str | None = None, decimal: str | None = None
    ) -> Column:
        """Convert a pyarrow column. If `form` is given, texts are read in this format; others count as missing.

        Without it the format is determined; an ambiguous one needs `dates` or `decimal`. Categories are texts.
        """
        import pyarrow as pa

        category = pa.types.is_dictionary(column.type)
        if category and form not in (None, TEXT):
            column, category = column.cast(column.type.value_type), False
        if form != TEXT and not category:
            kind, values = _native(column)
            if values is not None:
                return cls(name, kind, values, form=_FORM_OF.get(kind, NUMBER))
        if form == NUMBER:
            try:
                return cls(name, "numbers", _floats(column), form=form)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # not all texts are plain numbers
                pass
        try:
            codes, levels = _codes_of(column)
        except (TypeError, ValueError, NotImplementedError):
            return cls(name, "other", None, np.zeros(len(column), dtype=np.int64), [""])
        if category or form == TEXT or not _is_text(column.type):
            return cls(name, "text", None, codes, levels)
        if form is None:
            counts = np.bincount(codes[codes >= 0], minlength=len(levels)).tolist()
            form = find_form(name, dict(zip(levels, counts, strict=True)), {"dates": dates, "decimal": decimal})
        if form == TEXT:
            return cls(name, "text", None, codes, levels)
        read = read_texts(levels, form)
        values = np.array([*(read.get(level, np.nan) for level in levels), np.nan])[codes]
        return cls(name, _kind_of(form, np.array([*read.values()])), values, codes, levels, form)

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def cells(self) -> Array:
        """The numbers, or the codes of the texts."""
        return self.codes if self.values is None else self.values

    @cached_property
    def missing(self) -> Array:
        """Mask of the cells without a value, including texts that are no number in a column of numbers."""
        return self.codes < 0 if self.values is None else np.isnan(self.values)

    @cached_property
    def strays(self) -> Array | None:
        """Mask of the texts in a column of numbers that are neither numbers nor marks; None without such texts."""
        if self.values is None or not self.levels:
            return None
        stray = np.array([*(not is_mark(level) for level in self.levels), False])[self.codes] & self.missing
        return stray if stray.any() else None

    @cached_property
    def marks(self) -> dict[str, int]:
        """The markers of missing cells in a column of numbers, stripped, and the number of cells with each."""
        found: dict[str, int] = {}
        if self.values is None or not self.levels:
            return found
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels)).tolist()
        for level, count in zip(self.levels, counts, strict=True):
            if count and is_mark(level):
                found[level.strip()] = found.get(level.strip(), 0) + count
        return found

    @cached_property
    def is_prose(self) -> bool:
        """Whether 500 distinct texts are prose: three or more words each, shared with some but not most texts."""
        sample = self.levels[:: max(1, len(self.levels) // 500)][:500] if self.values is None else []
        words = [set(text.casefold().split()) for text in sample]
        if not words or np.mean([len(w) for w in words]) < 3.0:
            return False
        counts: dict[str, int] = {}
        for word in (word for index in words for word in index):
            counts[word] = counts.get(word, 0) + 1
        informative = {word for word, count in counts.items() if 1 < count < 0.6 * len(words)}
        return sum(bool(index & informative) for index in words) >= 0.5 * len(words)

    def texts(self) -> list[str]:
        """The cells as texts; missing ones are ""."""
        return [*map([*self.levels, ""].__getitem__, self.codes.tolist())]

    def cell_text(self, row: int) -> str:
        """The cell of a row as text, a date with its time; a missing text is "", a missing number "(missing)"."""
        if self.values is not None:
            value = float(self.values[row])
            timed = self.kind == "dates" and value % 1 > 0 and abs(value) < _LAST_DATE
            return str(np.datetime64(round(1440 * value), "m")) if timed else self.value_text(value)
        return "" if self.codes[row] < 0 else visible(self.levels[self.codes[row]], 60)

    def value_text(self, value: float, digits: int = 5) -> str:
        """A number of the column as text: dates as dates, 1 and 0 as yes and no if it has these; NaN is "(missing)"."""
        if np.isnan(value):
            return "(missing)"
        if self.kind == YES_OR_NO:
            return "yes" if value else "no"
        if self.kind == "dates" and abs(value) < _LAST_DATE:
            return str(np.datetime64(int(np.floor(value)), "D"))
        return number(value, digits)


_FORM_OF = {"dates": "year-first", "yes or no": YES_OR_NO}


def read_columns(
    table: Any, *, forms: Mapping[str, str] | None = None, dates: str | None = None, decimal: str | None = None
) -> list[Column]:
    """Convert the columns of a pyarrow Table or record batch, in the `forms` of an earlier call if they are given.

    `dates` is the meaning of 03/04/2025 ("day-first" or "month-first"), and `decimal` that of 1,234 ("point" or
    "comma"): without them an ambiguous column is an error.
    """
    for option, value, allowed in (("dates", dates, DATES), ("decimal", decimal, DECIMALS)):
        if value is not None and value not in allowed:
            raise UserError(f"{option} must be one of {', '.join(allowed)}, got {value!r}; leave it out to detect it")
    found = forms or {}
    return [
        Column.of(name, cells, found.get(name), dates=dates, decimal=decimal)
        for name, cells in zip(table.schema.names, table.columns, strict=True)
    ]


def _native(column: Any) -> tuple[str, Array | None]:
    """The kind and the values of cells that are numbers, booleans, dates or times already; None for others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    t = column.type
    if pa.types.is_boolean(t):
        return YES_OR_NO, _floats(pc.cast(column, pa.int8()))
    if pa.types.is_integer(t):
        return "whole numbers", _floats(column)
    if pa.types.is_floating(t) or pa.types.is_decimal(t):
        return "numbers", _floats(column)
    if pa.types.is_date(t) or pa.types.is_timestamp(t):
        return "dates", _floats(pc.cast(pc.cast(column, pa.timestamp("ms"), safe=False), pa.int64())) / 86_400_000.0
    if pa.types.is_time(t) or pa.types.is_duration(t):
        return "times", _floats(pc.cast(column, pa.int64() if t.bit_width == 64 else pa.int32()))
    if pa.types.is_null(t):
        return "empty", np.full(len(column), np.nan)
    return "", None


def _floats(column: Any) -> Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.fill_null(pc.cast(column, pa.float64(), safe=False), np.nan)
    values = np.array(cells.to_numpy(zero_copy_only=False) if isinstance(cells, pa.Array) else cells.to_numpy())
    values[~(np.abs(values) < HUGE)] = np.nan
    return values


def _kind_of(form: str, values: Array) -> str:
    if form == YES_OR_NO:
        return form
    if form not in (NUMBER, *DECIMALS):
        return "dates"
    return "whole numbers" if form == NUMBER and (values % 1 == 0).all() else "numbers"


def _is_text(t: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(t) or pa.types.is_large_string(t) or str(t) == "string_view")


def _codes_of(column: Any) -> tuple[Array, list[str]]:
    """The code of each cell (-1 if missing), and the distinct values as text, in the order of their first cells."""
    import pyarrow as pa
    import pyarrow.compute as pc

    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    encoded = chunked if pa.types.is_dictionary(chunked.type) else chunked.dictionary_encode()
    encoded = encoded.unify_dictionaries() if encoded.num_chunks > 1 else encoded
    parts = [pc.fill_null(pc.cast(chunk.indices, pa.int64()), -1).to_numpy() for chunk in encoded.chunks]
    levels = [str(value) for value in encoded.chunk(0).dictionary.to_pylist()] if encoded.num_chunks else []
    return (np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)), levels


# ---- names -----------------------------------------------------------------------------------------------------------


def find_columns(names: Sequence[str], wanted: Sequence[str], path: Path, option: str = "target=") -> list[str]:
    """Find columns by name or by patterns with *, ? or [...], without repetition; a name of a column is no pattern."""
    found: dict[str, None] = {}
    for name in wanted:
        matching = [] if name in names else [other for other in names if fnmatch.fnmatchcase(other, name)]
        found.update(dict.fromkeys(matching or [find_column(names, name, path, option)]))
    return list(found)


def find_column(names: Sequence[str], wanted: str, path: Path, option: str = "target=") -> str:
    """Return the name if there is such a column; otherwise raise an error with a hint, such as a similar name."""
    if wanted in names:
        return wanted
    near = nearest(wanted, names)
    if near:
        hint = f"did you mean {shown(near)}?"
    elif any(wanted in names[0].split(other) for other in DELIMITERS):
        hint = "the header seems to have another delimiter; name it with delimiter="
    elif all(re.fullmatch(r"\s*[-+]?[\d.]+(e[-+]?\d+)?\s*", name) for name in names):
        hint = "the first line must hold the names of the columns, and here it holds numbers; add a header"
    else:
        hint = f"it has {listed(names)}"
    raise UserError(f"{option} must name a column, got {shown(wanted)}, which {path} does not have; {hint}")


def nearest(wanted: str, names: Sequence[str]) -> str | None:
    """The name that was probably meant, by similar spelling regardless of case, or None."""
    folded = {name.strip().casefold(): name for name in names}
    near = difflib.get_close_matches(wanted.strip().casefold(), list(folded)[:20_000], n=1, cutoff=0.7)
    return folded[near[0]] if near else None


def shown(name: str) -> str:
    """A name from the data for messages: quoted, truncated, with hidden characters made visible."""
    return "'" + visible(name, 60) + "'"


def listed(names: Sequence[str]) -> str:
    """The first six names for messages."""
    return ", ".join(map(shown, names[:6])) + (" ..." if len(names) > 6 else "")
