"""Shared by the checks of rows: the record of a problem, and columns as arrays. Also the check for repeated rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..core.arrays import Array
from ..core.hashing import splitmix64
from ..pages.text import number, visible
from ..tables.cell_values import codes_of, is_mark, numbers_of
from .target import Target


class Kind(NamedTuple):
    """A kind of problem: its name in the singular and in the plural, and what it concerns.

    `of_columns`: a whole column, not rows. `of_cells`: cells whose value is in doubt; the page counts them by column,
    and they do not widen the rules of a schema.
    """

    one: str
    many: str
    of_columns: bool = False
    of_cells: bool = False


# In the order in which they are shown. Other kinds follow; their names are made from the kind.
KINDS = {
    "outlier": Kind("row with an outlier", "rows with outliers", of_cells=True),
    "impossible": Kind("row with an impossible value", "rows with impossible values", of_cells=True),
    "placeholder": Kind(
        "row with a placeholder for a missing value", "rows with placeholders for missing values", of_cells=True
    ),
    "duplicate": Kind("duplicate row", "duplicate rows"),
    "conflicting duplicate": Kind(
        "row equal to another except for its target", "rows equal to others except for their target"
    ),
    "batch": Kind("row in an unusual batch", "rows in unusual batches"),
    "leak": Kind("column that leaks the target", "columns that leak the target", of_columns=True),
    "drift": Kind("column that drifts over time", "columns that drift over time", of_columns=True),
}
# Columns are predicted from each other only up to this number of columns.
MAX_COLUMNS = 150
# Quantiles are exact up to this many values. Otherwise they come from a sample of this size, whose estimates of
# a share of one half have a standard error of .0016.
EXACT_UP_TO, _DRAWN = 200_000, 100_000
# Rows per matrix product: a float64 copy of all rows would take more memory than the table.
BLOCK = 1 << 16
# Rows for estimating the chance of equal cells, and the number of columns that are left out one at a time.
_CHANCE_ROWS, _LEFT_OUT = 100_000, 12
# A column identifies rows if two rows agree in it with at most this probability. If a larger share of the rows than the
# second is nearly equal to another, this is normal and not an error.
_IDENTIFYING, _MAX_NEAR = 0.05, 0.05
# Nearly equal rows differ in at most this many cells. Numbers are near if they differ by at most this share of the
# range of their column.
_FEW_CELLS, _STEP = 3, 5e-4
# This many identifying columns determine which rows are compared.
_COMPARED = 16
_ODD = np.uint64(0x9E3779B97F4A7C15)
T = TypeVar("T")


@dataclass(frozen=True)
class RowProblem:
    """A problem of one or several rows other than a wrong target.

    Attributes
    ----------
    kind : str
        "outlier", "impossible", "placeholder", "duplicate", "conflicting duplicate", "batch", "leak" or "drift".
    rows : tuple of int
        The rows with the problem, numbered as in the audit; of duplicates the first is the original. Empty for "leak"
        and "drift", which concern a whole column.
    column : str or None
        The column with the problem; None if it concerns the whole row.
    value : str
        The value in that cell. For several rows it may be a summary, such as a median; "" if there is none.
    usual : str
        The usual values of the column; "" if there are none.
    sentence : str
        The evidence in plain English, with values.
    strength : float
        The strength of the evidence, from 0 to 1.
    action : str
        The suggested action: "look", "drop" or "fix".
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


def words_of(kind: str) -> Kind:
    """The names of a kind of problem. A kind that is not in `KINDS` concerns cells."""
    return KINDS.get(kind, Kind(f"row with {kind}", f"rows with {kind}", of_cells=True))


def kinds_in(problems: Sequence[RowProblem]) -> list[str]:
    """The kinds that occur, in the order of `KINDS`; others follow in the order of their occurrence."""
    found = dict.fromkeys(problem.kind for problem in problems)
    return [*(kind for kind in KINDS if kind in found), *(kind for kind in found if kind not in KINDS)]


def count_problems(problems: Sequence[RowProblem]) -> dict[str, int]:
    """The number of rows (for "leak" and "drift": columns) with each kind of problem that occurs.

    The first row of a "duplicate" is the original and is not counted.
    """
    counts = {}
    for kind in kinds_in(problems):
        found = [problem for problem in problems if problem.kind == kind]
        if words_of(kind).of_columns:
            counts[kind] = len(found)
        else:
            skipped = int(kind == "duplicate")
            counts[kind] = len({row for problem in found for row in problem.rows[skipped:]})
    return {kind: count for kind, count in counts.items() if count}


def problems_in_words(problems: Sequence[RowProblem]) -> str:
    """One sentence that counts the problems by kind; empty if there are none."""
    counts = count_problems(problems)
    parts = [f"{count:,} {words_of(kind).many if count > 1 else words_of(kind).one}" for kind, count in counts.items()]
    if not parts:
        return ""
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"Besides the target, there {'is' if parts[0].startswith('1 ') else 'are'} {listed}."


# ---- columns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column as the checks read it: numbers, or the codes of texts.

    `values` has NaN for missing cells and is None for texts. `codes` are then positions in `levels`, and below 0 for
    missing cells. `strays` marks the cells of a numeric column with text that is not a number; None if there are none.
    """

    name: str
    kind: str
    values: Array | None
    codes: Array | None
    levels: list[str]
    strays: Array | None = None

    @classmethod
    def of(cls, name: str, column: Any) -> Column:
        """Read a column of a pyarrow Table. Cells that cannot be compared, such as lists, all get the same code."""
        values, kind, strays = numbers_of(column)
        if values is not None:
            odd = _strays_of(column, values) if strays else None
            return cls(name, kind, values, None, [], odd)
        try:
            codes, levels = codes_of(column)
        except (TypeError, ValueError, NotImplementedError):
            codes, levels = np.zeros(len(column), dtype=np.int64), [""]
        return cls(name, "text", None, codes, levels)

    def cell_text(self, row: int) -> str:
        """The cell of a row as text; a missing text is "", a missing number "(missing)"."""
        if self.values is None:
            assert self.codes is not None
            return "" if self.codes[row] < 0 else visible(self.levels[self.codes[row]], 60)
        return value_text(self, float(self.values[row]))


class CheckedRows(NamedTuple):
    """The input of every check: columns, target, row numbers, the time column or None, and the number of threads."""

    columns: list[Column]
    target: Target
    numbers: Array
    time: str | None
    jobs: int


def _strays_of(column: Any, values: Array) -> Array:
    """Cells with a text that is neither a number nor a marker of a missing cell."""
    codes, levels = codes_of(column)
    stray = np.array([not is_mark(level) for level in levels] + [False])
    return np.isnan(values) & stray[codes]


def value_text(column: Column, value: float) -> str:
    """A number of a column as text; dates are formatted as dates, and NaN as "(missing)"."""
    if np.isnan(value):
        return "(missing)"
    if column.kind == "dates" and abs(value) < 2e6:
        return str(np.datetime64(0, "D") + np.timedelta64(int(np.floor(value)), "D"))
    return number(value, 5)


# ---- quantiles, covariance, threads ----------------------------------------------------------------------------------


def quantiles(x: Array, levels: Sequence[float]) -> Array:
    """Quantiles as of `np.quantile`, by one partial sort for all levels; from a sample if there are many values.

    The sample depends only on the number of values, so results are reproducible.
    """
    values = x if len(x) <= EXACT_UP_TO else x[_drawn(len(x))]
    positions = np.asarray(levels) * (len(values) - 1)
    low = np.floor(positions).astype(np.intp)
    high = np.minimum(low + 1, len(values) - 1)
    ordered = np.partition(values, np.unique(np.append(low, high)))
    below, above, share = ordered[low].astype(np.float64), ordered[high].astype(np.float64), positions - low
    # Interpolate from the nearer end as NumPy does, which returns equal neighbours exactly.
    return np.where(share < 0.5, below + (above - below) * share, above - (above - below) * (1.0 - share))


def median(x: Array) -> float:
    """The median, by `quantiles`."""
    return float(quantiles(x, [0.5])[0])


def covariance(z: Array) -> Array:
    """The covariance matrix of variables (variables, rows), as of `np.cov`."""
    means, n = z.mean(axis=1, dtype=np.float64)[:, None], z.shape[1]
    total = np.zeros((len(z), len(z)))
    for start in range(0, n, BLOCK):
        part = z[:, start : start + BLOCK] - means
        total += part @ part.T
    return total / (n - 1)


@lru_cache(maxsize=8)
def _drawn(n: int) -> Array:
    """Sorted positions of a random sample from n values."""
    return np.sort(np.random.default_rng(n).integers(0, n, _DRAWN))


def each(work: Callable[..., T], items: Iterable[Any], jobs: int, *more: Iterable[Any]) -> list[T]:
    """Apply `work` to each item as `map` does, in `jobs` threads; NumPy releases the GIL while it sorts and adds."""
    if jobs <= 1:
        return list(map(work, items, *more))
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(work, items, *more))


# ---- repeated rows ---------------------------------------------------------------------------------------------------


def find_repeats(columns: list[Column], target: Target, numbers: Array, jobs: int = 1) -> list[RowProblem]:
    """Find rows that are equal or nearly equal to another row, apart from the target.

    Equal rows are not reported if chance explains their number.
    """
    total: Array = np.zeros(len(numbers), dtype=np.uint64)
    chances = np.zeros(len(columns))
    for j, column in enumerate(columns):
        marks = _marks(column, j)
        total += marks
        chances[j] = _chance(marks[:_CHANCE_ROWS])
    # The most identifying columns: those in which two rows rarely agree.
    identifying = np.argsort(chances)[:_LEFT_OUT].tolist()
    groups = _groups_of(total)
    y = _codes_of_target(target)
    found = []
    if groups and not _by_chance(columns, identifying, chances, total, jobs):
        found = [_repeat(rows, bool((y[rows] == y[rows[0]]).all()), target, numbers) for rows in groups]
    found += _nearly_equal(columns, identifying, total, chances, numbers, jobs)
    taken = {row for problem in found for row in problem.rows}
    return found + _alike(columns, chances, taken, numbers, jobs)


def _chance(marks: Array) -> float:
    """The probability that two rows agree in a column."""
    return float(((np.unique(marks, return_counts=True)[1] / len(marks)) ** 2).sum())


def _nearly_equal(
    columns: list[Column], identifying: list[int], total: Array, chances: Array, numbers: Array, jobs: int
) -> list[RowProblem]:
    """Find rows that are equal in all columns but one of `identifying`, if equality by chance is improbable.

    Such rows are normal, and not reported, if they form more groups than 5% of the number of rows. `total` has the sum
    of the hashes of each row, and `chances` the probability of equal cells in each column.
    """
    n, rare = len(total), chances < _IDENTIFYING

    def without(j: int) -> list[Array]:
        others = rare & (np.arange(len(chances)) != j)
        if others.sum() < 3 or np.log(chances[others]).sum() > np.log(1e-4) - 2.0 * np.log(n):
            return []
        return [rows for rows in _groups_of(total - _marks(columns[j], j)) if len(np.unique(total[rows])) > 1]

    found: dict[tuple[int, ...], RowProblem] = {}
    for j, groups in zip(identifying, each(without, identifying, jobs), strict=True):
        for rows in groups if len(groups) <= _MAX_NEAR * n else []:
            shown = tuple(int(numbers[i]) for i in rows)
            values = " and ".join(dict.fromkeys(columns[j].cell_text(int(i)) for i in rows[:4]))
            name = visible(columns[j].name, 60)
            sentence = f"rows {_listed(shown)} are equal in all columns but {name}, which is {values}"
            found.setdefault(shown, RowProblem("duplicate", shown, columns[j].name, values, "", sentence, 0.6))
    return list(found.values())


def _listed(rows: tuple[int, ...]) -> str:
    return ", ".join(f"{row:,}" for row in rows[:6]) + (" ..." if len(rows) > 6 else "")


def _marks(column: Column, j: int) -> Array:
    """A hash of each cell of the j-th column, different for each j; sums of hashes identify rows."""
    with np.errstate(over="ignore"):
        if column.values is not None:
            bits = (column.values + 0.0).view(np.uint64).copy()
            bits[np.isnan(column.values)] = np.uint64(0x7FF8000000000000)
        else:
            assert column.codes is not None
            bits = (column.codes + 1).astype(np.uint64)
        return splitmix64(bits * _ODD + np.uint64(2 * j + 1) * np.uint64(0xD1B54A32D192ED03))


def _groups_of(marks: Array) -> list[Array]:
    """Groups of at least two rows with equal hashes, in table order."""
    order = _by_marks(marks)
    ordered = marks[order]
    edges = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(edges, len(order)))
    many = sizes > 1
    starts, sizes = edges[many], sizes[many]
    groups = [order[s : s + c] for s, c in zip(starts.tolist(), sizes.tolist(), strict=True)]
    return sorted(groups, key=lambda rows: int(rows[0]))


def _by_marks(marks: Array) -> Array:
    """Rows sorted by their hashes, without most rows whose hash is unique."""
    # Sorting values is faster than argsort, and half of the digits are enough to exclude most rows.
    half = marks.astype(np.uint32)
    ordered = np.sort(half)
    again = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(again):
        return np.zeros(0, dtype=np.intp)
    few = np.flatnonzero(again[np.minimum(np.searchsorted(again, half), len(again) - 1)] == half)
    return few[np.argsort(marks[few], kind="stable")]


def _pairs(marks: Array) -> float:
    """The number of pairs of rows with equal hashes."""
    ordered = np.sort(marks)
    edges = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(edges, len(ordered))).astype(np.float64)
    return float((sizes * (sizes - 1) / 2).sum())


def _by_chance(columns: list[Column], identifying: list[int], chances: Array, total: Array, jobs: int) -> bool:
    """Whether independent columns would give about as many equal rows by chance.

    The expected number of equal pairs is the number of pairs that differ in one column only, times the odds that this
    column agrees by chance. Only columns with many values are used, because they identify rows best.
    """
    equal = _pairs(total)
    pairs = each(lambda j: _pairs(total - _marks(columns[j], j)), identifying, jobs)
    odds = chances[identifying] / np.maximum(1.0 - chances[identifying], 1e-9)
    expected = float(((np.array(pairs) - equal) * odds).max(initial=0.0))
    return equal < 4.0 * expected + 0.5


def _codes_of_target(target: Target) -> Array:
    if target.y.ndim == 1:
        return target.y
    return np.unique(target.y, axis=0, return_inverse=True)[1].ravel()


def _repeat(rows: Array, same: bool, target: Target, numbers: Array) -> RowProblem:
    shown = tuple(int(numbers[i]) for i in rows)
    listed = _listed(shown)
    if same:
        sentence = f"rows {listed} are equal in all columns, the target included"
        return RowProblem("duplicate", shown, None, "", "", sentence, 0.9, "drop")
    targets = list(dict.fromkeys(target.text_of(int(i)) for i in rows))
    words = " and ".join(f"'{visible(text, 40)}'" for text in targets[:4])
    sentence = f"rows {listed} are equal in all columns but the target, which is {words}"
    return RowProblem("conflicting duplicate", shown, ", ".join(target.columns), words, "", sentence, 0.95, "fix")


# ---- nearly equal rows -----------------------------------------------------------------------------------------------


def _alike(columns: list[Column], chances: Array, taken: set[int], numbers: Array, jobs: int) -> list[RowProblem]:
    """Find rows that differ in few cells, or in all cells by very little, if chance does not explain it.

    If wider tolerances give many more such pairs, or if they are more than 5% of the number of rows, similar rows are
    normal in this table, for example in a time series, and none is reported. Nor is any if fewer than four columns
    identify rows. Pairs of rows in `taken` are left out.
    """
    identifying = [j for j in np.argsort(chances)[:_COMPARED].tolist() if chances[j] < _IDENTIFYING]
    if len(identifying) < 4:
        return []
    near = _near_pairs(columns, identifying, _STEP, len(numbers), jobs)
    if not 0 < len(near) <= _MAX_NEAR * len(numbers):
        return []
    if len(_near_pairs(columns, identifying, 4.0 * _STEP, len(numbers), jobs)) > 3 * len(near) + 2:
        return []
    found = []
    for a, b in near.tolist():
        shown = (int(numbers[a]), int(numbers[b]))
        if not taken.issuperset(shown):
            found.append(_duplicate_problem(columns, a, b, shown))
    return found


def _near_pairs(columns: list[Column], identifying: list[int], step: float, n: int, jobs: int) -> Array:
    """Array (pairs, 2): pairs of rows in which all but at most three cells are nearly equal, and not all are equal.

    Two rows that differ in three cells agree in at least one of four blocks of columns, so only rows that agree in a
    block are compared. A block in which more than 20% of the rows agree is not used. `step` is the tolerance of
    numbers, as a share of the range of their column.
    """
    few = min(_FEW_CELLS, len(identifying) // 2 - 1)
    widths = each(lambda column: step * _span(column), columns, jobs)
    chances = np.ones(len(columns))

    def agreeing(part: list[int]) -> Array:
        total: Array = np.zeros(n, dtype=np.uint64)
        for j in part:
            steps = _steps_of(columns[j], widths[j])
            chances[j] = min(1.0, 3.0 * _chance(steps[:_CHANCE_ROWS]))  # near means at most one step apart
            total += steps.view(np.uint64) * np.uint64((int(_ODD) + 2 * j * 0xD1B54A32D192ED03) % 2**64)
        order = _by_marks(total)
        if len(order) > 0.2 * n:  # too many rows agree in this block
            order = order[:0]
        same = np.flatnonzero(total[order][1:] == total[order][:-1])
        return np.stack([order[same], order[same + 1]], axis=1)

    pairs = np.unique(np.concatenate(each(agreeing, [identifying[b :: few + 1] for b in range(few + 1)], jobs)), axis=0)
    differ, equal, odds = np.zeros(len(pairs), int), np.ones(len(pairs), bool), np.zeros(len(pairs))
    for j, column in enumerate(columns):
        near, same = _compared(column, pairs, widths[j])
        differ += ~near
        equal &= same
        odds += np.where(near, np.log(chances[j]), 0.0)
    return pairs[(differ <= few) & ~equal & (odds < np.log(1e-4) - 2.0 * np.log(n))]


def _span(column: Column) -> float:
    """The range of the central 90% of the numbers of a column; 0 for texts."""
    if column.values is None:
        return 0.0
    present = column.values[~np.isnan(column.values)]
    return float(np.diff(quantiles(present, [0.05, 0.95]))[0]) if len(present) else 0.0


def _steps_of(column: Column, width: float) -> Array:
    """Integers that are equal for cells in the same bin of this width, and for equal texts."""
    if column.values is None:
        assert column.codes is not None
        return column.codes.astype(np.int64)
    if width == 0.0:
        return (column.values + 0.0).view(np.int64)
    with np.errstate(invalid="ignore"):  # all missing cells become the same number
        return np.floor(column.values / width).astype(np.int64)


def _compared(column: Column, pairs: Array, width: float) -> tuple[Array, Array]:
    """Two masks of the pairs of rows: cells differ by at most `width`, cells are equal. Two missing cells are equal."""
    cells = column.values if column.values is not None else column.codes
    assert cells is not None
    one, other = cells[pairs[:, 0]], cells[pairs[:, 1]]
    same = (one == other) | ((one != one) & (other != other))
    return same | (np.abs(one - other) <= width), same


def _duplicate_problem(columns: list[Column], a: int, b: int, shown: tuple[int, int]) -> RowProblem:
    pair = np.array([[a, b]])
    far = [column for column in columns if not _compared(column, pair, _STEP * _span(column))[0][0]]
    if not far:
        sentence = f"rows {_listed(shown)} are equal, or differ very little, in all columns"
        return RowProblem("duplicate", shown, None, "", "", sentence, 0.55)
    values = ", ".join(f"{visible(c.name, 40)} ({c.cell_text(a)} and {c.cell_text(b)})" for c in far)
    sentence = f"rows {_listed(shown)} are equal, or nearly equal, in all columns but {values}"
    return RowProblem("duplicate", shown, far[0].name, far[0].cell_text(b), far[0].cell_text(a), sentence, 0.55)
