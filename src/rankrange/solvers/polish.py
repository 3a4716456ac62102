"""The last steps: the convex problem of the rows that are kept, solved until they repeat; and that of m = 0.

The problem with fixed dropped rows is an upper bound on F that equals it at W, so no round increases F. Its duality gap
is the certificate, if the dropped rows stay dropped nearby.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from .concentration import concentrate
from .convex import minimise
from .descent import Log, Result, finish, relative

# The shares of an ordinary fit that are tried as starts.
_SHARES = (1.0, 0.3, 0.1, 0.03, 0.0)
# The tolerance of smooth problems with an l1 penalty.
_EXACT = 1e-10


def minimise_convex(objective: Objective, W: Array | None, settings: Any) -> Result:
    """Minimise for m = 0 from W, or from a rough ordinary fit. `settings` is a `rankrange.solvers.Settings`."""
    if W is None:
        zero = np.zeros((objective.n_outputs, objective.design.p))
        ordinary = concentrate(replace(objective, k=objective.total), zero, rounds=3, steps=1, tol=1e-2)[0]
        # With uninformative rows, the larger of the losses are larger at the ordinary fit than at zero.
        W = min((share * ordinary for share in _SHARES), key=objective.value)
    return bilevel(objective, W, tol=settings.tol, max_iter=settings.max_iter, log=settings.log, phase="convex")


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
        Receives the value after each step.
    phase : str
        The name of these steps in the history.

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
    first = W
    # Full precision costs an l1 penalty little more, and equal problems then have equal results.
    enough = min(tol, _EXACT) if objective.l1_ratio and objective.k >= objective.total else tol
    recut = objective.cutting if objective.m > 0 else None
    for _ in range(max_iter + 1):
        found = minimise(
            objective.cutting(s),
            W,
            tol=enough,
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
    if not objective.partly_cut(s):
        return finish(W, value, n_iter, found.gap, tol, max_iter, log, losses=s)
    # Different losses tie at the cut, for example at equal scores. Next to W they do not: the certificate is for the
    # rows that are dropped there.
    towards = first - W
    if np.allclose(first, W, rtol=1e-3, atol=0.0):
        units = np.sqrt(objective.design.squares(np.full(objective.design.n, 1.0 / objective.design.n)))
        towards = np.random.default_rng(0).normal(size=W.shape) / np.where(units > 0, units, 1.0)
    chosen = _dropped_towards(objective, Z, s, towards)
    found = minimise(chosen, W, tol=0.5 * tol, max_iter=max(1, max_iter - n_iter))
    certificate = relative(value - found.value * (1.0 - found.gap), value)
    certificate = certificate if certificate <= tol else np.inf
    return finish(W, value, n_iter + found.n_iter, certificate, tol, max_iter, log, losses=s)


def _dropped_towards(objective: Objective, Z: Array, s: Array, towards: Array) -> Any:
    """The problem that drops, of the rows tied at a cut at Z, those whose losses rise most in a direction."""
    problem = objective.cutting(s)
    caps, mass = problem.risk.caps.copy(), objective.mass
    rise = (objective.losses_and_slopes(Z)[1] * objective.design.scores(towards)).sum(axis=0)
    for rows in objective.partly_cut(s):
        tied = rows[np.argsort(rise[rows], kind="stable")]
        caps[tied] = np.clip(caps[tied].sum() - (np.cumsum(mass[tied]) - mass[tied]), 0.0, mass[tied])
    return replace(problem, caps=caps)
