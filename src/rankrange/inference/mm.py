"""MM-estimation: an S-estimate with a high breakdown point, then an efficient M-estimate with the same scale.

The S-estimate minimises the scale s that solves mean of rho(r / s) = 1/2 (with n - p as divisor). It is searched from
the trimmed fit and, with few rows, from elemental starts as well. Yohai, "High breakdown-point and high efficiency
robust estimates for regression", Annals of Statistics 15 (1987).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from ..solvers.elemental import TrimmedSquares, elemental_fits
from .bisquare import FOR_BREAKDOWN, weight

_TOL = 1e-10
_MAX_STEPS = 2_000
# Elemental starts of the S-estimate for each of n_starts; the largest number of rows for them; screening steps; the
# number of starts that are continued.
_STARTS, _SEARCHED_UP_TO, _SCREEN_STEPS, _GO_ON = 30, 5_000, 2, 5
# Steps of the scale during screening.
_SCALE_STEPS = 4


class Located(NamedTuple):
    """Coefficients (p,) of the columns of `TrimmedSquares.Z`, and the scale of the residuals."""

    b: Array
    scale: float


def m_scale(residuals: Array, p: int, start: Array | None = None, steps: int = 100) -> Array:
    """The scales (S,) at which the sum of rho over the residuals (S, n), divided by n - p, is 1/2; by Newton's method.

    They tend to 0 if at least (n + p) / 2 of the residuals are 0. `start` (S,) are initial scales, by default
    from the median absolute residuals.
    """
    divisor = max(residuals.shape[1] - p, 1)
    if start is None:
        start = np.median(np.abs(residuals), axis=1) / 0.6745
    s = np.where(start > 0, start, np.abs(residuals).mean(axis=1))
    squares = residuals**2
    for _ in range(steps):
        inside = np.maximum(1 - squares / np.maximum(FOR_BREAKDOWN * s, 1e-150)[:, None] ** 2, 0.0)
        mean = (len(squares.T) - (inside**3).sum(axis=1)) / divisor
        slope = (
            6 * (inside**2 * (1 - inside)).sum(axis=1) / divisor
        )  # minus the derivative of the mean with respect to log s
        factor = 1 + (mean - 0.5) / np.maximum(slope, 1e-12)
        last, s = s, s * np.clip(factor, 0.5, 2.0)
        if (np.abs(s - last) <= _TOL * last).all():
            break
    return s


def s_estimate(problem: TrimmedSquares, start: Array, rng: np.random.Generator, n_starts: int = 10) -> Located:
    """The S-estimate, searched from `start` (p,) and, with at most 5,000 rows, from 30 * n_starts elemental starts."""
    B = start[None].copy()
    if problem.n <= _SEARCHED_UP_TO:
        B = np.concatenate([B, elemental_fits(problem, _STARTS * n_starts, rng)])
        B, s = _steps(problem, B, _SCREEN_STEPS)
        order = np.argsort(s, kind="stable")[:_GO_ON]
        B = np.concatenate([start[None], B[order]])
    B, s = _steps(problem, B, _MAX_STEPS)
    best = int(np.argmin(s))
    return Located(B[best], float(s[best]))


def _steps(problem: TrimmedSquares, B: Array, most: int) -> tuple[Array, Array]:
    """Alternate steps of reweighted least squares and of the scale, from each row of B (S, p), which is overwritten.

    Returns the coefficients (S, p) after at most `most` steps, and their scales (S,), which are approximate if there
    are at most two steps.
    """
    residuals = problem.y - B @ problem.Z.T
    s = m_scale(residuals, problem.p, None, _SCALE_STEPS)
    moving = np.flatnonzero(s > 0)
    for _ in range(most):
        if not len(moving):
            break
        w = weight(residuals[moving] / s[moving, None], FOR_BREAKDOWN)
        G, g = problem.systems(w)
        after = np.linalg.solve(G, g[:, :, None])[:, :, 0]
        residuals[moving] = problem.y - after @ problem.Z.T
        far = np.abs(after - B[moving]).max(axis=1) > _TOL * (s[moving] + np.abs(after).max(axis=1))
        B[moving], s[moving] = after, m_scale(residuals[moving], problem.p, s[moving], 1)
        moving = moving[far & (s[moving] > 0)]
    return B, s if most <= _SCREEN_STEPS else m_scale(residuals, problem.p, s)


def m_estimate(problem: TrimmedSquares, start: Located, c: float) -> Array:
    """The M-estimate (p,) with the bisquare constant c that starts at an S-estimate and keeps its scale."""
    b = start.b
    for _ in range(_MAX_STEPS):
        w = weight((problem.y - problem.Z @ b) / start.scale, c)
        G, g = problem.systems(w[None])
        last, b = b, np.linalg.solve(G[0], g[0])
        if np.abs(b - last).max() <= _TOL * (start.scale + np.abs(b).max()):
            break
    return b
