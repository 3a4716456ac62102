"""The solver for aggregates with a convex majorant: smoothing, Newton steps and a certificate.

The risk of losses s is the maximum of q . s over a polytope of weights q. Smoothed over a width, it has a gradient and,
almost everywhere, a second derivative. Newton's method minimises it plus the penalty for decreasing widths, until the
weights q prove a small gap: for fixed q the minimum of q . s plus the penalty is a lower bound, and by convexity its
value and gradient at any point bound it from below. A non-convex aggregate provides a convex upper bound that equals it
at the current losses; minimising these bounds repeatedly never increases the objective.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from scipy.optimize import minimize

from ..core.arrays import Array
from ..core.cuts import Ranked
from ..core.objective import Objective
from .descent import Result, relative
from .duality import gap_above_risk
from .majorise import bilevel
from .multistart import multistart

# Widths start at the standard deviation of the losses and decrease by this factor.
_FALL = 0.1
_STEPS = 60  # Newton steps at one width
_ARMIJO = 1e-4


@dataclass(frozen=True)
class Problem:
    """One convex problem: a risk of the losses, plus the penalty, minus a linear function of the parameters."""

    objective: Objective
    risk: Any
    tilt: Array | None

    def linear(self, W: Array) -> float:
        """The penalty minus the linear function, at W."""
        return self.objective.penalty(W) - (0.0 if self.tilt is None else float(np.vdot(self.tilt, W)))

    def value(self, W: Array) -> float:
        """The exact value at W."""
        return self.risk.exact(self._losses(W))[0] + self.linear(W)

    def smoothed_value(self, W: Array, width: float) -> float:
        """The value at W with the risk smoothed over `width`: at most the exact value."""
        return self.risk.smoothed(self._losses(W), width).value + self.linear(W)

    def gradient(self, W: Array, slope: Array, q: Array) -> Array:
        """The gradient at W, where the losses have the slopes (r, n) and the weights q (n,)."""
        found = self.objective.design.adjoint(slope * q) + self.objective.penalty_gradient(W)
        return found if self.tilt is None else found - self.tilt

    def _losses(self, W: Array) -> Array:
        return self.objective.losses(self.objective.design.scores(W)).astype(np.float64, copy=False)

    def bound(self, W: Array, width: float) -> float:
        """A lower bound on the minimum, from the smoothed weights at W; minus infinity if none is proved."""
        Z = self.objective.design.scores(W)
        s, slope = self.objective.losses_and_slopes(Z)
        s = s.astype(np.float64, copy=False)
        q = self.risk.smoothed(s, width).weights
        total = float(q @ s)
        return total + self.linear(W) - gap_above_risk(self.objective, W, Z, q, slope, total, self.tilt)

    def left(self, gradient: Array) -> float:
        """The possible decrease of q . s plus the penalty, estimated from its gradient by `Objective.gap_left`."""
        return float(self.objective.gap_left(gradient[None])[0])


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
    zero = np.zeros((objective.n_outputs, objective.design.p))
    ordinary = bilevel(_average(objective), zero, tol=1e-4).w
    found = [ordinary] if start is None else [start, ordinary]
    if _is_convex(objective, _touching(objective, ordinary)):
        return found[:1]  # convex: every start leads to the same value
    aggregate, m = objective.aggregate.start(objective.m)
    m = m if m == objective.m else m * objective.total
    trimmed = replace(objective, aggregate=aggregate, m=float(np.floor(m)), k=objective.total)
    if m >= 1:
        rough = multistart(trimmed, None, n_starts=settings.n_starts, rng=settings.rng, tol=1e-3)
        found.append(rough.w)
    return found


def _average(objective: Objective) -> Objective:
    """The objective of the mean of all losses, with the same C relative to the mean."""
    return replace(objective, aggregate=Ranked(), m=0, k=objective.total)


def _descend(objective: Objective, W: Array, settings: Any, lowest: float) -> _End:
    """Minimise convex upper bounds, each equal to the objective at the last minimum, until they gain hardly anything.

    The history gets the lowest value so far; `lowest` is that of the earlier descents.
    """
    value, steps, gap, width = objective.value(W), 0, np.inf, None
    settings.log("start", min(value, lowest))
    while steps < settings.max_iter:
        problem = _touching(objective, W)
        end, gap, used, width = _solve(problem, W, settings.tol, settings.max_iter - steps, width)
        steps += used
        lowered = value - objective.value(end)
        if lowered > 0:
            W, value = end, value - lowered
        settings.log("smoothing", min(value, lowest))
        if _is_convex(objective, problem):
            return _End(W, value, gap, max(steps, 1))
        if lowered <= 0.1 * settings.tol * abs(value):
            break
    # At W the last upper bound exceeds the objective by at most the last gain.
    return _End(W, value, gap + max(lowered, 0.0), max(steps, 1))


def _is_convex(objective: Objective, problem: Problem) -> bool:
    """Whether the convex problem is the objective itself."""
    return objective.m == 0 and problem.tilt is None


def _touching(objective: Objective, W: Array) -> Problem:
    s, slope = objective.losses_and_slopes(objective.design.scores(W))
    risk, taken = objective.aggregate.majorant(s, objective.m, objective.sample_weight)
    return Problem(objective, risk, None if taken is None else objective.design.adjoint(slope * taken))


def _solve(problem: Problem, W: Array, tol: float, budget: int, width: float | None) -> tuple[Array, float, int, float]:
    """Minimise one convex problem from W for decreasing widths; if `width` is None, the first one is chosen here.

    Returns the best point, its gap, the number of steps, and the first width for the next problem.
    """
    scale, steps = max(abs(problem.objective.value(W)), 1e-9), 0
    least = 1e-13 * scale
    if width is None:
        width = float(np.std(problem.objective.losses(problem.objective.design.scores(W))))
    first = width = max(width, least)
    best, value, bound = W, problem.value(W), -np.inf
    method = _newton if _has_matrix(problem.objective) else _quasi_newton
    while True:
        W, used = method(problem, W, width, max(1, min(_STEPS, budget - steps)), 0.05 * tol * scale)
        steps += used
        reached, bound = problem.value(W), max(bound, problem.bound(W, width))
        if reached < value:
            best, value = W, reached
            scale = min(scale, max(abs(problem.objective.value(W)), 1e-9))
        enough = 0.5 * tol * scale
        if value - bound <= enough or steps >= budget or width * _FALL < least:
            break
        width *= _FALL
    return best, value - bound, steps, min(first, width / _FALL)


def _has_matrix(objective: Objective) -> bool:
    return objective.n_outputs == 1 and objective.design.factored and hasattr(objective.loss, "curvature")


def _newton(problem: Problem, W: Array, width: float, most: int, enough: float) -> tuple[Array, int]:
    """Newton steps on the smoothed problem with one score per row, until at most `enough` can be gained.

    They also end if no step lowers the value. Returns the point and the number of steps, at most `most`.
    """
    objective, design = problem.objective, problem.objective.design
    penalty = np.diag(objective.penalty_diagonal())
    value = problem.smoothed_value(W, width)
    for step in range(most):
        Z = design.scores(W)
        s, slope = objective.losses_and_slopes(Z)
        found = problem.risk.smoothed(s.astype(np.float64, copy=False), width)
        gradient = problem.gradient(W, slope, found.weights)
        curvature = np.asarray(objective.loss.curvature(objective.y, Z[0]), dtype=np.float64)
        hessian = design.gram(found.weights * curvature) + penalty
        hessian += problem.risk.bend(design, slope[0].astype(np.float64), found.blocks, width)
        direction = -_solved(hessian, gradient[0])
        fall = float(gradient[0] @ direction)
        if -fall <= enough and problem.left(gradient) <= enough:
            return W, step
        length = 1.0
        while length > 1e-10:
            trial = problem.smoothed_value(W + length * direction, width)
            if trial <= value + _ARMIJO * length * fall:
                break
            length *= 0.5
        else:
            return W, step
        W, value = W + length * direction[None], trial
    return W, most


def _solved(matrix: Array, right: Array) -> Array:
    """The solution of a positive semidefinite system; a small ridge is added until it is well conditioned.

    If that fails, the right-hand side divided by the mean of the diagonal.
    """
    scale = max(float(np.trace(matrix)) / len(matrix), 1e-300)
    for power in range(-14, 0, 2):
        # LAPACK directly: SciPy's solve reports a large condition number by a warning.
        factor, failed = scipy.linalg.lapack.dpotrf(matrix)
        if not failed:
            rcond, _ = scipy.linalg.lapack.dpocon(factor, float(np.abs(matrix).sum(axis=0).max()))
            if rcond > np.finfo(np.float64).eps:
                return np.asarray(scipy.linalg.lapack.dpotrs(factor, right[:, None])[0])[:, 0]
        matrix = matrix + 10.0**power * scale * np.eye(len(matrix))
    return right / scale


def _quasi_newton(problem: Problem, W: Array, width: float, most: int, enough: float) -> tuple[Array, int]:
    """`_newton` by L-BFGS, for one score per class, many columns or losses without curvature.

    Twenty iterations count as one step.
    """
    objective, shape = problem.objective, W.shape

    def value_and_gradient(w: Array) -> tuple[float, Array]:
        V = w.reshape(shape)
        s, slope = objective.losses_and_slopes(objective.design.scores(V))
        found = problem.risk.smoothed(s.astype(np.float64, copy=False), width)
        return found.value + problem.linear(V), problem.gradient(V, slope, found.weights).ravel()

    options = {"maxiter": 20 * most, "ftol": 1e-14, "gtol": 1e-3 * np.sqrt(enough / objective.C), "maxcor": 30}
    end = minimize(value_and_gradient, W.ravel(), jac=True, method="L-BFGS-B", options=options)
    return end.x.reshape(shape), max(1, int(end.nit) // 20)
