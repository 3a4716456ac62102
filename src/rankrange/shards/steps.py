"""Newton steps on all rows and their certificate.

A step uses the Hessian of the kept rows, less the curvature that is lost because rows cross the cuts, corrected by the
changes of the gradient in earlier steps (L-BFGS). If k is smaller than n, a minimum may lie on kinks, where rows are
tied at the lower cut. If no step decreases F, the rows next to this cut are therefore modelled one by one
(`solve_band`). The certificate is a lower bound on F by tangents of the losses.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.objective import Design
from ..solvers.concentration import hessian
from ..solvers.descent import Log, Metric, add_diagonal, bounded_difference, inverse_hessian, relative
from ..solvers.inner.band import solve_band
from ..solvers.inner.bounds import balance
from .evaluation import FullData, Iterate, kept_share
from .kernels import MASS, OFFSET, Cutting, Interval, Request, slopes_of

# The whole Hessian is built and factored up to this many parameters.
MAX_PARAMETERS = 1500
# The ridge of a factored Hessian, and the tolerance of the small problem relative to F.
_RIDGE, _EXACT = 1e-12, 1e-14
# The share of the curvature that remains at least, whatever rows cross the cuts.
_LEAST = 0.1


class Band(NamedTuple):
    """The minimum of a quadratic model of F in which the weights of the rows next to the lower cut are free."""

    step: Array
    gain: float  # the predicted decrease of F
    table: Array  # the `tangent_sums` with the weights there


class Local:
    """A local model of F at an iterate: its curvature, a certificate, and the next step.

    If `kinked`, the rows next to the lower cut are modelled one by one.
    """

    def __init__(self, data: FullData, iterate: Iterate, kinked: bool) -> None:
        self.data, self.iterate, self.sample = data, iterate, data.sample
        self.r, self.p = iterate.W.shape
        self.few_parameters = iterate.W.size <= MAX_PARAMETERS  # whether the whole Hessian is built and factored
        self.kinked = kinked and self.few_parameters and iterate.lower is not None
        self.all_moved = False  # whether the certificate took a pass, because F should be nearly minimal

    @cached_property
    def _loss_hessian(self) -> Array:
        return self.data.hessian(self.iterate)

    def _regularised(self, share: float) -> Array:
        """`share` times the Hessian (r p, r p) of the mean of the kept losses, plus that of the penalty."""
        return add_diagonal(share * self._loss_hessian, np.tile(self.sample.penalty_diagonal(), self.r))

    @cached_property
    def metric(self) -> Metric:
        """The approximate Hessian for steps: of all parameters or, if they are many, one that all scores share."""
        if not self.few_parameters:
            return Metric(hessian(self.sample, self.iterate.W))
        matrix = self._regularised(1.0)
        if self.r == 1 and (self.iterate.lower is not None or self.iterate.upper is not None):
            matrix = bounded_difference(matrix, self.data.crossing(self.iterate), _LEAST)
        return Metric(matrix, _RIDGE)

    @cached_property
    def gap(self) -> float:
        """A proved bound on (F - best) / F, where best is the minimum with the same rows dropped; see `Result`.

        Infinite if different rows are tied at the upper cut. Every tangent is a lower bound of its loss, wherever it
        touches. With all tangents at W the bound loses C g^2 / 2 for a remaining gradient g; if tangents move by a
        Newton step, g cancels. Tangents of the sampled rows are tried first, because those of all rows take a pass.
        """
        if not _cut_is_clean(self.iterate):
            return np.inf
        data, value, W = self.data, self.iterate.value, self.iterate.W
        table = self.band.table if self.kinked else self.iterate.table
        best = max(_lower_bound(data, table), _lower_bound(data, self.iterate.table))
        for everywhere in (False, True) if self._nearly_minimal(table) else ():
            start = self._moved(table, W, True) if everywhere else (table, W)
            moved = None if start is None else self._moved(*start, False)
            best = max([best, *(_lower_bound(data, pair[0]) for pair in (start, moved) if pair is not None)])
            if relative(value - best, value) <= data.tol:
                break
        return relative(value - best, value)

    @cached_property
    def band(self) -> Band:
        """The rows nearest to the lower cut, solved for their weights and the step."""
        iterate, kept, near, size = self.iterate, self.data.kept, self.iterate.near, self.iterate.W.size
        assert near is not None
        assert iterate.lower is not None
        caps = kept_share(near.losses, None, iterate.upper) * near.mass
        distance = np.where(caps > 0, np.abs(near.losses - iterate.lower.value), np.inf)
        inside = np.zeros(len(caps), dtype=bool)
        inside[np.argsort(distance, kind="stable")[: min(10 * size, MAX_PARAMETERS, np.count_nonzero(caps))]] = True
        rows, others = near.take(inside), near.take(~inside)
        certain = iterate.certain + others.sums(iterate.weights[~inside])
        fixed = slopes_of(certain.sum(axis=0), self.r)[:, : self.p] / kept + self.sample.penalty_gradient(iterate.W)
        features = Design(rows.X, self.data.model.fit_intercept).dense(np.arange(len(rows.y)))
        tangents = np.einsum("rn,np->nrp", rows.slopes, features).reshape(len(features), -1)
        free, exact = 1.0 - float(certain[:, MASS].sum()) / kept, _EXACT * abs(iterate.value)
        matrix = self._regularised(1.0)
        solved = solve_band(fixed.ravel(), matrix, tangents, rows.losses, caps[inside] / kept, free, exact)
        gain = float(iterate.weights[inside] @ rows.losses) / kept - solved.value
        return Band(solved.step.reshape(iterate.W.shape), gain, certain + rows.sums(kept * solved.weights))

    def _moved(self, table: Array, at: Array, everywhere: bool) -> tuple[Array, Array] | None:
        """`table` with tangents of certainly kept rows moved from the parameters `at` by a Newton step, and its end.

        The step cancels the gradient. The rows are all certainly kept ones, unless the predicted decrease by the step
        is above a quarter of the tolerance; or those of the sample, which represent all rows, so that their tangents
        move farther.
        """
        data, W, (low, high) = self.data, self.iterate.W, self.iterate.between
        if not everywhere:  # the losses may be rounded differently there
            low = low + 1e-4 * (1.0 + abs(low)) if np.isfinite(low) else low
            high = high - 1e-4 * (1.0 + abs(high)) if np.isfinite(high) else high
        among = W, Interval(low, high)
        certain = self.iterate.certain if everywhere else data.on_sample(Request(at, among=among))
        share = 1.0 if everywhere else float(certain[:, MASS].sum()) / data.kept
        if share == 0:
            return None
        gradient, step = self._newton_step(table, at, share)
        if everywhere and -2.0 * float(np.vdot(step, gradient)) > data.tol * abs(self.iterate.value):
            return None
        self.all_moved = everywhere or self.all_moved
        request = Request(at + step, among=among)
        return table - certain + (data.on_all(request) if everywhere else data.on_sample(request)), at + step

    def _nearly_minimal(self, table: Array) -> bool:
        """Whether a Newton step on the kept rows gains less than the tolerance; otherwise no bound can prove it."""
        if not self.few_parameters:
            return False
        gradient, step = self._newton_step(table, self.iterate.W, 1.0)
        return -0.5 * float(np.vdot(step, gradient)) <= self.data.tol * abs(self.iterate.value)

    def _newton_step(self, table: Array, at: Array, share: float) -> tuple[Array, Array]:
        """The gradient at the parameters `at` of the tangents in `table`, and the step that cancels it."""
        gradient = slopes_of(table.sum(axis=0), self.r)[:, : self.p] / self.data.kept + self.sample.penalty_gradient(at)
        return gradient, -Metric(self._regularised(share), _RIDGE).solve(gradient.ravel()).reshape(at.shape)

    def step(self, pairs: list[tuple[Array, Array, Array]]) -> tuple[Array, float]:
        """The next step, and the decrease of F that the model predicts.

        `pairs` are the previous (step, change of the gradient, 1 / their inner product).
        """
        if self.kinked:
            return self.band.step, self.band.gain
        shape = (1, 1, self.iterate.W.size) if self.few_parameters else (1, *self.iterate.W.shape)
        gradient = self.iterate.gradient.reshape(shape)
        reshaped = [(s.reshape(shape), y.reshape(shape), c) for s, y, c in pairs]
        direction = -inverse_hessian(gradient, reshaped, self.metric.solve)
        return direction.reshape(self.iterate.W.shape), -float(np.vdot(direction, gradient)) / 2


def _lower_bound(data: FullData, table: Array) -> float:
    """A lower bound on F with the same rows dropped: the minimum of the mean of the weighted tangents plus the penalty.

    The intercept is not penalised, so the slopes must sum to zero. Each slope group is scaled by a factor in [0, 1];
    scaled tangents stay below the losses, which are non-negative.
    """
    slopes = slopes_of(table, data.model.n_outputs)
    keep = balance(slopes[:, :, -1].T) if data.model.fit_intercept else np.ones(len(table))
    v = np.tensordot(keep, slopes[:, :, :-1], 1) / data.kept
    return float(keep @ table[:, OFFSET]) / data.kept - 0.5 * data.sample.C * float(np.vdot(v, v))


def _cut_is_clean(iterate: Iterate) -> bool:
    """Whether the same rows stay dropped near W: m = 0, s_[m] > s_[m+1], or all rows tied at the upper cut are equal.

    More than 1000 tied sparse rows are not compared; the result is then False.
    """
    if iterate.upper is None or iterate.upper.taken >= iterate.upper.tied * (1.0 - 1e-12):
        return True
    assert iterate.near is not None
    tied = iterate.near.take(iterate.near.losses == iterate.upper.value)
    if sp.issparse(tied.X) and len(tied.y) > 1000:
        return False
    X = tied.X.toarray() if sp.issparse(tied.X) else tied.X
    return bool((X[:1] == X).all() and (tied.y == tied.y[0]).all())


class End(NamedTuple):
    """The end of a fit: the value, the lower cut, which rows are dropped, and the certificate."""

    cutting: Cutting
    value: float
    lam: float
    gap: float
    n_iter: int


class Descent:
    """At most `max_iter` steps on all rows, until the certificate is at most `tol`."""

    def __init__(self, data: FullData, *, max_iter: int, log: Log) -> None:
        self.data, self.tol, self.max_iter, self.log = data, data.tol, max_iter, log
        self.pairs: list[tuple[Array, Array, Array]] = []
        self.kinked = False  # until no other step decreases F

    def run(self, W: Array) -> End:
        """Start at W. It also ends if no step decreases F; in float32 the computation first switches to float64."""
        local = self._local(W)
        self.log("pass", local.iterate.value)
        for step in range(self.max_iter):
            if local.gap <= self.tol:
                return self._end(local, step)
            single = self.data.model.dtype == "float32"
            rounded = single and local.all_moved
            moved = None if rounded else self._advance(local)
            if moved is None and not rounded and (self.pairs or local.iterate.lower is not None):
                self.pairs, self.kinked = [], not self.kinked  # gradients jump when the dropped rows change
                other = Local(self.data, local.iterate, self.kinked)
                moved = None if other.gap <= self.tol else self._advance(other)
                local = min(local, other, key=lambda model: model.gap)
            if moved is not None:
                self._remember(local.iterate, moved.iterate)
            elif local.gap <= self.tol or not single:
                return self._end(local, step)
            else:  # float32 rounding hides the remaining gain
                self.data.use(replace(self.data.model, dtype="float64"))
                self.pairs, moved = [], self._local(local.iterate.W)
            local = moved
            self.log("pass", local.iterate.value)
        return self._end(local, self.max_iter)

    def _end(self, local: Local, n_iter: int) -> End:
        at, model = local.iterate, self.data.model
        takes_tie = at.upper is not None and at.upper.takes_tie
        cutting = Cutting(model, at.W, np.inf if at.upper is None else at.upper.value, takes_tie)
        return End(cutting, at.value, at.least if at.lower is None else at.lower.value, local.gap, n_iter)

    def _local(self, W: Array) -> Local:
        return Local(self.data, self.data.evaluate_at(W), self.kinked)

    def _advance(self, local: Local) -> Local | None:
        """The end of a step that decreases F or, where rounding hides the decrease, the gap; None if there is none."""
        direction, gain = local.step(self.pairs)
        length, value = 1.0, local.iterate.value
        if not (gain > 0 and np.isfinite(direction).all()):
            return None
        noise = (1e-7 if self.data.model.dtype == "float32" else 1e-14) * abs(value)
        for _ in range(4):
            new = self._local(local.iterate.W + length * direction)
            close = abs(new.iterate.value - value) <= noise
            if new.iterate.value <= value - 1e-4 * length * gain or (close and new.gap < local.gap):
                return new
            if close:
                return None
            length *= 0.3
        return None

    def _remember(self, old: Iterate, new: Iterate) -> None:
        s, y = new.W - old.W, new.gradient - old.gradient
        inner = float(np.vdot(s, y))
        if inner > 1e-12 * float(np.linalg.norm(s) * np.linalg.norm(y)):
            self.pairs = [*self.pairs[-9:], (s, y, np.array([1.0 / inner]))]
