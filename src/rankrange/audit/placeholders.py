"""Numbers that stand for a missing cell: codes such as -999 and 99999, and zeros where nothing can be zero.

A code is a number that people choose for "missing", that comes several times, and that lies apart from the bulk of the
column, with hardly any other cell near it: single extreme cells elsewhere do not matter. A zero is one if all other
values are positive and zero is farther from them than their tail reaches, on the scale of logarithms: weights,
pressures and prices do not come near it, counts and amounts do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from ..core.arrays import Array
from ..pages.text import visible
from .problems import Column, RowProblem, quantiles, said_value

# A placeholder stands in so many cells at least; so many other cells, of so many values, show what is usual.
_LEAST_CELLS, _LEAST_OTHERS, _LEAST_VALUES = 3, 20, 5
# A code lies beyond the bulk, and the cells near it are at most this share of its own; near means within so much of
# what 98% of the other cells span.
_APART, _NEARBY = 0.5, 1 / 3
# A code of so many digits may stand in two cells, if no other cell lies within so many spans of it: two equal extremes
# of a heavy tail are hardly ever such a number.
_DIGITS, _ALONE = 3, 2.0
# More zeros are the usual value of the column; a tail must end so many steps above zero, and no value may come nearer
# to zero than this part of the median.
_MOST_ZEROS, _STEPS, _NEAR = 0.5, 3.0, 0.1


def find_placeholders(column: Column, numbers: Array) -> tuple[Column, list[RowProblem]]:
    """The numbers of a column that probably stand for missing cells.

    Parameters
    ----------
    column : Column
        A column of numbers.
    numbers : ndarray of int
        How the audit numbers the rows.

    Returns
    -------
    column : Column
        The same column with these cells missing, for all other checks.
    problems : list of RowProblem
        One for each such number.
    """
    found: list[RowProblem] = []
    if column.kind not in ("numbers", "whole numbers"):
        return column, found
    while (hit := _placeholder(column)) is not None:
        value, strength = hit
        values = column.values
        assert values is not None
        found.append(_problem(column, value, strength, numbers))
        column = replace(column, values=np.where(values == value, np.nan, values))
    return column, found


def _placeholder(column: Column) -> tuple[float, float] | None:
    """A number of the column that stands for missing cells, and how sure that is; None if there is none."""
    assert column.values is not None
    known = column.values[~np.isnan(column.values)]
    if len(known) < _LEAST_OTHERS:
        return None
    values, counts = np.unique(known, return_counts=True)
    enough = len(known) - counts >= _LEAST_OTHERS
    often, twice = enough & (counts >= _LEAST_CELLS), enough & (counts >= 2)
    for value, count in zip(values[twice].tolist(), counts[twice].tolist(), strict=True):
        if _is_code(value) and _lies_apart(value, count, known[known != value]):
            return value, 0.85
    if values[0] == 0 and often[0] and counts[0] <= _MOST_ZEROS * len(known) and _never_near_zero(known[known != 0]):
        return 0.0, 0.7
    return None


def _is_code(value: float) -> bool:
    """-1, and numbers of two or more nines, of either sign: 99, -999, 99999, -99.9."""
    digits = _digits(value)
    return value == -1 or (len(digits) > 1 and set(digits) == {"9"})


def _digits(value: float) -> str:
    return f"{abs(value):.10g}".replace(".", "")


def _lies_apart(code: float, count: int, others: Array) -> bool:
    """Whether a code lies beyond the bulk with few cells near it; -1 needs only that no other cell is negative."""
    if len(np.unique(others[:10_000])) < _LEAST_VALUES:
        return False
    if code == -1:
        whole = bool((others == np.floor(others)).all())
        return (
            count >= _LEAST_CELLS
            and whole
            and float(others.min()) >= 0
            and len(np.unique(others[:10_000])) > _LEAST_OTHERS
        )
    low, high = quantiles(others, [0.01, 0.99])
    few = count < _LEAST_CELLS
    if few and len(_digits(code)) < _DIGITS:
        return False
    near = np.abs(others - code) <= (_ALONE if few else _APART) * max(float(high - low), 1e-300)
    return int(near.sum()) <= _NEARBY * count and abs(code) > max(abs(float(low)), abs(float(high)))


def _never_near_zero(others: Array) -> bool:
    """Whether positive values end so far above zero that a zero is none of them."""
    values = np.unique(others)
    if values[0] <= 0 or len(values) < _LEAST_VALUES or values[0] < _NEAR * float(np.median(others)):
        return False
    logs = np.log(others)
    fifth, tenth, quarter, centre = quantiles(logs, [0.05, 0.1, 0.25, 0.5])
    sizes = (centre - np.array([quarter, tenth, fifth])) / ndtri([0.75, 0.9, 0.95])
    reach = float(np.max(sizes)) * -float(ndtri(0.05 / max(len(others), 20)))
    least = min(float(np.exp(centre - reach)), float(values[0]))
    # The step of the column: what neighbouring values of its lower half differ by.
    step = float(np.median(np.diff(values[: max(3, len(values) // 2)])))
    return least > _STEPS * step


def _problem(column: Column, value: float, strength: float, numbers: Array) -> RowProblem:
    assert column.values is not None
    rows = numbers[column.values == value]
    others = column.values[(column.values != value) & ~np.isnan(column.values)]
    low, high = (said_value(column, float(end)) for end in (others.min(), others.max()))
    share, said = 100 * len(rows) / len(column.values), said_value(column, value)
    sentence = (
        f"{visible(column.name, 60)} is {said} in {len(rows):,} rows ({share:.3g}%), and from {low} to {high} in all "
        f"others: {said} probably stands for a missing value; leave these cells empty"
    )
    return RowProblem(
        "placeholder", tuple(rows.tolist()), column.name, said, f"{low} to {high}", sentence, strength, "fix"
    )
