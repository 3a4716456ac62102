"""Cuts among values that have a mass: where the mass counted from the top is reached."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .arrays import Array

# Weighted values up to this many are sorted to find a cut.
_SORTED_UP_TO = 1 << 11
# A mass is reached if sums of weights reach it but for their rounding.
_BUT_ROUNDING = 1.0 - 1e-12


class Cut(NamedTuple):
    """The top of a set: everything above `value`, and `taken` out of the `tied` that equal it (counts, or mass).

    Counts and not a share of the tie: differences of counts are exact, those of shares lose their digits.
    """

    value: Any  # a number, or one per row, as all three
    taken: Any
    tied: Any

    @property
    def takes_tie(self) -> bool:
        """Whether all that equals the value is taken, but for the rounding of sums of weights."""
        return bool(self.taken >= self.tied * (1.0 - 1e-9))


def mass_cuts(values: Array, weights: Array, masses: list[float]) -> list[Cut]:
    """The values at which the mass counted from the top reaches each of `masses`, which do not rise."""
    if not weights.all():
        values, weights = values[weights > 0], weights[weights > 0]
    weights = weights.astype(np.float64, copy=False)
    if len(values) > _SORTED_UP_TO:
        return [_sorted_cuts(*_around_cut(values, weights, mass), [mass])[0] for mass in masses]
    return _sorted_cuts(values, weights, 0.0, masses)


def _around_cut(values: Array, weights: Array, mass: float) -> tuple[Array, Array, float]:
    """The few values among which the mass is reached, their weights, and the mass above them: quickselect."""
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


def _sorted_cuts(values: Array, weights: Array, above: float, masses: list[float]) -> list[Cut]:
    order = np.argsort(values)
    rising, mass_rising = values[order], weights[order]
    reached = above + np.cumsum(mass_rising[::-1])
    cuts = []
    for mass in masses:
        # Rounding of the sums may leave a hair of mass below a value that is taken whole, or below the last one.
        place = min(int(reached.searchsorted(mass * _BUT_ROUNDING)), len(values) - 1)
        value = rising[len(values) - 1 - place]
        low, high = int(rising.searchsorted(value, "left")), int(rising.searchsorted(value, "right"))
        tied = float(mass_rising[low:high].sum())
        higher = float(reached[len(values) - 1 - high]) if high < len(values) else above
        cuts.append(Cut(float(value), min(tied, mass - higher), tied))
    return cuts


def cuts_of_mass(values: Array, m: float, k: float, mass: Array) -> tuple[Cut, Cut]:
    """The cuts of each row at the masses k and m."""
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
    place = np.minimum((reached < top * _BUT_ROUNDING).sum(axis=1), values.shape[1] - 1)
    value = np.take_along_axis(values, np.take_along_axis(order, place[:, None], axis=1), axis=1)
    tied = (values == value) @ mass
    return Cut(value[:, 0], np.minimum(tied, top - (values > value) @ mass), tied)
