"""Out-of-fold predictions of an ordinary linear fit, of one that drops suspect rows, and of nearest neighbours.

A linear model hardly overfits wrong labels, and neighbours find structure that it misses. All predict the labels as
given. Predictions of rows with missing cells are made less confident if that makes the labels more likely.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import log_softmax, softmax
from sklearn.neighbors import NearestNeighbors

from ..core.arrays import Array
from ..core.losses import Logistic, Softmax
from ..core.objective import Design, Objective
from ..core.row_space import spanned
from ..core.transition import wrong_rate
from ..core.two_values import Side, sides
from .folds import Folds, Report, silent
from .held_out import best_C
from .path import FoldFits, out_of_fold, with_C
from .path import trimmed_fits as fits_dropping

Parts = list[tuple[Array, Array]]
# The largest share of rows that a fit of two classes drops.
_MAX_CUT = 0.45
# The number of neighbours, and the largest number of rows to search.
_NEIGHBOURS, POOL = 15, 20_000
# The largest number of pairs to compare; with few columns, a tree avoids most pairs.
_PAIRS, _PAIRS_FEW, _FEW_COLUMNS = 1e9, 6e9, 6
# Class shares of neighbours are shrunk towards the overall shares with the weight of this many rows.
_SMOOTH = 2.0
# Candidate temperatures; for rows with missing cells the largest numbers of rows and columns for fitting them and the
# least gain in log likelihood; and the least probability.
_TEMPERATURES = np.exp(np.arange(-1.5, 3.1, 0.25))
_FITTED_ON, _FOLLOWED, _GAIN, _LEAST = 4_000, 5, 1.0, 1e-4


def logistic_objective(
    X: Any, codes: Array, n_classes: int, fit_intercept: bool = True, mass: Array | None = None
) -> Objective:
    """The objective with m = 0, k = n and C = 1 of a logistic (softmax) model of labels 0..n_classes-1."""
    n, design = len(codes), Design(X, fit_intercept)
    if n_classes == 2:
        y, loss, outputs = (2 * codes - 1).astype(X.dtype), Logistic(), 1
        return Objective(design, y, loss, 1.0, outputs, m=0, k=n, sample_weight=mass)
    return Objective(design, codes, Softmax(), 1.0, n_classes, m=0, k=n, sample_weight=mass)


def trimmed_fits(
    objective: Objective,
    codes: Array,
    folds: Folds,
    C: float | None,
    report: Report = silent,
) -> tuple[FoldFits, Parts]:
    """Three fits of each fold, and for each fold its test rows and their scores (3, r, rows).

    The fits drop no rows, half of the estimated share of wrong labels, and this share, which is at least one row and at
    most 45% of the rows, 60% with more than two classes. C is scikit-learn's; None chooses it. With fewer rows than
    columns the coefficients of the fits are in coordinates of the rows' span.
    """
    objective = replace(objective, design=Design(spanned(objective.design.X), objective.design.fit_intercept))
    mass = objective.mass
    objective = replace(objective, k=objective.total)
    C = best_C(objective, folds, np.random.default_rng(0)) if C is None else C
    objective = with_C(objective, C)
    ordinary = fits_dropping(objective, folds, [0.0]).W[0]
    report(f"{len(folds)} ordinary fits, C = {C:g}")
    scores = folds.average([log_probabilities(Z)[0] for _, Z in out_of_fold(objective, folds, ordinary[None])])
    # rows that are in no training set have high leverage and are ignored
    predicted = folds.tested & folds.train.any(axis=0)
    rate = wrong_rate(scores[predicted], codes[predicted], None if mass.dtype == bool else mass[predicted])
    share = min(max(rate, 1.0 / len(codes)), _MAX_CUT if objective.n_outputs == 1 else 0.6)
    fits = fits_dropping(objective, folds, [0.0, 0.5 * share, share], ordinary)
    report(f"{2 * len(folds)} fits that cut up to {share:.1%} of the rows")
    return fits, out_of_fold(objective, folds, fits.W)


def log_probabilities(Z: Array) -> Array:
    """Log probabilities (candidates, rows, classes) from scores (candidates, 1 or classes, rows)."""
    full = np.stack([np.zeros_like(Z[:, 0]), Z[:, 0]], axis=1) if Z.shape[1] == 1 else Z
    return np.asarray(log_softmax(full, axis=1).transpose(0, 2, 1))


def linear_predictions(
    X: Any, codes: Array, n_classes: int, folds: Folds, mass: Array | None = None
) -> tuple[Array, ...]:
    """Out-of-fold probabilities (n, n_classes) of the ordinary and of the trimmed linear fit."""
    objective = logistic_objective(X, codes, n_classes, mass=mass)
    _, parts = trimmed_fits(objective, codes, folds, None)
    logs = [log_probabilities(Z) for _, Z in parts]
    return tuple(np.exp(folds.average([log[candidate] for log in logs])) for candidate in (0, 2))


def label_shares(
    X: Any, codes: Array, n_classes: int, rows: Array, rng: np.random.Generator, mass: Array | None = None
) -> Array:
    """Array (rows, n_classes): the class shares among the neighbours of these rows, excluding the row itself.

    There are 15 neighbours, with many rows from a sample of them; a row of weight 2 counts as two. Columns of a dense X
    are scaled to unit variance. Shares are shrunk towards those of all other rows.
    """
    overall = shares_without_each(codes, n_classes, mass)[rows]
    return _shares(codes, n_classes, _neighbours(_alike(X), rows, rng, mass), mass, overall)


def multilabel_shares(X: Any, Y: Array, rng: np.random.Generator) -> Array:
    """Array (n, labels): the share of neighbours for which each label of Y (n, labels) is true, as in `label_shares`.

    The neighbours are searched once for all labels.
    """
    near, found = _neighbours(_alike(X), np.arange(X.shape[0]), rng, None), []
    for label in Y.T.astype(np.intp):
        found.append(_shares(label, 2, near, None, shares_without_each(label, 2, None))[:, 1])
    return np.column_stack(found)


def _alike(X: Any) -> Any:
    """X with columns of unit variance; a sparse X is unchanged."""
    if sp.issparse(X):
        return X
    spread = X.std(axis=0)
    return X / np.where(spread > 0, spread, 1.0)


def label_shares_by_fold(X: Any, codes: Array, n_classes: int, folds: Folds, mass: Array | None = None) -> Array:
    """Array (n, n_classes): class shares among the 15 nearest training rows, averaged over the test folds of a row.

    Shares are shrunk towards those of all training rows. X is not scaled. Rows that no fold tests are NaN.
    """
    parts = []
    for train, test in zip(folds.train, folds.test, strict=True):
        pool = np.flatnonzero(train if mass is None else train & (mass > 0))
        near = pool[_nearest(X, pool, np.flatnonzero(test), min(_NEIGHBOURS, len(pool)))]
        counts = np.bincount(codes[pool], None if mass is None else mass[pool], n_classes)
        parts.append(_shares(codes, n_classes, near, mass, counts / counts.sum()))
    return folds.average(parts)


def shares_without_each(codes: Array, n_classes: int, mass: Array | None) -> Array:
    """Array (n, n_classes): the class shares among all other rows (leave-one-out); uniform if there are none."""
    weight = np.ones(len(codes)) if mass is None else mass
    others = np.bincount(codes, weight, n_classes) - weight[:, None] * np.eye(n_classes)[codes]
    total = others.sum(axis=1, keepdims=True)
    return np.divide(others, total, out=np.full_like(others, 1.0 / n_classes), where=total > 0)


def _shares(codes: Array, n_classes: int, near: Array, mass: Array | None, overall: Array) -> Array:
    """The class shares among the neighbours `near`, shrunk towards the `overall` shares."""
    weight = np.ones(len(codes)) if mass is None else mass
    # A row of weight 2 counts as two neighbours; the total number is limited.
    votes = np.clip(_NEIGHBOURS - (np.cumsum(weight[near], axis=1) - weight[near]), 0.0, weight[near])
    counts = np.stack([(votes * (codes[near] == c)).sum(axis=1) for c in range(n_classes)], axis=1)
    return np.asarray((counts + _SMOOTH * overall) / (votes.sum(axis=1, keepdims=True) + _SMOOTH))


def _neighbours(X: Any, rows: Array, rng: np.random.Generator, mass: Array | None) -> Array:
    """Array (rows, count): the 15 nearest other rows of positive mass, fewer if there are not as many.

    They are searched in a sample if there are many rows.
    """
    candidates = np.arange(X.shape[0]) if mass is None else np.flatnonzero(mass > 0)
    pairs = _PAIRS_FEW if X.shape[1] <= _FEW_COLUMNS else _PAIRS
    size = int(np.clip(pairs / max(len(rows), 1), _NEIGHBOURS + 1, POOL))
    pool = np.sort(rng.choice(candidates, min(len(candidates), size), replace=False))
    count = min(_NEIGHBOURS, len(pool) - 1)
    near = pool[_nearest(X, pool, rows, count + 1)]
    # A row is its own neighbour, unless it is repeated or not in the pool; then the last neighbour is left out.
    itself = near == rows[:, None]
    itself[~itself.any(axis=1), -1] = True
    return near[~itself].reshape(len(rows), count)


def _nearest(X: Any, pool: Array, rows: Array, count: int) -> Array:
    """Array (rows, count): positions in `pool` of the nearest neighbours of these rows."""
    return np.asarray(NearestNeighbors(n_neighbors=count).fit(X[pool]).kneighbors(X[rows], return_distance=False))


# ---- rows with missing cells ----------------------------------------------------------------------------------------


def less_confident(predictions: Mapping[str, Array], codes: Array, X: Any, transition: Array) -> Mapping[str, Array]:
    """The predictions (n, classes), less confident for rows with a missing cell if that makes their labels more likely.

    A linear model fills a missing cell with an average value and does not lower its confidence. Under a noise model
    with `transition` (true, given), rows that depend on this cell then look wrong. Predictions of such rows are
    therefore shrunk towards their mean if this increases the likelihood of their labels. If nothing changes, the same
    mapping is returned.
    """
    markers = [side for side in sides(X) if side.lacking]
    found = (
        {name: _less_confident(P, codes, X, transition, markers) for name, P in predictions.items()} if markers else {}
    )
    return found if any(P is not predictions[name] for name, P in found.items()) else predictions


def _less_confident(P: Array, codes: Array, X: Any, transition: Array, markers: list[Side]) -> Array:
    """`less_confident` for the predictions P (n, classes) of one member.

    `markers` indicate missing cells, each of one column. Their rows are shrunk one marker after the other, at most five
    times, that with the largest gain in log likelihood first, until it is below 1. Gains are measured on at most 4,000
    rows.
    """
    rows = np.arange(0, len(codes), 1 + len(codes) // _FITTED_ON)
    marks = np.array([side.of(X[rows]) for side in markers])
    for _ in range(_FOLLOWED):
        labels = [
            (_tempered(P[rows], temperature) @ transition)[np.arange(len(rows)), codes[rows]]
            for temperature in _TEMPERATURES
        ]
        logs = np.log(np.maximum(np.stack(labels, axis=1), _LEAST))
        common = int(logs.sum(axis=0).argmax())  # all predictions may be over- or underconfident
        gains = marks @ (logs[:, common:] - logs[:, [common]])
        marker, step = np.unravel_index(int(gains.argmax()), gains.shape)
        if gains[marker, step] < _GAIN:
            break
        lacking, P = markers[marker].of(X), P.copy()
        P[lacking] = _tempered(P[lacking], float(_TEMPERATURES[common + step] / _TEMPERATURES[common]))
    return P


def calibrated(P: Array, codes: Array) -> Array:
    """The probabilities (n, classes) at the temperature under which the labels are most likely."""
    rows = np.arange(len(codes))
    found = [_tempered(P, temperature) for temperature in _TEMPERATURES]
    return max(found, key=lambda tempered: float(np.log(np.maximum(tempered[rows, codes], _LEAST)).sum()))


def _tempered(P: Array, temperature: float) -> Array:
    """Probabilities (n, classes) shrunk towards their mean over the rows, the limit for infinite `temperature`.

    A temperature below 1 moves them away from it.
    """
    logs = np.log(np.clip(P, _LEAST, 1.0))
    return np.asarray(
        softmax(logs / temperature + (1.0 - 1.0 / temperature) * np.log(np.clip(P.mean(axis=0), _LEAST, 1.0)), axis=1)
    )
