"""Concentration steps: keep the ranks m+1..k of the losses, take damped Newton steps on the kept rows, and repeat.

The ranks are taken anew in every step, and the line search is one of F itself, so no step increases F. With few columns
and one score per row a step solves with the Hessian; otherwise by conjugate gradients, which only need products with X.
An l1 penalty is part of the quadratic model of a step (proximal Newton).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ..core.arrays import Array
from ..core.objective import Design, Objective, Point
from .descent import Metric, add_diagonal, conjugate_gradients
from .quadratic_net import quadratic_net

# The Hessian is that of at most this many rows per column: more do not make the steps better.
_ROWS_PER_COLUMN, _FEW_ROWS = 200, 2000
# Conjugate gradients: the number of steps, and the share of the gradient's norm at which they end.
_CG_STEPS, _CG_TOL = 10, 0.1
# The lengths of a step that are tried.
_LENGTHS = (1.0, 0.3, 0.1, 0.03)
# The smallest number of columns of a working set, with an l1 penalty.
_FEW_COLUMNS = 32


def concentrate(
    objective: Objective, W: Array, *, rounds: int = 8, steps: int = 2, tol: float = 1e-6
) -> tuple[Array, float]:
    """Take concentration steps from W (outputs, p) until one gains at most the share `tol` of F.

    Returns the end and F there. There are at most `rounds` Hessians with `steps` steps each. F is never above that of
    W.
    """
    if objective.l1_ratio and objective.design.d > _FEW_COLUMNS:
        return _on_working_sets(objective, W, rounds, steps, tol)
    return _concentrated(objective, W, rounds, steps, tol)


def _concentrated(objective: Objective, W: Array, rounds: int, steps: int, tol: float) -> tuple[Array, float]:
    at = objective.at(W)
    for step in range(rounds * steps):
        if step % steps == 0:
            direction = _newton_direction(objective, at)
        before = at.value
        change, expected = direction(W, at)
        W, at = _damped_step(objective, W, at, change)
        gained = before - at.value
        # If the model predicts the gain, its minimum is that of F.
        if min(gained, abs(gained - expected)) <= tol * abs(at.value):
            break
    return W, at.value


def _on_working_sets(objective: Objective, W: Array, rounds: int, steps: int, tol: float) -> tuple[Array, float]:
    """Concentration steps over the columns that have or may get coefficients, until no other column should get one.

    They are those with a nonzero coefficient and those with the largest slopes, at most as many again.
    """
    design, weight, value = objective.design, objective.l1_ratio / objective.C, np.inf
    columns = np.zeros(0, dtype=np.intp)
    for _ in range(rounds):
        at = objective.at(W)
        slopes = np.abs((at.gradient - objective.penalty_gradient(W))[:, : design.d]).max(axis=0)
        used = W[:, : design.d].any(axis=0)
        slopes[used] = np.inf
        enters = slopes > (1.0 + tol) * weight
        enters[columns] = False
        if len(columns) and not enters.any():
            break
        size = min(max(_FEW_COLUMNS, 2 * int(used.sum())), design.d)
        columns = np.sort(np.argpartition(-slopes, size - 1)[:size])
        chosen = np.append(columns, np.arange(design.d, design.p))
        part = replace(objective, design=Design(design.columns(columns), design.fit_intercept))
        found, value = _concentrated(part, W[:, chosen], rounds, steps, tol)
        W = np.zeros_like(W)
        W[:, chosen] = found
        if at.value - value <= tol * abs(value):
            break
    return W, value


def _damped_step(objective: Objective, W: Array, at: Point, change: Array) -> tuple[Array, Point]:
    """W plus the change or a part of it that decreases F enough (Armijo); W itself if none does."""
    slope = _slope(objective, W, at, change)
    for length in _LENGTHS if slope < 0 else ():
        trial = W + length * change
        reached = objective.at(trial)
        if reached.value <= at.value + 1e-4 * length * slope:
            return trial, reached
    return W, at


def _slope(objective: Objective, W: Array, at: Point, change: Array) -> float:
    """The derivative of F along a change; of an l1 norm its change, which is at least that."""
    if not objective.l1_ratio:
        return float(np.vdot(at.gradient, change))
    of_losses = float(np.vdot(at.gradient - objective.penalty_gradient(W), change))
    return of_losses + objective.penalty(W + change) - objective.penalty(W)


def _newton_direction(objective: Objective, at: Point) -> Callable[[Array, Point], tuple[Array, float]]:
    """The function of W and the objective there that gives the Newton step and its expected gain."""
    if objective.l1_ratio:
        return partial(_proximal_step, objective)
    metric = Metric(_hessian_at(objective, at))

    def direction(W: Array, here: Point) -> tuple[Array, float]:
        if objective.n_outputs == 1 and objective.design.factored:
            change = -metric.solve(here.gradient)
        else:  # the metric is a rough one
            product = hessian_product(objective, here)
            change = conjugate_gradients(product, -here.gradient, metric.solve, _CG_TOL, _CG_STEPS)
        return change, -0.5 * float(np.vdot(change, here.gradient))

    return direction


def _proximal_step(objective: Objective, W: Array, at: Point) -> tuple[Array, float]:
    """The step to the minimum of the quadratic model plus the elastic net, and its gain; scores have a model each."""
    design, change, bent = objective.design, np.empty_like(W), 0.0
    squares, weight = objective.penalty_diagonal(), objective.l1_ratio / objective.C
    slopes = at.gradient - objective.penalty_gradient(W) + squares * W
    for r, h in enumerate(_curvatures(objective, at.scores)):
        H = design.gram(*_enough_rows(design, at.weights * h / objective.kept))
        change[r] = quadratic_net(H + np.diag(squares), slopes[r], W[r], design.d, weight) - W[r]
        bent += float(change[r] @ H @ change[r])
    return change, -_slope(objective, W, at, change) - 0.5 * bent


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


def hessian_product(objective: Objective, at: Point) -> Callable[[Array], Array]:
    """The function V (r, p) -> H V, where H is the Hessian of F for the weights at a point."""
    design, q, squares = objective.design, at.weights / objective.kept, objective.penalty_diagonal()
    if objective.n_outputs == 1:
        h = curvature(objective, at.scores) * q
        return lambda V: design.adjoint(design.scores(V) * h) + V * squares
    operator = objective.loss.hessian_operator(objective.y, at.scores.T)
    return lambda V: design.adjoint(operator(design.scores(V).T).T * q) + V * squares
