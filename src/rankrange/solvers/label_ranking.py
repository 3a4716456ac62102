"""TKML and TKML-AoRR of a linear model: a ranked range over labels, within a ranked range over rows.

`LabelObjective` is the objective of `core.objective` with the TKML loss, evaluated in blocks of rows, so that only one
block of the n x L score matrix is in memory at a time. A loss depends locally on the scores of two labels, so its
gradient is stored as two labels per row and is much cheaper than the scores. Labels that nobody looked at are unknown:
their scores count as minus infinity, so they are neither ranked nor counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from sklearn import get_config

from ..core.arrays import Array
from ..core.cuts import cuts_of
from ..core.losses import TKML, Logistic
from ..core.objective import ConvexProblem, Design, Objective, Point
from . import convex
from .descent import Log, Metric, Result, descend, relative
from .label_pairs import LabelPairs

Watch = Callable[[Array], None]
# The number of arrays of a block's size that an evaluation needs at once, at 8 bytes per entry.
_TEMPORARY_ARRAYS = 6
# The largest number of entries of a block: several passes over a block in the cache cost little more than one.
_CACHED = 1 << 20
# The largest number of Newton steps on one bound: F decreases even if the bound is not fully minimised.
_NEWTON_STEPS = 100
# The largest number of majorisation rounds.
_ROUNDS = 50
# Exact steps take seconds, not minutes, up to this many label pairs and parameters. The limit of the pairs is lower for
# the paper's loss: rows with more than k true labels have a loss of at least 1, so all their pairs stay active.
_PAIRS, _PAIRS_OF_PAPER, _PARAMETERS = 160_000, 40_000, 5_000


@dataclass(frozen=True, eq=False)
class Block:
    rows: slice
    design: Design
    true: Array  # bool (rows, L)
    unknown: Array | None  # bool (rows, L); None if all labels are known

    def scores(self, W: Array) -> Array:
        """Scores (rows, L), contiguous along the labels; minus infinity for unknown labels."""
        Z = np.ascontiguousarray(self.design.scores(W).T)
        if self.unknown is not None:
            Z[self.unknown] = -np.inf
        return Z


@dataclass(frozen=True, eq=False)
class Blocks:
    """The rows of a design with their labels in blocks.

    The labels are bool (n, L) or sparse, or int8 (n, L) with -1 for unknown ones. A block fits into the cache and into
    scikit-learn's `working_memory` (in MiB, 1024 by default; set by `sklearn.set_config`), unless one row alone does
    not, or all rows are in one block (`whole`).
    """

    design: Design
    Y: Any
    whole: bool = False  # all rows in one block, regardless of memory
    _kept: list[Block] = field(default_factory=list)  # after the first pass; empty if a sparse Y needs several

    @property
    def n_labels(self) -> int:
        return int(self.Y.shape[1])

    @property
    def length(self) -> int:
        return self.design.n if self.whole else min(self.design.n, rows_that_fit(self.n_labels))

    def __iter__(self) -> Iterator[Block]:
        if self._kept:
            return iter(self._kept)
        if not sp.issparse(self.Y) or self.length >= self.design.n:
            self._kept.extend(self._made())  # views, or the only block
            return iter(self._kept)
        return self._made()

    def _made(self) -> Iterator[Block]:
        for start in range(0, self.design.n, self.length):
            rows = slice(start, min(start + self.length, self.design.n))
            labels = self.Y[rows].toarray() if sp.issparse(self.Y) else self.Y[rows]
            unknown = labels < 0 if labels.dtype == np.int8 else None
            yield Block(rows, Design(self.design.X[rows], self.design.fit_intercept), labels == 1, unknown)


def rows_that_fit(n_labels: int) -> int:
    """The number of rows whose scores (n_labels each) fit into the cache and the working memory; at least 1."""
    memory = float(get_config()["working_memory"]) * 2**20 / (8 * _TEMPORARY_ARRAYS)
    return max(1, int(min(memory, _CACHED) / n_labels))


@dataclass(frozen=True, eq=False)
class LabelObjective(Objective):
    """F(W) = (sum of the TKML losses ranked m+1..k) / (k - m) + ||coef||^2 / (2 C); y as in `Blocks`."""

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
        parts = [self.loss.rivals(block.true, block.scores(W)) for block in self.blocks]
        if len(parts) == 1:
            return parts[0]
        s, down, up = (np.concatenate(each) for each in zip(*parts, strict=True))
        return s, down, up

    def pull(self, down: Array, up: Array, weights: Array) -> Array:
        """The gradient (L, p) of the weighted losses: sum_i weights_i (e_down - e_up) x_i', with unit vectors e."""
        n, n_labels = self.design.n, self.n_outputs
        rows = np.tile(np.arange(n), 2)
        entries = (np.concatenate([weights, -weights]), (np.concatenate([down, up]), rows))
        slope = sp.csr_array(entries, shape=(n_labels, n))
        out = np.empty((n_labels, self.design.p))
        pulled = slope @ self.design.X
        out[:, : self.design.d] = pulled.toarray() if sp.issparse(pulled) else pulled
        if self.design.fit_intercept:
            out[:, -1] = slope.sum(axis=1)
        return out


# ---- one logistic regression per label ------------------------------------------------------------------------------


def logistic_per_label(
    design: Design,
    blocks: Blocks,
    C: float,
    sample_weight: Array | None = None,
    *,
    tol: float = 1e-5,
    max_iter: int = 100,
) -> tuple[Array, float, int]:
    """W (L, p) that minimises the weighted mean over the rows of the sum of the labels' losses + ||coef||^2 / (2 C).

    The sum over the known labels separates into one problem per label, which share each product with X and one metric.
    `blocks` has the labels; `tol` and `max_iter` are those of `descend`.
    Returns also the value and the number of iterations.
    """
    mass = np.full(design.n, 1.0 / design.n) if sample_weight is None else sample_weight / sample_weight.sum()
    ridge = np.full(design.p, 1.0 / C)
    if design.fit_intercept:
        ridge[-1] = 0.0

    def batch(Ws: Array) -> tuple[Array, Array]:
        value, gradient = _value_and_gradient(blocks, Ws[0], mass, ridge)
        return np.array([value]), gradient[None]

    start = np.zeros((blocks.n_labels, design.p))
    if design.fit_intercept:
        start[:, -1] = _prior(blocks, mass)
    metric = _metric(design, mass, 0.25, ridge)  # an upper bound of the Hessian of every label's problem
    ends, values, n_iter = descend(batch, start[None], metric, max_iter=max_iter, tol=tol)
    return ends[0], float(values[0]), n_iter


def _value_and_gradient(blocks: Blocks, W: Array, mass: Array, ridge: Array) -> tuple[float, Array]:
    total, gradient = 0.0, W * ridge
    total += 0.5 * float(np.vdot(gradient, W))
    for block in blocks:
        s, slope = Logistic().value_and_derivative(np.where(block.true, 1.0, -1.0), block.scores(W))
        total += float((mass[block.rows] @ s).sum(dtype=np.float64))
        slope *= mass[block.rows, None]
        gradient += block.design.adjoint(slope.T)
    return total, gradient


def _prior(blocks: Blocks, mass: Array) -> Array:
    """The intercepts that fit the frequencies of the labels; finite even if a label is the same in all rows."""
    true, known = np.zeros(blocks.n_labels), np.zeros(blocks.n_labels)
    for block in blocks:
        weight = mass[block.rows]
        true += weight @ block.true
        known += weight.sum() if block.unknown is None else weight @ ~block.unknown
    share = np.clip(true / np.maximum(known, 1e-300), 1e-3, 1.0 - 1e-3)
    return np.log(share / (1.0 - share))


def _metric(design: Design, mass: Array, curvature: float, diagonal: Array) -> Metric | None:
    """The metric curvature X' diag(mass) X plus a diagonal, for all labels; None for many columns."""
    if not design.factored:
        return None
    return Metric(curvature * design.gram(mass) + np.diag(diagonal))


# ---- descent and majorisation ---------------------------------------------------------------------------------------


def quasi_newton(
    objective: LabelObjective, W: Array, *, tol: float = 1e-3, max_iter: int = 200, watch: Watch | None = None
) -> Result:
    """L-BFGS on F itself until a step gains less than tol/100 of it; every step lowers F. `watch` gets each new W.

    The result is converged unless `max_iter` steps were made, and has no certificate.
    """
    log, last = Log(), W
    log("start", objective.value(W))

    def batch(Ws: Array) -> tuple[Array, Array]:
        nonlocal last
        value, gradient = objective.value_and_gradient(Ws[0])
        last = Ws[0]
        return np.array([value]), gradient[None]

    def on_step(value: float) -> None:
        log("descent", value)
        if watch is not None:
            watch(last)  # the accepted point of a line search is the last one that was evaluated

    mass = objective.mass / objective.total
    # Piecewise linear losses have no curvature; a small one keeps the steps moderate.
    metric = _metric(objective.design, mass, 0.02, objective.penalty_diagonal() + 1e-12)
    ends, values, n_iter = descend(batch, W[None], metric, max_iter=max_iter, tol=0.01 * tol, on_step=on_step)
    done = n_iter < max_iter
    message = "steps gain little" if done else f"stopped after {n_iter} of {max_iter} iterations"
    return Result(ends[0], float(values[0]), n_iter, done, message, log.history)


def minimise(
    objective: LabelObjective,
    W: Array,
    *,
    n_starts: int = 3,
    tol: float = 1e-3,
    max_iter: int = 200,
    rng: np.random.Generator | None = None,
) -> Result:
    """The lowest end of several descents: quasi-Newton steps from W and from `n_starts` - 1 other starts.

    If pairs are few, the lowest end and W itself are continued by `by_separation`, so that the result is never above
    majorisation from W. The history is that of the lowest run.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    runs = [quasi_newton(objective, W, tol=tol, max_iter=max_iter)]
    runs += [quasi_newton(objective, V, tol=tol, max_iter=max_iter) for V in _other_starts(objective, W, n_starts, rng)]
    best = min(runs, key=lambda run: run.value)
    if not _pairs_are_few(objective):
        return best
    polished = by_separation(objective, best.w, tol=tol, log=Log(history=best.history))
    polished = replace(polished, n_iter=polished.n_iter + best.n_iter)
    return min(polished, by_separation(objective, W, tol=tol), key=lambda run: run.value)


def _other_starts(objective: LabelObjective, W: Array, n_starts: int, rng: np.random.Generator) -> Iterator[Array]:
    """Other logistic regressions of each label, n_starts - 1 in all.

    First those with C / 10 and 10 C. If rows are dropped, the next one is fitted without the rows dropped at W. All
    further ones have random weights of the rows.
    """
    mass = objective.mass.astype(np.float64)
    settings: list[tuple[float, Array | None]] = [(0.1, mass), (10.0, mass)]
    if objective.m > 0:
        settings.append((1.0, objective.cutting(objective.losses_of(W)).risk.caps))
    settings += [(1.0, mass * rng.exponential(size=len(mass))) for _ in range(n_starts - 1 - len(settings))]
    for factor, weight in settings[: max(n_starts - 1, 0)]:
        yield logistic_per_label(objective.design, objective.blocks, factor * objective.C, weight)[0]


def _pairs_are_few(objective: LabelObjective) -> bool:
    """Whether an exact solve takes seconds and its pairs fit into scikit-learn's `working_memory`."""
    loss, n_labels = objective.loss, objective.n_outputs
    most = max(int(block.true.sum(axis=1).max()) for block in objective.blocks)
    pairs = objective.design.n * (n_labels - 1) * (min(loss.top_k, most) if loss.two_sided else most)
    fits = _TEMPORARY_ARRAYS * 8 * pairs / 2**20 <= float(get_config()["working_memory"])
    few = pairs <= (_PAIRS if loss.two_sided else _PAIRS_OF_PAPER)
    return fits and few and n_labels * objective.design.p <= _PARAMETERS


def separating_sets(true: Array, Z: Array, loss: TKML) -> tuple[Array, Array]:
    """Sets of labels to push down and to pull up, bool (n, L) each, that define a convex upper bound of each loss.

    [1 + largest score in `down` - smallest score in `up`]_+ is an upper bound of the TKML loss and equals it at Z. This
    holds because the (k+1)-th largest score is the minimum, over sets of k labels, of the largest score outside the
    set, and the k-th largest true score is the maximum, over sets of k true labels, of the smallest score in the set.
    Rows whose loss is always 0 have empty sets, and labels with a score of minus infinity (unknown ones) are in no set.
    Of tied labels, true ones rank higher.
    """
    n_true = true.sum(axis=1, keepdims=True)
    exceeds_k = (n_true > loss.top_k) if loss.two_sided else np.zeros_like(n_true, dtype=bool)
    ahead = _ranks(Z, true)
    best_true = _ranks(np.where(true, Z, -np.inf), true)
    down = np.where(exceeds_k, ~true, ahead >= loss.top_k) & (-np.inf < Z)
    up = np.where(exceeds_k, true & (best_true < loss.top_k), true)
    active = down.any(axis=1, keepdims=True) & up.any(axis=1, keepdims=True)
    return down & active, up & active


def _ranks(Z: Array, true: Array) -> Array:
    """The rank of each label in its row, 0 for the highest score; of tied labels, true ones rank higher."""
    order = np.lexsort((~true, -Z), axis=1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(Z.shape[1])[None, :], axis=1)
    return ranks


def by_separation(objective: LabelObjective, W: Array, *, tol: float = 1e-3, log: Log | None = None) -> Result:
    """Majorise and minimise: fix the compared labels and the dropped rows, solve this convex problem, and repeat.

    Each convex problem is an upper bound that equals F at W, so no step increases F (docs/paper.md). Inner problems are
    solved roughly at first, and the last one to `tol`. That gap is the certificate if there are no ties.
    """
    log = Log() if log is None else log
    value = objective.value(W)
    log("majorise", value)
    inner_tol, certificate, settled, weights = max(tol, 1e-2), np.inf, False, None
    n_iter = 0
    while n_iter < _ROUNDS and not settled:
        n_iter += 1
        problem, clean = _separation(objective, W)
        pairs = problem.loss
        if weights is not None:
            weights = weights[0], pairs.of_pairs(*weights[1])
        solution = convex.minimise(problem, W, tol=inner_tol, max_iter=_NEWTON_STEPS, weights=weights)
        weights = solution.weights[0], pairs.of_labels(solution.weights[1])
        reached = objective.value(solution.W)
        gained = relative(value - reached, value)
        if reached < value:
            W, value = solution.W, reached
            log("majorise", value)
        certificate = solution.gap if clean and gained <= 0.1 * tol else np.inf
        settled = gained <= 0.1 * tol and (inner_tol <= tol or solution.gap <= tol)
        inner_tol = max(tol, min(0.3 * inner_tol, gained))
    message = "no step lowers the objective" if settled else f"stopped after {n_iter} of {_ROUNDS} rounds"
    return Result(W, value, n_iter, settled, message, log.history, certificate)


def _separation(objective: LabelObjective, W: Array) -> tuple[ConvexProblem, bool]:
    """The convex problem of `by_separation` at W, and whether its label sets and dropped rows are unique (no ties)."""
    (block,) = Blocks(objective.design, objective.y, whole=True)
    Z = block.scores(W).astype(np.float64, copy=False)
    down, up = separating_sets(block.true, Z, objective.loss)
    s = objective.loss.value(block.true, Z)
    problem = objective.cutting(s)
    active: Array = np.asarray(down.any(axis=1))  # the loss of other rows is always 0
    caps: Array = active * problem.risk.caps
    problem = replace(problem, loss=LabelPairs(down, up), risk=replace(problem.risk, caps=caps))
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
    # rows with at most k true labels: the k highest labels
    outside = np.where(down | (-np.inf == Z), np.inf, Z).min(axis=1)
    # rows with more than k true labels: true labels below the k best
    left = np.where(true & ~up, Z, -np.inf).max(axis=1)
    exceeds_k = (true & ~up).any(axis=1)
    return bool((np.where(exceeds_k, low > left, outside > high) | ~active).all())
