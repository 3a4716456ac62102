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

from ..objective import Objective, Point
from .base import Log, Result
from .blocks import Block, Blocks
from .descent import Metric, descend

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
