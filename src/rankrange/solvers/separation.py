"""The convex problem of TKML-AoRR with fixed label pairs in every row, solved to a duality gap.

Each row has scores f, labels to push down, A, and labels to pull up, B. Its loss is the maximum of 0 and its margins
1 + f_a - f_b, one for each pair of a in A and b in B. With fixed dropped rows (caps), the problem is the sum of the K
largest of these convex losses. It is minimised as in `convex`: a quadratic term of size mu that keeps the weights of
the margins near a centre makes it smooth; each round makes Newton steps by conjugate gradients, then moves the centre
and decreases mu.

The gap is rigorous: the weights are scaled row by row until the gradient of each intercept is zero, and then give a
lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

from ..core.arrays import Array
from ..core.objective import Objective
from .descent import Metric, descend, relative
from .inner.bounds import level_of_mass, onto_simplex

# Smoothing relative to the margin, which is 1. Below the smallest mu, a new centre gains more than Newton steps.
_MU, _SHRINK, _MIN_MU = 0.15, 0.4, 0.02
_METRIC_COLUMNS = 1500


class Pairs:
    """The pairs (a, b) of a label to push down and one to pull up in each row, as padded arrays (n, nA) and (n, nB)."""

    def __init__(self, down: Array, up: Array) -> None:
        self.n, self.n_labels = down.shape
        self.down, here_down = _columns(down)
        self.up, here_up = _columns(up)
        self._rows = np.arange(self.n)[:, None]
        self._offset = np.where(here_down[:, :, None] & here_up[:, None, :], 1.0, -np.inf)

    def margins(self, Z: Array) -> Array:
        """The margins (n, nA nB) of scores (n, L); minus infinity if there is no pair."""
        high, low = np.take_along_axis(Z, self.down, 1), np.take_along_axis(Z, self.up, 1)
        return (self._offset + high[:, :, None] - low[:, None, :]).reshape(self.n, -1)

    def pull(self, rho: Array) -> Array:
        """The derivative of the weighted sum of the margins with respect to the scores, (n, L)."""
        cube = rho.reshape(self._offset.shape)
        out = np.zeros((self.n, self.n_labels))
        out[self._rows, self.down] = cube.sum(axis=2)
        out[self._rows, self.up] -= cube.sum(axis=1)
        return out

    def marginals(self, rho: Array) -> tuple[Array, Array]:
        """The weights of each label to push down and to pull up, (n, L) each."""
        cube = rho.reshape(self._offset.shape)
        down, up = np.zeros((2, self.n, self.n_labels))
        down[self._rows, self.down] = cube.sum(axis=2)
        up[self._rows, self.up] = cube.sum(axis=1)
        return down, up

    def spread(self, down: Array, up: Array) -> Array:
        """Weights of the pairs as products of these marginals; 0 for pairs that do not exist."""
        total = np.maximum(down.sum(axis=1), 1e-300)[:, None, None]
        high, low = np.take_along_axis(down, self.down, 1), np.take_along_axis(up, self.up, 1)
        cube = np.where(np.isfinite(self._offset), high[:, :, None] * (low[:, None, :] / total), 0.0)
        return cube.reshape(self.n, -1)

    def labels(self, rows: Array, columns: Array) -> tuple[Array, Array]:
        """The labels a and b of some pairs."""
        width = self.up.shape[1]
        return self.down[rows, columns // width], self.up[rows, columns % width]


def _columns(members: Array) -> tuple[Array, Array]:
    width = max(1, int(members.sum(axis=1).max()))
    columns = np.argsort(~members, axis=1, kind="stable")[:, :width]
    return columns, np.take_along_axis(members, columns, 1)


class Solution(NamedTuple):
    W: Array
    value: float
    gap: float  # relative
    n_iter: int
    marginals: tuple[Array, Array]  # marginals of the final weights, a start for a similar problem


class Answer(NamedTuple):
    """The smoothed problem at given scores: its value without penalty, and the weights of the margins."""

    value: float
    rho: Array
    free: Array  # (n,) whether the sum of the weights of the row is inside (0, 1)
    full: Array  # (n,) whether it is 1
    level_moves: bool  # whether the weights sum to K, so if a free one rises, others fall


@dataclass(frozen=True, eq=False)
class Separation:
    """The convex problem max over 0 <= q <= caps, sum q <= K of (q . losses of the pairs) / K + penalty."""

    objective: Objective
    pairs: Pairs
    K: float
    caps: Array

    def scores(self, W: Array) -> Array:
        return self.objective.design.scores(W).T.astype(np.float64, copy=False)

    def losses(self, Z: Array) -> Array:
        return np.maximum(self.pairs.margins(Z).max(axis=1), 0.0)

    def value(self, W: Array) -> float:
        s = self.losses(self.scores(W))
        return float(self.weights(s) @ s) / self.K + self.objective.penalty(W)

    def weights(self, s: Array) -> Array:
        """The maximising q (n,) for the losses s (n,)."""
        if self.caps.sum() <= self.K * (1 + 1e-14):
            return self.caps
        order = np.argsort(-s, kind="stable")
        before = np.concatenate([[0.0], np.cumsum(self.caps[order])[:-1]])
        q = np.empty_like(self.caps)
        q[order] = np.clip(self.K - before, 0.0, self.caps[order])
        return q


def solve(
    problem: Separation,
    W: Array,
    *,
    tol: float = 1e-3,
    max_iter: int = 200,
    marginals: tuple[Array, Array] | None = None,
) -> Solution:
    """Minimise from W until the relative gap is at most `tol`; the result is never above the start.

    It also ends after `max_iter` Newton steps or eight rounds without progress. The first round is one of quasi-Newton
    steps, which need no curvature and count as one step, unless `marginals` of a similar problem give approximate
    weights.
    """
    saddle = _Saddle(problem, W, marginals)
    value, best = problem.value(W), W
    gap = saddle.gap(W, value)
    n_iter, stalled = 0, 0
    while relative(gap, value) > tol and n_iter < max_iter and stalled < 8:
        first_round = n_iter == 0 and marginals is None
        W, steps = saddle.quasi_newton(W) if first_round else saddle.newton(W, min(15, max_iter - n_iter), tol)
        n_iter += max(1, steps)
        reached = problem.value(W)
        bound = saddle.gap(W, reached) - reached  # minus the lower bound
        stalled = stalled if reached < value or bound < gap - value else stalled + 1
        gap = min(gap - value, bound)
        if reached < value:
            value, best = reached, W
        gap += value
        saddle.advance(W)
    return Solution(best, value, relative(gap, value), n_iter, problem.pairs.marginals(saddle.centre))


class _Saddle:
    """The smoothed problem, with the centre and the mu of the current round."""

    def __init__(self, problem: Separation, W: Array, marginals: tuple[Array, Array] | None) -> None:
        self.problem = problem
        self.centre = self._exact_weights(W) if marginals is None else problem.pairs.spread(*marginals)
        self.mu = _MU if marginals is None else _MIN_MU
        self.level = 0.0
        design = problem.objective.design
        self.gram = design.gram(problem.caps / problem.K) if design.p <= _METRIC_COLUMNS else None

    def _exact_weights(self, W: Array) -> Array:
        problem = self.problem
        margins = problem.pairs.margins(problem.scores(W))
        s = np.maximum(margins.max(axis=1), 0.0)
        shares = np.divide(problem.weights(s), problem.caps, out=np.zeros(len(s)), where=problem.caps > 0)
        top = (margins == margins.max(axis=1, keepdims=True)) & (margins > 0)
        return shares[:, None] * top / np.maximum(top.sum(axis=1, keepdims=True), 1)

    def answer(self, Z: Array) -> Answer:
        problem = self.problem
        margins = problem.pairs.margins(Z)
        pushed = self.centre + margins / self.mu
        level = level_of_mass(pushed, problem.caps, problem.K, self.level)
        self.level = level or self.level  # the start of the next search
        rho = np.maximum(pushed - level, 0.0)
        sums = rho.sum(axis=1)
        full = sums >= 1.0
        rho[full] = onto_simplex(pushed[full])
        margins[~np.isfinite(margins)] = 0.0
        value = float(problem.caps @ (rho * margins - 0.5 * self.mu * (rho - self.centre) ** 2).sum(axis=1))
        return Answer(value / problem.K, rho, (sums > 0) & ~full & (problem.caps > 0), full, level > 0)

    def _pull(self, rho: Array) -> Array:
        """The derivative of the weighted margins with respect to the scores, (L, n)."""
        return (self.problem.pairs.pull(rho) * (self.problem.caps / self.problem.K)[:, None]).T

    def _gradient(self, answer: Answer, W: Array) -> Array:
        objective = self.problem.objective
        return objective.design.adjoint(self._pull(answer.rho)) + objective.penalty_gradient(W)

    def quasi_newton(self, W: Array) -> tuple[Array, int]:
        def batch(Ws: Array) -> tuple[Array, Array]:
            answer = self.answer(self.problem.scores(Ws[0]))
            value = answer.value + self.problem.objective.penalty(Ws[0])
            return np.array([value]), self._gradient(answer, Ws[0])[None]

        ends, _, _ = descend(batch, W[None], None, max_iter=100, tol=1e-7)
        return ends[0], 1

    def newton(self, W: Array, max_steps: int, tol: float) -> tuple[Array, int]:
        """Newton steps until the remaining gain, and the gradient's contribution to the gap, are far below `tol`."""
        penalty = self.problem.objective.penalty
        Z = self.problem.scores(W)
        answer = self.answer(Z)
        value = answer.value + penalty(W)
        for step in range(max_steps):
            gradient = self._gradient(answer, W)
            direction = self._direction(answer, gradient)
            decrement = -0.5 * float(np.vdot(direction, gradient))
            slack = 0.5 * self.problem.objective.C * float(np.vdot(gradient, gradient))
            if max(decrement, slack) <= 0.1 * tol * abs(value):
                return W, step
            dZ, length = self.problem.scores(direction), 1.0
            for _ in range(30):
                trial = self.answer(Z + length * dZ)
                trial_value = trial.value + penalty(W + length * direction)
                if trial_value <= value - 1e-4 * length * decrement:
                    break
                length *= 0.5
            else:
                return W, step  # rounding: no step lowers the value any more
            W, Z, answer, value = W + length * direction, Z + length * dZ, trial, trial_value
        return W, max_steps

    def _direction(self, answer: Answer, gradient: Array) -> Array:
        curvature = _Curvature(self, answer)
        operator = scipy.sparse.linalg.LinearOperator((gradient.size,) * 2, matvec=curvature.product)
        precondition = None
        if self.gram is not None:
            scale = 2.0 * curvature.n_pairs / (self.mu * gradient.shape[0] * len(answer.rho))
            metric = Metric(scale * self.gram + np.diag(curvature.ridge))
            precondition = scipy.sparse.linalg.LinearOperator(
                operator.shape, matvec=lambda v: metric.solve(v.reshape(gradient.shape)).ravel()
            )
        solved, _ = scipy.sparse.linalg.cg(operator, -gradient.ravel(), rtol=1e-2, maxiter=150, M=precondition)
        if not np.isfinite(solved).all() or solved @ gradient.ravel() >= 0:
            return -gradient
        return solved.reshape(gradient.shape)

    def advance(self, W: Array) -> None:
        """Move the centre to the current weights, and decrease the smoothing."""
        self.centre = self.answer(self.problem.scores(W)).rho
        self.mu = max(self.mu * _SHRINK, _MIN_MU)

    def gap(self, W: Array, value: float) -> float:
        """value - a lower bound on the minimum; infinite if the gradient of an intercept cannot be made zero."""
        objective = self.problem.objective
        rho = self._balanced(W).rho
        pulled = self._pull(rho)
        keep: Any = 1.0
        if objective.design.fit_intercept:
            # The smallest change of the rows' weights after which the gradient of each intercept is zero, scaled into
            # [0, 1]. Scaled margins stay below the losses, which are non-negative.
            change = pulled.T @ (np.linalg.pinv(pulled @ pulled.T, rcond=1e-12, hermitian=True) @ pulled.sum(axis=1))
            keep = (1.0 - change) / max(1.0, float((1.0 - change).max()))
            if keep.min() < 0:
                return np.inf
        v = objective.design.adjoint(pulled * keep)[:, : objective.design.d]
        offsets = rho.sum(axis=1) * self.problem.caps / self.problem.K
        return value - (float((keep * offsets).sum()) - 0.5 * objective.C * float(np.vdot(v, v)))

    def _balanced(self, W: Array) -> Answer:
        """The `Answer` at W with optimal intercepts, at which their gradients are zero up to rounding errors."""
        Z = self.problem.scores(W)
        answer = self.answer(Z)
        for _ in range(30 if self.problem.objective.design.fit_intercept else 0):
            pulls = self._pull(answer.rho).sum(axis=1)
            if np.abs(pulls).max() <= 1e-13:
                break
            hessian = _Curvature(self, answer).of_intercepts()
            shift = np.linalg.pinv(hessian, rcond=1e-12, hermitian=True) @ pulls
            for length in 0.5 ** np.arange(20):
                trial = self.answer(Z - length * shift)
                if trial.value <= answer.value - 1e-4 * length * float(pulls @ shift):
                    break
            else:
                break
            Z, answer = Z - length * shift, trial
        return answer


class _Curvature:
    """The second derivative of the smoothed problem; only rows whose weights can change contribute."""

    def __init__(self, saddle: _Saddle, answer: Answer) -> None:
        problem = saddle.problem
        design, pairs = problem.objective.design, problem.pairs
        support = answer.rho > 0
        counts = support.sum(axis=1)
        support[(answer.full & (counts == 1)) | (problem.caps == 0)] = False
        rows, columns = np.nonzero(support)
        down, up = pairs.labels(rows, columns)
        used, self.inverse = np.unique(rows, return_inverse=True)
        self.X, self.d, self.fit_intercept = design.X[used], design.d, design.fit_intercept
        self.n_pairs, self.n_labels, n_used = len(rows), pairs.n_labels, len(used)
        which = np.arange(self.n_pairs)
        ones = np.ones(self.n_pairs)
        self.difference = sp.csr_array(
            (
                np.concatenate([ones, -ones]),
                (np.tile(which, 2), np.concatenate([self.inverse, self.inverse]) * self.n_labels + np.r_[down, up]),
            ),
            shape=(self.n_pairs, n_used * self.n_labels),
        )
        self.mean = np.where(answer.full[used], 1.0 / np.maximum(counts[used], 1), 0.0)
        self.pulls = np.zeros((n_used, self.n_labels))
        np.add.at(self.pulls, (self.inverse, down), 1.0)
        np.add.at(self.pulls, (self.inverse, up), -1.0)
        self.down, self.up = down, up
        self.free = answer.free[rows].astype(float) if answer.level_moves else None
        self.mass = problem.caps[rows]
        self.weight = self.mass / (saddle.mu * problem.K)
        self.ridge = problem.objective.penalty_diagonal() + 1e-10

    def product(self, v: Array) -> Array:
        V = v.reshape(self.n_labels, -1)
        z = self.X @ V[:, : self.d].T
        if self.fit_intercept:
            z = z + V[:, -1]
        move = self.difference @ z.ravel()
        move = move - (self.mean * np.bincount(self.inverse, move, minlength=len(self.mean)))[self.inverse]
        if self.free is not None and self.free.any():
            mass = self.mass * self.free
            move = move - self.free * ((mass @ move) / mass.sum())
        pulled = (self.difference.T @ (self.weight * move)).reshape(-1, self.n_labels)
        out = self.ridge * V
        out[:, : self.d] += (self.X.T @ pulled).T
        if self.fit_intercept:
            out[:, -1] += pulled.sum(axis=0)
        return out.ravel()

    def of_intercepts(self) -> Array:
        """The block of the second derivative for the intercepts, (L, L)."""
        out = np.zeros((self.n_labels, self.n_labels))
        for a, b, sign in ((self.down, self.down, 1), (self.up, self.up, 1), (self.down, self.up, -1)):
            np.add.at(out, (a, b), sign * self.weight)
        np.add.at(out, (self.up, self.down), -self.weight)
        of_row = np.zeros(len(self.mean))
        of_row[self.inverse] = self.weight
        out -= (self.pulls * (self.mean * of_row)[:, None]).T @ self.pulls
        if self.free is not None and self.free.any():
            share = self.weight * self.free
            total = np.bincount(self.down, share, self.n_labels) - np.bincount(self.up, share, self.n_labels)
            out -= np.outer(total, total) / share.sum()
        return out
