"""Two descent methods for the ranked range: each step minimises a convex function that lies above F and touches it.

`bilevel` (section 3.1 of the paper) cuts the m rows of largest loss, solves the convex problem of the others, and cuts
again. `dca` (Algorithm 1, with its inner problem solved exactly) replaces phi_m by its tangent. Cutting is the tighter
of the two bounds: F = min over sets T of size m of the problem that cuts T, and the tangent lies above that.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..core.arrays import Array
from ..core.losses import is_convex
from ..core.objective import Objective
from .descent import Log, Metric, Result, cut_is_clean, finish, relative
from .inner import convex
from .trivial import best_constant, constant_is_best

# Columns up to which a factored matrix proves that equal scores are optimal.
_MOST_BALANCED = 1000
# The relative gap that the first round of `bilevel` is solved to; later ones to a tenth of the last gain.
_FIRST_ROUND = 1e-4


def bilevel(
    objective: Objective,
    W: Array,
    *,
    tol: float = 1e-6,
    max_iter: int = 200,
    log: Log | None = None,
    phase: str = "bilevel",
    metric: Metric | None = None,
    warm: bool = False,
) -> Result:
    """Drop the m largest losses, minimise the rest, and repeat until the same rows are dropped.

    The objective never increases.

    Parameters
    ----------
    objective : Objective
        The objective to minimise.
    W : ndarray of shape (outputs, p)
        The initial coefficients.
    tol : float
        The relative duality gap at which to stop.
    max_iter : int
        Maximum number of steps.
    log : Log, optional
        Receives progress messages.
    phase : str
        The name of these steps in the history.
    metric : Metric, optional
        The metric of the inner solves.
    warm : bool
        Whether the inner solves start near their solution.

    Returns
    -------
    Result
        The final point and its certificate.
    """
    log = Log() if log is None else log
    Z = objective.design.scores(W)
    s = objective.losses(Z)
    value, n_iter = objective.value_at(W, s), 0
    log(phase, value)
    enough = max(tol, _FIRST_ROUND) if objective.m > 0 else tol  # while the cut still moves, a rough solution is enough
    while True:
        problem = objective.cutting(s)
        left = max(1, max_iter - n_iter)
        solution = convex.solve(problem, W, Z, tol=enough, max_iter=left, metric=metric, warm=warm)
        n_iter += solution.n_iter
        moved = solution.W is not W
        s = objective.losses(solution.scores) if moved else s
        reached = objective.value_at(solution.W, s)
        gained = relative(value - reached, value)
        if reached < value:
            W, Z, value = solution.W, solution.scores, reached
            log(phase, value)
        best = objective.losses(Z) if moved and W is not solution.W else s
        if objective.m == 0:
            return finish(W, value, n_iter, solution.gap, tol, max_iter, log, losses=best)
        settled = not moved or _same_rows(problem.caps, objective.cutting(s).caps)
        if settled and min(enough, solution.gap) <= tol:
            certificate = solution.gap if cut_is_clean(objective, s) else np.inf
            return finish(W, value, n_iter, certificate, tol, max_iter, log, losses=best)
        if n_iter >= max_iter:
            return finish(W, value, n_iter, np.inf, tol, max_iter, log, losses=best)
        enough = tol if settled else max(tol, min(enough, 0.1 * gained))


def by_products(
    objective: Objective, W: Array | None, *, rng: np.random.Generator, tol: float, max_iter: int, log: Log
) -> Result:
    """m = 0 and sparse rows of many columns: the convex problem by products with X alone, from a rough fit."""
    objective = replace(objective, design=objective.design.unfactored())
    if W is not None:
        return bilevel(objective, W, tol=tol, max_iter=max_iter, log=log, phase="convex")
    design, binary = objective.design, objective.loss.targets == "binary"
    constant = np.zeros((1, design.p))
    metric = Metric(design.squares(np.full(design.n, 0.25 / design.n)) + objective.penalty_diagonal())
    step = -metric.solve(objective.average().at(constant).gradient)
    if binary:
        constant[0, design.d :] = best_constant(objective)[1]
    path = [constant, *(constant + length * (step - constant) for length in (1.0, 0.3, 0.1, 0.03))]
    W = min(path, key=objective.value)
    least = 0.999 * objective.value(constant)
    if binary and design.p <= _MOST_BALANCED and objective.value(W) > least:
        W = convex.solve(objective.cutting(np.empty(0)), W, tol=1e-2, max_iter=20).W
        # Near a minimum at equal scores nearly all losses tie, and the steps below would not end.
        trivial = constant_is_best(objective, rng, tol, log) if objective.value(W) > least else None
        if trivial is not None:
            return trivial
    return bilevel(objective, W, tol=tol, max_iter=max_iter, log=log, phase="convex")


def dca(objective: Objective, W: Array, *, tol: float = 1e-6, max_iter: int = 200, log: Log | None = None) -> Result:
    """Run Algorithm 1 of the paper with exact inner solves, warm-started at the last iterate.

    Parameters
    ----------
    objective : Objective
        The objective to minimise.
    W : ndarray of shape (outputs, p)
        The initial coefficients.
    tol : float
        The relative duality gap at which to stop.
    max_iter : int
        Maximum number of steps.
    log : Log, optional
        Receives progress messages.

    Returns
    -------
    Result
        The final point and its certificate.
    """
    log = Log() if log is None else log
    value, n_iter, settled = objective.value(W), 0, False
    log("dca", value)
    while n_iter < max_iter and not settled:
        solution = convex.solve(objective.tilted(W), W, tol=tol, max_iter=50)
        n_iter += 1
        reached = objective.value(solution.W)
        settled = reached >= value - 0.1 * tol * abs(value)
        if reached <= value:
            W, value = solution.W, reached
            log("dca", value)
    return finish(W, value, n_iter, certify(objective, W), tol, max_iter, log, settled)


def certify(objective: Objective, W: Array) -> float:
    """A bound on how much lower the objective can be with the same rows dropped as at W.

    Parameters
    ----------
    objective : Objective
        The objective that was minimised.
    W : ndarray of shape (outputs, p)
        The coefficients.

    Returns
    -------
    float
        The relative gap; infinite if losses are tied at the cut or if the loss is not convex.
    """
    if not is_convex(objective.loss):
        return np.inf
    s = objective.losses(objective.design.scores(W))
    if objective.m > 0 and not cut_is_clean(objective, s):
        return np.inf
    return convex.solve(objective.cutting(s), W, max_iter=0).gap


def _same_rows(a: Array | None, b: Array | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))
