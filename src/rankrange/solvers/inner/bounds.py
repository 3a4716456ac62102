"""Slopes of groups of rows, scaled so that they sum to zero."""

from __future__ import annotations

import numpy as np

from ...core.arrays import Array


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
