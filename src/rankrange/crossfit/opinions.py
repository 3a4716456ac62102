"""Opinions of simple kinds, out of fold: the ordinary linear fit, one that cuts what seems wrong, and the nearest rows.

They stand beside the opinion of whatever model is asked: a line has little to overfit wrong labels with, and
neighbours see structure that a line misses. All give probabilities of the labels as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import log_softmax
from sklearn.neighbors import NearestNeighbors

from ..core.arrays import Array
from ..core.flips import WrongLabels, wrong_labels
from ..core.losses import Logistic, Softmax
from ..core.objective import Design, Objective
from .fits import Fits
from .folds import Folds, Report, draw_folds, mass_of, silent
from .numeric import numeric_view, standardised
from .service import CrossFit

Parts = list[tuple[Array, Array]]
_MOST_CUT = 0.45
# Neighbours, among how many rows at most.
_NEIGHBOURS, _POOL = 15, 20_000
# The nearest rows' shares of the classes are drawn towards the overall ones by so many rows.
_SMOOTH = 2.0
# Five folds twice up to this many rows of two classes.
_TWICE_UP_TO = 4000


def logistic_objective(
    X: Any, codes: Array, n_classes: int, fit_intercept: bool = True, mass: Array | None = None
) -> Objective:
    """The average logistic (softmax) loss of all rows with labels 0..n_classes-1; its C does not matter."""
    n, design = len(codes), Design(X, fit_intercept)
    if n_classes == 2:
        y, loss, outputs = (2 * codes - 1).astype(X.dtype), Logistic(), 1
        return Objective(design, y, loss, 1.0, outputs, m=0, k=n, sample_weight=mass)
    return Objective(design, codes, Softmax(), 1.0, n_classes, m=0, k=n, sample_weight=mass)


def trimmed_fits(
    objective: Objective, codes: Array, folds: Folds, C: float | None, report: Report = silent
) -> tuple[Fits, Parts, WrongLabels]:
    """Fits of each fold that cut nothing, half of what seems wrong, and all of it; and what seems wrong.

    The scores of the rows that each fold tests come with them. C is scikit-learn's; None chooses it.
    """
    mass = mass_of(objective)
    cross = CrossFit(objective, folds.test, C, train=folds.train if mass.dtype == bool else folds.train * mass)
    fits = cross.ordinary
    report(f"{len(folds)} ordinary fits, C = {cross.C:g}")
    scores = folds.average([log_probabilities(Z)[0] for _, Z in cross.scores(fits)])
    known = folds.judged
    plain = wrong_labels(scores[known], codes[known], None if mass.dtype == bool else mass[known])
    share = min(max(plain.rate, 1.0 / len(codes)), _MOST_CUT if objective.n_outputs == 1 else 0.6)
    fits = cross.trimmed(np.array([0.5 * share, share]))
    report(f"{2 * len(folds)} fits that cut up to {share:.1%} of the rows")
    return fits, cross.scores(fits), plain


def log_probabilities(Z: Array) -> Array:
    """(candidates, rows, classes) from scores (candidates, 1 or classes, rows)."""
    full = np.stack([np.zeros_like(Z[:, 0]), Z[:, 0]], axis=1) if Z.shape[1] == 1 else Z
    return np.asarray(log_softmax(full, axis=1).transpose(0, 2, 1))


def linear_opinions(X: Any, codes: Array, n_classes: int, folds: Folds, mass: Array | None = None) -> tuple[Array, ...]:
    """Out-of-fold probabilities (n, n_classes) of the ordinary fit and of the one that cuts all that seems wrong."""
    objective = logistic_objective(X, codes, n_classes, mass=mass)
    _, parts, _ = trimmed_fits(objective, codes, folds, None)
    logs = [log_probabilities(Z) for _, Z in parts]
    return tuple(np.exp(folds.average([log[candidate] for log in logs])) for candidate in (0, 2))


def simple_opinions(
    X: Any,
    codes: Array,
    n_classes: int,
    rng: np.random.Generator,
    folds: Folds | None = None,
    mass: Array | None = None,
) -> dict[str, Array]:
    """Out-of-fold probabilities (n, n_classes) of the linear fits and the nearest rows; none where X holds no numbers.

    Folds that are given are kept to, by all of them; else each has what suits it.
    """
    view, n = numeric_view(X), len(codes)
    if view is None:
        return {}
    view = standardised(view, mass)
    repeats = 2 if n_classes == 2 and n <= _TWICE_UP_TO else 1
    own = draw_folds(n, rng, strata=codes, n_folds=5, n_repeats=repeats) if folds is None else folds
    ordinary, trimmed = linear_opinions(view, codes, n_classes, own, mass)
    found = {"linear": ordinary, "trimmed": trimmed}
    if n <= _POOL:
        everyone = np.arange(n)
        if folds is None:
            found["neighbours"] = label_shares(view, codes, n_classes, everyone, rng, mass)
        else:
            found["neighbours"] = label_shares_by_fold(view, codes, n_classes, folds, mass)
    return found


def label_shares(
    X: Any, codes: Array, n_classes: int, asked: Array, rng: np.random.Generator, mass: Array | None = None
) -> Array:
    """(asked, n_classes): the shares of the classes among each row's neighbours, which do not include itself.

    Columns count alike, whatever their scale.
    """
    if not sp.issparse(X):
        spread = X.std(axis=0)
        X = X / np.where(spread > 0, spread, 1.0)
    return _shares(codes, n_classes, _neighbours(X, asked, rng, mass), mass)


def label_shares_by_fold(X: Any, codes: Array, n_classes: int, folds: Folds, mass: Array | None = None) -> Array:
    """(n, n_classes): the shares of the classes among the nearest rows that the folds let a row be judged by."""
    parts = []
    for train, test in zip(folds.train, folds.test, strict=True):
        pool = np.flatnonzero(train if mass is None else train & (mass > 0))
        near = pool[_nearest(X, pool, np.flatnonzero(test), min(_NEIGHBOURS, len(pool)))]
        parts.append(_shares(codes, n_classes, near, mass))
    return folds.average(parts)


def _shares(codes: Array, n_classes: int, near: Array, mass: Array | None) -> Array:
    worth = np.ones(len(codes)) if mass is None else mass
    overall = np.bincount(codes, weights=worth, minlength=n_classes) / worth.sum()
    # A row of weight 2 is two neighbours: only so many have a vote.
    votes = np.clip(_NEIGHBOURS - (np.cumsum(worth[near], axis=1) - worth[near]), 0.0, worth[near])
    counts = np.stack([(votes * (codes[near] == c)).sum(axis=1) for c in range(n_classes)], axis=1)
    return np.asarray((counts + _SMOOTH * overall) / (votes.sum(axis=1, keepdims=True) + _SMOOTH))


def _neighbours(X: Any, asked: Array, rng: np.random.Generator, mass: Array | None) -> Array:
    """(asked, count): the nearest rows among all, or among some where there are many."""
    rows = np.arange(X.shape[0]) if mass is None else np.flatnonzero(mass > 0)
    pool = np.sort(rng.choice(rows, min(len(rows), _POOL), replace=False))
    count = min(_NEIGHBOURS, len(pool) - 1)
    near = pool[_nearest(X, pool, asked, count + 1)]
    # A row is among its own neighbours, unless it is repeated or not in the pool: then the last one is left out.
    itself = near == asked[:, None]
    itself[~itself.any(axis=1), -1] = True
    return near[~itself].reshape(len(asked), count)


def _nearest(X: Any, pool: Array, asked: Array, count: int) -> Array:
    """(asked, count): places in `pool` of the rows nearest to those asked."""
    return np.asarray(NearestNeighbors(n_neighbors=count).fit(X[pool]).kneighbors(X[asked], return_distance=False))
