"""Out-of-fold predictions of trees: boosting with early stopping, and forests with small and with large leaves.

Leaves of three rows learn wrong labels; larger ones average them out, and predict worse if the labels are right. The
weights of the members decide between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from ..core.arrays import Array
from .folds import Folds
from .models import FittedFolds, Task, fit_folds

# Rounds of boosting, tried until the likelihood of held-out labels falls: later ones learn wrong labels. With at least
# so many rows, larger trees are tried last: labels that only these explain would be flagged otherwise.
_ROUNDS, _MORE_ROUNDS, _LARGER_FROM = (4, 12, 36), 100, 5_000
# The number of trees of a forest, the smallest leaves by member, and the largest numbers of rows to fit to.
_TREES, _LEAVES, _TREE_ROWS = 12, {"forest": 3, "coarse_forest": 30}, 5_000
_BOOSTED_ROWS = 50_000


def fit_trees(X: Any, codes: Array, n_classes: int, folds: Folds, rng: np.random.Generator) -> dict[str, FittedFolds]:
    """Boosted trees and forests by member, fitted to the training rows of each fold."""
    task, seed = Task(X, codes, np.arange(n_classes)), int(rng.integers(2**31))
    forests = fit_forests(RandomForestClassifier(_TREES), _LEAVES, task, folds, seed)
    return {"boosting": _boosted(task, n_classes, folds), **forests}


def tree_predictions(X: Any, codes: Array, n_classes: int, folds: Folds, rng: np.random.Generator) -> dict[str, Array]:
    """Out-of-fold probabilities (n, n_classes) of boosted trees and of forests by leaf size."""
    return {name: fits.out_of_fold for name, fits in fit_trees(X, codes, n_classes, folds, rng).items()}


def fit_forests(model: Any, leaves: Mapping[str, int], task: Task, folds: Folds, seed: int) -> dict[str, FittedFolds]:
    """Forests by the name of their smallest leaves, fitted to the training rows of each fold."""
    rows = min(1.0, _TREE_ROWS / len(task.y))
    model = model.set_params(bootstrap=True, max_samples=rows)
    return {
        name: fit_folds(model.set_params(min_samples_leaf=leaf), task, folds, seeds=seed + np.arange(len(folds)))
        for name, leaf in leaves.items()
    }


def _boosted(task: Task, n_classes: int, folds: Folds) -> FittedFolds:
    """Boosted trees with the number of rounds at which held-out labels are most likely."""
    n, leaves = len(task.y), 15 if n_classes == 2 else 8
    keep = np.zeros(n, dtype=bool)
    keep[np.random.default_rng(0).permutation(n)[:_BOOSTED_ROWS]] = True
    best, most = None, -np.inf
    for rounds in _ROUNDS if n < _LARGER_FROM else (*_ROUNDS, _MORE_ROUNDS):
        leaves = 63 if rounds == _MORE_ROUNDS else leaves
        model = HistGradientBoostingClassifier(
            max_iter=rounds, learning_rate=0.2, max_leaf_nodes=leaves, early_stopping=False, random_state=0
        )
        found = fit_folds(model, task, folds, keep=keep)
        likelihood = found.out_of_fold[np.arange(n), task.codes][folds.tested]
        gain = float(np.log(np.maximum(likelihood, 1e-4)).mean())
        if best is not None and gain <= most:
            break
        best, most = found, gain
    assert best is not None
    return best
