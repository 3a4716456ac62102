"""Two minima that need no search: one class is left after the cut, or nothing beats scores of zero.

Where all rows of the other classes fit into the cut, F falls to zero along the intercept of the class that is left.
Where m = 0 and k is below about twice the number of errors, scores of zero are best; there all losses tie, which makes
every other method slow. Zero is the minimum where weights between 0 and 1 with the mass k balance the gradients of the
rows; they are found near equal weights, as the projection onto these conditions (semismooth Newton on its dual).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..objective import Objective
from .base import Log, Result, relative
from .descent import Metric
from .monotone import finish
from .passes import lower_bound, rows_of

Array = NDArray[Any]
# Far enough for losses next to nothing, and no further than float32 can tell them from nothing.
_FAR = 80.0
_BLOCK = 1 << 14


def one_class_left(objective: Objective, log: Log) -> Result | None:
    """The minimum where the cut takes all rows of all classes but one; None where it does not."""
    if objective.m <= 0 or not objective.design.fit_intercept or objective.loss.targets not in ("binary", "classes"):
        return None
    if objective.cuts_by_class:
        return None
    codes = (objective.y > 0).astype(np.intp) if objective.loss.targets == "binary" else objective.y
    masses = np.bincount(codes, weights=objective.sample_weight)
    if objective.total - float(masses.max()) > objective.m:
        return None
    left = int(masses.argmax())
    W = np.zeros((objective.n_outputs, objective.design.p))
    if objective.n_outputs == 1:
        W[0, -1] = _FAR if left else -_FAR
    else:
        W[:, -1] = -_FAR / 2
        W[left, -1] = _FAR / 2
    value = objective.value(W)
    log("trivial", value)
    # F is not negative, so its value bounds what is left to gain.
    result = finish(W, value, 0, relative(value, value), 1e-6, 0, log)
    return Result(W, value, 0, True, "one class is left after the cut: any other fit is worse", log.history, result.certificate)


def zero_is_best(objective: Objective, rng: np.random.Generator, tol: float, log: Log) -> Result | None:
    """Scores of zero with their certificate, where m = 0 and they are the minimum to `tol`; else None."""
    if objective.m > 0 or objective.k >= objective.total or objective.loss.targets != "binary":
        return None
    n, p = objective.design.n, objective.design.p
    some = np.arange(n) if n <= 100 * p else np.sort(rng.choice(n, 40 * p, replace=False, shuffle=False))
    small = _Balance(objective, some)
    if not small.solve(np.zeros(p + 1), 12, 1e-3 if len(some) < n else 1e-9):
        return None
    value = objective.value(np.zeros((1, p)))
    zero = np.zeros(n, dtype=objective.design.X.dtype)
    dual, metric = small.dual, Metric(small.jacobian / len(some))
    for _ in range(8):
        weights, residual = _weights(objective, dual)
        if np.abs(residual[1:]).max() <= 0.1:  # of the mass: worth a look
            certificate = relative(value - lower_bound(objective, zero, weights), value)
            if certificate <= tol:
                log("trivial", value)
                return finish(np.zeros((1, p)), value, 1, certificate, tol, 1, log)
        dual = dual - metric.solve(residual * objective.kept / n)
    return None


def _weights(objective: Objective, dual: Array) -> tuple[Array, Array]:
    """The weights of all rows at this dual point, and by how much of the mass they miss the conditions."""
    n, mass = objective.design.n, objective.sample_weight
    weights, residual = np.empty(n), np.zeros(len(dual))
    for start in range(0, n, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, n))
        A = _conditions(objective, rows)
        cap = 1.0 if mass is None else mass[rows]
        weights[rows] = cap * np.clip(objective.kept / objective.total + A @ dual, 0.0, 1.0)
        residual += weights[rows] @ A
    residual[-1] -= objective.kept
    weights *= min(1.0, objective.kept / float(weights.sum()))
    return weights, residual / objective.kept


def _conditions(objective: Objective, rows: Array) -> Array:
    """(rows, p + 1): the gradient of each loss at zero scores, in units of its slope, and its count."""
    return np.column_stack([rows_of(objective.design, rows) * objective.y[rows, None], np.ones(len(rows))])


class _Balance:
    """The conditions on some rows: their weighted gradients add up to zero, the weights to their part of k."""

    def __init__(self, objective: Objective, rows: Array) -> None:
        self.A = _conditions(objective, rows)
        self.mass = np.ones(len(rows)) if objective.sample_weight is None else objective.sample_weight[rows]
        self.share = objective.kept / objective.total
        self.dual = np.zeros(self.A.shape[1])

    def solve(self, dual: Array, max_steps: int, enough: float) -> bool:
        """Whether the conditions can be met, as far as `max_steps` Newton steps tell."""
        goal = self.share * float(self.mass.sum())
        scale = np.abs(self.A).mean(axis=0) + 1e-300
        for _ in range(max_steps):
            q = self.share + self.A @ dual
            free = self.mass * ((q > 0) & (q < 1))
            residual = (self.mass * np.clip(q, 0.0, 1.0)) @ self.A
            residual[-1] -= goal
            self.jacobian = (self.A * free[:, None]).T @ self.A
            self.dual = dual
            if float(np.abs(residual / scale).max()) <= enough * goal:
                return True
            dual = dual - Metric(self.jacobian).solve(residual)
        return False
