"""Newton steps on all rows and their certificate.

A step uses the Hessian of the kept rows. With very many rows F is nearly smooth at the cuts, and the curvature that is
lost because rows cross them is known. Otherwise, if k is smaller than n, a minimum lies on kinks: about as many rows
are tied at the lower cut as there are parameters. The rows next to this cut are then modelled one by one
(`solve_band`), and the certificate chooses their weights.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.objective import Objective
from ..solvers.concentration import hessian
from ..solvers.descent import Log, Metric, add_diagonal, bounded_difference, inverse_hessian, relative
from ..solvers.inner.band import solve_band
from ..solvers.inner.bounds import balance
from .evaluation import CROSSING_ROWS, FullData, Iterate, kept_share
from .kernels import MASS, OFFSET, Interval, Request, slopes_of

# The whole Hessian is built and factored up to this many parameters.
MAX_PARAMETERS = 1500
# The largest cost of the Hessian of several scores.
_HESSIAN_WORK = 4e10
# The weight of the squared sum of slopes in the small problem. `balance` removes what remains of this sum exactly, at a
# cost of about 1e-9 of the bound.
_BALANCE = 1e9
# The tolerance of the small problem relative to F, and the ridge of a factored Hessian.
_BAND_GAP, _RIDGE = 1e-14, 1e-12


def _softmax_hessian(sample: Objective, Z: Array, q: Array) -> Array:
    """The mean over rows, weighted by q, of (diag(P) - P P') kron (x x') with the class probabilities P (r,) of a row.

    It is a matrix (r p, r p) for p parameters per class. Only the first rows are used if all would take too long.
    """
    r, p = sample.n_outputs, sample.design.p
    rows = np.arange(min(len(q), max(int(_HESSIAN_WORK / (r * p) ** 2), 5 * r * p)))
    q = q[rows] / max(float(q[rows].sum()), 1e-300)
    probabilities = sample.loss.probabilities(Z.T[rows].astype(np.float64))
    matrix = np.zeros((r * p, r * p))
    for a in range(r):
        block = slice(a * p, (a + 1) * p)
        matrix[block, block] = sample.design.gram(q * probabilities[:, a], rows)
    for start in range(0, len(rows), 4096):
        part = slice(start, start + 4096)
        joint = outer_rows(
            sample.design.X[rows[part]], probabilities[part].T * np.sqrt(q[part]), sample.design.fit_intercept
        )
        matrix -= joint.T @ joint
    return matrix


def outer_rows(X: Any, U: Array, fit_intercept: bool) -> Array:
    """Array (rows, r p), float64: flattened outer products of each column of U (r, rows) and the features of the row.

    With `fit_intercept`, the last of the p features is 1.
    """
    X = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    if fit_intercept:
        X = np.concatenate([X, np.ones((len(X), 1))], axis=1)
    return np.einsum("rn,np->nrp", U, X).reshape(len(X), -1)


class _Band:
    """At most `size` rows nearest to the lower cut, whose weights are free, and the sums of all other rows.

    `near` and `tangents` (outer products of slopes and features) are those of the nearest rows, `caps` their largest
    weights and `K` the sum of their weights. `present` is the sum of their losses, weighted as in the iterate.
    `certain` has the `tangent_sums` of all other kept rows.
    """

    def __init__(self, data: FullData, iterate: Iterate, size: int) -> None:
        near, lower = iterate.near, iterate.lower
        assert near is not None
        assert lower is not None
        caps = kept_share(near.losses, None, iterate.upper) * near.mass
        distance = np.where(caps > 0, np.abs(near.losses - lower.value), np.inf)
        order = np.argsort(distance, kind="stable")[: min(size, int(np.count_nonzero(caps > 0)))]
        inside = np.zeros(len(caps), dtype=bool)
        inside[order] = True
        self.near, self.caps, weights = near.take(inside), caps[inside], iterate.weights
        self.certain = iterate.certain + near.take(~inside).sums(weights[~inside])
        self.K = data.kept - float(self.certain[:, MASS].sum())
        self.present = float(weights[inside] @ self.near.losses)
        self.tangents = outer_rows(self.near.X, self.near.slopes, data.model.fit_intercept)


def band_size(n_parameters: int) -> int:
    """The number of rows next to the lower cut in the small problem (`solve_band`)."""
    return 10 * n_parameters if n_parameters <= 100 else max(1000, min(3 * n_parameters, 1500))


def crossing_curvature(iterate: Iterate, kept: float, fit_intercept: bool) -> Array:
    """The curvature that the mean of the kept losses loses because rows cross the cuts when W moves, (r p, r p).

    At each cut it is the density of the rows there times the covariance of their gradients; rows that cross the lower
    cut add curvature. The density is the lower one of both sides, because there may be a gap at the cut. 0 if the
    brackets overlap.
    """
    near, request = iterate.near, iterate.request
    lost = np.zeros((iterate.W.size, iterate.W.size))
    if near is None or request.overlap:
        return lost
    for sign, cut, bracket in ((1.0, iterate.upper, request.upper), (-1.0, iterate.lower, request.lower)):
        if cut is None or bracket is None:
            continue
        inside = np.flatnonzero((near.losses >= bracket.low) & (near.losses <= bracket.high))
        distance = near.losses[inside] - cut.value
        if len(inside) > (most := CROSSING_ROWS * iterate.W.size):
            nearest = np.argpartition(np.abs(distance), most)[:most]
            inside, distance = inside[nearest], distance[nearest]
        sides = inside[distance > 0], inside[distance < 0]
        masses = [near.mass[side].sum() for side in sides]
        if not all(masses):
            continue
        ends = max(distance), -min(distance)
        density = min(mass / end for mass, end in zip(masses, ends, strict=True))
        for side, mass in zip(sides, masses, strict=True):
            rows = near.take(side)
            G = outer_rows(rows.X, rows.slopes, fit_intercept)
            G -= rows.mass @ G / mass
            lost += sign * density / (sum(masses) * kept) * (G.T * rows.mass) @ G
    return lost


class Local:
    """A local model of F at an iterate: its curvature, a certificate, and the next step.

    If `kinked`, the rows next to the lower cut are modelled individually, otherwise by their density.
    """

    def __init__(self, data: FullData, iterate: Iterate, kinked: bool) -> None:
        self.data, self.iterate, self.kinked = data, iterate, kinked and iterate.lower is not None
        self.sample = data.sample
        self.r, self.p = iterate.W.shape
        self.all_moved = False  # whether the certificate took a pass, because F should be nearly minimal

    @property
    def few_parameters(self) -> bool:
        """Whether the whole Hessian is built and factored."""
        return self.iterate.W.size <= MAX_PARAMETERS

    @cached_property
    def _loss_hessian(self) -> Array:
        """The Hessian of the mean of the kept losses."""
        if self.r == 1:
            return self.data.hessian(self.iterate)
        Z = self.sample.design.scores(self.iterate.W)
        s = self.data.model.losses(self.sample.y, Z)[0]
        return _softmax_hessian(self.sample, Z, self.sample.mass * self._is_kept(s))

    def _is_kept(self, s: Array) -> Array:
        low = -np.inf if self.iterate.lower is None else self.iterate.lower.value
        high = np.inf if self.iterate.upper is None else self.iterate.upper.value
        return (s >= low) & (s <= high)

    def _regularised(self, share: float) -> Array:
        """`share` times the Hessian (r p, r p) of the mean of the kept losses, plus that of the penalty."""
        return add_diagonal(share * self._loss_hessian, np.tile(self.sample.penalty_diagonal(), self.r))

    @cached_property
    def metric(self) -> Metric:
        """The approximate Hessian for steps: of all parameters or, if they are many, one that all scores share."""
        if not self.few_parameters:
            return Metric(hessian(self.sample, self.iterate.W))
        crossing = crossing_curvature(self.iterate, self.data.kept, self.data.model.fit_intercept)
        return Metric(bounded_difference(self._regularised(1.0), crossing, 0.1), _RIDGE)

    @cached_property
    def band(self) -> _Band:
        """The rows nearest to the lower cut, for the small problem."""
        return _Band(self.data, self.iterate, band_size(self.iterate.W.size))

    @cached_property
    def gap(self) -> float:
        """A proved bound on (F - best) / F, where best is the minimum with the same rows dropped; see `Result`.

        Infinite if different rows are tied at the upper cut. Every tangent is a lower bound of its loss, wherever it
        touches. With all tangents at W the bound loses C g^2 / 2 for a remaining gradient g; if tangents move by a
        Newton step, g cancels. Tangents of the sampled rows are tried first, because those of all rows take a pass.
        """
        if not _cut_is_clean(self.iterate):
            return np.inf
        data, value = self.data, self.iterate.value
        table = self._with_best_weights() if self.kinked else self.iterate.table
        best = _lower_bound(data, table)
        for everywhere in (False, True) if self.few_parameters else ():
            start = self._moved(table, self.iterate.W, True) if everywhere else (table, self.iterate.W)
            moved = None if start is None else self._moved(*start, False)
            best = max([best, *(_lower_bound(data, pair[0]) for pair in (start, moved) if pair is not None)])
            if relative(value - best, value) <= data.tol:
                break
        return relative(value - best, value)

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
        gradient = slopes_of(table.sum(axis=0), self.r)[:, : self.p] / data.kept + self.sample.penalty_gradient(at)
        step = -Metric(self._regularised(share), _RIDGE).solve(gradient.ravel()).reshape(at.shape)
        if everywhere and -2.0 * float(np.vdot(step, gradient)) > data.tol * abs(self.iterate.value):
            return None
        self.all_moved = everywhere or self.all_moved
        request = Request(at + step, among=among)
        return table - certain + (data.on_all(request) if everywhere else data.on_sample(request)), at + step

    def _with_best_weights(self) -> Array:
        """`tangent_sums` with the weights of the rows near the lower cut that maximise the lower bound."""
        band, data, near = self.band, self.data, self.band.near
        weight = np.full((self.r, self.p), np.sqrt(self.sample.C) / data.kept)
        weight[:, self.sample.design.d :] = np.sqrt(max(_BALANCE, self.sample.C)) / data.kept
        fixed = slopes_of(band.certain.sum(axis=0), self.r)[:, : self.p]
        offsets = (near.losses - np.einsum("rn,rn->n", near.slopes, near.scores)) / data.kept
        tangents, pull = band.tangents * weight.ravel(), (fixed * weight).ravel()
        enough = _BAND_GAP * abs(self.iterate.value)
        rho = solve_band(pull, np.eye(self.r * self.p), tangents, offsets, band.caps, band.K, enough).weights
        return band.certain + near.sums(rho)

    def step(self, pairs: list[tuple[Array, Array, Array]]) -> tuple[Array, float]:
        """The next step, and the decrease of F that the model predicts.

        `pairs` are the previous (step, change of the gradient, 1 / their inner product), for quasi-Newton steps.
        """
        if self.kinked and self.few_parameters:
            return self._kinked_step()
        shape = (1, 1, self.iterate.W.size) if self.few_parameters else (1, *self.iterate.W.shape)
        gradient = self.iterate.gradient.reshape(shape)
        reshaped = [(s.reshape(shape), y.reshape(shape), c) for s, y, c in pairs]
        direction = -inverse_hessian(gradient, reshaped, self.metric.solve)
        slope = float(np.vdot(direction, gradient))
        if not slope < 0:
            direction = -self.metric.solve(gradient)
            slope = float(np.vdot(direction, gradient))
        return direction.reshape(self.iterate.W.shape), -slope / 2

    def _kinked_step(self) -> tuple[Array, float]:
        """The step that minimises the quadratic model with the kinks of `band`, and the predicted decrease."""
        band, kept = self.band, self.data.kept
        fixed = slopes_of(band.certain.sum(axis=0), self.r)[:, : self.p] / kept
        fixed = fixed + self.sample.penalty_gradient(self.iterate.W)
        losses, caps, enough = band.near.losses, band.caps / kept, _BAND_GAP * abs(self.iterate.value)
        matrix = self._regularised(1.0)
        solved = solve_band(fixed.ravel(), matrix, band.tangents, losses, caps, band.K / kept, enough)
        return solved.step.reshape(self.r, self.p), band.present / kept - solved.value


def _lower_bound(data: FullData, table: Array) -> float:
    """A lower bound on F with the same rows dropped, because losses are never below their tangents.

    It is the minimum over W of the mean of the weighted tangents plus the penalty.

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


class Descent:
    """At most `max_iter` steps on all rows, until the certificate is at most `tol`."""

    def __init__(self, data: FullData, *, max_iter: int, log: Log) -> None:
        self.data, self.tol, self.max_iter, self.log = data, data.tol, max_iter, log
        self.pairs: list[tuple[Array, Array, Array]] = []
        self.kinked = not data.smooth  # until a step of this kind does not decrease F
        # Smaller differences of values are rounding errors; the certificate then decides.
        self.noise = 1e-7 if data.model.dtype == "float32" else 1e-14

    def run(self, W: Array) -> tuple[Iterate, float, int]:
        """Start at W; return the last point, its certificate, and the number of steps.

        It also ends if no step decreases F; in float32 the computation first switches to float64.
        """
        local = self._local(W)
        self.log("pass", local.iterate.value)
        for step in range(self.max_iter):
            gap = local.gap
            rounded = local.all_moved and self.data.model.dtype == "float32"
            moved = None if gap <= self.tol or rounded else self._advance(local)
            if moved is None and gap > self.tol and not rounded and (self.pairs or local.iterate.lower is not None):
                # Gradients jump when the dropped rows change, and a model of the lower cut fails if few rows are near.
                self.pairs, self.kinked = [], not self.kinked
                local = Local(self.data, local.iterate, self.kinked)
                gap = min(gap, local.gap)
                moved = None if gap <= self.tol else self._advance(local)
            if moved is not None:
                self._remember(local.iterate, moved.iterate)
            elif gap <= self.tol or self.data.model.dtype == "float64":
                return local.iterate, gap, step
            else:
                self._sharpen()
                moved = self._local(local.iterate.W)
            local = moved
            self.log("pass", local.iterate.value)
        return local.iterate, local.gap, self.max_iter

    def _local(self, W: Array) -> Local:
        return Local(self.data, self.data.evaluate_at(W), self.kinked)

    def _sharpen(self) -> None:
        """Switch to double precision, because float32 rounding hides the remaining gain."""
        self.data.use(replace(self.data.model, dtype="float64"))
        self.noise, self.pairs = 1e-14, []

    def _advance(self, local: Local) -> Local | None:
        direction, gain = local.step(self.pairs)
        if local.r > 1 and self.data.model.fit_intercept:  # a common shift of all scores changes nothing but rounding
            direction[:, -1] -= direction[:, -1].mean()
        length, value = 1.0, local.iterate.value
        if not (gain > 0 and np.isfinite(direction).all()):
            return None
        if gain <= 0.01 * self.tol * max(value, 1e-9) and not np.isfinite(local.gap):
            return None
        for _ in range(4):
            new = self._local(local.iterate.W + length * direction)
            close = abs(new.iterate.value - value) <= self.noise * abs(value)
            if new.iterate.value <= value - 1e-4 * length * gain or (close and new.gap < local.gap):
                return new
            if close:  # rounding hides the remaining gain
                return None
            length *= 0.3
        return None

    def _remember(self, old: Iterate, new: Iterate) -> None:
        s, y = new.W - old.W, new.gradient - old.gradient
        inner = float(np.vdot(s, y))
        if inner > 1e-12 * float(np.linalg.norm(s) * np.linalg.norm(y)):
            self.pairs = [*self.pairs[-9:], (s, y, np.array([1.0 / inner]))]
