"""Problems of rows apart from a wrong target, each with a sentence of evidence.

The checks need no model of the target. An outlier must lie beyond the tail of its column, which is extrapolated from
inner quantiles (Tukey's h distribution), and beyond a gap. Rows with inconsistent columns are found by predicting the
normal scores of each column from the others. `problems` finds repeated rows, `column_problems` finds batches, leaks and
drift. The cost is linear in the number of rows, up to sorting. With more than 200,000 rows, quantiles come from a
sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from ..core.arrays import Array
from ..pages.text import visible
from .column_problems import find_batches, find_drift, find_leaks
from .placeholders import find_placeholders
from .problems import (
    BLOCK,
    EXACT_UP_TO,
    MAX_COLUMNS,
    CheckedRows,
    Column,
    RowProblem,
    covariance,
    each,
    find_repeats,
    kinds_in,
    quantiles,
    value_text,
)
from .target import Target

# The least number of cells for estimating a tail, the largest share of outliers, and the largest number to list.
_MIN_CELLS, _MAX_OUTLYING, MAX_LISTED = 20, 0.03, 1000
# At least this many outlying cells with the same value are one finding.
_MIN_EQUAL = 3
# Ranks are exact up to this many rows; otherwise they are ranks among 2,000 of them.
_RANKED_ALL = 100_000
_STEPS = 1 << 14

Check = Callable[[CheckedRows], list[RowProblem]]


def _check_values(rows: CheckedRows) -> list[RowProblem]:
    """Impossible values, placeholders, outliers, unusual batches, and rows with inconsistent columns."""
    numbers, jobs = rows.numbers, rows.jobs
    numeric = [column for column in rows.columns if column.values is not None]
    found = [problem for column in numeric for problem in _impossible(column, numbers)]
    cleaned = each(partial(find_placeholders, numbers=numbers), numeric, jobs)
    found += [problem for _, codes in cleaned for problem in codes]
    numeric = [column for column, _ in cleaned]  # without placeholders, which would widen the usual range
    far = each(partial(_outlying_cells, tests=len(numeric)), numeric, jobs)
    found += find_batches(numeric, [many for _, many in far], rows.target, numbers, jobs)
    few = {column.name: sides for column, (sides, _) in zip(numeric, far, strict=True)}
    found += _outliers(numeric, few, numbers)
    return found + _unusual_combinations(numeric, normal_scores(numeric, jobs), few, numbers, jobs)


# To add a check, write a function in a new file and add it to this list. `problems.KINDS` may name its kind of problem.
CHECKS: tuple[Check, ...] = (
    _check_values,
    lambda rows: find_repeats(rows.columns, rows.target, rows.numbers, rows.jobs),
    lambda rows: find_leaks(rows.columns, rows.target),
    lambda rows: [] if rows.time is None else find_drift(rows.columns, rows.time),
)


def find_row_problems(
    table: Any,
    target: Target,
    *,
    time: str | None = None,
    row_numbers: Array | None = None,
    jobs: int = 1,
    checks: Sequence[Check] | None = None,
) -> list[RowProblem]:
    """Find problems of the rows of a table, apart from wrong targets, sorted by kind (`KINDS`) and then by strength.

    `table` (pyarrow) has the used columns for the rows of `target`, `time` is the column for finding drift, and
    `row_numbers` are by default positions from 1. The result does not depend on `jobs`, the number of columns that are
    checked in parallel. `checks` are those of `CHECKS` unless given.
    """
    numbers = target.rows + 1 if row_numbers is None else np.asarray(row_numbers)
    columns = each(lambda name: Column.of(name, table.column(name)), table.column_names, jobs)
    rows = CheckedRows(columns, target, numbers, time, jobs)
    found = [problem for check in checks or CHECKS for problem in check(rows)]
    order_of = {kind: i for i, kind in enumerate(kinds_in(found))}
    return sorted(found, key=lambda problem: (order_of[problem.kind], -problem.strength))


def most_certain(problems: Sequence[RowProblem], count: int) -> list[RowProblem]:
    """The first `count` problems: the strongest of each kind, then the second of each kind, and so on.

    A list by strength alone could begin with many single cells and hide a column that is constant in half of the rows.
    Of two equally strong problems, the one with more rows comes first.
    """
    by_kind = [
        sorted((p for p in problems if p.kind == kind), key=lambda p: (-p.strength, -len(p.rows)))
        for kind in kinds_in(problems)
    ]
    ranked = [(rank, -found.strength, found) for kind in by_kind for rank, found in enumerate(kind)]
    return [found for _, _, found in sorted(ranked, key=lambda entry: entry[:2])[:count]]


# ---- outliers -----------------------------------------------------------------------------------------------------


def tail_limit(distances: tuple[float, float, float], n: int, tests: int = 1, heaviest: float = 1.5) -> float:
    """The limit of a tail in n rows, from the distances of its 75%, 90% and 95% quantiles to the median.

    The limit has a family-wise error rate of 5% over all `tests` columns. The tail is that of Tukey's h distribution,
    `A z exp(h z^2 / 2)` with a normal z, through the three quantiles. h is 0 for a normal tail and 1 for a tail as
    heavy as Cauchy's; it is at most `heaviest`. The smallest of three estimates of h is used, which is robust to a few
    percent of outliers, plus a margin that shrinks with n.
    """
    z = ndtri(np.array([0.75, 0.9, 0.95]))
    logs = np.log(np.maximum(distances, 1e-300) / z)
    slopes = [(logs[j] - logs[i]) / (0.5 * (z[j] ** 2 - z[i] ** 2)) for i, j in ((0, 1), (0, 2), (1, 2))]
    h = min(max(0.0, float(min(slopes))) + 1.0 / np.sqrt(min(n, EXACT_UP_TO // 2)), heaviest)
    end = -float(ndtri(min(0.01, 0.05 / (n * tests))))
    inner = logs - 0.5 * h * z**2
    return float(np.exp(np.median(inner)) * end * np.exp(min(0.5 * h * end**2, 600.0)))


def beyond(distances: Array, limit: float, gap: float) -> Array:
    """Mask of the distances beyond the limit and beyond the first gap after it; none if the tail has no gap.

    A gap is where a distance exceeds the one before it by the factor `gap`.
    """
    far = distances > limit
    if not far.any():
        return far
    near = distances[~far]
    steps = np.sort(np.append(distances[far], near.max() if len(near) else 0.0))
    wide = np.flatnonzero(steps[1:] > gap * np.maximum(steps[:-1], limit / 2))
    return distances >= steps[wide[0] + 1] if len(wide) else np.zeros_like(far)


def _outlying_cells(column: Column, tests: int) -> tuple[Array, Array]:
    """The outlying cells of a column: -1 below, 1 above, 0 elsewhere; and the same without a limit on their number.

    Many outlying cells (more than 3% on one side) belong to the distribution, unless they are consecutive. The second
    array is for `find_batches`. Columns of yes and no, or with fewer than 20 values, have none.
    """
    values = column.values
    assert values is not None
    sides = np.zeros((2, len(values)), dtype=np.int8)
    present = np.flatnonzero(~np.isnan(values))
    if len(present) < _MIN_CELLS or column.kind in ("yes or no", "empty"):
        return sides[0], sides[1]
    for rows, x, heaviest in _scales(values, present):
        *low, centre, third, ninth, last = quantiles(x, [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]).tolist()
        for sign, ends in ((-1, low[::-1]), (1, [third, ninth, last])):
            q = sign * (np.array(ends) - centre)
            far = np.flatnonzero(_beyond_tail(sign * (x - centre), q, tests, heaviest))
            sides[1, rows[far]] = sign
            if len(far) <= _MAX_OUTLYING * len(present):
                sides[0, rows[far]] = sign
    return sides[0], sides[1]


def _scales(values: Array, present: Array) -> list[tuple[Array, Array, float]]:
    """Scales for finding outliers, each as (rows, values, heaviest tail to allow).

    They are the values and, if none is negative and at least half are positive, the logarithms of the positive ones. If
    all values are positive and widely spread, only the logarithms are used. Logarithms of heavy-tailed values have at
    most exponential tails.
    """
    x = values[present]
    least = x.min()
    if least < 0:
        return [(present, x, 1.5)]
    positive = present[x > 0]
    logs = [(positive, np.log(values[positive]), 0.2)] if len(positive) >= 0.5 * len(x) else []
    low, high = quantiles(x, [0.1, 0.9])
    return logs if logs and least > 0 and high > 5 * low else [(present, x, 1.5), *logs]


def _beyond_tail(d: Array, q: Array, tests: int, heaviest: float) -> Array:
    """Mask of the signed distances that are outliers on the positive side; q are their 75%, 90% and 95% quantiles.

    If most cells have the same value, the tail is that of the others or, if these are few, the limit is five times the
    range of the frequent values above them.
    """
    n = len(d)
    if q[0] <= 0 < q[2] or (q[2] <= 0 and (d > 0).sum() >= _MIN_CELLS * 2):
        inner = d[d > 0]  # most cells have the same value: check only the others
        q = quantiles(inner, [0.5, 0.8, 0.9])
    if q[0] > 0:
        sample = d[:: max(1, n // 20_000)]
        few = len(np.unique(sample[sample > 0][:2000])) < 10
        limit = max(tail_limit((q[0], q[1], q[2]), n, tests, heaviest), 3.0 * q[2] if few else 0.0)
        return beyond(d, 1.25 * limit, 1.25)
    values, counts = np.unique(d, return_counts=True)
    common = values[counts >= max(3, 0.002 * n)]
    span = float(common.max() - common.min()) if len(common) else 0.0
    return beyond(d, float(common.max()) + 5.0 * span, 1.25) if span else np.zeros(n, dtype=bool)


def _outliers(numeric: list[Column], masks: dict[str, Array], numbers: Array) -> list[RowProblem]:
    """One problem per row with outlying cells, about its most extreme cell, for at most 1,000 rows of each column.

    Three or more outlying cells of a column with the same value are one problem. `masks` has the outlying cells of each
    column by name.
    """
    found: dict[int, tuple[float, RowProblem]] = {}
    together: list[RowProblem] = []
    for column in numeric:
        sides, values = masks[column.name], column.values
        assert values is not None
        rows = np.flatnonzero(sides)
        if not len(rows):
            continue
        inner = values[(sides == 0) & ~np.isnan(values)]
        low, middle, high = quantiles(inner, [0.01, 0.5, 0.99])
        span = max(high - low, 1e-300)
        repeated = _repeated_values(values[rows])
        together += [
            _outlier_problem(column, value, (low, high, len(inner)), numbers[rows[values[rows] == value]])
            for value in repeated.tolist()
        ]
        rows = rows[~np.isin(values[rows], repeated)]
        for i in rows[np.argsort(-np.abs(values[rows] - middle))][:MAX_LISTED].tolist():
            size = abs(float(values[i]) - middle) / span
            if i not in found or size > found[i][0]:
                usual = (low, high, len(inner))
                found[i] = (size, _outlier_problem(column, float(values[i]), usual, numbers[i : i + 1]))
    return together + [problem for _, problem in found.values()]


def _repeated_values(values: Array) -> Array:
    """The values that occur in at least three cells, which are reported as one problem."""
    different, counts = np.unique(values, return_counts=True)
    return np.asarray(different[counts >= _MIN_EQUAL])


def _outlier_problem(column: Column, value: float, usual: tuple[float, float, int], rows: Array) -> RowProblem:
    low, high, count = usual
    first, last = (value_text(column, v) for v in usual[:2])
    above = value > high
    edge = last if above else first
    times = abs(value - (high if above else low)) / max(high - low, 1e-300)
    cell = value_text(column, value)
    where = f"row {int(rows[0]):,}" if len(rows) == 1 else f"each of {len(rows):,} rows"
    sentence = (
        f"{visible(column.name, 60)} is {cell} in {where}: 99% of the {count:,} other rows are "
        f"{'below' if above else 'above'} {edge}"
    )
    strength = min(1.0, 0.8 + 0.02 * times)
    return RowProblem("outlier", tuple(rows.tolist()), column.name, cell, f"{first} to {last}", sentence, strength)


# ---- impossible ------------------------------------------------------------------------------------------------------


def _impossible(column: Column, numbers: Array) -> list[RowProblem]:
    """Find texts in a column of numbers or dates."""
    if column.strays is None or not column.strays.any():
        return []
    rows, expected = numbers[column.strays], "dates" if column.kind == "dates" else "numbers"
    listed = ", ".join(f"{row:,}" for row in rows[:5].tolist()) + (" ..." if len(rows) > 5 else "")
    sentence = (
        f"{len(rows):,} cells of {visible(column.name, 60)} are not {expected} (row{'s' * (len(rows) > 1)} {listed})"
    )
    return [RowProblem("impossible", tuple(rows.tolist()), column.name, "text", expected, sentence, 0.9, "fix")]


# ---- inconsistent columns ---------------------------------------------------------------------------------


def normal_scores(numeric: list[Column], jobs: int = 1) -> Array:
    """Array (columns, rows): normal scores of the first 150 columns, mean ranks for ties, and 0 for missing cells.

    Ranks bound the effect of an outlier on the correlations. With more than 100,000 rows they are ranks in a sample.
    """
    found = each(_scores_of, numeric[:MAX_COLUMNS], jobs)
    return np.stack(found) if found else np.zeros((0, 0), dtype=np.float32)


def _scores_of(column: Column) -> Array:
    values = column.values
    assert values is not None
    if len(values) > _RANKED_ALL:
        return _score_on(_grid(column), values)
    scores, present = np.zeros(len(values), dtype=np.float32), ~np.isnan(values)
    _, index, counts = np.unique(values[present], return_inverse=True, return_counts=True)
    scores[present] = ndtri((np.cumsum(counts) - 0.5 * counts) / max(present.sum(), 1))[index]
    return scores


def _unusual_combinations(
    numeric: list[Column], z: Array, masks: dict[str, Array], numbers: Array, jobs: int
) -> list[RowProblem]:
    """Find rows with inconsistent columns, or whose values fit better when shifted by one column; up to 1,000 of each.

    `z` are the normal scores. Rows with an outlying cell (`masks`) are not inconsistent, and none is if more than 3%
    would be. The result is empty with one or more than 150 columns, or with fewer than 20 rows or five per column.
    """
    p, n = z.shape
    if n < 5 * p or n < _MIN_CELLS or p < 2 or len(numeric) > p:
        return []
    inverse = np.linalg.inv(_robust_correlation(z))
    z = _filled(z, [np.flatnonzero(np.isnan(column.values)) for column in numeric], inverse)  # type: ignore[arg-type]
    residuals, size = _explained(z, inverse)
    residuals /= np.sqrt(np.diag(inverse)).astype(np.float32)[:, None]
    many = [len(np.unique(scores[:10_000])) > 10 for scores in z]
    far = _far_above_others(size)
    for rows in each(partial(_outlying_rows, tests=p), residuals[many], jobs):
        far[rows] = True
    moved = _shifted_by_one(numeric, size, inverse, jobs)
    for column in numeric:
        far[np.flatnonzero(masks[column.name])] = False  # outlying cells are reported as such
    far &= moved == 0
    found = [_moved(int(moved[i]), int(numbers[i])) for i in np.flatnonzero(moved)[:MAX_LISTED].tolist()]
    if far.sum() > _MAX_OUTLYING * n:
        return found
    rows = np.flatnonzero(far)[:MAX_LISTED]
    worst = np.abs(residuals[:, rows]).argmax(axis=0)
    ordered = {j: _ordered(numeric[j]) for j in set(worst.tolist())}
    pairs = [
        _describe_inconsistency(numeric[j], i, (z[j, i], residuals[j, i], inverse[j, j]), ordered[j], int(numbers[i]))
        for i, j in zip(rows.tolist(), worst.tolist(), strict=True)
    ]
    return found + [problem for problem in pairs if problem is not None]


def _filled(z: Array, missing: list[Array], inverse: Array, sweeps: int = 10) -> Array:
    """The scores with missing cells at their conditional mean given the other cells of the row.

    The conditional mean minimises z' inverse z over the missing cells, by a few sweeps of coordinate descent.
    """
    if not any(map(len, missing)):
        return z
    z = z.copy()
    for _ in range(sweeps):
        for j, rows in enumerate(missing):
            if len(rows):
                z[j, rows] -= (inverse[j] @ z[:, rows]).astype(z.dtype) / z.dtype.type(inverse[j, j])
    return z


def _explained(z: Array, inverse: Array) -> tuple[Array, Array]:
    """inverse @ z for z (columns, rows), and sqrt(z' inverse z) for each row, in blocks of rows."""
    product, size = np.empty_like(z), np.empty(z.shape[1], dtype=np.float32)
    for start in range(0, z.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        product[:, part] = inverse @ z[:, part]
        size[part] = np.sqrt(np.maximum(np.einsum("ji,ji->i", product[:, part], z[:, part]), 0.0))
    return product, size


def _outlying_rows(residuals: Array, tests: int) -> Array:
    return np.flatnonzero(_far_above_others(residuals, tests) | _far_above_others(-residuals, tests))


def _shifted_by_one(numeric: list[Column], size: Array, inverse: Array, jobs: int) -> Array:
    """Array (n,): 1 or -1 if the values of a row fit much better one column further right or left, otherwise 0.

    All are 0 with fewer than three columns. With more than 200,000 rows, only the 20% with the largest `size` (the
    Mahalanobis distance) are tried.
    """
    n, p = len(size), len(inverse)
    moved = np.zeros(n, dtype=np.int8)
    if p < 3:
        return moved
    rows = np.flatnonzero(size >= quantiles(size, [0.8])[0]) if n > EXACT_UP_TO else np.arange(n)
    values = [column.values[rows] for column in numeric[:p] if column.values is not None]
    grids = [_grid(column) for column in numeric[:p]]
    for step in (1, -1):
        z = np.stack(each(_score_on, grids, jobs, values[-step:] + values[:-step]))
        gain = size[rows] - _explained(z, inverse)[1]
        moved[rows[_far_above_others(gain) & (gain > 1.0)]] = step
    return moved


def _ordered(column: Column, most: int = EXACT_UP_TO) -> Array:
    """A sorted sample of a column: every s-th value, with s such that fewer than 2 * `most` values remain."""
    assert column.values is not None
    present = column.values[~np.isnan(column.values)]
    return np.sort(present[:: max(1, len(present) // most)])


def _grid(column: Column) -> Array:
    return _ordered(column, 2000)


def _score_on(grid: Array, values: Array) -> Array:
    """The normal scores that values would have in a column; 0 for missing values."""
    scores = np.zeros(len(values), dtype=np.float32)
    if not len(grid):
        return scores
    # The score of a value is that of its position in the grid, or of its mean position if the grid contains it.
    index = _positions_in(grid, values)
    steps, repeats = np.arange(len(grid) + 1), np.searchsorted(grid, grid, "right") - np.arange(len(grid))
    between = ndtri((steps + 0.5) / (len(grid) + 1.0)).astype(np.float32)
    within = ndtri((steps[:-1] + 0.5 * repeats + 0.5) / (len(grid) + 1.0)).astype(np.float32)
    scores[:] = between[index]
    held = np.flatnonzero(grid[np.minimum(index, len(grid) - 1)] == values)
    scores[held] = within[index[held]]
    scores[np.isnan(values)] = 0.0
    return scores


def _positions_in(grid: Array, values: Array) -> Array:
    """`np.searchsorted(grid, values)`, faster for many values: most of many equal bins contain no grid value.

    The position of NaN has no meaning.
    """
    width = float(grid[-1] - grid[0]) / _STEPS
    if len(values) < _STEPS or not 0.0 < width < np.inf:
        return np.searchsorted(grid, values)

    def steps(x: Array) -> Array:
        return np.clip(np.nan_to_num((x - grid[0]) / width), 0, _STEPS).astype(np.intp)

    held = np.bincount(steps(grid), minlength=_STEPS + 1)
    bin_of = steps(values)
    index = (np.cumsum(held) - held)[bin_of]
    unsure = np.flatnonzero(held[bin_of])  # a grid value lies in the same bin
    index[unsure] = np.searchsorted(grid, values[unsure])
    return index


def _moved(step: int, row: int) -> RowProblem:
    side = "right" if step > 0 else "left"
    sentence = f"the numbers of row {row:,} fit far better one column further to the {side}: columns may have shifted"
    return RowProblem("outlier", (row,), None, "", "", sentence, 0.85, "fix")


def _robust_correlation(z: Array) -> Array:
    """Correlations of normal scores, shrunk a little, because duplicate columns would make the matrix singular."""
    C = covariance(z)
    spread = np.sqrt(np.maximum(np.diag(C), 1e-12))  # a constant column correlates with none
    R = C / spread[:, None] / spread
    np.fill_diagonal(R, 1.0)
    return 0.999 * R + 0.001 * np.eye(len(R))


def _far_above_others(values: Array, tests: int = 1) -> Array:
    centre, *q = quantiles(values, [0.5, 0.75, 0.9, 0.95]).tolist()
    if q[0] <= centre:
        return np.zeros(len(values), dtype=bool)
    ends = (q[0] - centre, q[1] - centre, q[2] - centre)
    return beyond(values - centre, 1.25 * tail_limit(ends, len(values), tests), 1.1)


def _describe_inconsistency(
    column: Column, i: int, found: tuple[float, float, float], ordered: Array, row: int
) -> RowProblem | None:
    """Describe a cell that is inconsistent with the other columns.

    `found` has the normal score of the cell, its standardised residual given the other columns, and the precision (1 /
    variance) of the residual. Returns None if the value lies in the expected range.
    """
    score, residual, precision = found
    spread = 1.0 / np.sqrt(precision)
    expected = score - residual * spread
    ends = np.clip((ndtr(expected + np.array([-2.0, 2.0]) * spread) * len(ordered)).astype(int), 0, len(ordered) - 1)
    assert column.values is not None
    if not column.values[i] < ordered[ends[0]] and not column.values[i] > ordered[ends[1]]:
        return None
    first, last = (value_text(column, float(ordered[end])) for end in ends)
    cell, usual = column.cell_text(i), first if first == last else f"{first} to {last}"
    sentence = (
        f"{visible(column.name, 60)} is {cell} in row {row:,}, but {usual} is expected given the other "
        "columns: these values are inconsistent"
    )
    return RowProblem("outlier", (row,), column.name, cell, usual, sentence, 0.7)
