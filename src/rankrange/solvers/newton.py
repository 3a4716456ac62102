"""Newton steps on F: about five to ten passes over X for a fit.

At W the m largest losses are dropped. The resulting problem is an upper bound that equals F at W, so dropping anew in
each step never increases F. Most other rows are clearly above or below the lower cut; they enter by their gradient and
by the Hessian of a sample. Rows near the lower cut, the band, enter by their tangents and may cross the cut. This is a
small problem (`inner/band.py`) whose multipliers are weights for the certificate. One step takes one product with X and
one with its transpose.

A piecewise linear loss (hinge, absolute) has no curvature. Its rows near the kink at zero may cross it like those at
the cut, and the small problem is exact if no other row crosses. With several scores per row (softmax) the unknowns are
the r x p parameters, flattened.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.objective import Design, Objective
from .descent import Log, Metric, Result, cut_is_clean, finish, relative
from .duality import gap_above_risk
from .inner.band import near_cut, near_kink, rows_of
from .inner.bounds import balance

_BLOCK = 1 << 15
# The largest number of rows near the cut that may cross it, and of these rows times squared parameters.
_WIDEST, _WIDEST_WORK = 200_000, 1.5e9
# The largest number of times that the tangents of the certificate are moved.
_TANGENTS = 3
# The largest factor by which the band narrows in a step.
_NARROWER = 4
# The largest factor by which a step is extrapolated.
_LONGEST = 64.0
# The largest number of parameters for a factored Hessian of several scores per row.
_MAX_PARAMETERS = 600


class Proposal(NamedTuple):
    """A step (r, p), its expected gain, the scores at its end if they are known, and the proved gap at its start."""

    step: Array
    gain: float
    scores: Array | None = None
    gap: float = np.inf


def applies(objective: Objective) -> bool:
    """Whether the loss has curvature or one margin per row, and the Hessian is small enough to be factored."""
    p, r = objective.design.p, objective.n_outputs
    if hasattr(objective.loss, "margins"):
        return r == 1 and objective.design.factored
    if r > 1:
        return hasattr(objective.loss, "hessian_operator") and r * p <= _MAX_PARAMETERS
    return hasattr(objective.loss, "curvature") and objective.design.factored


def close_enough(objective: Objective, tol: float) -> float:
    """The gain of a quasi-Newton step, in units of the tolerance, below which Newton steps are used.

    It is 0.05 if Newton steps do not apply.
    If m = 0 there is one minimum, and Newton steps reach it from a larger distance, especially for piecewise linear
    losses. Otherwise quasi-Newton steps continue until they gain far less than one row's share of the mean.
    """
    if not applies(objective):
        return 0.05
    lines = hasattr(objective.loss, "margins")
    if objective.m > 0:
        return 1.0 if objective.design.n * tol <= 0.05 and objective.n_outputs == 1 and not lines else 0.05
    return 100.0 if lines else 1.0


def newton(
    objective: Objective,
    W: Array,
    *,
    rng: np.random.Generator,
    tol: float = 1e-6,
    max_iter: int = 40,
    log: Log | None = None,
    phase: str = "newton",
    near: bool = False,
    stop: float = 0.0,
) -> Result:
    """Take at most `max_iter` Newton steps from W, until the certificate is at most tol or no step lowers F.

    `near` means that W is already close to a minimum. With tol = 0 there is no certificate. The steps also end when one
    would gain at most the share `stop` of F. If m > 0, they continue to half of tol, because rows may still cross the
    upper cut.
    """
    log = Log() if log is None else log
    loop = _Loop(objective, tol, near, rng)
    iterate, gap, n_iter = evaluate_at(objective, W), np.inf, 0
    log(phase, iterate.value)
    for _ in range(max_iter + 1):  # each round but the last takes a step
        proposal = loop.propose(iterate)
        gap = proposal.gap
        # While rows may still cross the upper cut, a further step may gain more than the gap.
        if relative(gap, iterate.value) <= (0.5 * tol if objective.m > 0 else tol):
            end = _end_of(objective, iterate, proposal)
            if end is None or (_ties(objective, end) and not _ties(objective, iterate)):
                break  # where losses tie at the upper cut, for example at equal scores, nothing could be proved
            same = np.array_equal(end.is_cut, iterate.is_cut)
            if same or n_iter >= max_iter or iterate.value - end.value <= 0.01 * tol * iterate.value:
                iterate, gap = (end, gap - (iterate.value - end.value)) if same else (iterate, gap)
                break
        if n_iter >= max_iter or proposal.gain <= stop * iterate.value:
            break
        taken, length = _search(objective, iterate, proposal)
        n_iter += 1
        if taken is None:
            if loop.widen(iterate, proposal):
                continue
            break
        loop.learn(iterate, taken, length)
        iterate = taken
        log(phase, iterate.value)
    certificate = np.inf
    if np.isfinite(gap) and not _ties(objective, iterate):
        certificate = relative(gap, iterate.value)
    reason = "losses tie at the upper cut" if np.isfinite(gap) else "the steps are still too long"
    return finish(iterate.W, iterate.value, n_iter, certificate, tol, max_iter, log, losses=iterate.s, reason=reason)


def _end_of(objective: Objective, iterate: Iterate, proposal: Proposal) -> Iterate | None:
    """The point after the proposed step; None if the scores there are unknown or F is not lower."""
    if proposal.scores is None:
        return None
    end = evaluate_at(objective, iterate.W + proposal.step, proposal.scores)
    return end if end.value < iterate.value else None


def _ties(objective: Objective, iterate: Iterate) -> bool:
    """Whether different rows tie at the upper cut, so that it is not known which of them stay dropped."""
    return objective.m > 0 and not cut_is_clean(objective, iterate.s)


def hessian_rows(objective: Objective) -> int:
    """The number of rows for a Hessian with which each step gains at least a digit, limited to the cost of a pass."""
    n, p, r = objective.design.n, objective.design.p, objective.n_outputs
    return min(n, max(40 * p, n // 5, 2000), 100_000 if r == 1 else max(2000, int(4e8 / (p * r) ** 2)))


class _Loop:
    """The state between steps: the sample of the Hessian, and the number of rows near the cut that may cross it."""

    def __init__(self, objective: Objective, tol: float, near: bool, rng: np.random.Generator) -> None:
        n, p = objective.design.n, objective.design.p
        self.objective, self.tol = objective, tol
        self.linear = hasattr(objective.loss, "margins")
        self.curvature = Curvature(objective, hessian_rows(objective), rng)
        self.crossed = 0  # rows that crossed the upper cut in the last step
        # At a minimum about as many rows are tied at the cut as there are parameters, and fewer with a strong penalty.
        # If a loss has no curvature, only the rows in the band limit a step.
        unknowns = p * objective.n_outputs
        few = max(20 * p, n // 8) if self.linear else min(10 * unknowns, 500)
        if objective.n_outputs > 1 and objective.m == 0:
            few = max(few, 4 * unknowns)
        self.widest = min(n, _WIDEST, max(500, int(_WIDEST_WORK / unknowns**2)))
        self.least_width = min(few, self.widest)
        self.width = self.least_width
        self.last_gain = np.inf
        self.near = near and not self.linear
        self.certify = tol > 0
        self.shared: tuple[Array, Array] | None = None  # rows of the last band, and their weights at its solution

    def learn(self, before: Iterate, after: Iterate, length: float) -> None:
        self.crossed = int(np.count_nonzero(before.is_cut != after.is_cut))
        switched = int(np.count_nonzero((before.q > 0) != (after.q > 0))) - self.crossed
        several = self.objective.n_outputs > 1
        # A shortened step means that the band was too narrow.
        wider = (2 if self.linear else 4) * self.width if length < 0.5 else 2 * switched
        self.width = min(max(self.width if several else self.width // _NARROWER, self.least_width, wider), self.widest)
        gain = before.value - after.value
        if self.crossed <= 2 and gain > 0.1 * self.last_gain and (length >= 1.0 or not several):
            self.curvature.size *= 5
        self.last_gain = gain
        if length != 1.0:
            self.shared = None

    def widen(self, iterate: Iterate, proposal: Proposal) -> bool:
        """Let more rows cross the cut after a failed step; a step may fail because most rows are nearly tied.

        Returns False if their number cannot be raised, or if the failure has another cause.
        """
        before = self.width
        kinked = self.linear or self.objective.k < self.objective.total
        if kinked and proposal.gain > 0.01 * self.tol * iterate.value > 0:
            # Narrower bands would fail again.
            self.width = self.least_width = min(max(8 * self.width, self._reached(iterate, proposal)), self.widest)
        return self.width > before

    def _reached(self, iterate: Iterate, proposal: Proposal) -> int:
        """The number of rows whose loss changes in the proposed step by at least its distance to the lower cut."""
        change = np.einsum("rn,rn->n", iterate.U, self.objective.design.scores(proposal.step))
        return int(np.count_nonzero(np.abs(iterate.s - iterate.lam) <= np.abs(change)))

    def propose(self, iterate: Iterate) -> Proposal:
        objective = self.objective
        gradient = objective.design.adjoint(iterate.U * iterate.q) / objective.kept + objective.penalty_gradient(
            iterate.W
        )
        if self.linear:
            return self._by_margins(iterate, gradient)
        if objective.k >= objective.total:
            return self._smooth(iterate, gradient)
        return self._kinked(iterate, gradient)

    def _smooth(self, iterate: Iterate, gradient: Array) -> Proposal:
        """A plain Newton step, for k = n. Near convergence the gap is computed too.

        It comes from tangents at the current scores or, if these do not prove the tolerance, at the end of the step. If
        they do, the expected gain is 0, and the step is not to be taken.
        """
        objective, little = self.objective, self.tol * iterate.value
        if self.certify and float(objective.gap_left(gradient[None])[0]) <= little:
            gap = iterate.value - lower_bound(objective, iterate.Z, iterate.q)
            if gap <= little:
                return Proposal(gradient, 0.0, None, gap)
        metric = Metric(self.curvature.hessian(iterate, iterate.q))
        step = -metric.solve(gradient.ravel()).reshape(gradient.shape)
        gain = -0.5 * float(np.vdot(step, gradient))
        if gain > 0.5 * little or not self.certify:
            return Proposal(step, gain)
        return self._proved(iterate, Proposal(step, gain), iterate.q, metric)

    def _kinked(self, iterate: Iterate, gradient: Array) -> Proposal:
        """A step in which rows near the lower cut may cross it; their final weights give the gap."""
        objective, little = self.objective, self.tol * iterate.value
        band = near_cut(objective, iterate, gradient, self.width, self.curvature.reach)
        hessian = self.curvature.hessian(iterate, self._weights(iterate))
        step, weights, gain = band.solve(hessian, self._enough(iterate))
        self.shared = band.rows, weights * objective.kept
        proposal = Proposal(step.reshape(gradient.shape), gain)
        if gain > 0.3 * little or not self.certify:
            return proposal
        q = iterate.q.astype(np.float64)
        q[band.rows] = weights * objective.kept
        return self._proved(iterate, proposal, q, Metric(hessian))

    def _weights(self, iterate: Iterate) -> Array:
        """The weights of the rows in the Hessian: those of F, but the last solution's for rows near the lower cut.

        At a minimum, rows tied at the lower cut share its weight. The Hessian of the Lagrangian weights their curvature
        by these shares; with weights of 0 and 1, steps converge only linearly.
        """
        if self.shared is None:
            return iterate.q
        rows, weights = self.shared
        q = iterate.q.astype(np.float64)
        q[rows] = np.where(iterate.is_cut[rows], 0.0, weights)
        return q

    def _by_margins(self, iterate: Iterate, gradient: Array) -> Proposal:
        """A step for a loss of one margin. The model is linear, so the weights at its end prove the gap directly."""
        objective = self.objective
        band, lines = near_kink(objective, iterate, gradient, self.width)
        step, weights, gain = band.solve(self.curvature.hessian(iterate, iterate.q), self._enough(iterate))
        proposal = Proposal(step.reshape(gradient.shape), gain)
        if gain > 0.3 * self.tol * iterate.value or not self.certify:
            return proposal
        bound = balanced(objective, *lines.sums(objective, iterate, band.rows, weights * objective.kept))
        end = objective.design.scores(iterate.W + proposal.step)
        return proposal._replace(scores=end, gap=iterate.value - bound)

    def _enough(self, iterate: Iterate) -> float:
        return 1e-3 * max(self.tol * iterate.value, 0.0 if self.near else min(self.last_gain, iterate.value))

    def _proved(self, iterate: Iterate, proposal: Proposal, q: Array, metric: Metric) -> Proposal:
        """The proposal with the scores at its end, and the gap that the weights q prove with tangents near that point.

        Because the Hessian of the sample differs from that of all rows, tangents at the end of the step leave a
        residual gradient, and the bound loses C times its square. All tangents are valid bounds, so they are moved by
        the step that cancels the residual. This costs only the square of this small step, and one pass.
        """
        objective, enough = self.objective, self.tol * iterate.value * (0.5 if self.objective.m > 0 else 1.0)
        W = iterate.W + proposal.step
        end = Z = objective.design.scores(W)
        gap = np.inf
        for _ in range(_TANGENTS):
            Z = Z - balancing_shift(objective, Z, q)
            bound, pull = tangents_at(objective, Z, q)
            if iterate.value - bound > 0.5 * gap:  # no improvement
                break
            gap = iterate.value - bound
            if gap <= enough:
                break
            move = -metric.solve((pull + objective.penalty_gradient(W)).ravel()).reshape(W.shape)
            W, Z = W + move, Z + objective.design.scores(move)
        return proposal._replace(scores=end, gap=gap)


def _search(objective: Objective, iterate: Iterate, proposal: Proposal) -> tuple[Iterate | None, float]:
    """The point and the length of the first of the steps 1, 1/2, 1/4, ... with a sufficient decrease of F.

    The point is None if no step decreases F enough. A full step may be extrapolated.
    """
    end = proposal.scores
    if end is None:
        end = objective.design.scores(iterate.W + proposal.step)
    length = 1.0
    for _ in range(12):
        Z = end if length == 1.0 else iterate.Z + length * (end - iterate.Z)
        trial = evaluate_at(objective, iterate.W + length * proposal.step, Z)
        if trial.value <= iterate.value - 1e-3 * length * proposal.gain and trial.value < iterate.value:
            return _extrapolated(objective, iterate, proposal, end, trial) if length == 1.0 else (trial, length)
        length *= 0.5
    return None, length


def _extrapolated(
    objective: Objective, iterate: Iterate, proposal: Proposal, end: Array, reached: Iterate
) -> tuple[Iterate, float]:
    """Double the step, up to 64 times its length, while F decreases and more than two rows have crossed the upper cut.

    A step minimises the problem with the currently dropped rows. Rows that cross the cut reduce the curvature of F, so
    steps are too short if many cross. Extending a step needs no further pass over X.
    """
    length = 1.0
    while np.count_nonzero(reached.is_cut != iterate.is_cut) > 2 and length < _LONGEST:
        Z = iterate.Z + 2.0 * length * (end - iterate.Z)
        trial = evaluate_at(objective, iterate.W + 2.0 * length * proposal.step, Z)
        if not trial.value < reached.value:
            break
        reached, length = trial, 2.0 * length
    return reached, length


@dataclass(frozen=True, eq=False)
class Iterate:
    """The objective at W (r, p): scores Z, losses s, slopes U, weights q, the lower cut and the value."""

    W: Array
    Z: Array
    s: Array
    U: Array
    q: Array
    lam: float
    value: float

    @cached_property
    def is_cut(self) -> Array:
        return (self.q <= 0) & (self.s > self.lam)


def evaluate_at(objective: Objective, W: Array, Z: Array | None = None) -> Iterate:
    Z = objective.design.scores(W) if Z is None else Z
    s, U = objective.losses_and_slopes(Z)
    chosen = objective.select(s)
    value = chosen.total / objective.kept + objective.penalty(W)
    return Iterate(W, Z, s, U, chosen.weights, float(chosen.lam), value)


class Curvature:
    """Hessians from a sample of the rows, drawn in proportion to their curvature.

    A row is drawn with a probability nearly proportional to its share of the trace, after scaling the columns, and is
    weighted by the inverse of that probability. A uniform sample would miss a few high-leverage rows or a rare class
    that dominate the curvature, and steps would be too long. With several scores all rows count as equally curved.
    """

    def __init__(self, objective: Objective, size: int, rng: np.random.Generator) -> None:
        self.objective, self.rng, self.size = objective, rng, size

    @property
    def exact(self) -> bool:
        return self.size >= self.objective.design.n

    @cached_property
    def _lengths(self) -> Array:
        """1 plus the mean of the squared entries of each row, with columns scaled to a mean square of 1 in a sample."""
        X, few = self.objective.design.X, -(-self.objective.design.n // 2000)
        part = X[::few]
        part = part.toarray() if self.objective.design.sparse else part
        square = np.maximum(np.einsum("ij,ij->j", part, part, dtype=np.float64) / len(part), 1e-300)
        scale = (1.0 / square / len(square)).astype(X.dtype)
        if self.objective.design.sparse:
            return np.asarray(X.multiply(X) @ scale) + 1.0
        return np.concatenate([X[a : a + _BLOCK] ** 2 @ scale for a in range(0, len(X), _BLOCK)]) + 1.0

    @cached_property
    def reach(self) -> Array:
        """How far the score of each row moves in a step, relative to other rows: the norm of its scaled entries."""
        return np.sqrt(self._lengths)

    def hessian(self, iterate: Iterate, q: Array) -> Array:
        """The Hessian (r p, r p) of F at this point with the weights q (n,), from a sample or, if `exact`, all rows.

        For a piecewise linear loss it is that of the penalty.
        """
        objective = self.objective
        penalty = np.tile(objective.penalty_diagonal() + 1e-9, objective.n_outputs)
        if hasattr(objective.loss, "margins"):
            return np.diag(penalty)
        # With several scores, computing the curvature of each row costs more than it saves.
        h = q * (objective.loss.curvature(objective.y, iterate.Z[0]) if objective.n_outputs == 1 else 1.0)
        rows, scale = np.arange(len(h)), np.ones(1)
        if not self.exact:
            chance = h * self._lengths
            chance *= 0.9 * self.size / max(float(chance.sum()), 1e-300)
            chance += h * (0.1 * self.size / max(float(h.sum()), 1e-300))
            rows = np.flatnonzero(self.rng.random(len(h), dtype=np.float32) < chance)
            scale = 1.0 / np.minimum(chance[rows], 1.0)
        if objective.n_outputs > 1:
            matrix = self._of_several(iterate, rows, h[rows] * scale)
        elif self.exact:
            matrix = objective.design.gram(h)
        else:
            matrix = objective.design.gram(h[rows] * scale, rows)
        matrix /= objective.kept
        matrix[np.diag_indices_from(matrix)] += penalty
        return matrix

    def _of_several(self, iterate: Iterate, rows: Array, weights: Array) -> Array:
        """The sum over these rows of weights times (Hessian of the loss in its r scores) kron (x x')."""
        objective, r, p = self.objective, self.objective.n_outputs, self.objective.design.p
        bend = objective.loss.hessian_operator(objective.y[rows], iterate.Z[:, rows].T)
        X = rows_of(objective.design, rows)
        total = np.zeros((r, p, r, p))
        for b in range(r):
            unit = np.zeros((len(rows), r))
            unit[:, b] = 1.0
            column = bend(unit) * weights[:, None]
            for a in range(b + 1):
                block = (X * column[:, a : a + 1]).T @ X
                total[a, :, b], total[b, :, a] = block, block.T
        return total.reshape(r * p, r * p)


def balancing_shift(objective: Objective, Z: Array, q: Array) -> float:
    """The number to subtract from all scores so that the slopes, weighted by q, sum to zero.

    The bound requires this, because the intercept is not penalised. It is 0 without an intercept, and with several
    scores, whose bound includes this step.
    """
    shift = 0.0
    for _ in range(4 if objective.design.fit_intercept and objective.n_outputs == 1 else 0):
        excess, size, bend = 0.0, 0.0, 0.0
        for start in range(0, len(q), _BLOCK):
            block = slice(start, start + _BLOCK)
            moved = Z[0, block] - Z.dtype.type(shift)
            pull = q[block] * objective.loss.value_and_derivative(objective.y[block], moved)[1].astype(np.float64)
            excess += float(pull.sum())
            size += float(np.abs(pull).sum())
            bend += float(q[block] @ objective.loss.curvature(objective.y[block], moved))
        if abs(excess) <= 1e-9 * size or bend <= 0:
            break
        shift += excess / bend
    return shift


def lower_bound(objective: Objective, Z: Array, q: Array) -> float:
    """The bound of `tangents_at`, without the gradient."""
    return tangents_at(objective, Z, q)[0]


def tangents_at(objective: Objective, Z: Array, q: Array) -> tuple[float, Array]:
    """A lower bound on the minimum with the same rows dropped: each loss is at least its tangent at the scores Z.

    q are feasible weights. The second value is the gradient (r, p) of the weighted mean of the losses at Z.
    """
    design, kept = objective.design, objective.kept
    if objective.n_outputs > 1:
        q, slopes = q.astype(np.float64) / kept, objective.losses_and_slopes(Z)[1]
        zero, flat = np.zeros((len(Z), design.p)), np.zeros_like(Z)
        risk = float(q @ objective.losses(flat))
        return risk - gap_above_risk(objective, zero, flat, q, slopes, risk), design.adjoint(slopes * q)
    heights, flows = np.zeros(2), np.zeros((2, design.p))
    for start in range(0, design.n, _BLOCK):
        block = slice(start, start + _BLOCK)
        s, u = objective.loss.value_and_derivative(objective.y[block], Z[0, block])
        s, u, weight = (a.astype(np.float64, copy=False) for a in (s, u, q[block]))
        above = weight * (s - u * Z[0, block])
        rising = u > 0
        heights += np.array([float(above.sum()), 0.0]) + float(above @ rising) * np.array([-1.0, 1.0])
        pull = weight * u
        sides = np.stack([pull * ~rising, pull * rising])
        flows += Design(design.X[block], design.fit_intercept).adjoint(sides)
    return balanced(objective, heights, flows), flows.sum(axis=0)[None] / kept


def balanced(objective: Objective, heights: Array, flows: Array) -> float:
    """The minimum of a weighted sum of tangents plus the penalty.

    `heights` (2,) are the sums of the tangents at W = 0, and `flows` (2, p) the sums of their gradients, first over
    tangents that decrease with the score, then over the others. With an intercept, which is not penalised, the slopes
    must sum to zero, so the larger of the two sums is scaled down. Scaled tangents stay below the losses, which are
    non-negative.
    """
    keep = np.ones(2)
    if objective.design.fit_intercept:
        keep = balance(flows[None, :, -1])
    v = (keep @ flows)[: objective.design.d] / objective.kept
    return float(keep @ heights) / objective.kept - 0.5 * objective.C * float(v @ v)
