"""A small quadratic problem: the best weights of the rows near a cut.

minimise ||B' t + v||^2 / 2 - g . t   over   0 <= t <= 1,  a . t = K

by a primal-dual interior-point method (Mehrotra's predictor and corrector). B has few columns or few rows, so each
step solves a system of the smaller of the two sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array = NDArray[Any]


def best_shares(B: Array, v: Array, g: Array, a: Array, K: float, *, max_iter: int = 80) -> Array:
    """The minimiser t, to about ten digits of the objective; a > 0."""
    room = float(a.sum())
    if K <= 0 or room <= K:
        return np.zeros(len(g)) if K <= 0 else np.ones(len(g))
    size = max(float(np.abs(g - B @ v).max()), 1e-300)
    root = np.sqrt(size)
    B, v, g, a, K = B / root, v / root, g / size, a / room, K / room
    t, low, high, level = np.full(len(g), K), np.ones(len(g)), np.ones(len(g)), 0.0
    for _ in range(max_iter):
        dual = B @ (B.T @ t + v) - g - low + high - level * a
        primal = float(a @ t) - K
        mu = float(t @ low + (1.0 - t) @ high) / (2 * len(g))
        if mu < 1e-13 and np.abs(dual).max() < 1e-11 and abs(primal) < 1e-13:
            break
        solve = _solver(B, low / t + high / (1.0 - t))
        through = solve(a)
        curvature = float(a @ through)

        def direction(target_low: Array, target_high: Array) -> tuple[Array, Array, Array, float]:
            """The Newton step towards t * low = target_low and (1 - t) * high = target_high."""
            rhs = -dual + target_low / t - low - target_high / (1.0 - t) + high  # noqa: B023
            step = solve(rhs)  # noqa: B023
            rise = (-primal - float(a @ step)) / curvature  # noqa: B023
            step = step + rise * through  # noqa: B023
            to_low = (target_low - low * step) / t - low  # noqa: B023
            to_high = (target_high + high * step) / (1.0 - t) - high  # noqa: B023
            return step, to_low, to_high, rise

        step, to_low, to_high, _ = direction(np.zeros_like(t), np.zeros_like(t))
        length = _longest(t, low, high, step, to_low, to_high)
        reached = (t + length * step) @ (low + length * to_low) + (1 - t - length * step) @ (high + length * to_high)
        centre = mu * (float(reached) / (2 * len(g) * mu)) ** 3
        step, to_low, to_high, rise = direction(centre - step * to_low, centre + step * to_high)
        length = 0.995 * _longest(t, low, high, step, to_low, to_high)
        t, low, high = t + length * step, low + length * to_low, high + length * to_high
        level += length * rise
    return np.clip(t, 0.0, 1.0)


def _solver(B: Array, theta: Array) -> Callable[[Array], Array]:
    """(B B' + diag(theta))^-1, by its smaller form."""
    n, columns = B.shape
    if n <= columns:
        matrix = B @ B.T
        matrix[np.diag_indices_from(matrix)] += theta
        factor = scipy.linalg.cho_factor(matrix, overwrite_a=True, check_finite=False)
        return lambda rhs: scipy.linalg.cho_solve(factor, rhs, check_finite=False)
    scaled = B / theta[:, None]
    inner = scaled.T @ B
    inner[np.diag_indices_from(inner)] += 1.0
    factor = scipy.linalg.cho_factor(inner, overwrite_a=True, check_finite=False)
    return lambda rhs: rhs / theta - scaled @ scipy.linalg.cho_solve(factor, scaled.T @ rhs, check_finite=False)


def _longest(t: Array, low: Array, high: Array, step: Array, to_low: Array, to_high: Array) -> float:
    """The longest step that keeps all that must be positive positive."""
    length = 1.0
    for value, change in ((t, step), (1.0 - t, -step), (low, to_low), (high, to_high)):
        falling = change < 0
        if falling.any():
            length = min(length, float((-value[falling] / change[falling]).min()))
    return length
