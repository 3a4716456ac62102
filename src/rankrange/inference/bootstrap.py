"""The fast and robust bootstrap: each bootstrap sample takes one step of the estimating equations instead of a new fit.

The step is corrected by the derivative of the equations. To first order it then equals the change of a full fit. The
weights of the rows stay fixed, so outliers that are drawn often do not break down the estimate of a bootstrap sample.
Salibian-Barrera and Zamar, "Bootstrapping robust estimates of regression", Annals of Statistics 30 (2002).
"""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array
from ..solvers.elemental import TrimmedSquares
from .bisquare import FOR_BREAKDOWN, psi, psi_derivative, rho, weight
from .influence import lost_at_cut

SAMPLES = 1_000


def draws(n: int, rng: np.random.Generator) -> Array:
    """Array (samples, n): how often each of n rows is drawn in each of 1000 bootstrap samples."""
    return rng.multinomial(n, np.full(n, 1.0 / n), size=SAMPLES).astype(np.float64)


def resampled_mm(problem: TrimmedSquares, b: Array, first: Array, scale: float, c: float, counts: Array) -> Array:
    """Deviations (samples, p) from b of the MM-estimates of bootstrap samples, to first order.

    `first` is the S-estimate, `scale` its scale, c the bisquare constant of the M-estimate; `counts` are from `draws`.
    """
    Z, y = problem.Z, problem.y
    u, v = (y - Z @ b) / scale, (y - Z @ first) / scale
    w, slope = weight(u, c), psi_derivative(u, c)
    one_step = problem.fit(counts * w) - b
    S = (Z * slope[:, None]).T @ Z + problem.P
    stretch = np.linalg.solve(S, (Z * w[:, None]).T @ Z + problem.P)
    # The scale of a bootstrap sample: one corrected step of its equation.
    change = counts @ rho(v, FOR_BREAKDOWN) / len(y) - np.mean(rho(v, FOR_BREAKDOWN))
    moved = scale * change / np.mean(6 * psi(v, FOR_BREAKDOWN) / FOR_BREAKDOWN**2 * v)
    drift = -np.linalg.solve(S, Z.T @ (slope * u))
    return one_step @ stretch.T + np.outer(moved, drift)


def resampled_trimmed(problem: TrimmedSquares, b: Array, kept: Array, cut: float, counts: Array) -> Array:
    """Deviations (samples, p) from b of the trimmed fits of bootstrap samples, to first order.

    `cut` is the largest absolute residual of the `kept` rows in standard deviations; rows that would cross it are
    accounted for by the division.
    """
    return (problem.fit(counts * kept) - b) / (1 - lost_at_cut(cut))


def resampled_reweighted(
    problem: TrimmedSquares, b: Array, kept: Array, cut: float, raw: Array, counts: Array
) -> Array:
    """Deviations (samples, p) from b of the reweighted fits of bootstrap samples, to first order.

    The `kept` rows lie within `cut` standard deviations of the trimmed fit, whose deviations are `raw` (samples, p).
    """
    return problem.fit(counts * kept) - b + lost_at_cut(cut) * raw
