"""MM-estimation: an S-estimate for breakdown and scale, then an M-estimate with that scale held for efficiency.

The S-estimate minimises the scale s that solves mean of rho(r / s) = 1/2 (with n - p as divisor). It is searched from
the trimmed fit and, with few rows, from elemental starts as well. Yohai, "High breakdown-point and high efficiency
robust estimates for regression", Annals of Statistics 15 (1987).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from ..solvers.elemental import TrimmedSquares, elemental_fits
from .bisquare import FOR_BREAKDOWN, rho, weight

_TOL = 1e-11
_MOST_STEPS = 2_000
# Elemental starts of the S-estimate, up to so many rows; steps that screen them, and how many go on.
_STARTS, _SEARCHED_UP_TO, _SCREEN_STEPS, _GO_ON = 300, 5_000, 2, 5
# Steps of the scale while starts are screened.
_SCALE_STEPS = 4


class Located(NamedTuple):
    """Coefficients (p,) in the coordinates of the rows, and a scale."""

    b: Array
    scale: float


def m_scale(residuals: Array, p: int, start: Array | None = None, steps: int = 200) -> Array:
    """The scales (S,) at which the mean of rho over residuals (S, n) is 1/2; 0 if more than half of them are 0."""
    n = residuals.shape[1]
    if start is None:
        start = np.median(np.abs(residuals), axis=1) / 0.6745
    s = np.where(start > 0, start, np.abs(residuals).mean(axis=1))
    for _ in range(steps):
        with np.errstate(divide="ignore", invalid="ignore"):
            u = np.where(s[:, None] > 0, residuals / s[:, None], 0.0)
        last, s = s, s * np.sqrt(rho(u, FOR_BREAKDOWN).sum(axis=1) / (0.5 * (n - p)))
        if (np.abs(s - last) <= _TOL * last).all():
            break
    return s


def s_estimate(problem: TrimmedSquares, start: Array, rng: np.random.Generator) -> Located:
    """The S-estimate, searched from `start` (p,) and, with few rows, from elemental starts."""
    B = start[None]
    if problem.n <= _SEARCHED_UP_TO:
        B = np.concatenate([B, elemental_fits(problem, _STARTS, rng)])
        B, s = _steps(problem, B, _SCREEN_STEPS, _SCALE_STEPS)
        order = np.argsort(s, kind="stable")[:_GO_ON]
        B = np.concatenate([start[None], B[order]])
    B, s = _steps(problem, B, _MOST_STEPS)
    best = int(np.argmin(s))
    return Located(B[best], float(s[best]))


def _steps(problem: TrimmedSquares, B: Array, most: int, scale_steps: int = 200) -> tuple[Array, Array]:
    """Reweighted least squares steps, each of which lowers the scale; the scales where they end."""
    residuals = problem.y - B @ problem.Z.T
    s = m_scale(residuals, problem.p, None, scale_steps)
    moving = np.flatnonzero(s > 0)
    for _ in range(most):
        if not len(moving):
            break
        w = weight(residuals[moving] / s[moving, None], FOR_BREAKDOWN)
        G, g = problem.systems(w)
        after = np.linalg.solve(G, g[:, :, None])[:, :, 0]
        new = problem.y - after @ problem.Z.T
        scale = m_scale(new, problem.p, s[moving], scale_steps)
        far = np.abs(after - B[moving]).max(axis=1) > _TOL * (1 + np.abs(after).max(axis=1))
        B[moving], residuals[moving], s[moving] = after, new, scale
        moving = moving[far & (scale > 0)]
    return B, s


def m_estimate(problem: TrimmedSquares, start: Located, c: float) -> Array:
    """The M-estimate nearest to an S-estimate, with its scale held."""
    b = start.b
    for _ in range(_MOST_STEPS):
        w = weight((problem.y - problem.Z @ b) / start.scale, c)
        G, g = problem.systems(w[None])
        last, b = b, np.linalg.solve(G[0], g[0])
        if np.abs(b - last).max() <= _TOL * (1 + np.abs(b).max()):
            break
    return b
