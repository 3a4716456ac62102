"""A pandera schema from an audit: types, ranges and levels of the columns.

Flagged values (`of_cells` in `problems.KINDS`, such as outliers, and likely wrong targets) do not widen a range, and
neither do rows that a decision drops or relabels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..label_noise import LIKELY
from .problems import words_of

if TYPE_CHECKING:
    from .findings import Audit

# A text column with more levels is free text and gets no rule.
_MAX_LEVELS = 50


class ColumnRule(NamedTuple):
    """The rules for the cells of a column: the range (`low`, `high`) and the allowed texts; None means no rule."""

    name: str
    kind: str  # "int", "float", "bool", "text", "date" or "any"
    nullable: bool
    low: Any = None
    high: Any = None
    levels: list[str] | None = None


def column_rules(audit: Audit) -> list[ColumnRule]:
    """The rules for each column, from the cells that the audit did not flag."""
    table = audit.source.read()
    return [_rule(name, table.column(name), ~_flagged(audit, name)) for name in table.schema.names]


def _flagged(audit: Audit, column: str) -> Array:
    """Mask of the rows whose cell in this column is ignored.

    A decision (`Audit.decide`) takes precedence, unless it is "unsure": a row to drop or relabel is ignored, a row to
    keep is not.
    """
    flagged = np.zeros(audit.n_rows, dtype=bool)
    for problem in audit.row_problems:
        if words_of(problem.kind).of_cells and problem.column in (None, column):
            flagged[_positions(audit, problem.rows)] = True
    if column in audit.target.columns:
        flagged[audit.target.rows[audit.result.wrong >= LIKELY]] = True
    for position, made in audit.decided.items():
        if made.choice != "unsure":
            flagged[position] = made.choice in ("drop", "relabel")
    return flagged


def _positions(audit: Audit, rows: Sequence[int]) -> Array:
    """The positions of the rows of a problem, which are labels of an index of integers, or numbers otherwise."""
    index = audit.row_names.index
    if index is not None and index.dtype.kind in "iu":
        return np.flatnonzero(np.isin(index, rows))
    return np.array(rows, dtype=np.intp) - audit.row_names.first


def _rule(name: str, column: Any, kept: Array) -> ColumnRule:
    import pyarrow
    import pyarrow.compute as compute

    kind, nullable = _kind(column.type), column.null_count > 0
    cells = column.filter(pyarrow.array(kept)).drop_null()
    if kind in ("int", "float", "date") and len(cells):
        ends = compute.min_max(cells).as_py()
        return ColumnRule(name, kind, nullable, ends["min"], ends["max"])
    if kind == "text":
        levels = compute.unique(cells.cast(pyarrow.string())).to_pylist()
        allowed = sorted(levels) if 0 < len(levels) <= min(_MAX_LEVELS, len(cells) / 2) else None
        return ColumnRule(name, kind, nullable, levels=allowed)
    return ColumnRule(name, kind, nullable)


def _kind(kind: Any) -> str:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    tests = (
        ("bool", types.is_boolean),
        ("int", types.is_integer),
        ("float", types.is_floating),
        ("date", types.is_temporal),
        ("text", lambda kind: types.is_string(kind) or types.is_large_string(kind)),
    )
    return next((name for name, fits in tests if fits(kind)), "any")


def pandera_schema(audit: Audit) -> Any:
    """The rules as a pandera schema; see `Audit.to_pandera`."""
    try:
        import pandera.pandas as pandera
    except ImportError as error:
        raise ImportError("to_pandera() needs pandera, which is not installed; run: pip install pandera") from error
    columns = {rule.name: _pandera_column(rule, pandera) for rule in column_rules(audit)}
    return pandera.DataFrameSchema(columns, name=str(audit.name), strict=False)


def _pandera_column(rule: ColumnRule, pandera: Any) -> Any:
    checks = []
    if rule.low is not None:
        checks.append(pandera.Check.in_range(rule.low, rule.high))
    if rule.levels is not None:
        checks.append(pandera.Check.isin(rule.levels))
    # No rule for these types: pandas stores integers with missing values as floats, and dates in several units.
    kinds = {
        "int": float if rule.nullable else int,
        "float": float,
        "bool": None if rule.nullable else bool,
        "text": str,
    }
    kind = kinds.get(rule.kind)
    # Integers may be read as floats; they are never truncated.
    if kind is int:
        kind = None
        checks.append(pandera.Check(_whole, element_wise=False, error="whole numbers"))
    return pandera.Column(kind, checks, nullable=rule.nullable, coerce=kind is float, required=True)


def _whole(values: Any) -> Any:
    """Whether each value is a whole number."""
    return values % 1 == 0
