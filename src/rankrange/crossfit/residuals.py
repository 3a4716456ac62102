"""Outliers of a numeric target: out-of-fold residuals in units of a local scale.

The scale is local. The model itself learns how large residuals are (their absolute values, large ones cut back); its
answers only put the rows into an order, along which the scale is a robust quantile of the residuals nearby, made to
rise. So noise that grows with a feature or with the target is not taken for outliers, and where the scatter is the
same everywhere, the scale is too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.isotonic import isotonic_regression

from ..core.arrays import Array
from .choose import outlier_share
from .predictions import Side, sides

# The share of residuals that must be small: a half could be fitted exactly where targets repeat.
_MOST = 0.7
# Rows in each part of the order at least, and parts at most.
_PART, _PARTS = 40, 20
# Residuals enter the model of their size cut back to so many robust standard deviations.
_CUT_BACK = 3.0
# The local scale is at least this part of the overall one.
_LEAST = 0.1
# Residuals of fewer standard deviations are no errors.
_NEAR = 2.0
# Rows of one value of a column scatter more than the others where the logarithm of the ratio is so many times its
# error, which is about this for one row; and at most so many columns are followed.
_SCATTERS, _ERROR_OF_LOG, _FOLLOWED = 3.5, 1.2, 8


@dataclass(frozen=True)
class Outliers:
    """p_wrong (n,) of each target, the share of outliers with its 95% interval, and the standardised residuals.

    `harm` says whether they harm the fits, so that dropping them pays.
    """

    p_wrong: Array
    rate: float
    interval: tuple[float, float]
    standardised: Array
    harm: bool = True


def robust_scale(residual: Array, mass: Array | None = None, share: float = _MOST) -> float:
    """The standard deviation of a normal with the same quantile (70%, or `share`) of absolute values."""
    size = np.abs(residual)
    if mass is None:
        return float(np.quantile(size, share)) / ndtri(0.5 + share / 2)
    order = np.argsort(size, kind="stable")
    middle = np.searchsorted(np.cumsum(mass[order]), share * mass.sum())
    return float(size[order[min(middle, len(order) - 1)]]) / ndtri(0.5 + share / 2)


def _scale_of_part(residual: Array, mass: Array) -> float:
    """By the 70% or the 50% quantile, whichever gives less: outliers may crowd where a model went astray after them.

    Their share of such a part can be above 30%. A median of zero does not identify the scale: targets repeat there.
    """
    most, half = robust_scale(residual, mass), robust_scale(residual, mass, 0.5)
    return min(most, half) if half > 0 else most


def sizes(residual: Array) -> Array:
    """Absolute residuals, large ones cut back: what a model of the scatter learns."""
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
    """How much wider residuals scatter where a column of two values has one of them: that a cell is missing, mostly.

    Predictions are less accurate when an informative cell is missing, without the target being wrong.
    """

    sides: tuple[Side, ...] = ()
    ratios: tuple[float, ...] = ()

    @classmethod
    def of(cls, residual: Array, X: Any) -> Widths:
        """Find the sides one by one, that with the clearest difference first."""
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
        """(n,): the width of each row, 1 where it scatters least."""
        width = np.ones(X.shape[0])
        for side, ratio in zip(self.sides, self.ratios, strict=True):
            width[side.of(X)] *= ratio
        return width


def _log_ratio(residual: Array, upper: Array) -> tuple[float, float]:
    """The logarithm of how much more the rows of one side scatter than the others, and its standard error."""
    parts = [residual[side] for side in (upper, ~upper)]
    scales = [_scale_of_part(part, np.ones(len(part))) for part in parts]
    error = _ERROR_OF_LOG * float(np.sqrt(sum(1.0 / len(part) for part in parts)))
    return (float(np.log(scales[0] / scales[1])) if min(scales) > 0 else 0.0), error


def outlier_posterior(residual: Array, expected: Array, mass: Array) -> Outliers:
    """Outliers among the rows whose residual is known (not NaN).

    p_wrong is the share of residuals of about that size that a normal error does not explain; where the share beyond
    three standard deviations is not above what a normal has by more than its error, no target is called wrong. Nor
    where it is above 30%: the scale is that of the other 70%, which then are no normal errors either.
    """
    known = np.isfinite(residual) & np.isfinite(expected) & (mass > 0)
    r, weight = residual[known], mass[known]
    scale = local_scale(r, expected[known], weight)
    z = np.divide(r, scale, out=np.zeros_like(r), where=scale > 0)
    overall = robust_scale(z, weight)
    z = z / overall if overall > 0 else z
    rate, low, high = outlier_share(z, weight)
    p_wrong, standardised = np.full(len(residual), rate), np.zeros(len(residual))
    p_wrong[known] = (
        _beyond_normal(np.abs(z), weight, (1.0 - rate) * weight.sum()) if low > 0 and rate <= 1.0 - _MOST else 0.0
    )
    standardised[known] = z
    return Outliers(p_wrong, rate, (low, high), standardised)


def _beyond_normal(size: Array, mass: Array, right: float) -> Array:
    """The local share of rows that are more than `right` rows with a normal error explain, rising with the size.

    From one size to the next a normal error has so many rows, and there is one: what is left over is the share, made
    to rise with the size by isotonic regression. Within two standard deviations nothing is an error: residuals that
    come in lumps there are not normal, but not far either.
    """
    order = np.argsort(-size, kind="stable")
    order = order[size[order] >= _NEAR]
    expected = np.diff(2.0 * ndtr(-size[order]) * right, prepend=0.0)
    there = np.maximum(mass[order], 1e-300)
    result = np.zeros_like(size)
    result[order] = isotonic_regression(1.0 - expected / there, sample_weight=there, increasing=False)
    return np.clip(result, 0.0, 1.0)
