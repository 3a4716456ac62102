"""The quadratic elastic net on an active set: min 1/2 ||response - M theta||^2 + the penalty, to a duality gap.

Coordinate descent finds the signs of most coefficients in a few sweeps. It needs many more if there are nearly as many
nonzero coefficients as rows, because the columns are then nearly dependent. The coefficients of an active set with
known signs are the solution of a linear system. A step goes to the minimum of the objective on the line to that
solution, where signs may change; a coefficient that is zero there leaves the set. At the minimum over the active set,
the column with the largest violation of its optimality condition joins it. The objective never increases.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.linalg.lapack import dposv
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, enet_path

from ...core.arrays import Array

# The number of sweeps of coordinate descent before the active set.
_SWEEPS = 300
# The largest number of choices of columns for the active set.
_CHOICES = 5


def quadratic_net(M: Array, response: Array, l1_ratio: float, start: Array, gap: float) -> Array:
    """Minimise 1/2 ||response - M theta||^2 + (1 - l1_ratio)/2 ||theta||^2 + l1_ratio ||theta||_1.

    Parameters
    ----------
    M : ndarray of shape (n, q)
        The design matrix.
    response : ndarray of shape (n,)
        The target.
    l1_ratio : float
        The share of the l1 penalty, in (0, 1].
    start : ndarray of shape (q,)
        The coefficients to start from.
    gap : float
        The duality gap to reach. A larger one may remain after the largest number of steps; there is no warning.

    Returns
    -------
    ndarray of shape (q,)
        The coefficients. The objective is at most that of `start`.
    """
    n, q = M.shape
    if not q:
        return start
    M = np.asfortranarray(M)
    gram = M.T @ M if q <= 2 * n else None
    square, products = float(response @ response), M.T @ response
    # Checks would take longer than small problems do.
    with warnings.catch_warnings(), config_context(skip_parameter_validation=True):
        warnings.simplefilter("ignore", ConvergenceWarning)
        _, coefs, gaps = enet_path(
            M,
            response,
            alphas=[1.0 / n],
            l1_ratio=l1_ratio,
            precompute=False if gram is None else gram,
            Xy=None if gram is None else products,
            coef_init=start.copy(),  # the array is overwritten
            tol=_relative(gap, square),
            max_iter=_SWEEPS,
            check_input=False,
        )
    theta = np.asarray(coefs[:, 0])
    if gaps[0] * n <= gap:
        return theta
    for _ in range(_CHOICES):
        used, slopes = np.flatnonzero(theta), M.T @ (response - M @ theta)
        if _gap(square, products[used], slopes, slopes[used], theta[used], l1_ratio) <= gap:
            break
        some = _candidates(theta, slopes, 2 * n)
        own = M[:, some].T @ M[:, some] if gram is None else gram[np.ix_(some, some)]
        theta[some] = _on_active_set(own, products[some], square, l1_ratio, theta[some], gap)
        if len(some) == q:
            break
    return theta


def sparse_quadratic_net(
    X: Any, target: Array, weights: Array, fit_intercept: bool, l1_ratio: float, start: Array, gap: float
) -> tuple[Array, float]:
    """`quadratic_net` for a sparse matrix, with 1/2 sum_i weights_i (target_i - x_i theta - intercept)^2 as the loss.

    Parameters
    ----------
    X : sparse matrix of shape (n, q)
        The design matrix.
    target, weights : ndarray of shape (n,)
        The targets, and the weights of the rows.
    fit_intercept : bool
        Whether there is an intercept, which is not penalised.
    l1_ratio, start, gap
        As in `quadratic_net`.

    Returns
    -------
    theta : ndarray of shape (q,)
        The coefficients.
    intercept : float
        The intercept.
    """
    X, target, weights = X[weights > 0], target[weights > 0], weights[weights > 0]
    total = float(weights.sum())
    mean = float(weights @ target) / total if fit_intercept else 0.0
    centred = target - mean
    square = float(weights @ centred**2)
    model = ElasticNet(
        alpha=1 / total,
        l1_ratio=l1_ratio,
        fit_intercept=fit_intercept,
        tol=_relative(gap, square),
        max_iter=_SWEEPS,
        warm_start=True,
    )
    model.coef_ = start.copy()
    with warnings.catch_warnings(), config_context(skip_parameter_validation=True):
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, target, sample_weight=weights)
    theta = np.asarray(model.coef_)
    products = X.T @ (weights * centred)
    centres = np.asarray(X.T @ weights) / total if fit_intercept else np.zeros(X.shape[1])
    for _ in range(_CHOICES):
        residual = weights * (centred - X @ theta + centres @ theta)
        used, slopes = np.flatnonzero(theta), X.T @ residual - centres * residual.sum()
        if _gap(square, products[used], slopes, slopes[used], theta[used], l1_ratio) <= gap:
            break
        some = _candidates(theta, slopes, 2 * len(target))
        own = _gram(X, weights, centres, some)
        theta[some] = _on_active_set(own, products[some], square, l1_ratio, theta[some], gap)
    return theta, mean - float(centres @ theta)


def _gram(X: Any, weights: Array, centres: Array, columns: Array) -> Array:
    """The weighted Gram matrix of some columns after subtracting their centres."""
    part = X[:, columns]
    products = (part.T @ part.multiply(weights[:, None]).tocsc()).toarray()
    return np.asarray(products - weights.sum() * np.outer(centres[columns], centres[columns]))


def _relative(gap: float, square: float) -> float:
    """The tolerance for scikit-learn, relative to `square` = ||response||^2, within [1e-14, 1e-3].

    `square` may be far above the objective, so the gap is checked again afterwards.
    """
    return min(max(gap / max(square, 1e-300), 1e-14), 1e-3)


def _candidates(theta: Array, slopes: Array, most: int) -> Array:
    """The indices of all nonzero coefficients and, up to `most` in total, of others with the steepest slopes."""
    size = np.where(theta != 0, np.inf, np.abs(slopes))
    count = min(max(most, int(np.count_nonzero(theta))), len(theta))
    return np.sort(np.argpartition(-size, count - 1)[:count])


def _on_active_set(gram: Array, products: Array, square: float, l1_ratio: float, theta: Array, gap: float) -> Array:
    """The coefficients after steps on the active set, until the duality gap is `gap`; at most two steps per column.

    The steps also end if no column outside the set violates its optimality condition. `gram` and `products` are M' M
    and M' response, and `square` is ||response||^2.
    """
    active = np.flatnonzero(theta)
    x, signs = theta[active], np.sign(theta[active])
    for _ in range(2 * len(theta)):
        x, signs, stay, optimal = _step(gram[np.ix_(active, active)], products[active], x, signs, l1_ratio)
        if stay is not None:
            active, x, signs = active[stay], x[stay], signs[stay]
        if not optimal:
            continue
        slopes = products - gram[:, active] @ x
        if _gap(square, products[active], slopes, slopes[active], x, l1_ratio) <= gap:
            break
        size = np.abs(slopes)
        size[active] = 0.0
        new = int(size.argmax())
        if size[new] <= l1_ratio:
            break
        active, x, signs = np.append(active, new), np.append(x, 0.0), np.append(signs, np.sign(slopes[new]))
    theta = np.zeros_like(theta)
    theta[active] = x
    return theta


def _step(H: Array, b: Array, x: Array, signs: Array, l1_ratio: float) -> tuple[Array, Array, Array | None, bool]:
    """The minimum of the objective on the line from x to the solution with these signs.

    H is the Gram matrix of the columns, to which the l2 penalty is added in place, and b their products with the
    response. Returns x, the signs, which coefficients stay (None: all), and whether x is that solution. If the system
    cannot be solved, x is returned as if it were.
    """
    if not len(x):
        return x, signs, None, True
    diagonal = H.reshape(-1)[:: len(H) + 1]
    diagonal += 1 - l1_ratio + 1e-13 * diagonal.mean()
    right = b - l1_ratio * signs
    _, target, info = dposv(H, right)
    if info != 0:
        return x, signs, None, True
    change = target - x
    crossing = np.flatnonzero(signs * target <= 0)
    if not len(crossing):
        return target, signs, None, True
    shares = np.abs(x[crossing] / change[crossing])
    order = np.argsort(shares, kind="stable")
    crossing, shares = crossing[order], shares[order]
    # The derivative along the line is slope (share - 1), plus twice |change| of each coefficient that crossed zero.
    slope = float(change @ (right - H @ x))
    kinks = 2 * l1_ratio * np.cumsum(np.abs(change[crossing]))
    past = np.flatnonzero(slope * (shares - 1) + kinks >= 0)
    count = int(past[0]) if len(past) else len(crossing)
    share = 1 - (kinks[count - 1] / slope if count else 0.0)
    stay = None
    if len(past) and share >= shares[count]:
        share = shares[count]
        stay = np.arange(len(x)) != crossing[count]
    signs = signs.copy()
    signs[crossing[:count]] *= -1
    return x + share * change, signs, stay, False


def _gap(square: float, b: Array, slopes: Array, own: Array, x: Array, l1_ratio: float) -> float:
    """The duality gap, with the better of two feasible points of the dual: the residuals, or a share of them.

    `slopes` are the products of all columns with the residuals, `own` those of the columns with the coefficients x, and
    b the products of these columns with the response.
    """
    ridge, fitted = 1 - l1_ratio, float(x @ (b - own))
    residual, with_response = square - 2 * float(x @ b) + fitted, square - float(x @ b)
    value = residual / 2 + ridge / 2 * float(x @ x) + l1_ratio * float(np.abs(x).sum())
    size = np.abs(slopes)
    share = min(1.0, l1_ratio / max(float(size.max()), 1e-300))
    best = share * with_response - share**2 * residual / 2
    if ridge:
        beyond = np.maximum(size - l1_ratio, 0.0)
        best = max(best, with_response - residual / 2 - float(beyond @ beyond) / (2 * ridge))
    return value - best
