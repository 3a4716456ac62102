"""Detect and prove that equal scores for all rows are optimal.

If m = 0 and k is below about twice the number of errors of the best linear model, equal scores are optimal: zero or, if
one class is so small that all of it is kept, the log odds of the kept rows. All losses of a class are then tied, which
makes every other method slow. Equal scores are the minimum if there are weights between 0 and 1 with mass k that
balance the gradients of the rows. They are found by projecting equal weights onto these conditions (semismooth Newton
on the dual). For m > 0, `constant_is_best_next_to` proves the same for the rows that are not dropped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.objective import Objective
from .descent import Log, Metric, Result, cut_is_clean, finish, relative
from .newton import balanced

_BLOCK = 1 << 12
# With several classes: the largest number of steps, and of scores of all rows and classes.
_CLASS_STEPS, _MAX_ENTRIES = 25, 20_000_000


def best_constant(objective: Objective, rare: int | None = None) -> tuple[int, float]:
    """The sign of the class that is kept completely (0 if none), and the best constant score.

    At zero scores all losses are tied, and each class gets half of the kept mass, unless its mass is smaller. `rare` is
    the sign of such a class, or None if it is to be found. Its losses are the larger ones, so m is dropped from it. The
    result is (0, 0.0) without such a class or an intercept, and for losses whose best constant is not the log odds.
    """
    masses = np.bincount(objective.strata, weights=objective.sample_weight, minlength=2) - objective.m
    if rare is None:
        rare = 1 if masses[1] <= masses[0] else -1
        if not objective.design.fit_intercept or 2.0 * masses.min() >= objective.kept:
            return 0, 0.0
    mass = float(masses[1 if rare > 0 else 0])
    if not 0.0 < mass < objective.kept:
        return 0, 0.0
    level = rare * math.log(mass / (objective.kept - mass))
    slopes = objective.loss.value_and_derivative(np.array([rare, -rare], dtype=np.float64), np.full(2, level))[1]
    pulls = slopes * [mass, objective.kept - mass]
    # The log odds are optimal for the logistic loss only.
    return (rare, level) if abs(pulls.sum()) <= 1e-9 * abs(pulls).sum() else (0, 0.0)


def constant_is_best(objective: Objective, rng: np.random.Generator, tol: float, log: Log) -> Result | None:
    """Equal scores with their certificate, if it proves that they are the minimum to `tol`; otherwise None.

    The objective must have m = 0.
    """
    if objective.n_outputs > 1:
        return _of_several_classes(objective, tol, log)
    return _of_two_classes(objective, rng, tol, log)


def constant_is_best_next_to(
    objective: Objective, W: Array, rng: np.random.Generator, tol: float, log: Log
) -> Result | None:
    """A point next to equal scores, in the direction of W, with its certificate for m > 0; None if nothing is proved.

    At equal scores all losses of a class tie at the upper cut, and any of them may be dropped. Next to them it is known
    which rows are dropped. The other rows are a problem with m = 0, whose minimum has equal scores.
    """
    constant = equal_scores(objective)
    level, lowest = objective.design.scores(constant), objective.value(constant)
    change = objective.design.scores(W - constant).astype(np.float64)
    size = float(np.abs(change).mean())
    if not size > 0:
        return None
    length = 0.1 * tol * lowest / size  # slopes are at most 1, so F changes by less than the tolerance
    W = constant + length * (W - constant)
    s = objective.losses(level + length * change)
    value = objective.value_at(W, s)
    if value < (1.0 - 1e-12) * lowest or not cut_is_clean(objective, s):
        return None
    caps = np.asarray(objective.cutting(s).caps)
    rows = np.flatnonzero(caps > 0)
    mass = None if (caps[rows] == 1.0).all() else caps[rows]
    rest = replace(objective.rows(rows, 0, objective.kept), sample_weight=mass)
    proof = constant_is_best(rest, rng, 0.5 * tol, Log())
    if proof is None:
        return None
    log("trivial", value)
    return finish(W, value, 1, proof.certificate + relative(value - lowest, value), tol, 1, log, losses=s)


def equal_scores(objective: Objective) -> Array:
    """The parameters (r, p) of the best equal scores: zero, or with two classes the best intercept."""
    W = np.zeros((objective.n_outputs, objective.design.p))
    if objective.loss.targets == "binary":
        W[0, objective.design.d :] = best_constant(objective)[1]
    return W


def _of_two_classes(objective: Objective, rng: np.random.Generator, tol: float, log: Log) -> Result | None:
    """`constant_is_best` for two classes: balancing weights are found on two samples first, then on all rows.

    The dual point hardly changes with the number of rows, so a sample gives a good start. There is no sample if rows
    are few, and the result is None if a sample shows that no weights balance.
    """
    n, p = objective.design.n, objective.design.p
    dual, (rare, level) = np.zeros(p + 1), best_constant(objective)
    for size in (n // 64, n // 8):
        if size >= 40 * p:
            rows = np.sort(rng.choice(n, size, replace=False, shuffle=False))
            part = _Balance(objective.rows(rows, 0, max(1, round(objective.k * size / n))), rare)
            unit = _root_mean_square(part.objective.design.X)
            error = max(0.06, 0.6 * np.sqrt(p / size)) * unit  # of a sample
            dual, missed, least = part.solve(dual, 8, 1e-3 * unit, error)
            if least > error:
                return None
            if missed > 1e-3 * unit:  # this sample cannot be balanced, and its dual point is misleading
                dual = np.zeros(p + 1)
    W = np.zeros((1, p))
    W[0, objective.design.d :] = level
    value = objective.value(W)
    # At zero scores the slopes are 1/2, so this leaves a fraction of the required gap. Residuals of the intercept and
    # of the mass are scaled away, at a cost proportional to them, not to their squares.
    enough = 2.0 * math.sqrt(0.6 * tol * value / objective.C)
    return _proved(W, value, _Balance(objective, rare, enough / (0.2 * tol)), dual, 20, enough, tol, log)


def _root_mean_square(X: Any) -> float:
    """The root mean square of the entries of X, which is the unit of sums of gradients."""
    return math.sqrt(float((X.multiply(X) if sp.issparse(X) else np.square(X, dtype=np.float64)).mean()))


def _of_several_classes(objective: Objective, tol: float, log: Log) -> Result | None:
    """`constant_is_best` for several classes: balance the gradients at zero scores, on all rows at once.

    None also if the loss is not softmax, if there are too many scores, or if a class is so small that zero is not best.
    """
    r, p = objective.n_outputs, objective.design.p
    slopes = objective.loss.value_and_derivative(np.arange(r), np.zeros((r, r)))[1]
    masses = np.bincount(objective.strata, weights=objective.sample_weight, minlength=r)
    uneven = objective.design.fit_intercept and float(masses.min()) * r < objective.kept
    if uneven or objective.design.n * r > _MAX_ENTRIES or not np.allclose(slopes, 1.0 / r - np.eye(r)):
        return None
    W = np.zeros((r, p))
    value = objective.value(W)
    enough = math.sqrt(0.6 * tol * value / objective.C)
    balance = _ClassBalance(objective, enough / (0.2 * tol))
    return _proved(W, value, balance, np.zeros(r * p + 1), _CLASS_STEPS, enough, tol, log)


def _proved(
    W: Array, value: float, balance: _Projection, dual: Array, max_steps: int, enough: float, tol: float, log: Log
) -> Result | None:
    """W with its certificate, if weights found from `dual` balance to `enough` and prove `tol`; otherwise None."""
    dual, missed, _ = balance.solve(dual, max_steps, enough, enough)
    if missed > enough:
        return None
    certificate = relative(value - balance.lower_bound(dual), value)
    if certificate > tol:
        return None
    log("trivial", value)
    return finish(W, value, 1, certificate, tol, 1, log)


class _Evaluation(NamedTuple):
    """The dual objective, its gradient (the residual of the conditions), its slope far out, and its Hessian.

    The slope is the limit of the derivative along the ray from zero through the point.
    """

    height: float
    residual: Array
    slope: float
    hessian: Array | None


class _Projection(ABC):
    """The projection of equal weights onto the balance conditions, by semismooth Newton steps on the dual."""

    def __init__(self, objective: Objective, strictness: float = 1.0) -> None:
        self.objective = objective
        self.strictness = strictness  # the factor by which the residuals of intercept and mass must be smaller

    @abstractmethod
    def evaluate(self, dual: Array, second: bool) -> _Evaluation:
        """The dual objective at a point, with its Hessian if `second`."""

    @abstractmethod
    def lower_bound(self, dual: Array) -> float:
        """The lower bound on F that the weights at a dual point prove, with tangents at the constant scores."""

    def _of_columns(self, residual: Array) -> Array:
        """Which entries of the residual refer to columns of X, and not to intercepts or the mass."""
        columns = np.arange(self.objective.design.p) < self.objective.design.d
        return np.append(np.tile(columns, (len(residual) - 1) // len(columns)), False)

    def _missed(self, residual: Array) -> float:
        columns = self._of_columns(residual)
        sizes = np.linalg.norm(residual[columns]), self.strictness * np.linalg.norm(residual[~columns])
        return float(max(sizes)) / self.objective.kept

    def _least(self, dual: Array, at: _Evaluation) -> float:
        """A lower bound on the residual of all weights: minus the slope of the dual objective far out along `dual`.

        If it is positive, the conditions cannot be satisfied, and `dual` is a direction in which F decreases.
        """
        columns = self._of_columns(dual)
        length = np.linalg.norm(dual[columns]) + np.linalg.norm(dual[~columns]) / self.strictness
        return -at.slope / (float(length) * self.objective.kept) if length > 0 else 0.0

    def solve(self, dual: Array, max_steps: int, enough: float, hopeless: float) -> tuple[Array, float, float]:
        """Newton steps from `dual`; the Hessian is reused while they gain much.

        Returns the best point, its residual, and a lower bound on the residual of all points. The steps end if the
        residual is at most `enough`, if the bound exceeds `hopeless`, or if there is no progress.
        """
        at = self.evaluate(dual, True)
        hessian, fresh, best, missed = at.hessian, True, dual, self._missed(at.residual)
        best_missed, least = missed, self._least(dual, at)
        # With few free rows the Hessian is singular in directions that change as other rows become free.
        many = self.objective.design.n >= 40 * self.objective.design.p
        for _ in range(max_steps):
            if missed <= enough or least > hopeless:
                break
            if hessian is None:
                hessian, fresh = self.evaluate(dual, True).hessian, True
            if hessian is None or not hessian.any():  # no weight is free to move
                break
            step = -Metric(hessian).solve(at.residual)
            for length in 0.5 ** np.arange(8):
                reached = self.evaluate(dual + length * step, False)
                if reached.height <= at.height + 1e-14 * abs(at.height):  # the accuracy of sums over many rows
                    break
            else:
                if fresh:  # only rounding errors are left
                    break
                hessian = None
                continue
            dual, at, before = dual + length * step, reached, missed
            missed, last = self._missed(at.residual), least
            least = max(least, self._least(dual, at))
            if least > enough and least == last:  # infeasible, and the bound grows no more
                break
            hessian, fresh = hessian if many and missed <= 0.2 * before else None, False
            if missed < best_missed:
                best, best_missed = dual, missed
        return best, best_missed, least


class _Balance(_Projection):
    """The conditions for two classes: the weighted gradients at constant scores sum to zero, and the weights to k.

    `rare` is the sign of the class that is kept completely, 0 if none is.
    """

    def __init__(self, objective: Objective, rare: int = 0, strictness: float = 1.0) -> None:
        super().__init__(objective, strictness)
        self.rare, self.level = best_constant(objective, rare) if rare else (0, 0.0)
        self.share = objective.kept / objective.total
        self.slopes = np.ones(2)  # the slopes of each class relative to those at zero
        if self.rare:
            self.slopes = 2.0 * np.abs(
                objective.loss.value_and_derivative(np.array([-1.0, 1.0]), np.full(2, self.level))[1]
            )
            whole = objective.kept * self.slopes[0 if rare > 0 else 1] / 2.0  # the mass of the rare class
            self.share = (objective.kept - whole) / (objective.total - whole)

    def lower_bound(self, dual: Array) -> float:
        """The lower bound that the weights prove, with tangents at the constant scores.

        Sums are float64 for any dtype of X, because rounding would weaken the bound with a weak penalty.
        """
        objective, start = self.objective, 0
        flows, masses = np.zeros((2, len(dual) - 1)), np.zeros(2)
        for A, mass, line, least in self._blocks(dual):
            positive = objective.y[start : start + len(line)] > 0
            start += len(line)
            q = mass * np.clip(line, least, 1.0)
            for side, rows in enumerate((~positive, positive)):
                flows[side] += (q * rows) @ A[:, :-1]
                masses[side] += float(q @ rows)
        signs = np.array([-1.0, 1.0])
        s, u = objective.loss.value_and_derivative(signs, np.full(2, self.level))
        feasible = min(1.0, objective.kept / float(masses.sum()))
        heights, factors = feasible * masses * (s - u * self.level), feasible * u / (signs * self.slopes)
        return balanced(objective, heights, flows * factors[:, None])

    def _blocks(self, dual: Array) -> Iterator[tuple[Array, Any, Array, Any]]:
        """Yield for each block of rows (A, mass, line, least).

        A has the gradients of the losses, relative to the slope at zero scores, and a column of ones. `line` are the
        weights before clipping to [least, 1], where `least` is 0, or 1 in the class that is kept completely. A is
        overwritten by the next block.
        """
        objective, d = self.objective, self.objective.design.d
        room = np.empty((min(_BLOCK, objective.design.n), len(dual)))
        for start in range(0, objective.design.n, _BLOCK):
            block = slice(start, start + _BLOCK)
            X, y = objective.design.X[block], objective.y[block]
            least: Any = 0.0
            if self.rare:
                least, y = np.where(y * self.rare > 0, 1.0, 0.0), np.where(y > 0, self.slopes[1], -self.slopes[0])
            A = room[: len(y)]
            A[:, d:] = 1.0
            np.multiply(X.toarray() if objective.design.sparse else X, y[:, None], out=A[:, :d])
            if objective.design.fit_intercept:
                A[:, d] = y
            mass = 1.0 if objective.sample_weight is None else objective.sample_weight[block]
            yield A, mass, self.share + A @ dual, least

    def evaluate(self, dual: Array, second: bool) -> _Evaluation:
        height, slope, residual = 0.0, 0.0, np.zeros(len(dual))
        hessian = np.zeros((len(dual),) * 2) if second else None
        for A, mass, line, least in self._blocks(dual):
            inside = np.clip(line, least, 1.0)
            height += float((mass * inside * (line - 0.5 * inside)).sum())
            change = line - self.share
            slope += float((mass * np.maximum(change, least * change)).sum())
            residual += (mass * inside) @ A
            if hessian is not None:
                A *= np.sqrt(mass * ((line == inside) & (least < 1.0)))[:, None]
                hessian += A.T @ A
        residual[-1] -= self.objective.kept
        if hessian is not None:  # columns that are zero in all rows with free weights
            hessian[np.diag_indices_from(hessian)] += 1e-12 * float(np.diag(hessian).max())
        taken = float(dual[-1]) * self.objective.kept
        return _Evaluation(height - taken, residual, slope - taken, hessian)


class _ClassBalance(_Projection):
    """The conditions at zero scores: the weighted rows of each class have the same sum, and the weights sum to k.

    A row of class y has the gradient (1/r - [c = y]) x for class c. A dual point D (r, p) adds (D_y - mean of D) . x to
    its weight.
    """

    def __init__(self, objective: Objective, strictness: float = 1.0) -> None:
        super().__init__(objective, strictness)
        self.mass = objective.mass.astype(np.float64)
        self.of_class = np.arange(objective.n_outputs)[:, None] == objective.strata[None, :]

    def _weights(self, dual: Array) -> tuple[Array, Array]:
        """The weights at a dual point relative to the mass, before and after clipping."""
        objective = self.objective
        Z = objective.design.scores(dual[:-1].reshape(objective.n_outputs, -1)).astype(np.float64)
        line = objective.kept / objective.total + (self.of_class * Z).sum(axis=0) - Z.mean(axis=0) + dual[-1]
        return line, np.clip(line, 0.0, 1.0)

    def evaluate(self, dual: Array, second: bool) -> _Evaluation:
        objective = self.objective
        line, inside = self._weights(dual)
        q, taken = self.mass * inside, float(dual[-1]) * objective.kept
        height = float((q * (line - 0.5 * inside)).sum()) - taken
        slope = float((self.mass * np.maximum(line - objective.kept / objective.total, 0.0)).sum()) - taken
        sums = objective.design.adjoint(self.of_class * q)
        residual = np.append((sums - sums.mean(axis=0)).ravel(), q.sum() - objective.kept)
        return _Evaluation(height, residual, slope, self._hessian(self.mass * (line == inside)) if second else None)

    def _hessian(self, free: Array) -> Array:
        objective, r, p = self.objective, self.objective.n_outputs, self.objective.design.p
        parts = [np.flatnonzero(self.of_class[c] & (free > 0)) for c in range(r)]
        grams = np.array([objective.design.gram(free[rows], rows) for rows in parts])
        matrix = np.empty((r * p + 1, r * p + 1))
        blocks = np.broadcast_to(grams.sum(axis=0) / r**2, (r, r, p, p)) - (grams[:, None] + grams[None, :]) / r
        blocks[np.arange(r), np.arange(r)] += grams
        matrix[:-1, :-1] = blocks.transpose(0, 2, 1, 3).reshape(r * p, r * p)
        pulls = objective.design.adjoint(self.of_class * free)
        matrix[-1, :-1] = matrix[:-1, -1] = (pulls - pulls.mean(axis=0)).ravel()
        matrix[-1, -1] = free.sum()
        matrix[np.diag_indices_from(matrix)] += 1e-12 * float(np.diag(matrix).max())
        return matrix

    def lower_bound(self, dual: Array) -> float:
        """The lower bound; with intercepts, which are not penalised, the classes are scaled to equal mass."""
        objective, d = self.objective, self.objective.design.d
        q = self.mass * self._weights(dual)[1]
        masses = self.of_class @ q
        feasible = min(1.0, objective.kept / float(masses.sum()))
        keep = np.full(len(masses), feasible)
        if objective.design.fit_intercept:
            keep *= np.divide(masses.min(), masses, out=np.zeros_like(masses), where=masses > 0)
        sums = objective.design.adjoint(self.of_class * q)[:, :d] * keep[:, None] / objective.kept
        v = sums - sums.mean(axis=0)
        height = math.log(objective.n_outputs) * float(keep @ masses) / objective.kept
        return height - 0.5 * objective.C * float(np.vdot(v, v))
