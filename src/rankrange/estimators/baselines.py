"""The multi-label baselines of the paper, with the interface of TKMLClassifier.

- `LogisticPerLabel`: one logistic regression per label.
- `LSEPClassifier`: the log-sum-exp pairwise loss of Li, Song and Luo (2017), log(1 + sum over false u and true v of
  exp(f_u - f_v)).
- `TopKSVMClassifier`: the top-k multi-class SVM of Lapin, Hein and Schiele (2015), SVM_alpha: max(0, mean of the k
  largest of 1[j != y] + f_j - f_y). One class per row.

All minimise C times the sum of their losses + ||coef||^2 / 2, and intercepts are not penalised, as in scikit-learn.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..core.arrays import Array
from ..core.losses import softplus
from ..core.objective import Design
from ..core.threads import threads_for
from ..solvers.blocks import Blocks
from ..solvers.descent import descend
from ..solvers.inner.bounds import onto_simplex
from ..solvers.per_label import logistic_per_label, shared_metric
from .linear import check_positive
from .targets import LabelRanker, Targets
from .weights import canonical_rows


class _Baseline(LabelRanker, ABC):
    """Parameters and `fit` of the baselines; subclasses minimise their objective in `_minimise`."""

    def __init__(
        self,
        top_k: int = 1,
        *,
        C: float = 1.0,
        fit_intercept: bool = True,
        max_iter: int = 500,
        tol: float = 1e-7,
    ) -> None:
        self.top_k = top_k
        self.C = C
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model to training data.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n_samples, n_features)
            Training data.
        y : indicator matrix, lists of labels, or classes of shape (n_samples,)
            The true labels of each row.
        sample_weight : array_like of shape (n_samples,), optional
            Weights of the rows; weight 2 equals the row twice.

        Returns
        -------
        self
            The fitted estimator.
        """
        check_positive(self, "C", "tol")
        X, targets, weight = self._read(X, y, sample_weight)
        self._check_targets(targets)
        rows, true = X, targets.true
        if isinstance(true, np.ndarray):
            rows, true, weight = canonical_rows(X, true, weight)
        design = Design(rows, bool(self.fit_intercept))
        mass = np.ones(design.n) if weight is None else weight
        C = float(self.C) * float(mass.sum())  # solvers take C relative to the mean loss
        with threads_for(X):
            W, value, self.n_iter_, self.converged_ = self._minimise(design, Blocks(design, true), mass, C)
        self.objective_ = value * C
        self._store_scores(W, design)
        if not self.converged_:
            warnings.warn(
                f"{type(self).__name__} did not reach tol={self.tol:g} in max_iter={self.max_iter} steps; raise "
                "max_iter, scale the features, or lower C",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _check_targets(self, targets: Targets) -> None:
        """Raise an error for targets that the model cannot learn; by default it can learn all."""

    @abstractmethod
    def _minimise(self, design: Design, blocks: Blocks, mass: Array, C: float) -> tuple[Array, float, int, bool]:
        """The coefficients (L, p), their objective, the number of steps, and whether the solver converged.

        C and the objective are relative to the mean loss: the latter is mean loss + ||coef||^2 / (2 C).
        """


class LogisticPerLabel(_Baseline):
    """One logistic regression per label (binary relevance), from which `TKMLClassifier` starts.

    Parameters
    ----------
    top_k : int, default=1
        How many labels are predicted.
    C : float, default=1.0
        Inverse of regularization strength, as in scikit-learn.
    fit_intercept : bool, default=True
        Whether each label has an intercept.
    max_iter : int, default=500
        Maximum number of iterations.
    tol : float, default=1e-7
        The solver stops when a step lowers the objective by less than this share.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (n_labels, n_features) and (n_labels,)
        One row per label.
    classes_ : ndarray of shape (n_labels,)
        The labels.
    objective_, n_iter_, converged_
        The minimum of the objective, the number of iterations, and whether `tol` was reached.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from rankrange.estimators import LogisticPerLabel
    >>> X, Y = make_multilabel_classification(100, 10, n_classes=4, random_state=0)
    >>> LogisticPerLabel(top_k=2).fit(X, Y).predict(X[:2]).sum(axis=1)
    array([2, 2])
    """

    def _minimise(self, design: Design, blocks: Blocks, mass: Array, C: float) -> tuple[Array, float, int, bool]:
        W, value, n_iter = logistic_per_label(design, blocks, C, mass, tol=float(self.tol), max_iter=int(self.max_iter))
        return W, value, n_iter, n_iter < self.max_iter


class LSEPClassifier(_Baseline):
    """Linear multi-label classifier with the log-sum-exp pairwise loss, which ranks true labels above false ones.

    Parameters
    ----------
    top_k : int, default=1
        How many labels to predict.
    C : float, default=1.0
        Inverse of regularization strength, as in scikit-learn.
    fit_intercept : bool, default=True
        Whether to fit an intercept per label.
    max_iter : int, default=500
        Maximum number of iterations.
    tol : float, default=1e-7
        The solver stops when a step lowers the objective by less than this share.

    Attributes
    ----------
    coef_, intercept_, classes_, objective_, n_iter_, converged_
        As in `LogisticPerLabel`.

    References
    ----------
    Li, Song and Luo, "Improving Pairwise Ranking for Multi-label Image Classification", CVPR 2017.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from rankrange.estimators import LSEPClassifier
    >>> X, Y = make_multilabel_classification(100, 10, n_classes=4, random_state=0)
    >>> LSEPClassifier(top_k=2).fit(X, Y).decision_function(X[:3]).shape
    (3, 4)
    """

    def _minimise(self, design: Design, blocks: Blocks, mass: Array, C: float) -> tuple[Array, float, int, bool]:
        run = _Run(design, blocks, mass, C)
        return run.descend(run.zero(), lsep, int(self.max_iter), float(self.tol))


class TopKSVMClassifier(_Baseline):
    """Top-k multi-class SVM (SVM_alpha): a row counts as correct if its class is among the k highest scores.

    Parameters
    ----------
    top_k : int, default=1
        The k of the loss and of `score`.
    C : float, default=1.0
        Inverse of regularization strength, as in scikit-learn.
    fit_intercept : bool, default=True
        Whether to fit an intercept per class.
    max_iter : int, default=500
        Maximum number of steps for each of four smoothing widths.
    tol : float, default=1e-7
        A smoothing width is finished when a step lowers the objective by less than this share.

    Attributes
    ----------
    coef_, intercept_, classes_, objective_, n_iter_, converged_
        As in `LogisticPerLabel`.

    References
    ----------
    Lapin, Hein and Schiele, "Top-k Multiclass SVM", NeurIPS 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from rankrange.estimators import TopKSVMClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> TopKSVMClassifier(top_k=2).fit(X, y).score(X, y) > 0.95
    True
    """

    def _check_targets(self, targets: Targets) -> None:
        if targets.kind != "classes" and not (np.asarray(targets.true.sum(axis=1)) == 1).all():
            raise ValueError(
                "TopKSVMClassifier needs exactly one class per row, got rows with none or several; "
                "use TKMLClassifier or LSEPClassifier for multi-label targets"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = False
        return tags

    def _minimise(self, design: Design, blocks: Blocks, mass: Array, C: float) -> tuple[Array, float, int, bool]:
        run = _Run(design, blocks, mass, C)
        W, n_iter = run.zero(), 0
        for mu in (0.5, 0.1, 0.02, 0.005):  # decreasing smoothing widths

            def loss(true: Array, f: Array, mu: float = mu) -> tuple[Array, Array]:
                return top_k_hinge(true, f, int(self.top_k), mu)

            W, _, steps, done = run.descend(W, loss, int(self.max_iter), float(self.tol))
            n_iter += steps
        value, _ = run.value_and_gradient(W, lambda true, f: top_k_hinge(true, f, int(self.top_k), 0.0))
        return W, value, n_iter, done


class _Run:
    """The mean loss plus the penalty, computed in blocks of rows, and its minimisation."""

    def __init__(self, design: Design, blocks: Blocks, mass: Array, C: float) -> None:
        self.design, self.blocks = design, blocks
        self.share = mass / mass.sum()
        self.ridge = np.full(design.p, 1.0 / C)
        if design.fit_intercept:
            self.ridge[-1] = 0.0
        self.metric = shared_metric(design, self.share, self.ridge)

    def zero(self) -> Array:
        return np.zeros((self.blocks.n_labels, self.design.p))

    def value_and_gradient(self, W: Array, loss: Any) -> tuple[float, Array]:
        gradient = self.ridge * W
        value = 0.5 * float(np.vdot(gradient, W))
        for block in self.blocks:
            s, slope = loss(block.true, block.scores(W).astype(np.float64, copy=False))
            share = self.share[block.rows]
            value += float(share @ s)
            gradient += block.design.adjoint((slope * share[:, None]).T)
        return value, gradient

    def descend(self, W: Array, loss: Any, max_iter: int, tol: float) -> tuple[Array, float, int, bool]:
        def batch(Ws: Array) -> tuple[Array, Array]:
            value, gradient = self.value_and_gradient(Ws[0], loss)
            return np.array([value]), gradient[None]

        ends, values, n_iter = descend(batch, W[None], self.metric, max_iter=max_iter, tol=tol)
        return ends[0], float(values[0]), n_iter, n_iter < max_iter


def lsep(true: Array, f: Array) -> tuple[Array, Array]:
    """The log-sum-exp pairwise loss (n,) of scores f (n, L), and its derivative (n, L).

    It is log(1 + sum over false u and true v of exp(f_u - f_v)). The sum over pairs is a product of two sums. The loss
    of a row without a true label or without a false label is 0.
    """
    high = np.where(true, -np.inf, f).max(axis=1, keepdims=True)
    low = np.where(true, f, np.inf).min(axis=1, keepdims=True)
    idle = ~(np.isfinite(high) & np.isfinite(low))
    high, low = np.where(idle, 0.0, high), np.where(idle, 0.0, low)
    false_part = np.where(true, 0.0, np.exp(np.minimum(f - high, 0.0)))
    true_part = np.where(true, np.exp(np.minimum(low - f, 0.0)), 0.0)
    a, b = false_part.sum(axis=1), true_part.sum(axis=1)
    with np.errstate(divide="ignore"):
        exponent = (high - low)[:, 0] + np.log(a) + np.log(b)  # log of the sum over pairs
    s = softplus(exponent)
    share = np.exp(exponent - s)  # the share of the sum over pairs in 1 + sum
    slope = share[:, None] * (false_part / np.maximum(a, 1e-300)[:, None] - true_part / np.maximum(b, 1e-300)[:, None])
    return np.where(idle[:, 0], 0.0, s), np.where(idle, 0.0, slope)


def top_k_hinge(true: Array, f: Array, k: int, mu: float) -> tuple[Array, Array]:
    """The top-k hinge loss (n,) of scores f (n, L), or a smooth lower bound if mu > 0, and its derivative (n, L).

    Each row has one true class y. The loss is max(0, mean of the k largest of b_j = 1[j != y] + f_j - f_y). The mean of
    the k largest is the maximum of x . b over 0 <= x <= 1/k, sum x = 1; subtracting (mu/2)||x||^2 makes it smooth, and
    the kink at 0 is rounded over a width of mu. mu = 0 is the loss itself.
    """
    of_label = f[true][:, None]
    b = f - of_label + ~true
    if mu > 0:
        x = _capped_simplex(b / mu, 1.0 / k)
        mean = (x * b).sum(axis=1) - 0.5 * mu * (x**2).sum(axis=1)
        push = np.clip(mean / mu, 0.0, 1.0)
        s = push * (mean - 0.5 * mu * push)
    else:
        largest = np.argsort(-b, axis=1, kind="stable")[:, :k]
        x = np.zeros_like(b)
        np.put_along_axis(x, largest, 1.0 / k, axis=1)
        mean = (x * b).sum(axis=1)
        s, push = np.maximum(mean, 0.0), (mean > 0).astype(float)
    slope = x * push[:, None]
    slope[true] -= slope.sum(axis=1)
    return s, slope


def _capped_simplex(rows: Array, cap: float) -> Array:
    """Project each row on {0 <= x <= cap, sum x = 1}: clip(row - shift, 0, cap), with the shift by Newton's method."""
    if cap >= 1.0:
        return onto_simplex(rows)
    shifts = np.empty(len(rows))
    left, low, high = np.arange(len(rows)), rows.min(axis=1) - cap, rows.max(axis=1)
    shift = 0.5 * (low + high)
    for _ in range(60):
        above = rows[left] - shift[:, None]
        excess = np.clip(above, 0.0, cap).sum(axis=1) - 1.0
        shifts[left] = shift
        todo = np.abs(excess) > 1e-14
        if not todo.any():
            break
        low, high = np.where(excess > 0, shift, low), np.where(excess > 0, high, shift)
        moving = ((above > 0) & (above < cap)).sum(axis=1)
        step = shift + excess / np.maximum(moving, 1)
        inside = (moving > 0) & (step > low) & (step < high)
        shift = np.where(inside, step, 0.5 * (low + high))
        left, low, high, shift = left[todo], low[todo], high[todo], shift[todo]
    return np.clip(rows - shifts[:, None], 0.0, cap)
