"""The elastic net of weighted rows, solved by the convex solver.

F(W) = sum_i h_i loss(y_i, z_i) + (1 - l1_ratio)/2 ||coef||^2 + l1_ratio ||coef||_1, where h holds C and the weights of
the rows. If only the largest losses count, the sum over i is the maximum over weights of at most h with a given mass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...core.arrays import Array
from ...core.losses import Logistic, Softmax
from ...core.objective import Design, TopSum
from ..convex import minimise, proximal_step


class Net(NamedTuple):
    """A fit: coefficients (r, d), intercepts (r,), the objective, its proved gap, and the number of steps."""

    coef: Array
    intercept: Array
    value: float
    gap: float
    rounds: int


@dataclass(frozen=True, eq=False)
class ElasticNet:
    """An elastic net problem: rows, loss and penalty. The weights of the rows are arguments of its methods.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        The rows, float64.
    y : ndarray of shape (n,)
        Their targets.
    loss : Squared, Huber, Logistic or Softmax
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
        """X in a format with fast access to columns and rows: CSC, or the array itself."""
        return sp.csc_matrix(self.X) if sp.issparse(self.X) else self.X

    @cached_property
    def design(self) -> Design:
        """The rows as a design."""
        return Design(sp.csr_matrix(self.X) if sp.issparse(self.X) else self.X, self.fit_intercept)

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

    def largest_penalty(self, h: Array) -> float:
        """The factor of h above which some coefficient is not zero: 1 / alpha_max in scikit-learn's terms.

        Infinite if all coefficients are zero for any factor.
        """
        _, intercept = self.zero()
        if self.fit_intercept:
            intercept = replace(self, X=np.zeros((len(self.y), 1))).fit(h, tol=1e-12).intercept
        Z = np.repeat(intercept[:, None], len(self.y), axis=1)
        steepest = float(np.abs(self.gradient(self.slopes(Z) * h)).max(initial=0.0))
        return np.inf if steepest == 0 else self.l1_ratio / steepest

    def gradient(self, weighted: Array) -> Array:
        """Derivatives (r, d) of the losses with respect to the coefficients, from weighted slopes (r, n)."""
        return self.design.adjoint(weighted)[:, : self.design.d]

    def _problem(self, h: Array, top: float | None) -> TopSum:
        K = float(h.sum()) if top is None else top
        parts = (self.design, self.y, self.loss, 1.0, self.n_outputs)
        return TopSum(*parts, K, 1.0, h, l1_ratio=self.l1_ratio)

    def _joined(self, start: tuple[Array, Array] | None) -> Array:
        coef, intercept = self.zero() if start is None else start
        return np.column_stack([coef, intercept]) if self.fit_intercept else coef

    def _parts(self, W: Array) -> tuple[Array, Array]:
        d = self.design.d
        return W[:, :d], W[:, d] if self.fit_intercept else np.zeros(self.n_outputs)

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
            Maximum number of steps; four times as many with `top`.

        Returns
        -------
        Net
            The fit with its gap, which exceeds the tolerance if the steps were too few.
        """
        kept = np.flatnonzero(h)
        if 2 * len(kept) < len(h):  # copying most rows would take longer than using all
            return self.take(kept).fit(h[kept], start, top=top, tol=tol, max_rounds=max_rounds)
        steps = max_rounds if top is None else 4 * max_rounds
        found = minimise(self._problem(h, top), self._joined(start), tol=tol, max_iter=steps)
        return Net(*self._parts(found.W), found.value, found.gap * max(found.value, 1e-9), max(found.n_iter, 1))

    def step(self, h: Array, start: tuple[Array, Array]) -> Net:
        """One proximal Newton step: the objective does not increase, and the gap is infinite."""
        kept = np.flatnonzero(h)
        if 2 * len(kept) < len(h):
            return self.take(kept).step(h[kept], start)
        W, value = proximal_step(self._problem(h, None), self._joined(start))
        return Net(*self._parts(W), value, np.inf, 1)

    def take(self, rows: Array) -> ElasticNet:
        """The problem on a subset of the rows."""
        return replace(self, X=self.columns[rows], y=self.y[rows])

    def curvature_roots(self, Z: Array, h: Array) -> Array:
        """Square roots (n, r, r), or (n,) for one score, of the weighted second derivatives of the losses at Z.

        Of softmax losses with probabilities p the Hessian is diag(p) - p p' = B B' with B = diag(sqrt p) - p sqrt(p)'.
        """
        if self.n_outputs == 1:
            return np.sqrt(self.loss.curvature(self.y, Z[0]) * h)
        p = self.loss.probabilities(Z.T)
        root = np.sqrt(p)
        return (root[:, :, None] * np.eye(len(Z)) - p[:, :, None] * root[:, None, :]) * np.sqrt(h)[:, None, None]

    def classes(self) -> Array | None:
        """The class of each row; None for numeric targets."""
        if isinstance(self.loss, Logistic):
            return np.asarray(self.y > 0, dtype=np.intp)
        return self.y if isinstance(self.loss, Softmax) else None
