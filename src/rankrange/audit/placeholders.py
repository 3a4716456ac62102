"""Placeholders of missing cells: codes such as -999 and 99999, and zeros in columns without values near zero.

A code is a number that is commonly used for "missing". It occurs several times, lies outside the bulk of the column,
and has hardly any other cell near it. Extreme cells elsewhere do not matter. A zero is a placeholder if all other
values are positive and their lower tail, extrapolated on a logarithmic scale, ends well above zero. Weights, pressures
and prices have no values near zero; counts and sums of money do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from ..core.arrays import Array
from ..pages.text import visible
from .problems import Column, RowProblem, quantiles, value_text

# The least number of cells with the placeholder, of other cells, and of distinct values among these.
_MIN_CELLS, _MIN_OTHERS, _MIN_VALUES = 3, 20, 5
# Cells are near a code if they lie within the first share of the range of the central 98% of the other cells. They must
# be at most the second share of the cells with the code.
_DISTANCE, _NEARBY = 0.5, 1 / 3
# Two cells are enough for a code with this many digits if no other cell lies within this many ranges: two equal extreme
# values of a heavy tail are rarely such a number.
_DIGITS, _DISTANCE_OF_FEW = 3, 2.0
# If a larger share is zero, zero is a usual value. The tail must end this many steps above zero, and all values must
# exceed this share of the median.
_MAX_ZEROS, _STEPS, _NEAR = 0.5, 3.0, 0.1


def find_placeholders(column: Column, numbers: Array) -> tuple[Column, list[RowProblem]]:
    """Find placeholders of missing cells.

    Returns the column with these cells missing, for all other checks, and one problem for each placeholder. Columns of
    other types than numbers are not checked. `numbers` are the row numbers to report.
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
    """A placeholder of the column and the strength of the evidence; None if there is none."""
    assert column.values is not None
    present = column.values[~np.isnan(column.values)]
    if len(present) < _MIN_OTHERS:
        return None
    values, counts = np.unique(present, return_counts=True)
    enough = len(present) - counts >= _MIN_OTHERS
    often, twice = enough & (counts >= _MIN_CELLS), enough & (counts >= 2)
    for value, count in zip(values[twice].tolist(), counts[twice].tolist(), strict=True):
        if _is_code(value) and _is_isolated(value, count, present[present != value]):
            return value, 0.85
    if (
        values[0] == 0
        and often[0]
        and counts[0] <= _MAX_ZEROS * len(present)
        and _never_near_zero(present[present != 0])
    ):
        return 0.0, 0.7
    return None


def _is_code(value: float) -> bool:
    """Whether a number is commonly used as a code: -1, or two or more nines of either sign (99, -999, -99.9)."""
    digits = _digits(value)
    return value == -1 or (len(digits) > 1 and set(digits) == {"9"})


def _digits(value: float) -> str:
    return f"{abs(value):.10g}".replace(".", "")


def _is_isolated(code: float, count: int, others: Array) -> bool:
    """Whether a code lies outside the bulk with few cells near it.

    A code that occurs twice needs three digits and a larger distance from other cells. -1 must instead occur three
    times or more among other cells that are whole, not negative, and have many values. The other cells must have at
    least five distinct values.
    """
    if len(np.unique(others[:10_000])) < _MIN_VALUES:
        return False
    if code == -1:
        whole = bool((others == np.floor(others)).all())
        return (
            count >= _MIN_CELLS and whole and float(others.min()) >= 0 and len(np.unique(others[:10_000])) > _MIN_OTHERS
        )
    low, high = quantiles(others, [0.01, 0.99])
    few = count < _MIN_CELLS
    if few and len(_digits(code)) < _DIGITS:
        return False
    near = np.abs(others - code) <= (_DISTANCE_OF_FEW if few else _DISTANCE) * max(float(high - low), 1e-300)
    return int(near.sum()) <= _NEARBY * count and abs(code) > max(abs(float(low)), abs(float(high)))


def _never_near_zero(others: Array) -> bool:
    """Whether the smallest of positive values are so far above zero that a zero cannot be a usual value.

    False if there are fewer than five distinct values.
    """
    values = np.unique(others)
    if values[0] <= 0 or len(values) < _MIN_VALUES or values[0] < _NEAR * float(np.median(others)):
        return False
    logs = np.log(others)
    fifth, tenth, quarter, centre = quantiles(logs, [0.05, 0.1, 0.25, 0.5])
    sizes = (centre - np.array([quarter, tenth, fifth])) / ndtri([0.75, 0.9, 0.95])
    reach = float(np.max(sizes)) * -float(ndtri(0.05 / max(len(others), 20)))
    least = min(float(np.exp(centre - reach)), float(values[0]))
    # The step of the column: the difference of neighbouring values in its lower half.
    step = float(np.median(np.diff(values[: max(3, len(values) // 2)])))
    return least > _STEPS * step


def _problem(column: Column, value: float, strength: float, numbers: Array) -> RowProblem:
    assert column.values is not None
    rows = numbers[column.values == value]
    others = column.values[(column.values != value) & ~np.isnan(column.values)]
    low, high = (value_text(column, float(end)) for end in (others.min(), others.max()))
    share, code = 100 * len(rows) / len(column.values), value_text(column, value)
    sentence = (
        f"{visible(column.name, 60)} is {code} in {len(rows):,} rows ({share:.3g}%), and from {low} to {high} in all "
        f"others: {code} is probably a placeholder for a missing value; leave these cells empty"
    )
    return RowProblem(
        "placeholder", tuple(rows.tolist()), column.name, code, f"{low} to {high}", sentence, strength, "fix"
    )
