"""Encoding of the columns of a table as numeric features, without the target.

Numbers are standardised, and dates also give the times of the day, week and year. Texts are one-hot encoded; rare
values share one column, and texts with many values, such as prose, become a few dozen components of their words and
character n-grams. Missing numbers become the median, missing yes and no the more frequent value, both marked by a 0/1
column. Numbers far outside become the median and are marked by -1 (below) or 1 (above). New numbers are clipped to the
range of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import Array
from ..errors import UserError
from ..pages.text import plural, visible
from .columns import FEW, Column, read_columns

# The largest number of values of a text column with their own 0/1 column, and the least number of rows of each.
MAX_LEVELS, MIN_ROWS = 100, 5
# A text column with more than a few values, and a larger share of distinct ones, is an identifier unless it is prose.
_IDENTIFIER = 0.5
# The cycles of dates, in days. The time of each is as many sines and cosines.
_CYCLES, _WAVES = {"day": 1.0, "week": 7.0, "year": 365.2425}, 2
# Numbers are far outside if they lie beyond the range of the central 98% by more than this many times its width.
_SPANS = 10.0
# If X has at least this many numbers, it is float32, which halves the memory. Solvers accumulate in float64.
_SINGLE_FROM = 4_000_000
# The number of components of texts, the number of characters of the sample they are fitted to, and of a text.
_COMPONENTS, _FITTED_CHARACTERS, _LONGEST = 50, 10_000_000, 20_000
OTHER, MISSING, FAR = "(other)", "(missing)", "(far outside)"


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

    A table is a list of `Column`, a pyarrow Table, a pandas or polars data frame, or a dict of columns. `dates` and
    `decimal` are those of `read_columns`. After the fit, `report_` has the encoding of each column, `columns_` the
    parameters of those that are used, `forms_` the formats by which new tables are read, and `owner_` and
    `feature_names_` the column and the name of each feature.
    """

    def __init__(self, dates: str | None = None, decimal: str | None = None) -> None:
        self.dates = dates
        self.decimal = decimal

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Determine the encoding of each column of a table without the target; y is not used, so no label leaks."""
        columns = _columns_of(X, dates=self.dates, decimal=self.decimal)
        self.forms_ = {column.name: column.form for column in columns}
        self.columns_: list[dict[str, Any]] = []
        self.report_: list[ColumnReport] = []
        for column in columns:
            settings, how = _fit_text(column) if column.values is None else _fit_numbers(column, column.values)
            used = settings is not None
            kind = "text" if column.kind == "other" else column.kind
            how = how if used else f"left out: {how}"
            self.report_.append(ColumnReport(column.name, kind, int(column.missing.sum()), used, how))
            if settings is not None:
                self.columns_.append({"name": column.name, **settings})
        if not self.columns_:
            reasons = "; ".join(f"{r.name}: {r.how}" for r in self.report_[:3])
            raise UserError(f"at least one column besides the target must be usable, got none ({reasons}); add columns")
        self.owner_ = [column["name"] for column in self.columns_ for _ in column["features"]]
        self.feature_names_ = [name for column in self.columns_ for name in column["features"]]
        self.n_features_in_ = len(columns)
        return self

    def transform(self, X: Any) -> Array:
        """Encode a table: an array (rows, features) of float64, or of float32 from 4 million entries on.

        The table must have the columns that the fit uses, of the same types; other columns are ignored.
        """
        check_is_fitted(self, "columns_")
        found = {column.name: column for column in _columns_of(X, [c["name"] for c in self.columns_], self.forms_)}
        n, p = len(next(iter(found.values()))), len(self.owner_)
        result = np.empty((n, p), dtype=np.float32 if n * p >= _SINGLE_FROM else np.float64)
        start = 0
        for settings in self.columns_:
            stop = start + len(settings["features"])
            encode = _encode_text if settings["kind"] == "text" else _encode_numbers
            encode(settings, found[settings["name"]], result[:, start:stop])
            start = stop
        return result

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Fit the encoder to a table and encode it."""
        columns = _columns_of(X, dates=self.dates, decimal=self.decimal)
        return self.fit(columns).transform(columns)


def as_table(data: Any) -> Any:
    """Convert a pyarrow Table, a pandas or polars data frame, or a dict of columns to a pyarrow Table (no index)."""
    import pyarrow

    if isinstance(data, pyarrow.Table):
        return data
    if type(data).__module__.split(".")[0] == "pandas":
        return pyarrow.Table.from_pandas(data, preserve_index=False)
    try:
        return pyarrow.table(data)
    except TypeError as error:
        raise UserError(
            f"a table is a data frame, a pyarrow Table or a dict of columns, got {type(data).__name__}; name the "
            "columns, such as {'x': X[:, 0], 'target': y}"
        ) from error


def _columns_of(X: Any, names: Any = None, forms: Any = None, **reading: Any) -> list[Column]:
    """The columns of a table, all or those with these names; an error if one is absent."""
    table = None if isinstance(X, list) else as_table(X)
    present = [column.name for column in X] if table is None else table.schema.names
    absent = [name for name in names or () if name not in set(present)]
    if absent:
        raise ValueError(f"X must have the columns of the fit, got none named {absent[0]!r}; add it")
    if table is None:
        return list(X)
    return read_columns(table if names is None else table.select(list(names)), forms=forms, **reading)


# ---- numbers ---------------------------------------------------------------------------------------------------------


def _fit_numbers(column: Column, values: Array) -> tuple[dict[str, Any] | None, str]:
    """The parameters of a column of numbers, and the encoding in words; None and the reason if it is left out."""
    name, yes = column.name, column.kind == "yes or no"
    present = values[~column.missing]
    missing = len(values) - len(present)
    if len(present) == 0:
        return None, "no cell has a value"
    lowest, highest = float(present.min()), float(present.max())
    if lowest == highest and not missing:
        return None, "all values are the same"
    counts = column.kind == "whole numbers" and not missing and len(present) > FEW
    if counts and highest - lowest == len(present) - 1 and len(np.unique(present)) == len(present):
        return None, "it contains row numbers"
    limits = (0.0, 1.0) if yes else _central_range(present)
    outside = int(np.count_nonzero(far := _far(present, limits)))
    present = present[far == 0]
    scale = float(present.std())
    cycles = _cycles_in(present) if column.kind == "dates" else {}
    marked = [f"{name} {MISSING}"] * bool(missing) + [f"{name} {FAR}"] * bool(outside)
    waves = [f"{name} (time of the {cycle}, {i + 1})" for cycle in cycles for i in range(2 * _WAVES)]
    settings = {
        "kind": "numbers",
        "of": column.kind if column.kind in ("dates", "times", "yes or no") else "numbers",
        "low": float(present.min()),
        "high": float(present.max()),
        "limits": limits if outside else None,
        "fill": float(present.mean() >= 0.5) if yes else float(np.median(present)),
        "centre": 0.0 if yes else float(present.mean()),
        "scale": 1.0 if yes or scale == 0 else scale,
        "missing": bool(missing),
        "cycles": [*cycles.values()],
        "features": [name, *marked, *waves],
    }
    notes = ["1 for yes, 0 for no" if yes else "days, standardised" if column.kind == "dates" else "standardised"]
    notes += [f"time of the {cycle}" for cycle in cycles]
    filled = "the more frequent value" if yes else "the median"
    if missing:
        notes.append(f"{plural(missing, 'missing cell')} filled with {filled} and marked")
    if outside:
        range_ = f"{limits[0]:.4g} to {limits[1]:.4g}"
        notes.append(f"{plural(outside, 'value')} outside {range_} replaced by the median and marked")
    if column.strays is not None:
        notes.append(f"{plural(int(column.strays.sum()), 'cell')} of other texts counted as missing")
    if column.marks:
        shown = ", ".join(f"'{visible(mark, 20)}'" for mark in list(column.marks)[:4])
        more = " ..." if len(column.marks) > 4 else ""
        notes.append(f"{plural(sum(column.marks.values()), 'cell')} with {shown}{more} counted as missing")
    return settings, "; ".join(notes)


def _cycles_in(days: Array) -> dict[str, float]:
    """The cycles that the dates cover at least twice, and in which they differ."""
    varying = {word: length for word, length in _CYCLES.items() if np.ptp(days % length) > 0}
    return {word: length for word, length in varying.items() if np.ptp(days) >= 2 * length}


def _central_range(present: Array) -> tuple[float, float]:
    """The range of usual values: the central 98%, extended by ten times its width on both sides.

    A cell outside is probably a code or an error, and would determine the scale of the column and its coefficient.
    """
    inner = np.partition(present, (q := [int(np.ceil(0.01 * (len(present) - 1))), int(0.99 * (len(present) - 1))]))[q]
    span = float(inner[1] - inner[0])
    if not 0.0 < span < np.inf:
        return -np.inf, np.inf
    return float(inner[0]) - _SPANS * span, float(inner[1]) + _SPANS * span


def _far(values: Array, limits: tuple[float, float]) -> Array:
    """-1 below the usual range, 1 above it, 0 inside and for missing values."""
    return np.asarray((values > limits[1]).astype(np.int8) - (values < limits[0]))


def _encode_numbers(settings: dict[str, Any], column: Column, out: Array) -> None:
    values = _same_kind(settings, column).copy()
    absent = np.isnan(values)
    marks = [absent] if settings["missing"] else []
    values[absent] = settings["fill"]
    if settings["limits"] is not None:
        marks.append(_far(values, settings["limits"]))
        values[marks[-1] != 0] = settings["fill"]
    angles = [2 * np.pi * k * values / cycle for cycle in settings["cycles"] for k in range(1, _WAVES + 1)]
    waves = [wave(angle) for angle in angles for wave in (np.sin, np.cos)]  # before dates are clipped
    np.clip(values, settings["low"], settings["high"], out=values)
    values -= settings["centre"]
    values /= settings["scale"]
    for index, numbers in enumerate([values, *marks, *waves]):
        out[:, index] = numbers


def _same_kind(settings: dict[str, Any], column: Column) -> Array:
    """The values of a column; an error if its type is not that of the fit, such as numbers for dates."""
    of, values, got = settings["of"], column.values, column.kind
    if values is not None:
        present = values[~column.missing]
        unread = column.strays is not None and column.strays.sum() >= len(present)
        got = "text" if unread else "numbers" if got == "whole numbers" else got
        same = got == of or (of == "numbers" and got == "yes or no")
        if of == "yes or no" and got == "numbers":
            same = bool(np.isin(present, (0.0, 1.0)).all())
        if same or not (len(present) or unread):
            return values
    remedies = {
        "dates": f"write them as 2024-01-31, or read them with pandas.read_csv(..., parse_dates=[{column.name!r}])",
        "yes or no": "write yes and no, true and false, or 1 and 0",
    }
    raise ValueError(f"{column.name!r} must hold {of} as in the fit, got {got}; {remedies.get(of, 'convert it')}")


# ---- texts -----------------------------------------------------------------------------------------------------------


def _fit_text(column: Column) -> tuple[dict[str, Any] | None, str]:
    """The parameters of a text column, and the encoding in words; None and the reason if it is left out."""
    name, codes, levels = column.name, column.codes, column.levels
    if column.kind == "other":
        return None, "its cells are neither numbers nor text"
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    n_known, missing = int(counts.sum()), int((codes < 0).sum())
    if n_known == 0:
        return None, "no cell has a value"
    prose = len(levels) > FEW and column.is_prose
    many = prose or len(levels) > MAX_LEVELS
    if not prose and len(levels) > FEW and len(levels) > _IDENTIFIER * n_known:
        return None, f"it has {len(levels):,} different texts in {n_known:,} rows"
    if len(levels) < 2 and not missing:
        return None, "all values are the same"
    order = [] if prose else np.argsort(-counts, kind="stable")[:MAX_LEVELS].tolist()
    chosen = [levels[i] for i in order if counts[i] >= min(MIN_ROWS, max(1, n_known // 20))]
    pooled = 0 if prose else len(levels) - len(chosen)
    names = [*(visible(level, 60) for level in chosen), OTHER, MISSING]
    exist = [True] * len(chosen) + [pooled > 0, missing > 0 and not prose]
    # Two values need one column. With a penalty, more values are best encoded by one column each.
    slots = np.flatnonzero(exist).tolist()
    slots = slots[:1] if len(slots) == 2 else slots
    features = [f"{name} = {names[slot]}" for slot in slots]
    words = _fit_words(column.texts()) if many else None
    width = 0 if words is None else words[-2].n_components
    features += [f"{name}, words {i + 1}" for i in range(width)]
    settings = {"kind": "text", "levels": chosen, "slots": slots, "features": features, "words": words}
    reduced = f"words and character n-grams, reduced to {width} numbers"
    if prose:
        notes = [f"prose: {reduced}"] + ([f"{plural(missing, 'missing cell')} encoded as zeros"] if missing else [])
        return settings, "; ".join(notes)
    notes = [f"{len(chosen)} values, one 0/1 column each"]
    notes += [f"{plural(pooled, 'rare value')} in one column"] if pooled else []
    notes += [f"and {reduced}"] if many else []
    notes += [f"{plural(missing, 'missing cell')} as a separate value"] if missing else []
    return settings, "; ".join(notes)


def _encode_text(settings: dict[str, Any], column: Column, out: Array) -> None:
    codes, levels = column.codes, column.levels
    index_of = {level: i for i, level in enumerate(settings["levels"])}
    if levels and set(levels) <= {"True", "False"} and not set(levels) & set(index_of):
        examples = ", ".join(settings["levels"][:3])
        raise ValueError(f"{column.name!r} must hold texts as in the fit ({examples}), got true and false; convert it")
    other = len(index_of)
    slot_of = np.array([*(index_of.get(level, other) for level in levels), other + 1])[codes]
    for j, slot in enumerate(settings["slots"]):
        out[:, j] = slot_of == slot
    if settings["words"] is not None:
        out[:, len(settings["slots"]) :] = _encode_words(settings["words"], levels)[codes]


def _fit_words(texts: list[str]) -> Any:
    """Fit TF-IDF of words and n-grams of characters, and its truncated SVD, to a sample of texts."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.preprocessing import Normalizer

    step = 1 + sum(min(len(text), _LONGEST) for text in texts) // _FITTED_CHARACTERS
    sample = [text[:_LONGEST] for text in texts[::step]]
    shared = {"max_features": 20_000, "sublinear_tf": True, "dtype": np.float32}
    words = TfidfVectorizer(analyzer="word", ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", **shared)
    ngrams = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), **shared)
    svd = TruncatedSVD(int(min(_COMPONENTS, max(2, len(sample) // 10))), n_iter=2, random_state=0)
    return make_pipeline(make_union(words, ngrams), svd, Normalizer(copy=False)).fit(sample)


def _encode_words(words: Any, levels: list[str]) -> Array:
    """The components of each text, of mean square 1 per row, and a row of zeros for missing cells."""
    parts = [np.zeros((1, words[-2].n_components))]
    for start in range(0, len(levels), 20_000):
        sample = [text[:_LONGEST] for text in levels[start : start + 20_000]]
        parts.insert(-1, words.transform(sample) * np.sqrt(words[-2].n_components))
    return np.concatenate(parts).astype(np.float32)
