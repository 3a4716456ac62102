"""Out-of-fold predictions of l1-penalised logistic models, for tables with more columns than rows.

If few of many columns are informative, an l2 penalty spreads the coefficients over all columns. On a wide table the l1
path of a fold costs less than one fit with an l2 penalty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.aggregates import Stratified
from ..core.arrays import Array
from ..core.losses import Logistic, Softmax
from ..core.transition import wrong_rate
from ..solvers.sparse import Cut, ElasticNet, Net, follow
from .folds import Folds
from .predictions import log_probabilities

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
    two = n_classes == 2
    net = ElasticNet(
        np.asarray(X, dtype=np.float64),
        2.0 * codes - 1.0 if two else codes,
        Logistic() if two else Softmax(),
        1 if two else n_classes,
        1.0,
    )
    trains = [np.flatnonzero(train) for train in folds.train]
    # Penalties are relative to the largest of each fold, so no label influences its own prediction.
    Cs = [
        net.take(train).largest_penalty(np.ones(len(train))) * np.geomspace(1.0, 1.0 / _EPS, _PENALTIES)
        for train in trains
    ]
    if not np.isfinite(Cs).all():  # no column is informative
        return {}
    paths = [_path(net.take(train), path_C) for train, path_C in zip(trains, Cs, strict=True)]
    logs = [_logs(net, [path[j] for path in paths], folds) for j in range(_PENALTIES)]
    rows = np.arange(len(codes))
    predicted = folds.tested & folds.train.any(axis=0)
    best = max(range(_PENALTIES), key=lambda j: float(logs[j][rows, codes][predicted].mean()))
    share = min(wrong_rate(logs[best][predicted], codes[predicted]), _MOST)
    cut = [
        follow(
            net.take(train),
            Cut(round(share * len(train)), None, float(path_C[best]), Stratified(codes[train])),
            path[best][:2],
        )
        for train, path_C, path in zip(trains, Cs, paths, strict=True)
    ]
    return {"sparse": np.exp(logs[best]), "sparse robust": np.exp(_logs(net, cut, folds))}


def _path(part: ElasticNet, Cs: Array) -> list[Net]:
    """The fits to these rows for all penalties, from the largest to the smallest."""
    fits: list[Net] = []
    for C in Cs:
        start = fits[-1][:2] if fits else None
        fits.append(part.fit(np.full(len(part.y), float(C)), start, tol=_TOL))
    return fits


def _logs(net: ElasticNet, fits: list[Net], folds: Folds) -> Array:
    """Out-of-fold log probabilities (n, classes)."""
    scores = [
        net.take(np.flatnonzero(test)).scores(fit.coef, fit.intercept)
        for test, fit in zip(folds.test, fits, strict=True)
    ]
    return folds.average([log_probabilities(Z[None])[0] for Z in scores])
