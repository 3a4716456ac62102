"""TKML and TKML-AoRR of a linear model: a ranked range over labels, within a ranked range over rows.

`LabelObjective` is the objective of `core.objective` with the TKML loss, evaluated in blocks of rows. A loss depends
locally on the scores of two labels, so its gradient is stored as two labels per row and is much cheaper than the
scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import scipy.sparse as sp
from sklearn import get_config

from ..core.arrays import Array
from ..core.cuts import cuts_of
from ..core.losses import TKML
from ..core.objective import Objective, Point
from .blocks import Block, Blocks
from .descent import Log, Metric, Result, descend, relative
from .inner import separation
from .inner.separation import Pairs, Separation
from .per_label import logistic_per_label

Watch = Callable[[Array], None]
# Up to this many labels, a dense product with the slopes is faster than a sparse one.
_DENSE_LABELS = 64
# With more labels per rank than this, one pass per rank is faster than a partition.
_PARTITION_UP_TO = 6
# The largest number of Newton steps on one bound: F decreases even if the bound is not fully minimised.
_NEWTON_STEPS = 100


@dataclass(frozen=True, eq=False)
class LabelObjective(Objective):
    """F(W) = (sum of the TKML losses ranked m+1..k) / (k - m) + ||coef||^2 / (2 C); y is bool (n, L) or sparse."""

    @cached_property
    def blocks(self) -> Blocks:
        return Blocks(self.design, self.y)

    def rows(self, rows: Array, m: float, k: float) -> LabelObjective:
        return cast(LabelObjective, super().rows(rows, m, k))

    def losses_of(self, W: Array) -> Array:
        return self.moving_labels(W)[0]

    def value(self, W: Array) -> float:
        return self.value_at(W, self.losses_of(W))

    def at(self, W: Array) -> Point:
        """The objective at W with its gradient, but without the scores, which may not fit into memory."""
        s, down, up = self.moving_labels(W)
        chosen = self.select(s)
        gradient = self.pull(down, up, np.where(s > 0, chosen.weights / self.kept, 0.0)) + self.penalty_gradient(W)
        return Point(chosen.total / self.kept + self.penalty(W), gradient, np.empty(0), s, chosen.weights)

    def moving_labels(self, W: Array) -> tuple[Array, Array, Array]:
        """The losses, and for each row the label to push down and the label to pull up, (n,) each."""
        parts = [_moving_labels(block, block.scores(W), self.loss) for block in self.blocks]
        if len(parts) == 1:
            return parts[0]
        s, down, up = (np.concatenate(each) for each in zip(*parts, strict=True))
        return s, down, up

    def pull(self, down: Array, up: Array, weights: Array) -> Array:
        """The gradient (L, p) of the weighted losses: sum_i weights_i (e_down - e_up) x_i', with unit vectors e."""
        n, n_labels = self.design.n, self.n_outputs
        if n_labels <= _DENSE_LABELS:
            slope = np.zeros((n, n_labels))
            slope[np.arange(n), down] = weights
            slope[np.arange(n), up] -= weights
            return self.design.adjoint(slope.T)
        rows = np.tile(np.arange(n), 2)
        entries = (np.concatenate([weights, -weights]), (np.concatenate([down, up]), rows))
        slope = sp.csr_array(entries, shape=(n_labels, n))
        out = np.empty((n_labels, self.design.p))
        pulled = slope @ self.design.X
        out[:, : self.design.d] = pulled.toarray() if sp.issparse(pulled) else pulled
        if self.design.fit_intercept:
            out[:, -1] = slope.sum(axis=1)
        return out


def _moving_labels(block: Block, Z: Array, loss: TKML) -> tuple[Array, Array, Array]:
    """`LabelObjective.moving_labels` of one block with scores Z (rows, L), computed by selection.

    A row without a pair of labels to rank has loss 0 and arbitrary labels.
    """
    n, n_labels = Z.shape
    k, true, rows = loss.top_k, block.true, np.arange(n)
    exceeds_k = block.n_true > k if loss.two_sided else np.zeros(n, dtype=bool)
    down, up = np.empty(n, dtype=np.intp), np.empty(n, dtype=np.intp)
    few, many = np.flatnonzero(~exceeds_k), np.flatnonzero(exceeds_k)
    if len(few):
        part, mask = (Z, true) if not len(many) else (Z[few], true[few])
        down[few] = _label_at(part, k + 1)
        up[few] = np.where(mask, part, np.inf).argmin(axis=1)
    if len(many):
        part, mask = Z[many], true[many]
        down[many] = np.where(mask, -np.inf, part).argmax(axis=1)
        up[many] = _label_at(np.where(mask, part, -np.inf), k)
    s = np.maximum(1 + (Z[rows, down] - Z[rows, up]), 0)
    s[(block.n_true == 0) | (exceeds_k & (block.n_true == n_labels))] = 0  # no pair to rank
    return s, down, up


def _label_at(Z: Array, rank: int) -> Array:
    """The label of the `rank`-th largest score of each row."""
    n, n_labels = Z.shape
    if rank > 1 and n_labels <= _PARTITION_UP_TO * rank:
        return np.argpartition(Z, n_labels - rank, axis=1)[:, n_labels - rank]
    rows, left = np.arange(n), Z if rank == 1 else Z.copy()
    for _ in range(rank - 1):
        left[rows, left.argmax(axis=1)] = -np.inf
    return left.argmax(axis=1)


def quasi_newton(
    objective: LabelObjective,
    W: Array,
    *,
    tol: float = 1e-3,
    max_iter: int = 200,
    log: Log | None = None,
    watch: Watch | None = None,
) -> Result:
    """L-BFGS on F itself until a step gains less than tol/100 of it; every step lowers F. `watch` gets each new W.

    The result is converged unless `max_iter` steps were made, and has no certificate.
    """
    log = Log() if log is None else log
    trail = _Trail(objective, log, watch)
    log("start", objective.value(W))
    ends, values, n_iter = descend(
        trail.batch, W[None], _mild_metric(objective), max_iter=max_iter, tol=0.01 * tol, on_step=trail.on_step
    )
    done = n_iter < max_iter
    message = "steps gain little" if done else f"stopped after {n_iter} of {max_iter} iterations"
    return Result(ends[0], float(values[0]), n_iter, done, message, log.history)


class _Trail:
    """Record of the accepted points of a line search. The accepted point is always the last one that was evaluated."""

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


def descend_and_polish(
    objective: LabelObjective,
    W: Array,
    *,
    tol: float = 1e-3,
    max_iter: int = 200,
    log: Log | None = None,
    watch: Watch | None = None,
) -> Result:
    """Quasi-Newton steps from W and from other fits; the best end is continued by `by_separation` if pairs are few.

    The other fits are logistic regressions of each label, with C / 10, with 10 C and, if rows are dropped, with C
    without the rows dropped at W. The history has the run from W, then the best other run if it is lower, then
    `by_separation`. `watch` gets no points of the other runs.
    """
    log = Log() if log is None else log
    result = quasi_newton(objective, W, tol=tol, max_iter=max_iter, log=log, watch=watch)
    for other in _other_starts(objective, W):
        run = quasi_newton(objective, other, tol=tol, max_iter=max_iter)
        result = run if run.value < result.value else result
    if result.history is not log.history:
        log.history.extend(("other " + phase, value) for phase, value in result.history)
    if not _pairs_are_few(objective):
        return replace(result, history=log.history)
    polished = by_separation(objective, result.w, tol=tol, log=log, watch=watch, phase="polish")
    return replace(polished, n_iter=polished.n_iter + result.n_iter)


def _mild_metric(objective: LabelObjective) -> Metric | None:
    """A metric: the curvature of the penalty plus 0.02 X'X / n, because piecewise linear losses have no curvature.

    None if there are more than 1500 columns.
    """
    if objective.design.p > 1500:
        return None
    mass = np.ones(objective.design.n) if objective.sample_weight is None else objective.sample_weight
    return Metric(0.02 * objective.design.gram(mass / mass.sum()) + np.diag(objective.penalty_diagonal() + 1e-12))


def _other_starts(objective: LabelObjective, W: Array) -> list[Array]:
    masses = [(0.1, objective.sample_weight), (10.0, objective.sample_weight)]
    if objective.m > 0:
        masses.append((1.0, objective.cutting(objective.losses_of(W)).caps))
    return [
        logistic_per_label(objective.design, objective.blocks, factor * objective.C, mass)[0] for factor, mass in masses
    ]


def _n_pairs(objective: LabelObjective) -> int:
    """The largest possible number of label pairs in the exact problem."""
    k, n_labels = objective.loss.top_k, objective.n_outputs
    most = int(np.asarray(objective.y.sum(axis=1)).max())
    return objective.design.n * (n_labels - 1) * (min(k, most) if objective.loss.two_sided else most)


def _pairs_are_few(objective: LabelObjective) -> bool:
    """Whether an exact solve takes seconds, not minutes: few label pairs, and at most 5,000 parameters.

    The limit of the pairs is lower for the paper's loss: rows with more than k true labels have a loss of at least 1,
    so all their pairs stay active.
    """
    return (
        _n_pairs(objective) <= (160_000 if objective.loss.two_sided else 40_000)
        and objective.n_outputs * objective.design.p <= 5_000
    )


def separating_sets(true: Array, Z: Array, loss: TKML) -> tuple[Array, Array]:
    """Sets of labels to push down and to pull up, bool (n, L) each, that define a convex upper bound of each loss.

    [1 + largest score in `down` - smallest score in `up`]_+ is an upper bound of the TKML loss and equals it at Z. This
    holds because the (k+1)-th largest score is the minimum, over sets of k labels, of the largest score outside the
    set, and the k-th largest true score is the maximum, over sets of k true labels, of the smallest score in the set.
    Rows whose loss is always 0 have empty sets. Of tied labels, true ones rank higher.
    """
    n_true = true.sum(axis=1, keepdims=True)
    exceeds_k = (n_true > loss.top_k) if loss.two_sided else np.zeros_like(n_true, dtype=bool)
    ahead = _ranks(Z, true)
    best_true = _ranks(np.where(true, Z, -np.inf), true)
    down = np.where(exceeds_k, ~true, ahead >= loss.top_k)
    up = np.where(exceeds_k, true & (best_true < loss.top_k), true)
    idle = (n_true == 0) | (exceeds_k & (n_true == true.shape[1]))
    return down & ~idle, up & ~idle


def _ranks(Z: Array, true: Array) -> Array:
    """The rank of each label in its row, 0 for the highest score; of tied labels, true ones rank higher."""
    order = np.lexsort((~true, -Z), axis=1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(Z.shape[1])[None, :], axis=1)
    return ranks


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
    """Majorise and minimise: fix the compared labels and the dropped rows, solve this convex problem, and repeat.

    Each convex problem is an upper bound that equals F at W, so no step increases F (docs/paper.md). Inner problems are
    solved roughly at first, and the last one to `tol`. That gap is the certificate if there are no ties.

    Parameters
    ----------
    objective : LabelObjective
        The objective to minimise.
    W : ndarray of shape (outputs, p)
        The initial coefficients.
    tol : float
        The relative duality gap at which to stop.
    max_iter : int
        Maximum number of steps.
    log : Log, optional
        Receives progress messages.
    watch : callable, optional
        Called with the coefficients after each step that lowers the objective.
    phase : str
        The name of these steps in the history.

    Returns
    -------
    Result
        The final point and its certificate.

    Raises
    ------
    ValueError
        If the label pairs need more memory than scikit-learn's `working_memory`.
    """
    log = Log() if log is None else log
    needed, budget = 6 * 8 * _n_pairs(objective) / 2**20, float(get_config()["working_memory"])
    if needed > budget:
        raise ValueError(
            f"exact steps on {objective.design.n} rows with {objective.n_outputs} labels need about {needed:.0f} MiB, "
            f"more than the working memory of {budget:.0f} MiB; use solver='auto' or raise it with sklearn.set_config"
        )
    value = objective.value(W)
    log(phase, value)
    n_iter, inner_tol, certificate, settled = 0, max(tol, 1e-2), np.inf, False
    marginals = None
    while n_iter < max_iter and not settled:
        problem, clean = _separation(objective, W)
        solution = separation.solve(problem, W, tol=inner_tol, max_iter=_NEWTON_STEPS, marginals=marginals)
        marginals = solution.marginals
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
    """The convex problem of `by_separation` at W, and whether its label sets and dropped rows are unique (no ties)."""
    (block,) = Blocks(objective.design, objective.y, whole=True)
    Z = block.scores(W).astype(np.float64, copy=False)
    down, up = separating_sets(block.true, Z, objective.loss)
    s = objective.loss.value(block.true, Z)
    caps = objective.cutting(s).caps
    caps = np.ones(len(s)) if caps is None else caps
    problem = Separation(objective, Pairs(down, up), objective.kept, caps)
    return problem, _is_clean(objective, s, caps, Z, down, up, block.true)


def _is_clean(objective: LabelObjective, s: Array, caps: Array, Z: Array, down: Array, up: Array, true: Array) -> bool:
    """Whether the label sets `down` and `up` and the dropped rows stay the same near W.

    They do if no rows tie at the upper cut and, in kept rows with a positive loss, no label in a set ties with one left
    out of it.
    """
    if objective.m > 0:
        upper, _ = cuts_of(s, 0, objective.m, objective.sample_weight)
        if upper.taken < upper.tied and np.count_nonzero(s == upper.value) > 1:
            return False
    high = np.where(down, Z, -np.inf).max(axis=1)
    low = np.where(up, Z, np.inf).min(axis=1)
    active = (caps > 0) & (1 + high - low > -1e-9)  # the loss of other rows is 0 near W, for any sets
    outside = np.where(down, np.inf, Z).min(axis=1)  # rows with at most k true labels: the k highest labels
    # rows with more than k true labels: true labels below the k best
    left = np.where(true & ~up, Z, -np.inf).max(axis=1)
    exceeds_k = (true & ~up).any(axis=1)
    return bool((np.where(exceeds_k, low > left, outside > high) | ~active).all())
