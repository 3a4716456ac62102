"""Out-of-fold predictions of trees: boosting with early stopping, and forests with small and with large leaves.

Leaves of three rows learn wrong labels; larger ones average them out, and predict worse if the labels are right. The
weights of the members decide between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier

from ..core.arrays import Array
from .folds import Folds
from .models import FittedFolds, Task, fit_folds

# Rounds of boosting, tried until the likelihood of held-out labels falls: later ones learn wrong labels.
_ROUNDS = (4, 12, 36, 100)
# The smallest leaves of random forests by member, the number of their trees, and the largest number of rows of a tree.
_LEAVES, _TREES, _TREE_ROWS = {"forest": 3, "coarse_forest": 30}, 12, 5_000
# With all columns and larger leaves, extra trees still work if 40% of the labels are wrong: informative columns would
# often be missed otherwise. Beside any model, forests with the settings above win back .48 of the loss instead of .56.
_EXTRA_LEAVES, _EXTRA_TREES, _COLUMNS = {"forest": 10, "coarse_forest": 40}, 24, 100


def fit_trees(task: Task, folds: Folds, rng: np.random.Generator) -> dict[str, FittedFolds]:
    """Boosted trees and random forests by member, fitted to the training rows of each fold."""
    return {"boosting": _boosted(task, folds), **fit_forests(RandomForestClassifier(_TREES), _LEAVES, task, folds, rng)}


def fit_extra_trees(task: Task, folds: Folds, rng: np.random.Generator) -> dict[str, FittedFolds]:
    """Forests of extra trees by member, fitted to the training rows of each fold."""
    model = ExtraTreesClassifier(_EXTRA_TREES, max_features=min(task.X.shape[1], _COLUMNS))
    return fit_forests(model, _EXTRA_LEAVES, task, folds, rng)


def fit_forests(
    model: Any, leaves: Mapping[str, int], task: Task, folds: Folds, rng: np.random.Generator
) -> dict[str, FittedFolds]:
    """Forests by the name of their smallest leaves, fitted to the training rows of each fold."""
    seeds = int(rng.integers(2**31)) + np.arange(len(folds))
    model = model.set_params(bootstrap=True, max_samples=min(1.0, _TREE_ROWS / len(task.y)))
    return {
        name: fit_folds(model.set_params(min_samples_leaf=leaf), task, folds, seeds=seeds)
        for name, leaf in leaves.items()
    }


def out_of_fold(fits: dict[str, FittedFolds]) -> dict[str, Array]:
    """Probabilities (n, classes) by member."""
    return {name: found.out_of_fold for name, found in fits.items()}


def _boosted(task: Task, folds: Folds) -> FittedFolds:
    """Boosted trees with the number of rounds at which held-out labels are most likely."""
    assert task.classes is not None
    rows, leaves = np.arange(len(task.y)), 15 if len(task.classes) == 2 else 8
    best, most = None, -np.inf
    for rounds in _ROUNDS:
        model = HistGradientBoostingClassifier(
            max_iter=rounds, learning_rate=0.2, max_leaf_nodes=leaves, early_stopping=False, random_state=0
        )
        found = fit_folds(model, task, folds)
        likelihood = found.out_of_fold[rows, task.codes][folds.tested]
        gain = float(np.log(np.maximum(likelihood, 1e-4)).mean())
        if best is not None and gain <= most:
            break
        best, most = found, gain
    assert best is not None
    return best
