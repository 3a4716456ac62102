"""The estimated share of wrong labels, from forests and the linear fits that are used to choose m.

A linear model alone mistakes non-linear class boundaries for wrong labels: for clean XOR data it estimates 20% wrong
labels.
"""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from ..core.transition import WIDTH, probabilities_of
from ..label_noise import LabelNoiseModel
from .folds import draw_folds
from .simple_models import forest_predictions

# The largest number of rows; this many estimate the share to half a percent.
_MAX_ROWS = 4_000


def share_of_wrong_labels(objective: Objective, scores: Array, rng: np.random.Generator) -> tuple[float, float, float]:
    """The estimated share of wrong labels, and the lower and upper limit of its 95% interval.

    `scores` (fits, n, r) are out-of-fold scores of one or several linear fits for the rows of the objective; of more
    than 4,000 rows, a sample is used. Labels that these few models do not predict may be wrong or just hard to predict.
    The interval covers both cases.
    """
    rows = np.arange(objective.design.n)
    if len(rows) > _MAX_ROWS:
        rows = np.sort(rng.choice(rows, _MAX_ROWS, replace=False))
    codes, mass = objective.strata[rows], None
    if objective.mass.dtype != bool:
        mass = objective.mass[rows].astype(np.float64)
    linear = {f"linear {i}": probabilities_of(Z[rows]) for i, Z in enumerate(scores)}
    folds = draw_folds(len(rows), rng, strata=codes, n_folds=5, n_repeats=1)
    forests = forest_predictions(objective.design.X[rows], codes, linear["linear 0"].shape[1], folds, rng, mass)
    found = LabelNoiseModel().fit({**linear, **forests}, codes, mass)
    weight = np.ones(len(rows)) if mass is None else mass
    missed = float(weight @ (found.mean.argmax(axis=1) != codes) / weight.sum())
    most = missed + WIDTH * float(np.sqrt(missed * (1.0 - missed) / weight.sum()))
    return found.share, found.interval[0], min(1.0, max(found.interval[1], most))
