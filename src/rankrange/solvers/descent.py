"""The result of a solver, and L-BFGS from several starts at once.

`descend` is L-BFGS. All starts share each product with X, which makes ten starts cost about as much as two. A step only
has to satisfy the Armijo condition: the objective has kinks, where a line search for the Wolfe conditions would end a
run early.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from scipy.linalg.blas import dsymv, dsyr2

from ..core.arrays import Array
from ..core.objective import Objective

Batch = Callable[..., tuple[Array, Array]]
Lazily = Callable[[Array], tuple[float, Callable[[], Array]]]  # (r, p) -> the value, and a function for the gradient
# Array API dispatch takes as long as a short inner product, and a fit computes thousands of them.
_einsum = inspect.unwrap(np.einsum)
# Starts are compared every other iteration. One that is closer to a lower one than this share of F, measured by half
# the squared distance in the metric, ends.
_COMPARED_EVERY, _SAME = 2, 1e-4
# After each window of 10 iterations, a start ends if it could not reach the third lowest value by decreasing twice as
# fast as in this window.
_WINDOW, _SPEED_UP, _LOWEST = 10, 2.0, 3
# A run ends if log F would have to decrease by more than 5 times what the last 3 steps achieved to reach `beat`.
_LAST, _MORE = 3, 5.0
# The number of parameters up to which a matrix takes less time than the recursion over pairs.
_FEW = 100


@dataclass(frozen=True)
class Result:
    """The final point of a solver, with its certificate.

    Parameters
    ----------
    w : ndarray of shape (outputs, p)
        The coefficients, with the intercept, if there is one, as the last column.
    value : float
        The objective at w.
    n_iter : int
        Number of steps.
    converged : bool
        Whether the solver met its stopping criterion.
    message : str
        The reason for stopping.
    history : list of (str, float)
        The name of the phase and the value after each step.
    certificate : float, default=inf
        An upper bound on (value - best) / value, where best is the minimum with the same rows dropped: the global
        minimum for m = 0, a local minimum of F if no losses tie at the upper cut. Infinite if nothing is proved.
    losses : ndarray of shape (n,), optional
        The losses at w, if the solver has computed them.
    """

    w: Array
    value: float
    n_iter: int
    converged: bool
    message: str
    history: list[tuple[str, float]]
    certificate: float = np.inf
    losses: Array | None = None


@dataclass
class Log:
    """The history of one run, and its printed form for `verbose`.

    Parameters
    ----------
    report : callable, optional
        Called with a line of text at each step.
    history : list of (str, float), optional
        The steps before this run; those of the run are appended in place.
    """

    report: Callable[[str], None] | None = None
    history: list[tuple[str, float]] = field(default_factory=list)

    def __call__(self, phase: str, value: float) -> None:
        self.history.append((phase, float(value)))
        if self.report is not None:
            self.report(f"{phase:<12} step {len(self.history):>4}   objective {value:.10g}")


def relative(gap: float, value: float) -> float:
    """A gap divided by the absolute value of the objective, but by at least 1e-9; a negative gap counts as 0."""
    return max(gap, 0.0) / max(abs(value), 1e-9)


def finish(
    W: Array,
    value: float,
    n_iter: int,
    certificate: float,
    tol: float,
    max_iter: int,
    log: Log,
    settled: bool | None = None,
    losses: Array | None = None,
    reason: str = "losses are tied at the upper cut",
) -> Result:
    """Make the result with its message.

    `settled` says whether the run converged; by default it did if the certificate is at most tol. `reason` explains a
    missing certificate in the message.
    """
    converged = certificate <= tol if settled is None else settled
    if certificate <= tol:
        message = f"the gap is at most {tol:g} of the objective"
    elif converged:
        message = "no step lowers the objective"
    elif not np.isfinite(certificate):
        message = f"no certificate after {n_iter} of {max_iter} iterations: {reason}"
    else:
        message = f"stopped after {n_iter} of {max_iter} iterations with a relative gap of {certificate:.2g}"
    return Result(W, value, n_iter, converged, message, log.history, certificate, losses)


def cut_is_clean(objective: Objective, s: Array) -> bool:
    """Whether the rows dropped at W, whose losses are s, stay dropped nearby.

    They do if s_[m] > s_[m+1], or if the rows tied at the upper cut are equal. More than 1000 tied rows are not
    compared and count as different.
    """
    return all(_one_row_repeated(objective, tied) for tied in objective.partly_cut(s))


def _one_row_repeated(objective: Objective, tied: Array) -> bool:
    if len(tied) > 1000:
        return False
    rows = objective.design.X[tied]
    rows = rows.toarray() if objective.design.sparse else rows
    return bool((rows == rows[:1]).all() and (objective.y[tied] == objective.y[tied[:1]]).all())


class Metric:
    """An approximate Hessian (p, p), or its diagonal (p,), the same for each row of W (r, p).

    It scales steps and measures distances. A column without curvature is scaled like the one with the largest. A matrix
    is scaled to unit diagonal before it is factored; `least_ridge` is the smallest ridge that is then added.
    """

    def __init__(self, hessian: Array, least_ridge: float = 1e-10) -> None:
        diagonal = hessian if hessian.ndim == 1 else np.diag(hessian)
        # A column without curvature, such as the intercept if no row has any, gets the scale of the largest.
        largest = float(diagonal.max(initial=0.0)) or 1.0
        self._scale = np.sqrt(np.where(diagonal > 1e-100 * largest, diagonal, largest))
        self._factor = None
        if hessian.ndim == 2:
            # Unit diagonal before factoring: columns may differ in scale by many orders of magnitude.
            normed = hessian / self._scale[:, None] / self._scale[None, :]
            self._factor = cholesky(normed, least_ridge)

    def solve(self, G: Array) -> Array:
        """H^-1 applied to the last axis of G."""
        if self._factor is None:
            return G / self._scale**2
        flat = (G / self._scale).reshape(-1, G.shape[-1])
        # LAPACK directly: SciPy's checks take several times as long if there are few columns.
        solved, _ = scipy.linalg.lapack.dpotrs(self._factor, flat.T)
        return solved.T.reshape(G.shape) / self._scale

    def root(self, W: Array) -> Array:
        """H^(1/2) applied to the last axis of W. Euclidean distances of the results are distances in the metric."""
        scaled = W * self._scale
        return scaled if self._factor is None else scaled @ self._factor.T


def cholesky(matrix: Array, least: float) -> Array:
    """The upper Cholesky factor with the first ridge of `least`, 1e-7, 1e-4, 1 that works; the identity if none."""
    for ridge in (least, 1e-7, 1e-4, 1.0):
        raised = matrix.copy()
        np.einsum("ii->i", raised)[:] += ridge
        factor, failed = scipy.linalg.lapack.dpotrf(raised)
        if not failed:
            return factor
    return np.eye(len(matrix))


def add_diagonal(matrix: Array, diagonal: Array) -> Array:
    """matrix + diag(diagonal), in place; the matrix may be given by its diagonal."""
    if matrix.ndim == 1:
        matrix += diagonal
    else:
        np.einsum("ii->i", matrix)[:] += diagonal
    return matrix


def bounded_difference(matrix: Array, other: Array, least: float) -> Array:
    """A positive definite matrix minus another, bounded below by the share `least` of the first in every direction."""
    raised = add_diagonal(matrix.copy(), np.full(len(matrix), 1e-12 * float(np.diag(matrix).max())))
    values, vectors = scipy.linalg.eigh(other, raised)
    root = raised @ vectors
    return (root * np.maximum(1.0 - values, least)) @ root.T


def descend(
    batch: Batch,
    starts: Array,
    metric: Metric | None = None,
    *,
    max_iter: int = 100,
    memory: int | None = 10,
    tol: float = 1e-10,
    left: Callable[[Array], Array] | None = None,
    on_step: Callable[[float], None] | None = None,
    numbered: bool = False,
    lazily: Lazily | None = None,
    beat: float = math.inf,
) -> tuple[Array, Array, int]:
    """Minimise from each start (S, r, p); returns the end points, their values, and the iterations of the longest run.

    `batch` returns the values (S,) and gradients (S, r, p). A start is finished after `max_iter` iterations, when a
    step lowers its value by less than the share `tol`, when no step lowers it, or when `left`, which estimates the
    possible decrease from the gradients, is at most 10 tol of its value. Several starts are also compared: one ends
    early if it is close to a lower one in the `metric`, or if it is not likely to reach the third lowest value. With
    `numbered` the starts have different objectives and are not compared: the batch is called as batch(W, which), where
    `which` are their numbers.

    For one start, `lazily`, if given, replaces `batch`: it returns the value and a function for the gradient. A single
    start also ends if it is not likely to fall below the value `beat`, if that is positive. `metric` is the initial
    Hessian; None means the identity and no comparison of distances. `memory` is the number of pairs that L-BFGS keeps.
    None keeps all of them in one matrix per start (BFGS), which takes less time if there are few parameters. `on_step`
    is called with the lowest value after each iteration.
    """
    W = np.array(starts, dtype=np.float64)
    if len(W) == 1 and not numbered:
        return _descend_from_one(lazily or _at_once(batch), W, metric, max_iter, memory, tol, left, on_step, beat)
    evaluate = batch if numbered else lambda W, which: batch(W)
    unfinished = np.arange(len(W))  # the numbers of the starts that are not finished
    values, gradients = evaluate(W, unfinished)
    ends, end_values, before = W.copy(), values.copy(), values.copy()
    pairs: _Pairs | _Matrices
    if memory is None:
        pairs = _Matrices(metric, W.shape)
    else:
        pairs = _Pairs(None if metric is None else metric.solve, memory)
    for iteration in range(max_iter):
        direction = -pairs.applied(gradients)
        slope = _inner(direction, gradients)
        no_descent = ~((slope < 0) & np.isfinite(slope))
        if no_descent.any():  # stale or overflowed curvature: use steepest descent in the metric
            steepest = -(gradients if metric is None else metric.solve(gradients))
            direction[no_descent], slope[no_descent] = steepest[no_descent], _inner(steepest, gradients)[no_descent]
        step = np.ones(len(W))
        if metric is None and not iteration:
            step /= np.maximum(1.0, np.sqrt(_inner(gradients, gradients)))
        moved, new_values, new_gradients = _backtrack(
            evaluate, W, values, gradients, direction, slope, step, unfinished
        )
        gained = values - new_values
        s, y = moved - W, new_gradients - gradients
        W, values, gradients = moved, new_values, new_gradients
        ends[unfinished], end_values[unfinished] = W, values
        if on_step is not None:
            on_step(float(end_values.min()))
        active = gained > tol * np.abs(values)
        if metric is not None and not numbered and iteration % _COMPARED_EVERY == _COMPARED_EVERY - 1:
            active &= ~is_duplicate(ends, end_values, metric)[unfinished]
        if not numbered and iteration % _WINDOW == _WINDOW - 1 and len(end_values) > _LOWEST:
            reachable = values - _SPEED_UP * (max_iter - iteration - 1) / _WINDOW * (before[unfinished] - values)
            active &= reachable <= np.partition(end_values, _LOWEST - 1)[_LOWEST - 1]
            before = end_values.copy()
        if left is not None:
            active &= left(gradients) > 10 * tol * np.abs(values)
        if not active.any():
            return ends, end_values, iteration + 1
        curvature = _inner(s, y)
        # The floor keeps the inverse finite if a fit is so exact that the changes themselves underflow.
        usable = curvature > np.maximum(1e-12 * np.sqrt(_inner(s, s)) * np.sqrt(_inner(y, y)), 1e-200)
        pairs.learn(s, y, np.where(usable, 1.0 / np.where(usable, curvature, 1.0), 0.0))
        if not active.all():
            unfinished, W, values, gradients = unfinished[active], W[active], values[active], gradients[active]
            pairs.keep(active)
    return ends, end_values, max_iter


def is_duplicate(W: Array, values: Array, metric: Metric) -> Array:
    """Which points W (S, r, p) are so close to a lower one, in the metric, that both lead to the same minimum."""
    order = np.argsort(values, kind="stable")
    roots = metric.root(W[order]).reshape(len(W), -1)
    squares = _einsum("sp,sp->s", roots, roots)
    near = 0.5 * (squares[:, None] + squares - 2.0 * roots @ roots.T) <= _SAME * np.abs(values[order])
    duplicate = np.zeros(len(W), dtype=bool)
    for i in range(1, len(W)):
        duplicate[order[i]] = (near[i, :i] & ~duplicate[order[:i]]).any()
    return duplicate


def _inner(a: Array, b: Array) -> Array:
    return _einsum("srp,srp->s" if a.ndim == 3 else "sq,sq->s", a, b)


def _dot(a: Array, b: Array) -> float:
    return float(a.dot(b))


class _Numbers(NamedTuple):
    """The arithmetic of `inverse_hessian`: one number per start for arrays (S, r, p), or plain numbers for a vector."""

    inner: Callable[[Array, Array], Any]
    times: Callable[[Any, Array], Array]
    inverse: Callable[[Any], Any]  # 1 / x, and 1 if x is not positive


def _inverse_each(lengths: Array) -> Array:
    return np.where(lengths > 0, 1.0 / np.where(lengths > 0, lengths, 1.0), 1.0)


_MANY = _Numbers(_inner, lambda a, y: a.reshape(-1, *[1] * (y.ndim - 1)) * y, _inverse_each)
_ONE = _Numbers(_dot, operator.mul, lambda length: 1.0 / length if length > 0 else 1.0)


def inverse_hessian(
    G: Array,
    pairs: Sequence[tuple[Array, Array, Any]],
    solve: Callable[[Array], Array] | None,
    numbers: _Numbers = _MANY,
) -> Array:
    """The two-loop recursion of L-BFGS on gradients G; `solve` applies the inverse of the metric (None: the identity).

    A pair is a step, the change of the gradient, and 1 / <step, change>, or 0 if the pair is not to be used.
    """
    inner, times, inverse = numbers
    q = G.copy()
    alphas = []
    for s, y, rho in reversed(pairs):
        alphas.append(rho * inner(s, q))
        q -= times(alphas[-1], y)
    r = q if solve is None else solve(q)
    if pairs:
        _, y, rho = pairs[-1]
        r = times(inverse(inner(y, y if solve is None else solve(y)) * rho), r)
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        r += times(alpha - rho * inner(y, r), s)
    return r


class _Pairs:
    """The inverse Hessian of L-BFGS: the last pairs of steps and changes of the gradient, oldest first."""

    def __init__(self, solve: Callable[[Array], Array] | None, memory: int, numbers: _Numbers = _MANY) -> None:
        self.solve, self.numbers = solve, numbers
        self.pairs: deque[tuple[Array, Array, Any]] = deque(maxlen=memory)

    def applied(self, G: Array) -> Array:
        return inverse_hessian(G, self.pairs, self.solve, self.numbers)

    def learn(self, s: Array, y: Array, rho: Any) -> None:
        """Add a step, the change of the gradient and 1 / <step, change>, which is 0 if the pair is not to be used."""
        self.pairs.append((s, y, rho))

    def keep(self, active: Array) -> None:
        """Keep only the pairs of the active starts."""
        self.pairs = deque(((s[active], y[active], rho[active]) for s, y, rho in self.pairs), self.pairs.maxlen)


def _inverse_of(metric: Metric | None, shape: tuple[int, ...]) -> Array:
    """The inverse of the metric (None: the identity) as a matrix (q, q), where q = r p for parameters (..., r, p)."""
    base = np.eye(shape[-1]) if metric is None else metric.solve(np.eye(shape[-1]))
    return base if shape[-2] == 1 else np.kron(np.eye(shape[-2]), base)


class _Matrices:
    """The inverse Hessian of BFGS as a matrix (q, q) per start, with q = r p. The first pair scales the metric."""

    def __init__(self, metric: Metric | None, shape: tuple[int, ...]) -> None:
        self.matrix, self.scaled = _inverse_of(metric, shape), False

    def applied(self, G: Array) -> Array:
        return self._product(G.reshape(len(G), -1)).reshape(G.shape)

    def _product(self, g: Array) -> Array:
        return (self.matrix @ g[:, :, None])[:, :, 0]

    def learn(self, s: Array, y: Array, rho: Array) -> None:
        """Update with a step, the change of the gradient and 1 / <step, change>; 0 for a pair that is not used."""
        s, y = s.reshape(len(s), -1), y.reshape(len(y), -1)
        u = self._product(y)
        if not self.scaled:
            factor = _inverse_each(_inner(y, u) * rho)
            self.matrix = factor[:, None, None] * self.matrix
            u, self.scaled = factor[:, None] * u, True
        v = (0.5 * rho * (1.0 + rho * _inner(y, u)))[:, None] * s - rho[:, None] * u
        change = s[:, :, None] * v[:, None, :]
        self.matrix += change
        self.matrix += change.swapaxes(-1, -2)

    def keep(self, active: Array) -> None:
        """Keep only the matrices of the active starts."""
        self.matrix = self.matrix[active]


class _Matrix:
    """`_Matrices` for one start, by BLAS in place: the upper triangle of a symmetric matrix."""

    def __init__(self, metric: Metric | None, shape: tuple[int, ...]) -> None:
        self.matrix, self.scaled = np.asfortranarray(_inverse_of(metric, shape)), False

    def applied(self, g: Array) -> Array:
        return dsymv(1.0, self.matrix, g)

    def learn(self, s: Array, y: Array, rho: float) -> None:
        u = self.applied(y)
        length = rho * _dot(y, u)
        if not self.scaled:
            factor = 1.0 / length if length > 0 else 1.0
            self.matrix *= factor
            u, length, self.scaled = factor * u, factor * length, True
        v = (0.5 * rho * (1.0 + length)) * s - rho * u
        self.matrix = dsyr2(1.0, s, v, a=self.matrix, overwrite_a=1)


class _AllPairs:
    """L-BFGS that keeps all pairs of one start, as two matrices A and B: the inverse Hessian is scale * A + B.

    A is the inverse of the metric after the updates, B is what the steps add, and the last pair sets the scale. The
    two-loop recursion gives the same steps, but needs several NumPy calls per pair in each step.
    """

    def __init__(self, metric: Metric | None, shape: tuple[int, ...]) -> None:
        self.base = _inverse_of(metric, shape)
        self.A, self.B = np.array(self.base, order="F"), np.zeros_like(self.base, order="F")
        self.scale = 1.0

    def applied(self, g: Array) -> Array:
        return dsymv(self.scale, self.A, g) + dsymv(1.0, self.B, g)

    def learn(self, s: Array, y: Array, rho: float) -> None:
        for added, name in ((0.0, "A"), (1.0, "B")):
            matrix = getattr(self, name)
            u = dsymv(1.0, matrix, y)
            v = (0.5 * rho * (added + rho * _dot(y, u))) * s - rho * u
            setattr(self, name, dsyr2(1.0, s, v, a=matrix, overwrite_a=1))
        length = rho * _dot(y, self.base @ y)
        self.scale = 1.0 / length if length > 0 else 1.0


def _at_once(batch: Batch) -> Lazily:
    def evaluate(W: Array) -> tuple[float, Callable[[], Array]]:
        values, gradients = batch(W[None])
        return float(values[0]), lambda: gradients[0]

    return evaluate


def _descend_from_one(
    evaluate: Lazily,
    W: Array,
    metric: Metric | None,
    max_iter: int,
    memory: int | None,
    tol: float,
    left: Callable[[Array], Array] | None,
    on_step: Callable[[float], None] | None,
    beat: float,
) -> tuple[Array, Array, int]:
    """`descend` for one start, on vectors and scalars, which halves the overhead."""
    value, ask = evaluate(W[0])
    gradient, at = ask().ravel(), W.ravel()

    def solve(vector: Array) -> Array:
        return vector if metric is None else metric.solve(vector.reshape(W.shape)).ravel()

    pairs: _Pairs | _Matrix | _AllPairs
    if memory is None:
        pairs = _Matrix(metric, W.shape)
    elif max_iter <= memory and W.size <= _FEW:
        pairs = _AllPairs(metric, W.shape)
    else:
        pairs = _Pairs(solve, memory, _ONE)
    last: deque[float] = deque(maxlen=_LAST)  # the values of the last steps
    for iteration in range(max_iter):
        direction = -pairs.applied(gradient)
        slope = _dot(direction, gradient)
        if not (slope < 0 and math.isfinite(slope)):  # stale or overflowed curvature, as in `descend`
            direction = -solve(gradient)
            slope = _dot(direction, gradient)
        step = 1.0
        if metric is None and not iteration:
            step /= max(1.0, math.sqrt(_dot(gradient, gradient)))
        old_value, old_gradient, old = value, gradient, at
        for _ in range(25):
            trial = old + step * direction
            reached, ask = evaluate(trial.reshape(W.shape[1:]))
            if reached <= old_value + 1e-4 * step * slope:
                value, gradient, at = reached, ask().ravel(), trial
                break
            step *= 0.4
        if on_step is not None:
            on_step(value)
        still = old_value - value > tol * abs(value)
        if value > beat > 0 and len(last) == _LAST:
            still = still and math.log(value / beat) < _MORE * math.log(last[0] / value)
        last.append(value)
        if left is not None:
            still = still and bool(left(gradient.reshape(W.shape))[0] > 10 * tol * abs(value))
        if not still:
            return at.reshape(W.shape), np.array([value]), iteration + 1
        s, y = at - old, gradient - old_gradient
        curvature = _dot(s, y)
        usable = curvature > max(1e-12 * math.sqrt(s.dot(s)) * math.sqrt(y.dot(y)), 1e-200)
        pairs.learn(s, y, 1.0 / curvature if usable else 0.0)
    return at.reshape(W.shape), np.array([value]), max_iter


def _backtrack(
    evaluate: Batch,
    W: Array,
    values: Array,
    gradients: Array,
    direction: Array,
    slope: Array,
    step: Array,
    numbers: Array,
) -> tuple[Array, Array, Array]:
    """Shorten the steps of starts that have not decreased enough, up to 25 times; one that never does stays in place.

    Returns the new points, their values and their gradients.
    """
    moved, new_values, new_gradients = W.copy(), values.copy(), gradients.copy()
    waiting = np.arange(len(W))
    for _ in range(25):
        trial = W[waiting] + step[waiting, None, None] * direction[waiting]
        trial_values, trial_gradients = evaluate(trial, numbers[waiting])
        done = trial_values <= values[waiting] + 1e-4 * step[waiting] * slope[waiting]
        if len(done) == len(W) and done.all():  # the usual case: no results to combine
            return trial, trial_values, trial_gradients
        accepted = waiting[done]
        moved[accepted], new_values[accepted] = trial[done], trial_values[done]
        new_gradients[accepted] = trial_gradients[done]
        waiting = waiting[~done]
        if not len(waiting):
            break
        step[waiting] *= 0.4
    return moved, new_values, new_gradients
