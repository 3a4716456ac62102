"""One path of m: fits of one linear model that drop increasing shares of the rows, walked in both directions.

Upwards each fit starts at that of the next smaller share, the first at the ordinary fit. Downwards each starts at that
of the next larger share, or at a fit without the most distant rows if its objective is lower there. Of the two fits at
a share the one with the lower objective stays: outliers that bias the ordinary fit hold back the path upwards only.

C is scikit-learn's C of all rows. A fit to a part of the rows has the same penalty relative to the mean of its losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.objective import Objective
from ..solvers import Settings, solve
from ..solvers.concentration import concentrate
from .folds import Folds

# Hessians of a fit on the path, Newton steps with each, Hessians of an ordinary fit, and the least relative gain of a
# step. With one Hessian half of the gain at 30% symmetric noise is lost; more cost time and gain nothing.
_HESSIANS, _STEPS, _ORDINARY_STEPS, _TOL = 2, 4, 15, 1e-4


def with_C(objective: Objective, C: float) -> Objective:
    """The objective with another C, in the sense of scikit-learn."""
    return replace(objective, C=C * objective.kept)


def part_of(objective: Objective, rows: Array) -> Objective:
    """The objective on these rows with m = 0, the same share k, and the same penalty relative to the mean loss."""
    part = objective.rows(rows, 0, 1)
    k = part.total * objective.k / objective.total
    k = max(1.0, np.rint(k)) if _counts(part) else k
    return replace(part, k=k, C=objective.C_of_sum * objective.total / part.total * k)


def dropping(objective: Objective, share: float) -> Objective:
    """The objective that drops this share of the mass; a count if masses are counts, at most k - 1."""
    m = share * objective.total
    return objective.ranked(min(np.rint(m), objective.k - 1) if _counts(objective) else m, objective.k)


def _counts(objective: Objective) -> bool:
    mass = objective.sample_weight
    return mass is None or bool((mass == np.floor(mass)).all())


def ordinary_fit(objective: Objective, start: Array | None = None) -> Array:
    """The fit (r, p) that drops no rows."""
    W = np.zeros((objective.n_outputs, objective.design.p)) if start is None else start
    if start is None and objective.k < objective.total:  # at zero the losses of classes are tied
        W = ordinary_fit(objective.ranked(0, objective.total))
    return concentrate(objective.ranked(0, objective.k), W, rounds=_ORDINARY_STEPS, steps=1, tol=_TOL)[0]


def upwards(objective: Objective, shares: Sequence[float] | Array, start: Array) -> list[tuple[float, Array]]:
    """The objective and the fit (r, p) at each of these increasing shares; each fit starts at the one before."""
    path = []
    for share in shares:
        start, value = _fit(dropping(objective, share), start)
        path.append((value, start))
    return path


def walk(objective: Objective, shares: Sequence[float] | Array) -> Array:
    """The fits (M, r, p) at increasing shares, of which the first is 0, walked in both directions."""
    ordinary = ordinary_fit(objective)
    path = [(objective.value(ordinary), ordinary), *upwards(objective, shares[1:], ordinary)]
    nearest, near = np.argsort(robust_distances(objective), kind="stable"), 0.0 * ordinary
    last = _searched(dropping(objective, shares[-1])) if objective.loss.targets == "numbers" else None
    for i in reversed(range(1, len(shares))):
        here = dropping(objective, shares[i])
        near = _without_distant(objective, nearest, shares[i], near)
        last = near if last is None else min(near, last, key=here.value)
        last, value = _fit(here, last)
        path[i] = min(path[i], (value, last), key=lambda fit: fit[0])
    return np.array([W for _, W in path])


def _fit(objective: Objective, start: Array) -> tuple[Array, float]:
    return concentrate(objective, start, rounds=_HESSIANS, steps=_STEPS, tol=_TOL)


def _searched(objective: Objective) -> Array:
    """The fit of a search from many starts: clustered outliers are not distant if they are nearly half of the rows."""
    with np.errstate(over="ignore", invalid="ignore"):  # a start that overflows is discarded
        return solve(objective, None, Settings(tol=1e-2, max_iter=20, n_starts=1)).w


def _without_distant(objective: Objective, nearest: Array, share: float, start: Array) -> Array:
    """A rough ordinary fit to the rows that are left without this share of the mass of the most distant ones."""
    reached = np.cumsum(objective.mass[nearest], dtype=np.float64)
    rows = nearest[: max(1, int(np.searchsorted(reached, (1.0 - share) * reached[-1], side="right")))]
    return concentrate(part_of(objective, np.sort(rows)), start, rounds=1, steps=3, tol=_TOL)[0]


def robust_distances(objective: Objective) -> Array:
    """The squared distance (n,) of each row from the median, in robust scales of the columns; of a numeric y as well.

    A column in which most rows have one value has no robust scale and is divided by its mean absolute deviation.
    """
    X = objective.design.X
    if sp.issparse(X):
        scale = np.asarray(abs(X).mean(axis=0), dtype=np.float64).ravel()
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        return np.asarray((X @ sp.diags(inverse)).power(2).sum(axis=1)).ravel()
    X = X if objective.loss.targets != "numbers" else np.column_stack([X, objective.y])
    away = np.abs(X - np.median(X, axis=0))
    scale = np.median(away, axis=0)
    scale = np.where(scale > 0, scale, away.mean(axis=0))
    return np.asarray(((away / np.where(scale > 0, scale, 1.0)) ** 2).sum(axis=1), dtype=np.float64)


def out_of_fold(objective: Objective, folds: Folds, W: Array) -> list[tuple[Array, Array]]:
    """For each fold its test rows, and their scores (M, r, rows) under the fits W (M, F, r, p)."""
    parts = []
    for fold, test in enumerate(folds.test):
        rows = np.flatnonzero(test)
        design = objective.design.take(rows)
        flat = design.scores(np.ascontiguousarray(W[:, fold]).reshape(-1, design.p))
        parts.append((rows, np.ascontiguousarray(flat).reshape(len(W), W.shape[2], len(rows))))
    return parts
