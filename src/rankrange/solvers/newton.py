"""Newton steps on F itself: the rows near the lower cut are kept exactly, all others enter by gradient and Hessian.

At W the m largest losses are cut, which bounds F from above and touches it, so that cutting anew in each step can only
help. Of the rest most rows are surely above or below the lower cut; they contribute their gradient and the Hessian of
a sample of rows. Those near the cut contribute their tangents and stay free to change sides: a small problem
(`band.py`) whose multipliers are weights for the certificate. One step is one pass over X, forth and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ..objective import Design, Objective
from .band import solve_band
from .base import Log, Result, relative
from .descent import Metric
from .monotone import cut_is_clean, finish

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Look:
    """One pass over the rows at W."""

    W: Array  # (p,)
    z: Array
    s: Array
    u: Array  # slopes
    q: Array  # the weights of F: they add up to k - m
    lam: float
    lam_hat: Any  # a number, or one per class where each class has a cut of its own
    value: float


@dataclass(frozen=True, eq=False)
class Band:
    """The rows near the lower cut; their tangents are `values` + `A` d, in units of F."""

    rows: Array
    A: Array
    values: Array
    caps: Array
    K: float


class Sampled:
    """Some rows, whose Hessian and spread of losses stand for those of all."""

    def __init__(self, objective: Objective, size: int, rng: np.random.Generator) -> None:
        n = objective.design.n
        self.rows = np.arange(n) if size >= n else np.sort(rng.choice(n, size, replace=False))
        self.share = len(self.rows) / n
        self.design = objective.design if size >= n else objective.design.take(self.rows)
        self.y = objective.y[self.rows]

    def hessian(self, objective: Objective, look: Look) -> Array:
        q = look.q[self.rows].astype(np.float64)
        h = q * objective.loss.curvature(self.y, look.z[self.rows])
        matrix = self.design.gram(h) / max(float(q.sum()), 1e-300)
        matrix[np.diag_indices_from(matrix)] += objective.penalty_diagonal()
        if objective.design.fit_intercept:
            matrix[-1, -1] += 1e-9
        return matrix


    def crossing(self, objective: Objective, look: Look, hessian: Array) -> Array:
        """The Hessian less what the rows that change sides at the upper cut take off it: near there F bends down.

        Their number is the density of the losses at the cut, seen in a window around it. What would leave less than a
        tenth of the curvature in some direction is taken off in part.
        """
        s = look.s[self.rows].astype(np.float64)
        order = np.abs(s - look.lam_hat)
        size = min(len(s) // 4, max(len(s) // 16, 2 * objective.design.p))
        reach = float(np.partition(order, size)[size])
        near = np.flatnonzero(order <= reach)
        if reach <= 0 or len(near) > 2 * size:
            return hessian
        X = self.design.X[near]
        A = np.ones((len(near), objective.design.p))
        A[:, : objective.design.d] = X.toarray() if objective.design.sparse else X
        A *= look.u[self.rows[near]][:, None]
        A -= A.mean(axis=0)
        kept = float(look.q[self.rows].sum(dtype=np.float64))
        taken = A.T @ A / (2.0 * reach * kept)
        values, basis = scipy.linalg.eigh(taken, hessian)
        lost = np.minimum(values, 0.9)
        back = hessian @ basis
        return hessian - (back * lost) @ back.T


def newton(
    objective: Objective,
    W: Array,
    *,
    rng: np.random.Generator,
    tol: float = 1e-6,
    max_iter: int = 30,
    log: Log | None = None,
    phase: str = "newton",
) -> Result:
    """Step until the certificate is at most tol, or no step lowers F; for losses of one score with a curvature."""
    log = Log() if log is None else log
    sample = Sampled(objective, hessian_rows(objective), rng)
    look = look_at(objective, W[0])
    log(phase, look.value)
    width, certificate = 10 * objective.design.p, np.inf
    switched = objective.m
    for n_iter in range(max_iter):
        gradient = objective.design.adjoint((look.u * look.q)[None, :])[0] / objective.kept
        gradient += objective.penalty_gradient(look.W[None, :])[0]
        hessian = sample.hessian(objective, look)
        if objective.m > 0 and switched > 2:
            hessian = sample.crossing(objective, look, hessian)
        if objective.k >= objective.total:
            step = -Metric(hessian).solve(gradient)
            gain = -0.5 * float(step @ gradient)
            q = look.q
            if 0.5 * objective.C * float(gradient[: objective.design.d] @ gradient[: objective.design.d]) <= tol * look.value:
                certificate = bound_gap(objective, look, q)
        else:
            band = near_cut(objective, look, sample, width)
            inside = look.q[band.rows] / objective.kept
            rest = gradient - inside @ band.A
            solved = solve_band(rest, hessian, band.A, band.values, band.caps, band.K, 1e-3 * tol * look.value)
            step = solved.step
            gain = float(inside @ band.values) - solved.value
            if gain <= tol * look.value:
                weak = np.diag(objective.penalty_diagonal())
                dual = solve_band(rest, weak, band.A, band.values, band.caps, band.K, 1e-3 * tol * look.value)
                q = look.q.astype(np.float64)
                q[band.rows] = dual.weights * objective.kept
                certificate = bound_gap(objective, look, q)
        if relative(certificate, look.value) <= tol:
            break
        taken = search(objective, look, step, gain)
        if taken is None:
            break
        moved = int(np.count_nonzero((taken.q > 0) != (look.q > 0)))
        width = max(10 * objective.design.p, 2 * moved)
        switched = int(np.count_nonzero((taken.s > taken.lam_hat) != (look.s > look.lam_hat)))
        look = taken
        log(phase, look.value)
    certificate = relative(certificate, look.value) if objective.m == 0 or cut_is_clean(objective, look.s) else np.inf
    return finish(look.W[None, :], look.value, n_iter, certificate, tol, max_iter, log, losses=look.s)


def hessian_rows(objective: Objective) -> int:
    n, p = objective.design.n, objective.design.p
    return min(n, max(40 * p, n // 5, 2000))


def look_at(objective: Objective, W: Array, z: Array | None = None) -> Look:
    z = objective.design.scores(W[None, :])[0] if z is None else z
    s, u = objective.loss.value_and_derivative(objective.y, z)
    chosen = objective.select(s)
    value = chosen.total / objective.kept + objective.penalty(W[None, :])
    return Look(W, z, s, u, chosen.weights, float(chosen.lam), chosen.lam_hat, value)


def near_cut(objective: Objective, look: Look, sample: Sampled, width: int) -> Band:
    """About `width` rows, those whose losses are nearest the lower cut, and all that tie with it."""
    distance = np.abs(look.s[sample.rows] - look.lam)
    place = min(len(distance) - 1, int(np.ceil(width * sample.share)))
    reach = max(float(np.partition(distance, place)[place]), 0.0)
    rows = np.flatnonzero(np.abs(look.s - look.lam) <= reach)
    caps = objective.caps_at(look.s, rows)
    rows, caps = rows[caps > 0], caps[caps > 0]
    X = objective.design.X[rows]
    A = np.ones((len(rows), objective.design.p))
    A[:, : objective.design.d] = X.toarray() if objective.design.sparse else X
    A *= look.u[rows][:, None]
    caps = caps / objective.kept
    return Band(rows, A, look.s[rows].astype(np.float64), caps, float(look.q[rows].sum(dtype=np.float64)) / objective.kept)


def search(objective: Objective, look: Look, step: Array, gain: float) -> Look | None:
    """The first of the steps 1, 1/2, 1/4... that lowers F enough."""
    end = objective.design.scores((look.W + step)[None, :])[0]
    length = 1.0
    for _ in range(12):
        z = end if length == 1.0 else look.z + length * (end - look.z)
        trial = look_at(objective, look.W + length * step, z)
        if trial.value <= look.value - 1e-3 * length * gain:
            return trial
        length *= 0.5
    return None


def bound_gap(objective: Objective, look: Look, q: Array) -> float:
    """F less a lower bound on the least value with the same rows cut: every loss is at least its tangent.

    The slopes must add up to zero, because the intercept is free; the heavier side is scaled down, which keeps each
    tangent below its loss because losses are not negative.
    """
    d, K = objective.design.d, objective.kept
    pulls = np.stack([np.maximum(look.u, 0), np.minimum(look.u, 0)]) * q
    offsets = [float(q[side] @ look.s[side]) - float(pull[side] @ look.z[side]) for pull, side in zip(pulls, (look.u > 0, look.u <= 0))]
    flows = objective.design.adjoint(pulls) / K
    keep = np.ones(2)
    if objective.design.fit_intercept:
        size = np.abs(flows[:, -1])
        keep = np.divide(size.min(), size, out=np.zeros(2), where=size > 0)
    v = (keep @ flows)[:d]
    return look.value - (float(keep @ offsets) / K - 0.5 * objective.C * float(v @ v))
