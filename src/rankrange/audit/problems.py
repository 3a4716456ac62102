"""What a problem of rows is, columns as the checks read them, and problems of whole columns: leaks and drift."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

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
# A column leaks where it takes away this share of the errors, and no other column more than that; or nearly all.
_LEAK, _NO_LEAK, _SURE_LEAK = 0.95, 0.9, 0.99
# Bins of a column, and rows from which it is told what they say.
_MOST_BINS, _TOLD_ON = 200, 100_000
# The largest gap between two distribution functions from which on a column drifts.
_DRIFT = 0.5
# More columns than this are not predicted from each other.
MOST_COLUMNS = 150
# Up to so many values quantiles are exact; beyond, they are those of so many drawn ones, which know a share of a half
# to .0016.
EXACT_UP_TO, _DRAWN = 200_000, 100_000
# Rows that are multiplied by a matrix at a time: float64 copies of all would take more memory than the table.
BLOCK = 1 << 16
Found = TypeVar("Found")


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


# ---- quantiles, covariance, threads ----------------------------------------------------------------------------------


def quantiles(x: Array, levels: Sequence[float]) -> Array:
    """Quantiles as `np.quantile` has them, by one partial sort for all levels; of a sample where there are many values.

    The sample is drawn once for each number of values, so that results repeat.
    """
    values = x if len(x) <= EXACT_UP_TO else x[_drawn(len(x))]
    places = np.asarray(levels) * (len(values) - 1)
    low = np.floor(places).astype(np.intp)
    high = np.minimum(low + 1, len(values) - 1)
    ordered = np.partition(values, np.unique(np.append(low, high)))
    below, above, share = ordered[low].astype(np.float64), ordered[high].astype(np.float64), places - low
    # As NumPy interpolates: from the nearer end, so that equal neighbours give their value.
    return np.where(share < 0.5, below + (above - below) * share, above - (above - below) * (1.0 - share))


def median(x: Array) -> float:
    """The middle value, as `quantiles` finds it."""
    return float(quantiles(x, [0.5])[0])


def covariance(z: Array) -> Array:
    """Of variables (variables, rows), as `np.cov` has it."""
    means, n = z.mean(axis=1, dtype=np.float64)[:, None], z.shape[1]
    total = np.zeros((len(z), len(z)))
    for start in range(0, n, BLOCK):
        part = z[:, start : start + BLOCK] - means
        total += part @ part.T
    return total / (n - 1)


@lru_cache(maxsize=8)
def _drawn(n: int) -> Array:
    """Places of a sample of n values, in order."""
    return np.sort(np.random.default_rng(n).integers(0, n, _DRAWN))


def each(work: Callable[..., Found], items: Iterable[Any], jobs: int, *more: Iterable[Any]) -> list[Found]:
    """What `work` gives for each item, so many at a time; NumPy lets other threads run while it sorts and adds."""
    if jobs <= 1:
        return list(map(work, items, *more))
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(work, items, *more))


# ---- columns that give the target away, and columns that drift -------------------------------------------------------


def find_leaks(columns: list[Column], target: Target) -> list[RowProblem]:
    """Columns that nearly give the target by themselves, judged on rows that were not counted."""
    some = np.arange(0, len(target.y), max(1, len(target.y) // _TOLD_ON))
    shares = np.array([_told(column, target, some) for column in columns])
    found = []
    for j, share in enumerate(shares.tolist()):
        others = float(np.delete(shares, j).max()) if len(shares) > 1 else 0.0
        if share >= _LEAK and (others <= _NO_LEAK or share >= _SURE_LEAK):
            name = visible(columns[j].name, 60)
            said = (
                f"{name} nearly gives the target by itself: it takes away {100 * share:.1f}% of the errors of guessing"
                + (f", the next best column {100 * max(others, 0.0):.0f}%" if len(shares) > 1 else "")
            )
            found.append(
                RowProblem("leak", (), columns[j].name, f"{share:.3f}", f"up to {others:.3f}", said, share, "drop")
            )
    return found


def _told(column: Column, target: Target, some: Array) -> float:
    """The share of the errors of guessing that the column alone takes away, fitted on half of the rows."""
    if target.task == "labels":
        return 0.0
    bins, y = _bins(column, some), target.y[some]
    half = np.arange(len(bins)) % 2 == 0
    if target.task == "numbers":
        return _variance_told(bins, y, half)
    K = len(target.names)
    base = 1.0 - np.bincount(y, minlength=K).max() / len(y)
    counts = np.bincount(bins[half] * K + y[half], minlength=(bins.max() + 1) * K).reshape(-1, K)
    wrong = float((counts.argmax(axis=1)[bins[~half]] != y[~half]).mean())
    return 1.0 - wrong / max(base, 1e-12)


def _variance_told(bins: Array, y: Array, half: Array) -> float:
    """The share of the variance of the ranks of y, with straight lines between the means of the bins."""
    ranks = np.empty(len(y))
    ranks[np.argsort(y, kind="stable")] = np.arange(len(y))
    counts = np.bincount(bins[half])
    means = np.bincount(bins[half], weights=ranks[half]) / np.maximum(counts, 1)
    means = np.append(means, np.full(max(0, int(bins.max()) + 1 - len(means)), ranks.mean()))
    errors = ranks[~half] - means[bins[~half]]
    return 1.0 - float((errors**2).mean()) / float(ranks.var())


def _bins(column: Column, some: Array | slice = slice(None)) -> Array:
    """Up to 200 bins of equally many rows; texts are their own, beyond 200 one in common."""
    if column.values is None:
        assert column.codes is not None
        return np.minimum(column.codes[some] + 1, _MOST_BINS)
    x = column.values[some]
    known = x[~np.isnan(x)]
    if not len(known):
        return np.zeros(len(x), dtype=np.intp)
    edges = np.unique(np.quantile(known, np.linspace(0, 1, min(_MOST_BINS, max(2, len(known) // 10)))))
    place = np.searchsorted(edges, x, side="right")
    return np.where(np.isnan(x), 0, place + 1).astype(np.intp)


def find_drift(columns: list[Column], time: str) -> list[RowProblem]:
    """Columns whose values in the last third of the time differ from those in the first: the largest gap of shares."""
    clock = next(column for column in columns if column.name == time)
    assert clock.values is not None
    first, last = np.nanquantile(clock.values, [1 / 3, 2 / 3])
    early, late = clock.values <= first, clock.values > last
    found = []
    for column in columns:
        if column.name == time:
            continue
        bins = _bins(column)
        shares = [
            np.cumsum(np.bincount(bins[part], minlength=bins.max() + 1)) / max(part.sum(), 1) for part in (early, late)
        ]
        gap = np.abs(shares[0] - shares[1])
        size = (
            float(gap.max())
            if column.values is not None
            else 0.5 * float(np.abs(np.diff(shares[0] - shares[1], prepend=0)).sum())
        )
        if size >= _DRIFT and min(early.sum(), late.sum()) >= 20:
            found.append(_drifts(column, early, late, size, visible(time, 60)))
    return found


def _drifts(column: Column, early: Array, late: Array, size: float, time: str) -> RowProblem:
    if column.values is not None:
        here, there = (said_value(column, float(np.nanmedian(column.values[part]))) for part in (late, early))
        words = f"its median is {there} in the first third along {time} and {here} in the last"
    else:
        here, there = "other values", "values of the first third"
        words = f"{100 * size:.0f}% of its values are others in the last third along {time} than in the first"
    said = f"{visible(column.name, 60)} drifts: {words}"
    return RowProblem("drift", (), column.name, here, there, said, min(1.0, size))
