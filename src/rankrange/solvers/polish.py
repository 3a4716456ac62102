"""The last steps: from a point near a minimum to its certificate, and the convex problem (m = 0) from any start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.cuts import Ranked
from ..core.objective import MAX_FACTORED, Design, Objective
from .concentration import concentrate, hessian
from .descent import Log, Metric, Result, descend
from .majorise import bilevel, by_products
from .newton import applies, close_enough, newton
from .trivial import constant_is_best, constant_is_best_next_to, equal_scores

# With more columns than this, sparse rows and one score per row, products with X are faster than a factored Hessian.
PRODUCTS_FROM = 200
# The number of products with sparse rows in a Newton step, and the cost of their operations relative to a dense
# Hessian.
_PRODUCTS, _SLOWER = 40, 5
# Equal scores are tried as the minimum if a search ends at most this share below them.
_NEARLY_EQUAL = 1e-3


def minimise_convex(objective: Objective, W: Array | None, settings: Any) -> Result:
    """Minimise for m = 0, where one start is enough: W, or a rough ordinary fit.

    Sparse rows with many columns are first tried by products with X. If k < n, equal scores are returned if they are
    proved to be the minimum. `settings` is a `rankrange.solvers.Settings`.
    """
    rng, tol, max_iter, log = settings.rng, settings.tol, settings.max_iter, settings.log
    if objective.design.sparse and objective.design.p > PRODUCTS_FROM and objective.n_outputs == 1:
        budget = max(1, max_iter // 2) if objective.design.factored else max_iter
        result = by_products(objective, W, tol=tol, max_iter=budget, log=log)
        if result.converged or not objective.design.factored:
            return result
        W, max_iter = result.w, max(1, max_iter - result.n_iter)
    zero = np.zeros((objective.n_outputs, objective.design.p))
    if W is None:
        W = concentrate(replace(objective, k=objective.total), zero, rounds=3, steps=1, tol=1e-2)[0]
    path = _path_from_constant(objective, W)
    values = objective.values(path)
    lowest = int(values.argmin())
    if hasattr(objective.loss, "margins") and (lowest == len(path) - 1 or not applies(objective)):
        return bilevel(objective, path[lowest], tol=tol, max_iter=max_iter, log=log, phase="convex")
    if objective.k < objective.total and objective.loss.targets != "numbers" and _constant_is_lowest(objective, values):
        trivial = constant_is_best(objective, rng, tol, log)
        if trivial is not None:
            return trivial
    return refine(objective, path[int(values[:-1].argmin())], replace(settings, max_iter=max_iter))


def refine(objective: Objective, W: Array, settings: Any) -> Result:
    """Minimise from W, which is close to a minimum.

    Parameters
    ----------
    objective : Objective
        The objective to minimise.
    W : ndarray of shape (outputs, p)
        The initial coefficients.
    settings : Settings
        Tolerance, number of iterations, random number generator and log; `n_starts` has no effect.

    Returns
    -------
    Result
        The final point and its certificate.
    """
    tol, budget = settings.tol, -(-settings.max_iter // 2)  # the other half is for steps that prove the minimum
    metric = Metric(hessian(objective, W))
    ends, _, n_iter = descend(
        objective.batch,
        W[None],
        metric,
        max_iter=budget,
        tol=close_enough(objective, tol) * tol,
        left=objective.gap_left,
        on_step=lambda value: settings.log("descent", value),
    )
    result = polish(objective, ends[0], settings.rng, tol, max(1, settings.max_iter - n_iter), settings.log, metric)
    return replace(result, n_iter=result.n_iter + n_iter)


def polish(
    objective: Objective,
    W: Array,
    rng: np.random.Generator,
    tol: float,
    max_iter: int,
    log: Log,
    metric: Metric | None = None,
) -> Result:
    """Newton steps to a certificate of `tol`; if they do not apply or do not converge, exact convex problems.

    Sparse rows with many columns are first tried by products with X, without a Hessian. If Newton steps do not
    converge, equal scores are returned if they are proved to be the minimum (`_constant`).
    """
    n_iter, by_products = 0, objective.design.sparse and not objective.design.factored
    if by_products and objective.design.p <= MAX_FACTORED:
        result = bilevel(
            objective,
            W,
            tol=tol,
            max_iter=min(_product_steps(objective.design), max_iter),
            log=log,
            phase="polish",
            warm=True,
            each_step=True,
        )
        if result.converged or result.n_iter >= max_iter:
            return result
        W, n_iter, metric = result.w, result.n_iter, None
        objective = replace(objective, design=Design(objective.design.X, objective.design.fit_intercept))
    if applies(objective):
        result = newton(
            objective,
            W,
            rng=rng,
            tol=tol,
            max_iter=min(40, max_iter - n_iter),
            log=log,
            phase="polish",
            near=True,
        )
        result = replace(result, n_iter=result.n_iter + n_iter)
        if result.converged or result.n_iter >= max_iter:
            return result
        W, n_iter = result.w, result.n_iter
        trivial = _constant(objective, W, result.value, rng, tol, log)
        if trivial is not None:
            return replace(trivial, n_iter=trivial.n_iter + n_iter)
    left = max_iter - n_iter
    result = bilevel(
        objective, W, tol=tol, max_iter=left, log=log, phase="polish", metric=metric, warm=True, each_step=by_products
    )
    return replace(result, n_iter=result.n_iter + n_iter)


def _constant(
    objective: Objective, W: Array, value: float, rng: np.random.Generator, tol: float, log: Log
) -> Result | None:
    """The minimum next to equal scores, if the value at W is hardly lower and it is proved.

    Otherwise None, also for numeric targets, for m = 0 or k = n, and for aggregates other than the ranked range.
    """
    classes = objective.loss.targets in ("binary", "classes") and type(objective.aggregate) is Ranked
    if not classes or not objective.total > objective.k > objective.m > 0:
        return None
    if value < (1.0 - _NEARLY_EQUAL) * objective.value(equal_scores(objective)):
        return None
    return constant_is_best_next_to(objective, W, rng, tol, log)


def _product_steps(design: Design) -> int:
    """The number of Newton steps by conjugate gradients, at least 10, that cost as much as building one Hessian."""
    return max(10, int(design.n * design.p**2 / (_PRODUCTS * _SLOWER * design.X.nnz)))


def _path_from_constant(objective: Objective, W: Array) -> Array:
    """Points (5, r, p) on the line from W, the first, to the best model with equal scores for all rows, the last."""
    constant = equal_scores(objective)
    return np.array([constant + length * (W - constant) for length in (1.0, 0.3, 0.1, 0.03, 0.0)])


def _constant_is_lowest(objective: Objective, values: Array) -> bool:
    """Whether no value on the path is clearly below the last one, the value at equal scores."""
    # A subset is fitted better than all rows, by about one row's share per parameter.
    return float(values[:-1].min()) > (0.999 - 2.0 * objective.design.p / objective.design.n) * float(values[-1])
