"""Passes over the rows for the Newton steps: values and slopes at W, a sample that stands for all, a lower bound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.arrays import Array
from ..core.objective import Design, Objective

_BLOCK = 1 << 15


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
