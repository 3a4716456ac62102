"""The ranked range for any model: rank the out-of-fold losses, fit to the ranks m+1..k, repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array
from ..core.cuts import select
from .models import FittedFolds


@dataclass(frozen=True)
class Alternation:
    """The result of `alternate`.

    `last` are the models fitted without the rows `dropped` (the m largest of `losses`) and `easy` (ranks above k).
    `values` holds the ranked range (a mean) of the out-of-fold losses, first of the fits to all rows and then of each
    round. It decreases, except perhaps at the last round.
    """

    losses: Array
    dropped: Array
    easy: Array
    values: Array
    last: FittedFolds


def alternate(
    fit: Callable[[Array], FittedFolds],
    losses_of: Callable[[FittedFolds], Array],
    m: float,
    k: float,
    mass: Array,
    rounds: int,
) -> Alternation:
    """Fit to all rows, then repeatedly to the ranks m+1..k of the out-of-fold losses of the last fits.

    `fit` gets a mask of the rows to fit to. `losses_of` returns the out-of-fold losses (n,), NaN for rows without a
    prediction. The iteration ends after `rounds` rounds (at least 1), or at the first that does not lower the ranked
    range of these losses. The result has the models of the last round, and the losses that chose its rows.
    """
    last = fit(np.ones(len(mass), dtype=bool))
    losses = losses_of(last)
    predicted = np.isfinite(losses) & (mass > 0)
    values = [_value(losses, predicted, m, k, mass)]
    dropped, easy = by_rank(losses, predicted, m, k, mass)
    for _ in range(rounds if (dropped | easy).any() else 0):
        dropped, easy = by_rank(losses, predicted, m, k, mass)
        last = fit(~dropped & ~easy)
        found = losses_of(last)
        values.append(_value(found, predicted, m, k, mass))
        if not values[-1] < values[-2]:
            break
        if len(values) <= rounds:
            losses = found
    return Alternation(losses, dropped, easy, np.array(values), last)


def by_rank(losses: Array, predicted: Array, m: float, k: float, mass: Array) -> tuple[Array, Array]:
    """Masks of the rows ranked 1..m and of the rows beyond rank k. Tied rows are ranked in row order.

    A row of weight w covers w ranks, and its middle rank counts. Rows outside the mask `predicted` are in neither.
    """
    rows = np.flatnonzero(predicted)
    rows = rows[np.argsort(-losses[rows], kind="stable")]
    middle = np.cumsum(mass[rows]) - 0.5 * mass[rows]
    dropped, easy = np.zeros((2, len(losses)), dtype=bool)
    dropped[rows[middle < m]] = True
    easy[rows[middle > k]] = True
    return dropped, easy


def _value(losses: Array, predicted: Array, m: float, k: float, mass: Array) -> float:
    return select(losses[predicted], m, k, mass[predicted]).total / (k - m)
