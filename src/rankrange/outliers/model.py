"""The posterior probability that a numeric target is wrong.

Residuals are modelled by a mixture of a distribution of clean residuals and a wide normal distribution of outliers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv, gammaln, ndtri, softmax
from scipy.stats import norm

from ..core.arrays import Array
from ..core.transition import WIDTH
from .scatter import CLEAN_SHARE, local_scale, quantile, robust_scale

# Shapes of clean residuals: 2 is the normal, 1 has exponential tails.
_SHAPES = (2.0, 1.4, 1.0, 0.7)
# The largest ratio of the widths of positive and of negative residuals, and the least mass for separate widths.
_SKEWED, _FEW = 3.0, 10
# In standard deviations of clean residuals: no smaller residual is an outlier, every larger one is, and the least width
# of outliers.
_NEAR, _GROSS, _WIDE = 2.0, 30.0, 3.0
# A residual of more robust standard deviations than this is an outlier.
OUTLYING = 3.0
# The scale of the densest half: rounds of the estimate, and the largest share of outliers that it allows for.
_SCALE_STEPS, _MAX_SHARE = 10, 0.45


@dataclass(frozen=True)
class OutlierPosterior:
    """The probability `p_wrong` (n,) that each numeric target is wrong, and the `standardised` residuals (n,).

    `rate` is the estimated share of outliers, with its 95% `interval`, whose upper limit includes all residuals that
    the densest half of them contradicts: predictions may have been shifted by clustered outliers.
    """

    p_wrong: Array
    rate: float
    interval: tuple[float, float]
    standardised: Array


def outlier_share(residual: Array, mass: Array, robust: Array | None = None) -> tuple[float, float, float]:
    """The share of outliers, and the lower and upper limit of its 95% interval.

    Outliers lie beyond three robust standard deviations; normal errors there are subtracted. A fit that accommodates
    clustered outliers sees none, so the upper limit is at least that around the densest half of the residuals, of this
    fit and of `robust` (fits, n), which drop more rows.
    """
    sigma = quantile(np.abs(residual), CLEAN_SHARE, mass) / float(ndtri(0.5 + CLEAN_SHARE / 2))
    share, low, high = _beyond(residual, sigma, mass)
    every = [residual, *(() if robust is None else robust)]
    return share, low, max(high, *(_contradicted(other, mass) for other in every))


def _beyond(residual: Array, sigma: float, mass: Array) -> tuple[float, float, float]:
    n, expected = float(mass.sum()), 2.0 * float(norm.sf(OUTLYING))
    share = float(mass[np.abs(residual) > OUTLYING * sigma].sum()) / n
    spread = WIDTH * np.sqrt(share * (1.0 - share) / n)
    ends = (share, share - spread, share + max(spread, 3.0 / n))
    share, low, high = (max(0.0, (end - expected) / (1.0 - expected)) for end in ends)
    return share, low, min(1.0, high)


def _contradicted(residual: Array, mass: Array) -> float:
    """The upper limit of the share of residuals that do not belong to the normal around the densest half of them."""
    order = np.argsort(residual, kind="stable")
    r, until = residual[order], np.cumsum(mass[order])
    last = np.searchsorted(until, until - mass[order] + 0.5 * until[-1] * (1.0 - 1e-9))
    start = np.flatnonzero(last < len(r))
    width = r[last[start]] - r[start]
    best = int(width.argmin())
    distance, share = r - (r[start[best]] + r[last[start[best]]]) / 2.0, 0.0
    for _ in range(_SCALE_STEPS):  # the half of all rows is more than half of those that are not outliers
        sigma = width[best] / 2.0 / float(ndtri(0.5 + 0.25 / (1.0 - min(share, _MAX_SHARE))))
        share = float(mass[order][np.abs(distance) > OUTLYING * sigma].sum() / until[-1])
    return _beyond(distance, sigma, mass[order])[2]


def outlier_posterior(
    residual: Array, mass: Array | None = None, *, expected: Array | None = None, clean: str = "normal"
) -> OutlierPosterior:
    """Estimate which residuals are outliers; NaN marks rows without a residual.

    A residual is clean, with a scale from the 70% quantile of absolute residuals, or an outlier from a normal at least
    three times as wide. EM estimates the share and the width of outliers. In standard deviations of clean residuals, no
    residual below 2 is an outlier, and every residual above 30 is one.

    Parameters
    ----------
    residual : ndarray of shape (n,)
        Out-of-fold residuals.
    mass : ndarray of shape (n,), optional
        Weights of the rows; weight 2 equals the row twice.
    expected : ndarray of shape (n,), optional
        The absolute residual that a model expects for each row. Residuals are then divided by their local scale.
    clean : {"normal", "skewed"}, default="normal"
        The distribution of clean residuals. "normal" has one scale. It flags no row if the share of outliers is not
        significantly above 0, or above 30%, because then it does not fit; `rate` is still the estimate. "skewed" has a
        separate width on each side of zero, and averages over shapes of the tails, weighted by their likelihoods.

    Returns
    -------
    OutlierPosterior
        The posterior. For rows without a residual or an expected one, and for rows of weight 0, p_wrong is the share of
        outliers, and the standardised residual is 0.
    """
    mass = np.ones(len(residual)) if mass is None else mass
    present = np.isfinite(residual) & (mass > 0)
    if expected is not None:
        present &= np.isfinite(expected)
    r, weight = residual[present], mass[present]
    z = _standardised(r, weight, None if expected is None else expected[present])
    size = np.abs(z)
    p = (
        _by_side(z, weight)
        if clean == "skewed"
        else _of_size(size, weight, quantile(size, CLEAN_SHARE, weight), (2.0,))
    )
    rate, low, high = _mean(p, weight)
    if clean == "normal" and not (low > 0 and rate <= 1.0 - CLEAN_SHARE):
        p = np.zeros_like(p)
    p_wrong, standardised = np.full(len(residual), rate), np.zeros(len(residual))
    p_wrong[present], standardised[present] = p, z
    high = max(high, _contradicted(z, weight)) if len(z) else high
    return OutlierPosterior(p_wrong, rate, (low, high), standardised)


def _standardised(residual: Array, mass: Array, expected: Array | None) -> Array:
    """Residuals divided by their local scale, if `expected` is given, and by their overall scale, unless it is 0."""
    if expected is not None:
        scale = local_scale(residual, expected, mass)
        residual = np.divide(residual, scale, out=np.zeros_like(residual), where=scale > 0)
    overall = robust_scale(residual, mass)
    return residual / overall if overall > 0 else residual


def _mean(p: Array, mass: Array) -> tuple[float, float, float]:
    """The weighted mean of p and the limits of its 95% interval, clipped to [0, 1].

    For a mass of n, the upper limit is at least mean + 3 / n (rule of three).
    """
    n = float(mass.sum())
    mean = float(mass @ p) / n
    error = WIDTH * float(np.sqrt(mass @ (p - mean) ** 2 / n / max(n - 1.0, 1.0)))
    return mean, max(0.0, mean - error), min(1.0, mean + max(error, 3.0 / n))


def _by_side(residual: Array, mass: Array) -> Array:
    """The probability that each residual is an outlier, with widths of the two sides that differ at most threefold."""
    size, up = np.abs(residual), residual >= 0
    clean_size = [_clean_size(size, side, mass) for side in (up, ~up)]
    wrong = np.zeros(len(size))
    for side, width, other_width in zip((up, ~up), clean_size, clean_size[::-1], strict=True):
        if side.any():
            # Most large residuals on one side may be outliers, so the width of the other side limits its width.
            wrong[side] = _of_size(size[side], mass[side], min(width, _SKEWED * other_width), _SHAPES)
    return wrong


def _clean_size(size: Array, side: Array, mass: Array) -> float:
    """The 70% quantile of the absolute residuals of one sign, or of all if the mass of this sign is below 10."""
    rows = side if mass[side].sum() >= _FEW else slice(None)
    return quantile(size[rows], CLEAN_SHARE, mass[rows])


def _of_size(size: Array, mass: Array, clean_size: float, shapes: tuple[float, ...]) -> Array:
    """The probability that each absolute residual is an outlier, averaged over shapes, weighted by likelihood.

    `clean_size` is the 70% quantile of clean absolute residuals.
    """
    clean_size = max(clean_size, 1e-9 * float(size.max(initial=0.0)), 1e-300)
    fits = [_two_widths(size, mass, clean_size, shape) for shape in shapes]
    weights = softmax(np.array([likelihood for likelihood, _ in fits]))
    return np.asarray(weights @ np.stack([wrong for _, wrong in fits]))


def _two_widths(size: Array, mass: Array, clean_size: float, shape: float) -> tuple[float, Array]:
    """The log likelihood of the absolute residuals under one shape, and the probability that each is an outlier.

    Clean residuals have a generalised normal distribution with density proportional to exp(-|r / width|^shape). EM fits
    the share and the width of the outliers.
    """
    width = clean_size / float(gammaincinv(1.0 / shape, CLEAN_SHARE)) ** (1.0 / shape)
    core = width * float(
        np.exp(0.5 * (gammaln(3.0 / shape) - gammaln(1.0 / shape)))
    )  # the standard deviation of this shape
    z = size / core
    right = np.log(shape / width) - gammaln(1.0 / shape) - (size / width) ** shape
    share, wide = 0.05, 6.0
    for _ in range(200):
        outside = np.log(max(share, 1e-300)) + np.log(2.0 / (wide * core)) + norm.logpdf(z / wide)
        total = np.logaddexp(np.log1p(-min(share, 1.0 - 1e-12)) + right, outside)
        wrong = np.exp(outside - total)
        wrong[z > _GROSS] = 1.0
        new = float(mass @ wrong) / float(mass.sum())
        wide = max(_WIDE, float(np.sqrt(mass @ (wrong * z**2) / max(float(mass @ wrong), 1e-12))))
        if abs(new - share) < 1e-7:
            break
        share = new
    wrong[z < _NEAR] = 0.0  # the wide normal also covers small residuals, but no small residual is an outlier
    return float(mass @ total), wrong
