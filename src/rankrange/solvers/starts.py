"""Starts of a search: the ordinary fit, fits without the rows of highest leverage, and random starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.cuts import values_at
from ..core.objective import Design, Objective
from .descent import Metric, add_diagonal

# Largest number of rows for a rough metric.
_METRIC_ROWS = 20_000


def rough_metric(objective: Objective, weight: Array) -> Metric:
    """An approximate Hessian at zero scores: a quarter of the weighted mean of x x', plus the penalty.

    With many rows the mean is over a subset. With many columns only the diagonal is computed.
    """
    rows = np.flatnonzero(weight)[:: 1 + np.count_nonzero(weight) // _METRIC_ROWS]
    shown = weight[rows].astype(np.float64)
    matrix = objective.design.spread(shown, rows) * (0.25 / max(float(shown.sum()), 1.0))
    return Metric(add_diagonal(matrix, objective.penalty_diagonal()))


def low_leverage_rows(objective: Objective) -> tuple[Array, Array]:
    """Two masks (n,) without the share m/n of the rows of highest leverage: overall, and in the main direction.

    The main direction is that of the largest variance. A cluster that distorts the fit need not be extreme in any
    column or in total, but it increases the variance in its direction.
    """
    centred = _standardised(objective.design)
    direction = np.ones(objective.design.d)
    for _ in range(10):  # power iterations; a rough direction is enough
        direction = centred.T @ (centred @ direction)
        direction /= max(float(np.linalg.norm(direction)), 1e-300)
    share = 1.0 - objective.m / objective.total
    squares = centred.multiply(centred) if objective.design.sparse else centred**2
    total, along = np.asarray(squares.sum(axis=1)).ravel(), np.abs(centred @ direction)
    last = int(share * (len(total) - 1))  # np.quantile would take as long as all other steps
    return total <= np.partition(total, last)[last], along <= np.partition(along, last)[last]


def _standardised(design: Design) -> Any:
    """The rows, centred by medians and scaled by median (if 0, mean) absolute deviations.

    Medians are those of at most 256 rows. Sparse rows are not centred, and are scaled by the root mean square of each
    column.
    """
    if design.sparse:
        spread = np.sqrt(np.asarray(design.X.multiply(design.X).mean(axis=0)).ravel())
        return design.X @ sp.diags_array(1.0 / np.where(spread > 0, spread, 1.0))
    X = np.asarray(design.X, dtype=np.float64)
    few = np.ascontiguousarray(X[:: -(-len(X) // 256)].T)  # medians of about 200 rows are accurate enough
    centre = np.median(few, axis=1)
    spread = np.median(np.abs(few - centre[:, None]), axis=1)
    centred = X - centre
    centred /= np.where(spread > 0, spread, np.where(centred.any(axis=0), np.abs(centred).mean(axis=0), 1.0))
    return centred


def simple_and_random_starts(
    objective: Objective, low_leverage: tuple[Array, Array], metric: Metric, n_random: int, rng: np.random.Generator
) -> Array:
    """Starts (3 + n_random, r, p): rough fits to all rows and to both sets of low-leverage rows, then random starts.

    `metric` is the rough metric of the first of these sets.
    """
    all_rows = np.ones_like(low_leverage[0])
    fits = [one_step(objective, rows, rough_metric(objective, rows)) for rows in (all_rows, low_leverage[1])]
    fits.append(one_step(objective, low_leverage[0], metric))
    return np.concatenate([np.array(fits), random_starts(objective, metric, n_random, rng)])


def one_step(objective: Objective, rows: Array, metric: Metric) -> Array:
    """A rough ordinary fit (r, p) to the rows of a mask: one step from zero with the metric as Hessian."""
    zero = np.zeros((objective.n_outputs, objective.design.p))
    return -metric.solve(objective.average(rows).at(zero).gradient)


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
    middle = _medians(Z)
    deviation = _medians(np.abs(Z - middle[:, None]))
    scale = np.where(deviation > 0, 2.0 / np.where(deviation > 0, deviation, 1.0), 1.0)
    if design.fit_intercept:
        W[:, -1] = -middle
    return W * scale[:, None]


def _medians(values: Array) -> Array:
    """The median of each row, without the checks of np.median, which are slow for few rows."""
    half, low = values.shape[1] // 2, (values.shape[1] - 1) // 2
    below, above = values_at(values, (low, half))
    return 0.5 * (below.astype(np.float64) + above)


def _fit_of_few(objective: Objective, metric: Metric, rng: np.random.Generator) -> Array:
    design, several = objective.design, objective.n_outputs > 1
    chosen = np.zeros(design.n, dtype=bool)
    size = 10 * objective.n_outputs if several else design.p + 2
    chosen[rng.choice(design.n, min(design.n, size), replace=False)] = True
    return one_step(objective, chosen, metric if several else rough_metric(objective, chosen))
