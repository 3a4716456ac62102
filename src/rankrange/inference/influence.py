"""The influence of each row on robust coefficients, and the covariance that follows from it.

To first order, the error of an estimate is the sum of the influences of the rows, and the sum of their squares is the
sandwich estimate of its covariance. A row that crosses the cut is dropped: density terms account for that, which the
covariance of least squares on the kept rows ignores.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from ..core.arrays import Array
from .bisquare import FOR_BREAKDOWN, psi, psi_derivative, rho


def lost_at_cut(cut: float) -> float:
    """The share of curvature lost to rows that cross the cut a: 2 a f(a) / P(|e| <= a) for standard normal errors e.

    f is the density of e. The share is 0 if a is 0 or infinite.
    """
    return float(2 * cut * norm.pdf(cut) / (2 * norm.cdf(cut) - 1)) if 0 < cut < np.inf else 0.0


def after_trimming(Z: Array, P: Array, residuals: Array, kept: Array, cut: float) -> Array:
    """Influence (n, p) of each row on the trimmed fit with rows Z and penalty matrix P.

    `kept` is a mask, `cut` the largest absolute residual of the kept rows in standard deviations.
    """
    G = Z[kept].T @ Z[kept]
    scores = Z * np.where(kept, residuals, 0.0)[:, None]
    return np.linalg.solve((1 - lost_at_cut(cut)) * G + P, scores.T).T


def after_reweighting(Z: Array, P: Array, residuals: Array, kept: Array, cut: float, raw: Array) -> Array:
    """Influence (n, p) of each row on the reweighted fit, least squares on the rows of the mask `kept`.

    Their residuals from the trimmed fit are within `cut` standard deviations, and `raw` (n, p) is the influence on it.
    `residuals` are those of the reweighted fit.
    """
    G = Z[kept].T @ Z[kept]
    scores = Z * np.where(kept, residuals, 0.0)[:, None] + lost_at_cut(cut) * raw @ G
    return np.linalg.solve(G + P, scores.T).T


def mm_covariance(Z: Array, P: Array, residuals: Array, first: Array, scale: float, c: float) -> Array:
    """The covariance (p, p) of an MM-estimate, including the error of its scale.

    `residuals` are those of the M-estimate, whose bisquare constant is c; `first` and `scale` are the residuals and the
    scale of the S-estimate. Croux, Dhaene and Hoorelbeke, "Robust standard errors for robust estimators" (2003): valid
    for asymmetric and heteroscedastic errors.
    """
    n, (u, v) = len(Z), (residuals / scale, first / scale)
    slope = psi_derivative(u, c)
    A = np.linalg.inv((Z * slope[:, None]).T @ Z + P) * scale
    # rho has the derivative 6 psi / c^2.
    a = A @ (Z.T @ (slope * u)) / np.mean(6 * psi(v, FOR_BREAKDOWN) / FOR_BREAKDOWN**2 * v)
    direct = Z * psi(u, c)[:, None] @ A
    of_scale = rho(v, FOR_BREAKDOWN)
    cross = np.outer(a, of_scale @ direct) / n
    return direct.T @ direct - cross - cross.T + (np.mean(of_scale**2) - 0.25) / n * np.outer(a, a)
