"""Checks of rows apart from a wrong target, each with a sentence of evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from ..core.arrays import Array
from ..pages.text import number, plural, visible
from ..tables.columns import FEW, Column, read_columns
from .duplicates import find_duplicates, find_near_duplicates
from .plan import SAMPLE
from .problems import RowProblem, kinds_in, listed_rows
from .target import Target, row_text

# Numbers that often stand for a missing cell. Zero is one too where values do not come near zero.
PLACEHOLDERS = (
    *(-1.0, -9.0, -9.9, -99.0, -99.9, -999.0, -9999.0, -99999.0, -999999.0),
    *(99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0),
    *(-32768.0, -2147483648.0, 2147483647.0),
)
# The same for dates: 1900-01-01, 1970-01-01 and 9999-12-31, in days since 1970.
DATE_PLACEHOLDERS = (-25567.0, 0.0, 2932896.0)
# The largest number of outliers of a column to list.
_MAX_LISTED = 1000


class CheckedRows(NamedTuple):
    """The input of every check: columns, target, names of rows to report, and the robust model of the target."""

    columns: list[Column]
    target: Target
    names: Array
    model: Any = None


class Check(NamedTuple):
    """A check of rows: its name, its rule in one sentence, its parameter, and the function that applies both."""

    name: str
    rule: str
    parameter: float
    find: Callable[[CheckedRows, float], list[RowProblem]]


def find_row_problems(
    table: Any,
    target: Target,
    *,
    row_names: Array | None = None,
    model: Any = None,
    checks: Sequence[Check] | None = None,
) -> list[RowProblem]:
    """Find problems of the rows of a table, apart from wrong targets, sorted by kind (`KINDS`) and then by strength.

    `table` has the used columns for the rows of `target`, a pyarrow Table or a list of `Column`. Names of rows are by
    default positions from 1. Without the robust `model`, the check that needs it finds nothing.
    """
    names = target.rows + 1 if row_names is None else np.asarray(row_names)
    rows = CheckedRows(table if isinstance(table, list) else read_columns(table), target, names, model)
    found = [problem for check in checks or CHECKS for problem in check.find(rows, check.parameter)]
    order_of = {kind: i for i, kind in enumerate(kinds_in(found))}
    return sorted(found, key=lambda problem: (order_of[problem.kind], -problem.strength))


# ---- text among numbers ----------------------------------------------------------------------------------------------


def _find_texts(rows: CheckedRows, least: float) -> list[RowProblem]:
    found = []
    for column in rows.columns:
        if column.strays is None or not 0.0 < column.strays.mean() <= 1.0 - least:
            continue
        at, expected = rows.names[column.strays], "dates" if column.kind == "dates" else "numbers"
        where = f"row{'s' * (len(at) > 1)} {listed_rows(at.tolist())}"
        first = visible(column.levels[column.codes[column.strays][0]], 40)
        cells = f"{plural(len(at), 'cell')} with text instead of {expected}, such as '{first}'"
        sentence = f"{visible(column.name, 60)} has {cells} ({where})"
        found.append(RowProblem("impossible", tuple(at.tolist()), column.name, "text", expected, sentence, 0.9, "fix"))
    return found


# ---- placeholders ----------------------------------------------------------------------------------------------------


def _find_placeholders(rows: CheckedRows, least: float) -> list[RowProblem]:
    return [
        _placeholder_problem(column, value, rows.names)
        for column in rows.columns
        for value in placeholders_of(column, least)
    ]


def placeholders_of(column: Column, least: float = 3) -> list[float]:
    """The placeholders in a column of numbers or dates, at least 20 other cells of which have five distinct values."""
    listed = {"numbers": PLACEHOLDERS, "whole numbers": PLACEHOLDERS, "dates": DATE_PLACEHOLDERS}.get(column.kind, ())
    if column.values is None or not listed:
        return []
    others, found = column.values[~np.isnan(column.values)], []
    for code in dict.fromkeys((*listed, 0.0)):
        count = int((others == code).sum())
        rest = others[others != code] if count > 1 else others[:0]
        if len(rest) < FEW or len(np.unique(rest)) < 5:
            continue
        zero = code == 0.0 and column.kind != "dates"
        if _zero_is_implausible(count, least, rest) if zero else _is_isolated(code, count, least, rest):
            found.append(code)
            others = rest
    return found


def _is_isolated(code: float, count: int, least: float, others: Array) -> bool:
    """Whether a code occurs often enough, lies outside the bulk, and has few cells near it.

    -1 must be the one negative among many whole numbers.
    """
    if count < (least - 1 if abs(code) >= 999 else least):
        return False
    if code == -1:
        return bool((others == np.floor(others)).all() and others.min() >= 0 and len(np.unique(others)) > 20)
    low, high = np.quantile(others, [0.01, 0.99])
    near = np.abs(others - code) <= 0.5 * max(float(high - low), 1e-300)
    return 3 * int(near.sum()) <= count and (code < low or code > high)


def _zero_is_implausible(count: int, least: float, others: Array) -> bool:
    """Whether zeros are at most half, and positive values end so far above zero that it cannot be one of them.

    Weights, pressures and prices have no values near zero; counts and sums of money do.
    """
    values = np.unique(others)
    if not least <= count <= len(others) or values[0] <= 0 or values[0] < 0.1 * float(np.median(others)):
        return False
    centre = float(np.median(np.log(others)))
    tail = np.quantile(centre - np.log(others), [0.75, 0.9, 0.95])
    end = min(np.exp(centre - tail_limit(tail, len(others), heaviest=0.0)), values[0])
    return float(end) > 3.0 * float(np.median(np.diff(values[: max(3, len(values) // 2)])))


def _placeholder_problem(column: Column, value: float, names: Array) -> RowProblem:
    assert column.values is not None
    rows = names[column.values == value]
    others = column.values[(column.values != value) & ~np.isnan(column.values)]
    low, high = (column.value_text(float(end)) for end in (others.min(), others.max()))
    share, code = 100 * len(rows) / len(column.values), column.value_text(value)
    sentence = (
        f"{visible(column.name, 60)} is {code} in {len(rows):,} rows ({share:.3g}%), and from {low} to {high} in all "
        f"others: {code} is probably a placeholder for a missing value; leave these cells empty"
    )
    strength, usual = 0.85 if value else 0.7, f"{low} to {high}"
    return RowProblem("placeholder", tuple(rows.tolist()), column.name, code, usual, sentence, strength, "fix")


# ---- outliers --------------------------------------------------------------------------------------------------------


def _find_outliers(rows: CheckedRows, error_rate: float) -> list[RowProblem]:
    """One problem per outlying value of a column, for at most 1,000 values of each column."""
    found = []
    columns = [column for column in rows.columns if column.kind not in ("text", "yes or no", "empty")]
    for column in columns:
        if column.values is None:
            continue
        values = np.where(np.isin(column.values, placeholders_of(column)), np.nan, column.values)
        far = outlying_cells(values, error_rate / len(columns))
        if far.any():
            inner, at = values[~far & ~np.isnan(values)], np.flatnonzero(far)
            low, middle, high = np.quantile(inner, [0.01, 0.5, 0.99])
            different = np.unique(values[at])
            for value in different[np.argsort(-np.abs(different - middle))][:_MAX_LISTED].tolist():
                same = rows.names[at[values[at] == value]]
                found.append(_outlier_problem(column, value, (float(low), float(high), len(inner)), same))
    return found


def outlying_cells(values: Array, error_rate: float) -> Array:
    """Mask of the outliers of a column; with fewer than 20 values there are none.

    If no value is negative and at least half are positive, the logarithms of the positive ones are a second scale.
    """
    found, present = np.zeros(len(values), dtype=bool), np.flatnonzero(~np.isnan(values))
    if len(present) < FEW:
        return found
    scales, positive = [(present, values[present], 1.5)], present[values[present] > 0]
    if values[present].min() >= 0 and len(positive) >= 0.5 * len(present):
        scales.append((positive, np.log(values[positive]), 0.2))
    for rows, x, heaviest in scales:
        distances = x - float(np.quantile(x, [0.5])[0])
        for sign in (-1.0, 1.0):
            found[rows[sign * distances > _limit(sign * distances, error_rate, heaviest)]] = True
    return found


def _limit(d: Array, error_rate: float, heaviest: float) -> float:
    """The largest signed distance from the median that is not an outlier on the positive side.

    If most cells have the same value, the tail is fitted to the positive distances; too few of these are no outliers.
    """
    q = np.quantile(d, [0.75, 0.9, 0.95])
    if q[0] <= 0 and (q[2] > 0 or (d > 0).sum() >= 2 * FEW):
        q = np.quantile(d[d > 0], [0.5, 0.8, 0.9])
    return 1.25 * tail_limit(q, len(d), error_rate, heaviest) if q[0] > 0 else np.inf


def tail_limit(distances: Any, n: int, error_rate: float = 0.05, heaviest: float = 1.5) -> float:
    """The limit of a tail in n rows, from the distances of its 75%, 90% and 95% quantiles to the median.

    The tail is that of Tukey's h distribution, `A z exp(h z^2 / 2)` with a normal z; h is 0 for a normal tail and 1 for
    Cauchy's, at most `heaviest`. The smallest of three estimates of h, plus a margin that shrinks with n, is robust to
    a few percent of outliers. A column without outliers exceeds the limit with the probability `error_rate`.
    """
    z = ndtri(np.array([0.75, 0.9, 0.95]))
    logs = np.log(np.maximum(distances, 1e-300) / z)
    slopes = [(logs[j] - logs[i]) / (0.5 * (z[j] ** 2 - z[i] ** 2)) for i, j in ((0, 1), (0, 2), (1, 2))]
    h = min(max(0.0, float(min(slopes))) + 1.0 / np.sqrt(n), heaviest)
    end = -float(ndtri(min(0.01, error_rate / n)))
    inner = logs - 0.5 * h * z**2
    return float(np.exp(np.median(inner)) * end * np.exp(min(0.5 * h * end**2, 600.0)))


def _outlier_problem(column: Column, value: float, usual: tuple[float, float, int], rows: Array) -> RowProblem:
    low, high, count = usual
    first, last = column.value_text(low), column.value_text(high)
    above, cell = value > high, column.value_text(value)
    times = abs(value - (high if above else low)) / max(high - low, 1e-300)
    where = f"row {row_text(rows[0])}" if len(rows) == 1 else f"each of {len(rows):,} rows"
    sentence = (
        f"{visible(column.name, 60)} is {cell} in {where}: 99% of the {count:,} other rows are "
        f"{'below' if above else 'above'} {last if above else first}"
    )
    strength = min(1.0, 0.8 + 0.02 * times)
    return RowProblem("outlier", tuple(rows.tolist()), column.name, cell, f"{first} to {last}", sentence, strength)


# ---- target leakage --------------------------------------------------------------------------------------------------


def _find_leaks(rows: CheckedRows, least: float) -> list[RowProblem]:
    """Find columns that alone nearly determine the target; a multi-label target is not checked."""
    found = []
    for column in rows.columns if rows.target.task != "labels" else ():
        share = explained_share(column, rows.target)
        if share >= least:
            errors = f"it removes {100 * share:.1f}% of the errors of guessing"
            sentence = f"{visible(column.name, 60)} nearly determines the target: {errors}"
            found.append(RowProblem("leak", (), column.name, f"{share:.3f}", "", sentence, share, "drop"))
    return found


def explained_share(column: Column, target: Target) -> float:
    """The share of the errors of a constant prediction that a decision tree of one column removes; it may be negative.

    It is fitted to one random half of up to 20,000 rows; errors of the other half are counts or, for numbers, squares
    of average ranks. Codes of texts are in random order, because that of the rows may be that of the classes.
    """
    rng = np.random.default_rng(0)
    sample = rng.permutation(len(target.y))[:SAMPLE]
    cells = column.cells if column.values is not None else rng.permutation(len(column.levels) + 1)[column.cells]
    x, y = cells[sample][:, None], target.y[sample]
    numbers = target.task == "numbers"
    y = rankdata(y) if numbers else y
    tree = (DecisionTreeRegressor if numbers else DecisionTreeClassifier)(min_samples_leaf=FEW // 4, random_state=0)
    half = len(y) // 2
    guess, constant = tree.fit(x[:half], y[:half]).predict(x[half:]), y.mean() if numbers else np.bincount(y).argmax()
    errors, most = ((np.abs(y[half:] - p) ** 2 if numbers else y[half:] != p).mean() for p in (guess, constant))
    return 1.0 - float(errors) / max(float(most), 1e-12)


# ---- bad leverage points ---------------------------------------------------------------------------------------------


def _find_bad_leverage_points(rows: CheckedRows, most: float) -> list[RowProblem]:
    fitted = getattr(rows.model, "regressor_", None)  # the model of a numeric target
    # A fit that drops small losses has no diagnostics.
    if fitted is None or not 0 < fitted.n_features_in_ <= most or fitted.k_ != len(rows.target.y):
        return []
    found, unit = fitted.diagnostics(), float(rows.model.transformer_.scale_[0]) * fitted.scale_
    far = [(column, _distances(column, column.values)) for column in rows.columns if column.values is not None]
    problems = []
    for i in np.flatnonzero(found.kinds == "bad leverage point").tolist():
        size, row, given = abs(float(found.residuals[i])), rows.names[[i]].tolist(), rows.target.text_of(i)
        name, cell, worst_feature = None, "", ""
        if far:
            worst = max(far, key=lambda one: float(one[1][i]))[0]
            name, cell = worst.name, worst.cell_text(i)
            worst_feature = f", most of all {visible(name, 60)} ({cell})"
        off = f"its target {given} is off the robust linear fit by {number(size * unit, 4)}"
        sentence = f"row {listed_rows(row)} has outlying features{worst_feature}, and {off}"
        strength = min(1.0, 0.5 + 0.02 * size)
        problems.append(RowProblem("bad leverage point", tuple(row), name, cell, "", sentence, strength))
    return problems


def _distances(column: Column, values: Array) -> Array:
    """Distances from the median in widths of the central 80%; 0 for missing cells, and if that has no width."""
    present = values[~column.missing]
    low, middle, high = np.quantile(present, [0.1, 0.5, 0.9]) if len(present) else (0.0, 0.0, 0.0)
    return np.nan_to_num(np.abs(values - middle) / (high - low)) if high > low else np.zeros(len(values))


# ---- the table of checks ---------------------------------------------------------------------------------------------

# To add a check, write a function and add an entry. `problems.KINDS` may name its kind of problem.
CHECKS: tuple[Check, ...] = (
    Check(
        "impossible",
        "A column of which at least this share are numbers or dates has texts that are neither.",
        0.95,
        _find_texts,
    ),
    Check(
        "placeholder",
        "A number of the list PLACEHOLDERS occurs at least this often outside the range of all other values, or zero "
        "does although values end well above it.",
        3,
        _find_placeholders,
    ),
    Check(
        "outlier",
        "A value lies beyond the limit of its column, extrapolated from the quantiles, that a table without outliers "
        "exceeds with this probability.",
        0.05,
        _find_outliers,
    ),
    Check(
        "duplicate",
        "Rows are equal, or equal but for the target, and there are at least this many times as many such pairs as "
        "expected by chance.",
        4.0,
        lambda rows, times: find_duplicates(rows.columns, rows.target, rows.names, times),
    ),
    Check(
        "near duplicate",
        "Neighbouring rows differ in at most three cells, which chance explains with at most this probability.",
        1e-4,
        lambda rows, chance: find_near_duplicates(rows.columns, rows.names, chance),
    ),
    Check(
        "leak",
        "A column alone removes at least this share of the errors of a constant prediction of the target.",
        0.95,
        _find_leaks,
    ),
    Check(
        "bad leverage point",
        "A row has outlying features and a large residual of the robust linear fit to a numeric target, which has at "
        "most this many features.",
        50,
        _find_bad_leverage_points,
    ),
)
