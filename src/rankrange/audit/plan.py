"""The plan of an audit: its folds, its models, and its random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import parallel_config
from sklearn.model_selection import cross_val_predict

from ..core.arrays import Array
from ..crossfit.folds import Folds

Progress = Callable[[str], None]
MODELS = ("all", "linear", "trees")
LABELS = ("annotated", "observed")
# Settings are chosen, and usual values estimated, on a random sample of at most this many rows.
SAMPLE = 20_000


@dataclass(frozen=True)
class Plan:
    """The folds, drawn once for the scores and for the suspects, and the models of an audit."""

    folds: Folds
    groups: Array | None = None  # the group or the time period of each row, which folds do not split
    forward: bool = False  # whether each fold is predicted from the earlier ones (the first from the second)
    seed: int = 0
    jobs: int = 1
    models: str = "all"  # kinds of members of the ensemble: "linear", "trees" or "all"
    estimator: Any = None  # the user's own model, which replaces the linear members of the ensemble
    pred_probs: Array | None = None  # given probabilities (n, classes)
    texts: list[str] | None = None  # the prose of each row
    observed: bool = False  # whether the target has outcomes, which cannot be wrong

    def out_of_fold(self, model: Any, X: Array, y: Array, method: str = "predict") -> Array:
        """Array (n, ...): the out-of-fold predictions of clones of a model, which are fitted in parallel threads."""
        folds = self.folds.once()
        rows = [*zip(map(np.flatnonzero, folds.train), map(np.flatnonzero, folds.test), strict=True)]
        with parallel_config("threading"):
            return np.asarray(cross_val_predict(model, X, y, cv=rows, n_jobs=self.jobs, method=method))
