"""A quadratic function plus an l1 norm: coordinate descent, then an active set if the columns are nearly dependent.

Coordinate descent finds the signs of most coefficients in a few sweeps. It needs many more if there are nearly as many
nonzero coefficients as rows. The coefficients of an active set with known signs are the solution of a linear system. A
step goes to the minimum on the line to that solution, where signs may change; a coefficient that is zero there leaves
the set. At the minimum over the active set, the coefficient that violates its optimality condition most joins it.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dposv
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from ..core.arrays import Array
from .descent import cholesky

# The largest number of sweeps of coordinate descent before the active set.
_SWEEPS = 100
# The relative ridge that makes a Hessian of dependent columns positive definite.
_RIDGE = 1e-13


def quadratic_net(H: Array, slopes: Array, v: Array, n_penalised: int, weight: float, gap: float) -> Array:
    """Minimise slopes . (u - v) + (u - v)' H (u - v) / 2 + weight times the l1 norm of the first entries over u.

    Parameters
    ----------
    H : ndarray of shape (q, q)
        The Hessian, positive semidefinite.
    slopes, v : ndarray of shape (q,)
        The gradient at v, and v itself, from which the steps start.
    n_penalised : int
        The number of entries with a penalty, which come first.
    weight : float
        The weight of their l1 norm.
    gap : float
        The duality gap to reach.

    Returns
    -------
    ndarray of shape (q,)
        The minimiser.
    """
    d, right = n_penalised, H @ v - slopes
    found = v.copy()
    back = np.linalg.pinv(H[d:, d:], rcond=1e-12, hermitian=True) @ np.column_stack([H[d:, :d], right[d:]])
    if d:
        reduced = H[:d, :d] - H[:d, d:] @ back[:, :d]
        found[:d] = _penalised(reduced, right[:d] - H[:d, d:] @ back[:, d], weight, v[:d], gap)
    found[d:] = back[:, d] - back[:, :d] @ found[:d]
    return found


def _penalised(H: Array, b: Array, weight: float, start: Array, gap: float) -> Array:
    """Minimise x' H x / 2 - b . x + weight ||x||_1 from a start."""
    factor = cholesky(H, _RIDGE * max(float(np.diag(H).max()), 1e-300))
    response = solve_triangular(factor, b, trans="T", check_finite=False)
    square = float(response @ response)
    # Checks would take longer than small problems do.
    with warnings.catch_warnings(), config_context(skip_parameter_validation=True):
        warnings.simplefilter("ignore", ConvergenceWarning)
        _, coefs, gaps = enet_path(
            np.asfortranarray(np.triu(factor)),
            response,
            alphas=[weight / len(b)],
            l1_ratio=1.0,
            precompute=False,
            coef_init=start.copy(),  # the array is overwritten
            tol=min(max(gap / max(square, 1e-300), 1e-14), 1e-3),
            max_iter=_SWEEPS,
            check_input=False,
        )
    x = np.asarray(coefs[:, 0])
    return x if gaps[0] * len(b) <= gap else _on_active_set(H, b, weight, x, gap)


def _on_active_set(H: Array, b: Array, weight: float, x: Array, gap: float) -> Array:
    """Steps on the active set until no other coefficient violates its condition; at most two steps per coefficient."""
    active = np.flatnonzero(x)
    inside, signs = x[active], np.sign(x[active])
    size = max(float(np.abs(x).sum()), 1e-300)
    for _ in range(2 * len(x)):
        inside, signs, stay, optimal = _step(H[np.ix_(active, active)], b[active], inside, signs, weight)
        if stay is not None:
            active, inside, signs = active[stay], inside[stay], signs[stay]
        if not optimal:
            continue
        slopes = b - H[:, active] @ inside
        excess = np.abs(slopes) - weight
        excess[active] = 0.0
        new = int(excess.argmax())
        if excess[new] <= max(1e-13 * weight, 0.1 * gap / size):
            break
        active, inside = np.append(active, new), np.append(inside, 0.0)
        signs = np.append(signs, np.sign(slopes[new]))
    x = np.zeros_like(x)
    x[active] = inside
    return x


def _step(H: Array, b: Array, x: Array, signs: Array, weight: float) -> tuple[Array, Array, Array | None, bool]:
    """The minimum on the line from x to the solution with these signs.

    Returns x, the signs, which coefficients stay (None: all), and whether x is that solution; also if there is none.
    """
    if not len(x):
        return x, signs, None, True
    diagonal = H.reshape(-1)[:: len(H) + 1]
    diagonal += _RIDGE * diagonal.mean()
    right = b - weight * signs
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
    kinks = 2 * weight * np.cumsum(np.abs(change[crossing]))
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
