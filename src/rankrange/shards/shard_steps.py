"""Steps on all rows and their certificate, each from the results of one pass.

If k keeps all rows, F is smooth near a minimum, and a step is a quasi-Newton step in the metric of the sample's
Hessian. If k is smaller, a minimum lies on kinks: about as many rows are tied at the lower cut as there are parameters.
The rows near this cut are known individually. A step minimises a model with their exact kinks and a quadratic function
for all other rows. The certificate chooses the weights of these rows that give the largest lower bound. Both are the
same small problem (`solve_band`).
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
from .evaluation import FullData, Iterate, slopes_of, sums_of, take
from .shard_kernels import Rows, TangentTable

# The Hessian of the sample is built and factored up to this many parameters.
MAX_PARAMETERS = 1500
# The largest cost of the Hessian of several scores.
_HESSIAN_WORK = 4e10
# The weight of the squared sum of slopes in the small problem. `balance` removes what remains of this sum exactly, at a
# cost of about 1e-9 of the bound.
_BALANCE = 1e9
# The tolerance of the small problem relative to F, and the ridge of a factored Hessian.
_BAND_GAP, _RIDGE = 1e-14, 1e-12
# Further steps are not made if the gap is below this share of the tolerance.
_FAR_BELOW = 0.05


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

    `rows` and `tangents` (outer products of slopes and features) are those of the nearest rows, `caps` their largest
    weights and `K` the sum of their weights. `present` is the sum of their losses, weighted as in the iterate.
    `certain` has the `tangent_sums` of all other kept rows.
    """

    def __init__(self, data: FullData, iterate: Iterate, size: int) -> None:
        assert iterate.rows is not None
        assert iterate.lower is not None
        rows, lower, upper = iterate.rows, iterate.lower, iterate.upper
        share = np.ones(len(rows.losses))
        if upper is not None:
            share[rows.losses > upper.value] = 0.0
            share[rows.losses == upper.value] = 1.0 - upper.taken / upper.tied
        caps = share * rows.mass
        distance = np.where(caps > 0, np.abs(rows.losses - lower.value), np.inf)
        near = np.argsort(distance, kind="stable")[: min(size, int(np.count_nonzero(caps > 0)))]
        self.near = np.sort(near)
        others = np.ones(len(caps), dtype=bool)
        others[self.near] = False
        self.rows, self.caps = take(rows, self.near), caps[self.near]
        self.certain = iterate.certain + sums_of(rows, iterate.weights, np.flatnonzero(others))
        self.K = data.kept - float(self.certain[:, TangentTable.MASS].sum())
        self.present = float(iterate.weights[self.near] @ self.rows.losses)
        if data.model.by_margin:
            self._add_empty_row()
        self.tangents = outer_rows(self.rows.X, self.rows.slopes, data.model.fit_intercept)

    def _add_empty_row(self) -> None:
        """Add a row with loss 0, which takes the weight that rows with negative margins need not get."""
        none = self.rows.X[:1] * 0.0
        X = sp.vstack([self.rows.X, none], format="csr") if sp.issparse(none) else np.concatenate([self.rows.X, none])
        flat = np.zeros((1, 1))
        self.rows = Rows(
            X,
            np.append(self.rows.y, 1.0),
            np.append(self.rows.losses, 0.0),
            np.concatenate([self.rows.slopes, flat], axis=1),
            np.concatenate([self.rows.scores, flat], axis=1),
            np.append(self.rows.mass, self.K),
        )
        self.caps = np.append(self.caps, self.K)


def band_size(n_parameters: int) -> int:
    """The number of rows next to the lower cut in the small problem (`solve_band`)."""
    return 10 * n_parameters if n_parameters <= 100 else max(1000, min(3 * n_parameters, 1500))


class Local:
    """A local model of F: its curvature estimated on the sample, a certificate, and the next step.

    If `kinked`, the rows next to the lower cut are modelled individually, otherwise by their density.
    """

    def __init__(self, data: FullData, iterate: Iterate, kinked: bool = True) -> None:
        self.data, self.iterate, self.kinked = data, iterate, kinked and iterate.lower is not None
        self.sample = data.sample

    @cached_property
    def _at_sample(self) -> tuple[Array, Array, Array]:
        """Scores (r, n), losses and masses of the sampled rows; rows outside the cuts of all rows have mass 0."""
        sample, iterate = self.sample, self.iterate
        Z = sample.design.scores(iterate.W)
        s = self.data.model.losses(sample.y, Z)
        q = self.data.mass.astype(np.float64)
        if iterate.lower is not None:
            q = q * (s >= iterate.lower.value)
        if iterate.upper is not None:
            q = q * (s <= iterate.upper.value)
        return Z, s, q

    @cached_property
    def _loss_hessian(self) -> Array:
        """The Hessian of the mean of the kept losses, from the sample or, if F is smooth, from `FullData.hessians`.

        For a hinge it is that of `_density_of_kinks`.
        """
        if self.data.model.by_margin:
            return self._density_of_kinks()
        if self.data.smooth:
            return self._hessians[0]
        Z, _, q = self._at_sample
        q = q / max(float(q.sum()), 1e-300)
        if self.sample.n_outputs > 1:
            return _softmax_hessian(self.sample, Z, q)
        return self.sample.design.gram(q * self.sample.loss.curvature(self.sample.y, Z[0]))

    @cached_property
    def _hessians(self) -> tuple[Array, Array]:
        return self.data.hessians(self.iterate)

    def _density_of_kinks(self) -> Array:
        """A smoothed Hessian of the mean of the hinges, from the density of sampled rows near the kink."""
        assert self.iterate.lower is not None
        _, s, _ = self._at_sample
        top = np.inf if self.iterate.upper is None else self.iterate.upper.value
        distance = np.where(s <= top, np.abs(s - self.iterate.lower.value), np.inf)
        rank = min(max(len(s) // 32, 30 * self.sample.design.p), len(s) - 1)
        reach = max(float(np.partition(distance, rank)[rank]), self.reach, 1e-9)
        reach = reach if np.isfinite(reach) else 1.0
        return self.sample.design.gram(self.data.mass * (distance <= reach)) / (2.0 * reach * self.sample.kept)

    @property
    def reach(self) -> float:
        """The distance from the kink of the hinge within which all rows are known individually."""
        iterate = self.iterate
        assert iterate.lower is not None
        below = min(iterate.rows.losses.min(), 0.0) if iterate.rows is not None else 0.0
        return float(min(iterate.between.low - iterate.lower.value, iterate.lower.value - below))

    def _regularised(self, share: float) -> Array:
        """`share` times the Hessian (r p, r p) of the mean of the kept losses, plus that of the penalty."""
        penalty = np.tile(self.sample.penalty_diagonal(), self.sample.n_outputs)
        return add_diagonal(share * self._loss_hessian, penalty)

    @property
    def few_parameters(self) -> bool:
        """Whether the whole Hessian is built and factored."""
        return self.iterate.W.size <= MAX_PARAMETERS

    @cached_property
    def metric(self) -> Metric:
        """The approximate Hessian for steps: of all parameters or, if they are many, one that all scores share.

        If F is smooth, it includes the effect of rows that cross the cuts, but stays positive definite.
        """
        if not self.few_parameters:
            return Metric(hessian(self.sample, self.iterate.W))
        matrix = self._regularised(1.0)
        return Metric(bounded_difference(matrix, self._hessians[1], 0.1) if self.data.smooth else matrix, _RIDGE)

    @cached_property
    def band(self) -> _Band:
        """The rows near the lower cut, for the small problem; for a hinge all rows that the pass collected."""
        every = 0 if self.iterate.rows is None else len(self.iterate.rows.losses)
        return _Band(self.data, self.iterate, every if self.data.model.by_margin else band_size(self.iterate.W.size))

    @cached_property
    def gap(self) -> float:
        """A proved bound on (F - best) / F, where best is the minimum with the same rows dropped; see `Result`.

        Infinite if different rows are tied at the upper cut.
        """
        if not _cut_is_clean(self.iterate):
            return np.inf
        table = self._with_best_weights() if self.kinked else self.iterate.table()
        bounds = [_lower_bound(self.data, table)]
        if self.few_parameters and not self.data.model.by_margin:
            moved = self._with_all_tangents_moved(table) if self.data.smooth else (table, self.iterate.W)
            if moved is not None:
                bounds.append(_lower_bound(self.data, self._with_moved_tangents(*moved)))
        return relative(self.iterate.value - max(bounds), self.iterate.value)

    def _with_all_tangents_moved(self, table: Array) -> tuple[Array, Array] | None:
        """`tangent_sums` with the tangents of all certainly kept rows at the end of a Newton step, and that point.

        The lower bound of these tangents is close to the minimum with the same rows dropped, for any number of rows. It
        takes another pass. None if the predicted decrease by the step alone exceeds the tolerance.
        """
        iterate, data = self.iterate, self.data
        gradient = self._residual(table, iterate.W)
        step = -Metric(self._regularised(1.0), _RIDGE).solve(gradient.ravel()).reshape(iterate.W.shape)
        if -0.5 * float(np.vdot(step, gradient)) > data.tol * abs(iterate.value):
            return None
        shards: Any = data.shards
        W = iterate.W + step
        return table - iterate.certain + shards.certain_at(data.model, iterate.W, iterate.between, W), W

    def _residual(self, table: Array, W: Array) -> Array:
        """The gradient at W of the mean of the tangents plus the penalty, given the `tangent_sums`."""
        r, p = W.shape
        total = slopes_of(table.sum(axis=0), r, p, self.sample.design.fit_intercept) / self.data.kept
        return total + self.sample.penalty_gradient(W)

    def _with_best_weights(self) -> Array:
        """`tangent_sums` with the weights of the rows near the lower cut that maximise the lower bound."""
        band, data, (r, p) = self.band, self.data, self.iterate.W.shape
        weight = np.full((r, p), np.sqrt(self.sample.C) / data.kept)
        weight[:, self.sample.design.d :] = np.sqrt(max(_BALANCE, self.sample.C)) / data.kept
        fixed = slopes_of(band.certain.sum(axis=0), r, p, data.model.fit_intercept)
        offsets = (band.rows.losses - np.einsum("rn,rn->n", band.rows.slopes, band.rows.scores)) / data.kept
        tangents, pull = band.tangents * weight.ravel(), (fixed * weight).ravel()
        enough = _BAND_GAP * abs(self.iterate.value)
        rho = solve_band(pull, np.eye(r * p), tangents, offsets, band.caps, band.K, enough).weights
        return band.certain + sums_of(band.rows, rho)

    def _with_moved_tangents(self, table: Array, W: Array) -> Array:
        """`tangent_sums` in which some sampled rows have tangents at other scores.

        Every tangent is a lower bound of its loss, so the bound stays valid. A residual gradient g of the tangents
        lowers the bound by C g^2 / 2, and by more for the intercept. Moving the tangents of a few rows cancels g, and
        lowers the bound only by g^2 divided by their curvature. These rows represent all rows, so their tangents move
        farther than in a Newton step on all rows. Before the move, the tangents are at W.
        """
        part = self.data.movable(self.iterate)
        if part is None:
            return table
        metric = Metric(self._regularised(part.mass / self.data.kept), _RIDGE)
        step = -metric.solve(self._residual(table, W).ravel()).reshape(W.shape)
        return table - part.sums(W) + part.sums(W + step)

    def step(self, pairs: list[tuple[Array, Array, Array]]) -> tuple[Array, float]:
        """The next step, and the decrease of F that the model predicts.

        `pairs` are the previous (step, change of the gradient, 1 / their inner product), for quasi-Newton steps.
        """
        if self.data.model.by_margin:
            return self._step_over_kinks()
        if self.kinked and self.few_parameters:
            return self._kinked_step(self._regularised(1.0))
        shape = (1, 1, self.iterate.W.size) if self.few_parameters else (1, *self.iterate.W.shape)
        gradient = self.iterate.gradient.reshape(shape)
        reshaped = [(s.reshape(shape), y.reshape(shape), c) for s, y, c in pairs]
        direction = -inverse_hessian(gradient, reshaped, self.metric.solve)
        slope = float(np.vdot(direction, gradient))
        if not slope < 0:
            direction = -self.metric.solve(gradient)
            slope = float(np.vdot(direction, gradient))
        return direction.reshape(self.iterate.W.shape), -slope / 2

    def _step_over_kinks(self) -> tuple[Array, float]:
        """The step of a hinge, and the predicted decrease: both are exact if only known rows cross the kink.

        If others would cross it, their density is added as curvature, without the part of the known rows.
        """
        exact = self._kinked_step(self._regularised(0.0))
        if self._movement(exact[0]) <= self.reach:
            return exact
        exact = self._kinked_step(self._regularised(1.0))
        outside = max(1.0 - self.reach / max(self._movement(exact[0]), 1e-300), 0.0)
        return self._kinked_step(self._regularised(max(outside**2, 0.05)))

    def _movement(self, step: Array) -> float:
        """The 99.9% quantile of the absolute changes of the scores of sampled rows near the kink."""
        assert self.iterate.lower is not None
        _, s, _ = self._at_sample
        near = np.abs(s - self.iterate.lower.value) < 1.0
        moved = np.abs(self.sample.design.scores(step)[0][near])
        return float(np.quantile(moved, 0.999)) if len(moved) else 0.0

    def _kinked_step(self, matrix: Array) -> tuple[Array, float]:
        """The step that minimises the model with this Hessian and the kinks of `band`, and the predicted decrease."""
        band, kept, (r, p) = self.band, self.data.kept, self.iterate.W.shape
        fixed = slopes_of(band.certain.sum(axis=0), r, p, self.data.model.fit_intercept) / kept
        fixed += self.sample.penalty_gradient(self.iterate.W)
        losses, caps, enough = band.rows.losses, band.caps / kept, _BAND_GAP * abs(self.iterate.value)
        solved = solve_band(fixed.ravel(), matrix, band.tangents, losses, caps, band.K / kept, enough)
        return solved.step.reshape(r, p), band.present / kept - solved.value


def _lower_bound(data: FullData, table: Array) -> float:
    """A lower bound on F with the same rows dropped, because losses are never below their tangents.

    It is the minimum over W of the mean of the weighted tangents plus the penalty.

    The intercept is not penalised, so the slopes must sum to zero. Each slope group is scaled by a factor in [0, 1];
    scaled tangents stay below the losses, which are non-negative.
    """
    r = data.model.n_outputs
    keep = np.ones(len(table))
    if data.model.fit_intercept:
        keep = balance(table[:, TangentTable.SLOPES : TangentTable.SLOPES + r].T)
    v = keep @ table[:, TangentTable.SLOPES + r :] / data.kept
    return float(keep @ table[:, TangentTable.OFFSET]) / data.kept - 0.5 * data.sample.C * float(v @ v)


def _cut_is_clean(iterate: Iterate) -> bool:
    """Whether the same rows stay dropped near W: m = 0, s_[m] > s_[m+1], or all rows tied at the upper cut are equal.

    More than 1000 tied sparse rows are not compared; the result is then False.
    """
    if iterate.upper is None or iterate.upper.taken >= iterate.upper.tied * (1.0 - 1e-12):
        return True
    assert iterate.rows is not None
    tied = np.flatnonzero(iterate.rows.losses == iterate.upper.value)
    X = iterate.rows.X[tied]
    if sp.issparse(X):
        if len(tied) > 1000:
            return False
        X = X.toarray()
    return bool((X[:1] == X).all() and (iterate.rows.y[tied] == iterate.rows.y[tied[0]]).all())


class Descent:
    """At most `max_iter` steps on all rows, until the certificate is at most `tol`, and then up to `further` more."""

    def __init__(self, data: FullData, *, tol: float, max_iter: int, log: Log, further: int = 0) -> None:
        self.data, self.tol, self.max_iter, self.log, self.further = data, tol, max_iter, log, further
        data.tol = tol
        self.pairs: list[tuple[Array, Array, Array]] = []
        self.kinked = not data.smooth  # until a smooth step does not decrease F
        # Smaller differences of values are rounding errors; the certificate then decides.
        self.noise = 1e-7 if data.model.dtype == np.float32 else 1e-14

    def run(self, W: Array) -> tuple[Iterate, float, int]:
        """Start at W; return the last point, its certificate, and the number of steps.

        It also ends if no step decreases F; in float32 the computation first switches to float64.
        """
        local = self._local(W)
        self.log("pass", local.iterate.value)
        for step in range(self.max_iter):
            if local.gap <= self.tol:
                self.further -= 1
                if self.further < 0 or self._below_tolerance(local):
                    return local.iterate, local.gap, step
            moved = self._advance(local)
            if moved is None and self.pairs:
                # Gradients jump when the dropped rows change; a step without the gradient differences may still
                # decrease F.
                self.pairs = []
                moved = self._advance(local)
            if moved is None and local.iterate.lower is not None and not self.kinked:
                self.kinked = True
                local = Local(self.data, local.iterate)
                if local.gap <= self.tol:
                    return local.iterate, local.gap, step
                moved = self._advance(local)
            if moved is None:
                if self.data.model.dtype == np.float64 or local.gap <= self.tol:
                    return local.iterate, local.gap, step
                self._sharpen()
                moved = self._local(local.iterate.W)
            else:
                self._remember(local.iterate, moved.iterate)
            local = moved
            self.log("pass", local.iterate.value)
        return local.iterate, local.gap, self.max_iter

    def _local(self, W: Array) -> Local:
        return Local(self.data, self.data.evaluate_at(W), self.kinked)

    def _below_tolerance(self, local: Local) -> bool:
        """Whether the gap and, if F is smooth, also the predicted decrease are too small for another step."""
        enough = _FAR_BELOW * self.tol
        return local.gap <= enough and (
            not self.data.smooth or local.step(self.pairs)[1] <= enough * local.iterate.value
        )

    def _sharpen(self) -> None:
        """Switch to double precision, because float32 rounding hides the remaining gain."""
        self.data.model = replace(self.data.model, dtype=np.dtype(np.float64))
        self.noise, self.pairs = 1e-14, []

    def _advance(self, local: Local) -> Local | None:
        direction, gain = local.step(self.pairs)
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
