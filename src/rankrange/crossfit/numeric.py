"""Conversion of any table to a numeric matrix, for linear fits and distances between rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array

# Largest number of categories of a column that become indicator columns; rarer categories get none.
_MAX_LEVELS = 20
# Numeric columns with at most this many distinct values may be codes of categories.
_MAX_CODES = 6
# Columns of more distinct texts than this share of the rows are names or free text, and uninformative.
_FREE_TEXT = 0.5


def numeric_view(X: Any) -> Any:
    """X as a float array without NaN, or as a CSR matrix.

    Missing and infinite numbers become the median of their column, with an indicator column; the 20 most frequent
    categories become indicator columns; columns of free text (more distinct texts than half of the rows) are left out.
    None if X is not two-dimensional, no column is left, or a sparse X has entries that are not finite.
    """
    if sp.issparse(X):
        X = X.tocsr()
        return X if np.isfinite(X.data).all() else None
    if hasattr(X, "columns") and hasattr(X, "shape"):
        columns = [_column(X[name]) for name in X.columns]
    else:
        values = np.asarray(X)
        if values.ndim != 2 or values.shape[1] == 0:
            return None
        if values.dtype.kind in "fiub":
            values = values.astype(np.float32 if values.dtype == np.float32 else np.float64, copy=False)
            if np.isfinite(values).all():
                return values
        columns = [_column(column) for column in values.T]
    usable = [column for column in columns if column is not None]
    return np.concatenate(usable, axis=1) if usable else None


def with_levels(X: Any) -> Any:
    """X with added indicator columns for numeric columns with 3 to 6 distinct values, which may be category codes.

    A sparse X, and an X that would get more columns than rows, are returned unchanged.
    """
    if sp.issparse(X):
        return X
    levels = [(column, values) for column in X.T if 2 < len(values := np.unique(column)) <= _MAX_CODES]
    if X.shape[1] + sum(len(values) for _, values in levels) > len(X):
        return X
    return np.column_stack([X, *(column[:, None] == values for column, values in levels)])


def standardised(X: Any, mass: Array | None = None) -> Any:
    """X with columns of mean zero and standard deviation one; constant columns become 0. `mass` weights the rows.

    A column with more than half zeros, such as a word or a category, is divided by the root mean square of its other
    values and not centred: its standard deviation would give rare columns too much weight. No column of a sparse X is
    centred.
    """
    share = np.full(X.shape[0], 1.0 / X.shape[0]) if mass is None else mass / mass.sum()
    mean, square = share @ X, share @ (X.multiply(X) if sp.issparse(X) else X**2)
    filled = share @ (X != 0)
    spread = np.sqrt(np.where(filled < 0.5, square / np.maximum(filled, 1e-12), np.maximum(square - mean**2, 0.0)))
    unit = np.where(spread > 1e-7 * np.sqrt(square), spread, 1.0)
    if sp.issparse(X):
        return sp.csr_matrix(X @ sp.diags(1.0 / unit), dtype=X.dtype)
    return np.asarray((X - np.where(filled < 0.5, 0.0, mean)) / unit, dtype=X.dtype)


def _column(column: Any) -> Array | None:
    """One column of a table as numeric columns (n, columns); None for free text."""
    numbers = _numbers(column)
    if numbers is None:
        return _levels(column)
    missing = ~np.isfinite(numbers)
    if not missing.any():
        return numbers[:, None]
    middle = float(np.median(numbers[~missing])) if not missing.all() else 0.0
    return np.column_stack([np.where(missing, middle, numbers), missing])


def _numbers(column: Any) -> Array | None:
    """A column of numbers, booleans or dates as floats, with NaN for missing values; None for other columns."""
    kind = str(getattr(column, "dtype", ""))
    if kind.startswith("category"):
        return None
    values = np.asarray(column)
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    if values.dtype.kind in "mM":
        return np.where(np.isnat(values), np.nan, values.astype("int64").astype(np.float64))
    if not kind.lower().startswith(("int", "uint", "float", "bool", "decimal")) or not hasattr(column, "to_numpy"):
        return None
    if type(column).__module__.split(".")[0] == "polars":  # booleans with missing values have dtype object
        return np.asarray(column.cast(float).to_numpy(), dtype=np.float64)
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))  # nullable dtypes of pandas


def _levels(column: Any) -> Array | None:
    texts = np.array([str(value) for value in np.asarray(column, dtype=object)])
    levels, codes, counts = np.unique(texts, return_inverse=True, return_counts=True)
    if len(levels) > max(_FREE_TEXT * len(texts), 2):
        return None
    kept = np.argsort(-counts, kind="stable")[:_MAX_LEVELS]
    return np.asarray(codes[:, None] == kept, dtype=np.float64)
