"""The result of a solver, and L-BFGS from several starts at once.

`descend` is L-BFGS. All starts share each product with X, which makes ten starts cost about as much as two. A step only
has to satisfy the Armijo condition: the objective has kinks, where a line search for the Wolfe conditions would end a
run early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg

from ..core.arrays import Array

Batch = Callable[[Array], tuple[Array, Array]]
# The number of pairs of steps and changes of the gradient that L-BFGS keeps.
_PAIRS = 10


@dataclass(frozen=True)
class Result:
    """The final point of a solver, with its certificate.

    w (outputs, p) are the coefficients, with the intercept, if there is one, as the last column, and `value` is the
    objective there. `converged` says whether the solver met its stopping criterion, and `message` why it stopped.
    `history` has the name of the phase and the value after each step.

    The certificate is an upper bound on (value - best) / value, where best is the minimum with the same rows dropped:
    the global minimum for m = 0, a local minimum of F if no losses tie at the upper cut. It is infinite if nothing is
    proved. `losses` (n,) are those at w, if the solver has computed them.
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
    """The history of a run: the phase and the value after each step."""

    history: list[tuple[str, float]] = field(default_factory=list)

    def __call__(self, phase: str, value: float) -> None:
        self.history.append((phase, float(value)))


@dataclass(frozen=True)
class Settings:
    """The settings of all solvers.

    `tol` is the relative duality gap at which to stop, `n_starts` the number of random starts, `rng` the generator of
    random starts and samples, and `log` receives the value after each step.
    """

    tol: float = 1e-6
    max_iter: int = 200
    n_starts: int = 10
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    log: Log = field(default_factory=Log)


def relative(gap: float, value: float) -> float:
    """A gap divided by the absolute value of the objective, but by at least 1e-9; a negative gap counts as 0."""
    return max(gap, 0.0) / max(abs(value), 1e-9)


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


def conjugate_gradients(
    product: Callable[[Array], Array], right: Array, solve: Callable[[Array], Array], tol: float, most: int
) -> Array:
    """An approximate solution of product(V) = right, by at most `most` steps from zero.

    `solve` is an approximate inverse; its solution is returned if a curvature is not positive at once. The steps end at
    the share `tol` of the first residual, or if a later curvature is not positive.
    """
    V, residual = np.zeros_like(right), right
    scaled = direction = solve(residual)
    size = first = float(np.vdot(residual, scaled))
    for _ in range(most):
        if not size > tol**2 * first:
            break
        bent = product(direction)
        curvature = float(np.vdot(direction, bent))
        if not curvature > 0:
            break
        V = V + (size / curvature) * direction
        residual = residual - (size / curvature) * bent
        scaled = solve(residual)
        last, size = size, float(np.vdot(residual, scaled))
        direction = scaled + (size / last) * direction
    return V if V.any() else direction


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
    tol: float = 1e-10,
    on_step: Callable[[float], None] | None = None,
) -> tuple[Array, Array, int]:
    """Minimise from each start (S, r, p); returns the end points, their values, and the iterations of the longest run.

    `batch` returns the values (S,) and gradients (S, r, p). A start is finished after `max_iter` iterations, when a
    step lowers its value by less than the share `tol`, or when no step lowers it. `metric` is the initial Hessian; None
    means the identity. `on_step` is called with the lowest value after each iteration.
    """
    if len(starts) == 1:
        return _descend_from_one(batch, np.array(starts, dtype=np.float64), metric, max_iter, tol, on_step)
    W = np.array(starts, dtype=np.float64)
    solve = None if metric is None else metric.solve
    unfinished = np.arange(len(W))  # the numbers of the starts that are not finished
    values, gradients = batch(W)
    ends, end_values = W.copy(), values.copy()
    pairs: deque[tuple[Array, Array, Array]] = deque(maxlen=_PAIRS)
    for iteration in range(max_iter):
        direction = -inverse_hessian(gradients, pairs, solve)
        slope = _inner(direction, gradients)
        no_descent = ~((slope < 0) & np.isfinite(slope))
        if no_descent.any():  # stale or overflowed curvature: use steepest descent in the metric
            steepest = -(gradients if solve is None else solve(gradients))
            direction[no_descent], slope[no_descent] = steepest[no_descent], _inner(steepest, gradients)[no_descent]
        step = np.ones(len(W))
        if metric is None and not iteration:
            step /= np.maximum(1.0, np.sqrt(_inner(gradients, gradients)))
        moved, new_values, new_gradients = _backtrack(batch, W, values, gradients, direction, slope, step)
        gained = values - new_values
        s, y = moved - W, new_gradients - gradients
        W, values, gradients = moved, new_values, new_gradients
        ends[unfinished], end_values[unfinished] = W, values
        if on_step is not None:
            on_step(float(end_values.min()))
        active = gained > tol * np.abs(values)
        if not active.any():
            return ends, end_values, iteration + 1
        curvature = _inner(s, y)
        # The floor keeps the inverse finite if a fit is so exact that the changes themselves underflow.
        usable = curvature > np.maximum(1e-12 * np.sqrt(_inner(s, s)) * np.sqrt(_inner(y, y)), 1e-200)
        pairs.append((s, y, np.where(usable, 1.0 / np.where(usable, curvature, 1.0), 0.0)))
        if not active.all():
            unfinished, W, values, gradients = unfinished[active], W[active], values[active], gradients[active]
            pairs = deque(((s[active], y[active], rho[active]) for s, y, rho in pairs), _PAIRS)
    return ends, end_values, max_iter


def _descend_from_one(
    batch: Batch, W: Array, metric: Metric | None, max_iter: int, tol: float, on_step: Callable[[float], None] | None
) -> tuple[Array, Array, int]:
    """`descend` for one start, whose steps and changes of the gradient are rows of matrices: half of the time."""
    shape, w = W.shape, W.ravel()
    values, gradients = batch(W)
    value, gradient = float(values[0]), gradients.ravel()
    S = Y = HY = np.zeros((0, len(w)))
    steps = 0
    for steps in range(1, max_iter + 1):
        scaled = gradient if metric is None else metric.solve(gradient.reshape(shape)).ravel()
        direction = -_inverse_by_products(gradient, scaled, S, Y, HY)
        slope = float(direction @ gradient)
        if not -np.inf < slope < 0:  # stale or overflowed curvature: use steepest descent in the metric
            direction, slope = -scaled, -float(scaled @ gradient)
        length = 1.0 if steps > 1 or metric is not None else 1.0 / max(1.0, float(np.linalg.norm(gradient)))
        for _ in range(25):
            trial = w + length * direction
            values, gradients = batch(trial.reshape(shape))
            if values[0] <= value + 1e-4 * length * slope:
                break
            length *= 0.4
        else:
            break
        gained, s, y = value - float(values[0]), trial - w, gradients.ravel() - gradient
        w, value, gradient = trial, float(values[0]), gradients.ravel()
        if on_step is not None:
            on_step(value)
        if gained <= tol * abs(value):
            break
        if float(s @ y) > max(1e-12 * np.sqrt(float(s @ s) * float(y @ y)), 1e-200):
            hy = y if metric is None else metric.solve(y.reshape(shape)).ravel()
            S, Y, HY = (np.vstack([M[1 - _PAIRS :], v]) for M, v in ((S, s), (Y, y), (HY, hy)))
    return w.reshape(shape), np.array([value]), steps


def _inverse_by_products(g: Array, scaled: Array, S: Array, Y: Array, HY: Array) -> Array:
    """`inverse_hessian` of one gradient g, whose product with the inverse of the metric is `scaled`, as matrices.

    It is the compact form of Byrd, Nocedal and Schnabel (1994); HY is Y times the inverse of the metric.
    """
    if not len(S):
        return scaled
    products = S @ Y.T
    unit = products[-1, -1] / float(HY[-1] @ Y[-1])
    u, _ = scipy.linalg.lapack.dtrtrs(products, S @ g)
    right = products.diagonal() * u + unit * (Y @ (u @ HY) - HY @ g)
    v, _ = scipy.linalg.lapack.dtrtrs(products, right, trans=1)
    return unit * (scaled - u @ HY) + v @ S


def _inner(a: Array, b: Array) -> Array:
    return np.einsum("srp,srp->s", a, b)


def inverse_hessian(
    G: Array, pairs: Sequence[tuple[Array, Array, Array]], solve: Callable[[Array], Array] | None
) -> Array:
    """The two-loop recursion of L-BFGS on gradients G (S, r, p); `solve` applies the inverse of the metric.

    None means the identity. A pair is a step, the change of the gradient, and 1 / <step, change> (S,), or 0 if the pair
    is not to be used.
    """
    q = G.copy()
    alphas = []
    for s, y, rho in reversed(pairs):
        alphas.append(rho * _inner(s, q))
        q -= alphas[-1][:, None, None] * y
    r = q if solve is None else solve(q)
    if pairs:
        _, y, rho = pairs[-1]
        length = _inner(y, y if solve is None else solve(y)) * rho
        r = r * np.where(length > 0, 1.0 / np.where(length > 0, length, 1.0), 1.0)[:, None, None]
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        r += (alpha - rho * _inner(y, r))[:, None, None] * s
    return r


def _backtrack(
    batch: Batch, W: Array, values: Array, gradients: Array, direction: Array, slope: Array, step: Array
) -> tuple[Array, Array, Array]:
    """Shorten the steps of starts that have not decreased enough, up to 25 times; one that never does stays in place.

    Returns the new points, their values and their gradients.
    """
    moved, new_values, new_gradients = W.copy(), values.copy(), gradients.copy()
    waiting = np.arange(len(W))
    for _ in range(25):
        trial = W[waiting] + step[waiting, None, None] * direction[waiting]
        trial_values, trial_gradients = batch(trial)
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
