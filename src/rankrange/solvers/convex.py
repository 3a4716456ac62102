"""The solver of every convex problem of the product: risk of the losses x loss x penalty x rows, with a duality gap.

min over W of max over q of q . losses + penalty. Subtracting width/2 times a squared distance of the weights q from a
centre makes the maximum smooth; a piecewise linear loss, itself a maximum, is smoothed in the same way. Newton's method
minimises the smooth problem. When it has less to gain than the smoothing hides, the centre moves to the current weights
and the width shrinks. The largest of smooth losses need no smoothing close to a minimum: each step decides by a small
exact problem (`inner.band`) which rows near the cut cross it. Other steps are solved by conjugate gradients,
preconditioned by the Hessian of a sample of the rows: with few rows that is one factorisation, with many a few products
with X. With an l1 penalty a step minimises the quadratic model plus the penalty over a working set of coefficients.

The rows that F drops may change after every step that lowers F: the problem is an upper bound on F that equals it at W,
so F never increases, and the gap refers to the rows that are dropped in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.losses import Envelope, needs
from ..core.risks import Smooth, TopRisk, unchanging
from .descent import Metric, conjugate_gradients, relative
from .duality import duality_gap
from .inner.band import step_of_band
from .quadratic_net import quadratic_net

# The factor by which the width shrinks, and the smallest share of the spread of the losses.
_SHRINK, _LEAST = 0.2, 1e-4
# At a minimum about as many rows are at the cut as there are parameters: the first width reaches this many times that.
_AT_THE_CUT = 3
# The smoothing changes when a step gains less than the first share of what it hides, if the gap is not far above that
# either; or when it gains less than the second share.
_HIDDEN, _SOLVED = 0.1, 1e-4
# Gaps are computed when a step and the smoothing have at most this many tolerances to gain.
_NEAR = 100.0
# The sample of the preconditioner: rows per column, and at least this many.
_ROWS_PER_COLUMN, _FEW_ROWS = 50, 2000
# The largest number of parameters for a Hessian of all scores.
_MOST_PARAMETERS = 600
# Conjugate gradients of one step: the largest number, and the smallest and the largest relative residual.
_CG_STEPS, _CG_TOL = 100, (1e-4, 0.1)
# The largest change of a score in a step, relative to the largest score, and the largest number of doublings of a step.
_FARTHEST, _DOUBLINGS = 10.0, 6
# The band, the rows that may cross the cut in a step: rows per parameter, and at most, at first; the largest factor by
# which it widens before the problem is smoothed instead; and rows per parameter, and at least, of its Hessian.
_BAND, _WIDEST, _HESSIAN_ROWS = (10, 500), 4, (200, 8000)
# The first size of a working set of coefficients, which doubles in each step.
_WORKING = 64


class Solution(NamedTuple):
    """A solution: coefficients, their scores, the value, its relative gap, the number of steps, and the last weights.

    The weights are densities of the rows and weights of the margins of a piecewise linear loss, otherwise None.
    `problem` is the problem that was solved, to which the gap refers.
    """

    W: Array
    scores: Array
    value: float
    gap: float
    n_iter: int
    weights: Weights
    problem: Any


Weights = tuple[Array, Any]


class _At(NamedTuple):
    """The smoothed problem at W, whose scores are Z: its value, the losses, their slopes (r, n), and the risk."""

    W: Array
    Z: Array
    total: float
    s: Array
    slope: Array
    risk: Smooth


def minimise(
    problem: Any,
    W: Array | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 200,
    scores: Array | None = None,
    weights: Weights | None = None,
    cutting: Callable[[Array], Any] | None = None,
) -> Solution:
    """Minimise a convex problem from W until the relative gap is at most `tol`; the result is never above the start.

    The gap is the one that is proved, infinite if nothing is.

    Parameters
    ----------
    problem : ConvexProblem
        The problem. Its loss must be convex with curvature or margins, otherwise a TypeError is raised.
    W, scores : ndarray of shape (r, p) and (r, n), or None
        The initial coefficients, by default zero, and their scores, if they are known.
    max_iter : int, default=200
        Maximum number of Newton steps; with 0 only the gap at W is computed.
    weights : pair of ndarray or None
        The weights of the solution of a similar problem, around which the smoothing starts.
    cutting : callable or None
        The problem for given losses, if the rows that it drops depend on them: they are dropped anew after each step
        that lowers the value.
    """
    needs(problem.loss, problem.n_outputs)
    W = np.zeros((problem.n_outputs, problem.design.p)) if W is None else W
    Z = problem.design.scores(W) if scores is None else scores
    smoothing = _Smoothing(problem, W, Z, weights)
    at = smoothing.at(W, Z)
    best, bound, n_iter, size = (W, Z, smoothing.exact_value(W, Z)), -np.inf, 0, _WORKING
    recut_at, slope = best[2], -np.inf
    for _ in range(3 * max_iter):
        value = smoothing.exact_value(at.W, at.Z)
        if value < best[2]:
            best = (at.W, at.Z, value)
        if cutting is not None and value < recut_at - 0.1 * tol * abs(value):
            recut_at = value
            if smoothing.recut(cutting(problem.losses(at.Z))):
                at, bound, slope = smoothing.at(at.W, at.Z), -np.inf, -np.inf
        hidden = value - at.total
        gradient = smoothing.gradient(at)
        # The closer to the minimum, the more accurate the step: convergence is quadratic, and its slopes prove a gap.
        residual = float(np.clip(np.sqrt(max(-slope, 0.0) / max(abs(value), 1e-300)), *_CG_TOL))
        direction, slope = smoothing.direction(at, gradient, size, residual, tol * abs(value))
        dZ = problem.design.scores(direction)
        settled = not slope < -_HIDDEN * hidden
        if settled or max(hidden, -slope) <= _NEAR * tol * abs(value):
            gap = smoothing.gap(at, value)
            bound = max(bound, value - gap, value - smoothing.gap_ahead(at, dZ, value))
            if relative(best[2] - bound, value) <= tol:
                best = _last_step(smoothing, best, at, direction, dZ, slope)
                break
            settled = settled and (gap <= 2.0 * hidden or not slope < -_SOLVED * hidden)
        if n_iter >= max_iter:
            break
        if settled and smoothing.advance(at):
            at = smoothing.at(at.W, at.Z)
            continue
        reached, length = smoothing.search(at, direction, dZ, slope)
        n_iter, size = n_iter + 1, 2 * size
        at = at if reached is None else reached
        if reached is None or not smoothing.widened(length):
            if not smoothing.advance(at):
                break
            at = smoothing.at(at.W, at.Z)
    if not np.isfinite(bound):
        at = smoothing.at(*best[:2])
        bound = best[2] - smoothing.gap(at, best[2])
    last = at.risk.densities, smoothing.margin_weights(at)
    gap = relative(best[2] - bound, best[2])
    return Solution(*best, gap, n_iter, last, smoothing.problem)


def _last_step(smoothing: _Smoothing, best: Any, at: _At, direction: Array, dZ: Array, slope: float) -> Any:
    """The best point after one more step, which is known already and makes the coefficients far more accurate."""
    reached = smoothing.search(at, direction, dZ, slope)[0] if slope < 0 else None
    value = np.inf if reached is None else smoothing.exact_value(reached.W, reached.Z)
    return (reached.W, reached.Z, value) if reached is not None and value < best[2] else best


class _Smoothing:
    """A problem with the centre and the width of its smoothing; without any if its weights and slopes are smooth."""

    def __init__(self, problem: Any, W: Array, Z: Array, weights: Weights | None = None) -> None:
        self.problem, self.risk = problem, problem.risk
        self.linear = hasattr(problem.loss, "margins")
        self.exact = self.risk.fixed and not self.linear
        self.smooth_problem = problem
        self.width, self.band = 1.0, 0
        self.after: Any = None  # the weights at the end of the last step with a band
        self.centre, self.rho = self._exact_weights(Z) if weights is None else weights
        # Without a penalty and if no weight is free, the intercept has no curvature.
        self.ridge = np.maximum(problem.penalty_diagonal(), 1e-14)
        if problem.design.fit_intercept:
            self.ridge[-1] = 1e-10 * float(self.risk.exact(self._losses(Z))[1].sum())
        if not self.exact:
            self._set_width(self._first_width(W, Z))
            largest = isinstance(self.risk, TopRisk) and not (self.linear or problem.l1_ratio)
            if largest and not self.tied and problem.design.factored and W.size <= _MOST_PARAMETERS:
                self.band = self._first_band()

    def _first_band(self) -> int:
        return min(_BAND[0] * self.problem.design.p * self.problem.n_outputs, _BAND[1])

    def _losses(self, Z: Array) -> Array:
        return self.problem.losses(Z).astype(np.float64, copy=False)

    def _exact_weights(self, Z: Array) -> Weights:
        """The exact weights at the scores Z, and those of the margins of a piecewise linear loss."""
        densities = self.risk.densities(self.risk.exact(self._losses(Z))[1])
        if not self.linear:
            return densities, None
        margins = self._margins(Z)
        if getattr(self.problem.loss, "signed_margins", False):
            return densities, np.sign(margins)
        top = (margins == margins.max(axis=1, keepdims=True)) & (margins > 0)
        return densities, top / np.maximum(top.sum(axis=1, keepdims=True), 1)

    def _margins(self, Z: Array) -> Array:
        """The margins (n, J) of a piecewise linear loss at the scores Z (r, n)."""
        return np.asarray(self.problem.loss.margins(self.problem.y, Z[0] if len(Z) == 1 else Z.T))

    def _first_width(self, W: Array, Z: Array) -> float:
        """The first width: the spread of the losses or, for the largest losses, the distance of enough rows to the cut.

        Close to a minimum the latter is far smaller; if all losses are tied, as at zero, the spread is used.
        """
        s = self._losses(Z)
        q = self.risk.exact(s)[1]
        values = self._margins(Z).max(axis=1) if self.linear else s
        mass = max(float(q.sum()), 1e-300)
        spread = float(q @ np.abs(values - float(q @ values) / mass)) / mass
        value = self.exact_value(W, Z)
        spread = max(spread, 0.1 * float(q @ s) / mass, 0.01 * abs(value) / mass, 1e-12)
        self.least = _LEAST * spread
        if not isinstance(self.risk, TopRisk):
            return spread
        inside = self.risk.caps > 0
        off = np.abs(values[inside] if self.risk.fixed else s[inside] - s[q > 0].min())
        count = min(len(off), _AT_THE_CUT * W.size)
        near = float(np.partition(off, count - 1)[count - 1])
        self.tied = near == 0
        return spread if self.tied else min(max(near, self.least), spread)

    def recut(self, problem: Any) -> bool:
        """Drop other rows; False if they are the same."""
        same = np.array_equal(problem.risk.caps, self.risk.caps)
        if not same:
            self.problem, self.risk, self.smooth_problem = problem, problem.risk, problem
            self._set_width(self.width)
        return not same

    def _set_width(self, width: float) -> None:
        self.width = width
        if self.linear:
            envelope = Envelope(self.problem.loss, width, self.rho)
            self.smooth_problem = replace(self.problem, loss=envelope)

    def exact_value(self, W: Array, Z: Array) -> float:
        """The value of the problem itself."""
        return self.problem.value_at(W, self.problem.losses(Z))

    def at(self, W: Array, Z: Array) -> _At:
        """The smoothed problem at W, whose scores are Z."""
        s, slope = self.smooth_problem.losses_and_slopes(Z)
        s = s.astype(np.float64, copy=False)
        if self.band:
            value, q = self.risk.exact(s)
            risk = unchanging(value, q, self.risk.densities(q))
        else:
            risk = self.risk.smoothed(s, self.width, self.centre)
        return _At(W, Z, risk.value + self.problem.linear(W), s, slope, risk)

    def advance(self, at: _At) -> bool:
        """Move the centre to the current weights and shrink the width; False if nothing is smoothed."""
        if self.exact:
            return False
        if self.band:
            self.band = 0
            self.centre, self.rho = self._exact_weights(at.Z)
            self._set_width(self._first_width(at.W, at.Z))
            return True
        self.centre, self.rho = at.risk.densities, self.margin_weights(at)
        self._set_width(max(_SHRINK * self.width, self.least))
        return True

    def margin_weights(self, at: _At) -> Any:
        """The weights (n, J) of the margins of a piecewise linear loss, otherwise None."""
        if not self.linear:
            return None
        return self.smooth_problem.loss.rho(self.problem.y, at.Z[0] if len(at.Z) == 1 else at.Z.T)[0]

    def gradient(self, at: _At) -> Array:
        """The gradient (r, p) of the smoothed problem without the l1 norm."""
        problem = self.problem
        gradient = problem.design.adjoint(at.slope * at.risk.weights) + at.W * problem.penalty_diagonal()
        return gradient if problem.tilt is None else gradient - problem.tilt

    def slope_along(self, at: _At, gradient: Array, direction: Array) -> float:
        """The derivative along a direction, or a bound on the change of the l1 norm if there is one."""
        slope = float(np.vdot(gradient, direction))
        if self.problem.l1_ratio:
            d, unit = self.problem.design.d, self.problem.l1_ratio / self.problem.C
            before, after = at.W[:, :d], at.W[:, :d] + direction[:, :d]
            slope += unit * float(np.abs(after).sum() - np.abs(before).sum())
        return slope

    def direction(self, at: _At, gradient: Array, size: int, residual: float, little: float) -> tuple[Array, float]:
        """The step from here, and the derivative along it, twice the expected gain."""
        if not self.band:
            direction = _direction(self, at, gradient, size, residual)
            return direction, self.slope_along(at, gradient, direction)
        H = _band_hessian(self, at)
        direction, self.after, gain = step_of_band(self.problem, at, gradient, H, self.band, 1e-3 * little)
        return direction, -2.0 * gain

    def search(self, at: _At, direction: Array, dZ: Array, slope: float) -> tuple[_At | None, float]:
        """The first of the lengths 1, 1/2, ... with enough decrease, and that length; None if rounding hides any."""
        # Without curvature, for example if no weight is free, a Newton step has no natural length.
        longest = min(1.0, _FARTHEST * (1.0 + float(np.abs(at.Z).max())) / max(float(np.abs(dZ).max()), 1e-300))
        for length in longest * 0.5 ** np.arange(40):
            reached = self.at(at.W + length * direction, at.Z + length * dZ)
            if reached.total <= at.total + 1e-4 * length * slope:
                break
            if -length * slope <= 1e-17 * abs(at.total):
                return None, 0.0
        else:
            return None, 0.0
        # Losses that tend to zero, as of separable rows, are flatter than their quadratic model.
        for _ in range(_DOUBLINGS if length == 1.0 and at.total - reached.total > -0.6 * slope else 0):
            length *= 2.0
            farther = self.at(at.W + length * direction, at.Z + length * dZ)
            if not farther.total < reached.total:
                break
            reached = farther
        return reached, float(length)

    def widened(self, length: float) -> bool:
        """Adapt the band: a short step means that it was too narrow. False if it would be too wide."""
        if self.band:
            self.band = 4 * self.band if length < 0.5 else max(self.band // 2, self._first_band())
        return self.band <= _WIDEST * self._first_band()

    def gap(self, at: _At, value: float) -> float:
        """The proved gap of the problem itself at W, from the weights and slopes of the smoothed problem."""
        return self._gap(at, at.risk.weights, at.slope, value)

    def gap_ahead(self, at: _At, dZ: Array, value: float) -> float:
        """The gap with the weights and slopes that a step with the scores dZ leads to, to first order.

        Close to the minimum, or with a weak penalty, they are far better than those at W.
        """
        slope = at.slope + self.bent(at)(dZ)
        q = self.after
        if not self.band:
            ds = np.einsum("rn,rn->n", at.slope, dZ)
            q = self.risk.smoothed(at.s + ds, self.width, self.centre).weights
        return self._gap(at, q, slope, value)

    def _gap(self, at: _At, q: Array, slope: Array, value: float) -> float:
        return duality_gap(self.problem, at.W, at.Z, q, slope, value - self.problem.linear(at.W))

    def bent(self, at: _At) -> Callable[[Array], Array]:
        """The function dZ -> the change (r, n) of the slopes of the losses."""
        problem = self.smooth_problem
        if problem.n_outputs == 1:
            h = problem.loss.curvature(problem.y, at.Z[0])
            return lambda dZ: h * dZ
        operator = problem.loss.hessian_operator(problem.y, at.Z.T)
        return lambda dZ: operator(dZ.T).T

    def product(self, at: _At) -> Callable[[Array], Array]:
        """The function V (r, p) -> the Hessian of the smoothed problem times V."""
        design, bent, ridge = self.problem.design, self.bent(at), self.ridge

        def product(V: Array) -> Array:
            dZ = design.scores(V)
            change = at.risk.weights * bent(dZ)
            if len(at.risk.free):
                change = change + at.slope * at.risk.change(np.einsum("rn,rn->n", at.slope, dZ))
            return design.adjoint(change) + ridge * V

        return product

    def curvatures(self, at: _At) -> Array:
        """The second derivatives (r, n) of the weighted losses, each with respect to one score."""
        bent, r = self.bent(at), self.problem.n_outputs
        units = np.eye(r)[:, :, None] * np.ones(at.Z.shape[1])
        return at.risk.weights * np.array([bent(units[c])[c] for c in range(r)])


def _direction(smoothing: _Smoothing, at: _At, gradient: Array, size: int, residual: float) -> Array:
    """The Newton step (r, p): by conjugate gradients, or over a working set of coefficients with an l1 penalty."""
    if smoothing.problem.l1_ratio:
        return _proximal_step(smoothing, at, gradient, size)
    return conjugate_gradients(smoothing.product(at), -gradient, _preconditioner(smoothing, at), residual, _CG_STEPS)


def _band_hessian(smoothing: _Smoothing, at: _At) -> Array:
    """The Hessian (r p, r p) with the weights of F, but those of the last step for rows that share the cut.

    At a minimum these rows have weights between 0 and their caps, and with others steps converge only linearly.
    """
    q, caps = at.risk.weights, smoothing.risk.caps / smoothing.risk.K
    if smoothing.after is not None:
        q = np.where((smoothing.after > 0) & (smoothing.after < caps), smoothing.after, q)
    most = max(_HESSIAN_ROWS[0] * at.W.size, _HESSIAN_ROWS[1])
    weighted = at._replace(risk=unchanging(at.total, q, q))
    if len(at.W) == 1:
        return _gram(smoothing, smoothing.curvatures(weighted)[0], most)
    output, column = np.divmod(np.arange(at.W.size), at.W.shape[1])
    return _hessian(smoothing, weighted, output, column, most)


def _gram(smoothing: _Smoothing, h: Array, most: int) -> Array:
    """The Hessian (p, p) of one score, for the curvatures h (n,) of the rows, of which a sample is used."""
    rows = np.flatnonzero(h)
    every = max(1, len(rows) // most)
    matrix = smoothing.problem.design.gram(every * h[rows[::every]], rows[::every])
    matrix[np.diag_indices_from(matrix)] += smoothing.ridge
    return matrix


def _preconditioner(smoothing: _Smoothing, at: _At) -> Callable[[Array], Array]:
    """An approximate inverse of the Hessian: of a sample of rows, or a diagonal with many columns."""
    design, r = smoothing.problem.design, smoothing.problem.n_outputs
    if not design.factored:
        return _centred_diagonal(smoothing, at)
    most = max(_ROWS_PER_COLUMN * design.p, _FEW_ROWS)
    if 1 < r <= _MOST_PARAMETERS / design.p and not smoothing.linear:
        output, column = np.divmod(np.arange(r * design.p), design.p)
        metric = Metric(_hessian(smoothing, at, output, column, most), 1e-13)
        return lambda G: metric.solve(G.reshape(1, -1)).reshape(G.shape)
    # One metric for all scores: a common shift of all scores, which changes no loss, stays one.
    h = smoothing.curvatures(at).mean(axis=0)
    if r > 1 and at.risk.map is None:
        h[at.risk.free] += at.risk.rates * (at.slope[:, at.risk.free] ** 2).mean(axis=0)
    matrix = _gram(smoothing, h, most)
    if r == 1 and len(at.risk.free):
        risk = at.risk.sampled(most)
        factor = risk.factor(_unit_gradients(risk, design, at.slope[0]))
        matrix += factor.T @ factor
    return Metric(matrix, 1e-13).solve


def _unit_gradients(risk: Smooth, design: Any, slope: Array) -> Array:
    """The gradients (free units, p) of the losses of the free units, for one score."""
    if risk.map is None:
        return design.dense(risk.free) * slope[risk.free, None]
    return np.stack([design.adjoint(row.toarray() * slope)[0] for row in risk.map[risk.free]])


def _centred_diagonal(smoothing: _Smoothing, at: _At) -> Callable[[Array], Array]:
    """A diagonal, after centring the columns by the curvatures: the intercept correlates with frequent columns."""
    design, ridge = smoothing.problem.design, smoothing.ridge
    h = smoothing.curvatures(at)
    if len(at.risk.free) and at.risk.map is None:
        h[:, at.risk.free] += at.risk.rates * at.slope[:, at.risk.free] ** 2
    diagonal = np.stack([design.squares(of_score) for of_score in h]) + ridge
    if not design.fit_intercept:
        return lambda G: G / diagonal
    sums = design.adjoint(h)
    total = np.maximum(sums[:, -1:], 1e-300)
    means = sums[:, :-1] / total
    centred = np.maximum(diagonal[:, :-1] - means**2 * total, np.maximum(ridge[:-1], 1e-6 * diagonal[:, :-1]))

    def solve(G: Array) -> Array:
        V = np.empty_like(G)
        V[:, :-1] = (G[:, :-1] - means * G[:, -1:]) / centred
        V[:, -1:] = G[:, -1:] / diagonal[:, -1:] - (means * V[:, :-1]).sum(axis=1, keepdims=True)
        return V

    return solve


def _proximal_step(smoothing: _Smoothing, at: _At, gradient: Array, size: int) -> Array:
    """The step to the minimum of the quadratic model plus the penalty, over a working set of coefficients.

    The set has the nonzero coefficients and those with the largest slopes, at least `size` and as many again.
    """
    problem, d = smoothing.problem, smoothing.problem.design.d
    used = at.W[:, :d].ravel() != 0
    order = np.where(used, np.inf, np.abs(gradient[:, :d]).ravel())
    count = min(max(size, 2 * int(used.sum())), len(order))
    chosen = np.sort(np.argpartition(-order, count - 1)[:count]) if count else np.zeros(0, dtype=np.intp)
    output, column = np.divmod(chosen, max(d, 1))
    n_penalised = len(chosen)
    if problem.design.fit_intercept:
        output = np.append(output, np.arange(problem.n_outputs))
        column = np.append(column, np.full(problem.n_outputs, d))
    H, theta = _hessian(smoothing, at, output, column), at.W[output, column]
    found = quadratic_net(H, gradient[output, column], theta, n_penalised, problem.l1_ratio / problem.C)
    direction = np.zeros_like(at.W)
    direction[output, column] = found - theta
    return direction


def _hessian(smoothing: _Smoothing, at: _At, output: Array, column: Array, most: int | None = None) -> Array:
    """The Hessian for some parameters, given by output and column; with `most` that of a sample of the rows."""
    design, r = smoothing.problem.design, smoothing.problem.n_outputs
    every = 1 if most is None else max(1, design.n // most)
    unique, place = np.unique(column, return_inverse=True)
    block = design.columns(unique)
    sample = block if every == 1 else block[::every]
    bent, H = smoothing.bent(at), np.zeros((len(column), len(column)))
    units = np.eye(r)[:, :, None] * np.ones(at.Z.shape[1])
    members = [np.flatnonzero(output == c) for c in range(r)]
    for c in range(r):
        change = every * at.risk.weights * bent(units[c])
        for other in range(c, r):
            pair = design.between(
                sample[:, place[members[c]]], change[other, ::every], sample[:, place[members[other]]]
            )
            H[np.ix_(members[c], members[other])], H[np.ix_(members[other], members[c])] = pair, pair.T
    if len(at.risk.free):
        risk = at.risk if most is None else at.risk.sampled(most)
        factor = risk.factor(_gradients_of_units(risk, at.slope, block, output, place))
        H += factor.T @ factor
    H[np.diag_indices_from(H)] += smoothing.ridge[column]
    return H


def _gradients_of_units(risk: Smooth, slope: Array, block: Any, output: Array, place: Array) -> Array:
    """The gradients (free units, parameters) of the losses of the free units, for columns of `block`."""
    if risk.map is None:
        rows = block[risk.free]
        rows = rows.toarray() if sp.issparse(rows) else rows
        return rows[:, place] * slope[:, risk.free].T[:, output]
    units = risk.map[risk.free]
    return np.stack([units @ (slope[c] * _column(block, j)) for c, j in zip(output, place, strict=True)], axis=1)


def _column(block: Any, j: int) -> Array:
    return block[:, [j]].toarray()[:, 0] if sp.issparse(block) else block[:, j]
