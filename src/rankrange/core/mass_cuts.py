"""Cuts of weighted values: the value at which the cumulative mass from the top reaches a given mass."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .arrays import Array

# Up to this many weighted values are sorted to find a cut.
_SORTED_UP_TO = 1 << 14
# A mass counts as reached at this share of it, because sums of weights have rounding errors.
BUT_ROUNDING = 1.0 - 1e-12


class Cut(NamedTuple):
    """The top of a set: all values above `value`, and `taken` of the `tied` values equal to it (counts or masses).

    It stores counts instead of a share, because differences of counts are exact.
    """

    value: Any  # a number or one per row, like the other fields
    taken: Any
    tied: Any

    @property
    def takes_tie(self) -> bool:
        """Whether all values equal to the cut are taken, up to rounding errors of sums of weights."""
        return bool(self.taken >= self.tied * (1.0 - 1e-9))


def mass_cuts(values: Array, weights: Array, masses: list[float]) -> list[Cut]:
    """The cuts at which the cumulative mass from the largest value reaches each of `masses`.

    Values with weight 0 are ignored.
    """
    if not weights.all():
        values, weights = values[weights > 0], weights[weights > 0]
    weights = weights.astype(np.float64, copy=False)
    if len(values) > _SORTED_UP_TO:
        return [sorted_cuts(*_around_cut(values, weights, mass), [mass])[0] for mass in masses]
    return sorted_cuts(values, weights, 0.0, masses)


def _around_cut(values: Array, weights: Array, mass: float) -> tuple[Array, Array, float]:
    """Quickselect: the few values among which the mass is reached, their weights, and the mass above them.

    These are at most 2^14 values, or all values equal to the cut.
    """
    above = 0.0
    while len(values) > _SORTED_UP_TO:
        middle = len(values) // 2
        pivot = np.partition(values, middle)[middle]
        higher, tied = values > pivot, values == pivot
        mass_higher, mass_tied = float(weights[higher].sum()), float(weights[tied].sum())
        if above + mass_higher >= mass:
            kept = higher
        elif above + mass_higher + mass_tied >= mass or not (lower := ~(higher | tied)).any():
            return values[tied], weights[tied], above + mass_higher
        else:
            above += mass_higher + mass_tied
            kept = lower
        values, weights = values[kept], weights[kept]
    return values, weights, above


def sorted_cuts(values: Array, weights: Array, above: float, masses: list[float]) -> list[Cut]:
    """`mass_cuts` by sorting; the mass `above` lies above all of these values."""
    order = np.argsort(values)
    rising, mass_rising = values[order], weights[order]
    reached = above + np.cumsum(mass_rising[::-1])
    cuts = []
    for mass in masses:
        # Rounding errors may leave a tiny mass below a value that is taken completely, or below the last one.
        index = min(int(reached.searchsorted(mass * BUT_ROUNDING)), len(values) - 1)
        value = rising[len(values) - 1 - index]
        low, high = int(rising.searchsorted(value, "left")), int(rising.searchsorted(value, "right"))
        tied = float(mass_rising[low:high].sum())
        higher = float(reached[len(values) - 1 - high]) if high < len(values) else above
        cuts.append(Cut(float(value), min(tied, mass - higher), tied))
    return cuts


def cuts_of_mass(values: Array, m: float, k: float, mass: Array) -> tuple[Cut, Cut]:
    """The lower cut (mass k) and the upper cut (mass m) of each row of values (rows, n).

    `mass` (n,) is the mass of the values, the same for every row. The fields of a cut have one entry per row. For m = 0
    the upper cut is infinite.
    """
    n_rows, n = values.shape
    no_cut = Cut(np.full(n_rows, math.inf), np.zeros(n_rows), np.ones(n_rows))
    if n > _SORTED_UP_TO:
        found = np.array([mass_cuts(row, mass, [k, m] if m else [k]) for row in values])
        return Cut(*found[:, 0].T), Cut(*found[:, 1].T) if m else no_cut
    order = np.argsort(values, axis=1)[:, ::-1]
    reached = np.cumsum(mass[order], axis=1)
    lower, upper = (_cut_of_mass(values, mass, order, reached, top) if top else no_cut for top in (k, m))
    return lower, upper


def _cut_of_mass(values: Array, mass: Array, order: Array, reached: Array, top: float) -> Cut:
    index = np.minimum((reached < top * BUT_ROUNDING).sum(axis=1), values.shape[1] - 1)
    value = np.take_along_axis(values, np.take_along_axis(order, index[:, None], axis=1), axis=1)
    tied = (values == value) @ mass
    return Cut(value[:, 0], np.minimum(tied, top - (values > value) @ mass), tied)
