"""The elastic net of weighted rows: proximal Newton steps on working sets of columns, with a duality gap.

F(W) = sum_i h_i loss(y_i, z_i) + (1 - l1_ratio)/2 ||coef||^2 + l1_ratio ||coef||_1, where h holds C and the weights of
the rows. A step minimises a quadratic model of the losses over the working set (`active_set.py`). Once the signs of the
coefficients are known, Newton's method finishes, and columns that violate their optimality condition join the set. Only
the gradient is computed for all columns.

If only the largest losses count, the sum over i is the maximum over weights of at most h with a given mass. It is
smoothed (`weights.py`), and the smoothing is reduced around the last weights. All feasible weights prove a lower bound.

Coefficients are entries of `coef` (r, d) with the flat index output * d + column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dposv

from ...core.arrays import Array
from ...core.losses import Absolute, Huber, Logistic, Softmax, Squared
from .active_set import quadratic_net, sparse_quadratic_net
from .conjugates import balanced, conjugate, in_domain
from .linear_program import least_absolute
from .weights import Fixed, Smoothed, Weights, largest

# The initial size of a working set, and the largest factor by which it grows in a round.
_FIRST, _GROWTH = 64, 2
# The largest numbers of proximal steps and of Newton steps on one working set.
_STEPS, _POLISH = 4, 12
# The tolerance of the quadratic model of a single step.
_ROUGH = 1e-4
# The least number of entries of a block that stays sparse if it is mostly zeros.
_LARGE = 100_000
# The smallest tolerance for which squared losses need no Newton step after the quadratic model.
_EXACT = 1e-4
# In the quadratic model, which must be bounded, curvatures are at least this share of the slopes, and probabilities of
# the given class at least the second number. Rows that are fitted well have small slopes and curvatures: a weak penalty
# needs both.
_FLAT, _UNLIKELY, _TINY = 1e-6, 1e-12, 1e-300
# The intercept if all kept rows have one class; any larger one is as good.
_LARGE_INTERCEPT = 40.0
# Absolute and largest losses: the largest number of reductions of the smoothing, their factor, and the first width of
# absolute losses after a start with coefficients.
_SMOOTHINGS, _SHARPER, _WARM = 14, 0.2, 0.04
# The largest number of linear programs, and the slope (1 at the minimum) from which a column is in the first one.
_PROGRAMS, _STEEP = 20, 0.95
# The share of the curvature of the parabola above the Huber loss for rows beyond delta, if steps are too long without
# it.
_OUTSIDE = 0.1


class Net(NamedTuple):
    """A fit: coefficients (r, d), intercepts (r,), the objective, its proved gap, and the number of rounds."""

    coef: Array
    intercept: Array
    value: float
    gap: float
    rounds: int


class _Model(NamedTuple):
    """A quadratic model of the losses: half the sum over the rows of ||root' scores - response||^2.

    `roots` is (n, r, r), `response` (n r,). For one output both are (n,).
    """

    roots: Array
    response: Array


@dataclass(frozen=True, eq=False)
class ElasticNet:
    """An elastic net problem: rows, loss and penalty. The weights of the rows are arguments of its methods.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        The rows, float64.
    y : ndarray of shape (n,)
        Their targets.
    loss : Squared, Huber, Absolute, Logistic or Softmax
        The loss of a row.
    n_outputs : int
        The number r of scores per row; 1 unless the loss is Softmax.
    l1_ratio : float
        The share of the l1 penalty, in (0, 1].
    fit_intercept : bool
        Whether there are intercepts.
    """

    X: Any
    y: Array
    loss: Any
    n_outputs: int
    l1_ratio: float
    fit_intercept: bool = True

    @cached_property
    def columns(self) -> Any:
        """X in a format with fast access to columns: CSC or Fortran order."""
        return sp.csc_matrix(self.X) if sp.issparse(self.X) else np.asfortranarray(self.X, dtype=np.float64)

    @cached_property
    def _transposed(self) -> Any:
        return self.columns.T

    def zero(self) -> tuple[Array, Array]:
        """Coefficients and intercepts of zero."""
        return np.zeros((self.n_outputs, self.X.shape[1])), np.zeros(self.n_outputs)

    def scores(self, coef: Array, intercept: Array) -> Array:
        """Scores (r, n), from the columns with nonzero coefficients."""
        used = np.flatnonzero(coef.any(axis=0))
        return np.asarray((self.columns[:, used] @ coef[:, used].T).T) + intercept[:, None]

    def losses(self, Z: Array) -> Array:
        """The losses (n,) of scores (r, n)."""
        return np.asarray(self.loss.value(self.y, Z[0] if self.n_outputs == 1 else Z.T))

    def slopes(self, Z: Array) -> Array:
        """Derivatives (r, n) of the losses with respect to the scores."""
        slopes = self.loss.value_and_derivative(self.y, Z[0] if self.n_outputs == 1 else Z.T)[1]
        return slopes[None, :] if self.n_outputs == 1 else slopes.T

    def penalty(self, coef: Array) -> float:
        """The penalty of the coefficients."""
        used = coef[coef != 0]
        return float((1 - self.l1_ratio) / 2 * (used @ used) + self.l1_ratio * np.abs(used).sum())

    def value(self, coef: Array, Z: Array, h: Array) -> float:
        """The objective at coefficients whose scores are Z."""
        return float(h @ self.losses(Z)) + self.penalty(coef)

    def largest_penalty(self, h: Array) -> float:
        """The factor of h above which some coefficient is not zero: 1 / alpha_max in scikit-learn's terms.

        Infinite if all coefficients are zero for any factor. For absolute losses it is that of a narrow Huber loss.
        """
        if isinstance(self.loss, Absolute):
            smooth, delta = self.smoothed(1e-6 * float(np.abs(self.y - np.median(self.y)).mean()))
            return smooth.largest_penalty(h / delta)
        _coef, intercept = self.zero()
        intercept, Z = self._best_intercept(intercept, Fixed(h))
        steepest = float(np.abs(self.gradient(self.slopes(Z) * h)).max(initial=0.0))
        return np.inf if steepest == 0 else self.l1_ratio / steepest

    def gradient(self, weighted: Array) -> Array:
        """Derivatives (r, d) of the losses with respect to the coefficients, from weighted slopes (r, n)."""
        return np.asarray((self._transposed @ weighted.T).T)

    def gap(self, value: float, Z: Array, h: Array, slopes: Array | None = None) -> tuple[float, Array]:
        """An upper bound on `value` minus the minimum, and the gradient (r, d) at the slopes that prove it.

        These are `slopes`, by default those at the scores Z, balanced if there is an intercept.
        """
        slopes = self.slopes(Z) if slopes is None else slopes
        feasible = balanced(self.loss, self.y, slopes, h) if self.fit_intercept else slopes
        gradient = self.gradient(feasible * h)
        steepest = float(np.abs(gradient).max(initial=0.0))
        best = -np.inf
        for factor in {1.0, min(1.0, self.l1_ratio / steepest) if steepest else 1.0}:
            beyond = np.maximum(np.abs(factor * gradient) - self.l1_ratio, 0.0)
            cost = _share(float((beyond**2).sum()), 2 * (1 - self.l1_ratio))
            best = max(best, -float(h @ conjugate(self.loss, self.y, factor * feasible)) - cost)
        return max(0.0, value - best), gradient

    def fit(
        self,
        h: Array,
        start: tuple[Array, Array] | None = None,
        *,
        top: float | None = None,
        tol: float = 1e-6,
        max_rounds: int = 50,
    ) -> Net:
        """Minimise with these weights of the rows, to a gap of `tol` times the objective.

        Parameters
        ----------
        h : ndarray of shape (n,)
            C times the weight of each row; 0 for dropped rows.
        start : pair of ndarray or None
            Coefficients and intercepts to start from; None means zero.
        top : float or None, default=None
            The mass of the largest losses that count, at most the sum of `h`; None means all.
        tol : float, default=1e-6
            The relative gap to reach.
        max_rounds : int, default=50
            Maximum number of working sets. It has no effect on absolute losses or with `top`.

        Returns
        -------
        Net
            The fit with its gap, which exceeds the tolerance if the rounds were too few.
        """
        start = self.zero() if start is None else start
        kept = np.flatnonzero(h)
        if top is not None:
            return self.take(kept)._sharpened(h[kept], top, start, tol)
        if 2 * len(kept) < len(h):  # copying most rows would take longer than using all
            return self.take(kept).fit(h[kept], start, tol=tol, max_rounds=max_rounds)
        if isinstance(self.loss, Absolute):
            return self._sharpened(h, None, start, tol)
        return self._minimise(Fixed(h), start, tol, max_rounds)

    def step(self, h: Array, start: tuple[Array, Array]) -> Net:
        """One proximal Newton step on one working set: the objective does not increase, and the gap is infinite.

        If only one of two classes has weight, the result is the minimum, with a gap. The parameters are those of `fit`.
        The loss must be smooth.
        """
        kept = np.flatnonzero(h)
        if 2 * len(kept) < len(h):
            return self.take(kept).step(h[kept], start)
        rows = Fixed(h)
        if self._has_one_class(rows):
            return self._minimise(rows, start, _ROUGH, 1)
        coef, intercept = start
        if coef.any():
            Z = self.scores(coef, intercept)
        else:
            intercept, Z = self._best_intercept(intercept, rows)
        gradient = self.gradient(self.slopes(Z) * h)
        part = _Columns(self, self._working_set(coef, gradient, _FIRST), rows)
        at = part.proximal_step(part.start(coef, intercept, Z), _ROUGH)
        flat = np.zeros(coef.size)
        flat[part.numbers] = at.theta
        return Net(flat.reshape(coef.shape), at.intercept, at.value, np.inf, 1)

    def smoothed(self, delta: float) -> tuple[ElasticNet, float]:
        """The problem with a Huber loss, which for small delta is nearly delta times the absolute loss; and delta."""
        delta = max(delta, 1e-300)
        return replace(self, X=self.columns, loss=Huber(delta)), delta

    def _sharpened(self, h: Array, top: float | None, at: tuple[Array, Array], tol: float) -> Net:
        """Minimise the sum of absolute losses, or of the largest losses, by problems with decreasing smoothing.

        Each of them gives a lower bound on the minimum, and the best bound gives the gap. The Huber loss with a small
        delta is nearly delta times the absolute loss, so weights are divided by delta. If absolute losses with a pure
        l1 penalty do not reach `tol`, linear programs follow (`_vertex`).
        """
        smooth, delta, used = self, 1.0, 0
        if not at[0].any() and self.fit_intercept and isinstance(self.loss, Absolute):
            at = at[0], np.array([np.median(self.y[h > 0])])
        losses = self.losses(self.scores(*at))
        weights = largest(losses, h, top)
        value = float(weights @ losses) + self.penalty(at[0])
        best, bound = Net(*at, value, np.inf, 0), -np.inf
        width = value / max(float(weights.sum()), 1e-300)
        if at[0].any() and isinstance(self.loss, Absolute):  # the solution of a similar problem needs less smoothing
            width *= _WARM
        linear = isinstance(self.loss, Absolute) and self.l1_ratio == 1
        for _ in range(_SMOOTHINGS):
            width *= _SHARPER
            if isinstance(self.loss, Absolute):
                smooth, delta = self.smoothed(width)
            rows: Weights = Fixed(h / delta)
            if top is not None:
                rows = Smoothed(h / delta, top / delta, weights / h, max(width, 1e-300) * delta)
            enough = max(0.1 * tol, 1e-8)
            found = smooth._minimise(rows, (best.coef, best.intercept), enough, 10 if linear else 30)
            used += found.rounds
            Z = smooth.scores(found.coef, found.intercept)
            weights = delta * rows.at(smooth.losses(Z))
            below = self.value(found.coef, Z, weights)
            if smooth is self:
                gap = self._gap_of(Fixed(weights), found.coef, found.intercept, Z, tol)[0]
            else:
                gap = self.gap(below, Z, weights, smooth.slopes(Z) / delta)[0]
            bound = max(bound, below - gap)
            value = self.value(found.coef, Z, largest(self.losses(Z), h, top))
            best = best if best.value <= value else found._replace(value=value)
            best = best._replace(gap=max(0.0, best.value - bound), rounds=used)
            if best.gap <= tol * max(best.value, 1e-9):
                return best
            if linear and found.gap > enough * found.value:  # with less smoothing it would be harder still
                break
        if linear:
            return self._vertex(h, top, best, self.gradient(smooth.slopes(Z) / delta * weights), tol)
        return best

    def _vertex(self, h: Array, top: float | None, near: Net, gradient: Array, tol: float) -> Net:
        """Column generation: solve at most 20 linear programs over a growing set of columns.

        It ends at a gap of `tol`, or when no column outside the set violates its optimality condition. The first set
        has the columns with a nonzero coefficient in `near` or a large entry in `gradient`. Returns the best fit, which
        is `near` if no program gives a lower one.
        """
        best, working = near, np.flatnonzero((np.abs(gradient[0]) > _STEEP) | (near.coef[0] != 0))
        for _ in range(_PROGRAMS):
            block = self.columns[:, working]
            block = block.toarray() if sp.issparse(block) else block
            found = least_absolute(block, self.y, h, top, self.fit_intercept)
            if found is None:
                break
            coef, intercept = self.zero()
            coef[0, working], intercept[0] = found.theta, found.intercept
            Z = self.scores(coef, intercept)
            value = self.value(coef, Z, largest(self.losses(Z), h, top))
            below = self.value(coef, Z, found.weights)
            gap, gradient = self.gap(below, Z, found.weights, found.slopes[None])
            rounds = best.rounds + 1
            best = best._replace(gap=max(0.0, best.value - below + gap), rounds=rounds)
            if value <= best.value:
                best = Net(coef, intercept, value, max(0.0, value - below + gap), rounds)
            steep = np.setdiff1d(np.flatnonzero(np.abs(gradient[0]) > 1), working)
            if best.gap <= tol * max(best.value, 1e-9) or not len(steep):
                break
            working = np.union1d(working, steep[np.argsort(-np.abs(gradient[0, steep]))[: max(_FIRST, len(working))]])
        return best

    def take(self, rows: Array) -> ElasticNet:
        """The problem on a subset of the rows."""
        return ElasticNet(
            self.columns[rows], self.y[rows], self.loss, self.n_outputs, self.l1_ratio, self.fit_intercept
        )

    def _minimise(self, rows: Weights, start: tuple[Array, Array], tol: float, max_rounds: int) -> Net:
        if self._has_one_class(rows):
            # Its intercept may grow without limit, and no coefficient is needed.
            coef, intercept = self.zero()
            intercept[:] = _LARGE_INTERCEPT * np.sign(rows.h @ self.y)
            value = rows.total(self.losses(self.scores(coef, intercept)))
            return Net(coef, intercept, value, value, 1)
        coef, intercept = start[0].copy(), start[1].copy()
        if not coef.any():
            intercept, Z = self._best_intercept(intercept, rows)
        else:
            Z = self.scores(coef, intercept)
        value = rows.total(self.losses(Z)) + self.penalty(coef)
        size, rounds, gap = _FIRST, 0, np.inf
        while rounds < max_rounds:
            rounds += 1
            gap, gradient = self._gap_of(rows, coef, intercept, Z, tol)
            if gap <= tol * max(value, 1e-9):
                break
            working = self._working_set(coef, gradient, size)
            size *= _GROWTH
            before = value
            coef, intercept, Z, value = self._descend(_Columns(self, working, rows), coef, intercept, Z, tol)
            if rounds == max_rounds or (value >= before and len(working) == coef.size):
                gap, _ = self._gap_of(rows, coef, intercept, Z, tol)
                break
        return Net(coef, intercept, value, gap, rounds)

    def _has_one_class(self, rows: Weights) -> bool:
        """Whether the loss is logistic, there is an intercept, and only one class has weight."""
        if not (isinstance(self.loss, Logistic) and self.fit_intercept):
            return False
        y = self.y[rows.h > 0]
        return bool(abs(y.sum()) == len(y))

    def _gap_of(self, rows: Weights, coef: Array, intercept: Array, Z: Array, tol: float) -> tuple[float, Array]:
        """The duality gap with the current weights, which is also that of the smoothed problem, and the gradient.

        If it exceeds `tol` times the objective, the slopes after a Newton step are tried as well: with weak penalties
        the last steps lower the objective by less than its rounding error, but the gap by orders of magnitude.
        """
        h = rows.at(self.losses(Z))
        value = self.value(coef, Z, h)
        gap, gradient = self.gap(value, Z, h)
        if gap > tol * max(value, 1e-9):
            slopes = _Columns(self, np.flatnonzero(coef), Fixed(h)).next_slopes(coef, intercept, Z)
            if slopes is not None and in_domain(self.loss, self.y, slopes):
                gap = min(gap, self.gap(value, Z, h, slopes)[0])
        return gap, gradient

    def _working_set(self, coef: Array, gradient: Array, size: int) -> Array:
        """The flat indices of all nonzero coefficients, and of the zero coefficients with the largest slopes.

        In total there are `size`, or twice as many as nonzero coefficients if that is more, but at most all.
        """
        slope = np.abs(gradient.ravel())
        used = np.flatnonzero(coef.ravel())
        count = max(size, 2 * len(used))
        if count >= len(slope):
            return np.arange(len(slope))
        slope[used] = np.inf
        return np.sort(np.argpartition(-slope, count)[:count])

    def _descend(
        self, part: _Columns, coef: Array, intercept: Array, Z: Array, tol: float
    ) -> tuple[Array, Array, Array, float]:
        """Proximal Newton steps over some of the coefficients, and Newton steps once their signs are known."""
        at = part.start(coef, intercept, Z)
        exact = isinstance(self.loss, Squared) and isinstance(part.rows, Fixed)  # the quadratic model is the problem
        for _ in range(_STEPS):
            before = at.value
            at = part.proximal_step(at, 0.1 * tol)
            if exact and tol >= _EXACT:
                break
            at, settled = part.polished(at, tol)
            if settled or before - at.value <= 0.1 * tol * at.value:
                break
        flat = coef.copy().ravel()
        flat[part.numbers] = at.theta
        return flat.reshape(coef.shape), at.intercept, at.Z, at.value

    def _best_intercept(self, intercept: Array, rows: Weights) -> tuple[Array, Array]:
        """The best intercepts if all coefficients are zero (without intercepts those given), and the scores."""
        if not self.fit_intercept:
            return intercept, np.repeat(intercept[:, None], len(self.y), axis=1)
        if isinstance(rows, Fixed):
            intercept = self._intercept_of(rows.h, intercept)
        Z = np.repeat(intercept[:, None], len(self.y), axis=1)
        part = _Columns(self, np.zeros(0, dtype=np.intp), rows)
        at, _ = part.polished(part.start(self.zero()[0], intercept, Z), 0.0, steps=100)
        return at.intercept, at.Z

    def _intercept_of(self, h: Array, intercept: Array) -> Array:
        """The best intercepts for fixed weights and zero coefficients, if they have a closed form.

        Otherwise approximate ones: the median for the Huber loss, and `intercept` if a class has no weight.
        """
        if isinstance(self.loss, Squared):
            return np.array([h @ self.y / h.sum()])
        if isinstance(self.loss, Huber):
            return np.array([np.median(self.y[h > 0])])
        if isinstance(self.loss, Logistic | Softmax):
            codes = (self.y > 0).astype(np.intp) if isinstance(self.loss, Logistic) else self.y
            total = np.bincount(codes, weights=h, minlength=max(self.n_outputs, 2))
            if total.all():
                logs = np.log(total)
                return logs[1:] - logs[:1] if self.n_outputs == 1 else logs - logs.mean()
        return intercept

    def model(self, Z: Array, h: Array) -> _Model:
        """The quadratic model of the weighted losses at the scores Z."""
        if isinstance(self.loss, Softmax):
            return self._softmax_model(Z, h)
        slope = self.slopes(Z)[0]
        if isinstance(self.loss, Huber):  # the parabola that is tangent to the loss at Z and nowhere below it
            bend = self.loss.delta / np.maximum(np.abs(Z[0] - self.y), self.loss.delta)
        else:
            bend = np.maximum(self.loss.curvature(self.y, Z[0]), np.maximum(_FLAT * np.abs(slope), _TINY))
        root = np.sqrt(bend * h)
        return _Model(root, root * (Z[0] - slope / bend))

    def _softmax_model(self, Z: Array, h: Array) -> _Model:
        """The quadratic model of softmax losses with probabilities p.

        The Hessian is diag(p) - p p' = B B' with B = diag(sqrt p) - p sqrt(p)', and B (e_y / sqrt(p_y)) is minus the
        slope.
        """
        rows = np.arange(len(self.y))
        p = np.maximum(self.loss.probabilities(Z.T), _TINY)
        p[rows, self.y] = np.maximum(p[rows, self.y], _UNLIKELY)
        root = np.sqrt(p)
        B = -p[:, :, None] * root[:, None, :]
        B[:, np.arange(p.shape[1]), np.arange(p.shape[1])] += root
        B *= np.sqrt(h)[:, None, None]
        response = np.einsum("nca,cn->na", B, Z)
        response[rows, self.y] += np.sqrt(h) / root[rows, self.y]
        return _Model(B, response.ravel())

    def curvature_roots(self, Z: Array, h: Array, outside: float = 0.0) -> Array:
        """Square roots of the weighted second derivatives of the losses at Z, in the shape of `_Model.roots`.

        In the linear parts of the Huber loss the second derivative is 0, and `outside` times that of `model` is used.
        Absolute losses have none and get that of the parabola that is tangent to them at Z and nowhere below them.
        """
        if isinstance(self.loss, Absolute):
            r = np.abs(Z[0] - self.y)
            return np.sqrt(h / np.maximum(r, max(1e-3 * float(r.mean()), 1e-300)))
        if isinstance(self.loss, Huber):
            r = np.abs(Z[0] - self.y)
            return np.sqrt(np.where(r <= self.loss.delta, 1.0, outside * self.loss.delta / np.maximum(r, 1e-300)) * h)
        return self.model(Z, h).roots


class _Point(NamedTuple):
    """A point of a descent over some coefficients: these, the intercepts, scores, losses and the objective."""

    theta: Array
    intercept: Array
    Z: Array
    losses: Array
    value: float


class _Columns:
    """A problem over some of the coefficients, given by their flat indices `numbers`; all others are zero."""

    def __init__(self, net: ElasticNet, numbers: Array, rows: Weights) -> None:
        self.net, self.numbers, self.rows = net, numbers, rows
        self.output, column = np.divmod(numbers, max(net.X.shape[1], 1))
        self.block = net.columns[:, column]
        n, q = self.block.shape
        self.sparse = sp.issparse(self.block) and net.n_outputs == 1 and n * q >= max(_LARGE, 10 * self.block.nnz)
        if not self.sparse:
            self.block = np.asarray(_dense(self.block), order="F")

    def start(self, coef: Array, intercept: Array, Z: Array) -> _Point:
        """The point at these coefficients."""
        return self._point(coef.ravel()[self.numbers], intercept, Z)

    def _point(self, theta: Array, intercept: Array, Z: Array) -> _Point:
        losses = self.net.losses(Z)
        return _Point(theta, intercept, Z, losses, self.rows.total(losses) + self.net.penalty(theta))

    def _change(self, theta: Array, intercept: Array) -> Array:
        """The change of the scores (r, n) for a change of the coefficients."""
        if self.net.n_outputs == 1:
            return (self.block @ theta + intercept[0])[None, :]
        Z = np.repeat(intercept[:, None], len(self.block), axis=1)
        for output in range(self.net.n_outputs):
            chosen = self.output == output
            Z[output] += self.block[:, chosen] @ theta[chosen]
        return Z

    def _designs(self, roots: Array, chosen: Any = slice(None)) -> tuple[Array, Array]:
        """The design matrix of the quadratic model: `roots` times columns (n r, q), and times intercepts (n r, r)."""
        block, output = _dense(self.block[:, chosen]), self.output[chosen]
        if roots.ndim == 1:
            return roots[:, None] * block, roots[:, None]
        n, r = roots.shape[:2]
        M = np.einsum("nqa,nq->naq", roots[:, output, :], block).reshape(n * r, -1)
        return M, roots.transpose(0, 2, 1).reshape(n * r, r)

    def _tied(self, at: _Point, chosen: Any = slice(None)) -> tuple[Array, Array] | None:
        """Further rows of `_designs`, for weights that change with the losses; None if no weight does.

        They are the gradients of the tied losses, centred if the sum of the weights is fixed.
        """
        rows, rate, balance = self.rows.tied(at.losses)
        if not len(rows):
            return None
        slopes = self.net.slopes(at.Z)[:, rows]
        M, E = _dense(self.block[rows][:, chosen]) * slopes[self.output[chosen]].T, slopes.T
        if balance:
            M, E = M - rate @ M / rate.sum(), E - rate @ E / rate.sum()
        root = np.sqrt(rate)[:, None]
        return root * M, root * E

    def proximal_step(self, at: _Point, tol: float) -> _Point:
        """Minimise the quadratic model plus the penalty, and search along the line to that point.

        The model is minimised to a gap of `tol` times the objective. If no step lowers the objective, `at` is returned.
        """
        net = self.net
        model = net.model(at.Z, self.rows.at(at.losses))
        tied = self._tied(at)
        if self.sparse and tied is None:
            weights = model.roots**2
            target = np.divide(model.response, model.roots, out=np.zeros_like(weights), where=weights > 0)
            theta, level = sparse_quadratic_net(
                self.block, target, weights, net.fit_intercept, net.l1_ratio, at.theta, tol * at.value
            )
            return self._search(at, theta, np.array([level]) if net.fit_intercept else at.intercept)
        M, E = self._designs(model.roots)
        response = model.response
        if tied is not None:
            M, E = np.vstack([M, tied[0]]), np.vstack([E, tied[1]])
            response = np.concatenate([response, tied[0] @ at.theta + tied[1] @ at.intercept])
        if net.fit_intercept:
            back = E.T / (E[:, 0] @ E[:, 0]) if E.shape[1] == 1 else np.linalg.pinv(E)
            of_columns, of_response = back @ M, back @ response
            M, response = M - E @ of_columns, response - E @ of_response
        theta = quadratic_net(M, response, net.l1_ratio, at.theta, tol * at.value)
        intercept = of_response - of_columns @ theta if net.fit_intercept else at.intercept
        return self._search(at, theta, intercept)

    def polished(self, at: _Point, tol: float, steps: int = _POLISH) -> tuple[_Point, bool]:
        """Newton's method with fixed signs; a coefficient that would change its sign becomes zero.

        Also returns whether the optimality conditions of these coefficients hold so well that a gap of `tol` times the
        objective can be proved. The gain of a step is quadratic in their violation, and the gap is linear.
        """
        outside = 0.0
        for _ in range(steps):
            support = np.flatnonzero(at.theta)
            gradient, scale = self._gradient(at, support)
            if np.abs(gradient).max(initial=0.0) <= 1e-14 * scale:
                return at, True
            step = self._newton_step(at, support, gradient, outside) if len(gradient) else None
            if step is None:
                return at, False
            if -float(gradient @ step) <= 0.01 * tol**2 * at.value:
                return at, True
            theta, intercept = _to_first_zero(at, support, step, self.net.fit_intercept)
            after = self._search(at, theta, intercept)
            # The Huber loss: if few rows have curvature, steps are too long; rows in the linear parts then get some
            # curvature.
            far = isinstance(self.net.loss, Huber) and after.theta is not theta
            if far and not outside:
                outside = _OUTSIDE
            elif after.value >= at.value:
                return at, False
            at = after
        return at, False

    def _gradient(self, at: _Point, support: Array) -> tuple[Array, float]:
        """Derivatives with respect to coefficients in `support` and intercepts, and the scale of their terms."""
        slopes = self.net.slopes(at.Z) * self.rows.at(at.losses)
        block = self.block[:, support]
        losses = block.T @ slopes[0] if len(slopes) == 1 else np.einsum("nq,qn->q", block, slopes[self.output[support]])
        theta = at.theta[support]
        ratio = self.net.l1_ratio
        in_theta = losses + (1 - ratio) * theta + ratio * np.sign(theta)
        in_intercept = slopes.sum(axis=1) if self.net.fit_intercept else np.zeros(0)
        largest = max(ratio, float(np.abs(slopes).sum()) if self.net.fit_intercept else 0.0)
        return np.concatenate([in_theta, in_intercept]), largest

    def _newton_step(self, at: _Point, support: Array, gradient: Array, outside: float) -> Array | None:
        roots = self.net.curvature_roots(at.Z, self.rows.at(at.losses), outside)
        H = np.zeros((len(gradient), len(gradient)))
        for part in (self._designs(roots, support), self._tied(at, support)):
            if part is not None:
                A = np.hstack(part) if self.net.fit_intercept else part[0]
                H += A.T @ A
        diagonal = H.reshape(-1)[:: len(H) + 1]
        diagonal[: len(support)] += 1 - self.net.l1_ratio
        diagonal += 1e-12 * max(float(diagonal.mean()), 1e-12)
        _, step, failed = dposv(H, -gradient)
        return None if failed else np.asarray(step)

    def next_slopes(self, coef: Array, intercept: Array, Z: Array) -> Array | None:
        """The slopes (r, n) after a Newton step with fixed signs, to first order; None if there is no such step.

        With them the optimality conditions of these coefficients hold up to rounding errors.
        """
        at, every = self.start(coef, intercept, Z), np.arange(len(self.numbers))
        gradient, _ = self._gradient(at, every)
        step = self._newton_step(at, every, gradient, 0.0) if len(gradient) else None
        if step is None:
            return None
        h = self.rows.at(at.losses)
        roots = self.net.curvature_roots(Z, h)
        M, E = self._designs(roots)
        moved = M @ step[: len(every)] + (E @ step[len(every) :] if self.net.fit_intercept else 0.0)
        if roots.ndim == 1:
            change = (roots * moved)[None, :]
        else:
            change = np.einsum("nca,na->cn", roots, moved.reshape(roots.shape[:2]))
        return self.net.slopes(Z) + np.divide(change, h, out=np.zeros_like(change), where=h > 0)

    def _search(self, at: _Point, theta: Array, intercept: Array) -> _Point:
        """The point after the first of the step lengths 1, 1/2, 1/4, ... that lowers the objective; otherwise `at`."""
        if self.net.n_outputs > 1:  # a common shift of all scores changes no loss
            intercept = intercept - intercept.mean()
        change = theta - at.theta, intercept - at.intercept
        dZ = self._change(*change)
        weighted = self.net.slopes(at.Z) * self.rows.at(at.losses)
        slope = float(np.vdot(weighted, dZ)) + self.net.penalty(theta) - self.net.penalty(at.theta)
        for share in _halves(30):
            if -share * slope <= 1e-16 * abs(at.value):  # below rounding errors, or no descent direction
                return at
            here = at.theta + share * change[0] if share < 1 else theta
            after = self._point(here, at.intercept + share * change[1], at.Z + share * dZ)
            if after.value < at.value:
                return after
        return at


def _to_first_zero(at: _Point, support: Array, step: Array, fit_intercept: bool) -> tuple[Array, Array]:
    """Coefficients and intercepts after a step, which ends at the first coefficient that would change its sign.

    The objective is smooth until there. A step beyond, with these coefficients set to zero, rarely lowers it.
    """
    before, change = at.theta[support], step[: len(support)]
    crossing = np.flatnonzero(before * (before + change) <= 0)
    shares = -before[crossing] / change[crossing]
    share = min(1.0, float(shares.min(initial=1.0)))
    theta = at.theta.copy()
    theta[support] = before + share * change
    theta[support[crossing[shares <= share]]] = 0.0
    return theta, at.intercept + share * step[len(support) :] if fit_intercept else at.intercept


def _dense(block: Any) -> Array:
    return np.asarray(block.toarray() if sp.issparse(block) else block)


def _halves(count: int) -> Iterator[float]:
    return (0.5**i for i in range(count))


def _share(squares: float, room: float) -> float:
    """squares / room; 0 if squares is 0, otherwise infinite if room is 0."""
    if squares == 0.0:
        return 0.0
    return squares / room if room else np.inf
