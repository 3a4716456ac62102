"""The small problem of a Newton step near the cut: a quadratic plus the sum of the K largest of a few lines.

The lines are the linearised losses of the band, the rows near the cut, which may cross it in the step. The multipliers
of the solution are their weights, from which a certificate is computed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core.arrays import Array
from ..descent import Metric

# The largest number of steps; 10 to 15 are usual.
_BAND_STEPS = 40
# If the products of slacks and multipliers are below this share of the tolerance, only rounding errors still change.
_FAR_BELOW = 1e-9
# The number of lines per block, which fits into the cache.
_BLOCK = 1 << 12


def step_of_band(
    problem: Any, at: Any, gradient: Array, H: Array, count: int, enough: float
) -> tuple[Array, Array, float]:
    """The step (r, p), the weights of all rows after it, and its expected gain; `count` rows are in the band.

    `problem` has the risk of the largest losses, `at` its exact weights. The distance of a loss to the cut is relative
    to how far it moves in a step, because a high-leverage row may cross the cut from far away.
    """
    design, risk, q, s = problem.design, problem.risk, at.risk.weights, at.s
    moves = design.lengths * np.sqrt(np.einsum("rn,rn->n", at.slope, at.slope))
    distance = np.abs(s - s[q > 0].min()) / np.maximum(moves, 1e-300)
    distance[risk.caps <= 0] = np.inf
    count = min(count, len(s))
    rows = np.flatnonzero(distance <= np.partition(distance, count - 1)[count - 1])
    rows = rows[risk.caps[rows] > 0]
    X, slopes = design.dense(rows), at.slope[:, rows].T.astype(np.float64)
    A = (slopes[:, :, None] * X[:, None, :]).reshape(len(rows), gradient.size)
    weights, caps = q[rows], risk.caps[rows] / risk.K
    solved = solve_band(gradient.ravel() - weights @ A, H, A, s[rows], caps, float(weights.sum()), enough)
    after = q.copy()
    after[rows] = solved.weights
    return solved.step.reshape(gradient.shape), after, float(weights @ s[rows]) - solved.value


class BandStep(NamedTuple):
    step: Array  # d (p,)
    weights: Array  # q, feasible
    value: float  # the value of the quadratic and the lines at d


class _Point(NamedTuple):
    """The unknowns d and t, and four positive unknowns of each line as an array (4, lines).

    They are q, room = caps - q, below = xi - (values + A d - t) and over = xi.
    """

    d: Array
    t: float
    positive: Array

    def complementarity(self) -> float:
        return float(np.vdot(self.positive[:2], self.positive[2:]))

    def moved(self, by: _Point, length: float) -> _Point:
        return _Point(self.d + length * by.d, self.t + length * by.t, self.positive + length * by.positive)

    def reach(self, by: _Point) -> float:
        """The largest step along `by`, at most 1, that keeps the unknowns positive."""
        fastest = float((by.positive / self.positive).min())
        return 1.0 if fastest >= 0 else min(1.0, -1.0 / fastest)


def solve_band(g: Array, H: Array, A: Array, values: Array, caps: Array, K: float, enough: float) -> BandStep:
    """Minimise a quadratic plus the sum of the K largest of a few lines.

        minimise over d   g . d + d' H d / 2 + max over 0 <= q <= caps, sum q = K of q . (values + A d)

    The maximum equals the minimum of K t + caps . xi over t and xi >= 0, xi >= values + A d - t. This is a quadratic
    program with one pair of constraints per line. An interior-point method with predictor and corrector steps
    (Mehrotra), each with a p x p factorisation, runs until the products of slacks and multipliers sum to at most
    `enough`, or for 40 steps. The multipliers are the weights q of the rows near the cut, from which the certificate is
    computed. If K leaves no weight free, one linear system is solved instead.
    """
    whole = float(caps.sum())
    if 1e-12 * whole >= K or whole * (1.0 - 1e-12) <= K:  # no row or no weight is free
        fixed = np.zeros_like(caps) if 1e-12 * whole >= K else caps
        step = -Metric(H, 1e-13).solve(g + fixed @ A)
        return BandStep(step, fixed, _value(step, g, H, A, values, caps, K))
    middle = float(np.median(values))
    s = values - middle
    width = max(float(np.abs(s).mean()), 1e-12)
    q = caps * (K / caps.sum())
    positive = np.array([q, caps - q, np.maximum(-s, 0) + width, np.maximum(s, 0) + width])
    point = _Point(np.zeros(len(g)), 0.0, positive)
    enough = max(enough, 1e-16 * K * float(np.abs(s).max()))  # rounding
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        point = _followed(point, g, H, A, enough)
    q = point.positive[0] * min(1.0, K / float(point.positive[0].sum()))
    return BandStep(point.d, q, _value(point.d, g, H, A, values, caps, K))


def _followed(point: _Point, g: Array, H: Array, A: Array, enough: float) -> _Point:
    """Steps along the central path until the products are small enough or rounding prevents progress.

    The best point is returned, not the last. Below the precision of the equations, steps lead away from the optimum
    although the products still decrease.
    """
    best, least, steep = point, np.inf, 1e-9 * (1.0 + float(np.abs(g).max()))
    for _ in range(_BAND_STEPS):
        total = point.complementarity()
        pull = g + H @ point.d + point.positive[0] @ A
        off = max(total / max(enough, 1e-300), float(np.abs(pull).max()) / steep)
        if off < least:
            best, least = point, off
        if off <= 1.0 or total <= _FAR_BELOW * enough:
            break
        newton = _Newton(H, A, point, pull)
        mean = total / (2 * len(A))
        first = newton.direction(point, 0.0)
        ahead = point.moved(first, point.reach(first)).complementarity()
        centre = mean * (max(ahead, 0.0) / total) ** 3
        second = newton.direction(point, centre, first)
        if not (np.isfinite(second.d).all() and np.isfinite(second.positive[0]).all()):  # the limit of rounding
            break
        point = point.moved(second, min(1.0, 0.995 * point.reach(second)))
    return best


def _value(d: Array, g: Array, H: Array, A: Array, values: Array, caps: Array, K: float) -> float:
    lines = values + A @ d
    order = np.argsort(-lines)
    before = np.cumsum(caps[order]) - caps[order]
    return float(g @ d + 0.5 * d @ H @ d + np.clip(K - before, 0.0, caps[order]) @ lines[order])


class _Newton:
    """One linearisation of the optimality conditions. Eliminating q and t leaves p equations."""

    def __init__(self, H: Array, A: Array, point: _Point, pull: Array) -> None:
        self.A, self.pull = A, pull
        self.slopes = point.positive[2:] / point.positive[:2]  # below / q and over / room
        self.D = 1.0 / self.slopes.sum(axis=0)
        gram, root = np.zeros_like(H), np.sqrt(self.D)
        for start in range(0, len(A), _BLOCK):
            weighted = A[start : start + _BLOCK] * root[start : start + _BLOCK, None]
            gram += weighted.T @ weighted
        self.total = max(float(self.D.sum()), 1e-300)
        self.drift = self.D @ A
        matrix = H + gram - np.outer(self.drift, self.drift) / self.total
        self.metric = Metric(matrix, 1e-13)

    def direction(self, point: _Point, centre: float, first: _Point | None = None) -> _Point:
        """The Newton step to products of slack and multiplier equal to `centre`; `first` is the predictor step."""
        products = centre if first is None else centre - first.positive[:2] * first.positive[2:]
        ends = products / point.positive[:2] - point.positive[2:]
        rho = ends[0] - ends[1]
        lost = float(self.D @ rho)
        right = -self.pull - (self.D * rho) @ self.A + self.drift * (lost / self.total)
        d = self.metric.solve(right)
        t = (float(self.drift @ d) + lost) / self.total
        q = self.D * (self.A @ d - t + rho)
        change = np.array([q, -q])
        return _Point(d, t, np.concatenate([change, ends - self.slopes * change]))
