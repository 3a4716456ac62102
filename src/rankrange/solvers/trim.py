"""The trim search: which rows to drop, from several starts, on a sample if there are many rows.

With m > 0, F has many local minima, and the start determines which one is found. Every start is a rough fit to some of
the rows: to all of them, to those of low leverage, or to a few random ones. Concentration steps from all starts are
compared on a sample, the best are continued, and the search goes on next to the lowest: from the minima of neighbouring
problems, with another m or C, and from random halves of the rows that it keeps. The end is refined on all rows, and the
convex problem of the kept rows is solved until they repeat, which proves a certificate. With m = 0 one start is enough.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.cuts import Ranked
from ..core.objective import Design, Objective
from .concentration import concentrate, hessian
from .descent import Log, Metric, Result, add_diagonal, descend, relative
from .polish import bilevel, minimise_convex

# Largest number of rows for a rough metric.
_METRIC_ROWS = 20_000
# The largest sample if m leaves few rows of the rare classes.
_MOST_SAMPLED = 20_000
# The largest number of neighbouring problems.
_MOST_NEIGHBOURS = 20
# Small tables with an l1 penalty, by the entries of X (times outputs), have more random starts, and restarts.
_SMALL, _MORE_STARTS, _ROUNDS = 10_000, 6, 3
# An intercept with which losses are nearly zero, and whose exponential is finite in float32.
_LARGE_INTERCEPT = 80.0


def search(objective: Objective, start: Array | None, settings: Any) -> Result:
    """Minimise over coefficients and dropped rows; `start` (outputs, p) are the coefficients of one more start.

    If m suffices to drop all classes but one, the search ends at once.
    """
    if objective.m == 0:
        return minimise_convex(objective, start, settings)
    left = one_class_left(objective, settings.log)
    if left is not None:
        return left
    W = near_minimum(objective, start, settings)
    return bilevel(objective, W, tol=settings.tol, max_iter=settings.max_iter, log=settings.log, phase="polish")


def near_minimum(objective: Objective, start: Array | None, settings: Any) -> Array:
    """Coefficients (r, p) near the lowest minimum that is found for m > 0; parameters as in `search`."""
    rng, max_iter = settings.rng, settings.max_iter
    sample = subsample(objective, sample_rows(objective), rng)
    centred = Centred.of(sample)
    part, near = centred.objective, low_leverage_rows(centred.objective)
    metric = rough_metric(part, near[0])
    starts = [_starts(part, near, metric, settings.n_starts, rng)]
    starts += [] if start is None else [centred.inward(start)[None]]
    simple = centred.outward(np.concatenate([starts[0][:4], *starts[1:]]))
    ends, values = _screened(part, np.concatenate(starts), metric, sample is not objective, max_iter)
    settings.log("screen", float(values[0]))
    if sample is objective:
        curved = Metric(hessian(part, ends[0]))
        W = improved(part, ends[0], float(values[0]), curved, len(_NEIGHBOURS), max_iter)
        if settings.n_starts and _is_small_net(part):
            W = _restarted(part, W, curved, settings)
        return centred.outward(W)
    # The sample does not rank its minima reliably.
    ends = centred.outward(ends[values < 1.2 * values[0] + 1e-12])
    return _on_all_rows(objective, min(np.concatenate([ends, simple]), key=objective.value), max_iter)


def _screened(part: Objective, starts: Array, metric: Metric, is_sample: bool, max_iter: int) -> tuple[Array, Array]:
    """The ends of the best starts, lowest first, with distinct values."""
    rounds = ((5, 6), (3, 8)) if is_sample else ((5, 8),)
    # In a small table with an l1 penalty the order after a few steps does not predict the final one.
    for survivors, steps in () if _is_small_net(part) else rounds:
        starts, values, _ = _steps(part, starts, metric, min(steps, max_iter), 1e-4)
        starts = starts[np.argsort(values, kind="stable")[:survivors]]
    ends, values, _ = _steps(part, starts, metric, min(100, max_iter), 1e-4 if is_sample else 1e-5)
    best = _distinct(values)
    return ends[best], values[best]


def _steps(objective: Objective, starts: Array, metric: Metric, max_iter: int, tol: float) -> tuple[Array, Array, int]:
    """Quasi-Newton steps as in `descend`; with an l1 penalty proximal Newton steps, of which a quarter is enough."""
    if not objective.l1_ratio:
        return descend(objective.batch, starts, metric, max_iter=max_iter, tol=tol)
    ends = [concentrate(objective, W, rounds=-(-max_iter // 4), steps=1, tol=tol) for W in starts]
    return np.array([W for W, _ in ends]), np.array([value for _, value in ends]), 0


def _on_all_rows(objective: Objective, W: Array, max_iter: int) -> Array:
    """Quasi-Newton steps on all rows in the metric of a sample, and the first of the neighbouring problems."""
    centred = Centred.of(objective)
    part = centred.objective
    W = centred.inward(W)
    for _ in range(2):
        metric = Metric(hessian(part, W))
        ends, values, steps = _steps(part, W[None], metric, min(50, max_iter), 1e-5)
        W = ends[0]
        if steps < 50:
            break
    return centred.outward(improved(part, W, float(values[0]), metric, 1, max_iter))


def _distinct(values: Array) -> Array:
    """The indices of distinct values, lowest first."""
    order = np.argsort(values, kind="stable")
    return order[np.diff(values[order], prepend=-np.inf) > 1e-6 * np.abs(values[order])]


def improved(objective: Objective, W: Array, value: float, metric: Metric, patience: int, max_iter: int) -> Array:
    """The lowest minimum found from those of neighbouring problems; ends after `patience` failures in a row.

    With another m or C other rows are near the cut, and the steps may end in another minimum of F. To gain less than
    0.1% counts as a failure: that is mostly the same minimum, which the solver of the kept rows finds faster.
    """
    failures = 0
    for _ in range(min(_MOST_NEIGHBOURS, max_iter)):
        near, _, _ = _steps(_NEIGHBOURS[failures](objective), W[None], metric, min(10, max_iter), 1e-4)
        ends, values, _ = _steps(objective, near, metric, min(100, max_iter), 1e-5)
        if values[0] < value * (1.0 - 1e-3):
            W, value, failures = ends[0], float(values[0]), 0
        else:
            failures += 1
        if failures == patience:
            break
    return W


def _restarted(objective: Objective, W: Array, metric: Metric, settings: Any) -> Array:
    """The lowest minimum found from fits to random halves of the rows that W keeps, which are mostly regular."""
    value = objective.value(W)
    for _ in range(_ROUNDS):
        kept = objective.at(W).weights > 0
        halves = kept & (settings.rng.random((settings.n_starts, len(kept))) < 0.5)
        starts = [one_step(objective, half, rough_metric(objective, half)) for half in halves if half.any()]
        if not starts:
            break
        ends, values, _ = _steps(objective, np.array(starts), metric, min(100, settings.max_iter), 1e-5)
        best = int(values.argmin())
        if not values[best] < value * (1.0 - 1e-5):
            break
        W, value = ends[best], float(values[best])
    return W


def _cutting(objective: Objective, factor: float) -> Objective:
    """The same objective with m multiplied by this factor; k moves by as much, but not beyond all rows."""
    m = min(objective.m * factor, 0.9 * objective.total)
    m = m if objective.sample_weight is not None else max(1, round(m))
    return replace(objective, m=m, k=min(objective.total, objective.k + m - objective.m))


# Neighbouring problems, in the order in which they are tried.
_NEIGHBOURS = (
    lambda objective: _cutting(objective, 0.8),
    lambda objective: _cutting(objective, 1.2),
    lambda objective: replace(objective, C=0.03 * objective.C),
)


def _starts(objective: Objective, near: Array, metric: Metric, n_starts: int, rng: np.random.Generator) -> Array:
    """Starts (S, r, p): rough fits to all rows and to both sets of low-leverage rows, then random starts."""
    every = np.ones(objective.design.n, dtype=bool)
    fits = [one_step(objective, rows, rough_metric(objective, rows)) for rows in (every, near[1])]
    fits.append(one_step(objective, near[0], metric))
    if objective.n_outputs == 1 and objective.loss.targets == "binary" and objective.design.fit_intercept:
        fits.append(_start_without_rare_rows(objective))
    count = n_starts * (_MORE_STARTS if _is_small_net(objective) else 1)
    return np.concatenate([np.array(fits), random_starts(objective, metric, count, rng)])


def _is_small_net(objective: Objective) -> bool:
    return objective.l1_ratio > 0 and objective.design.n * objective.design.p * objective.n_outputs <= _SMALL


def rough_metric(objective: Objective, weight: Array) -> Metric:
    """An approximate Hessian at zero scores: a quarter of the weighted mean of x x', plus the penalty.

    With many rows the mean is over a subset. With many columns only the diagonal is computed.
    """
    rows = np.flatnonzero(weight)[:: 1 + np.count_nonzero(weight) // _METRIC_ROWS]
    shown = weight[rows].astype(np.float64)
    matrix = objective.design.spread(shown, rows) * (0.25 / max(float(shown.sum()), 1.0))
    return Metric(add_diagonal(matrix, replace(objective, l1_ratio=0.0).penalty_diagonal()))


def one_step(objective: Objective, rows: Array, metric: Metric) -> Array:
    """A rough ordinary fit (r, p) to the rows of a mask: one step from zero with the metric as Hessian.

    With an l1 penalty it takes three proximal Newton steps.
    """
    zero, part = np.zeros((objective.n_outputs, objective.design.p)), objective.rows(np.flatnonzero(rows), 0, 1)
    part = replace(part, k=part.total)
    if objective.l1_ratio:
        return concentrate(part, zero, rounds=3, steps=1)[0]
    return -metric.solve(part.at(zero).gradient)


def random_starts(objective: Objective, metric: Metric, count: int, rng: np.random.Generator) -> Array:
    """Random starts (count, r, p): scaled `pair_direction` for two classes, otherwise rough fits to a few rows."""
    shape = (count, objective.n_outputs, objective.design.p)
    if objective.loss.targets == "binary":
        every = np.arange(objective.design.n)
        directions = np.array([pair_direction(objective, every, rng) for _ in range(count)]).reshape(-1, shape[2])
        return scaled_directions(objective.design, directions).reshape(shape)
    return np.array([_fit_of_few(objective, metric, rng) for _ in range(count)]).reshape(shape)


def pair_direction(objective: Objective, rows: Array, rng: np.random.Generator) -> Array:
    """The sum (p,) of two random rows out of `rows`, each multiplied by its label -1 or +1; the intercept is 0.

    If the labels differ, it is the direction between the two rows.
    """
    pair = rng.choice(rows, 2)
    X = objective.design.X[pair]
    w = np.zeros(objective.design.p)
    w[: objective.design.d] = ((X.toarray() if objective.design.sparse else X) * objective.y[pair, None]).sum(axis=0)
    return w


def scaled_directions(design: Design, W: Array) -> Array:
    """Scale directions W (S, p) so that their scores have median absolute deviation 2 and, with an intercept, median 0.

    The intercepts in W must be 0 and are overwritten. A direction whose deviation is 0 is not scaled.
    """
    Z = np.ascontiguousarray(design.scores(W))
    middle = np.median(Z, axis=1)
    deviation = np.median(np.abs(Z - middle[:, None]), axis=1)
    scale = np.where(deviation > 0, 2.0 / np.where(deviation > 0, deviation, 1.0), 1.0)
    if design.fit_intercept:
        W[:, -1] = -middle
    return W * scale[:, None]


def _fit_of_few(objective: Objective, metric: Metric, rng: np.random.Generator) -> Array:
    design, several = objective.design, objective.n_outputs > 1
    chosen = np.zeros(design.n, dtype=bool)
    size = 10 * objective.n_outputs if several else design.p + 2
    few = max(3, design.n // 8)  # with many columns, larger sets would hardly differ
    chosen[rng.choice(design.n, min(design.n, size, few), replace=False)] = True
    return one_step(objective, chosen, metric if several else rough_metric(objective, chosen))


def _start_without_rare_rows(objective: Objective) -> Array:
    """A start (1, p) with equal scores: the intercept that is best if all m dropped rows are of the rare class."""
    masses = np.bincount(objective.strata, weights=objective.sample_weight, minlength=2)
    left = max(float(masses.min()) - objective.m, 0.5)
    W = np.zeros((1, objective.design.p))
    W[0, -1] = (1.0 if masses[1] > masses[0] else -1.0) * math.log(max(float(masses.max()) / left, 1.0))
    return W


def low_leverage_rows(objective: Objective) -> Array:
    """Two masks (2, n) without the share m/n of the rows of highest leverage: overall, and in the main direction.

    The main direction is that of the largest variance. A cluster that distorts the fit need not be extreme in any
    column or in total, but it increases the variance in its direction.
    """
    centred = _standardised(objective.design)
    direction = np.ones(objective.design.d)
    for _ in range(10):  # power iterations; a rough direction is enough
        direction = centred.T @ (centred @ direction)
        direction /= max(float(np.linalg.norm(direction)), 1e-300)
    squares = centred.multiply(centred) if objective.design.sparse else centred**2
    leverages = np.array([np.asarray(squares.sum(axis=1)).ravel(), np.abs(centred @ direction)])
    last = int((1.0 - objective.m / objective.total) * (objective.design.n - 1))
    return leverages <= np.partition(leverages, last, axis=1)[:, last : last + 1]


def _standardised(design: Design) -> Any:
    """The rows, centred by medians and scaled by median (if 0, mean) absolute deviations.

    Sparse rows are not centred, and are scaled by the root mean square of each column.
    """
    if design.sparse:
        spread = np.sqrt(np.asarray(design.X.multiply(design.X).mean(axis=0)).ravel())
        return design.X @ sp.diags_array(1.0 / np.where(spread > 0, spread, 1.0))
    few = design.X[:: -(-design.n // 256)].T  # medians of about 200 rows are accurate enough
    centre = np.median(few, axis=1)
    spread = np.median(np.abs(few - centre[:, None]), axis=1)
    centred = design.X - centre
    return centred / np.where(spread > 0, spread, np.where(centred.any(axis=0), np.abs(centred).mean(axis=0), 1.0))


class Centred(NamedTuple):
    """An objective in float64 with the means subtracted from the columns of X, and the means (None: nothing changed).

    With an intercept this does not change the problem, but starts and Hessians are better.
    """

    objective: Objective
    means: Array | None

    @classmethod
    def of(cls, objective: Objective) -> Centred:
        """The objective with centred columns; unchanged if X is sparse or there is no intercept."""
        design = objective.design
        if design.sparse or not design.fit_intercept:
            return cls(objective, None)
        means = design.X.mean(axis=0, dtype=np.float64)
        other = Design(design.X - means, True)
        other.factored = design.factored
        return cls(replace(objective, design=other), means)

    def inward(self, W: Array) -> Array:
        """The parameters (..., p) of the centred objective that have the scores of W."""
        return self._moved(W, 1.0)

    def outward(self, W: Array) -> Array:
        """The inverse of `inward`."""
        return self._moved(W, -1.0)

    def _moved(self, W: Array, sign: float) -> Array:
        if self.means is None:
            return W
        moved = W.copy()
        moved[..., -1] += sign * (W[..., :-1] @ self.means)
        return moved


def one_class_left(objective: Objective, log: Log) -> Result | None:
    """The minimum if m suffices to drop all classes but one and there is an intercept; otherwise None.

    F decreases to zero along the intercept of the remaining class, and the result has an intercept at which it is
    nearly zero. None also for numeric targets and for aggregates other than the ranked range.
    """
    if objective.m <= 0 or not objective.design.fit_intercept or objective.loss.targets not in ("binary", "classes"):
        return None
    if not isinstance(objective.aggregate, Ranked):
        return None
    masses = np.bincount(objective.strata, weights=objective.sample_weight)
    if objective.total - float(masses.max()) > objective.m:
        return None
    left = int(masses.argmax())
    W = np.zeros((objective.n_outputs, objective.design.p))
    if objective.n_outputs == 1:
        W[0, -1] = _LARGE_INTERCEPT if left else -_LARGE_INTERCEPT
    else:
        W[:, -1] = _LARGE_INTERCEPT * (np.arange(objective.n_outputs) == left)
    value = objective.value(W)
    log("trivial", value)
    message = "only one class remains after the cut: any other fit is worse"
    # F is not negative, so its value bounds the possible gain.
    return Result(W, value, 0, True, message, log.history, relative(value, value))


def sample_rows(objective: Objective) -> int:
    """The number of rows of the sample: twelve per column, within limits.

    If m leaves few rows of the rare classes, the sample is large enough to expect two of them per column.
    """
    p, r = objective.design.p, objective.n_outputs
    left = max(min(objective.total, _rare_mass(objective) - objective.m), 1.0) / objective.total
    return max(min(12 * p, 4000, int(2e7 / (p * r))), 600, math.ceil(min(2 * p / left, _MOST_SAMPLED)))


def subsample(objective: Objective, size: int, rng: np.random.Generator) -> Objective:
    """The objective on `size` random rows with the same shares m/n and k/n; on all rows if n is at most 2 size.

    A sample may have more outliers than expected, and without the good minimum if too many are left. Therefore m and k
    are raised by 2.5 standard deviations of their number, unless m = 0. m is lowered again if it would leave less than
    half of the share of the rare classes that it leaves of all rows: without these classes, a constant model fits
    perfectly. With sample weights, masses are the numbers of times that the rows were drawn.
    """
    n = objective.design.n
    if n <= 2 * size:
        return objective
    rows, mass = _drawn(objective, size, rng)
    shares = objective.m / objective.total, objective.k / objective.total
    spread = 2.5 * math.sqrt(size * shares[0] * (1.0 - shares[0]))
    m, k = (round(min(share * size + spread, size)) for share in shares)
    k = min(size, max(k, m + 1))
    part = replace(objective.rows(rows, min(m, round(0.9 * k)), k), sample_weight=mass)
    most = most_dropped(objective, part)
    return part if part.m <= most else replace(part, m=most if mass is not None else math.floor(most))


def most_dropped(objective: Objective, part: Objective) -> float:
    """The largest m that leaves a sample `part` half of the share of the rare classes that m leaves of all rows."""
    rare = _rare_mass(objective)
    left = max(0.0, 1.0 - objective.m / rare) if rare > 0 else 0.0
    return (1.0 - 0.5 * left) * _rare_mass(part)


def _drawn(objective: Objective, size: int, rng: np.random.Generator) -> tuple[Array, Array | None]:
    """Draw `size` rows: the distinct rows in order, and the number of times that each was drawn (None: once each).

    With sample weights, rows are drawn with replacement, in proportion to their weights.
    """
    n, mass = objective.design.n, objective.sample_weight
    if mass is None:
        return np.sort(rng.choice(n, size, replace=False)), None
    times = np.bincount(rng.choice(n, size, p=mass / mass.sum()), minlength=n)
    rows = np.flatnonzero(times)
    return rows, times[rows].astype(np.float64)


def _rare_mass(objective: Objective) -> float:
    """The mass of all classes but the largest; infinite for a numeric target."""
    if objective.loss.targets not in ("binary", "classes"):
        return math.inf
    masses = np.bincount(objective.strata, weights=objective.sample_weight)
    return objective.total - float(masses.max())
