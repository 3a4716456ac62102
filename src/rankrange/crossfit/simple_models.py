"""Simple models beside the model of a user: linear fits, nearest neighbours, and extra trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

from ..core.arrays import Array
from .folds import Folds, default_repeats, draw_folds
from .models import Task
from .neighbours import POOL, neighbour_means
from .numeric import numeric_view, standardised, with_levels
from .predictions import linear_predictions
from .trees import fit_forests

# With all columns and large leaves, trees still work if 40% of the labels are wrong: informative columns would often be
# missed otherwise.
_TREES, _COLUMNS, _LEAVES = 24, 100, {"forest": 10, "coarse_forest": 40}


def simple_predictions(
    X: Any,
    codes: Array,
    n_classes: int,
    rng: np.random.Generator,
    folds: Folds | None = None,
    mass: Array | None = None,
) -> dict[str, Array]:
    """Out-of-fold probabilities (n, n_classes) of linear models, nearest neighbours (up to 20,000 rows) and forests.

    The dict is empty if no column of X can be made numeric. Five folds are drawn if none are given.
    """
    view, n = numeric_view(X), len(codes)
    if view is None:
        return {}
    view = standardised(with_levels(view), mass)
    if folds is None:
        folds = draw_folds(n, rng, strata=codes, n_folds=5, n_repeats=default_repeats(n, n_classes))
    ordinary, trimmed = linear_predictions(view, codes, n_classes, folds, mass)
    found = {"linear": ordinary, "trimmed": trimmed}
    if n <= POOL:
        found["neighbours"] = neighbour_means(view, np.eye(n_classes)[codes], folds, rng, mass)
    return found | forest_predictions(view, codes, n_classes, folds.once(), rng, mass)


def forest_predictions(
    X: Any, codes: Array, n_classes: int, folds: Folds, rng: np.random.Generator, mass: Array | None
) -> dict[str, Array]:
    """Out-of-fold probabilities (n, n_classes) of extra trees with large leaves, by leaf size."""
    model = ExtraTreesClassifier(_TREES, max_features=min(X.shape[1], _COLUMNS))
    task = Task(X, codes, np.arange(n_classes), mass)
    forests = fit_forests(model, _LEAVES, task, folds, int(rng.integers(2**31)))
    return {name: fits.out_of_fold for name, fits in forests.items()}
