"""The three algorithms of the paper, line by line, in plain NumPy, to be held beside its text.

Use `AoRRClassifier` and `TKMLClassifier` to fit models: they minimise the same objectives, faster and further. This
module is for readers of the paper and for comparisons with its printed results. Where the text has an error, the code
follows the correction (errata in docs/paper.md):

- the subgradient of the sum of the m largest losses gives tied losses equal shares of what is left of the m ranks
  (`s > s_[m]` would select m - 1 losses);
- steps use means over the rows instead of sums, in theta and in lambda (printed, lambda falls without end);
- in Algorithm 3, lambda_hat starts at s_[m] - lambda, because it refers to the losses minus lambda.

Parameters theta have one row per score, (1, d) for two classes; scores are `X @ theta.T`. All of theta is penalised:
for an intercept, append a column of ones to X.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_softmax

from .core.arrays import Array
from .core.select import range_weights, ranked_range

__all__ = ["Run", "dca", "dca_without_k_and_m", "tkml", "tkml_aorr"]

Loss = Callable[[Array, Array], tuple[Array, Array]]  # scores (n, r) and targets -> losses (n,), slopes (n, r)
Watch = Callable[[Array], None]


class Run(NamedTuple):
    """Where an algorithm ended.

    Parameters
    ----------
    theta : ndarray of shape (scores, d)
        The parameters after the last step.
    lam, lam_hat : float
        The lower and the upper threshold, as values of the loss; lam_hat is infinity if m = 0.
    objective : ndarray
        The objective at the start and after each outer step (in Algorithm 3, after each step).

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.algorithms import dca
    >>> run = dca(np.array([[-1.0], [1.0]]), np.array([-1, 1]), 0, 2, outer_steps=1, inner_steps=10)
    >>> run.theta.shape, len(run.objective), run.lam_hat
    ((1, 1), 2, inf)
    """

    theta: Array
    lam: float
    lam_hat: float
    objective: Array


def dca(
    X: Array,
    y: Array,
    m: int,
    k: int,
    *,
    loss: str = "logistic",
    C: float = np.inf,
    outer_steps: int = 5,
    inner_steps: int = 2000,
    step: float = 0.01,
    batch_size: int | None = None,
    theta: Array | None = None,
    inner: Callable[[Array, Array], Array] | None = None,
    watch: Watch | None = None,
    random_state: int | None = 0,
) -> Run:
    """Algorithm 1: minimise the average of the losses ranked m+1 to k by a difference-of-convex algorithm.

    The objective is phi_k - phi_m, divided by k - m, plus ||theta||^2 / (2 C). Each outer step replaces phi_m by its
    tangent and minimises the convex rest by stochastic subgradient steps in theta and lambda.

    Parameters
    ----------
    X : array_like of shape (n, d)
        The rows.
    y : array_like of shape (n,)
        Labels -1 and 1; class codes 0, 1, ... for `loss="softmax"`.
    m, k : int
        Ranks to drop and the last rank to keep.
    loss : {"logistic", "hinge", "softmax"}
        The individual loss.
    C : float
        The paper's C, relative to the average loss.
    outer_steps, inner_steps : int
        Number of tangents, and of steps for each.
    step : float
        The step length.
    batch_size : int, optional
        Rows per step, drawn with replacement; by default all rows. The paper draws one.
    theta : array_like of shape (scores, d), optional
        The start; by default 0.
    inner : callable, optional
        Replaces the subgradient steps: takes theta and the subgradient theta_hat of phi_m, returns a minimiser of
        phi_k - <theta_hat, theta> + (k - m) ||theta||^2 / (2 C).
    watch : callable, optional
        Called with theta after each inner step, for example to keep the best on a validation set.
    random_state : int, optional
        Seed of the batches.

    Returns
    -------
    Run
        The last theta, its thresholds, and the objective after each outer step.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.algorithms import dca
    >>> X = np.array([[-2.0, 1], [-1, 1], [1, 1], [2, 1], [3, 1]])  # the last label is wrong
    >>> run = dca(X, np.array([-1, -1, 1, 1, -1]), 1, 5, step=0.1)
    >>> np.sign(X @ run.theta.T).ravel()
    array([-1., -1.,  1.,  1.,  1.])
    """
    X, y, n = _rows(X), np.asarray(y), len(X)
    individual, rng = _loss_of(loss), np.random.default_rng(random_state)
    theta = _start(theta, _n_scores(loss, y), X)

    def objective(theta: Array) -> float:
        return float(ranked_range(individual(X @ theta.T, y)[0], m, k)) + _penalty(theta, C)

    values = [objective(theta)]
    lam = _kth(individual(X @ theta.T, y)[0], k)
    for _ in range(outer_steps):
        s, slope = individual(X @ theta.T, y)
        theta_hat = _top(s, m) * slope.T @ X  # in the subdifferential of phi_m
        if inner is not None:
            theta = inner(theta, theta_hat)
        for _ in range(inner_steps if inner is None else 0):
            rows = _batch(n, batch_size, rng)
            s, slope = individual(X[rows] @ theta.T, y[rows])
            above = s > lam
            pull = (above * slope.T) @ X[rows] / len(s) - theta_hat / n + (k - m) / n * theta / C
            theta = theta - step * pull
            lam = lam - step * (k / n - above.mean())
            if watch is not None:
                watch(theta)
        values.append(objective(theta))
    return _ended(theta, individual(X @ theta.T, y)[0], m, k, values)


def dca_without_k_and_m(
    X: Array,
    y: Array,
    X_clean: Array,
    y_clean: Array,
    *,
    loss: str = "softmax",
    warm_up_steps: int = 100,
    warm_up_step: float = 0.4,
    outer_steps: int = 20,
    inner_steps: int = 5000,
    step: float = 0.5,
    batch_size: int | None = None,
    upper: Callable[[Array], float] | None = None,
    lower: Callable[[Array], float] | None = None,
    theta: Array | None = None,
    watch: Watch | None = None,
    random_state: int | None = 0,
) -> Run:
    """Algorithm 2: Algorithm 1 with thresholds from the losses of clean rows instead of k and m.

    After a warm-up on the average loss, lambda_hat and lambda are functions of the losses of the clean rows: by default
    mean + 1 and mean - 2 standard deviations. The latter is mostly negative, and then no small loss is left out.

    Parameters
    ----------
    X, y : array_like
        Rows with some wrong labels.
    X_clean, y_clean : array_like
        Rows with correct labels only.
    loss : {"softmax", "logistic", "hinge"}
        The individual loss; `y` and `y_clean` are as in `dca`.
    warm_up_steps, warm_up_step : int and float
        Largest number of steps on the average loss, and their length; they end when the loss of the clean rows no
        longer falls.
    outer_steps, inner_steps, step, batch_size : optional
        As in `dca`.
    upper, lower : callable, optional
        Operations 1 and 2: the threshold lambda_hat, and lambda, from the clean losses.
    theta, watch, random_state : optional
        As in `dca`.

    Returns
    -------
    Run
        The last theta and thresholds. The objective is that of the m and k that the thresholds amount to.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.algorithms import dca_without_k_and_m
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0], [3.0]])  # the last label is wrong
    >>> run = dca_without_k_and_m(
    ...     X, np.array([-1, -1, 1, 1, -1]), X[:4], np.array([-1, -1, 1, 1]),
    ...     loss="logistic", outer_steps=3, inner_steps=200,
    ... )
    >>> np.sign(X @ run.theta.T).ravel()
    array([-1., -1.,  1.,  1.,  1.])
    """
    X, y, X_clean, y_clean = _rows(X), np.asarray(y), _rows(X_clean), np.asarray(y_clean)
    individual, rng, n = _loss_of(loss), np.random.default_rng(random_state), len(X)
    upper = upper or (lambda s: float(s.mean() + s.std()))
    lower = lower or (lambda s: float(s.mean() - 2.0 * s.std()))
    theta = _start(theta, _n_scores(loss, np.append(y, y_clean)), X)

    def thresholds(theta: Array) -> tuple[float, float]:
        clean = individual(X_clean @ theta.T, y_clean)[0]
        lam_hat = upper(clean)
        return min(lower(clean), lam_hat), lam_hat

    def objective(theta: Array, lam: float, lam_hat: float) -> float:
        s = individual(X @ theta.T, y)[0]
        m = int((s > lam_hat).sum())
        k = max(int((s > lam).sum()), m + 1)
        return float(ranked_range(s, m, min(k, n))) if m < n else 0.0

    clean = individual(X_clean @ theta.T, y_clean)[0].mean()
    for _ in range(warm_up_steps):
        _, slope = individual(X @ theta.T, y)
        theta = theta - warm_up_step / n * slope.T @ X
        before, clean = clean, individual(X_clean @ theta.T, y_clean)[0].mean()
        if clean >= before:
            break
    lam, lam_hat = thresholds(theta)
    values = [objective(theta, lam, lam_hat)]
    for _ in range(outer_steps):
        s, slope = individual(X @ theta.T, y)
        theta_hat = (s > lam_hat) * slope.T @ X / n
        for _ in range(inner_steps):
            rows = _batch(n, batch_size, rng)
            s, slope = individual(X[rows] @ theta.T, y[rows])
            theta = theta - step * ((s > lam) * slope.T @ X[rows] / len(s) - theta_hat)
            lam = min(thresholds(theta)[0], lam_hat)
            if watch is not None:
                watch(theta)
        lam, lam_hat = thresholds(theta)
        values.append(objective(theta, lam, lam_hat))
    return Run(theta, lam, lam_hat, np.array(values))


def tkml(
    X: Array,
    Y: Array,
    top_k: int,
    *,
    C: float = np.inf,
    outer_steps: int = 20,
    inner_steps: int = 1000,
    step: float = 0.1,
    batch_size: int | None = None,
    theta: Array | None = None,
    watch: Watch | None = None,
    random_state: int | None = 0,
) -> Run:
    """Algorithm 1 over the labels of each row: the top-k multi-label loss, averaged over the rows.

    With z the scores of a row, its loss [1 + z_[top_k + 1] - (lowest score of its labels)]_+ is the difference of the
    convex max(1 + phi_{top_k+1}(z) - lowest, phi_top_k(z)) and phi_top_k(z), which is replaced by its tangent.

    Parameters
    ----------
    X : array_like of shape (n, d)
        The rows.
    Y : array_like of shape (n, labels)
        1 for the labels of a row, otherwise 0; each row has at least one.
    top_k : int
        Number of labels that are predicted, the paper's k (k' in Algorithm 3).
    C, outer_steps, inner_steps, step, batch_size, theta, watch, random_state : optional
        As in `dca`; theta is (labels, d).

    Returns
    -------
    Run
        The last theta and the objective after each outer step; the thresholds are those of keeping all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.algorithms import tkml
    >>> run = tkml(np.eye(3), np.eye(3), 1, outer_steps=5, inner_steps=200)
    >>> (np.eye(3) @ run.theta.T).argmax(axis=1)
    array([0, 1, 2])
    """
    X, Y, n = _rows(X), np.asarray(Y, dtype=bool), len(X)
    rng, theta = np.random.default_rng(random_state), _start(theta, Y.shape[1], X)

    def objective(theta: Array) -> float:
        return float(_tkml_losses(X @ theta.T, Y, top_k)[0].mean()) + _penalty(theta, C)

    values = [objective(theta)]
    for _ in range(outer_steps):
        theta_hat = _top(X @ theta.T, top_k).T @ X
        for _ in range(inner_steps):
            rows = _batch(n, batch_size, rng)
            Z = X[rows] @ theta.T
            _, slope = _tkml_losses(Z, Y[rows], top_k)
            convex = _top(Z, top_k) + slope  # a subgradient of max(1 + phi_{top_k+1} - lowest, phi_top_k)
            theta = theta - step * (convex.T @ X[rows] / len(Z) - theta_hat / n + theta / C)
            if watch is not None:
                watch(theta)
        values.append(objective(theta))
    return _ended(theta, _tkml_losses(X @ theta.T, Y, top_k)[0], 0, n, values)


def tkml_aorr(
    X: Array,
    Y: Array,
    top_k: int,
    m: int,
    k: int,
    *,
    steps: int = 1000,
    step: float = 0.3,
    C: float = np.inf,
    theta: Array | None = None,
    watch: Watch | None = None,
) -> Run:
    """Algorithm 3: the average of the top-k multi-label losses ranked m+1 to k, by steps on theta and both thresholds.

    The objective is the minimum over lambda and the maximum over lambda_hat of lambda + (n - m)/(k - m) lambda_hat -
    (sum of [lambda_hat - [s_i - lambda]_+]_+)/(k - m), here plus ||theta||^2 / (2 C). A step descends in theta and
    lambda and ascends in lambda_hat.

    Parameters
    ----------
    X, Y, top_k : array_like, array_like and int
        As in `tkml`; the paper calls top_k k'.
    m, k : int
        Ranks of rows to drop, and the last rank to keep.
    steps, step : int and float
        Number of steps, and their length.
    C, theta, watch : optional
        As in `tkml`.

    Returns
    -------
    Run
        The last theta, the exact thresholds of its losses, and the objective at the start and after each step.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.algorithms import tkml_aorr
    >>> run = tkml_aorr(np.eye(3), np.eye(3), 1, 0, 3, steps=100)
    >>> (np.eye(3) @ run.theta.T).argmax(axis=1)
    array([0, 1, 2])
    """
    X, Y, n = _rows(X), np.asarray(Y, dtype=bool), len(X)
    theta = _start(theta, Y.shape[1], X)
    s, slope = _tkml_losses(X @ theta.T, Y, top_k)
    lam = _kth(s, k)
    lam_hat = _kth(s, m) - lam
    values = [float(ranked_range(s, m, k)) + _penalty(theta, C)]
    for _ in range(steps):
        below = np.maximum(s - lam, 0.0) < lam_hat
        kept = below & (s > lam)
        theta = theta - step * (kept * slope.T @ X / (k - m) + theta / C)
        lam = lam - step * (1.0 - kept.sum() / (k - m))
        if m > 0:
            lam_hat = max(lam_hat + step * (n - m - below.sum()) / (k - m), 0.0)
        s, slope = _tkml_losses(X @ theta.T, Y, top_k)
        values.append(float(ranked_range(s, m, k)) + _penalty(theta, C))
        if watch is not None:
            watch(theta)
    return _ended(theta, s, m, k, values)


def _logistic(Z: Array, y: Array) -> tuple[Array, Array]:
    margin = y[:, None] * Z
    return np.logaddexp(0.0, -margin)[:, 0], -y[:, None] * expit(-margin)


def _hinge(Z: Array, y: Array) -> tuple[Array, Array]:
    left = 1.0 - y[:, None] * Z
    return np.maximum(left, 0.0)[:, 0], -y[:, None] * (left > 0)


def _softmax(Z: Array, y: Array) -> tuple[Array, Array]:
    log_p = log_softmax(Z, axis=1)
    return -log_p[np.arange(len(y)), y], np.exp(log_p) - np.eye(Z.shape[1], dtype=Z.dtype)[y]


_LOSSES: dict[str, Loss] = {"logistic": _logistic, "hinge": _hinge, "softmax": _softmax}


def _tkml_losses(Z: Array, Y: Array, top_k: int) -> tuple[Array, Array]:
    """Losses (n,) and slopes (n, labels): +1 at the score ranked top_k + 1, -1 at the lowest of the row's labels.

    Scores that tie at the rank share it; the slope is 0 if both are the same label.
    """
    rows = np.arange(len(Z))
    lowest = np.where(Y, Z, np.inf).argmin(axis=1)
    s = np.maximum(1.0 + np.sort(Z, axis=1)[:, -top_k - 1] - Z[rows, lowest], 0.0)
    slope = range_weights(Z, top_k, top_k + 1)
    slope[rows, lowest] -= 1.0
    return s, slope * (s > 0)[:, None]


def _loss_of(name: str) -> Loss:
    if name not in _LOSSES:
        raise ValueError(f"loss must be one of {sorted(_LOSSES)}, got {name!r}")
    return _LOSSES[name]


def _rows(X: Array) -> Array:
    """Rows in float32 if they are given so, otherwise in float64."""
    X = np.asarray(X)
    return X if X.dtype == np.float32 else X.astype(np.float64)


def _n_scores(loss: str, y: Array) -> int:
    return int(y.max()) + 1 if loss == "softmax" else 1


def _start(theta: Array | None, n_scores: int, X: Array) -> Array:
    return np.zeros((n_scores, X.shape[1]), X.dtype) if theta is None else np.array(theta, dtype=X.dtype)


def _top(values: Array, m: int) -> Array:
    """Weights of a subgradient of the sum of the m largest values of the last axis; tied values share."""
    return range_weights(values, 0, m) if m else np.zeros(np.shape(values))


def _kth(s: Array, rank: int) -> float:
    return float(np.sort(s)[len(s) - rank]) if rank else np.inf


def _penalty(theta: Array, C: float) -> float:
    return float((theta**2).sum()) / (2.0 * C)


def _batch(n: int, size: int | None, rng: np.random.Generator) -> Array | slice:
    return slice(None) if size is None or size >= n else rng.integers(n, size=size)


def _ended(theta: Array, s: Array, m: int, k: int, values: list[float]) -> Run:
    return Run(theta, _kth(s, k), _kth(s, m), np.array(values))
