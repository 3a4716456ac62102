"""A small quadratic problem: the best weights of the rows near a cut.

minimise ||B' t + v||^2 / 2 - g . t   over   0 <= t <= 1,  a . t = K

by a primal-dual interior-point method (Mehrotra's predictor and corrector). B has few columns or few rows, so each
step solves a system of the smaller of the two sizes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from ..core.arrays import Array


def best_shares(B: Array, v: Array, g: Array, a: Array, K: float, *, max_iter: int = 80) -> Array:
    """The minimiser t, to about ten digits of the objective; a > 0."""
    room = float(a.sum())
    if K <= 0 or room <= K:
        return np.zeros(len(g)) if K <= 0 else np.ones(len(g))
    size = max(float(np.abs(g - B @ v).max()), 1e-300)
    root = np.sqrt(size)
    point = _InteriorPoint(B / root, v / root, g / size, a / room, K / room)
    # Overflow and failed factors are rounding that has the last word: what was reached before is the answer.
    with np.errstate(all="ignore"):
        for _ in range(max_iter):
            if not point.advance():
                break
    return np.clip(point.t, 0.0, 1.0)


class _InteriorPoint:
    """t, the multipliers of its two bounds and of its mass; `advance` takes one step."""

    def __init__(self, B: Array, v: Array, g: Array, a: Array, K: float) -> None:
        self.B, self.v, self.g, self.a, self.K = B, v, g, a, K
        self.product = B @ B.T if len(g) <= B.shape[1] else None
        self.t, self.low, self.high, self.level = np.full(len(g), K), np.ones(len(g)), np.ones(len(g)), 0.0

    def advance(self) -> bool:
        """Whether there was a step to take."""
        t, low, high, n = self.t, self.low, self.high, 2 * len(self.t)
        self.dual = self.B @ (self.B.T @ t + self.v) - self.g - low + high - self.level * self.a
        self.primal = float(self.a @ t) - self.K
        mu = float(t @ low + (1.0 - t) @ high) / n
        if mu < 1e-13 and np.abs(self.dual).max() < 1e-11 and abs(self.primal) < 1e-13:
            return False
        try:
            self.solve = _solver(self.B, self.product, low / t + high / (1.0 - t))
        except (scipy.linalg.LinAlgError, ValueError):
            return False
        self.through = self.solve(self.a)
        step, to_low, to_high, _ = self._direction(np.zeros_like(t), np.zeros_like(t))
        length = _longest(t, low, high, step, to_low, to_high)
        reached = (t + length * step) @ (low + length * to_low) + (1 - t - length * step) @ (high + length * to_high)
        centre = mu * (float(reached) / (n * mu)) ** 3
        step, to_low, to_high, rise = self._direction(centre - step * to_low, centre + step * to_high)
        if not all(np.isfinite(change).all() for change in (step, to_low, to_high)):
            return False
        length = 0.995 * _longest(t, low, high, step, to_low, to_high)
        self.t, self.low, self.high = t + length * step, low + length * to_low, high + length * to_high
        self.level += length * rise
        return True

    def _direction(self, target_low: Array, target_high: Array) -> tuple[Array, Array, Array, float]:
        """The Newton step towards t * low = target_low and (1 - t) * high = target_high."""
        t, low, high = self.t, self.low, self.high
        step = self.solve(-self.dual + target_low / t - low - target_high / (1.0 - t) + high)
        rise = (-self.primal - float(self.a @ step)) / float(self.a @ self.through)
        step = step + rise * self.through
        return step, (target_low - low * step) / t - low, (target_high + high * step) / (1.0 - t) - high, rise


def _solver(B: Array, product: Array | None, theta: Array) -> Callable[[Array], Array]:
    """(B B' + diag(theta))^-1, by its smaller form; `product` is B B' where that is the one."""
    if product is not None:
        matrix = product.copy()
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
