"""The exact solver of the convex problem: the sum of the largest losses, to a duality gap.

A proximal method of multipliers. The problem is a maximum over weights q of something linear in q; subtracting
(mu/2)||q - centre||^2 makes it smooth in W, with q = clip(centre + (loss - lam)/mu, 0, 1) and lam >= 0 set so that q
has the mass K. Newton steps on W (the map is piecewise smooth, so they are semismooth Newton steps), then the centre
moves to q and mu shrinks. A piecewise linear loss is itself a maximum over its margins, and the same q ranges over
them: hinge and Crammer-Singer need no smoothing of their own.

The gap is rigorous: every feasible q gives a lower bound on the least value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse.linalg

from ...core.arrays import Array
from ...core.losses import needs
from ...core.objective import Design, TopSum
from ..descent import Metric, descend
from ..result import relative
from .simplex import level_of_mass, onto_simplex

# Newton steps factor a p x p Hessian built from all rows; beyond this much work, quasi-Newton steps are quicker.
_NEWTON_WORK = 1e10
_NEWTON_COLUMNS = 1000
_SHRINK = 0.2
_BLOCK = 1 << 15


class Solution(NamedTuple):
    W: Array
    scores: Array
    value: float
    gap: float  # relative
    n_iter: int


def solve(
    problem: TopSum,
    W: Array,
    scores: Array | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 100,
    metric: Metric | None = None,
    warm: bool = False,
) -> Solution:
    """Minimise `problem` from W until the relative gap is at most `tol`; what is returned is never above the start.

    Products with X are what costs: `scores`, those of W, are carried along wherever they are known. `warm` says that W
    is close to a solution, so that little smoothing is needed.
    """
    Z = problem.design.scores(W) if scores is None else scores
    saddle = Saddle(problem)
    newton = _newton_pays(problem)
    value = problem.value_at(W, Z)
    best, gap, n_iter, stalled = (W, Z), np.inf, 0, 0
    if warm and saddle.cut_matters:
        gap = saddle.gap_near_cut(W, Z, value)
    if relative(gap, value) > tol and not saddle.exact:
        saddle.start_smoothing(Z, warm)
    while relative(gap, value) > tol:
        bound = saddle.gap(Z, value)
        stalled = 0 if bound < 0.9 * gap or not saddle.sharp else stalled + 1
        gap = min(gap, bound)
        if relative(gap, value) <= tol or n_iter >= max_iter or stalled >= 5:
            break
        if newton:
            W, Z, steps = saddle.newton(W, Z, min(25, max_iter - n_iter), 0.1 * tol * abs(value), metric)
        else:
            W, Z, steps = saddle.quasi_newton(W, min(50, max_iter - n_iter), 1e-3 * tol, metric)
        n_iter += max(1, steps)
        reached = problem.value_at(W, Z)
        if reached < value:
            gap -= value - reached
            best, value, stalled = (W, Z), reached, 0
        saddle.advance(Z)
    if warm and relative(gap, value) > tol and n_iter < max_iter:  # not so close after all: smooth more
        cold = solve(problem, *best, tol=tol, max_iter=max_iter - n_iter, metric=metric)
        return cold._replace(gap=min(cold.gap, relative(gap, value)), n_iter=n_iter + cold.n_iter)
    return Solution(*best, value, relative(gap, value), n_iter)


def _newton_pays(problem: TopSum) -> bool:
    n, p, r = problem.design.n, problem.design.p, problem.n_outputs
    if r > 1:  # conjugate gradients: some tens of products with X a step
        return n * p * r <= _NEWTON_WORK / 1000
    return p <= _NEWTON_COLUMNS and n * p**2 <= _NEWTON_WORK


class Answer(NamedTuple):
    """The smoothed problem at some scores: its value (without penalty), the weights, and how they may move."""

    value: float
    rho: Array  # (n, J), each row in the simplex {rho >= 0, sum <= 1}
    slope: Array | None  # (r, n) of a smooth loss
    free: Array  # (n,) True where the sum of rho moves with the loss
    full: Array  # (n,) True where that sum is 1, and rho can only shift between margins
    level_moves: bool  # lam > 0, so the free weights move against each other


class Saddle:
    """The smoothed problem, its centre and its mu."""

    def __init__(self, problem: TopSum) -> None:
        self.problem = problem
        needs(problem.loss, problem.n_outputs, "the exact convex solver", "Use solver='subgradient'.")
        self.linear = hasattr(problem.loss, "margins")
        n = problem.design.n
        self.caps = np.ones(n) if problem.caps is None else problem.caps.astype(np.float64, copy=False)
        # With a smooth loss and no cut all weights are 1: nothing is smoothed, and one round is exact.
        self.exact = problem.takes_all and not self.linear
        self.signed = getattr(problem.loss, "signed_margins", False)
        self.mu = 1.0

    def start_smoothing(self, Z: Array, warm: bool) -> None:
        """The centre at the exact weights, mu at the spread of the losses."""
        values, _ = self._pieces(Z)
        s = np.abs(values[:, 0]) if self.signed else np.maximum(values.max(axis=1), 0.0)
        self.centre = self._shares(s)[:, None]
        if self.signed:
            self.centre = self.centre * np.sign(values)
        elif self.linear:
            top = (values == values.max(axis=1, keepdims=True)) & (values > 0)
            self.centre = self.centre * top / np.maximum(top.sum(axis=1, keepdims=True), 1)
        inside = s[self.caps > 0]
        # Margins keep their spread where the losses, which are cut off at zero, have none left.
        spread = values.max(axis=1)[self.caps > 0] if self.linear else inside
        self.mu = max(float(np.abs(spread - spread.mean()).mean()), 0.1 * float(inside.mean()), 1e-12)
        self.least_mu = 1e-4 * self.mu
        self.lam = 0.0
        near = 2 * self.problem.design.p
        if warm and not self.problem.takes_all and near < len(inside):
            # At a solution about as many rows tie at the cut as there are parameters: smooth over few more than these.
            cut = self.problem.lower_cut(s)
            width = float(np.partition(np.abs(inside - cut), near)[near])
            self.mu = min(self.mu, max(width, self.least_mu))

    @property
    def cut_matters(self) -> bool:
        """Whether there is a cut, and far more rows than those that may tie at it."""
        problem = self.problem
        few = problem.design.n <= 100 * problem.design.p
        return not (self.exact or self.signed or few or problem.n_outputs > 1 or problem.tilt is not None)

    @property
    def sharp(self) -> bool:
        """Whether mu is as small as it gets, so that a further round changes the centre alone."""
        return self.exact or self.mu <= self.least_mu

    def _shares(self, s: Array) -> Array:
        q = self.problem.weights(s).astype(np.float64, copy=False)
        return np.divide(q, self.caps, out=np.zeros(len(q)), where=self.caps > 0)

    def _pieces(self, Z: Array) -> tuple[Array, Array | None]:
        problem = self.problem
        if self.linear:
            margins = problem.loss.margins(problem.y, Z[0] if problem.n_outputs == 1 else Z.T)
            return margins.astype(np.float64, copy=False), None
        s, slope = problem.losses_and_slopes(Z)
        return s.astype(np.float64, copy=False)[:, None], slope

    def answer(self, Z: Array) -> Answer:
        values, slope = self._pieces(Z)
        if self.exact:
            rho = np.ones_like(values)
            none = np.zeros(len(values), dtype=bool)
            return Answer(float(self.caps @ values[:, 0]), rho, slope, none, ~none, False)
        pushed = self.centre + values / self.mu
        signs = np.sign(pushed) if self.signed else 1.0
        pushed = pushed * signs
        level = self._level(pushed)
        rho = np.maximum(pushed - level, 0.0)
        sums = rho.sum(axis=1)
        full = sums >= 1.0
        if values.shape[1] == 1:
            rho = np.minimum(rho, 1.0)
        else:
            rho[full] = onto_simplex(pushed[full])
        rho = rho * signs
        prox = 0.5 * self.mu * ((rho - self.centre) ** 2).sum(axis=1)
        value = float(self.caps @ (_weighted(rho, values) - prox))
        return Answer(value, rho, slope, (sums > 0) & ~full & (self.caps > 0), full, level > 0)

    def _level(self, pushed: Array) -> float:
        """lam / mu: the least level >= 0 at which the weights have at most the mass K."""
        level = level_of_mass(pushed, self.caps, self.problem.K, self.lam / self.mu)
        if level > 0:
            self.lam = level * self.mu  # the next search starts here: the cut changes little from step to step
        return level

    def _pull(self, answer: Answer) -> Array:
        """The derivative of the smoothed sum in the scores, (r, n)."""
        problem = self.problem
        weighted = self.caps[:, None] * answer.rho / problem.scale
        if answer.slope is not None:
            return answer.slope * weighted[:, 0]
        pulled = problem.loss.margins_adjoint(problem.y, weighted)
        return pulled[None, :] if problem.n_outputs == 1 else pulled.T

    def smoothed(self, W: Array) -> tuple[float, Array]:
        answer = self.answer(self.problem.design.scores(W))
        return self._total(answer, W), self._gradient(answer, W)

    def _total(self, answer: Answer, W: Array) -> float:
        return answer.value / self.problem.scale + self.problem.penalty(W) - self.problem.tilt_at(W)

    def _gradient(self, answer: Answer, W: Array) -> Array:
        gradient = self.problem.design.adjoint(self._pull(answer)) + self.problem.penalty_gradient(W)
        return gradient if self.problem.tilt is None else gradient - self.problem.tilt

    def newton(
        self, W: Array, Z: Array, max_steps: int, enough: float, metric: Metric | None
    ) -> tuple[Array, Array, int]:
        """Newton steps until what is left to gain, and what the gradient adds to the gap, are below `enough`."""
        design = self.problem.design
        answer = self.answer(Z)
        value = self._total(answer, W)
        for step in range(max_steps):
            gradient = self._gradient(answer, W)
            direction = self._newton_direction(Z, answer, gradient, metric)
            decrement = -float(np.vdot(direction, gradient)) / 2
            if (decrement <= enough and self._slack(gradient) <= enough) or decrement <= 1e-17 * abs(value):
                return W, Z, step
            dZ = design.scores(direction)
            # Where nothing bends the problem, as where no row is free, a Newton step has no length of its own.
            length = min(1.0, 10.0 * (1.0 + float(np.abs(Z).max())) / max(float(np.abs(dZ).max()), 1e-300))
            for _ in range(40):
                trial = self.answer(Z + length * dZ)
                trial_value = self._total(trial, W + length * direction)
                if trial_value <= value - 1e-4 * length * decrement:
                    break
                length *= 0.5
            else:
                return W, Z, step  # rounding: no step lowers the value any more
            W, Z, answer, value = W + length * direction, Z + length * dZ, trial, trial_value
        return W, Z, max_steps

    def _slack(self, gradient: Array) -> float:
        """About what this gradient of the smoothed problem adds to the gap: the intercept's part only once."""
        d = self.problem.design.d
        return 0.5 * self.problem.C * float(np.vdot(gradient[:, :d], gradient[:, :d])) + 10 * float(
            np.abs(gradient[:, d:]).sum()
        )

    def _newton_direction(self, Z: Array, answer: Answer, gradient: Array, metric: Metric | None) -> Array:
        if self.problem.n_outputs == 1:
            return -Metric(self._hessian(Z, answer)).solve(gradient)
        design, shape = self.problem.design, gradient.shape
        ridge = self.problem.penalty_diagonal() + 1e-9
        bend = None if self.linear else self.problem.loss.hessian_operator(self.problem.y, Z.T)

        def product(v: Array) -> Array:
            V = v.reshape(shape)
            change = self._pull_change(design.scores(V), answer, bend)
            return (design.adjoint(change) + ridge * V).ravel()

        operator = scipy.sparse.linalg.LinearOperator((gradient.size, gradient.size), matvec=product)
        precondition = None
        if metric is not None:
            precondition = scipy.sparse.linalg.LinearOperator(
                operator.shape, matvec=lambda v: metric.solve(v.reshape(shape)).ravel()
            )
        solved, _ = scipy.sparse.linalg.cg(operator, -gradient.ravel(), rtol=1e-3, maxiter=200, M=precondition)
        if not np.isfinite(solved).all() or solved @ gradient.ravel() >= 0:
            return -gradient if metric is None else -metric.solve(gradient)
        return solved.reshape(shape)

    def _pull_change(self, dZ: Array, answer: Answer, bend: Callable[[Array], Array] | None) -> Array:
        """The derivative of `_pull` in the direction dZ, (r, n)."""
        problem = self.problem
        if self.linear:
            support = answer.rho > 0
            move = np.where(support, problem.loss.margins_change(problem.y, dZ.T), 0.0)
            count = np.maximum(support.sum(axis=1), 1)
            move -= np.where(answer.full, move.sum(axis=1) / count, 0.0)[:, None] * support
        else:
            support = answer.free[:, None]
            slope = np.asarray(answer.slope)
            move = np.einsum("rn,rn->n", slope, dZ)[:, None] * support
        if answer.level_moves:
            mass = (self.caps * answer.free)[:, None] * support
            if mass.any():
                move = move - (mass * move).sum() / mass.sum() * (support & answer.free[:, None])
        move = move * (self.caps / (self.mu * problem.scale))[:, None]
        if bend is None:
            return problem.loss.margins_adjoint(problem.y, move).T
        return slope * move[:, 0] + bend(dZ.T).T * (self.caps * answer.rho[:, 0] / problem.scale)

    def _hessian(self, Z: Array, answer: Answer) -> Array:
        problem, design = self.problem, self.problem.design
        rho = np.abs(answer.rho).sum(axis=1)
        slope = self._unit_slope(answer)
        moving = self.caps * answer.free
        h = self.caps * rho * problem.loss.curvature(problem.y, Z[0]) + moving * slope**2 / self.mu
        hessian = design.gram(h)
        if answer.level_moves and moving.any():
            pulled = design.adjoint((moving * slope)[None, :])[0]
            hessian -= np.outer(pulled, pulled) / (self.mu * moving.sum())
        hessian /= problem.scale
        hessian[np.diag_indices_from(hessian)] += problem.penalty_diagonal()
        # Where no row is free the intercept has no curvature at all.
        hessian[-1, -1] += 1e-9
        return hessian

    def _unit_slope(self, answer: Answer) -> Array:
        """ds/dz of a loss of one score, or of its one margin."""
        if answer.slope is not None:
            return answer.slope[0]
        ones = np.sign(answer.rho) if self.signed else np.ones_like(answer.rho)
        return self.problem.loss.margins_adjoint(self.problem.y, ones)

    def quasi_newton(self, W: Array, max_steps: int, tol: float, metric: Metric | None) -> tuple[Array, Array, int]:
        def batch(Ws: Array) -> tuple[Array, Array]:
            values, gradients = zip(*(self.smoothed(each) for each in Ws), strict=True)
            return np.array(values), np.array(gradients)

        ends, _, steps = descend(batch, W[None], metric, max_iter=max_steps, tol=tol)
        return ends[0], self.problem.design.scores(ends[0]), steps

    def advance(self, Z: Array) -> None:
        """The centre moves to the present weights, and the smoothing shrinks."""
        if not self.exact:
            self.centre = self.answer(Z).rho
            self.mu = max(self.mu * _SHRINK, self.least_mu)

    def gap(self, Z: Array, value: float) -> float:
        """value - a lower bound on the least value.

        With a tilt it is an estimate that stops a solver, not a proof: the slopes would have to add up to the tilt of
        the intercept exactly.
        """
        if self.exact and self.problem.tilt is None:
            return value - self._blockwise_bound(Z)
        return value - self._lower_bound(Z, self.answer(Z))

    def _blockwise_bound(self, Z: Array, rho: Array | None = None) -> float:
        """`_lower_bound` of a loss of one piece, block by block, so that no vector of length n is made.

        Where all rows count whole (rho is None) the slopes are taken at scores shifted so that they add up to zero, as
        they must at the best intercept.
        """
        problem, design = self.problem, self.problem.design
        shift = self._balancing_shift(Z) if design.fit_intercept and rho is None else np.zeros(problem.n_outputs)
        keep = np.ones(max(2, problem.n_outputs))
        if design.fit_intercept:
            flow = np.zeros((problem.n_outputs, len(keep)))
            for block, _, _, u in self._blocks(Z, shift, rho):
                np.add.at(flow.T, self._side(block, u), u.T)
            keep = self._balance(flow)
        bound, v = 0.0, np.zeros((problem.n_outputs, design.p))
        for block, z, weighted, u in self._blocks(Z, shift, rho):
            factor = keep[self._side(block, u)]
            bound += float(factor @ (weighted - np.einsum("rn,rn->n", u, z)))
            v += Design(design.X[block], design.fit_intercept).adjoint(u * factor)
        v = v[:, : design.d]
        return bound - 0.5 * problem.C * float(np.vdot(v, v))

    def _blocks(self, Z: Array, shift: Array, rho: Array | None = None) -> Iterator[tuple[slice, Array, Array, Array]]:
        """(rows, scores, weighted losses, weighted slopes) at the scores Z - shift."""
        problem = self.problem
        for start in range(0, problem.design.n, _BLOCK):
            block = slice(start, start + _BLOCK)
            part = Saddle(replace(problem, y=problem.y[block], caps=self.caps[block]))
            z = Z[:, block] - shift[:, None]
            values, slope = part._pieces(z)
            share = np.ones_like(values) if rho is None else rho[block]
            none = np.zeros(len(values), dtype=bool)
            u = part._pull(Answer(0.0, share, slope, none, none, False))
            yield block, z, values[:, 0] * share[:, 0] * (part.caps / problem.scale), u

    def _balancing_shift(self, Z: Array) -> Array:
        """The shift of all scores after which the weighted slopes add up to zero."""
        problem, r = self.problem, self.problem.n_outputs
        shift = np.zeros(r)
        for _ in range(10):
            residual, size, curvature = np.zeros(r), 0.0, np.zeros((r, r))
            for block, z, _, u in self._blocks(Z, shift):
                residual += u.sum(axis=1)
                size += float(np.abs(u).sum())
                h = self.caps[block] / problem.scale
                if r == 1:
                    curvature += h @ problem.loss.curvature(problem.y[block], z[0])
                else:
                    curvature += problem.loss.curvature_sum(problem.y[block], z.T, h)
            if np.abs(residual).max() <= 1e-10 * size or not curvature.any():  # `_balance` takes care of the rest
                break
            shift = shift + np.linalg.lstsq(curvature, residual, rcond=1e-12)[0]
        return shift

    def _side(self, rows: slice, pulled: Array) -> Array:
        """Which factor of `_balance` a row takes: by the sign of its slope, or by its class."""
        return (pulled[0] > 0).astype(np.intp) if self.problem.n_outputs == 1 else self.problem.y[rows]

    def _lower_bound(self, Z: Array, answer: Answer) -> float:
        """Each loss is at least its tangent, so W may minimise the weighted tangents and the penalty instead."""
        problem = self.problem
        pulled = self._pull(answer)
        values, _ = self._pieces(Z)
        offsets = _weighted(answer.rho, values) * (self.caps / problem.scale)
        offsets -= np.einsum("rn,rn->n", pulled, Z)
        if problem.tilt is not None:
            v = (problem.design.adjoint(pulled) - problem.tilt)[:, : problem.design.d]
            return float(offsets.sum()) - 0.5 * problem.C * float(np.vdot(v, v))
        if problem.design.fit_intercept:
            every = slice(None)
            side = self._side(every, pulled)
            flow = np.zeros((problem.n_outputs, 2 if problem.n_outputs == 1 else problem.n_outputs))
            np.add.at(flow.T, side, pulled.T)
            keep = self._balance(flow)[side]
            pulled, offsets = pulled * keep, offsets * keep
        v = problem.design.adjoint(pulled)[:, : problem.design.d]
        return float(offsets.sum()) - 0.5 * problem.C * float(np.vdot(v, v))

    def gap_near_cut(self, W: Array, Z: Array, value: float) -> float:
        """The gap with the best weights for the rows near the cut, all others being surely in or out.

        Close to a solution only those rows are undecided, some per parameter, so the weights come from a small
        problem: these rows' tangents, a tilt that stands for all rows that are in, and the penalty.
        """
        problem, design = self.problem, self.problem.design
        values, slope = self._pieces(Z)
        values = values[:, 0]
        cut = max(problem.lower_cut(values), 0.0)
        distance = np.abs(values - cut)
        distance[self.caps <= 0] = np.inf
        n_band = 10 * design.p
        band = np.flatnonzero(distance <= np.partition(distance, n_band)[n_band])[: 2 * n_band]
        del distance
        sure = values > cut
        sure &= self.caps > 0
        sure[band] = False
        unit = self._unit_slope(Answer(0.0, np.broadcast_to(1.0, (design.n, 1)), slope, sure, sure, False))
        at_band = (values[band], unit[band])
        del values, slope
        pull = unit * sure
        pull *= self.caps
        tilt = -design.adjoint(pull[None, :]) / problem.scale - problem.penalty_gradient(W)
        del unit, pull
        small = TopSum(
            design.take(band),
            np.empty(len(band)),
            _Tangents(*at_band),
            problem.C,
            K=problem.K - float(self.caps @ sure),
            scale=problem.scale,
            caps=self.caps[band],
            tilt=tilt,
        )
        start = np.zeros_like(W)
        step, dZ = start, small.design.scores(start)
        inner = Saddle(small)
        inner.start_smoothing(dZ, warm=True)
        for _ in range(8):
            step, dZ, steps = inner.newton(step, dZ, 25, 1e-9 * abs(value), None)
            inner.advance(dZ)
            if steps == 0:
                break
        rho = sure.astype(np.float64)[:, None]
        rho[band] = inner.centre
        return value - self._blockwise_bound(Z, rho)

    def _balance(self, flow: Array) -> Array:
        """Factors in [0, 1], one a side, that make the slopes add up to zero exactly.

        A slope times such a factor is still the slope of a line below the loss, because losses are not negative. With
        one score the heavier side is scaled down; with several, one factor a class: the stationary distribution of
        the flow of slope between the classes.
        """
        if self.problem.n_outputs == 1:
            size = np.abs(flow[0])
            return np.divide(size.min(), size, out=np.zeros(2), where=size > 0)
        _, _, basis = np.linalg.svd(flow)
        factor = np.abs(basis[-1])
        if np.abs(flow @ factor).max() > 1e-9 * np.abs(flow).sum():
            # Slopes that do not add up to zero within a row, as those of one loss per class, have no such factors: no
            # bound but zero is proved.
            return np.zeros_like(factor)
        return factor / factor.max()


class _Tangents:
    """Losses that are their own tangents: value + slope * z."""

    def __init__(self, value: Array, slope: Array) -> None:
        self.at_zero, self.slope = value, slope

    def value(self, y: Array, z: Array) -> Array:
        return np.maximum(self.at_zero + self.slope * z, 0.0)

    def curvature(self, y: Array, z: Array) -> Array:
        return np.zeros_like(z)

    def margins(self, y: Array, z: Array) -> Array:
        return (self.at_zero + self.slope * z)[:, None]

    def margins_adjoint(self, y: Array, a: Array) -> Array:
        return self.slope * a[:, 0]


def _weighted(rho: Array, values: Array) -> Array:
    """Row sums of rho * values; a margin of -inf, which a class has over itself, has no weight."""
    if values.shape[1] == 1:
        return rho[:, 0] * values[:, 0]
    return (rho * np.where(np.isfinite(values), values, 0.0)).sum(axis=1)
