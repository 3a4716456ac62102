"""TKML and TKML-AoRR of a linear model: one score a label, a ranked range over the labels inside one over the rows.

`LabelObjective` is the objective of `rankrange.objective` with the TKML loss, evaluated in blocks of rows. A loss has a
slope at two labels a row (more where scores tie), so slopes are kept sparse and a gradient costs far less than the
scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..losses import TKML
from ..objective import Objective, Point
from ..select import cuts_of
from . import separation
from .base import Log, Result, relative
from .blocks import Block, Blocks
from .descent import Metric, descend
from .separation import Pairs, Separation

Array = NDArray[Any]
Watch = Callable[[Array], None]
# Up to this many labels a dense product with the slopes is quicker than a sparse one.
_DENSE_LABELS = 64


@dataclass(frozen=True, eq=False)
class LabelObjective(Objective):
    """F(W) = (sum of the TKML losses ranked m+1..k) / (k - m) + ||coef||^2 / (2 C); y is bool (n, L) or sparse."""

    @cached_property
    def blocks(self) -> Blocks:
        return Blocks(self.design, self.y)

    def rows(self, rows: Array, m: float, k: float) -> LabelObjective:
        return cast(LabelObjective, super().rows(rows, m, k))

    def losses_of(self, W: Array) -> Array:
        return np.concatenate([self.loss.value(block.true, block.scores(W)) for block in self.blocks])

    def value(self, W: Array) -> float:
        return self.value_at(W, self.losses_of(W))

    def at(self, W: Array) -> Point:
        """Scores are not kept: they may not fit."""
        parts = [self._block(block, W) for block in self.blocks]
        s = np.concatenate([part[0] for part in parts])
        chosen = self.select(s)
        weights = chosen.weights / self.kept
        gradient = self._pull(parts[0][1] if len(parts) == 1 else sp.vstack([part[1] for part in parts]), weights)
        value = chosen.total / self.kept + self.penalty(W)
        return Point(value, gradient + self.penalty_gradient(W), np.empty(0), s, chosen.weights)

    def _block(self, block: Block, W: Array) -> tuple[Array, Any]:
        s, slope = self.loss.value_and_derivative(block.true, block.scores(W))
        return s, slope if self.n_outputs <= _DENSE_LABELS and block.design is self.design else sp.csr_array(slope)

    def _pull(self, slope: Any, weights: Array) -> Array:
        """sum_i weights_i slope_i x_i', (L, p)."""
        if not sp.issparse(slope):
            slope *= weights[:, None]
            return self.design.adjoint(slope.T)
        weighted = slope.multiply(weights[:, None]).tocsr()
        out = np.empty((self.n_outputs, self.design.p))
        pulled = weighted.T @ self.design.X
        out[:, : self.design.d] = pulled.toarray() if sp.issparse(pulled) else pulled
        if self.design.fit_intercept:
            out[:, -1] = weighted.sum(axis=0)
        return out


def quasi_newton(
    objective: LabelObjective,
    W: Array,
    *,
    metric: Metric | None = None,
    tol: float = 1e-6,
    max_iter: int = 200,
    log: Log | None = None,
    watch: Watch | None = None,
) -> Result:
    """L-BFGS on F itself; every step lowers it. `watch` sees each new W."""
    log = Log() if log is None else log
    trail = _Trail(objective, log, watch)
    log("start", objective.value(W))
    ends, values, n_iter = descend(trail.batch, W[None], metric, max_iter=max_iter, tol=tol, on_step=trail.on_step)
    done = n_iter < max_iter
    message = "no step gains more than tol" if done else f"stopped after {n_iter} of {max_iter} iterations"
    return Result(ends[0], float(values[0]), n_iter, done, message, log.history)


class _Trail:
    """Tells accepted points from trial points: the accepted one is the last that was evaluated."""

    def __init__(self, objective: LabelObjective, log: Log, watch: Watch | None) -> None:
        self.objective, self.log, self.watch = objective, log, watch
        self.last: tuple[float, Array] | None = None

    def batch(self, Ws: Array) -> tuple[Array, Array]:
        value, gradient = self.objective.value_and_gradient(Ws[0])
        self.last = (value, Ws[0])
        return np.array([value]), gradient[None]

    def on_step(self, value: float) -> None:
        self.log("descent", value)
        if self.watch is not None and self.last is not None and self.last[0] == value:
            self.watch(self.last[1])


def separating_sets(true: Array, Z: Array, loss: TKML) -> tuple[Array, Array]:
    """Labels to push down and to pull up, bool (n, L) each, that give every row a convex loss above its own.

    [1 + max over `down` - min over `up`]_+ lies above the TKML loss for all scores and equals it at Z: the (k+1)-th
    largest score is the least, over sets of k labels, of the largest score outside the set, and the k-th largest true
    score the greatest, over k true labels, of the least score among them. Rows that cost nothing whatever the scores
    have empty sets. Of tied labels true ones count as higher.
    """
    n_true = true.sum(axis=1, keepdims=True)
    crowded = (n_true > loss.top_k) if loss.two_sided else np.zeros_like(n_true, dtype=bool)
    ahead = _places(Z, true)
    best_true = _places(np.where(true, Z, -np.inf), true)
    down = np.where(crowded, ~true, ahead >= loss.top_k)
    up = np.where(crowded, true & (best_true < loss.top_k), true)
    idle = (n_true == 0) | (crowded & (n_true == true.shape[1]))
    return down & ~idle, up & ~idle


def _places(Z: Array, true: Array) -> Array:
    """The place of each label in its row, 0 the highest."""
    order = np.lexsort((~true, -Z), axis=1)
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(Z.shape[1])[None, :], axis=1)
    return places


def by_separation(
    objective: LabelObjective,
    W: Array,
    *,
    tol: float = 1e-3,
    max_iter: int = 50,
    log: Log | None = None,
    watch: Watch | None = None,
    phase: str = "dca",
) -> Result:
    """Majorise and minimise: fix the labels of each row and the rows that are cut, solve what is left, look again.

    Each bound lies above F and touches it at W, so no step raises F (docs/paper.md). Inner problems are solved to a gap
    that follows the progress, the last one to `tol`; that gap is the certificate where no tie blurs the sets.
    """
    log = Log() if log is None else log
    value = objective.value(W)
    log(phase, value)
    n_iter, inner_tol, certificate, settled = 0, max(tol, 1e-2), np.inf, False
    while n_iter < max_iter and not settled:
        problem, clean = _separation(objective, W)
        solution = separation.solve(problem, W, tol=inner_tol)
        n_iter += 1
        reached = objective.value(solution.W)
        gained = relative(value - reached, value)
        if reached < value:
            W, value = solution.W, reached
            log(phase, value)
            if watch is not None:
                watch(W)
        certificate = solution.gap if clean and gained <= 0.1 * tol else np.inf
        settled = gained <= 0.1 * tol and (inner_tol <= tol or solution.gap <= tol)
        inner_tol = max(tol, min(0.3 * inner_tol, gained))
    message = "no step lowers the objective" if settled else f"stopped after {n_iter} of {max_iter} rounds"
    return Result(W, value, n_iter, settled, message, log.history, certificate)


def _separation(objective: LabelObjective, W: Array) -> tuple[Separation, bool]:
    """The bound at W, and whether no tie blurs its sets there."""
    (block,) = Blocks(objective.design, objective.y, whole=True)
    Z = block.scores(W).astype(np.float64, copy=False)
    down, up = separating_sets(block.true, Z, objective.loss)
    s = objective.loss.value(block.true, Z)
    caps = objective.cutting(s).caps
    caps = np.ones(len(s)) if caps is None else caps
    problem = Separation(objective, Pairs(down, up), objective.kept, caps)
    return problem, _is_clean(objective, s, caps, Z, down, up, block.true)


def _is_clean(objective: LabelObjective, s: Array, caps: Array, Z: Array, down: Array, up: Array, true: Array) -> bool:
    """Whether the same labels and rows stay fixed near W: no tie between a label in a set and one left out of it."""
    if objective.m > 0:
        upper, _ = cuts_of(s, 0, objective.m, objective.sample_weight)
        if upper.taken < upper.tied and np.count_nonzero(s == upper.value) > 1:
            return False
    active = (caps > 0) & (s > 0) & up.any(axis=1)
    high = np.where(down, Z, -np.inf).max(axis=1)
    low = np.where(up, Z, np.inf).min(axis=1)
    outside = np.where(down, np.inf, Z).min(axis=1)  # rows that are not crowded: the labels kept on top
    left = np.where(true & ~up, Z, -np.inf).max(axis=1)  # crowded rows: true labels below the k best
    crowded = (true & ~up).any(axis=1)
    return bool((np.where(crowded, low > left, outside > high) | ~active).all())
