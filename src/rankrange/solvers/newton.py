"""Newton steps on F itself, for losses of one score that have a curvature: some five to ten passes over X for a fit.

At W the m largest losses are cut. That bounds F from above and touches it, so that cutting anew in each step can only
help. Of the rest most rows are surely above or below the lower cut; they enter by their gradient and by the Hessian of
a sample of the rows. Those near the lower cut enter by their tangents and stay free to change sides: a small problem
(`band.py`), whose multipliers are weights for the certificate. One step is one pass over X, forth and back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from .descent import Metric
from .inner.band import BandStep, solve_band
from .majorise import cut_is_clean, finish
from .passes import Look, Sampled, look_at, lower_bound, rows_of
from .result import Log, Result, relative


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
