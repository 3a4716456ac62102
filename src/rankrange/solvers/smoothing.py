"""Aggregates with a convex majorant, weights by rank and groups: the convex solver, repeated if they are not convex.

A non-convex aggregate provides a convex upper bound that equals it at the current losses; minimising these bounds
repeatedly never increases the objective.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective, RiskProblem
from .convex import minimise
from .descent import Result, Settings, relative
from .trim import search


class _End(NamedTuple):
    W: Array
    value: float
    gap: float
    n_iter: int


def smoothing(objective: Objective, start: Array | None, settings: Any) -> Result:
    """The lowest result of descents from `start`, from the ordinary fit and, if rows are dropped, from a trimmed fit.

    A convex objective needs only the first of these that is given. `settings` is a `rankrange.solvers.Settings`.
    """
    ends: list[_End] = []
    for W in _starts(objective, start, settings):
        ends.append(_descend(objective, W, settings, min((end.value for end in ends), default=np.inf)))
    best = min(ends, key=lambda end: end.value)
    certificate = relative(best.gap, best.value)
    proved = certificate <= settings.tol
    done = proved or best.n_iter < settings.max_iter
    if proved:
        message = f"the gap is at most {settings.tol:g} of the objective"
    else:
        end = "no step lowers the objective" if done else f"it ended after {best.n_iter} steps"
        message = f"{end}; the relative gap is at most {certificate:.2g}"
    return Result(best.W, best.value, best.n_iter, done, message, settings.log.history, certificate)


def _starts(objective: Objective, start: Array | None, settings: Any) -> list[Array]:
    ordinary = minimise(objective.average(), tol=1e-4).W
    found = [ordinary] if start is None else [start, ordinary]
    if _is_convex(objective, _touching(objective, ordinary)):
        return found[:1]  # convex: every start leads to the same value
    aggregate, m = objective.aggregate.start(objective.m)
    m = m if m == objective.m else m * objective.total
    trimmed = replace(objective, aggregate=aggregate, m=float(np.floor(m)), k=objective.total)
    if m >= 1:
        rough = search(trimmed, None, Settings(tol=1e-3, n_starts=settings.n_starts, rng=settings.rng))
        found.append(rough.w)
    return found


def _descend(objective: Objective, W: Array, settings: Any, lowest: float) -> _End:
    """Minimise convex upper bounds, each equal to the objective at the last minimum, until they gain hardly anything.

    The history gets the lowest value so far; `lowest` is that of the earlier descents.
    """
    value, steps, gap, lowered = objective.value(W), 0, np.inf, 0.0
    settings.log("start", min(value, lowest))
    for _ in range(settings.max_iter):
        problem = _touching(objective, W)
        found = minimise(problem, W, tol=settings.tol, max_iter=settings.max_iter - steps)
        steps += max(found.n_iter, 1)
        gap, lowered = found.gap * abs(found.value), value - objective.value(found.W)
        if lowered > 0:
            W, value = found.W, value - lowered
        settings.log("smoothing", min(value, lowest))
        if _is_convex(objective, problem):
            return _End(W, value, gap, steps)
        if lowered <= 0.1 * settings.tol * abs(value) or steps >= settings.max_iter:
            break
    # At W the last upper bound exceeds the objective by at most the last gain.
    return _End(W, value, gap + max(lowered, 0.0), steps)


def _is_convex(objective: Objective, problem: RiskProblem) -> bool:
    """Whether the convex problem is the objective itself."""
    return objective.m == 0 and problem.tilt is None


def _touching(objective: Objective, W: Array) -> RiskProblem:
    s, slope = objective.losses_and_slopes(objective.design.scores(W))
    risk, taken = objective.aggregate.majorant(s, objective.m, objective.sample_weight)
    tilt = None if taken is None else objective.design.adjoint(slope * taken)
    parts = (objective.design, objective.y, objective.loss, objective.C, objective.n_outputs)
    return RiskProblem(*parts, risk, tilt, l1_ratio=objective.l1_ratio)
