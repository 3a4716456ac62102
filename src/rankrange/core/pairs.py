"""Pair losses l(u - v) of a positive with score u and a negative with score v, summed without forming all pairs.

The function l is convex and never increases. `sums` adds the loss or its derivatives over the negatives for each
positive. The squared hinge uses sorting and cumulative sums, O(n log n). The logistic loss uses Chebyshev interpolation
on panels of scores, O(n), to 13 digits. By symmetry, `sums(-v, -u, ...)` adds over the positives for each negative.

A new pair loss is one class and one entry in `PAIR_LOSSES`; the contract tests run over the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from scipy.special import expit

from .arrays import Array
from .losses import softplus

# Up to this many pairs are summed directly, because interpolation is not faster.
_PAIRS_AT_ONCE = 1 << 18
# The width of panels, the Chebyshev nodes on each (the error is below 1e-13, because the kernels are analytic within pi
# of the real line), and the distance from which the logistic loss equals its linear or zero limit.
_WIDTH, _NODES, _FAR = 2.0, 16, 40.0


class PairLoss(Protocol):
    """The methods of a pair loss l(u - v)."""

    def kernel(self, t: Array, order: int) -> Array:
        """l, -l' or l'' (order 0, 1, 2) at u - v = -t."""

    def sums(self, u: Array, v: Array, R: Array, orders: tuple[int, ...]) -> list[Array]:
        """For each order, sum_j D(u_i - v_j) R_j with D = l, -l', l''.

        Parameters
        ----------
        u : ndarray of shape (a,)
            Scores of the positives.
        v : ndarray of shape (b,)
            Scores of the negatives.
        R : ndarray of shape (b,) or (b, c)
            Weights of the negatives.
        orders : tuple of int
            The orders of the derivatives, out of 0, 1, 2.

        Returns
        -------
        list of ndarray of shape (a,) or (a, c)
            The sums, one array for each order.
        """


class PairSquaredHinge:
    """max(0, 1 - (u - v))^2."""

    def kernel(self, t: Array, order: int) -> Array:
        """With [x]_+ = max(0, x): [1 + t]_+^2 (order 0), 2 [1 + t]_+ (order 1), or 2 if 1 + t > 0, else 0 (order 2)."""
        margin = np.maximum(0.0, 1.0 + t)
        return margin**2 if order == 0 else 2.0 * margin if order == 1 else 2.0 * (margin > 0)

    def sums(self, u: Array, v: Array, R: Array, orders: tuple[int, ...]) -> list[Array]:
        """The sums of `PairLoss.sums`, from cumulative sums of R, v R and v^2 R with v sorted and centred."""
        order = np.argsort(v, kind="stable")
        middle = float(v[order[len(v) // 2]]) if len(v) else 0.0
        sorted_v, weights = v[order] - middle, R[order]
        reach = 1.0 - (u - middle)  # the margin of a pair is reach + v
        index = np.searchsorted(sorted_v, -reach, side="right")
        columns = (slice(None), *[None] * (R.ndim - 1))
        powers = [weights, weights * sorted_v[columns], weights * (sorted_v**2)[columns]][: 3 - min(orders)]
        above = [_sums_from_the_top(power)[index] for power in powers]
        reach = reach[columns]
        found = {
            2: lambda: 2.0 * above[0],
            1: lambda: 2.0 * (above[1] + reach * above[0]),
            0: lambda: above[2] + reach * (2.0 * above[1] + reach * above[0]),
        }
        return [found[each]() for each in orders]


def _sums_from_the_top(values: Array) -> Array:
    """Entry j is the sum of values[j:]; the last one is 0."""
    out = np.zeros((len(values) + 1, *values.shape[1:]))
    np.cumsum(values[::-1], axis=0, out=out[1:])
    return out[::-1]


class PairLogistic:
    """log(1 + exp(-(u - v)))."""

    def kernel(self, t: Array, order: int) -> Array:
        """softplus(t) (order 0), sigmoid(t) (1), or the derivative of the sigmoid (2)."""
        if order == 0:
            return softplus(t)
        p = expit(t)
        return p if order == 1 else p * expit(-t)

    def sums(self, u: Array, v: Array, R: Array, orders: tuple[int, ...]) -> list[Array]:
        """The sums of `PairLoss.sums`: directly up to 2^18 pairs, otherwise by interpolation on panels of scores."""
        if len(u) * len(v) <= _PAIRS_AT_ONCE:
            t = v[None, :] - u[:, None]
            return [self.kernel(t, order) @ R for order in orders]
        columns = R.reshape(len(v), -1)
        found = _by_panels(u, v, columns, orders, self.kernel)
        return [each.reshape(len(u), *R.shape[1:]) for each in found]


def _by_panels(
    u: Array, v: Array, R: Array, orders: tuple[int, ...], kernel: Callable[[Array, int], Array]
) -> list[Array]:
    """The sums of `PairLoss.sums` for R (b, c), approximated on panels, which are intervals of scores.

    Between panels whose centres are less than about 40 apart the kernel is interpolated. Otherwise it has its limit: 0
    if v is below u, and v - u (order 0), 1 (order 1) or 0 (order 2) if v is above u.
    """
    origin = min(float(u.min()), float(v.min()))
    by_u, by_v = np.argsort(u, kind="stable"), np.argsort(v, kind="stable")
    u, v, R = u[by_u] - origin, v[by_v] - origin, R[by_v]
    sources, moments = [], []
    for centre, rows in _panels(v):
        sources.append(centre + _WIDTH / 2 * _POINTS)
        moments.append(_basis((v[rows] - centre) * (2 / _WIDTH)).T @ R[rows])
    nodes, moment = np.concatenate(sources), np.concatenate(moments)
    centres = nodes[:: len(_POINTS)] + nodes[len(_POINTS) - 1 :: len(_POINTS)]
    centres = centres / 2
    mass, weighted = _sums_from_the_top(R), _sums_from_the_top(v[:, None] * R)
    first = np.searchsorted(v, centres + _WIDTH / 2, side="left")  # the end of the rows of each panel
    out = [np.zeros((len(u), R.shape[1])) for _ in orders]
    for centre, rows in _panels(u):
        low, high = np.searchsorted(centres, [centre - _FAR, centre + _FAR])
        near = slice(low * _NODES, high * _NODES)
        basis = _basis((u[rows] - centre) * (2 / _WIDTH))
        t = nodes[None, near] - (centre + _WIDTH / 2 * _POINTS)[:, None]
        end = int(first[high - 1]) if high else 0
        for each, order in zip(out, orders, strict=True):
            each[rows] = basis @ (kernel(t, order) @ moment[near])
            if order == 0:
                each[rows] += weighted[end] - u[rows, None] * mass[end]
            elif order == 1:
                each[rows] += mass[end]
    back = np.empty_like(by_u)
    back[by_u] = np.arange(len(by_u))
    return [each[back] for each in out]


def _panels(x: Array) -> Iterator[tuple[float, slice]]:
    """The non-empty panels of sorted x >= 0: their centres and their slices of x."""
    number = np.floor(x / _WIDTH).astype(np.int64)
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(x)], strict=True):
        yield (float(number[start]) + 0.5) * _WIDTH, slice(int(start), int(end))


_ANGLES = (np.arange(_NODES) + 0.5) * (np.pi / _NODES)
_POINTS = -np.cos(_ANGLES)  # ascending


def _basis(x: Array) -> Array:
    """The Lagrange polynomials of the Chebyshev points at x in [-1, 1], (len(x), nodes)."""
    degrees = np.arange(_NODES)
    scale = np.where(degrees == 0, 1.0, 2.0) / _NODES
    at_points = np.cos(degrees[:, None] * np.arccos(_POINTS)[None, :]) * scale[:, None]
    return np.asarray(np.cos(np.arccos(np.clip(x, -1.0, 1.0))[:, None] * degrees) @ at_points)


PAIR_LOSSES: dict[str, PairLoss] = {"squared_hinge": PairSquaredHinge(), "logistic": PairLogistic()}
