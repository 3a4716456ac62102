"""The interface of audits that still read columns one by one; `columns.Column` converts a column once."""

from __future__ import annotations

from typing import Any

from ..core.arrays import Array
from .cell_formats import MISSING as MISSING
from .cell_formats import is_mark as is_mark
from .columns import Column, _codes_of, _is_text

codes_of, is_text = _codes_of, _is_text


def marks_in(column: Any) -> dict[str, int]:
    """The markers of missing cells in a text column, stripped, and the number of cells with each."""
    return Column.of("", column, "number").marks


def numbers_of(column: Any) -> tuple[Array | None, str, int]:
    """The values of a column of numbers (None for texts), its kind, and the number of texts that are not numbers."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return None, "text", 0
    found = Column.of("", column, dates="day-first", decimal="point")
    kind = "text" if found.kind == "other" else found.kind
    return found.values, kind, 0 if found.strays is None else int(found.strays.sum())
