"""A structured array that is printed as a table with column names."""

from __future__ import annotations

from typing import Any

import numpy as np

# The largest number of rows to print.
_MOST = 20


class NamedRows(np.ndarray):
    """Rows with named columns: an ordinary structured array, printed as a table of its first 20 rows."""

    def __repr__(self) -> str:
        if self.dtype.names is None or self.ndim != 1:
            return str(np.asarray(self))
        return "\n".join([*lines_of(self[:_MOST]), *([f"... {len(self):,} rows"] if len(self) > _MOST else [])])

    __str__ = __repr__


def lines_of(rows: Any) -> list[str]:
    """A line with the column names, and one line per row, aligned."""
    table = [list(rows.dtype.names or ()), *([shown_cell(cell) for cell in row.tolist()] for row in np.asarray(rows))]
    widths = [max(9, *map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in table]


def shown_cell(value: Any, limit: int | None = 24) -> str:
    """A cell as text, floats with three decimals; truncated to `limit` characters, unless that is None."""
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    # the dots distinguish a truncated label from a complete one
    return text if limit is None or len(text) <= limit else text[: limit - 3] + "..."
