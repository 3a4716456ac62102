"""Two majorise-minimise methods for the ranked range: each step minimises a convex upper bound that equals F at W.

`bilevel` (section 3.1 of the paper) drops the m rows with the largest losses, solves the convex problem of the other
rows, and repeats. `dca` (Algorithm 1 with exact inner solves) replaces phi_m, the sum of the m largest losses, by its
tangent. The bound of `bilevel` is tighter: nowhere is it above that of `dca`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..core.arrays import Array
from ..core.losses import is_convex, missing_methods
from ..core.objective import Objective
from .descent import Log, Metric, Result, cut_is_clean, finish, relative
from .inner import convex
from .trivial import best_constant

# The relative gap of the first round of `bilevel`; later rounds are solved to a tenth of the last gain.
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
    each_step: bool = False,
) -> Result:
    """Drop the rows with the m largest losses, fit the others, and repeat until the same rows are dropped.

    The objective never increases. A fit minimises the mean of the k - m largest losses of the others plus the penalty.

    Parameters
    ----------
    objective : Objective
        The objective to minimise.
    W : ndarray of shape (outputs, p)
        The initial coefficients.
    tol : float
        The relative duality gap at which to stop.
    max_iter : int
        Maximum number of steps of all inner solves together.
    log : Log, optional
        Receives progress messages.
    phase : str
        The name of these steps in the history.
    metric : Metric, optional
        The metric of the inner solves.
    warm : bool
        Whether the inner solves start near their solution.
    each_step : bool
        Whether rows are dropped anew in each step of an inner solve, not only at its end.

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
    last: convex.Saddle | None = None
    again = (lambda Z: objective.cutting(objective.losses(Z))) if each_step and objective.m > 0 else None
    # while the dropped rows still change, a rough solution is enough
    enough = max(tol, _FIRST_ROUND) if objective.m > 0 else tol
    for _ in range(max_iter + 1):
        problem = objective.cutting(s)
        left = max(1, max_iter - n_iter)
        solution = convex.solve(
            problem, W, Z, tol=enough, max_iter=left, metric=metric, warm=warm, last=last, cutting=again
        )
        last, problem = solution.last, solution.problem
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
            break
        enough = tol if settled else max(tol, min(enough, 0.1 * gained))
    reason = "the dropped rows still change"
    return finish(W, value, n_iter, np.inf, tol, max_iter, log, losses=best, reason=reason)


def by_products(objective: Objective, W: Array | None, *, tol: float, max_iter: int, log: Log) -> Result:
    """Solve the convex problem (m = 0) without p x p matrices, only by products with X, from W or a rough fit.

    For sparse rows with many columns and one score per row.
    """
    objective = replace(objective, design=objective.design.unfactored())
    if W is not None:
        return bilevel(objective, W, tol=tol, max_iter=max_iter, log=log, phase="convex")
    design = objective.design
    constant = np.zeros((1, design.p))
    metric = Metric(design.squares(np.full(design.n, 0.25 / design.n)) + objective.penalty_diagonal())
    step = -metric.solve(objective.average().at(constant).gradient)
    if objective.loss.targets == "binary":
        constant[0, design.d :] = best_constant(objective)[1]
    path = [constant, *(constant + length * (step - constant) for length in (1.0, 0.3, 0.1, 0.03))]
    W = min(path, key=objective.value)
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
        The relative duality gap of the inner solves. The run ends when a step gains at most a tenth of this share.
    max_iter : int
        Maximum number of steps; each is one inner solve, of at most 50 steps.
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
    """An upper bound on the relative gap between the objective at W and its minimum with the same rows dropped.

    Parameters
    ----------
    objective : Objective
        The objective that was minimised.
    W : ndarray of shape (outputs, p)
        The coefficients.

    Returns
    -------
    float
        The relative gap; infinite if different rows tie at the upper cut, or if the loss is not convex or has neither
        curvature nor margins.
    """
    if not is_convex(objective.loss) or missing_methods(objective.loss, objective.n_outputs):
        return np.inf
    s = objective.losses(objective.design.scores(W))
    if objective.m > 0 and not cut_is_clean(objective, s):
        return np.inf
    return convex.solve(objective.cutting(s), W, max_iter=0).gap


def _same_rows(a: Array | None, b: Array | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))
