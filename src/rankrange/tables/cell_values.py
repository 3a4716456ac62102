"""Conversion of columns to numbers: numbers, dates, times, yes and no, and texts of these types."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..core.arrays import Array

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "?", "#N/A", "<NA>")
# Further markers of missing cells in columns of numbers or dates. In text columns they are often values.
_MARKS = {
    *(mark.casefold() for mark in MISSING),
    *(".", "..", "...", "-", "--", "---", "\u2013", "\u2014", "*", "na", "n.a.", "n.a", "n/d", "nd", "nil", "none"),
    *("missing", "(missing)", "unknown", "unk", "not known", "not available", "not applicable", "not recorded"),
    *("#div/0!", "#value!", "#ref!", "#num!", "#name?", "#null!"),
}
# A text column is numeric if at least this share of its cells are numbers; the others count as missing.
_MOSTLY = 0.95
# Infinite values, and values whose square overflows, count as missing.
_HUGE = 1e150
_PAIRS = ({"yes", "no"}, {"y", "n"}, {"true", "false"}, {"t", "f"})
_YES = {"yes", "y", "true", "t"}
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:.*)?")


def is_mark(text: str) -> bool:
    """Whether a text marks a missing cell in a column of numbers or dates."""
    return text.strip().casefold() in _MARKS


def marks_in(column: Any) -> dict[str, int]:
    """The markers of missing cells in a text column, stripped, and the number of cells with each."""
    codes, levels = codes_of(column)
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    found: dict[str, int] = {}
    for level, count in zip(levels, counts.tolist(), strict=True):
        if is_mark(level):
            found[level.strip()] = found.get(level.strip(), 0) + count
    return found


def numbers_of(column: Any) -> tuple[Array | None, str, int]:
    """Convert a column of numbers, booleans (also yes and no), dates or times to floats.

    Dates are days since 1970, times are in the unit of the column. Returns the values, NaN for missing and huge cells
    (None if the column has another type, such as text), the type of the column in words ("empty" if it has only nulls),
    and the number of texts that are not numbers and count as missing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    t = column.type
    if pa.types.is_boolean(t):
        return _as_floats(pc.cast(column, pa.int8())), "yes or no", 0
    if pa.types.is_integer(t):
        return _as_floats(column), "whole numbers", 0
    if pa.types.is_floating(t) or pa.types.is_decimal(t):
        return _as_floats(column), "numbers", 0
    if pa.types.is_date(t) or pa.types.is_timestamp(t):
        return _as_floats(pc.cast(pc.cast(column, pa.timestamp("ms")), pa.int64())) / 86_400_000.0, "dates", 0
    if pa.types.is_time(t) or pa.types.is_duration(t):
        width = pa.int64() if t.bit_width == 64 else pa.int32()
        return _as_floats(pc.cast(column, width)), "times", 0
    if pa.types.is_null(t):
        return np.full(len(column), np.nan), "empty", 0
    if is_text(t):
        return _numbers_in_text(column)
    return None, "text", 0


def is_text(t: Any) -> bool:
    """Whether a pyarrow type is a text type."""
    import pyarrow as pa

    return bool(pa.types.is_string(t) or pa.types.is_large_string(t) or str(t) == "string_view")


def _as_floats(column: Any) -> Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pc.fill_null(pc.cast(column, pa.float64(), safe=False), np.nan).to_numpy().astype(np.float64)
    values[~(np.abs(values) < _HUGE)] = np.nan
    return values


def _numbers_in_text(column: Any) -> tuple[Array | None, str, int]:
    """Convert texts if nearly all are numbers, or all are yes and no, or all are ISO dates; results as of `numbers_of`.

    Markers such as "-" are missing; a column of yes and no must have none. A column of markers alone is text.
    """
    codes, levels = codes_of(column)
    marks = np.array([is_mark(level) for level in levels], dtype=bool)
    folded = {level.strip().casefold() for level, mark in zip(levels, marks, strict=True) if not mark}
    if folded and any(folded <= pair for pair in _PAIRS) and not marks.any():
        as_numbers = [float(level.strip().casefold() in _YES) for level in levels]
        return np.array([*as_numbers, np.nan])[codes], "yes or no", 0
    values = np.array([_number(level) for level in levels] + [np.nan])
    counts = np.bincount(codes[codes >= 0], minlength=len(levels)) * ~marks
    n_known, strays = int(counts.sum()), int(counts[np.isnan(values[:-1])].sum())
    if n_known == 0:
        return None, "text", 0
    if strays <= (1.0 - _MOSTLY) * n_known:
        return values[codes], "numbers", strays
    days = _days([level for level, mark in zip(levels, marks, strict=True) if not mark])
    if days is None:
        return None, "text", 0
    values[:-1][~marks] = days
    return values[codes], "dates", 0


def _days(levels: list[str]) -> Array | None:
    """Days since 1970 (UTC) if all texts are ISO dates, all with or all without a time zone, otherwise None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [level.strip() for level in levels]
    if not all(_DATE.fullmatch(text) for text in texts):
        return None
    for kind in (pa.timestamp("ms"), pa.timestamp("ms", "UTC")):
        try:
            return _as_floats(pc.cast(pc.cast(pa.chunked_array([texts]), kind), pa.int64())) / 86_400_000.0
        except pa.ArrowInvalid:
            continue
    return None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return np.nan
    return value if abs(value) < _HUGE else np.nan


def codes_of(column: Any) -> tuple[Array, list[str]]:
    """The code of each cell (-1 if missing), and the distinct values as text, in the order of their first cells.

    A dictionary column keeps the order of its values, including those without a cell.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    encoded = encoded.unify_dictionaries() if encoded.num_chunks > 1 else encoded
    parts = [pc.fill_null(pc.cast(chunk.indices, pa.int64()), -1).to_numpy() for chunk in encoded.chunks]
    levels = [str(value) for value in encoded.chunk(0).dictionary.to_pylist()] if encoded.num_chunks else []
    return (np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)), levels
