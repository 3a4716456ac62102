"""The scale of out-of-fold residuals: overall and local.

A model predicts the absolute residuals. Its predictions order the rows, and the local scale is a robust quantile of the
residuals of neighbours in this order, made monotone, so noise that grows with a feature or the target has no outliers.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from sklearn.isotonic import isotonic_regression

from ..core.arrays import Array

# The scale comes from this quantile of absolute residuals. The median could be 0, because repeated targets can be
# fitted exactly.
CLEAN_SHARE = 0.7
# Smallest number of rows in each bin of the order, and largest number of bins.
_PART, _PARTS = 40, 20
# Residuals are clipped to this many robust standard deviations before a model predicts their absolute values.
_CUT_BACK = 3.0
# The local scale is at least this fraction of the overall one.
_MIN_SCALE = 0.1


def quantile(size: Array, share: float, mass: Array | None = None) -> float:
    """The weighted quantile: the smallest size such that a share of at least `share` of the mass is at or below it.

    Without `mass` it is np.quantile, which interpolates.
    """
    if mass is None:
        return float(np.quantile(size, share))
    order = np.argsort(size, kind="stable")
    middle = np.searchsorted(np.cumsum(mass[order]), share * mass.sum())
    return float(size[order[min(middle, len(order) - 1)]])


def robust_scale(residual: Array, mass: Array | None = None, share: float = CLEAN_SHARE) -> float:
    """The standard deviation of a normal with the same quantile (70%, or `share`) of absolute values."""
    return quantile(np.abs(residual), share, mass) / float(ndtri(0.5 + share / 2))


def _scale_of_part(residual: Array, mass: Array) -> float:
    """The smaller of the scales from the 70% and the 50% quantile, because a bin may have more than 30% outliers.

    A median of zero is ignored, because repeated targets cause it.
    """
    most, half = robust_scale(residual, mass), robust_scale(residual, mass, 0.5)
    return min(most, half) if half > 0 else most


def sizes(residual: Array) -> Array:
    """Absolute residuals, clipped at 3 robust standard deviations: the target of the model that predicts their size.

    Rows without a residual have the mean of the others, so that they do not lower what is expected of similar rows.
    """
    known = np.isfinite(residual)
    size = np.minimum(np.abs(residual), _CUT_BACK * robust_scale(residual[known]))
    return np.where(known, size, size[known].mean() if known.any() else 0.0)


def local_scale(residual: Array, expected: Array, mass: Array) -> Array:
    """Array (n,): the robust scale of rows with similar `expected` residuals, non-decreasing in `expected`.

    It is at least a tenth of the overall scale, and equal to it if there are fewer than 80 rows.
    """
    overall = robust_scale(residual, mass)
    parts = min(len(residual) // _PART, _PARTS)
    if parts < 2 or overall == 0.0:
        return np.full(len(residual), overall)
    groups = np.array_split(np.argsort(expected, kind="stable"), parts)
    scales = np.array([_scale_of_part(residual[rows], mass[rows]) for rows in groups])
    rising = isotonic_regression(scales, sample_weight=[mass[rows].sum() for rows in groups])
    centres = np.array([expected[rows].mean() for rows in groups])
    return np.maximum(np.interp(expected, centres, rising), _MIN_SCALE * overall)
