"""The small problem of the band, the rows near the lower cut or near a kink of the loss.

These rows may cross the cut or the kink in a step. Each is represented by a line, a linear function of the step d. The
problem is a quadratic in d plus the sum of the K largest lines. An interior-point method solves it (`solve_band`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...core.arrays import Array
from ...core.objective import Design, Objective
from ..descent import Metric

if TYPE_CHECKING:
    from ..newton import Iterate

# The largest number of steps; 10 to 15 are usual.
_BAND_STEPS = 40
# If the products of slacks and multipliers are below this share of the tolerance, only rounding errors still change.
_FAR_BELOW = 1e-9
# The number of lines per block, which fits into the cache.
_BLOCK = 1 << 12


def rows_of(design: Design, rows: Array) -> Array:
    """Some rows (rows, p), with a column of ones if there is an intercept, dense and in float64."""
    X = design.X[rows]
    out = np.ones((len(rows), design.p))
    out[:, : design.d] = X.toarray() if design.sparse else X
    return out


class Band(NamedTuple):
    """The rows near the lower cut or near a kink. Their lines are `values` + `A` d for a step d.

    `caps` are their largest and `weights` their current weights, divided by the kept mass. `rest` is the gradient of
    all other terms. `idle` is mass that need not be assigned to a row, because margins may be negative but losses are
    not; None if all of it must be.
    """

    rows: Array
    A: Array
    values: Array
    caps: Array
    weights: Array
    rest: Array
    idle: float | None = None

    def solve(self, hessian: Array, enough: float) -> tuple[Array, Array, float]:
        """The step d, the weights of the lines after it, and how much it decreases the value of the small problem.

        `enough` is passed to `solve_band`.
        """
        A, values, caps = self.A, self.values, self.caps
        K = float(self.weights.sum()) + (self.idle or 0.0)
        if self.idle is not None:
            A, values, caps = np.vstack([A, np.zeros((1, A.shape[1]))]), np.append(values, 0.0), np.append(caps, K)
        solved = solve_band(self.rest, hessian, A, values, caps, K, enough)
        gain = float(self.weights @ self.values) - solved.value
        return solved.step, solved.weights[: len(self.rows)], gain


def _nearest(distance: Array, width: int) -> Array:
    """About `width` rows with the smallest distances, and all rows tied with them."""
    few = distance[:: max(1, len(distance) // 20_000)]  # an approximate quantile is enough
    position = min(len(few) - 1, int(np.ceil(width * len(few) / len(distance))))
    return np.flatnonzero(distance <= np.partition(few, position)[position])


def near_cut(objective: Objective, iterate: Iterate, gradient: Array, width: int, reach: Array) -> Band:
    """The rows whose losses are nearest to the lower cut, represented by their tangents.

    A distance is relative to how far a loss moves in a step: its slope times `reach`, the norm of the row. A
    high-leverage row may cross the cut from far away. Of about `width` rows, those that are dropped are left out.
    """
    moves = reach * np.sqrt(np.einsum("rn,rn->n", iterate.U, iterate.U))
    rows = _nearest(np.abs(iterate.s - iterate.lam) / np.maximum(moves, 1e-300), width)
    caps = objective.caps_at(iterate.s, rows)
    rows, caps = rows[caps > 0], caps[caps > 0]
    X, slopes = rows_of(objective.design, rows), iterate.U[:, rows].astype(np.float64).T
    A = (slopes[:, :, None] * X[:, None, :]).reshape(len(rows), gradient.size)
    weights = iterate.q[rows].astype(np.float64) / objective.kept
    rest = gradient.ravel() - weights @ A
    return Band(rows, A, iterate.s[rows].astype(np.float64), caps / objective.kept, weights, rest)


class Lines(NamedTuple):
    """The kept losses as weighted margins, for losses with one margin per row.

    `weights` (n,) are the weights of all margins, with the sign of the margin for the absolute loss. With a solution of
    the small problem, the weight of a row of the band is `base` + `factor` times its solution.
    """

    margins: Array
    slopes: Array  # the derivative of the margins with respect to the scores
    weights: Array
    base: Array
    factor: Array

    def sums(self, objective: Objective, iterate: Iterate, rows: Array, found: Array) -> tuple[Array, Array]:
        """The arguments of `newton.balanced`: heights (2,) and gradients (2, p) of the weighted margins.

        `found` is the solution of the small problem for the `rows` of the band.
        """
        weights = self.weights.copy()
        weights[rows] = self.base + self.factor * found
        pull = weights * self.slopes
        offsets = weights * self.margins - pull * iterate.Z[0]
        rising = pull > 0
        sides = np.stack([pull * ~rising, pull * rising])
        heights = np.array([offsets[~rising].sum(), offsets[rising].sum()])
        return heights, objective.design.adjoint(sides)


def near_kink(objective: Objective, iterate: Iterate, gradient: Array, width: int) -> tuple[Band, Lines]:
    """The rows whose margins, or their absolute values for the absolute loss, are nearest to the lower cut.

    If that cut is not positive, and for the absolute loss with k = n, they are the rows nearest to the kink at zero.
    Of about `width` rows, those that are dropped are left out. The second value has the margins of all rows.
    """
    loss, y, Z = objective.loss, objective.y, iterate.Z[0]
    margins = loss.margins(y, Z)[:, 0].astype(np.float64)
    slopes = loss.margins_adjoint(y, np.ones((len(y), 1))).astype(np.float64)
    signed = getattr(loss, "signed_margins", False)
    whole = signed and objective.k >= objective.total
    q = iterate.q.astype(np.float64)
    weights = q * (np.sign(margins) if signed else margins > 0)
    heights = np.abs(margins) if signed else margins
    rows = _nearest(np.abs(heights - (0.0 if whole else max(iterate.lam, 0.0))), width)
    caps = objective.caps_at(iterate.s, rows)
    rows, caps = rows[caps > 0], caps[caps > 0]
    # |r| is -r plus max(2 r, 0); away from zero it is a line.
    factor = np.full(len(rows), 2.0) if whole else np.sign(margins[rows]) if signed else np.ones(len(rows))
    base = -caps if whole else np.zeros(len(rows))
    now = np.where(margins[rows] > 0, caps, 0.0) if whole else np.abs(weights[rows])
    A = rows_of(objective.design, rows) * (factor * slopes[rows])[:, None]
    rest = (
        gradient[0]
        - ((iterate.U[0, rows] * q[rows] - base * slopes[rows]) / factor / slopes[rows]) @ A / objective.kept
    )
    left = float(caps.sum()) if whole else max(objective.kept - float(weights.sum()), 0.0)
    idle = None if signed and not whole else left / objective.kept
    values = factor * margins[rows]
    band = Band(rows, A, values, caps / objective.kept, now / objective.kept, rest, idle)
    return band, Lines(margins, slopes, weights, base, factor)


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
