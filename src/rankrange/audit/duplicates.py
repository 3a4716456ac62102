"""Rows that are equal to another row, or nearly equal."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.hashing import splitmix64
from ..pages.text import visible
from .problems import RowProblem, listed_rows
from .target import Target

# Nearly equal rows differ in at most this many cells. Numbers are near if they differ by at most this share of the
# range of their column. If a larger share of the rows than the last has a near duplicate, this is normal.
_FEW_CELLS, _STEP, _MAX_NEAR = 3, 5e-4, 0.05


def _hashes(column: Any, j: int) -> Array:
    """A hash of each cell of the j-th column, different for each j; the sums over the columns identify rows."""
    cells = column.cells.astype(np.float64)
    bits = np.where(np.isnan(cells), np.nan, cells + 0.0).view(np.uint64)  # one NaN, one zero
    return splitmix64(splitmix64(bits) + np.uint64(2 * j + 1))


def _agreement(cells: Array) -> float:
    return float(((np.unique(cells, return_counts=True)[1] / len(cells)) ** 2).sum())


def _pairs(hashes: Array) -> float:
    sizes = np.unique(hashes, return_counts=True)[1].astype(np.float64)
    return float((sizes * (sizes - 1) / 2).sum())


def _expected_pairs(columns: list[Any], rows: Array) -> float:
    """The number of equal pairs of rows that independent columns would have by chance.

    It is the number of pairs that differ in one column only, times the odds that this column agrees.
    """
    equal, chances = _pairs(rows), [min(_agreement(column.cells), 1.0 - 1e-9) for column in columns]
    others = [_pairs(rows - _hashes(column, j)) - equal for j, column in enumerate(columns)]
    return max(pairs * chance / (1.0 - chance) for pairs, chance in zip(others, chances, strict=True))


def find_duplicates(columns: list[Any], target: Target, names: Array, times: float) -> list[RowProblem]:
    """Find rows that are equal in all columns, if there are at least `times` as many pairs as expected by chance."""
    hashes = np.asarray(sum(_hashes(column, j) for j, column in enumerate(columns)))
    order = np.argsort(hashes, kind="stable")
    edges = np.flatnonzero(np.diff(hashes[order])) + 1
    groups = sorted((rows for rows in np.split(order, edges) if len(rows) > 1), key=lambda rows: int(rows[0]))
    if not groups:
        return []
    expected = _expected_pairs(columns, hashes)
    if _pairs(hashes) < times * expected + 0.5:
        return []
    y = target.y if target.y.ndim == 1 else np.unique(target.y, axis=0, return_inverse=True)[1].ravel()
    by_chance = f"{expected:.2g} such pairs are expected by chance"
    return [_duplicate(rows, bool((y[rows] == y[rows[0]]).all()), target, names, by_chance) for rows in groups]


def _duplicate(rows: Array, same: bool, target: Target, names: Array, by_chance: str) -> RowProblem:
    shown = tuple(names[rows].tolist())
    if same:
        sentence = f"rows {listed_rows(shown)} are equal in all columns, the target included; {by_chance}"
        return RowProblem("duplicate", shown, None, "", "", sentence, 0.9, "drop")
    targets = list(dict.fromkeys(target.text_of(int(i)) for i in rows))
    words = " and ".join(f"'{visible(text, 40)}'" for text in targets[:4])
    sentence = f"rows {listed_rows(shown)} are equal in all columns but the target, which is {words}; {by_chance}"
    return RowProblem("conflicting duplicate", shown, ", ".join(target.columns), words, "", sentence, 0.95, "fix")


# ---- nearly equal rows -----------------------------------------------------------------------------------------------


def find_near_duplicates(columns: list[Any], names: Array, chance: float) -> list[RowProblem]:
    """Find rows that differ from a neighbour in few cells, or in all cells by very little, unless chance explains it.

    `chance` is the largest probability of such a pair in the whole table. If wider tolerances give many more pairs, or
    if more than 5% of the rows have one, similar rows are normal here, for example in a time series, and none is
    reported.
    """
    if len(columns) < 4:
        return []
    candidates = _neighbours(sorted(columns, key=lambda column: _agreement(column.cells))[:6])
    near = _near_pairs(columns, candidates, _STEP, chance)
    wider = _near_pairs(columns, candidates, 4.0 * _STEP, chance)
    if len(near) > _MAX_NEAR * len(names) or len(wider) > 3 * len(near) + 2:
        return []
    return [_near_duplicate(columns, a, b, tuple(names[[a, b]].tolist())) for a, b in near.tolist()]


def _neighbours(columns: list[Any]) -> Array:
    """Array (pairs, 2): the next two rows of each row in the order of each column, ties in the order of the next.

    Nearly equal rows are neighbours in most orders (the sorted-neighbourhood method).
    """
    found, keys = [], [column.cells for column in columns]
    for first, second in zip(keys, [*keys[1:], keys[0]], strict=True):
        order = np.lexsort((second, first))
        found += [np.stack([order[:-lag], order[lag:]], axis=1) for lag in (1, 2)]
    return np.unique(np.sort(np.concatenate(found), axis=1), axis=0)


def _near_pairs(columns: list[Any], pairs: Array, step: float, chance: float) -> Array:
    """The pairs in which all but a few cells are nearly equal, and not all are equal."""
    differ, equal, odds = np.zeros(len(pairs), int), np.ones(len(pairs), bool), np.zeros(len(pairs))
    for column in columns:
        width = step * _span(column)
        near, same = _compared(column, pairs, width)
        differ, equal, odds = differ + ~near, equal & same, odds + near * np.log(_chance_within(column, width))
        kept = differ <= _FEW_CELLS
        pairs, differ, equal, odds = pairs[kept], differ[kept], equal[kept], odds[kept]
    return pairs[~equal & (odds < np.log(chance) - 2.0 * np.log(len(columns[0])))]


def _chance_within(column: Any, width: float) -> float:
    """The probability that the cells of two rows differ by at most this width."""
    if column.values is None or width == 0.0:
        return _agreement(column.cells)
    return min(1.0, 3.0 * _agreement(np.floor(column.values / width)))


def _span(column: Any) -> float:
    """The range of the central 90% of the numbers of a column; 0 for texts."""
    present = np.empty(0) if column.values is None else column.values[~np.isnan(column.values)]
    return float(np.diff(np.quantile(present, [0.05, 0.95]))[0]) if len(present) else 0.0


def _compared(column: Any, pairs: Array, width: float) -> tuple[Array, Array]:
    """Two masks of the pairs of rows: cells differ by at most `width`, cells are equal. Two missing cells are equal."""
    one, other = (column.cells[pairs[:, side]] for side in (0, 1))
    same = (one == other) | ((one != one) & (other != other))
    return same | (np.abs(one - other) <= width), same


def _near_duplicate(columns: list[Any], a: int, b: int, shown: tuple[Any, ...]) -> RowProblem:
    pair = np.array([[a, b]])
    far = [column for column in columns if not _compared(column, pair, _STEP * _span(column))[0][0]]
    values = ", ".join(f"{visible(c.name, 40)} ({c.cell_text(a)} and {c.cell_text(b)})" for c in far)
    sentence = f"rows {listed_rows(shown)} are equal, or nearly equal, in all columns{' but ' * bool(far)}{values}"
    return RowProblem("near duplicate", shown, None, "", "", sentence, 0.55)
