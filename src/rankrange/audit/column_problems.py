"""Columns that should not be there as they are: those that give the target away, and those that drift along time."""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array
from ..pages.text import visible
from .row_problems import Column, RowProblem, said_value
from .target import Target

# A column leaks where it takes away this share of the errors, and no other column more than that; or nearly all.
_LEAK, _NO_LEAK, _SURE_LEAK = 0.95, 0.9, 0.99
# Bins of a column, and rows from which it is told what they say.
_MOST_BINS, _TOLD_ON = 200, 100_000
# The largest gap between two distribution functions from which on a column drifts.
_DRIFT = 0.5


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
