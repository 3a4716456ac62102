"""The methods that the paper compares with, as linear models fitted by SciPy's L-BFGS.

- `one_vs_rest`: one logistic regression per label.
- `lsep`: the log-sum-exp pairwise loss of Li, Song and Luo (2017), log(1 + sum over false u and true v of exp(f_u -
  f_v)).
- `top_k_svm`: SVM_alpha of Lapin, Hein and Schiele (2015), max(0, mean of the k largest of 1[j != y] + f_j - f_y).
- `RobustMax`: the maximum with slack for outliers of Shalev-Shwartz and Wexler (2016), in the paper's convex form.

The first three minimise C times the sum of their losses plus ||coef||^2 / 2; intercepts are not penalised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

Array = Any
Loss = Callable[[Array, Array], tuple[Array, Array]]  # true labels, scores (n, L) -> losses (n,), slopes (n, L)


def _descend(value_and_gradient: Any, start: Array, tol: float, max_iter: int) -> tuple[Array, float]:
    def flat(w: Array) -> tuple[float, Array]:
        value, gradient = value_and_gradient(w.reshape(start.shape))
        return value, np.asarray(gradient, dtype=np.float64).ravel()

    options = {"maxiter": max_iter, "maxfun": 2 * max_iter, "ftol": tol, "gtol": 0.0, "maxcor": 20}
    found = minimize(flat, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(start.shape), float(found.fun)


class LabelModel:
    """One linear score per label; the losses are minimised one after the other, each from the last minimum."""

    def __init__(self, *losses: Loss, C: float = 1.0, tol: float = 1e-8, max_iter: int = 500) -> None:
        self.losses, self.C, self.tol, self.max_iter = losses, C, tol, max_iter

    def fit(self, X: Array, Y: Array) -> LabelModel:
        """Fit to an indicator matrix, or to classes 0, 1, ... of shape (n,)."""
        true = (np.eye(int(Y.max()) + 1)[Y] if Y.ndim == 1 else Y) == 1
        C = self.C * len(X)  # the objective is divided by C times the number of rows
        W = np.zeros((true.shape[1], X.shape[1] + 1))
        for loss in self.losses:

            def mean_loss(W: Array, loss: Loss = loss) -> tuple[float, Array]:
                s, slope = loss(true, self._scores(X, W))
                slope = slope.astype(X.dtype)
                gradient = np.column_stack([slope.T @ X, slope.sum(axis=0)]) / len(X)
                gradient[:, :-1] += W[:, :-1] / C
                return float(s.mean()) + float((W[:, :-1] ** 2).sum()) / (2 * C), gradient

            W, value = _descend(mean_loss, W, self.tol, self.max_iter)
        self.coef_, self.intercept_, self.objective_ = W[:, :-1], W[:, -1], value * C
        return self

    @staticmethod
    def _scores(X: Array, W: Array) -> Array:
        return (X @ W[:, :-1].astype(X.dtype).T).astype(np.float64) + W[:, -1]

    def decision_function(self, X: Array) -> Array:
        """Scores (n, L)."""
        return self._scores(X, np.column_stack([self.coef_, self.intercept_]))


def one_vs_rest(C: float, **settings: Any) -> LabelModel:
    """One logistic regression per label."""
    return LabelModel(log_losses, C=C, **settings)


def lsep(C: float, **settings: Any) -> LabelModel:
    """The log-sum-exp pairwise loss."""
    return LabelModel(pairwise_losses, C=C, **settings)


def top_k_svm(k: int, C: float, **settings: Any) -> LabelModel:
    """SVM_alpha, by decreasing smoothing widths."""
    smoothed = [lambda true, f, mu=mu: top_k_hinge(true, f, k, mu) for mu in (0.5, 0.1, 0.02, 0.005)]
    return LabelModel(*smoothed, C=C, **settings)


def log_losses(true: Array, f: Array) -> tuple[Array, Array]:
    """The sum of the log losses of the labels of each row, and its derivative."""
    return np.logaddexp(0.0, np.where(true, -f, f)).sum(axis=1), expit(f) - true


def pairwise_losses(true: Array, f: Array) -> tuple[Array, Array]:
    """The loss of LSEP (n,) and its derivative (n, L); 0 for rows without a true or without a false label.

    The sum over pairs is a product of two sums.
    """
    idle = true.all(axis=1) | ~true.any(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        false_part = np.where(true, -np.inf, f)
        true_part = np.where(true, -f, -np.inf)
        logs = [np.logaddexp.reduce(part, axis=1) for part in (false_part, true_part)]
        exponent = np.where(idle, -np.inf, logs[0] + logs[1])  # log of the sum over pairs
        shares = [np.exp(part - log[:, None]) for part, log in zip((false_part, true_part), logs, strict=True)]
    slope = expit(exponent)[:, None] * (shares[0] - shares[1])
    return np.logaddexp(0.0, exponent), np.where(idle[:, None], 0.0, slope)


def top_k_hinge(true: Array, f: Array, k: int, mu: float) -> tuple[Array, Array]:
    """The loss of SVM_alpha (n,), or a smooth lower bound if mu > 0, and its derivative; one true class per row.

    The mean of the k largest of b is the maximum of x . b over 0 <= x <= 1/k, sum x = 1. Subtracting (mu/2)||x||^2
    makes it smooth, and the kink at 0 is rounded over a width of mu.
    """
    b = f - f[true][:, None] + ~true
    if mu > 0:
        x = capped_simplex(b / mu, 1.0 / k)
        mean = (x * b).sum(axis=1) - 0.5 * mu * (x**2).sum(axis=1)
        push = np.clip(mean / mu, 0.0, 1.0)
        s = push * (mean - 0.5 * mu * push)
    else:
        x = np.zeros_like(b)
        np.put_along_axis(x, np.argsort(-b, axis=1, kind="stable")[:, :k], 1.0 / k, axis=1)
        mean = (x * b).sum(axis=1)
        s, push = np.maximum(mean, 0.0), (mean > 0).astype(float)
    slope = x * push[:, None]
    slope[true] -= slope.sum(axis=1)
    return s, slope


def capped_simplex(rows: Array, cap: float) -> Array:
    """Project each row on {0 <= x <= cap, sum x = 1}: clip(row - shift, 0, cap).

    As the shift falls, the sum rises piecewise linearly: a value joins at the value, and stops at the value minus cap.
    """
    kinks = np.concatenate([rows, rows - cap], axis=1)
    order = np.argsort(-kinks, axis=1)
    kinks = np.take_along_axis(kinks, order, axis=1)
    rising = np.cumsum(np.where(order < rows.shape[1], 1, -1), axis=1)  # values between 0 and the cap below each kink
    sums = np.cumsum(rising[:, :-1] * -np.diff(kinks, axis=1), axis=1)  # at the second kink, the third, ...
    last = np.minimum((sums < 1.0).sum(axis=1), sums.shape[1] - 1)[:, None]
    at_last, slope = np.take_along_axis(sums, last, axis=1), np.take_along_axis(rising, last, axis=1)
    shift = np.take_along_axis(kinks, last + 1, axis=1) + (at_last - 1.0) / np.maximum(slope, 1)
    return np.clip(rows - shift, 0.0, cap)


def robust_maximum(s: Array, slack: float) -> tuple[float, Array]:
    """The level v with sum (s - v)_+^2 = slack^2, and its gradient (n,) in the losses, which sums to 1.

    It is the minimum over xi >= 0 with ||xi||_2 <= slack of max(s - xi); the largest loss if slack = 0.
    """
    if slack == 0:
        tied = s == s.max()
        return float(s.max()), tied / tied.sum()
    v = float(s.max() - slack)
    for _ in range(100):  # the norm of the excess is convex and falls in v: Newton steps from below never pass the root
        excess = np.maximum(s - v, 0.0)
        step = (excess @ excess - slack**2) / (2.0 * excess.sum())
        v += step
        if step <= 1e-15 * max(1.0, abs(v)):
            break
    excess = np.maximum(s - v, 0.0)
    return v, excess / excess.sum()


def margin_losses(loss: str, y: Array, f: Array) -> tuple[Array, Array]:
    """Logistic or hinge losses of scores f for y in {-1, 1}, and their derivatives."""
    if loss == "hinge":
        return np.maximum(1.0 - y * f, 0.0), -y * (y * f < 1.0)
    return np.logaddexp(0.0, -y * f), -y * expit(-y * f)


class RobustMax:
    """Minimises the robust maximum of the losses plus ||coef||^2 / (2 C); y is 0 or 1."""

    def __init__(self, slack: float, *, loss: str = "logistic", C: float = 1.0) -> None:
        self.slack, self.loss, self.C = slack, loss, C

    def fit(self, X: Array, y: Array) -> RobustMax:
        """Fit to training rows."""
        Z, signs = np.column_stack([X, np.ones(len(X))]), 2.0 * y - 1.0

        def objective(w: Array) -> tuple[float, Array]:
            s, slope = margin_losses(self.loss, signs, Z @ w)
            level, share = robust_maximum(s, self.slack)
            penalised = np.append(w[:-1], 0.0) / self.C
            return level + 0.5 * float(w @ penalised), Z.T @ (slope * share) + penalised

        w, value = _descend(objective, np.zeros(Z.shape[1]), 1e-12, 500)
        self.coef_, self.intercept_, self.objective_ = w[:-1], w[-1], value
        return self

    def predict(self, X: Array) -> Array:
        """Classes 0 and 1."""
        return (X @ self.coef_ + self.intercept_ > 0).astype(int)
