"""Concentration steps: keep the ranks m+1..k of the losses, take damped Newton steps on the kept rows, and repeat.

The ranks are taken anew in every step, and the line search is one of F itself, so no step increases F. With few columns
and one score per row a step solves with the Hessian; otherwise by conjugate gradients, which only need products with X.
An l1 penalty is part of the quadratic model of a step (proximal Newton).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.objective import Design, Objective, Point
from .descent import Metric, add_diagonal
from .quadratic_net import quadratic_net

# The Hessian is that of at most this many rows per column: more do not make the steps better.
_ROWS_PER_COLUMN, _FEW_ROWS = 200, 2000
# Conjugate gradients: the number of steps, and the share of the gradient's norm at which they end.
_CG_STEPS, _CG_TOL = 10, 0.1
# The lengths of a step that are tried.
_LENGTHS = (1.0, 0.3, 0.1, 0.03)
# Proximal steps: the smallest and the largest number of columns of a working set, the share of the l1 penalty that the
# slope of an unused column must exceed, and the largest number of sweeps of coordinate descent.
_FEW_COLUMNS, _WORKING, _EDGE, _SWEEPS = 10, 500, 0.8, 100


def concentrate(
    objective: Objective, W: Array, *, rounds: int = 8, steps: int = 2, tol: float = 1e-6
) -> tuple[Array, float]:
    """Take concentration steps from W until they gain little.

    Parameters
    ----------
    objective : Objective
        The objective to decrease.
    W : ndarray of shape (outputs, p)
        The initial coefficients.
    rounds : int, default=8
        The largest number of Hessians.
    steps : int, default=2
        The number of steps with each of them.
    tol : float, default=1e-6
        A step that gains at most this share of F is the last.

    Returns
    -------
    W : ndarray of shape (outputs, p)
        The final coefficients.
    value : float
        The objective there, which is at most the initial one.
    """
    at = objective.at(W)
    for step in range(rounds * steps):
        if step % steps == 0:
            direction = newton_direction(objective, at)
        before = at.value
        W, at = _damped_step(objective, W, at, direction(W, at))
        if before - at.value <= tol * abs(at.value):
            break
    return W, at.value


def _damped_step(objective: Objective, W: Array, at: Point, change: Array) -> tuple[Array, Point]:
    """W plus the change or a part of it that decreases F enough (Armijo); W itself if none does."""
    slope = float(np.vdot(at.gradient, change))
    if objective.l1_ratio:
        losses_only = at.gradient - objective.penalty_gradient(W)
        slope = float(np.vdot(losses_only, change)) + objective.penalty(W + change) - objective.penalty(W)
    for length in _LENGTHS if slope < 0 else ():
        trial = W + length * change
        reached = objective.at(trial)
        if reached.value <= at.value + 1e-4 * length * slope:
            return trial, reached
    return W, at


def newton_direction(objective: Objective, at: Point) -> Callable[[Array, Point], Array]:
    """The function that gives the Newton step from W and the objective there, with the curvature at `at`."""
    if objective.l1_ratio:
        return lambda W, here: _proximal_step(objective, W, here)
    if objective.n_outputs == 1 and objective.design.factored:
        metric = Metric(_hessian_at(objective, at))
        return lambda W, here: -metric.solve(here.gradient)
    return lambda W, here: _by_products(objective, here)


def _proximal_step(objective: Objective, W: Array, at: Point) -> Array:
    """The step to the minimum of the quadratic model plus the elastic net, over a working set of columns.

    They are those with a nonzero coefficient and those with the largest slopes. Several scores have a model each.
    """
    design, change = objective.design, np.zeros_like(W)
    slopes = at.gradient - objective.penalty_gradient(W)
    order = np.abs(slopes[:, : design.d]).max(axis=0)
    order[W[:, : design.d].any(axis=0)] = np.inf
    near = int(np.count_nonzero(order > _EDGE * objective.l1_ratio / objective.C))
    columns = np.arange(design.d)
    if design.d > (count := min(max(near, _FEW_COLUMNS), _WORKING)):
        columns = np.sort(np.argpartition(-order, count)[:count])
        design = Design(design.X[:, columns], design.fit_intercept)
    used = np.append(columns, np.arange(objective.design.d, objective.design.p))
    squares, weight = objective.penalty_diagonal()[used], objective.l1_ratio / objective.C
    for r, h in enumerate(_curvatures(objective, at.scores)):
        H = design.gram(*_enough_rows(design, at.weights * h / objective.kept))
        slope, w = slopes[r, used] + squares * W[r, used], W[r, used]
        change[r, used] = quadratic_net(H + np.diag(squares), slope, w, len(columns), weight) - w
    return change


def hessian(objective: Objective, W: Array) -> Array:
    """An approximate Hessian (p, p) of F at W, or its diagonal (p,) with many columns."""
    return _hessian_at(objective, objective.at(W))


def _hessian_at(objective: Objective, at: Point) -> Array:
    """The Hessian (p, p) of F for the weights there, or its diagonal (p,) with many columns.

    With several scores it is that of one of them, for equal class probabilities.
    """
    h = at.weights * curvature(objective, at.scores) / objective.kept
    matrix = objective.design.spread(*_enough_rows(objective.design, h))
    return add_diagonal(matrix, objective.penalty_diagonal())


def _enough_rows(design: Design, h: Array) -> tuple[Array, Array]:
    """The positive ones of the weights h (n,), or as many of them as are enough for a Hessian, and their rows."""
    rows = np.flatnonzero(h)
    every = max(1, len(rows) // max(_ROWS_PER_COLUMN * design.p, _FEW_ROWS))
    rows = rows[::every]
    return h[rows] * every, rows


def curvature(objective: Objective, Z: Array) -> Array:
    """The second derivative (n,) of each loss at the scores Z; of linear pieces that of a quadratic bound."""
    loss, r = objective.loss, objective.n_outputs
    if r > 1:
        return np.full(Z.shape[1], (1.0 - 1.0 / r) / r)
    if loss.targets == "numbers":
        # The quadratic with the value and the slope of the loss here, symmetric around the target, is above it.
        size = np.abs(objective.y - Z[0]).astype(np.float64)
        size = np.maximum(size, 1e-3 * size.mean() + 1e-300)
        return np.maximum(loss.curvature(objective.y, Z[0]), np.abs(objective.losses_and_slopes(Z)[1][0]) / size)
    if hasattr(loss, "margins"):
        # max(0, t) <= (t^2 / |a| + 2 t + |a|) / 4, with equality at t = a.
        size = np.abs(loss.margins(objective.y, Z[0])[:, 0]).astype(np.float64)
        return 0.5 / np.maximum(size, 1e-3 * size.mean() + 1e-300)
    return np.maximum(loss.curvature(objective.y, Z[0]), 0.0)  # of a loss that is not convex it may be negative


def _curvatures(objective: Objective, Z: Array) -> list[Array]:
    """Curvatures (n,) for each score, whose sum over the scores bounds that of the loss.

    A matrix diag(p) - p p' is at most twice its diagonal, because its rows sum to zero.
    """
    if objective.n_outputs == 1:
        return [curvature(objective, Z)]
    operator = objective.loss.hessian_operator(objective.y, Z.T)
    return [2.0 * operator(np.broadcast_to(unit, Z.T.shape))[:, r] for r, unit in enumerate(np.eye(len(Z)))]


def _by_products(objective: Objective, at: Point) -> Array:
    """The Newton step by conjugate gradients in the metric of one score, with products of X only."""
    metric = Metric(_hessian_at(objective, at))
    product = hessian_product(objective, at)
    step, residual = np.zeros_like(at.gradient), -at.gradient
    scaled = direction = metric.solve(residual)
    size = first = float(np.vdot(residual, scaled))
    for _ in range(_CG_STEPS):
        bent = product(direction)
        curved = float(np.vdot(direction, bent))
        if curved <= 0 or size <= _CG_TOL**2 * first:
            break
        step = step + (size / curved) * direction
        residual = residual - (size / curved) * bent
        scaled = metric.solve(residual)
        size, last = float(np.vdot(residual, scaled)), size
        direction = scaled + (size / last) * direction
    return step if step.any() else direction


def hessian_product(objective: Objective, at: Point) -> Callable[[Array], Array]:
    """The function V (r, p) -> H V, where H is the Hessian of F for the weights at a point."""
    design, q = objective.design, at.weights / objective.kept
    operator: Any = None
    if objective.n_outputs == 1:
        h = curvature(objective, at.scores) * q
    elif hasattr(objective.loss, "hessian_operator"):
        operator = objective.loss.hessian_operator(objective.y, at.scores.T)
    else:
        h = curvature(objective, at.scores) * q

    def product(V: Array) -> Array:
        change = design.scores(V)
        bent = change * h if operator is None else operator(change.T).T * q
        return design.adjoint(bent) + V * objective.penalty_diagonal()

    return product
