"""A pandera schema from an audit: types, ranges and levels of the columns, from the cells that are not in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arrays import Array
from ..label_noise import LIKELY
from ..tables.encode import MAX_LEVELS  # texts with more levels are free and get no rule

if TYPE_CHECKING:
    from .findings import Audit


def pandera_schema(audit: Audit) -> Any:
    """The rules for each column, from the cells that the audit did not flag; see `Audit.to_pandera`."""
    try:
        import pandera.pandas as pandera
    except ImportError as error:
        raise ImportError("to_pandera() needs pandera, which is not installed; run: pip install pandera") from error
    table = audit.source.read()
    columns = {name: _column(table.column(name), ~_flagged(audit, name), pandera) for name in table.schema.names}
    return pandera.DataFrameSchema(columns, name=str(audit.name), strict=False)


def _flagged(audit: Audit, column: str) -> Array:
    """Mask of the rows whose cell in this column is in doubt; a decision other than "unsure" settles it."""
    flagged = np.zeros(audit.n_rows, dtype=bool)
    for problem in audit.row_problems:
        if problem.column == column:
            flagged[[position for row in problem.rows for position in audit.row_names.positions(str(row))]] = True
    if column in audit.target.columns:
        flagged[audit.target.rows[audit.result.wrong >= LIKELY]] = True
    for position, made in audit.decided.items():
        if made.choice != "unsure":
            flagged[position] = made.choice in ("drop", "relabel")
    return flagged


def _column(column: Any, kept: Array, pandera: Any) -> Any:
    """The rules for the cells of a column: its type, and the range or the levels of the kept cells.

    Integers have no type, because pandas stores those with missing values as floats; nor have dates.
    """
    import pyarrow
    import pyarrow.compute as compute
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    cells = column.filter(pyarrow.array(kept)).drop_null()
    dtype: Any = None
    checks, nullable = [], column.null_count > 0
    if types.is_integer(kind):
        checks = [pandera.Check(lambda values: values % 1 == 0, error="whole numbers")]
    elif types.is_floating(kind):
        dtype = float
    elif types.is_boolean(kind):
        dtype = None if nullable else bool
    elif types.is_string(kind) or types.is_large_string(kind):
        levels = compute.unique(cells.cast(pyarrow.string())).to_pylist()
        dtype = str
        checks = [pandera.Check.isin(sorted(levels))] if 0 < len(levels) <= min(MAX_LEVELS, len(cells) / 2) else []
    if len(cells) and (types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind)):
        ends = compute.min_max(cells).as_py()
        checks.append(pandera.Check.in_range(ends["min"], ends["max"]))
    return pandera.Column(dtype, checks, nullable=nullable, coerce=dtype is float, required=True)
