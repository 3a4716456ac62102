"""The share of wrong labels, where m is chosen: by the linear fits that are there anyway, and a model that is not.

A linear model alone takes every class boundary that is not a line for wrong labels: of a clean exclusive or it calls a
fifth of the labels wrong. Smooth functions of some rows cost a few linear fits.
"""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array
from ..core.flips import WIDTH, probabilities_of
from ..core.objective import Objective
from ..label_noise import LabelNoiseModel
from .numeric import standardised, with_levels
from .simple_models import smooth_functions

# Rows that are used at most: so many give the share to half a percent.
_MOST_ROWS = 4_000


def share_of_wrong_labels(
    objective: Objective, codes: Array, scores: Array, seen: Array, rng: np.random.Generator
) -> tuple[float, float, float]:
    """The expected share of wrong labels, and its 95% interval.

    With so few models, what they do not predict may be wrong or out of their reach: the interval holds all of it.

    Parameters
    ----------
    objective : Objective
        The rows and their weights.
    codes : ndarray of shape (n,)
        The labels, 0..classes-1.
    scores : ndarray of shape (fits, n, r)
        Out-of-fold scores by one or several linear fits.
    seen : ndarray of shape (n,)
        Which rows have such scores.
    rng : Generator
        Draws rows.
    """
    rows = np.flatnonzero(seen)
    if len(rows) > _MOST_ROWS:
        rows = np.sort(rng.choice(rows, _MOST_ROWS, replace=False))
    mass = None if objective.mass.dtype == bool else objective.mass[rows].astype(np.float64)
    linear = {f"linear {i}": probabilities_of(Z[rows]) for i, Z in enumerate(scores)}
    X = standardised(with_levels(objective.design.X[rows]), mass)
    smooth = smooth_functions(X, codes[rows], linear["linear 0"].shape[1], rng, mass)
    found = LabelNoiseModel().fit({**linear, "smooth": smooth}, codes[rows], mass)
    weight = np.ones(len(rows)) if mass is None else mass
    missed = float(weight @ (found.mean.argmax(axis=1) != codes[rows]) / weight.sum())
    most = missed + WIDTH * float(np.sqrt(missed * (1.0 - missed) / weight.sum()))
    return found.share, found.interval[0], min(1.0, max(found.interval[1], most))
