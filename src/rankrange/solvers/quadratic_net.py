"""A quadratic function plus an l1 norm, by an active set.

The coefficients of an active set with known signs are the solution of a linear system. A step goes to the minimum on
the line to that solution, where signs may change; a coefficient that is zero there leaves the set. At the minimum over
the active set, the coefficient that violates its optimality condition most joins it.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dposv

from ..core.arrays import Array

# The largest violation of an optimality condition, relative to the weight of the l1 norm.
_VIOLATION = 1e-10
# The relative ridge that makes a Hessian of dependent columns positive definite.
_RIDGE = 1e-13


def quadratic_net(H: Array, slopes: Array, v: Array, n_penalised: int, weight: float) -> Array:
    """The u that minimises slopes . (u - v) + (u - v)' H (u - v) / 2 + weight times the l1 norm of its first entries.

    H (q, q) is positive semidefinite, `slopes` is the gradient at v (q,), from which the steps start, and the norm is
    that of the first `n_penalised` entries.
    """
    d = n_penalised
    back = np.linalg.pinv(H[d:, d:], rcond=1e-9, hermitian=True) @ np.column_stack([H[d:, :d], slopes[d:]])
    change = np.zeros(len(v))
    if d:
        reduced = H[:d, :d] - H[:d, d:] @ back[:, :d]
        change[:d] = _on_active_set(reduced, slopes[:d] - H[:d, d:] @ back[:, d], weight, v[:d]) - v[:d]
    change[d:] = -back[:, d] - back[:, :d] @ change[:d]
    return v + change


def _on_active_set(H: Array, slopes: Array, weight: float, v: Array) -> Array:
    """Minimise slopes . (x - v) + (x - v)' H (x - v) / 2 + weight ||x||_1 from v; at most two steps per coefficient."""
    active = np.flatnonzero(v)
    x, signs = v.copy(), np.sign(v[active])
    pull = -slopes  # minus the gradient, from differences, which are small, so that it is accurate
    for _ in range(2 * len(x)):
        inside, signs, stay, optimal = _step(H[np.ix_(active, active)], pull[active], x[active], signs, weight)
        x[active] = inside
        if stay is not None:
            x[active[~stay]] = 0.0
            active, signs = active[stay], signs[stay]
        pull = -(slopes + H @ (x - v))
        if not optimal:
            continue
        excess = np.abs(pull) - weight
        excess[active] = 0.0
        new = int(excess.argmax())
        if excess[new] <= _VIOLATION * weight:
            break
        active, signs = np.append(active, new), np.append(signs, np.sign(pull[new]))
    return x


def _step(H: Array, pull: Array, x: Array, signs: Array, weight: float) -> tuple[Array, Array, Array | None, bool]:
    """The minimum on the line from x, where minus the gradient is `pull`, to the solution with these signs.

    Returns x, the signs, which coefficients stay (None: all), and whether x is that solution; also if there is none.
    """
    if not len(x):
        return x, signs, None, True
    diagonal = H.reshape(-1)[:: len(H) + 1]
    diagonal *= 1.0 + _RIDGE
    right = pull - weight * signs
    _, change, info = dposv(H, right)
    if info != 0:
        return x, signs, None, True
    target = x + change
    crossing = np.flatnonzero(signs * target <= 0)
    if not len(crossing):
        return target, signs, None, True
    shares = np.abs(x[crossing] / change[crossing])
    order = np.argsort(shares, kind="stable")
    crossing, shares = crossing[order], shares[order]
    # The derivative along the line is slope (share - 1), plus twice |change| of each coefficient that crossed zero.
    slope = float(change @ right)
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
