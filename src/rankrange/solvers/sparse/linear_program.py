"""Absolute losses with a pure l1 penalty: a linear program, whose dual gives slopes and weights.

If the model passes through many rows, smoothing does not reach full precision. The program has a subset of the columns;
the caller adds columns that violate their optimality condition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from ...core.arrays import Array


class Vertex(NamedTuple):
    """A solution: coefficients of the columns, the intercept, weights of the rows, and the slopes of their losses."""

    theta: Array
    intercept: float
    weights: Array
    slopes: Array


def least_absolute(block: Array, y: Array, h: Array, top: float | None, fit_intercept: bool) -> Vertex | None:
    """Minimise the sum of absolute residuals, weighted by h, or of the largest, plus the l1 norm of the coefficients.

    `top` is the mass of the largest losses that count; None means all. Returns None if the program was not solved.
    """
    n, q = block.shape
    free = np.ones((n, 1 if fit_intercept else 0))
    # Positive and negative parts of coefficients and intercept, then of residuals; then excesses and their level.
    signed = [block, -block, free, -free]
    equal = sp.hstack([*map(sp.csc_matrix, signed), sp.identity(n), -sp.identity(n)], format="csc")
    costs = np.concatenate([np.ones(2 * q), np.zeros(2 * free.shape[1]), np.tile(h if top is None else 0 * h, 2)])
    limits = {}
    if top is not None:  # residual - level <= excess
        costs = np.concatenate([costs, h, [top]])
        nothing = sp.csc_matrix((n, 2 * q + 2 * free.shape[1]))
        unit = sp.identity(n)
        below = sp.hstack([nothing, unit, unit, -unit, -sp.csc_matrix(np.ones((n, 1)))], format="csc")
        equal = sp.hstack([equal, sp.csc_matrix((n, n + 1))], format="csc")
        limits = {"A_ub": below, "b_ub": np.zeros(n)}
    found = linprog(costs, A_eq=equal, b_eq=y, method="highs", **limits)
    if found.status != 0:
        return None
    weights = h if top is None else np.clip(-found.ineqlin.marginals, 0.0, h)
    pushes = -found.eqlin.marginals
    slopes = np.divide(pushes, weights, out=np.zeros(n), where=weights > 0)
    at = 2 * q
    intercept = found.x[at] - found.x[at + 1] if fit_intercept else 0.0
    return Vertex(found.x[:q] - found.x[q:at], float(intercept), weights, np.clip(slopes, -1.0, 1.0))
