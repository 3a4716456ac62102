"""Everything besides a wrong target that can be wrong with a row: one list, one sentence of evidence for each entry.

Nothing here needs a model of the target. Values far outside are told from heavy tails by fitting the tail of each
column to its own inner quantiles (Tukey's h), and a gap must lie before them; rows whose columns do not go together are
found by predicting each column from the others on robust ranks. `row_groups` finds repeated rows and batches,
`column_problems` leaks and drift. All of it is linear in the rows, up to sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from ..core.arrays import Array
from ..pages.text import number, visible
from ..tables.encode import codes_of, numbers_of
from .target import Target

KINDS = ("far", "impossible", "duplicate", "conflicting duplicate", "batch", "leak", "drift")
_SAID = {
    "far": ("row far outside", "rows far outside"),
    "impossible": ("row with an impossible value", "rows with impossible values"),
    "duplicate": ("repeated row", "repeated rows"),
    "conflicting duplicate": ("row equal to another but for its target", "rows equal to others but for their target"),
    "batch": ("row in a batch that is off", "rows in batches that are off"),
    "leak": ("column that gives the target away", "columns that give the target away"),
    "drift": ("column that drifts along time", "columns that drift along time"),
}
# Fewer cells tell no tail; a larger share far outside is a part of the table, not an accident; so many are listed.
_LEAST, _MOST_FAR, MOST_LISTED = 20, 0.03, 1000
# Up to so many rows the ranks are exact; beyond, they are those among 2,000 of them.
_RANKED_ALL = 100_000
# More columns than this are not predicted from each other.
MOST_COLUMNS = 150


@dataclass(frozen=True)
class RowProblem:
    """Something that is wrong with a row or with several, other than a wrong target.

    Attributes
    ----------
    kind : str
        "far", "impossible", "duplicate", "conflicting duplicate", "batch", "leak" or "drift".
    rows : tuple of int
        The rows it is about, numbered as the audit shows them; of repeated rows the first is the original. Empty for
        "leak" and "drift", which are about a whole column.
    column : str or None
        The column that shows it; None where it is the row as a whole.
    value : str
        What stands there.
    usual : str
        What usually stands there.
    sentence : str
        The evidence in plain English, with values.
    strength : float
        From 0 to 1: how sure it is that something is wrong.
    action : str
        "look", "drop" or "fix": what to do about it.
    """

    kind: str
    rows: tuple[int, ...]
    column: str | None
    value: str
    usual: str
    sentence: str
    strength: float
    action: str = "look"

    def to_dict(self) -> dict[str, Any]:
        """The problem as plain values, for JSON."""
        return {**asdict(self), "rows": list(self.rows)}


def count_problems(problems: Sequence[RowProblem]) -> dict[str, int]:
    """How many rows (of "leak" and "drift": columns) have each kind of problem; kinds that do not occur are left out.

    Of repeated rows the first does not count: it is the original.
    """
    counts = {}
    for kind in KINDS:
        found = [problem for problem in problems if problem.kind == kind]
        if kind in ("leak", "drift"):
            counts[kind] = len(found)
        else:
            skipped = int(kind == "duplicate")
            counts[kind] = len({row for problem in found for row in problem.rows[skipped:]})
    return {kind: count for kind, count in counts.items() if count}


def problems_in_words(problems: Sequence[RowProblem]) -> str:
    """One sentence that counts the problems by kind; empty where there are none."""
    counts = count_problems(problems)
    parts = [f"{count:,} {_SAID[kind][count > 1]}" for kind, count in counts.items()]
    if not parts:
        return ""
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"Besides the target, there {'is' if parts[0].startswith('1 ') else 'are'} {listed}."


def find_row_problems(
    table: Any, encoded: Array | None, target: Target, *, time: str | None = None, row_numbers: Array | None = None
) -> list[RowProblem]:
    """Find everything besides a wrong target that is wrong with the rows of a table.

    Parameters
    ----------
    table : pyarrow.Table
        The columns that are used, without the target; one row per row of `target`.
    encoded : ndarray of shape (rows, features) or None
        The same rows as numbers, where they were encoded already.
    target : Target
        What is to be predicted.
    time : str or None
        The column along which drift is looked for.
    row_numbers : ndarray of int or None
        How the audit numbers these rows; by default their place in the table, from 1.

    Returns
    -------
    list of RowProblem
        The surest first within each kind, in the order of `KINDS`.
    """
    from .column_problems import find_drift, find_leaks
    from .row_groups import find_batches, find_repeats

    numbers = target.rows + 1 if row_numbers is None else np.asarray(row_numbers)
    columns = [Column.of(name, table.column(name)) for name in table.column_names]
    amounts = [column for column in columns if column.values is not None]
    found = [problem for column in amounts for problem in _impossible(column, numbers)]
    both = {column.name: _far_cells(column, len(amounts)) for column in amounts}
    masks = {name: few for name, (few, _) in both.items()}
    batches = find_batches(amounts, {name: many for name, (_, many) in both.items()}, target, numbers)
    found += batches
    found += _far(amounts, masks, numbers)
    found += _strange_together(amounts, normal_scores(amounts), masks, numbers)
    found += find_repeats(columns, target, numbers)
    found += find_leaks(columns, target)
    if time is not None:
        found += find_drift(columns, time)
    place = {kind: i for i, kind in enumerate(KINDS)}
    return sorted(found, key=lambda problem: (place[problem.kind], -problem.strength))


# ---- columns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column as the checks read it: numbers, or the codes of texts.

    `values` has NaN for missing cells and is None for texts; `codes` is then the number of the text of each cell.
    """

    name: str
    kind: str
    values: Array | None
    codes: Array | None
    levels: list[str]
    strays: Array | None = None

    @classmethod
    def of(cls, name: str, column: Any) -> Column:
        """Read a column of a pyarrow Table."""
        values, kind, strays = numbers_of(column)
        if values is not None:
            odd = np.isnan(values) & ~np.asarray(column.is_null()) if strays else None
            return cls(name, kind, values, None, [], odd)
        try:
            codes, levels = codes_of(column)
        except (TypeError, ValueError, NotImplementedError):
            codes, levels = np.zeros(len(column), dtype=np.int64), [""]
        return cls(name, "text", None, codes, levels)

    def said(self, row: int) -> str:
        """The value of a row in words."""
        if self.values is None:
            assert self.codes is not None
            return "" if self.codes[row] < 0 else visible(self.levels[self.codes[row]], 60)
        return said_value(self, float(self.values[row]))


def said_value(column: Column, value: float) -> str:
    """A number of a column in words: dates as dates."""
    if np.isnan(value):
        return "(missing)"
    if column.kind == "dates" and abs(value) < 2e6:
        return str(np.datetime64(0, "D") + np.timedelta64(int(np.floor(value)), "D"))
    return number(value, 5)


# ---- far outside -----------------------------------------------------------------------------------------------------


def tail_limit(distances: tuple[float, float, float], n: int, tests: int = 1, heaviest: float = 1.5) -> float:
    """How far from the median a tail reaches in n rows, told by the distances of its 75%, 90% and 95% quantiles.

    Over all `tests` columns one cell in twenty tables passes it. It is the tail of Tukey's h distribution through the
    three: A z exp(h z^2 / 2), where z is normal. h is 0 for a normal tail and 1 for one as heavy as Cauchy's;
    the smallest of three estimates is taken, which a few percent of junk do not move.
    """
    z = ndtri(np.array([0.75, 0.9, 0.95]))
    logs = np.log(np.maximum(distances, 1e-300) / z)
    slopes = [(logs[j] - logs[i]) / (0.5 * (z[j] ** 2 - z[i] ** 2)) for i, j in ((0, 1), (0, 2), (1, 2))]
    h = min(max(0.0, float(min(slopes))) + 1.0 / np.sqrt(n), heaviest)
    end = -float(ndtri(min(0.01, 0.05 / (n * tests))))
    inner = logs - 0.5 * h * z**2
    return float(np.exp(np.median(inner)) * end * np.exp(min(0.5 * h * end**2, 600.0)))


def beyond(distances: Array, limit: float, gap: float) -> Array:
    """Which distances lie beyond the limit and beyond the first gap after it: a tail that goes on has no gap."""
    far = distances > limit
    if not far.any():
        return far
    near = distances[~far]
    steps = np.sort(np.append(distances[far], near.max() if len(near) else 0.0))
    wide = np.flatnonzero(steps[1:] > gap * np.maximum(steps[:-1], limit / 2))
    return distances >= steps[wide[0] + 1] if len(wide) else np.zeros_like(far)


def _far_cells(column: Column, tests: int) -> tuple[Array, Array]:
    """Which cells of a column lie far outside: -1 below, 1 above, 0 elsewhere; and the same where they are too many.

    Many far cells are a part of the table, unless they stand together: the second array is for `find_batches`.
    """
    values = column.values
    assert values is not None
    sides = np.zeros((2, len(values)), dtype=np.int8)
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < _LEAST or column.kind in ("yes or no", "empty"):
        return sides[0], sides[1]
    for rows, x, heaviest in _scales(values, known):
        centre = float(np.median(x))
        for sign in (-1, 1):
            far = _far_side(sign * (x - centre), tests, heaviest)
            sides[1, rows[far]] = sign
            if far.sum() <= _MOST_FAR * len(known):
                sides[0, rows[far]] = sign
    return sides[0], sides[1]


def _scales(values: Array, known: Array) -> list[tuple[Array, Array, float]]:
    """The values as they are where they do not spread over decades, and the logarithms of those above zero.

    With each comes the heaviest tail to allow for: logarithms of heavy tails are no heavier than an exponential one.
    """
    x = values[known]
    low, high = np.quantile(x, [0.1, 0.9])
    positive = known[x > 0]
    logs = [(positive, np.log(values[positive]), 0.2)] if x.min() >= 0 and len(positive) >= 0.5 * len(x) else []
    return logs if logs and x.min() > 0 and high > 5 * low else [(known, x, 1.5), *logs]


def _far_side(d: Array, tests: int, heaviest: float) -> Array:
    """Which signed distances from the median are far on the positive side."""
    n = len(d)
    q = np.quantile(d, [0.75, 0.9, 0.95])
    if q[0] <= 0 < q[2] or (q[2] <= 0 and (d > 0).sum() >= _LEAST * 2):
        inner = d[d > 0]  # most cells have one value: the others are looked at by themselves
        q = np.quantile(inner, [0.5, 0.8, 0.9])
    if q[0] > 0:
        few = len(np.unique(d[d > 0][:2000])) < 10
        limit = max(tail_limit((q[0], q[1], q[2]), n, tests, heaviest), 3.0 * q[2] if few else 0.0)
        return beyond(d, 1.25 * limit, 1.25)
    values, counts = np.unique(d, return_counts=True)
    common = values[counts >= max(3, 0.002 * n)]
    span = float(common.max() - common.min()) if len(common) else 0.0
    return beyond(d, float(common.max()) + 5.0 * span, 1.25) if span else np.zeros(n, dtype=bool)


def _far(amounts: list[Column], masks: dict[str, Array], numbers: Array) -> list[RowProblem]:
    """One problem per row with cells far outside: its farthest cell, and how many more there are."""
    found: dict[int, tuple[float, RowProblem]] = {}
    for column in amounts:
        sides, values = masks[column.name], column.values
        assert values is not None
        rows = np.flatnonzero(sides)
        if not len(rows):
            continue
        inner = values[(sides == 0) & ~np.isnan(values)]
        low, middle, high = np.quantile(inner, [0.01, 0.5, 0.99])
        span = max(high - low, 1e-300)
        for i in rows[np.argsort(-np.abs(values[rows] - middle))][:MOST_LISTED].tolist():
            size = abs(float(values[i]) - middle) / span
            if i not in found or size > found[i][0]:
                found[i] = (size, _far_problem(column, i, (low, high, len(inner)), int(numbers[i])))
    return [problem for _, problem in found.values()]


def _far_problem(column: Column, i: int, usual: tuple[float, float, int], row: int) -> RowProblem:
    assert column.values is not None
    low, high, count = usual
    value, (first, last) = float(column.values[i]), (said_value(column, v) for v in usual[:2])
    above = value > high
    edge = last if above else first
    times = abs(value - (high if above else low)) / max(high - low, 1e-300)
    said = said_value(column, value)
    sentence = (
        f"{visible(column.name, 60)} is {said} in row {row:,}: 99% of the {count:,} other rows are "
        f"{'below' if above else 'above'} {edge}"
    )
    return RowProblem("far", (row,), column.name, said, f"{first} to {last}", sentence, min(1.0, 0.8 + 0.02 * times))


# ---- impossible ------------------------------------------------------------------------------------------------------


def _impossible(column: Column, numbers: Array) -> list[RowProblem]:
    """Texts in a column of numbers or dates."""
    if column.strays is None or not column.strays.any():
        return []
    rows, what = numbers[column.strays], "dates" if column.kind == "dates" else "numbers"
    listed = ", ".join(f"{row:,}" for row in rows[:5].tolist()) + (" ..." if len(rows) > 5 else "")
    said = f"{len(rows):,} cells of {visible(column.name, 60)} are no {what} (row{'s' * (len(rows) > 1)} {listed})"
    return [RowProblem("impossible", tuple(rows.tolist()), column.name, "text", what, said, 0.9, "fix")]


# ---- columns that do not go together ---------------------------------------------------------------------------------


def normal_scores(amounts: list[Column]) -> Array:
    """(rows, columns): each value as the normal quantile of its rank, ties at their mean rank, missing cells 0.

    Ranks bound what a wild cell can do to the correlations.
    """
    kept = amounts[:MOST_COLUMNS]
    n = len(kept[0].values) if kept and kept[0].values is not None else 0
    z = np.zeros((n, len(kept)), dtype=np.float32)
    for j, column in enumerate(kept):
        assert column.values is not None
        if n > _RANKED_ALL:
            z[:, j] = _score_on(_grid(column), column.values)
            continue
        known = ~np.isnan(column.values)
        _, places, counts = np.unique(column.values[known], return_inverse=True, return_counts=True)
        upto = np.cumsum(counts)
        z[known, j] = ndtri((upto - 0.5 * counts) / max(known.sum(), 1))[places]
    return z


def _strange_together(amounts: list[Column], z: Array, masks: dict[str, Array], numbers: Array) -> list[RowProblem]:
    """Rows whose columns do not go together, or fit better when moved by one column, though each value is usual."""
    n, p = z.shape
    if n < 5 * p or n < _LEAST or p < 2 or len(amounts) > p:
        return []
    alone = np.any([masks[column.name] != 0 for column in amounts], axis=0)
    inverse = np.linalg.inv(_robust_correlation(z))
    residuals = (z @ inverse).astype(np.float32)
    size = np.sqrt(np.maximum(np.einsum("ij,ij->i", residuals, z), 0.0))
    residuals /= np.sqrt(np.diag(inverse)).astype(np.float32)
    far = _far_above(size)
    worst = np.abs(residuals).argmax(axis=1)
    for j in np.flatnonzero([len(np.unique(z[:10_000, j])) > 10 for j in range(p)]).tolist():
        far |= _far_above(residuals[:, j], p) | _far_above(-residuals[:, j], p)
    moved = _moved_by_one(amounts, size, inverse)
    far &= ~alone & (moved == 0)
    found = [_moved(int(moved[i]), int(numbers[i])) for i in np.flatnonzero(moved)[:MOST_LISTED].tolist()]
    if far.sum() > _MOST_FAR * n:
        return found
    rows = np.flatnonzero(far)[:MOST_LISTED]
    return found + [_together(amounts, i, int(worst[i]), z, residuals, inverse, int(numbers[i])) for i in rows.tolist()]


def _moved_by_one(amounts: list[Column], size: Array, inverse: Array) -> Array:
    """Rows that fit much better when their numbers move by one column: 1 to the right, -1 to the left, else 0."""
    n, p = len(size), len(inverse)
    moved = np.zeros(n, dtype=np.int8)
    if p < 3:
        return moved
    rows = np.flatnonzero(size >= np.quantile(size, 0.8)) if n > 200_000 else np.arange(n)
    grids = [_grid(column) for column in amounts[:p]]
    for step in (1, -1):
        z = np.empty((len(rows), p), dtype=np.float32)
        for j, grid in enumerate(grids):
            values = amounts[(j - step) % p].values
            assert values is not None
            z[:, j] = _score_on(grid, values[rows])
        other = np.sqrt(np.maximum(np.einsum("ij,ij->i", z @ inverse, z), 0.0))
        gain = size[rows] - other
        moved[rows[_far_above(gain) & (gain > 1.0)]] = step
    return moved


def _grid(column: Column) -> Array:
    """Up to 2,000 sorted values of a column, which stand for all."""
    assert column.values is not None
    known = column.values[~np.isnan(column.values)]
    return np.sort(known[:: max(1, len(known) // 2000)])


def _score_on(grid: Array, values: Array) -> Array:
    """The normal scores that values would have in a column; missing ones 0."""
    if not len(grid):
        return np.zeros(len(values))
    middle = 0.5 * (np.searchsorted(grid, values, "left") + np.searchsorted(grid, values, "right"))
    scores = ndtri((middle + 0.5) / (len(grid) + 1.0))
    return np.where(np.isnan(values), 0.0, scores)


def _moved(step: int, row: int) -> RowProblem:
    side = "right" if step > 0 else "left"
    sentence = f"the numbers of row {row:,} fit far better one column further to the {side}: columns may have shifted"
    return RowProblem("far", (row,), None, "", "", sentence, 0.85, "fix")


def _robust_correlation(z: Array) -> Array:
    """Correlations of normal scores, brought in a little so that copies of a column can be inverted."""
    C = np.cov(z.astype(np.float64), rowvar=False)
    spread = np.sqrt(np.maximum(np.diag(C), 1e-12))  # a constant column correlates with none
    R = C / spread[:, None] / spread
    np.fill_diagonal(R, 1.0)
    return 0.999 * R + 0.001 * np.eye(len(R))


def _far_above(values: Array, tests: int = 1) -> Array:
    centre = float(np.median(values))
    q = np.quantile(values, [0.75, 0.9, 0.95]) - centre
    if q[0] <= 0:
        return np.zeros(len(values), dtype=bool)
    return beyond(values - centre, 1.25 * tail_limit((q[0], q[1], q[2]), len(values), tests), 1.1)


def _together(
    amounts: list[Column], i: int, j: int, z: Array, residuals: Array, inverse: Array, row: int
) -> RowProblem:
    column = amounts[j]
    assert column.values is not None
    spread = 1.0 / np.sqrt(inverse[j, j])
    expected = z[i, j] - residuals[i, j] * spread
    known = np.sort(column.values[~np.isnan(column.values)])
    ends = np.clip((ndtr(expected + np.array([-2.0, 2.0]) * spread) * len(known)).astype(int), 0, len(known) - 1)
    first, last = (said_value(column, float(known[end])) for end in ends)
    said = column.said(i)
    sentence = (
        f"{visible(column.name, 60)} is {said} in row {row:,}, where the other columns let expect {first} to {last}: "
        "these values do not go together"
    )
    return RowProblem("far", (row,), column.name, said, f"{first} to {last}", sentence, 0.7)
