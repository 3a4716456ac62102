"""The AoRR objective of a linear model: F(W) = (sum of the losses ranked m+1..k) / (k - m) + penalty.

Shapes, used by every solver:
- W (r, p): one row of parameters per score; r = 1 unless the loss has one score per class. With an intercept
  p = d + 1, and the last column, which is not penalised, is the intercept.
- scores (r, n), losses s (n,), weights q (n,). Scores are class-major, so every pass over them is contiguous.
- With `sample_weight`, q_i lies in [0, weight_i], and m and k are masses, that is sums of weights.
- The penalty is ((1 - l1_ratio)/2 ||coef||^2 + l1_ratio ||coef||_1) / C.
- C is that of the paper, relative to the mean of the kept losses: (k - m) times scikit-learn's C, which is relative to
  their sum (`C_of_sum`). Estimators convert.

`Objective` gets the weights from an `Aggregate`, by default the ranked range. If the dropped rows are fixed, or phi_m
is linearised, a `ConvexProblem` remains: a risk of the losses, such as the sum of the largest with caps on the rows,
and a linear term. F is the difference of two such functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from .arrays import Array
from .cuts import Ranked, Selection, select_rows
from .risks import TopRisk

# Number of rows of X in a block, for products that need a temporary copy.
_BLOCK = 4096
# A p x p matrix is built and factored up to this p; with sparse rows products with X are faster for more columns.
MAX_FACTORED, MAX_FACTORED_SPARSE = 1000, 200


class Design:
    """X, dense or sparse, with a column of ones if there is an intercept; X is stored without a copy."""

    def __init__(self, X: Any, fit_intercept: bool) -> None:
        self.X = X
        self.fit_intercept = fit_intercept
        self.n, self.d = X.shape
        self.p = self.d + fit_intercept
        self.sparse = sp.issparse(X)
        # Whether solvers build and factor p x p matrices.
        self.factored = self.p <= (MAX_FACTORED_SPARSE if self.sparse else MAX_FACTORED)

    @cached_property
    def _transposed(self) -> Any:
        """The transpose as a view, cached: creating it costs more than a product with few sparse rows."""
        return self.X.T

    def scores(self, W: Array) -> Array:
        """Scores (r, n) of all rows for the parameters W (r, p), in the dtype of X."""
        if self.d > MAX_FACTORED and not self.sparse:  # it takes longer to multiply with zeros than to look for them
            used = np.flatnonzero(W[:, : self.d].any(axis=0))
            if 8 * len(used) < self.d:
                few = np.column_stack([W[:, used], W[:, self.d :]])
                return Design(self.columns(used), self.fit_intercept).scores(few)
        coef = W[:, : self.d].astype(self.X.dtype, copy=False)
        Z = (self.X @ coef[0])[None] if len(W) == 1 else (self.X @ coef.T).T
        if self.fit_intercept:
            Z += W[:, self.d :].astype(Z.dtype, copy=False)
        return Z

    def adjoint(self, R: Array) -> Array:
        """sum_i R[:, i] x_i for R (r, n): an array (r, p), the adjoint of `scores`."""
        out = np.empty((len(R), self.p))
        if self.sparse:
            out[:, : self.d] = self._transposed @ R[0] if len(R) == 1 else (self._transposed @ R.T).T
        elif self.X.dtype == R.dtype == np.float64:
            out[:, : self.d] = R @ self.X
        else:  # in blocks, so that X is not copied and sums over blocks are float64
            out[:, : self.d] = 0.0
            for start in range(0, self.n, _BLOCK):
                part = slice(start, start + _BLOCK)
                out[:, : self.d] += R[:, part].astype(self.X.dtype, copy=False) @ self.X[part]
        if self.fit_intercept:
            out[:, self.d] = R.sum(axis=1, dtype=np.float64)
        return out

    def gram(self, h: Array, rows: Array | None = None) -> Array:
        """sum_i h_i x_i x_i' (p, p) over all rows, or over `rows`, with one h_i >= 0 for each; without a copy of X."""
        if self.sparse:
            block = (self if rows is None else self.take(rows)).columns(np.arange(self.p))
            return self.between(block, h, block)
        total = np.zeros((self.p, self.p))
        count = self.n if rows is None else len(rows)
        root = np.sqrt(h)
        for start in range(0, count, _BLOCK):
            part = slice(start, start + _BLOCK)
            block = self.X[part] if rows is None else self.X[rows[part]]
            weighted = np.empty((block.shape[0], self.p))  # float64, because solvers factor the result
            np.multiply(block, root[part, None], out=weighted[:, : self.d])
            if self.fit_intercept:
                weighted[:, self.d] = root[part]
            total += weighted.T @ weighted
        return total

    def columns(self, chosen: Array) -> Any:
        """Some columns, of which the last may be the intercept's: a dense array or a sparse CSC matrix (n, q)."""
        block = self._by_columns[:, chosen[chosen < self.d]]
        if not len(chosen) or chosen[-1] < self.d:
            return block
        ones = np.ones((self.n, 1))
        return sp.hstack([block, ones], format="csc") if self.sparse else np.column_stack([block, ones])

    @cached_property
    def _by_columns(self) -> Any:
        return sp.csc_matrix(self.X) if self.sparse else self.X

    @staticmethod
    def between(left: Any, h: Array, right: Any) -> Array:
        """left' diag(h) right for two results of `columns`, dense."""
        if sp.issparse(left):
            return (left.T @ right.multiply(h[:, None]).tocsc()).toarray()
        return (left.T * h) @ right

    def spread(self, h: Array, rows: Array) -> Array:
        """`gram`, or only its diagonal (p,) if `factored` is False, as with many columns."""
        return self.gram(h, rows) if self.factored else self.squares(np.bincount(rows, h, self.n))

    def squares(self, h: Array) -> Array:
        """The diagonal of `gram` (p,)."""
        diagonal = self._squared @ h if self.sparse else (self.X**2).T @ h
        return np.append(diagonal, h.sum()) if self.fit_intercept else np.asarray(diagonal)

    @cached_property
    def _squared(self) -> Any:
        """The transpose (d, n) of a sparse X with squared entries."""
        return self.X.multiply(self.X).T

    def dense(self, rows: Array) -> Array:
        """Some rows (rows, p), with a column of ones if there is an intercept, dense and in float64."""
        X = self.X[rows]
        out = np.ones((len(rows), self.p))
        out[:, : self.d] = X.toarray() if self.sparse else X
        return out

    @cached_property
    def lengths(self) -> Array:
        """The norm of each row, of columns scaled to a mean square of 1 (a sample of the rows), and 1 per column."""
        few = self.dense(np.arange(0, self.n, -(-self.n // 2000)))[:, : self.d]
        scale = 1.0 / np.maximum((few**2).mean(axis=0), 1e-300) / max(self.d, 1)
        X = self.X
        if self.sparse:
            return np.sqrt(1.0 + np.asarray(X.multiply(X) @ scale))
        return np.sqrt(1.0 + np.concatenate([X[a : a + _BLOCK] ** 2 @ scale for a in range(0, self.n, _BLOCK)]))

    @cached_property
    def largest_norm(self) -> float:
        """The largest Euclidean norm of a column."""
        return float(np.sqrt(self.squares(np.ones(self.n)).max(initial=0.0)))

    def take(self, rows: Array) -> Design:
        """The design of a subset of the rows."""
        part = Design(self.X[rows], self.fit_intercept)
        part.factored = self.factored
        return part


class Point(NamedTuple):
    """An objective at W: its value and one of its gradients, with the scores, losses and weights that give them."""

    value: float
    gradient: Array
    scores: Array
    losses: Array
    weights: Array


@dataclass(frozen=True, eq=False)
class _Problem:
    design: Design
    y: Array
    loss: Any
    C: float
    n_outputs: int = 1
    l1_ratio: float = field(default=0.0, kw_only=True)

    def losses(self, Z: Array) -> Array:
        return self.loss.value(self.y, Z[0] if self.n_outputs == 1 else Z.T)

    def losses_and_slopes(self, Z: Array) -> tuple[Array, Array]:
        """The losses s (n,) and their slopes ds/dz (r, n) at the scores Z (r, n)."""
        if self.n_outputs == 1:
            s, slope = self.loss.value_and_derivative(self.y, Z[0])
            return s, slope[None, :]
        s, slope = self.loss.value_and_derivative(self.y, Z.T)
        return s, slope.T

    def penalty(self, W: Array) -> float:
        """The elastic net ((1 - l1_ratio)/2 ||coef||^2 + l1_ratio ||coef||_1) / C; 0 for an infinite C."""
        coef = W[:, : self.design.d]
        value = 0.5 * (1.0 - self.l1_ratio) * float(np.vdot(coef, coef))
        if self.l1_ratio:
            value += self.l1_ratio * float(np.abs(coef).sum())
        return value / self.C

    def penalty_gradient(self, W: Array) -> Array:
        """The gradient of the penalty; of |w| at zero it takes 0."""
        gradient = W * ((1.0 - self.l1_ratio) / self.C)
        if self.l1_ratio:
            gradient += (self.l1_ratio / self.C) * np.sign(W)
        if self.design.fit_intercept:
            gradient[..., -1] = 0.0
        return gradient

    def penalty_gap(self, W: Array, V: Array, rounding: float = 0.0) -> float:
        """The penalty at W plus its conjugate at V (r, d) minus <V, coef>: 0 if V is a gradient of the penalty at W.

        `rounding` bounds the rounding errors of V, which may not make an l1 or no penalty infinite.
        """
        coef, ratio = W[:, : self.design.d], self.l1_ratio
        if not np.isfinite(self.C):
            return abs(float(np.vdot(V, coef))) if np.abs(V).max(initial=0.0) <= rounding else np.inf
        if ratio == 0:
            off = V - coef / self.C
            return 0.5 * self.C * float(np.vdot(off, off))
        beyond = np.maximum(np.abs(V) - ratio / self.C - rounding, 0.0)
        if ratio == 1 and beyond.any():
            return np.inf
        squares = 0.0 if ratio == 1 else 0.5 * self.C * float(np.vdot(beyond, beyond)) / (1 - ratio)
        return self.penalty(W) + squares - float(np.vdot(V, coef))

    def penalty_diagonal(self) -> Array:
        """The second derivative of the squared part of the penalty, one entry per column of W."""
        diagonal = np.full(self.design.p, (1.0 - self.l1_ratio) / self.C)
        if self.design.fit_intercept:
            diagonal[-1] = 0.0
        return diagonal


_O = TypeVar("_O", bound="Objective")


@dataclass(frozen=True, eq=False)
class Objective(_Problem):
    """The AoRR objective of a linear model: the mean of the kept losses plus the penalty.

    `design` has the rows, and y (n,) their targets, encoded as the loss requires. C is relative to the mean of the kept
    losses: k - m times scikit-learn's C. There are `n_outputs` scores per row: 1, or the number of classes. `l1_ratio`
    is the share of the l1 norm in the penalty. The ranks m+1 to k are kept; m and k are masses. `sample_weight` (n,)
    has the mass of each row, None means 1 each. The `aggregate` combines the losses, by default as the ranked range.
    """

    m: float = 0
    k: float = 1
    sample_weight: Array | None = None
    aggregate: Any = field(default_factory=Ranked)  # an `Aggregate`

    @property
    def kept(self) -> float:
        """The mass of the losses that are kept, k - m."""
        return self.k - self.m

    @property
    def total(self) -> float:
        """The mass of all rows."""
        return self.design.n if self.sample_weight is None else float(self.sample_weight.sum())

    @property
    def mass(self) -> Array:
        """The mass of each row; an array of True if there are no weights."""
        return np.ones(self.design.n, dtype=bool) if self.sample_weight is None else self.sample_weight

    @property
    def strata(self) -> Array:
        """The class of each row; 0 for all rows in regression."""
        if self.loss.targets == "numbers":
            return np.zeros(self.design.n, dtype=np.intp)
        return (self.y > 0).astype(np.intp) if self.loss.targets == "binary" else self.y

    @property
    def C_of_sum(self) -> float:
        """scikit-learn's C, which is relative to the sum of the kept losses and not to their mean."""
        return self.C / self.kept

    def ranked(self, m: float, k: float) -> Objective:
        """The objective for other ranks m and k, with the same C in the sense of scikit-learn."""
        return replace(self, m=m, k=k, C=self.C_of_sum * (k - m))

    def in_units(self: _O, unit: float) -> _O:
        """The same objective with all masses measured in `unit`; without weights if each row is one unit."""
        if unit == 1.0:
            return self
        weight = self.mass / unit
        k = float(weight.sum()) if self.k >= self.total else self.k / unit
        return replace(self, m=self.m / unit, k=k, sample_weight=None if (weight == 1.0).all() else weight)

    def select(self, s: Array) -> Selection:
        """Weights, total and cuts of the losses s (n,) by the aggregate."""
        return self.aggregate.select(s, self.m, self.k, self.sample_weight)

    def value(self, W: Array) -> float:
        """The objective at W (r, p)."""
        return self.value_at(W, self.losses(self.design.scores(W)))

    def value_at(self, W: Array, s: Array) -> float:
        """The value at W, whose losses are s."""
        return self.select(s).total / self.kept + self.penalty(W)

    def at(self, W: Array) -> Point:
        """The objective at W with its gradient, scores, losses and weights."""
        Z = self.design.scores(W)
        s, slope = self.losses_and_slopes(Z)
        chosen = self.select(s)
        slope *= chosen.weights
        gradient = self.design.adjoint(slope) / self.kept + self.penalty_gradient(W)
        return Point(chosen.total / self.kept + self.penalty(W), gradient, Z, s, chosen.weights)

    def value_and_gradient(self, W: Array) -> tuple[float, Array]:
        """The objective and one of its gradients at W."""
        return self.at(W)[:2]

    def batch(self, Ws: Array) -> tuple[Array, Array]:
        """Values (S,) and gradients (S, r, p) for S sets of parameters Ws (S, r, p).

        If r = 1 and the aggregate is the ranked range, all sets share their products with X.
        """
        if len(Ws) == 1 or self.n_outputs > 1 or not isinstance(self.aggregate, Ranked):
            points = [self.value_and_gradient(W) for W in Ws]
            return np.array([value for value, _ in points]), np.array([gradient for _, gradient in points])
        W, design = Ws[:, 0], self.design
        s, slope = self.loss.value_and_derivative(self.y, np.ascontiguousarray(design.scores(W)))
        chosen = select_rows(s, self.m, self.k, self.sample_weight)
        slope *= chosen.weights
        values = chosen.total / self.kept + np.array([self.penalty(w) for w in Ws])
        return values, (design.adjoint(slope) / self.kept + self.penalty_gradient(W))[:, None]

    def rows(self, rows: Array, m: float, k: float) -> Objective:
        """The objective on a subset of the rows with the given ranks and the same C relative to the mean."""
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        part = self.design.take(rows)
        return replace(
            self, design=part, y=self.y[rows], m=m, k=k, sample_weight=weight, aggregate=self.aggregate.take(rows)
        )

    def upper_bound(self, W: Array) -> ConvexProblem:
        """A convex upper bound on F that equals F at W, as the aggregate defines it."""
        s, slope = self.losses_and_slopes(self.design.scores(W))
        if not hasattr(self.aggregate, "majorant"):
            return self.cutting(s)
        risk, taken = self.aggregate.majorant(s, self.m, self.sample_weight)
        return self._with(risk, None if taken is None else self.design.adjoint(slope * taken))

    def cutting(self, s: Array) -> ConvexProblem:
        """The convex problem with the dropped rows fixed as they are at the losses s.

        It is an upper bound on F, and equals F if the losses are s. Ties at a cut are dropped in equal parts.
        """
        return self._with(self._top(self.aggregate.caps(s, self.m, self.sample_weight), self.kept))

    def average(self) -> ConvexProblem:
        """The problem of the mean loss of all rows, with the same C."""
        return self._with(self._top(self.sample_weight, self.total))

    def _top(self, caps: Array | None, K: float) -> TopRisk:
        return TopRisk(np.ones(self.design.n) if caps is None else caps.astype(np.float64), K)

    def _with(self, risk: Any, tilt: Array | None = None) -> ConvexProblem:
        parts = (self.design, self.y, self.loss, self.C, self.n_outputs)
        return ConvexProblem(*parts, risk, tilt, l1_ratio=self.l1_ratio)

    def partly_cut(self, s: Array) -> list[Array]:
        """For each cut that falls among tied losses, the rows that tie there."""
        return self.aggregate.blurred(s, self.m, self.sample_weight)


@dataclass(frozen=True, eq=False)
class ConvexProblem(_Problem):
    """A convex risk of the losses (`core.risks`) plus the penalty, minus the linear function <tilt, W>."""

    risk: Any = None
    tilt: Array | None = None

    def value(self, W: Array) -> float:
        """The value at W (r, p)."""
        return self.value_at(W, self.losses(self.design.scores(W)))

    def value_at(self, W: Array, s: Array) -> float:
        """The value at W, whose losses are s."""
        return self.risk.exact(s.astype(np.float64, copy=False))[0] + self.linear(W)

    def linear(self, W: Array) -> float:
        """The penalty minus the linear function."""
        return self.penalty(W) - (0.0 if self.tilt is None else float(np.vdot(self.tilt, W)))
