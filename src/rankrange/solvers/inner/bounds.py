"""Small exact problems of weights: balanced slopes, the simplex, and the level at which weights have a given mass."""

from __future__ import annotations

import numpy as np

from ...core.arrays import Array

# The relative accuracy of a level, limited by rounding.
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)


def balance(flow: Array) -> Array:
    """Factors in [0, 1], one per group of rows, that make the slopes sum to zero exactly.

    `flow` (r, groups) has the sums of the slopes of each group. A scaled tangent is still below the loss, because
    losses are non-negative. With one score there are two groups, rows with negative and with positive slopes, and the
    larger sum is scaled down. With several scores each class is a group, and the factors are the stationary
    distribution of the flow of slopes between the classes; all are 0 if there is none, and 1 if all slopes are zero.
    """
    if len(flow) == 1:
        size = np.abs(flow[0])
        return np.divide(size.min(), size, out=np.zeros(2), where=size > 0)
    factor, present = np.zeros(len(flow)), np.abs(flow).max(axis=0) > 0
    if not present.any():
        return np.ones(len(flow))
    _, _, basis = np.linalg.svd(flow[:, present])
    factor[present] = np.abs(basis[-1])
    if np.abs(flow @ factor).max() > 1e-9 * np.abs(flow).sum():
        # If the slopes of a row do not sum to zero (one loss per class), there are no such factors, and only the
        # trivial bound 0 is proved.
        return np.zeros_like(factor)
    return factor / factor.max()


def onto_simplex(rows: Array) -> Array:
    """The nearest points of the simplex {x >= 0, sum x = 1}, row by row."""
    if not len(rows):
        return rows
    order = -np.sort(-rows, axis=1)
    excess = (np.cumsum(np.where(np.isfinite(order), order, 0.0), axis=1) - 1.0) / np.arange(1, rows.shape[1] + 1)
    last = (order > excess).sum(axis=1) - 1
    return np.maximum(rows - excess[np.arange(len(rows)), last][:, None], 0.0)


def level_of_mass(pushed: Array, caps: Array, K: float, guess: float = 0.0) -> float:
    """The smallest level >= 0 at which the weights [pushed - level]_+, at most 1 per row, have at most the mass K.

    `pushed` is (n, J). The mass of a row is its weight times its cap. The level is found by Newton's method within a
    bracket. A good guess, such as the level of the last step, saves most of the search.
    """
    if _excess(pushed, caps, K, 0.0)[0] <= 0:
        return 0.0
    low, high, level = 0.0, float(pushed.max()), guess
    for _ in range(200):
        if not low < level < high:
            level = 0.5 * (low + high)
        excess, moving = _excess(pushed, caps, K, level)
        if abs(excess) <= max(1e-14 * K, _ROUNDING * level * moving) or high - low <= 1e-15 * high:
            break
        low, high = (level, high) if excess > 0 else (low, level)
        level += excess / moving if moving > 0 else np.inf
    return level


def _excess(pushed: Array, caps: Array, K: float, level: float) -> tuple[float, float]:
    """By how much the mass at this level exceeds K, and minus the derivative of the mass with respect to the level."""
    positive = np.maximum(pushed - level, 0.0)
    sums = positive.sum(axis=1) if pushed.shape[1] > 1 else positive[:, 0]
    counts = (positive > 0).sum(axis=1) if pushed.shape[1] > 1 else sums > 0
    return float(caps @ np.minimum(sums, 1.0)) - K, float(caps @ ((sums < 1.0) * counts))
