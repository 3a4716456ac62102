"""Newton steps on F itself, for losses of one score that have a curvature: some five to ten passes over X for a fit.

At W the m largest losses are cut. That bounds F from above and touches it, so that cutting anew in each step can only
help. Of the rest most rows are surely above or below the lower cut; they enter by their gradient and by the Hessian of
a sample of the rows. Those near the lower cut enter by their tangents and stay free to change sides: a small problem
(`solve_band`), whose multipliers are weights for the certificate. One step is one pass over X, forth and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.objective import Design, Objective
from .descent import Log, Metric, Result, cut_is_clean, finish, relative

_BLOCK = 1 << 15
# Of the small problem near the cut at most; 10 to 15 are usual.
_BAND_STEPS = 40


class Band(NamedTuple):
    """The rows near the lower cut; in units of F their tangents are `values` + `A` d."""

    rows: Array
    A: Array
    values: Array
    caps: Array
    weights: Array


class Proposal(NamedTuple):
    """A step, what it should gain, the scores at its end where they are known, and the gap at its start."""

    step: Array
    gain: float
    scores: Array | None = None
    gap: float = np.inf


def applies(objective: Objective) -> bool:
    """Whether the loss has one score and bends, and its Hessian can be factored."""
    smooth = hasattr(objective.loss, "curvature") and not hasattr(objective.loss, "margins")
    return smooth and objective.n_outputs == 1 and objective.design.p <= 1000


def newton(
    objective: Objective,
    W: Array,
    *,
    rng: np.random.Generator,
    tol: float = 1e-6,
    max_iter: int = 40,
    log: Log | None = None,
    phase: str = "newton",
    near: bool = False,
    stop: float = 0.0,
    width: int = 0,
) -> Result:
    """Step until the certificate is at most tol, or no step lowers F.

    `near` says that W is close to a minimum already. With tol = 0 there is no certificate, and the steps end where one
    would gain less than `stop` of F. `width`: how many rows may change sides in the first step.
    """
    log = Log() if log is None else log
    loop = _Loop(objective, tol, near, rng, width)
    look, gap, n_iter = look_at(objective, W[0]), np.inf, 0
    log(phase, look.value)
    while True:
        proposal = loop.propose(look)
        gap = proposal.gap
        # Where rows may still cross the upper cut, what is gained by one step more is not in the gap.
        if relative(gap, look.value) <= (0.5 * tol if objective.m > 0 else tol):
            look, gap = _end_of(objective, look, proposal)
            break
        if n_iter >= max_iter or proposal.gain <= stop * look.value:
            break
        taken = _search(objective, look, proposal)
        n_iter += 1
        if taken is None:
            break
        loop.learn(look, taken)
        look = taken
        log(phase, look.value)
    certificate = np.inf
    if np.isfinite(gap) and (objective.m == 0 or cut_is_clean(objective, look.s)):
        certificate = relative(gap, look.value)
    return finish(look.W[None, :], look.value, n_iter, certificate, tol, max_iter, log, losses=look.s)


def _end_of(objective: Objective, look: Look, proposal: Proposal) -> tuple[Look, float]:
    """Where the last step leads, if the scores there are known, F is lower and the same rows are cut; and its gap."""
    if proposal.scores is not None:
        end = look_at(objective, look.W + proposal.step, proposal.scores)
        if end.value < look.value and np.array_equal(end.is_cut, look.is_cut):
            return end, proposal.gap - (look.value - end.value)
    return look, proposal.gap


def hessian_rows(objective: Objective) -> int:
    """Enough rows for steps that gain a digit or more each, as long as their Hessian costs less than a pass."""
    n, p = objective.design.n, objective.design.p
    return min(n, max(40 * p, n // 5, 2000), 100_000)


class _Loop:
    """What is carried from step to step: how many rows crossed each cut."""

    def __init__(self, objective: Objective, tol: float, near: bool, rng: np.random.Generator, width: int) -> None:
        self.objective, self.tol, self.rng = objective, tol, rng
        self.sample = Sampled(objective, hessian_rows(objective), rng)
        self.crossed = 0  # rows that crossed the upper cut in the last step
        # At a minimum about as many rows tie at the cut as there are parameters, and fewer where the penalty is strong.
        self.least_width = min(10 * objective.design.p, 500)
        self.width = max(width, self.least_width)
        self.last_gain = np.inf
        self.near = near
        self.certify = tol > 0

    def learn(self, before: Look, after: Look) -> None:
        cut = before.is_cut != after.is_cut
        self.crossed = int(np.count_nonzero(cut))
        switched = int(np.count_nonzero((before.q > 0) != (after.q > 0))) - self.crossed
        self.width = max(self.least_width, 2 * switched)
        gain = before.value - after.value
        slow = self.crossed <= 2 and gain > 0.1 * self.last_gain
        if slow and self.sample.share < 1.0:
            # A few rows carry the curvature, as where one class is rare: the sample holds too few of them.
            self.sample = Sampled(self.objective, 5 * len(self.sample.rows), self.rng)
        self.last_gain = gain

    def propose(self, look: Look) -> Proposal:
        objective = self.objective
        gradient = objective.design.adjoint((look.u * look.q)[None, :])[0] / objective.kept
        gradient += objective.penalty_gradient(look.W[None, :])[0]
        if objective.k >= objective.total:
            return self._smooth(look, gradient)
        return self._kinked(look, gradient)

    def _smooth(self, look: Look, gradient: Array) -> Proposal:
        """Nothing is cut below: a plain Newton step. Near the end the gap is measured where the step leads."""
        objective, little = self.objective, self.tol * look.value
        if self.certify and float(objective.gap_left(gradient[None, None])[0]) <= little:
            gap = look.value - lower_bound(objective, look.z, look.q)
            if gap <= little:
                return Proposal(gradient, 0.0, None, gap)
        step = -Metric(self.sample.hessian(objective, look)).solve(gradient)
        gain = -0.5 * float(step @ gradient)
        if gain > 0.5 * little or not self.certify:
            return Proposal(step, gain)
        z = objective.design.scores((look.W + step)[None, :])[0]
        return Proposal(step, gain, z, look.value - lower_bound(objective, z, look.q))

    def _kinked(self, look: Look, gradient: Array) -> Proposal:
        """Rows near the lower cut are free to change sides; where they end tells the weights for the gap."""
        objective, little = self.objective, self.tol * look.value
        band = _near_cut(objective, look, self.sample, self.width)
        rest = gradient - band.weights @ band.A
        enough = 1e-3 * max(little, 0.0 if self.near else min(self.last_gain, look.value))
        solved = _solve(band, rest, self.sample.hessian(objective, look), enough)
        gain = float(band.weights @ band.values) - solved.value
        if gain > 0.3 * little or not self.certify:
            return Proposal(solved.step, gain)
        z = objective.design.scores((look.W + solved.step)[None, :])[0]
        q = look.q.astype(np.float64)
        q[band.rows] = solved.weights * objective.kept
        return Proposal(solved.step, gain, z, look.value - lower_bound(objective, z, q))


def _near_cut(objective: Objective, look: Look, sample: Sampled, width: int) -> Band:
    """About `width` rows, those whose losses are nearest the lower cut, and all that tie with it."""
    distance = np.abs(look.s[sample.rows] - look.lam)
    place = min(len(distance) - 1, int(np.ceil(width * sample.share)))
    reach = float(np.partition(distance, place)[place])
    rows = np.flatnonzero(np.abs(look.s - look.lam) <= reach)
    caps = objective.caps_at(look.s, rows)
    rows, caps = rows[caps > 0], caps[caps > 0]
    A = rows_of(objective.design, rows) * look.u[rows].astype(np.float64)[:, None]
    weights = look.q[rows].astype(np.float64) / objective.kept
    return Band(rows, A, look.s[rows].astype(np.float64), caps / objective.kept, weights)


def _solve(band: Band, rest: Array, hessian: Array, enough: float) -> BandStep:
    return solve_band(rest, hessian, band.A, band.values, band.caps, float(band.weights.sum()), enough)


def _search(objective: Objective, look: Look, proposal: Proposal) -> Look | None:
    """The first of the lengths 1, 1/2, 1/4... of the step at which F is low enough."""
    end = proposal.scores
    if end is None:
        end = objective.design.scores((look.W + proposal.step)[None, :])[0]
    length = 1.0
    for _ in range(12):
        z = end if length == 1.0 else look.z + length * (end - look.z)
        trial = look_at(objective, look.W + length * proposal.step, z)
        if trial.value <= look.value - 1e-3 * length * proposal.gain and trial.value < look.value:
            return trial
        length *= 0.5
    return None


@dataclass(frozen=True, eq=False)
class Look:
    """One pass over the rows at W (p,): scores, losses, slopes, the weights of F, its cuts and its value."""

    W: Array
    z: Array
    s: Array
    u: Array
    q: Array
    lam: float
    value: float

    @cached_property
    def is_cut(self) -> Array:
        return (self.q <= 0) & (self.s > self.lam)


def look_at(objective: Objective, W: Array, z: Array | None = None) -> Look:
    z = objective.design.scores(W[None, :])[0] if z is None else z
    s, u = objective.loss.value_and_derivative(objective.y, z)
    chosen = objective.select(s)
    value = chosen.total / objective.kept + objective.penalty(W[None, :])
    return Look(W, z, s, u, chosen.weights, float(chosen.lam), value)


def rows_of(design: Design, rows: Array) -> Array:
    """Some rows with the one of the intercept, dense and in float64."""
    X = design.X[rows]
    out = np.ones((len(rows), design.p))
    out[:, : design.d] = X.toarray() if design.sparse else X
    return out


class Sampled:
    """Some rows, whose Hessian stands for that of all."""

    def __init__(self, objective: Objective, size: int, rng: np.random.Generator) -> None:
        n = objective.design.n
        self.rows = np.arange(n) if size >= n else np.sort(rng.choice(n, size, replace=False, shuffle=False))
        self.share = len(self.rows) / n
        self.design = objective.design if size >= n else objective.design.take(self.rows)
        self.y = objective.y[self.rows]

    def hessian(self, objective: Objective, look: Look) -> Array:
        """The Hessian with the same rows cut."""
        q = look.q[self.rows].astype(np.float64)
        h = q * objective.loss.curvature(self.y, look.z[self.rows])
        matrix = self.design.gram(h) / max(float(q.sum()), 1e-300)
        matrix[np.diag_indices_from(matrix)] += objective.penalty_diagonal()
        if objective.design.fit_intercept:
            matrix[-1, -1] += 1e-9
        return matrix


def lower_bound(objective: Objective, z: Array, q: Array) -> float:
    """A bound on the least value with the same rows cut: each loss is at least its tangent at the scores z.

    q are feasible weights. The slopes must add up to zero, because the intercept is free; the heavier side is scaled
    down, which keeps each tangent below its loss because losses are not negative.
    """
    design = objective.design
    offsets, flows = np.zeros(2), np.zeros((2, design.p))
    for start in range(0, design.n, _BLOCK):
        block = slice(start, start + _BLOCK)
        s, u = objective.loss.value_and_derivative(objective.y[block], z[block])
        s, u, weight = (a.astype(np.float64, copy=False) for a in (s, u, q[block]))
        above = weight * (s - u * z[block])
        rising = u > 0
        total = float(above.sum())
        offsets += np.array([total, 0.0]) + float(above @ rising) * np.array([-1.0, 1.0])
        pull = weight * u
        sides = np.stack([pull * ~rising, pull * rising])
        flows += Design(design.X[block], design.fit_intercept).adjoint(sides)
    keep = np.ones(2)
    if design.fit_intercept:
        size = np.abs(flows[:, -1])
        keep = np.divide(size.min(), size, out=np.zeros(2), where=size > 0)
    v = (keep @ flows)[: design.d] / objective.kept
    return float(keep @ offsets) / objective.kept - 0.5 * objective.C * float(v @ v)


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
    """The small problem near the lower cut: a quadratic plus the sum of the K largest of a few lines.

        minimise over d   g . d + d' H d / 2 + max over 0 <= q <= caps, sum q = K of q . (values + A d)

    The maximum equals the least of K t + caps . xi over t and xi >= 0, xi >= values + A d - t, so this is a quadratic
    program with one constraint pair per line, for interior points: predictor and corrector steps (Mehrotra), each a
    p x p factorisation, until the products of slacks and multipliers add up to at most `enough`. The multipliers are
    the weights q, the share of each row near the cut: what a certificate needs.
    """
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
    for _ in range(_BAND_STEPS):
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
