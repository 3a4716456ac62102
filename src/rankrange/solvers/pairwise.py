"""Partial AUC: Newton steps in which rows near the cut may cross it, with a certificate.

With fixed dropped rows, the problem is ||w||^2 / 2 plus a maximum of convex functions over the weights p and q
(`PairTop`). Any feasible weights give a function below this maximum, whose curvature is at least that of ||w||^2 / 2.
Its value minus half its squared gradient is therefore a lower bound of the minimum. Near the minimum rows are tied at
the cut, and a Newton step must determine their weights: the losses of these rows enter as linear functions
(`solve_band`), one class after the other. At a tie the two classes do not interact to first order, because moving
weight among equal scores does not change the loss.

If rows are dropped (fpr starts above 0 or tpr ends below 1), each round fixes the rows that are dropped at the current
scores and minimises this upper bound, which equals the objective at these scores. No round increases the objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.optimize

from ..core.arrays import Array
from ..core.objective import Design
from ..core.pairs import PairObjective, PairPoint, PairTop
from .descent import Log, Metric, Result, descend, relative
from .inner.band import solve_band

# The number of rows near a cut that may cross it, in addition to the number of columns (doubled if a step is
# shortened), and the number of rounds in which the two classes alternate.
_BAND, _MAX_BAND, _ALTERNATIONS = 60, 3000, 25
# The largest number of rounds of dropping; a handful is usual.
_ROUNDS = 30
# The largest number of planes through zero; about three per column are usual.
_PLANES = 120


@dataclass(eq=False)
class _Lines:
    """The rows of one class near its cut: losses as linear functions values + A d of the step d, caps and weights.

    `positive` is True for the positives. `_newton_step` changes the weights.
    """

    rows: Array
    values: Array
    A: Array
    caps: Array
    weights: Array
    positive: bool


class _Step(NamedTuple):
    d: Array
    weights: tuple[Array, Array] | None  # None if nothing is cut


def solve_pairs(
    objective: PairObjective, w: Array, *, tol: float = 1e-6, max_iter: int = 200, log: Log | None = None
) -> Result:
    """Minimise a pair objective from w (p,) to a relative duality gap of `tol`.

    The certificate refers to the convex problem with the same rows dropped; if none is, to the global minimum.
    """
    log = Log() if log is None else log
    value, steps, gap, message = objective.value(w), 0, np.inf, "reached tol"
    log("start", value)
    for _ in range(_ROUNDS):
        last = value
        found, gap, used = minimise(objective.cutting(w), w, tol=tol, max_iter=max_iter - steps)
        steps += used
        reached = found.value if objective.convex else objective.value(found.w)
        if reached <= value:
            w, value = found.w, reached
        log("pairs", value)
        gap = relative(gap + max(found.value - value, 0.0), value)
        if objective.convex or last - value <= tol * abs(value) or steps >= max_iter:
            break
    done = bool(gap <= tol)
    if not done:
        message = f"stopped after {steps} of {max_iter} steps at a relative gap of {gap:.2g}"
    return Result(w[None], value, steps, done, message, log.history, gap)


def minimise(problem: PairTop, w: Array, *, tol: float, max_iter: int) -> tuple[PairPoint, float, int]:
    """Minimise the convex problem from w to a relative gap of `tol`: the point, its absolute gap, and the steps.

    The gap may be larger after `max_iter` steps or four steps in a row without progress. With more
    columns than are factored, the steps are those of `_by_gradients`.
    """
    point, gap, step = _started(problem, w, tol)
    if not problem.positives.factored and relative(gap, point.value) > tol:
        return _by_gradients(problem, point, tol, max_iter)
    width, stalled = len(w) + _BAND, 0
    while relative(gap, point.value) > tol and step < max_iter and stalled < 4:
        step += 1
        move = _newton_step(problem, point, width, 0.01 * tol * point.value)
        length, new = _along(problem, point, move)
        fallen = point.value - new.value
        left = 0.5 * float(new.gradient @ new.gradient)
        if move.weights is not None and left > tol * new.value:
            bound = problem.at_scores(new.w, new.u, new.v, move.weights)
            left = min(left, _gap(new, bound))
        stalled = 0 if fallen > 1e-3 * gap or left < 0.5 * gap else stalled + 1
        gap = min(gap - fallen, left)
        if length < 1.0:
            width = min(2 * width, _MAX_BAND)
        point = new
    return point, max(gap, 0.0), step


def _started(problem: PairTop, w: Array, tol: float) -> tuple[PairPoint, float, int]:
    """The start, its gap and its number of steps: w, or a point found from zero if w is no better than zero."""
    point = problem.at(w)
    gap = 0.5 * float(point.gradient @ point.gradient)
    at_zero = problem.scale  # the loss of a pair with equal scores is 1
    if point.value < at_zero * (1.0 - tol):
        return point, gap, 0
    return _from_zero(problem, tol)


def _from_zero(problem: PairTop, tol: float) -> tuple[PairPoint, float, int]:
    """Find a start from zero, where all rows are tied, so that the weights and the gradient depend on the direction.

    Each such gradient gives a linear lower bound (a plane). If no linear model gives the kept positives a higher mean
    score than the kept negatives, zero is the minimum, and a combination of planes proves it. Otherwise the combination
    with the smallest gradient gives a direction away from zero. Returns the point, its gap and the number of steps.
    """
    d = problem.positives.d
    zero = problem.at(np.zeros(d))
    slope = 2.0 * problem.scale  # of a pair with equal scores
    planes = [zero.gradient]
    gap = 0.5 * float(zero.gradient @ zero.gradient)
    for step in range(1, _PLANES + 1):
        pull = _least(np.array(planes))
        gap = min(gap, 0.5 * float(pull @ pull))
        if gap <= tol * zero.value:
            return zero, gap, step
        u, v = problem.scores(-pull)
        p, q = problem.weights(u, v)
        plane = slope * (_mean(problem.negatives, q) - _mean(problem.positives, p))
        # the plane decreases along the step, and so does the problem
        if float(plane @ pull) > 0.5 * float(pull @ pull):
            break
        planes.append(plane)
    point = zero
    for length in 0.25 ** np.arange(1, 30):
        trial = problem.at(-length * pull)
        if trial.value < point.value:
            point = trial
        elif point is not zero:
            break
    return point, gap, len(planes)


def _least(planes: Array) -> Array:
    """The point with the smallest norm in the convex hull of some points, by non-negative least squares."""
    size = float(np.abs(planes).max()) or 1.0
    matrix = np.vstack([planes.T / size, np.ones(len(planes))])
    weights, _ = scipy.optimize.nnls(matrix, np.append(np.zeros(planes.shape[1]), 1.0))
    return np.asarray(weights @ planes / weights.sum())


def _mean(design: Design, weights: Array) -> Array:
    return np.asarray(design.X.T @ weights, dtype=np.float64)


def _gap(point: PairPoint, bound: PairPoint) -> float:
    return point.value - bound.value + 0.5 * float(bound.gradient @ bound.gradient)


def _along(problem: PairTop, point: PairPoint, move: _Step) -> tuple[float, PairPoint]:
    """The largest of the step lengths 1, 1/2, 1/4, ... with a decrease, and the point there.

    Returns 0 and the old point if rounding prevents a decrease.
    """
    length = 1.0
    du, dv = problem.scores(move.d)
    for _ in range(30):
        trial = problem.at_scores(point.w + length * move.d, point.u + length * du, point.v + length * dv)
        if trial.value <= point.value:
            return length, trial
        length *= 0.5
    return 0.0, point


def _newton_step(problem: PairTop, point: PairPoint, width: int, enough: float) -> _Step:
    hessian = problem.hessian(point)
    bands = [band for positive in (False, True) if (band := _band(problem, point, positive, width)) is not None]
    if not bands:
        d = -Metric(hessian, 1e-13).solve(point.gradient)
        return _Step(d, None)
    start = [band.weights for band in bands]
    d, value = np.zeros_like(point.w), np.inf
    for _ in range(_ALTERNATIONS if len(bands) > 1 else 1):
        last = value
        for band, now in zip(bands, start, strict=True):
            # The weights of the other class are fixed, so its lines are part of the gradient.
            rest = point.gradient - now @ band.A
            for other, before in zip(bands, start, strict=True):
                if other is not band:
                    rest = rest + (other.weights - before) @ other.A
            solved = solve_band(rest, hessian, band.A, band.values, band.caps, float(now.sum()), enough)
            band.weights, d, value = solved.weights, solved.step, solved.value
        if abs(last - value) <= enough:
            break
    return _Step(d, _weights_of(point, bands))


def _weights_of(point: PairPoint, bands: list[_Lines]) -> tuple[Array, Array]:
    """Feasible weights (p, q) of all positives and negatives; the rows of the bands have the weights found there."""
    p, q = point.p.copy(), point.q.copy()
    for band in bands:
        weights = p if band.positive else q
        total = float(weights[band.rows].sum())
        weights[band.rows] = _with_sum(np.clip(band.weights, 0.0, band.caps), band.caps, total)
    return p, q


def _with_sum(weights: Array, caps: Array, total: float) -> Array:
    """The weights, changed within [0, caps] so that they sum to `total`, which they miss by a rounding error."""
    lost = total - float(weights.sum())
    room = caps - weights if lost > 0 else weights
    size = float(room.sum())
    return weights + lost * room / size if size > 0 else weights


def _band(problem: PairTop, point: PairPoint, positive: bool, width: int) -> _Lines | None:
    """About `width` rows nearest the cut of one class, and all rows tied with them; None if nothing is cut."""
    caps = problem.positive_caps if positive else problem.negative_caps
    kept = problem.kept_positives if positive else problem.kept_negatives
    if float(caps.sum()) * (1.0 - 1e-12) <= kept:
        return None
    weights = point.p if positive else point.q
    scores = -point.u if positive else point.v
    inside = np.flatnonzero(caps > 0)
    cut = float(scores[weights > 0].min())
    distance = np.abs(scores[inside] - cut)
    position = min(len(distance) - 1, width)
    rows = inside[distance <= np.partition(distance, position)[position]]
    values, A = problem.lines(point, positive, rows)
    return _Lines(rows, values, A, caps[rows] / kept, weights[rows], positive)


def _by_gradients(problem: PairTop, point: PairPoint, tol: float, max_iter: int) -> tuple[PairPoint, float, int]:
    """Quasi-Newton steps for many columns. The gap uses the plain gradient, which stays large with ties at a cut."""

    def batch(Ws: Array) -> tuple[Array, Array]:
        points = [problem.at(W[0]) for W in Ws]
        return np.array([each.value for each in points]), np.array([each.gradient[None] for each in points])

    ends, _, steps = descend(batch, point.w[None, None], None, max_iter=max_iter, tol=0.01 * tol)
    found = problem.at(ends[0, 0])
    return found, 0.5 * float(found.gradient @ found.gradient), steps
