"""Convex conjugates of losses, and slopes that are feasible in the dual with an intercept, for duality gaps.

Slopes (r, n) are derivatives of the losses with respect to the scores. At the best intercept their weighted sums are
zero. `balanced` changes slopes within the domain of the conjugate until this holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import xlogy

from ...core.arrays import Array
from ...core.losses import Absolute, Huber, Logistic, Softmax, Squared


def conjugate(loss: Any, y: Array, slopes: Array) -> Array:
    """The convex conjugate of each row's loss at its slopes (r, n)."""
    return _CONJUGATES[type(loss)](loss, y, slopes)


def in_domain(loss: Any, y: Array, slopes: Array) -> bool:
    """Whether the conjugate of every row's loss is finite at its slopes (r, n)."""
    if isinstance(loss, Squared):
        return True
    if isinstance(loss, Logistic | Softmax):
        p = -y * slopes if isinstance(loss, Logistic) else slopes + (np.arange(len(slopes))[:, None] == y)
        return bool((p >= 0).all() and (p <= 1).all())
    return bool((np.abs(slopes) <= (loss.delta if isinstance(loss, Huber) else 1.0)).all())


def balanced(loss: Any, y: Array, slopes: Array, h: Array) -> Array:
    """Slopes (r, n) close to the given ones whose sums over the rows, weighted by h, are zero for each score."""
    return _BALANCES[type(loss)](loss, y, slopes, h)


def _of_squared(loss: Squared, y: Array, a: Array) -> Array:
    return a[0] ** 2 / 4 + a[0] * y


def _of_huber(loss: Huber, y: Array, a: Array) -> Array:
    return a[0] ** 2 / 2 + a[0] * y


def _of_absolute(loss: Absolute, y: Array, a: Array) -> Array:
    return a[0] * y


def _of_logistic(loss: Logistic, y: Array, a: Array) -> Array:
    p = np.clip(-y * a[0], 0.0, 1.0)
    return np.asarray(xlogy(p, p) + xlogy(1 - p, 1 - p))


def _of_softmax(loss: Softmax, y: Array, a: Array) -> Array:
    p = a.copy()
    p[y, np.arange(len(y))] += 1
    p = np.clip(p, 0.0, 1.0)
    return np.asarray(xlogy(p, p).sum(axis=0))


def _shifted(loss: Any, y: Array, a: Array, h: Array) -> Array:
    """`balanced` for squared losses, whose conjugate is finite everywhere: subtract the weighted mean."""
    return a - (a @ h / h.sum())[:, None]


def _two_sided(loss: Any, y: Array, a: Array, h: Array) -> Array:
    """`balanced` for losses whose slopes may shrink: of the positive and the negative slopes, shrink the larger sum."""
    up, down = float(np.maximum(a[0], 0) @ h), float(np.maximum(-a[0], 0) @ h)
    least = min(up, down)
    factor = np.where(a[0] > 0, least / up if up else 0.0, least / down if down else 0.0)
    return a * factor


def _mixed(loss: Softmax, y: Array, a: Array, h: Array) -> Array:
    """`balanced` for softmax: mix the probabilities with constant ones, so that the sums for all classes are zero.

    A class without rows gets probability 0, because its best intercept is minus infinity.
    """
    total = np.bincount(y, weights=h, minlength=len(a))
    empty = total <= 0
    if empty.any():
        rows = np.arange(len(y))
        p = a.copy()
        p[y, rows] += 1
        p[empty] = 0
        a = p / p.sum(axis=0)
        a[y, rows] -= 1
    wrong = a @ h
    odds = float(np.max(wrong / np.maximum(total, 1e-300), initial=0.0))
    theta = odds / (1 + odds)
    if theta == 0.0:
        return a
    constant = (total - wrong * (1 - theta) / theta) / h.sum()
    slopes = np.repeat(constant[:, None], len(y), axis=1)
    slopes[y, np.arange(len(y))] -= 1
    return (1 - theta) * a + theta * slopes


_CONJUGATES: dict[type, Callable[..., Array]] = {
    Squared: _of_squared,
    Huber: _of_huber,
    Absolute: _of_absolute,
    Logistic: _of_logistic,
    Softmax: _of_softmax,
}
_BALANCES: dict[type, Callable[..., Array]] = {
    Squared: _shifted,
    Huber: _two_sided,
    Absolute: _two_sided,
    Logistic: _two_sided,
    Softmax: _mixed,
}
