"""Descent by convex upper bounds that equal F at W, to a certified point; and the start for m = 0.

A bound fixes the rows that are dropped, or replaces the concave part of an aggregate by its tangent. It equals F at W,
so no round increases F. Its duality gap is the certificate, if the dropped rows stay dropped nearby.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.objective import ConvexProblem, Objective
from .concentration import concentrate
from .convex import minimise
from .descent import Log, Result, relative

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
    """Minimise convex upper bounds of the objective, each equal to it at the last minimum, until they gain nothing.

    For the ranked range a bound drops the rows with the m largest losses; it is solved again until these repeat. The
    objective never increases. `tol` is the relative duality gap at which to stop, `max_iter` the largest number of
    steps of all inner solves together; `log` receives the value after each of them, under the name `phase`.
    """
    log = Log() if log is None else log
    Z = objective.design.scores(W)
    s = objective.losses(Z)
    value, n_iter, first = objective.value_at(W, s), 0, W
    log(phase, value)
    drops = hasattr(objective.aggregate, "caps")
    # Full precision costs an l1 penalty little more, and equal problems then have equal results.
    enough = min(tol, _EXACT) if objective.l1_ratio and objective.k >= objective.total else tol
    recut = objective.cutting if drops and objective.m > 0 else None
    for _ in range(max_iter + 1):
        bound = objective.cutting(s) if drops else objective.upper_bound(W)
        convex = is_convex(objective, bound)
        found = minimise(bound, W, tol=enough, max_iter=max(1, max_iter - n_iter), scores=Z, cutting=recut)
        n_iter += max(found.n_iter, 1)
        after = objective.losses(found.scores)
        reached = objective.value_at(found.W, after)
        gained = value - reached
        little = gained <= 0.1 * tol * abs(value)
        same = np.array_equal(found.problem.risk.caps, objective.cutting(after).risk.caps) if drops else little
        settled = convex or same or (gained <= 0 and recut is None)  # without a gain it is that of W, up to rounding
        if gained > 0:
            W, Z, s, value = found.W, found.scores, after, reached
            log(phase, value)
        recut = None if little else recut
        if convex or n_iter >= max_iter or (settled and (found.gap <= tol or not drops)):
            break
    certificate, reason = found.gap, "losses are tied at the upper cut"
    if not drops:  # the last bound exceeds the objective at W by at most the last gain
        certificate = relative(found.gap * abs(found.value) + (0.0 if convex else max(gained, 0.0)), value)
    elif not convex and not (settled and found.gap <= tol):
        certificate, reason = np.inf, "the dropped rows still change"
    elif objective.partly_cut(s):
        chosen = _dropped_towards(objective, Z, s, _away(objective, first, W))
        found = minimise(chosen, W, tol=0.5 * tol, max_iter=max(1, max_iter - n_iter))
        certificate, n_iter = relative(value - found.value * (1.0 - found.gap), value), n_iter + found.n_iter
        certificate = certificate if certificate <= tol else np.inf
    converged = certificate <= tol or (not drops and n_iter < max_iter)
    message = f"stopped after {n_iter} of {max_iter} iterations with a relative gap of {certificate:.2g}"
    if certificate <= tol:
        message = f"the gap is at most {tol:g} of the objective"
    elif converged:
        message = f"no step lowers the objective; the relative gap is at most {certificate:.2g}"
    elif not np.isfinite(certificate):
        message = f"no certificate after {n_iter} of {max_iter} iterations: {reason}"
    return Result(W, value, n_iter, converged, message, log.history, certificate, s)


def is_convex(objective: Objective, bound: ConvexProblem) -> bool:
    """Whether the convex upper bound is the objective itself."""
    return objective.m == 0 and bound.tilt is None


def _away(objective: Objective, first: Array, W: Array) -> Array:
    """The direction from W to the start, or a random one if that is no direction.

    Different losses tie at the cut, for example at equal scores. Next to W they do not: the certificate is for the rows
    that are dropped there.
    """
    if not np.allclose(first, W, rtol=1e-3, atol=0.0):
        return first - W
    units = np.sqrt(objective.design.squares(np.full(objective.design.n, 1.0 / objective.design.n)))
    return np.random.default_rng(0).normal(size=W.shape) / np.where(units > 0, units, 1.0)


def _dropped_towards(objective: Objective, Z: Array, s: Array, towards: Array) -> ConvexProblem:
    """The problem that drops, of the rows tied at a cut at Z, those whose losses rise most in a direction."""
    problem = objective.cutting(s)
    caps, mass = problem.risk.caps.copy(), objective.mass
    rise = (objective.losses_and_slopes(Z)[1] * objective.design.scores(towards)).sum(axis=0)
    for rows in objective.partly_cut(s):
        tied = rows[np.argsort(rise[rows], kind="stable")]
        caps[tied] = np.clip(caps[tied].sum() - (np.cumsum(mass[tied]) - mass[tied]), 0.0, mass[tied])
    return replace(problem, risk=replace(problem.risk, caps=caps))
