"""The small problem near the lower cut: a quadratic plus the sum of the K largest of a few lines, by interior points.

    minimise over d   g . d + d' H d / 2 + max over 0 <= q <= caps, sum q = K of q . (values + A d)

The maximum equals the least of K t + caps . xi over t and xi >= 0, xi >= values + A d - t, so this is a quadratic
program with one constraint pair per line. Its multipliers are the weights q, the share of each row near the cut: what
a certificate needs. Predictor and corrector steps (Mehrotra); 10 to 15 of them, each a p x p factorisation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.arrays import Array
from ..descent import Metric

_STEPS = 40


class BandStep(NamedTuple):
    step: Array  # d (p,)
    weights: Array  # q, feasible
    value: float  # of the quadratic and the lines at d


class _Point(NamedTuple):
    """The unknowns; `below` = xi - (values + A d - t) and `over` = xi are positive, `room` = caps - q too."""

    d: Array
    t: float
    q: Array
    room: Array
    below: Array
    over: Array

    def complementarity(self) -> float:
        return float(self.q @ self.below + self.room @ self.over)

    def moved(self, by: _Point, length: float) -> _Point:
        moved = [a + length * b for a, b in zip(self[2:], by[2:], strict=True)]
        return _Point(self.d + length * by.d, self.t + length * by.t, *moved)

    def reach(self, by: _Point) -> float:
        """How far the positive unknowns may go along `by`, at most 1."""
        now, change = np.concatenate(self[2:]), np.concatenate(by[2:])
        falling = change < 0
        return min(1.0, float((now[falling] / -change[falling]).min(initial=np.inf)))


def solve_band(g: Array, H: Array, A: Array, values: Array, caps: Array, K: float, enough: float) -> BandStep:
    """Minimise until the products of slacks and multipliers add up to at most `enough`."""
    whole = float(caps.sum())
    if 1e-12 * whole >= K or whole * (1.0 - 1e-12) <= K:  # no row is free to change sides, or there is none
        fixed = np.zeros_like(caps) if 1e-12 * whole >= K else caps
        step = -Metric(H, 1e-13).solve(g + fixed @ A)
        return BandStep(step, fixed, _value(step, g, H, A, values, caps, K))
    middle = float(np.median(values))
    s = values - middle
    width = max(float(np.abs(s).mean()), 1e-12)
    q = caps * (K / caps.sum())
    point = _Point(np.zeros(len(g)), 0.0, q, caps - q, np.maximum(-s, 0) + width, np.maximum(s, 0) + width)
    for _ in range(_STEPS):
        total = point.complementarity()
        pull = g + H @ point.d + point.q @ A
        if total <= enough and float(np.abs(pull).max()) <= 1e-9 * (1.0 + float(np.abs(g).max())):
            break
        newton = _Newton(H, A, point, pull)
        mean = total / (2 * len(s))
        first = newton.direction(point, 0.0)
        ahead = point.moved(first, point.reach(first)).complementarity()
        centre = mean * (max(ahead, 0.0) / total) ** 3
        second = newton.direction(point, centre, first)
        point = point.moved(second, min(1.0, 0.995 * point.reach(second)))
    q = point.q * min(1.0, K / float(point.q.sum()))
    return BandStep(point.d, q, _value(point.d, g, H, A, values, caps, K))


def _value(d: Array, g: Array, H: Array, A: Array, values: Array, caps: Array, K: float) -> float:
    lines = values + A @ d
    order = np.argsort(-lines)
    before = np.cumsum(caps[order]) - caps[order]
    return float(g @ d + 0.5 * d @ H @ d + np.clip(K - before, 0.0, caps[order]) @ lines[order])


class _Newton:
    """One linearisation of the optimality conditions; q is eliminated, then t, and p equations are left."""

    def __init__(self, H: Array, A: Array, point: _Point, pull: Array) -> None:
        self.A, self.pull = A, pull
        self.D = 1.0 / (point.below / point.q + point.over / point.room)
        weighted = A * np.sqrt(self.D)[:, None]
        self.total = max(float(self.D.sum()), 1e-300)
        self.drift = self.D @ A
        matrix = H + weighted.T @ weighted - np.outer(self.drift, self.drift) / self.total
        self.metric = Metric(matrix, 1e-13)

    def direction(self, point: _Point, centre: float, first: _Point | None = None) -> _Point:
        """The step to products of `centre`; with `first`, the predictor, its second-order part is taken off."""
        low = centre / point.q - point.below
        high = centre / point.room - point.over
        if first is not None:
            low = low - first.q * first.below / point.q
            high = high - first.room * first.over / point.room
        rho = low - high
        lost = float(self.D @ rho)
        right = -self.pull - (self.D * rho) @ self.A + self.drift * (lost / self.total)
        d = self.metric.solve(right)
        t = (float(self.drift @ d) + lost) / self.total
        q = self.D * (self.A @ d - t + rho)
        below = low - point.below / point.q * q
        over = high + point.over / point.room * q
        return _Point(d, t, q, -q, below, over)
