"""The last steps: the convex problem of the rows that are kept, solved until they repeat; and that of m = 0.

The problem with fixed dropped rows is an upper bound on F that equals it at W, so no round increases F. Its duality gap
is the certificate, if the dropped rows stay dropped nearby.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.objective import Design, Objective
from .concentration import concentrate
from .convex import minimise
from .descent import Log, Result, cut_is_clean, finish, relative

# With more columns than this, sparse rows and one score per row, products with X are faster than a factored Hessian.
PRODUCTS_FROM = 200
# The relative gap of the first round; later rounds are solved to a tenth of the last gain.
_FIRST_ROUND = 1e-4


def minimise_convex(objective: Objective, W: Array | None, settings: Any) -> Result:
    """Minimise for m = 0 from W, or from a rough ordinary fit. `settings` is a `rankrange.solvers.Settings`."""
    if W is None:
        zero = np.zeros((objective.n_outputs, objective.design.p))
        W = concentrate(replace(objective, k=objective.total), zero, rounds=3, steps=1, tol=1e-2)[0]
    return bilevel(objective, W, tol=settings.tol, max_iter=settings.max_iter, log=settings.log, phase="convex")


def by_products(design: Design, n_outputs: int) -> bool:
    """Whether products with sparse rows are faster than a factored Hessian."""
    return design.sparse and design.p > PRODUCTS_FROM and n_outputs == 1


def bilevel(
    objective: Objective,
    W: Array,
    *,
    tol: float = 1e-6,
    max_iter: int = 200,
    log: Log | None = None,
    phase: str = "bilevel",
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

    Returns
    -------
    Result
        The final point and its certificate.
    """
    log = Log() if log is None else log
    if by_products(objective.design, objective.n_outputs):
        objective = replace(objective, design=objective.design.unfactored())
    Z = objective.design.scores(W)
    s = objective.losses(Z)
    value, n_iter = objective.value_at(W, s), 0
    log(phase, value)
    first = W
    recut = objective.cutting if objective.m > 0 else None
    for _ in range(max_iter + 1):
        found = minimise(
            objective.cutting(s),
            W,
            tol=tol,
            max_iter=max(1, max_iter - n_iter),
            scores=Z,
            cutting=recut,
        )
        n_iter += max(found.n_iter, 1)
        after = objective.losses(found.scores)
        reached = objective.value_at(found.W, after)
        gained = value - reached
        settled = objective.m == 0 or np.array_equal(found.problem.risk.caps, objective.cutting(after).risk.caps)
        if gained > 0:
            W, Z, s, value = found.W, found.scores, after, reached
            log(phase, value)
        elif recut is None:
            settled = True  # at the minimum, up to rounding errors: the certificate is that of W
        if gained <= 0.1 * tol * abs(value):
            recut = None
        if objective.m == 0 or n_iter >= max_iter or (settled and found.gap <= tol):
            break
    if objective.m > 0 and not (settled and found.gap <= tol):
        reason = "the dropped rows still change"
        return finish(W, value, n_iter, np.inf, tol, max_iter, log, losses=s, reason=reason)
    if cut_is_clean(objective, s):
        return finish(W, value, n_iter, found.gap, tol, max_iter, log, losses=s)
    return _beside_ties(objective, W, first, value, n_iter, tol, max_iter, log)


def _beside_ties(
    objective: Objective, W: Array, first: Array, value: float, n_iter: int, tol: float, max_iter: int, log: Log
) -> Result:
    """The result at a point next to W, where different losses tie at the upper cut, for example at equal scores.

    There no loss ties, and the minimum with the rows dropped there is hardly lower. Without such a point towards
    `first`, or in a random direction if that is W, nothing is proved.
    """
    design = objective.design
    if design.X.dtype != np.float64:  # single precision does not tell such losses apart
        objective = replace(objective, design=Design(design.X.astype(np.float64), design.fit_intercept))
    towards = first - W
    if np.allclose(first, W, rtol=1e-3, atol=0.0):
        units = np.sqrt(objective.design.squares(np.full(design.n, 1.0 / design.n)))
        towards = np.random.default_rng(0).normal(size=W.shape) / np.where(units > 0, units, 1.0)
    for share in 10.0 ** -np.arange(4.0, 10.0):
        V = W + share * towards
        s = objective.losses(objective.design.scores(V))
        risen = objective.value_at(V, s)
        if risen - value > 0.1 * tol * abs(value) or not cut_is_clean(objective, s):
            continue
        found = minimise(objective.cutting(s), V, tol=0.5 * tol, max_iter=max(1, max_iter - n_iter))
        certificate = relative(risen - found.value * (1.0 - found.gap), risen)
        if certificate <= tol:
            return finish(V, risen, n_iter + found.n_iter, certificate, tol, max_iter, log, losses=s)
    s = objective.losses(objective.design.scores(W))
    return finish(W, value, n_iter, np.inf, tol, max_iter, log, losses=s)
