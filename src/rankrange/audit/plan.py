"""The plan of an audit: its folds, its models, and its random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

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

    def rng(self, *stream: int) -> np.random.Generator:
        """A separate random generator for each stage (`stream`), so stages do not depend on their order."""
        return np.random.default_rng([self.seed, *stream])

    def out_of_fold(self, predict: Callable[[Array, Array, int], Array]) -> Array:
        """Array (n, ...): the predictions `predict(train, test, fold)` of each fold, fitted in parallel threads."""
        folds = self.folds.once()
        rows = [
            (np.flatnonzero(train), np.flatnonzero(test)) for train, test in zip(folds.train, folds.test, strict=True)
        ]
        tasks = (delayed(predict)(train, test, f) for f, (train, test) in enumerate(rows))
        parts = Parallel(n_jobs=self.jobs, prefer="threads")(tasks)
        out = np.empty((folds.test.shape[1], *parts[0].shape[1:]))
        for (_, test), part in zip(rows, parts, strict=True):
            out[test] = part
        return out

    def tuned(self, kind: type[Any], X: Array, y: Any, **settings: Any) -> Any:
        """An AoRR model with automatic m and C, which a sample of the rows chooses, fitted to all rows."""
        n = X.shape[0]
        settings |= {"random_state": int(self.rng(2).integers(2**31))}
        sample = np.sort(self.rng(3).choice(n, SAMPLE, replace=False)) if n > SAMPLE else np.arange(n)
        groups = None if self.groups is None else self.groups[sample]
        groups = groups if groups is not None and len(np.unique(groups)) > 1 else None
        found = kind(C="auto", **settings).fit(X[sample], y[sample], groups=groups)
        if len(sample) == n:
            return found
        return kind(m=float(found.m_) / len(sample), k=1.0, C=found.C_, tol=1e-3, **settings).fit(X, y)
