"""The exact solver of the convex problem (the sum of the largest losses), with a duality gap.

It is a proximal method of multipliers. The problem is a maximum over weights q of a function that is linear in q.
Subtracting (mu/2)||q - centre||^2 makes it smooth in W, with q = clip(centre + (loss - lam)/mu, 0, 1) and lam >= 0 such
that q has the mass K. Each round makes semismooth Newton steps on W, then moves the centre to q and decreases mu. A
piecewise linear loss is itself a maximum over its margins, and the same q weights them, so hinge and Crammer-Singer
losses need no other smoothing.

The gap is rigorous, because every feasible q gives a lower bound on the minimum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse.linalg

from ...core.arrays import Array
from ...core.objective import TopSum
from ..descent import Metric, descend, relative
from .bounds import Answer, Bounds, level_of_mass, onto_simplex, weighted

# Newton steps factor a p x p Hessian of all rows; above this cost, quasi-Newton steps are faster.
_NEWTON_WORK = 1e10
_SHRINK = 0.2
# For Newton steps by products with X: the smoothing decreases more slowly, which makes each step cheaper, and a round
# ends when its remaining gain is this fraction of the gap.
_SHRINK_BY_PRODUCTS, _PART_OF_GAP = 0.5, 0.03
# The smallest initial smoothing, as a share of the value.
_PART_OF_VALUE = 0.01
# The ratio of the initial smoothing to the final smoothing of a similar problem.
_RESUMED = 4.0
# With fewer steps left, quasi-Newton steps gain more than Newton steps by products.
_FEW_STEPS = 10
# Conjugate gradients of one Newton step: the largest number, and the relative residual.
_CG_STEPS, _CG_TOL = 200, 0.1
# An intercept is not eliminated if its curvature is this share of that without the moving level.
_NO_CURVATURE = 1e-6
# The largest number of Newton steps on the intercept alone.
_SHIFTS = 4
# Conjugate gradients use a copy of the rows that have curvature if these are at most this share of all.
_MOST_ROWS = 0.8


class Solution(NamedTuple):
    W: Array
    scores: Array
    value: float
    gap: float  # relative
    n_iter: int
    problem: TopSum  # the one that is solved
    last: Saddle | None = None  # the last weights and their smoothing, to start a similar problem


def solve(
    problem: TopSum,
    W: Array,
    scores: Array | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 100,
    metric: Metric | None = None,
    warm: bool = False,
    last: Saddle | None = None,
    cutting: Callable[[Array], TopSum] | None = None,
) -> Solution:
    """Minimise `problem` from W until the relative gap is at most `tol`; the result is never above the start.

    It also ends after `max_iter` steps or five rounds without progress; with max_iter = 0 only the gap at W is
    computed. Products with X dominate the cost, so `scores`, the scores of W, are passed if they are known. `warm`
    means that W is close to a solution, so little smoothing is needed. `last` is the state of a similar problem with
    the solution W; its weights and smoothing are the initial ones. `cutting` is a function that returns the problem
    with the largest losses dropped at given scores. It replaces `problem` in each step, and the gap is that of the
    problem at the solution. `metric` scales quasi-Newton steps, which are used if Newton steps would cost more.
    """
    Z = problem.design.scores(W) if scores is None else scores
    saddle = Saddle(problem)
    newton = _newton_is_cheaper(problem, max_iter)
    value = problem.value_at(W, Z)
    best, gap, n_iter, stalled = (W, Z), np.inf, 0, 0
    gained = False  # not while the smoothing is large, because other rows would be dropped
    if warm and saddle.cut_matters:
        gap = saddle.gap_near_cut(W, Z, value)
    if relative(gap, value) > tol:
        if not saddle.exact:
            saddle.start_smoothing(Z, value, warm, last)
            last = saddle
        gap = min(gap, saddle.gap(Z, value))
    while relative(gap, value) > tol and n_iter < max_iter and stalled < 5:
        if newton:
            enough = max(0.1 * tol * abs(value), _PART_OF_GAP * gap if saddle.by_products and gap < value else 0.0)
            W, Z, steps = saddle.newton(W, Z, min(25, max_iter - n_iter), enough, cutting if gained else None)
        else:
            W, Z, steps = saddle.quasi_newton(W, min(50, max_iter - n_iter), 1e-3 * tol, metric)
        n_iter += max(1, steps)
        reached = saddle.problem.value_at(W, Z)
        gained = reached < value
        if gained:
            gap = gap - (value - reached) if saddle.problem is problem else np.inf
            best, value, stalled, problem = (W, Z), reached, 0, saddle.problem
        # the weights of this round, whose gradient is small
        bound = saddle.gap(Z, value) if saddle.problem is problem else np.inf
        stalled = 0 if bound < 0.9 * gap or not saddle.sharp else stalled + 1
        gap = min(gap, bound)
        saddle.advance(Z)
    if warm and relative(gap, value) > tol and n_iter < max_iter:  # W was not close: smooth more
        restarted = solve(problem, *best, tol=tol, max_iter=max_iter - n_iter, metric=metric)
        return restarted._replace(gap=min(restarted.gap, relative(gap, value)), n_iter=n_iter + restarted.n_iter)
    return Solution(*best, value, relative(gap, value), n_iter, problem, last)


def _newton_is_cheaper(problem: TopSum, max_iter: int) -> bool:
    n, p, r = problem.design.n, problem.design.p, problem.n_outputs
    if r > 1:  # conjugate gradients take some tens of products with X per step
        return n * p * r <= _NEWTON_WORK / 1000
    if problem.design.sparse and not problem.design.factored:
        return max_iter >= _FEW_STEPS
    return problem.design.factored and n * p**2 <= _NEWTON_WORK


class Saddle(Bounds):
    """The smoothed convex problem, with the centre and the mu of the current round."""

    def start_smoothing(self, Z: Array, value: float, warm: bool, last: Saddle | None = None) -> None:
        """Start with the exact weights as centre and mu from the spread of the losses, or with the state of `last`.

        If `warm` and there is a cut, mu is small: about 2 p losses lie within this distance of the cut.
        """
        values, _ = self._pieces(Z)
        s = np.abs(values[:, 0]) if self.signed else np.maximum(values.max(axis=1), 0.0)
        self.centre = self._shares(s)[:, None]
        if self.signed:
            self.centre = self.centre * np.sign(values)
        elif self.linear:
            top = (values == values.max(axis=1, keepdims=True)) & (values > 0)
            self.centre = self.centre * top / np.maximum(top.sum(axis=1, keepdims=True), 1)
        inside = s[self.caps > 0]
        # Margins have a spread even if all losses are zero.
        spread = values.max(axis=1)[self.caps > 0] if self.linear else inside
        # If all rows are fitted exactly and tied, only the penalty has a scale.
        size = max(0.1 * float(inside.mean()), _PART_OF_VALUE * value)
        self.mu = max(float(np.abs(spread - spread.mean()).mean()), size, 1e-12)
        self.least_mu = 1e-4 * self.mu
        self.lam = 0.0
        near = 2 * self.problem.design.p
        if warm and not self.problem.takes_all and near < len(inside):
            # At a solution about as many rows are tied at the cut as there are parameters; smooth over slightly more.
            cut = self.problem.lower_cut(s)
            width = float(np.partition(np.abs(inside - cut), near)[near])
            self.mu = min(self.mu, max(width, self.least_mu))
        if last is not None:
            # Rows that were dropped there have no previous weight; their losses are above the cut.
            self.centre = np.where(last.caps[:, None] > 0, last.centre, self.centre)
            self.mu, self.lam = min(self.mu, max(_RESUMED * last.mu, self.least_mu)), last.lam

    @property
    def cut_matters(self) -> bool:
        """Whether `gap_near_cut` applies: rows may be tied at a cut or kink, but only a small share of them.

        It is for one score per row, more than 100 rows per column and a Hessian that can be factored, but not for the
        absolute loss or a tilt.
        """
        problem = self.problem
        few = problem.design.n <= 100 * problem.design.p or not problem.design.factored
        return not (self.exact or self.signed or few or problem.n_outputs > 1 or problem.tilt is not None)

    @property
    def sharp(self) -> bool:
        """Whether mu has reached its minimum. Further rounds then change only the centre."""
        return self.exact or self.mu <= self.least_mu

    @property
    def by_products(self) -> bool:
        """Whether Newton steps of one score use conjugate gradients instead of a factored Hessian."""
        return self.problem.n_outputs == 1 and not self.problem.design.factored

    def _shares(self, s: Array) -> Array:
        q = self.problem.weights(s).astype(np.float64, copy=False)
        return np.divide(q, self.caps, out=np.zeros(len(q)), where=self.caps > 0)

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
        value = float(self.caps @ (weighted(rho, values) - prox))
        return Answer(value, rho, slope, (sums > 0) & ~full & (self.caps > 0), full, level > 0)

    def _level(self, pushed: Array) -> float:
        """lam / mu: the smallest level >= 0 at which the weights have at most the mass K."""
        level = level_of_mass(pushed, self.caps, self.problem.K, self.lam / self.mu)
        if level > 0:
            self.lam = level * self.mu  # the start of the next search, because the cut changes little
        return level

    def smoothed(self, W: Array) -> tuple[float, Array]:
        answer = self.answer(self.problem.design.scores(W))
        return self._total(answer, W), self._gradient(answer, W)

    def _total(self, answer: Answer, W: Array) -> float:
        return answer.value / self.problem.scale + self.problem.penalty(W) - self.problem.tilt_at(W)

    def _gradient(self, answer: Answer, W: Array) -> Array:
        gradient = self.problem.design.adjoint(self._pull(answer)) + self.problem.penalty_gradient(W)
        return gradient if self.problem.tilt is None else gradient - self.problem.tilt

    def newton(
        self,
        W: Array,
        Z: Array,
        max_steps: int,
        enough: float,
        cutting: Callable[[Array], TopSum] | None = None,
    ) -> tuple[Array, Array, int]:
        """Newton steps until the remaining gain, and the gradient's contribution to the gap, are below `enough`.

        `cutting` is as in `solve`. Returns W, its scores, and the number of steps.
        """
        design = self.problem.design
        answer = self.answer(Z)
        value = self._total(answer, W)
        for step in range(max_steps):
            gradient = self._gradient(answer, W)
            if self.by_products and self._slack(gradient) <= enough:
                return W, Z, step  # the slack of the coefficients exceeds what a step could gain
            direction = self._newton_direction(Z, answer, gradient)
            decrement = -float(np.vdot(direction, gradient)) / 2
            if (decrement <= enough and self._slack(gradient) <= enough) or decrement <= 1e-17 * abs(value):
                return W, Z, step
            dZ = design.scores(direction)
            # Without curvature, for example if no row is free, a Newton step has no natural length.
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
            if cutting is not None and self._now(cutting(Z)):
                answer = self.answer(Z)
                value = self._total(answer, W)
            if self.by_products:
                shift, answer = self._best_shift(Z, answer, enough)
                W, Z = W.copy(), Z + shift
                W[:, design.d :] += shift
                value = self._total(answer, W)
        return W, Z, max_steps

    def gap(self, Z: Array, value: float) -> float:
        """As in `Bounds`, but if `by_products` at scores that are shifted so that the slopes sum to zero.

        Otherwise `balance` would scale the slopes down. Even one more dropped row in one class would weaken the bound
        by the share of this row in the mean loss, far more than the tolerance.
        """
        if self.by_products and not self.exact and self.problem.tilt is None:
            Z = Z + self._best_shift(Z, self.answer(Z), 1e-3 * value)[0]
        return super().gap(Z, value)

    def _best_shift(self, Z: Array, answer: Answer, enough: float) -> tuple[float, Answer]:
        """The shift of all scores that nearly minimises the smoothed problem, and the weights there; 0 if no intercept.

        Newton steps on the intercept need no product with X. They end at a slack of a tenth of `enough`.
        """
        shift, pull = 0.0, float(self._pull(answer).sum())
        for _ in range(_SHIFTS if self.problem.design.fit_intercept else 0):
            if 10 * abs(pull) <= 0.1 * enough:
                break
            h, moving, slope = self._curvatures(Z + shift, answer)
            mass = float(moving.sum()) * self.mu
            bend = float(h.sum()) - (float(moving @ slope) ** 2 / mass if answer.level_moves and mass > 0 else 0.0)
            if bend <= 0:
                break
            step = -pull * self.problem.scale / bend
            trial = self.answer(Z + (shift + step))
            reached = float(self._pull(trial).sum())
            if not (abs(reached) < abs(pull) and trial.value <= answer.value):  # too far
                break
            shift, answer, pull = shift + step, trial, reached
        return shift, answer

    def _now(self, problem: TopSum) -> bool:
        """Switch to a problem that may drop other rows, and return whether its dropped rows differ.

        Rows that are kept again get full weight.
        """
        caps = np.ones(problem.design.n) if problem.caps is None else problem.caps.astype(np.float64, copy=False)
        if np.array_equal(caps, self.caps):
            return False
        if not self.exact:
            self.centre = np.where(self.caps[:, None] > 0, self.centre, 1.0)
        self.problem, self.caps = problem, caps
        return True

    def _slack(self, gradient: Array) -> float:
        """The approximate contribution of this gradient of the smoothed problem to the gap."""
        d = self.problem.design.d
        return 0.5 * self.problem.C * float(np.vdot(gradient[:, :d], gradient[:, :d])) + 10 * float(
            np.abs(gradient[:, d:]).sum()
        )

    def _newton_direction(self, Z: Array, answer: Answer, gradient: Array) -> Array:
        if self.by_products:
            return self._by_products(Z, answer, gradient)
        if self.problem.n_outputs == 1:
            return -Metric(self._hessian(Z, answer)).solve(gradient)
        design, shape = self.problem.design, gradient.shape
        ridge = self.problem.penalty_diagonal() + 1e-9
        bend = None if self.linear else self.problem.loss.hessian_operator(self.problem.y, Z.T)

        def product(v: Array) -> Array:
            V = v.reshape(shape)
            change = self._pull_change(design.scores(V), answer, bend)
            return (design.adjoint(change) + ridge * V).ravel()

        size = (gradient.size, gradient.size)
        diagonal = np.tile(self._of_columns(answer, bend) + ridge, len(gradient))
        solved, _ = scipy.sparse.linalg.cg(
            scipy.sparse.linalg.LinearOperator(size, matvec=product),
            -gradient.ravel(),
            rtol=1e-3,
            maxiter=200,
            M=scipy.sparse.linalg.LinearOperator(size, matvec=lambda v: v / diagonal),
        )
        if not np.isfinite(solved).all() or solved @ gradient.ravel() >= 0:
            solved = -gradient.ravel() / diagonal
        return solved.reshape(shape)

    def _of_columns(self, answer: Answer, bend: Callable[[Array], Array] | None) -> Array:
        """The diagonal (p,) of the Hessian if all rows and scores had the mean curvature.

        It preconditions conjugate gradients, because columns may differ in scale by many orders of magnitude. The mean
        curvature is used because it does not change columns of equal scale: the Hessian is the penalty plus the terms
        of a few rows, so it has few distinct eigenvalues and needs no other preconditioner.
        """
        design, r = self.problem.design, self.problem.n_outputs
        signs = np.where(np.add.outer(np.arange(r), np.arange(design.n)) % 3 == 0, 1.0, -1.0)
        curvature = float((signs * self._pull_change(signs, answer._replace(level_moves=False), bend)).mean())
        return design.squares(np.full(design.n, max(curvature, 0.0)))

    def _pull_change(self, dZ: Array, answer: Answer, bend: Callable[[Array], Array] | None) -> Array:
        """The directional derivative of `_pull` along dZ, (r, n)."""
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

    def _bend(self, Z: Array, answer: Answer) -> tuple[Array, Array | None, float]:
        """The Hessian for losses of one score, X' diag(h) X - v v' / size, as (h, v, size); without v if it is None.

        It is without the penalty and before the division by the scale.
        """
        problem = self.problem
        h, moving, slope = self._curvatures(Z, answer)
        if not (answer.level_moves and moving.any()):
            return h, None, 1.0
        return h, problem.design.adjoint((moving * slope)[None, :])[0], self.mu * moving.sum()

    def _curvatures(self, Z: Array, answer: Answer) -> tuple[Array, Array, Array]:
        """The second derivatives of the rows at a fixed level, the mass of the free rows, and the slopes."""
        problem = self.problem
        rho = np.abs(answer.rho).sum(axis=1)
        slope, moving = self._unit_slope(answer), self.caps * answer.free
        return self.caps * rho * problem.loss.curvature(problem.y, Z[0]) + moving * slope**2 / self.mu, moving, slope

    def _by_products(self, Z: Array, answer: Answer, gradient: Array) -> Array:
        """The Newton step by conjugate gradients, which is cheaper than a Hessian for sparse rows."""
        design, scale = self.problem.design, self.problem.scale
        h, pulled, size = self._bend(Z, answer)
        ridge = self.problem.penalty_diagonal() + 1e-9
        # Rows without weight have no curvature: tens of products with the other rows cost more than a copy of these.
        rows = np.flatnonzero(h)
        bent, curved = (design, h) if len(rows) > _MOST_ROWS * design.n else (design.take(rows), h[rows])

        def product(V: Array) -> Array:
            out = bent.adjoint(curved * bent.scores(V)) / scale + ridge * V
            return out if pulled is None else out - (float(pulled @ V[0]) / (size * scale)) * pulled

        diagonal = design.squares(h) / scale + ridge
        if design.fit_intercept:
            solved = _without_intercept(product, -gradient, diagonal, ridge)
        else:
            solved = _conjugate_gradients(product, -gradient, Metric(diagonal))
        no_descent = not np.isfinite(solved).all() or float(np.vdot(solved, gradient)) >= 0
        return -gradient / diagonal if no_descent else solved

    def _hessian(self, Z: Array, answer: Answer) -> Array:
        problem, design = self.problem, self.problem.design
        h, pulled, size = self._bend(Z, answer)
        hessian = design.gram(h)
        if pulled is not None:
            hessian -= np.outer(pulled, pulled) / size
        hessian /= problem.scale
        hessian[np.diag_indices_from(hessian)] += problem.penalty_diagonal()
        # If no row is free, the intercept has no curvature.
        hessian[-1, -1] += 1e-9
        return hessian

    def quasi_newton(self, W: Array, max_steps: int, tol: float, metric: Metric | None) -> tuple[Array, Array, int]:
        def batch(Ws: Array) -> tuple[Array, Array]:
            values, gradients = zip(*(self.smoothed(each) for each in Ws), strict=True)
            return np.array(values), np.array(gradients)

        ends, _, steps = descend(batch, W[None], metric, max_iter=max_steps, tol=tol)
        return ends[0], self.problem.design.scores(ends[0]), steps

    def advance(self, Z: Array) -> None:
        """Move the centre to the current weights, and decrease the smoothing."""
        if not self.exact:
            self.centre = self.answer(Z).rho
            self.mu = max(self.mu * (_SHRINK_BY_PRODUCTS if self.by_products else _SHRINK), self.least_mu)


def _without_intercept(product: Callable[[Array], Array], right: Array, diagonal: Array, ridge: Array) -> Array:
    """`_conjugate_gradients` for the coefficients, with the intercept as the function of them that is optimal.

    `diagonal` and `ridge` are those of the Hessian and of the penalty. An intercept without curvature is not
    eliminated.
    Entries of text are not negative, so the intercept correlates with all frequent columns, and its gradient would be
    the largest error of the solution. Eliminating it centres the columns.
    """
    unit = np.zeros_like(right)
    unit[0, -1] = 1.0
    coupling = product(unit)[0]
    coupling, own = coupling[:-1], float(coupling[-1])
    if own <= _NO_CURVATURE * diagonal[-1]:
        return _conjugate_gradients(product, right, Metric(diagonal))

    def completed(V: Array, pull: float = 0.0) -> Array:
        return np.append(V, (pull - coupling @ V[0]) / own)[None]

    centred = np.maximum(diagonal[:-1] - coupling**2 / own, ridge[:-1])
    pull = float(right[0, -1])
    solved = _conjugate_gradients(
        lambda V: product(completed(V))[:, :-1], right[:, :-1] - (pull / own) * coupling, Metric(centred)
    )
    return completed(solved, pull)


def _conjugate_gradients(product: Callable[[Array], Array], right: Array, metric: Metric) -> Array:
    """An approximate solution of product(V) = right by conjugate gradients from zero, preconditioned by the metric.

    It has a relative residual of 0.1, unless 200 steps do not suffice or the curvature is not positive.
    """
    V, residual = np.zeros_like(right), right.copy()
    scaled = metric.solve(residual)
    direction = scaled
    size = first = float(np.vdot(residual, scaled))
    for _ in range(_CG_STEPS):
        if size <= _CG_TOL**2 * first:
            break
        bent = product(direction)
        curvature = float(np.vdot(direction, bent))
        if curvature <= 0:  # rounding
            break
        V = V + (size / curvature) * direction
        residual = residual - (size / curvature) * bent
        scaled = metric.solve(residual)
        last, size = size, float(np.vdot(residual, scaled))
        direction = scaled + (size / last) * direction
    return V
