"""Encoding of the columns of a table as numeric features.

Numbers are standardised. Texts are one-hot encoded; rare values share one column, and columns with many values also get
an out-of-fold target encoding. Prose becomes a few dozen components of its words (`texts`). Dates become days, money
and percent become numbers (`columns`), yes and no become 1 and 0. Missing numbers are replaced by the median, missing
yes and no by the more frequent value, and both are marked by a 0/1 column; missing texts are a separate value. Numbers
far outside the usual range are replaced by the median and marked by a column of -1 (below), 0 and 1 (above). Such marks
exist only if the fit had such cells. New numbers are clipped to the range of the fit. Constant columns, row numbers and
identifiers are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import Array
from ..errors import UserError
from ..pages.text import visible
from .cell_values import codes_of, is_mark, is_text, marks_in, numbers_of
from .columns import typed
from .texts import as_texts, encode_texts, encode_with_target, is_prose, learn_target_encoding, learn_texts

# The largest number of values of a text column with their own 0/1 column, and the least number of rows of each.
MAX_LEVELS, MIN_ROWS = 25, 5
# A text column with a larger share of distinct values, and with more than a few of them, is an identifier.
_IDENTIFIER, _FEW = 0.5, 20
# Numbers are far outside if they lie beyond the range of the central 98% by more than this many times its width.
_SPANS = 10.0
# If X has at least this many numbers, it is float32, which halves the memory. Solvers accumulate in float64.
_SINGLE_FROM = 4_000_000
OTHER, MISSING, FAR = "(other)", "(missing)", "(far outside)"
_OTHER, _MISSING = -2, -1


@dataclass(frozen=True)
class ColumnReport:
    """The encoding of one column: its kind, its number of missing cells, whether it is used, and how (or why not)."""

    name: str
    kind: str
    missing: int
    used: bool
    how: str


class TableEncoder(TransformerMixin, BaseEstimator):
    """Transformer from a table to a matrix of numeric features.

    A table is a pyarrow Table, a pandas or polars data frame, or a dict of columns.

    Parameters
    ----------
    dates, decimal : str or None
        The meaning of 03/04/2025 and 1,234 in ambiguous columns; see `rankrange.tables.columns.typed`.

    Attributes
    ----------
    report_ : list of ColumnReport
        The encoding of each column.
    columns_ : list of dict
        The fitted parameters of each column that is used.
    forms_ : dict
        The formats of the converted text columns; see `rankrange.tables.columns.typed`.
    owner_ : list of int
        For each feature, the index of its column in `columns_`.
    feature_names_ : list of str
        A name for each feature.
    n_features_in_ : int
        The number of columns of the fitted table, including those that are left out.
    """

    def __init__(self, dates: str | None = None, decimal: str | None = None) -> None:
        self.dates = dates
        self.decimal = decimal

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Determine the encoding of each column of a table.

        Parameters
        ----------
        X : table
            The columns, without the target.
        y : ndarray or None
            The target, for the target encoding: integer codes of classes, or floats. None omits the target encoding.

        Returns
        -------
        TableEncoder
            The encoder itself.

        Raises
        ------
        UserError
            If no column can be used, or if a column is ambiguous and `dates` or `decimal` is not given.
        """
        given = as_table(X)
        table, self.forms_ = typed(given, dates=self.dates, decimal=self.decimal)
        self.columns_: list[dict[str, Any]] = []
        self.report_: list[ColumnReport] = []
        for name in table.column_names:
            settings, report = _learn(name, table.column(name), y)
            self.report_.append(_with_marks(report, given.column(name)))
            if settings is not None:
                self.columns_.append(settings)
        if not self.columns_:
            reasons = "; ".join(f"{r.name}: {r.how}" for r in self.report_[:3])
            raise UserError(f"at least one column besides the target must be usable, got none ({reasons}); add columns")
        self.owner_ = [index for index, column in enumerate(self.columns_) for _ in column["features"]]
        self.feature_names_ = [name for column in self.columns_ for name in column["features"]]
        self.n_features_in_ = len(table.column_names)
        return self

    def transform(self, X: Any) -> Array:
        """Encode the columns of a table with the fitted encoding.

        Parameters
        ----------
        X : table
            A table with the columns that the fit uses, of the same types; other columns are ignored.

        Returns
        -------
        ndarray of shape (rows, features)
            float64, or float32 if it has at least 4 million entries.

        Raises
        ------
        ValueError
            If one of these columns is absent or has another type.
        """
        check_is_fitted(self, "columns_")
        return self._encoded(X, None)

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Fit the encoder to a table and encode it; the target encoding of a row comes from other folds.

        Parameters
        ----------
        X : table
            The columns, without the target.
        y : ndarray or None
            The target, as in `fit`.

        Returns
        -------
        ndarray of shape (rows, features)
            float64, or float32 if it has at least 4 million entries.
        """
        return self.fit(X, y)._encoded(X, y)

    def _encoded(self, X: Any, y: Any) -> Array:
        table, _ = typed(as_table(X), self.forms_)
        present = set(table.column_names)
        absent = [c["name"] for c in self.columns_ if c["name"] not in present]
        if absent:
            raise ValueError(f"X must have the columns of the fit, got none named {absent[0]!r}; add it")
        n, p = table.num_rows, len(self.owner_)
        result = np.empty((n, p), dtype=np.float32 if n * p >= _SINGLE_FROM else np.float64)
        start = 0
        for column in self.columns_:
            stop = start + len(column["features"])
            cells, out = table.column(column["name"]), result[:, start:stop]
            if column["kind"] == "text":
                _encode_text(column, cells, out, y)
            elif column["kind"] == "prose":
                out[:] = encode_texts(column, as_texts(cells))
            else:
                _encode_numbers(column, cells, out)
            start = stop
        return result

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the features, in the order of the columns of `transform`; `input_features` is not used."""
        return np.array(self.feature_names_, dtype=object)


def as_table(data: Any) -> Any:
    """Convert a pyarrow Table, a pandas or polars data frame, or a dict of columns to a pyarrow Table (no index)."""
    import pyarrow

    if isinstance(data, pyarrow.Table):
        return data
    if type(data).__module__.split(".")[0] == "pandas":
        return pyarrow.Table.from_pandas(data, preserve_index=False)
    return pyarrow.table(data)


def _learn(name: str, column: Any, y: Any = None) -> tuple[dict[str, Any] | None, ColumnReport]:
    numbers, kind, strays = numbers_of(column)
    if numbers is not None:
        settings, missing, how = _learn_numbers(name, numbers, kind)
        if strays and settings is not None:
            how += f"; {strays:,} cells that are not numbers count as missing"
    else:
        kind, (settings, missing, how) = "text", _learn_text(name, column, y)
    return settings, ColumnReport(name, kind, missing, settings is not None, how)


def _with_marks(report: ColumnReport, column: Any) -> ColumnReport:
    """The report of a column, with a note on its markers of missing cells if texts were read as numbers or dates."""
    if report.kind == "text" or not is_text(column.type):
        return report
    marks = marks_in(column)
    if not marks:
        return report
    listed = ", ".join(f"'{visible(mark, 20)}'" for mark in list(marks)[:4]) + (" ..." if len(marks) > 4 else "")
    return replace(report, how=f"{report.how}; {sum(marks.values()):,} cells with {listed} count as missing")


# ---- numbers ---------------------------------------------------------------------------------------------------------


def _learn_numbers(name: str, values: Array, kind: str) -> tuple[dict[str, Any] | None, int, str]:
    present = values[~np.isnan(values)]
    missing = len(values) - len(present)
    if len(present) == 0:
        return None, missing, "left out: no cell has a value"
    lowest, highest = float(present.min()), float(present.max())
    if lowest == highest and not missing:
        return None, missing, "left out: all values are the same"
    counts_up = kind == "whole numbers" and not missing and len(present) > _FEW and highest - lowest == len(present) - 1
    if counts_up and len(np.unique(present)) == len(present):
        return None, missing, "left out: it contains row numbers"
    yes = kind == "yes or no"
    limits = (0.0, 1.0) if yes else _central_range(present)
    outside = int(np.count_nonzero(far := _far(present, limits)))
    present = present[far == 0]
    centre, scale = float(present.mean()), float(present.std())
    if yes:
        centre, scale = 0.0, 1.0
    settings = {
        "name": name,
        "kind": "numbers",
        "of": kind,
        "low": float(present.min()),
        "high": float(present.max()),
        "limits": limits if outside else None,
        "fill": float(present.mean() >= 0.5) if yes else float(np.median(present)),
        "centre": centre,
        "scale": scale if scale > 0 else 1.0,
        "missing": bool(missing),
        "features": [name, *([f"{name} {MISSING}"] if missing else []), *([f"{name} {FAR}"] if outside else [])],
    }
    how = "1 for yes, 0 for no" if yes else "days, standardised" if kind == "dates" else "standardised"
    filled = "the more frequent value" if yes else "the median"
    how += f"; {missing:,} missing cells became {filled} and are marked" if missing else ""
    if outside:
        how += f"; {outside:,} values outside {limits[0]:.4g} to {limits[1]:.4g} became the median and are marked"
    return settings, missing, how


def _central_range(present: Array) -> tuple[float, float]:
    """The range of usual values: the central 98%, extended by ten times its width on both sides.

    A cell outside this range is probably a code or an error. Two such cells in 500 would determine the scale of the
    column and the coefficient of a linear model. The range is infinite if the central 98% are equal.
    """
    inner = np.partition(present, (q := [int(np.ceil(0.01 * (len(present) - 1))), int(0.99 * (len(present) - 1))]))[q]
    span = float(inner[1] - inner[0])
    if not 0.0 < span < np.inf:
        return -np.inf, np.inf
    return float(inner[0]) - _SPANS * span, float(inner[1]) + _SPANS * span


def _far(values: Array, limits: tuple[float, float]) -> Array:
    """-1 below the usual range, 1 above it, 0 inside and for missing values."""
    return np.asarray((values > limits[1]).astype(np.int8) - (values < limits[0]))


def _encode_numbers(settings: dict[str, Any], column: Any, out: Array) -> None:
    values = _same_kind(settings, column)
    absent = np.isnan(values)
    marks = [absent] if settings["missing"] else []
    values[absent] = settings["fill"]
    if settings["limits"] is not None:
        marks.append(_far(values, settings["limits"]))
        values[marks[-1] != 0] = settings["fill"]
    np.clip(values, settings["low"], settings["high"], out=values)
    values -= settings["centre"]
    values /= settings["scale"]
    for index, numbers in enumerate([values, *marks]):
        out[:, index] = numbers


def _same_kind(settings: dict[str, Any], column: Any) -> Array:
    """The values of a column as floats; an error if its type is not that of the fit, such as numbers for dates.

    Also accepted are the numbers 0 and 1 for yes and no, booleans for numbers, and columns without any value, which may
    be texts that mark missing cells.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    values, kind, _ = numbers_of(column)
    if values is None and is_text(column.type) and all(is_mark(level) for level in codes_of(column)[1]):
        values, kind = np.full(len(column), np.nan), "empty"
    name, of = settings["name"], settings.get("of", "numbers")
    of = of if of in ("dates", "times", "yes or no") else "numbers"
    remedy = "convert it"
    if values is not None:
        present = values[~np.isnan(values)]
        got = "numbers" if kind in ("whole numbers", "empty") else kind
        same = got == of or (of == "numbers" and kind == "yes or no" and not is_text(column.type))
        if of == "yes or no" and got == "numbers":
            same = bool(np.isin(present, (0.0, 1.0)).all())
        if same or not len(present):
            return values
        kind = got
    if of == "dates":
        remedy = f"write them as 2024-01-31, or read them with pandas.read_csv(..., parse_dates=[{name!r}])"
    elif of == "yes or no":
        remedy = "write yes and no, true and false, or 1 and 0"
    raise ValueError(f"column {name!r} must hold {of} as in the fit, got {kind}; {remedy}")


# ---- texts -----------------------------------------------------------------------------------------------------------


def _learn_text(name: str, column: Any, y: Any = None) -> tuple[dict[str, Any] | None, int, str]:
    try:
        codes, levels = codes_of(column)
    except (TypeError, ValueError, NotImplementedError):
        return None, int(column.null_count), f"left out: cells of the type {column.type} are neither numbers nor text"
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    n_known, missing = int(counts.sum()), int((codes < 0).sum())
    if n_known == 0:
        return None, missing, "left out: no cell has a value"
    if len(levels) > MAX_LEVELS and is_prose(levels):
        return _learn_prose(name, column, missing)
    if len(levels) > _FEW and len(levels) > _IDENTIFIER * n_known:
        return None, missing, f"left out: nearly every row has its own value ({len(levels):,} of {n_known:,})"
    if len(levels) < 2 and not missing:
        return None, missing, "left out: all values are the same"
    order = np.argsort(-counts, kind="stable")
    separate = [int(i) for i in order[:MAX_LEVELS] if counts[i] >= min(MIN_ROWS, max(1, n_known // 20))]
    pooled = len(levels) - len(separate)
    chosen = [levels[i] for i in separate]
    slots = [*range(len(separate)), *([_OTHER] if pooled else []), *([_MISSING] if missing else [])]
    # Two values need one column; with a penalty, more values are best encoded by one column each.
    slots = slots[:1] if len(slots) == 2 else slots
    special_names = {_OTHER: OTHER, _MISSING: MISSING}
    features = [f"{name} = {special_names[slot] if slot < 0 else visible(chosen[slot], 60)}" for slot in slots]
    target_encoding = learn_target_encoding(codes, levels, y) if len(levels) > MAX_LEVELS else {}
    features += [f"{name} (target encoding)"] * target_encoding.get("width", 0)
    settings = {
        "name": name,
        "kind": "text",
        "levels": chosen,
        "slots": slots,
        "features": features,
        "usual": target_encoding,
    }
    how = f"{len(separate)} values, one 0/1 column each"
    how += f"; {pooled:,} rare values share one column" if pooled else ""
    how += "; and an out-of-fold target encoding" if target_encoding else ""
    how += f"; {missing:,} missing cells are a separate value" if missing else ""
    return settings, missing, how


def _learn_prose(name: str, column: Any, missing: int) -> tuple[dict[str, Any], int, str]:
    learnt = learn_texts(as_texts(column))
    features = [f"{name}, words {i + 1}" for i in range(learnt["width"])]
    how = f"prose: words and character n-grams, reduced to {learnt['width']} numbers"
    how += f"; {missing:,} missing cells are zeros" if missing else ""
    return {"name": name, "kind": "prose", "features": features, **learnt}, missing, how


def _encode_text(settings: dict[str, Any], column: Any, out: Array, y: Any = None) -> None:
    codes, levels = codes_of(column)
    index_of = {level: i for i, level in enumerate(settings["levels"])}
    if levels and str(column.type) == "bool" and not set(levels) & set(index_of):
        examples = ", ".join(settings["levels"][:3])
        raise ValueError(
            f"column {settings['name']!r} must hold texts as in the fit ({examples}), got true and false; convert it"
        )
    slot_of = np.array([index_of.get(level, _OTHER) for level in levels] + [_MISSING])[codes]
    for j, slot in enumerate(settings["slots"]):
        out[:, j] = slot_of == slot
    if settings.get("usual"):
        encode_with_target(settings["usual"], codes, levels, y, out[:, len(settings["slots"]) :])
