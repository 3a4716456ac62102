"""Out-of-fold predictions of l1-penalised logistic models, for tables with more columns than rows.

If few of many columns are informative, an l2 penalty spreads the coefficients over all columns. On a wide table the l1
path of a fold costs less than one fit with an l2 penalty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.aggregates import Stratified
from ..core.arrays import Array
from ..core.losses import Logistic, Softmax
from ..core.objective import Design, Objective
from ..solvers.concentration import concentrate
from ..solvers.convex import minimise
from .folds import Folds
from .predictions import log_probabilities, wrong_share

# The number of penalties of the path, and the ratio of the smallest to the largest.
_PENALTIES, _EPS = 12, 0.03
# The tolerance of fits that are only compared, and the largest share of rows to drop.
_TOL, _MOST = 1e-3, 0.4


def sparse_predictions(X: Any, codes: Array, n_classes: int, folds: Folds) -> Mapping[str, Array]:
    """Probabilities (n, n_classes) of an ordinary ("sparse") and of a trimmed ("sparse robust") l1-penalised fit.

    The predictions are out of fold. The result is empty unless there are more columns than rows, and at least one
    informative column in every fold.
    """
    if X.shape[1] <= X.shape[0]:
        return {}
    X = np.asarray(X, dtype=np.float64)
    loss, y = (Logistic(), 2.0 * codes - 1.0) if n_classes == 2 else (Softmax(), codes)
    outputs = 1 if n_classes == 2 else n_classes
    trains = [np.flatnonzero(train) for train in folds.train]
    # Penalties are relative to the largest of each fold, so no label influences its own prediction.
    weakest = [_largest_C_without_coefficients(X[train], codes[train], n_classes) for train in trains]
    if not np.isfinite(weakest).all():  # no column is informative
        return {}
    parts = [
        Objective(Design(X[train], True), y[train], loss, C * len(train), outputs, l1_ratio=1.0, k=len(train))
        for train, C in zip(trains, weakest, strict=True)
    ]
    steps = np.geomspace(1.0, 1.0 / _EPS, _PENALTIES)
    paths = [_path(part, part.C * steps) for part in parts]
    logs = [_logs(X, [path[j] for path in paths], folds) for j in range(_PENALTIES)]
    rows = np.arange(len(codes))
    predicted = folds.tested & folds.train.any(axis=0)
    best = max(range(_PENALTIES), key=lambda j: float(logs[j][rows, codes][predicted].mean()))
    ordinary = np.exp(logs[best])
    share = min(wrong_share(ordinary[predicted], codes[predicted]), _MOST)
    trimmed = []
    for part, path in zip(parts, paths, strict=True):
        cut = replace(part, C=part.C * steps[best], aggregate=Stratified(part.strata))
        trimmed.append(concentrate(cut.ranked(round(share * part.design.n), part.k), path[best], tol=_TOL)[0])
    return {"sparse": ordinary, "sparse robust": np.exp(_logs(X, trimmed, folds))}


def _largest_C_without_coefficients(X: Array, codes: Array, n_classes: int) -> float:
    """The largest C for which all coefficients are zero, from the slopes there; infinite if it has no bound."""
    labels = np.eye(n_classes)[codes]
    steepest = float(np.abs((labels - labels.mean(axis=0)).T @ X).max(initial=0.0))
    return 1.0 / steepest if steepest > 0 else np.inf


def _path(part: Objective, Cs: Array) -> list[Array]:
    """The coefficients for all C, from the smallest to the largest; each fit starts at the one before."""
    fits = [np.zeros((part.n_outputs, part.design.p))]
    for C in Cs:
        fits.append(minimise(replace(part, C=float(C)).average(), fits[-1], tol=_TOL, max_iter=50).W)
    return fits[1:]


def _logs(X: Array, fits: list[Array], folds: Folds) -> Array:
    """Out-of-fold log probabilities (n, classes)."""
    scores = [Design(X[test], True).scores(W) for test, W in zip(folds.test, fits, strict=True)]
    return folds.average([log_probabilities(Z[None])[0] for Z in scores])
