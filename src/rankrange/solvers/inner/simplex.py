"""Weights on the margins of rows: those of one row on a simplex, those of all rows with a mass of at most K."""

from __future__ import annotations

import numpy as np

from ...core.arrays import Array


def onto_simplex(rows: Array) -> Array:
    """The nearest points of the simplex {x >= 0, sum x = 1}, row by row."""
    if not len(rows):
        return rows
    order = -np.sort(-rows, axis=1)
    excess = (np.cumsum(np.where(np.isfinite(order), order, 0.0), axis=1) - 1.0) / np.arange(1, rows.shape[1] + 1)
    last = (order > excess).sum(axis=1) - 1
    return np.maximum(rows - excess[np.arange(len(rows)), last][:, None], 0.0)


def level_of_mass(pushed: Array, caps: Array, K: float, guess: float = 0.0) -> float:
    """The least level >= 0 at which weights [pushed - level]_+, at most 1 a row, have at most the mass K.

    Newton, kept in a bracket. A guess near the answer, such as the level of the last step, saves most of the search.
    """
    if _excess(pushed, caps, K, 0.0)[0] <= 0:
        return 0.0
    low, high, level = 0.0, float(pushed.max()), guess
    for _ in range(200):
        if not low < level < high:
            level = 0.5 * (low + high)
        excess, moving = _excess(pushed, caps, K, level)
        if abs(excess) <= 1e-14 * K or high - low <= 1e-15 * high:
            break
        low, high = (level, high) if excess > 0 else (low, level)
        level += excess / moving if moving > 0 else np.inf
    return level


def _excess(pushed: Array, caps: Array, K: float, level: float) -> tuple[float, float]:
    """The mass above K at this level, and how fast it falls as the level rises."""
    positive = np.maximum(pushed - level, 0.0)
    sums = positive.sum(axis=1) if pushed.shape[1] > 1 else positive[:, 0]
    counts = (positive > 0).sum(axis=1) if pushed.shape[1] > 1 else sums > 0
    return float(caps @ np.minimum(sums, 1.0)) - K, float(caps @ ((sums < 1.0) * counts))
