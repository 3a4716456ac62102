"""Simple members of the ensemble: linear fits, nearest neighbours, kernel ridge regression, and trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from ..core.arrays import Array
from .folds import Folds, default_repeats, draw_folds
from .neighbours import POOL, neighbour_means
from .numeric import numeric_view, standardised, with_levels
from .predictions import linear_predictions
from .trees import TREE_MEMBERS, Forest

# Lower bound of class probabilities predicted by regressions.
_SHARE = 1e-3
# Kernel ridge: the number of centres, widths in units of the median squared distance, and penalties.
_LANDMARKS, _WIDTHS, _PENALTIES = 150, (0.5, 2.0), (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


def simple_predictions(
    X: Any,
    codes: Array,
    n_classes: int,
    rng: np.random.Generator,
    folds: Folds | None = None,
    mass: Array | None = None,
) -> dict[str, Array]:
    """Out-of-fold probabilities (n, n_classes) of linear models, nearest neighbours, smooth functions and a forest.

    The dict is empty if no column of X can be made numeric. If folds are given, all models use them, and smooth
    functions, which leave one row out, are left out. Otherwise five folds are drawn. Neighbours and smooth functions
    are used up to 20,000 rows.
    """
    view, n, given = numeric_view(X), len(codes), folds is not None
    if view is None:
        return {}
    view = standardised(with_levels(view), mass)
    if folds is None:
        folds = draw_folds(n, rng, strata=codes, n_folds=5, n_repeats=default_repeats(n, n_classes))
    ordinary, trimmed = linear_predictions(view, codes, n_classes, folds, mass)
    found = {"linear": ordinary, "trimmed": trimmed}
    # With half of ten folds, trees overfit wrong labels less, and nine tenths of the rows are enough neighbours.
    tenths = folds if given else draw_folds(n, rng, strata=codes, n_folds=min(10, n), n_repeats=1)
    if n <= POOL:
        found["neighbours"] = neighbour_means(view, np.eye(n_classes)[codes], tenths, rng, mass)
        if not given:
            found["smooth"] = smooth_functions(view, codes, n_classes, rng, mass)
    forest = Forest.fit(view, codes, n_classes, tenths, rng, mass, large=True).out_of_fold(view, tenths)
    return found | dict(zip(TREE_MEMBERS[1:], forest, strict=True))


def smooth_functions(X: Any, codes: Array, n_classes: int, rng: np.random.Generator, mass: Array | None) -> Array:
    """Probabilities (n, n_classes) of a ridge regression on radial basis functions, leave-one-out."""
    P = smooth_means(X, np.eye(n_classes)[codes], rng, mass)
    return np.asarray(P / P.sum(axis=1, keepdims=True))


def smooth_means(
    X: Any, Y: Array, rng: np.random.Generator, mass: Array | None = None, separately: bool = False
) -> Array:
    """Leave-one-out predictions, from .001 to .999, of Y (n, targets) by regressions on radial basis functions.

    Width and penalty minimise the squared error, jointly for all targets unless `separately`. Leave-one-out
    predictions are computed from the fit to all rows.
    """
    weight = np.ones(len(Y)) if mass is None else mass
    sample = np.sort(rng.choice(np.flatnonzero(weight > 0), min(_LANDMARKS, int((weight > 0).sum())), replace=False))
    squares = euclidean_distances(X, X[sample], squared=True)
    middle = float(np.median(squares)) or 1.0
    # The fit predicts the difference from the mean of Y over the other rows. It is linear in its targets, so a column
    # of ones gives the factor of this mean.
    overall = (weight @ Y - weight[:, None] * Y) / np.maximum(weight.sum() - weight, 1e-300)[:, None]
    targets = np.column_stack([Y, np.ones(len(Y))])
    best, least = np.zeros(Y.shape), np.full(Y.shape[1], np.inf)
    for width in _WIDTHS:
        kernel = np.exp(-squares / (width * middle))
        features = kernel @ _whitening(kernel[sample])
        scale, turn = np.linalg.eigh(features.T @ (weight[:, None] * features))
        features = features @ turn
        projected = features.T @ (weight[:, None] * targets)
        for penalty in _PENALTIES:
            inverse = 1.0 / (np.maximum(scale, 0.0) + penalty)
            leverage = np.minimum(weight * (features**2 @ inverse), 1.0 - 1e-6)[:, None]
            left_out = (features @ (inverse[:, None] * projected) - leverage * targets) / (1.0 - leverage)
            predicted = left_out[:, :-1] + (1.0 - left_out[:, -1:]) * overall
            error = weight @ (predicted - Y) ** 2
            error = error if separately else np.full(len(error), error.sum())
            better = error < least
            least = np.where(better, error, least)
            best[:, better] = predicted[:, better]
    return np.clip(best, _SHARE, 1.0 - _SHARE)


def _whitening(gram: Array) -> Array:
    """The inverse square root of a Gram matrix, without tiny eigenvalues; kernels times it are Nystroem features."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-6 * values[-1]
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))
