"""Robust_Max: the maximum loss with slack for outliers, a baseline of the paper.

Shalev-Shwartz and Wexler (2016) reduce the influence of outliers on the maximum by slack variables. The paper uses the
convex form with an l2 norm, min over xi >= 0, ||xi||_2 <= slack of max_i (s_i - xi_i). Its value is the level v at
which the excesses (s_i - v)_+ have the norm `slack`. Outliers keep some influence.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..core.arrays import Array
from ..core.objective import Design, Objective
from ..solvers.descent import Metric, add_diagonal, descend
from .classifier import AoRRClassifier
from .weights import canonical_rows


def robust_maximum(s: Array, slack: float, mass: Array | None = None) -> tuple[float, Array]:
    """The level v with sum mass (s - v)_+^2 = slack^2, and its gradient (n,) in the losses, which sums to 1.

    For slack = 0, v is the largest loss, and tied rows share the gradient by mass.
    """
    mass = np.ones(len(s)) if mass is None else mass
    top = s.max()
    if slack == 0:
        tied = mass * (s == top)
        return float(top), tied / tied.sum()
    # The norm of the excess is convex and decreasing in v, so Newton steps from below never pass the root.
    v = float(top - slack / np.sqrt(mass[s.argmax()]))
    for _ in range(100):
        excess = mass * np.maximum(s - v, 0.0)
        step = (excess @ np.maximum(s - v, 0.0) - slack**2) / (2.0 * excess.sum())
        v += step
        if step <= 1e-15 * max(1.0, abs(v)):
            break
    excess = mass * np.maximum(s - v, 0.0)
    return v, excess / excess.sum()


class RobustMaxClassifier(AoRRClassifier):
    """Linear classifier that minimises the Robust_Max aggregate, a baseline of the paper.

    The objective is max_i (s_i - xi_i) + ||coef||^2 / (2 C), minimised over the coefficients and over xi >= 0 with
    ||xi||_2 <= slack. C is relative to one loss, the largest, and not to a sum over the rows.

    Parameters
    ----------
    slack : float, default=1.0
        Upper bound on the norm of the slack variables. 0 gives the maximum loss; large values approach the average
        loss.
    loss : {"logistic", "hinge", "squared_hinge"}, default="logistic"
        The loss of one row.
    C : float, default=1.0
        Inverse of regularization strength.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    max_iter : int, default=200
        Maximum number of iterations.
    tol : float, default=1e-6
        The solver stops when a step lowers the objective by less than the share tol / 1000.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.

    Attributes
    ----------
    coef_, intercept_, classes_, n_features_in_, n_iter_, converged_
        As in `AoRRClassifier`.
    objective_ : float
        The value of the objective above.
    dropped_ : ndarray of bool of shape (n,)
        False for all rows, because none is dropped.

    References
    ----------
    Shalev-Shwartz and Wexler, "Minimizing the Maximal Loss: How and Why", ICML 2016.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from rankrange.estimators import RobustMaxClassifier
    >>> X, y = make_blobs(60, centers=2, random_state=0)
    >>> RobustMaxClassifier(slack=2.0, C=10.0).fit(X, y).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        slack: float = 1.0,
        *,
        loss: str = "logistic",
        C: float = 1.0,
        fit_intercept: bool = True,
        max_iter: int = 200,
        tol: float = 1e-6,
        class_weight: Any = None,
    ) -> None:
        super().__init__(
            0, 1, loss=loss, C=C, fit_intercept=fit_intercept, max_iter=max_iter, tol=tol, class_weight=class_weight
        )
        self.slack = slack

    def _solve(
        self,
        X: Any,
        y: Array,
        weight: Array | None,
        loss: Any,
        n_outputs: int,
        clean: tuple[Any, Array] | None = None,
        factor: Array | None = None,
        groups: Array | None = None,
    ) -> None:
        if clean is not None:
            raise ValueError("RobustMaxClassifier has no m and k to choose; leave X_val and y_val out")
        if not (isinstance(self.slack, int | float) and 0 <= self.slack < np.inf):
            raise ValueError(f"slack must be a finite number of at least 0, got {self.slack!r}")
        self.dropped_ = np.zeros(X.shape[0], dtype=bool)
        X, y, weight = canonical_rows(X, y, weight, factor)
        design = Design(X, bool(self.fit_intercept))
        objective = Objective(design, y, loss, float(self.C), n_outputs, sample_weight=weight)

        def batch(Ws: Array) -> tuple[Array, Array]:
            values, gradients = [], []
            for W in Ws:
                s, slope = objective.losses_and_slopes(design.scores(W))
                level, share = robust_maximum(s.astype(np.float64), float(self.slack), weight)
                values.append(level + objective.penalty(W))
                gradients.append(design.adjoint(slope * share) + objective.penalty_gradient(W))
            return np.array(values), np.array(gradients)

        mass = np.ones(design.n) if weight is None else weight
        spread = design.spread(0.25 * mass / mass.sum())
        metric = Metric(add_diagonal(spread, objective.penalty_diagonal()))
        start = np.zeros((1, n_outputs, design.p))
        ends, values, n_iter = descend(batch, start, metric, max_iter=int(self.max_iter), tol=1e-3 * float(self.tol))
        self._store_weights(ends[0], design)
        self.objective_, self.n_iter_, self.converged_ = float(values[0]), n_iter, n_iter < self.max_iter
        if not self.converged_:
            warnings.warn(
                f"the fit did not reach tol={self.tol:g} in max_iter={self.max_iter} iterations; raise max_iter, scale "
                "the features, or lower C",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _calibrate(self, X: Any, y: Array, weight: Array | None, rows: Array | None = None, share: float = 1.0) -> None:
        """Leave the scores as they are, because no row is dropped."""
        self.temperature_, self.ordinary_share_ = 1.0, 0.0
