"""Lower bounds on the minimum of a `TopSum`, and its duality gap. The bounds hold for all feasible weights.

Each loss is at least its tangent, so the minimum of the weighted tangents plus the penalty is a lower bound. The slopes
must sum to zero, because the intercept is not penalised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...core.arrays import Array
from ...core.losses import needs
from ...core.objective import Design, TopSum
from .band import rows_of, solve_band

_BLOCK = 1 << 15
# If a score is lower than another by this much, its softmax probability is zero.
_FAR_BELOW = 1e3
# The relative accuracy of a level, limited by rounding.
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)


class Answer(NamedTuple):
    """The smoothed problem at given scores: its value, the weights, and which of them are free.

    The value is without the penalty and before the division by the scale.
    """

    value: float
    rho: Array  # (n, J), each row in the simplex {rho >= 0, sum <= 1}; in [-1, 1] for signed margins
    slope: Array | None  # (r, n) of a smooth loss
    free: Array  # (n,) True if the sum of rho changes with the loss
    full: Array  # (n,) True if that sum is 1, and rho can only shift between margins
    level_moves: bool  # lam > 0: if a free weight rises, others fall, because their sum is K


class Bounds:
    """A convex problem with its losses or margins, and lower bounds on its minimum.

    Raises a TypeError if the loss is not convex or has neither curvature nor margins.
    """

    def __init__(self, problem: TopSum) -> None:
        self.problem = problem
        needs(problem.loss, problem.n_outputs, "the exact convex solver", "Use solver='subgradient'.")
        self.linear = hasattr(problem.loss, "margins")
        n = problem.design.n
        self.caps = np.ones(n) if problem.caps is None else problem.caps.astype(np.float64, copy=False)
        # With a smooth loss and no cut, all weights are 1: no smoothing is needed, and one round is exact.
        self.exact = problem.takes_all and not self.linear
        self.signed = getattr(problem.loss, "signed_margins", False)
        self.mu = 1.0

    def answer(self, Z: Array) -> Answer:
        """The weights of the smoothed problem at the scores Z."""
        raise NotImplementedError

    def _pieces(self, Z: Array) -> tuple[Array, Array | None]:
        problem = self.problem
        if self.linear:
            margins = problem.loss.margins(problem.y, Z[0] if problem.n_outputs == 1 else Z.T)
            return margins.astype(np.float64, copy=False), None
        s, slope = problem.losses_and_slopes(Z)
        return s.astype(np.float64, copy=False)[:, None], slope

    def _pull(self, answer: Answer) -> Array:
        """The derivative of the smoothed sum with respect to the scores, (r, n)."""
        problem = self.problem
        weighted = self.caps[:, None] * answer.rho / problem.scale
        if answer.slope is not None:
            return answer.slope * weighted[:, 0]
        pulled = problem.loss.margins_adjoint(problem.y, weighted)
        return pulled[None, :] if problem.n_outputs == 1 else pulled.T

    def _unit_slope(self, answer: Answer) -> Array:
        """The derivative (n,) of each loss of one score, or of its one margin, with respect to the score."""
        if answer.slope is not None:
            return answer.slope[0]
        ones = np.sign(answer.rho) if self.signed else np.ones_like(answer.rho)
        return self.problem.loss.margins_adjoint(self.problem.y, ones)

    def gap(self, Z: Array, value: float) -> float:
        """`value` minus a lower bound on the minimum.

        With a tilt it is only an estimate for stopping a solver, because the slopes would have to sum exactly to the
        tilt of the intercept.
        """
        if self.exact and self.problem.tilt is None:
            return value - self._blockwise_bound(Z)
        return value - self._lower_bound(Z, self.answer(Z))

    def bound_of_weights(self, Z: Array) -> float:
        """The bound with the caps as weights and tangents at the scores Z, shifted so that the slopes sum to zero."""
        return self._blockwise_bound(Z)

    def _blockwise_bound(self, Z: Array, rho: Array | None = None) -> float:
        """`_lower_bound` for a loss that is smooth or has one margin, in blocks, without further arrays of length n.

        If all rows have full weight (rho is None), the slopes are computed at shifted scores, at which they sum to
        zero.
        """
        problem, design = self.problem, self.problem.design
        shift = self._balancing_shift(Z) if design.fit_intercept and rho is None else np.zeros(problem.n_outputs)
        keep = np.ones(max(2, problem.n_outputs))
        if design.fit_intercept:
            flow = np.zeros((problem.n_outputs, len(keep)))
            for block, _, _, u in self._blocks(Z, shift, rho):
                np.add.at(flow.T, self._side(block, u), u.T)
            keep = balance(flow)
        bound, v = 0.0, np.zeros((problem.n_outputs, design.p))
        for block, z, weighted, u in self._blocks(Z, shift, rho):
            factor = keep[self._side(block, u)]
            bound += float(factor @ (weighted - np.einsum("rn,rn->n", u, z)))
            v += Design(design.X[block], design.fit_intercept).adjoint(u * factor)
        v = v[:, : design.d]
        return bound - 0.5 * problem.C * float(np.vdot(v, v))

    def _blocks(self, Z: Array, shift: Array, rho: Array | None = None) -> Iterator[tuple[slice, Array, Array, Array]]:
        """Yield blocks at the scores Z - shift: rows, scores, weighted losses, weighted slopes."""
        problem = self.problem
        for start in range(0, problem.design.n, _BLOCK):
            block = slice(start, start + _BLOCK)
            part = type(self)(replace(problem, y=problem.y[block], caps=self.caps[block]))
            z = Z[:, block] - shift[:, None]
            values, slope = part._pieces(z)
            share = np.ones_like(values) if rho is None else rho[block]
            none = np.zeros(len(values), dtype=bool)
            u = part._pull(Answer(0.0, share, slope, none, none, False))
            yield block, z, values[:, 0] * share[:, 0] * (part.caps / problem.scale), u

    def _balancing_shift(self, Z: Array) -> Array:
        """The shift (r,), subtracted from the scores of all rows, after which the weighted slopes sum to zero."""
        problem, r = self.problem, self.problem.n_outputs
        shift = np.zeros(r)
        if r > 1:
            # The intercept of a class without kept rows has no minimum; leaving out this class lowers each loss.
            absent = np.bincount(problem.y, weights=self.caps, minlength=r) <= 0
            shift[absent] = float(Z.max()) - float(Z.min()) + _FAR_BELOW
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
            if np.abs(residual).max() <= 1e-10 * size or not curvature.any():  # `balance` corrects the remainder
                break
            shift = shift + np.linalg.lstsq(curvature, residual, rcond=1e-12)[0]
        return shift

    def _side(self, rows: slice, pulled: Array) -> Array:
        """The group of each row in `balance`: the sign of its slope, or its class."""
        return (pulled[0] > 0).astype(np.intp) if self.problem.n_outputs == 1 else self.problem.y[rows]

    def _lower_bound(self, Z: Array, answer: Answer) -> float:
        """The minimum of the weighted tangents plus the penalty, a lower bound because losses exceed tangents.

        With a tilt it is an estimate, as in `gap`.
        """
        problem = self.problem
        pulled = self._pull(answer)
        values, _ = self._pieces(Z)
        offsets = weighted(answer.rho, values) * (self.caps / problem.scale)
        offsets -= np.einsum("rn,rn->n", pulled, Z)
        if problem.tilt is not None:
            v = (problem.design.adjoint(pulled) - problem.tilt)[:, : problem.design.d]
            return float(offsets.sum()) - 0.5 * problem.C * float(np.vdot(v, v))
        if problem.design.fit_intercept:
            every = slice(None)
            side = self._side(every, pulled)
            flow = np.zeros((problem.n_outputs, 2 if problem.n_outputs == 1 else problem.n_outputs))
            np.add.at(flow.T, side, pulled.T)
            keep = balance(flow)[side]
            pulled, offsets = pulled * keep, offsets * keep
        v = problem.design.adjoint(pulled)[:, : problem.design.d]
        return float(offsets.sum()) - 0.5 * problem.C * float(np.vdot(v, v))

    def gap_near_cut(self, W: Array, Z: Array, value: float) -> float:
        """The gap with the best weights for the rows near the cut; all other rows are clearly above or below it.

        Close to a solution only these rows are undecided, a few per parameter. Their weights solve a small problem with
        the tangents of these rows, the gradient of all kept rows, and the penalty.
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
        pull = (unit * sure * self.caps)[None, :]
        rest = design.adjoint(pull)[0] / problem.scale + problem.penalty_gradient(W)[0]
        # One more line at zero for unassigned mass: margins may be negative, losses are not.
        lines = np.vstack([rows_of(design, band) * unit[band][:, None], np.zeros(design.p)])
        caps = np.append(self.caps[band], problem.K) / problem.scale
        left = (problem.K - float(self.caps @ sure)) / problem.scale
        solved = solve_band(
            rest,
            np.diag(problem.penalty_diagonal()),
            lines,
            np.append(values[band], 0.0),
            caps,
            left,
            1e-8 * abs(value),
        )
        rho = sure.astype(np.float64)[:, None]
        rho[band, 0] = solved.weights[:-1] / caps[:-1]
        return value - self._blockwise_bound(Z, rho)


def balance(flow: Array) -> Array:
    """Factors in [0, 1], one per group of rows, that make the slopes sum to zero exactly.

    `flow` (r, groups) has the sums of the slopes of each group. A scaled tangent is still below the loss, because
    losses are non-negative. With one score there are two groups, rows with negative and with positive slopes, and the
    larger sum is scaled down. With several scores each class is a group, and the factors are the stationary
    distribution of the flow of slopes between the classes; all are 0 if there is none, and 1 if all slopes are zero.
    """
    if len(flow) == 1:
        size = np.abs(flow[0])
        return np.divide(size.min(), size, out=np.zeros(2), where=size > 0)
    factor, present = np.zeros(len(flow)), np.abs(flow).max(axis=0) > 0
    if not present.any():
        return np.ones(len(flow))
    _, _, basis = np.linalg.svd(flow[:, present])
    factor[present] = np.abs(basis[-1])
    if np.abs(flow @ factor).max() > 1e-9 * np.abs(flow).sum():
        # If the slopes of a row do not sum to zero (one loss per class), there are no such factors, and only the
        # trivial bound 0 is proved.
        return np.zeros_like(factor)
    return factor / factor.max()


def weighted(rho: Array, values: Array) -> Array:
    """Row sums of rho * values; a margin of -inf, that of a class with itself, has weight 0."""
    if values.shape[1] == 1:
        return rho[:, 0] * values[:, 0]
    return (rho * np.where(np.isfinite(values), values, 0.0)).sum(axis=1)


def onto_simplex(rows: Array) -> Array:
    """The nearest points of the simplex {x >= 0, sum x = 1}, row by row."""
    if not len(rows):
        return rows
    order = -np.sort(-rows, axis=1)
    excess = (np.cumsum(np.where(np.isfinite(order), order, 0.0), axis=1) - 1.0) / np.arange(1, rows.shape[1] + 1)
    last = (order > excess).sum(axis=1) - 1
    return np.maximum(rows - excess[np.arange(len(rows)), last][:, None], 0.0)


def level_of_mass(pushed: Array, caps: Array, K: float, guess: float = 0.0) -> float:
    """The smallest level >= 0 at which the weights [pushed - level]_+, at most 1 per row, have at most the mass K.

    `pushed` is (n, J). The mass of a row is its weight times its cap. The level is found by Newton's method within a
    bracket. A good guess, such as the level of the last step, saves most of the search.
    """
    if _excess(pushed, caps, K, 0.0)[0] <= 0:
        return 0.0
    low, high, level = 0.0, float(pushed.max()), guess
    for _ in range(200):
        if not low < level < high:
            level = 0.5 * (low + high)
        excess, moving = _excess(pushed, caps, K, level)
        if abs(excess) <= max(1e-14 * K, _ROUNDING * level * moving) or high - low <= 1e-15 * high:
            break
        low, high = (level, high) if excess > 0 else (low, level)
        level += excess / moving if moving > 0 else np.inf
    return level


def _excess(pushed: Array, caps: Array, K: float, level: float) -> tuple[float, float]:
    """By how much the mass at this level exceeds K, and minus the derivative of the mass with respect to the level."""
    positive = np.maximum(pushed - level, 0.0)
    sums = positive.sum(axis=1) if pushed.shape[1] > 1 else positive[:, 0]
    counts = (positive > 0).sum(axis=1) if pushed.shape[1] > 1 else sums > 0
    return float(caps @ np.minimum(sums, 1.0)) - K, float(caps @ ((sums < 1.0) * counts))
