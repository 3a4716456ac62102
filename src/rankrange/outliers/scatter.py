"""The scatter of out-of-fold residuals: a robust scale, one that follows the expected size, and one by binary columns.

A model estimates how large residuals are (their absolute values, clipped). These estimates only order the rows; along
that order the local scale is a robust quantile of the residuals nearby, made monotone. So noise that grows with a
feature or with the target is not mistaken for outliers, and if the scatter is the same everywhere, so is the scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.isotonic import isotonic_regression

from ..core.arrays import Array
from ..core.two_values import Side, sides

# The share of residuals that must be small: with a half, repeated targets could be fitted exactly.
MOST = 0.7
# Smallest number of rows in each bin of the order, and largest number of bins.
_PART, _PARTS = 40, 20
# Residuals are clipped to so many robust standard deviations before their size is modelled.
_CUT_BACK = 3.0
# The local scale is at least this fraction of the overall one.
_LEAST = 0.1
# Rows with one value of a column have a larger scatter than the others if the logarithm of the ratio is so many times
# its standard error, which is about this for one row; and the largest number of such columns.
_SCATTERS, _ERROR_OF_LOG, _FOLLOWED = 3.5, 1.2, 8


def quantile(size: Array, share: float, mass: Array | None = None) -> float:
    """The quantile of some sizes, each of which counts with its mass: the smallest that has `share` below or at it."""
    if mass is None:
        return float(np.quantile(size, share))
    order = np.argsort(size, kind="stable")
    middle = np.searchsorted(np.cumsum(mass[order]), share * mass.sum())
    return float(size[order[min(middle, len(order) - 1)]])


def robust_scale(residual: Array, mass: Array | None = None, share: float = MOST) -> float:
    """The standard deviation of a normal with the same quantile (70%, or `share`) of absolute values."""
    return quantile(np.abs(residual), share, mass) / float(ndtri(0.5 + share / 2))


def _scale_of_part(residual: Array, mass: Array) -> float:
    """By the 70% or the 50% quantile, whichever is smaller: outliers may cluster where they have misled the model.

    Their share in such a bin can be above 30%. A median of zero does not identify the scale: targets repeat there.
    """
    most, half = robust_scale(residual, mass), robust_scale(residual, mass, 0.5)
    return min(most, half) if half > 0 else most


def sizes(residual: Array) -> Array:
    """Absolute residuals, clipped: the target of the model of the scatter."""
    size = np.abs(residual)
    limit = _CUT_BACK * robust_scale(residual[np.isfinite(residual)])
    return np.where(np.isfinite(size), np.minimum(size, limit), 0.0)


def local_scale(residual: Array, expected: Array, mass: Array) -> Array:
    """(n,): the robust scale of the residuals of rows whose `expected` size is alike, rising with it."""
    overall = robust_scale(residual, mass)
    parts = min(len(residual) // _PART, _PARTS)
    if parts < 2 or overall == 0.0:
        return np.full(len(residual), overall)
    places = np.array_split(np.argsort(expected, kind="stable"), parts)
    scales = np.array([_scale_of_part(residual[rows], mass[rows]) for rows in places])
    rising = isotonic_regression(scales, sample_weight=[mass[rows].sum() for rows in places])
    centres = np.array([expected[rows].mean() for rows in places])
    return np.maximum(np.interp(expected, centres, rising), _LEAST * overall)


@dataclass(frozen=True)
class Widths:
    """How much larger residuals are for one value of a binary column, typically an indicator of a missing cell.

    Predictions are less accurate when an informative cell is missing, without the target being wrong.
    """

    sides: tuple[Side, ...] = ()
    ratios: tuple[float, ...] = ()

    @classmethod
    def of(cls, residual: Array, X: Any) -> Widths:
        """Find the columns one by one, that with the clearest difference first."""
        asked, found = sides(X), cls()
        while asked and len(found.sides) < _FOLLOWED:
            left = residual / found.of_rows(X)
            logs = [_log_ratio(left, side.of(X)) for side in asked]
            best = int(np.argmax([log / error for log, error in logs]))
            log, error = logs[best]
            if log < _SCATTERS * error:
                break
            found = cls((*found.sides, asked.pop(best)), (*found.ratios, float(np.exp(log))))
        return found

    def of_rows(self, X: Any) -> Array:
        """(n,): the factor of each row, 1 for rows with the smallest scatter."""
        width = np.ones(X.shape[0])
        for side, ratio in zip(self.sides, self.ratios, strict=True):
            width[side.of(X)] *= ratio
        return width


def _log_ratio(residual: Array, upper: Array) -> tuple[float, float]:
    """The log ratio of the scatter of the rows of one value to that of the others, and its standard error."""
    parts = [residual[side] for side in (upper, ~upper)]
    scales = [_scale_of_part(part, np.ones(len(part))) for part in parts]
    error = _ERROR_OF_LOG * float(np.sqrt(sum(1.0 / len(part) for part in parts)))
    return (float(np.log(scales[0] / scales[1])) if min(scales) > 0 else 0.0), error
