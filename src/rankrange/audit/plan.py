"""How much work an audit of a table is: its folds, how many rows choose C and m, and the two fits of each fold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from ..core.arrays import Array
from ..core.objective import Design, Objective
from ..core.row_space import spanned
from ..crossfit.folds import CrossFit, deal, split
from ..estimators import AoRRClassifier, AoRRRegressor

Progress = Callable[[str], None]
# At most this many numbers in X, times scores per row, are read to choose m, and to choose C.
_TUNED_ON, _PENALTY_ON = 2e7, 1e7
# Rows from which the share to cut is estimated to a fraction of a percent; more take longer and change little.
_SAMPLE = 50_000


@dataclass(frozen=True)
class Plan:
    """How an audit of n rows goes: fewer folds on more rows, m and C chosen on a sample of them."""

    folds: int
    m_rows: int
    penalty_rows: int
    jobs: int | None
    seed: int
    models: str = "all"  # which kinds judge labels: "linear", "trees" or "all"
    fold_of: Array | None = None  # the part of each row, where groups or time decide it
    groups: Array | None = None  # the group of each row, where groups decide the parts
    forward: bool = False  # whether a part is judged by fits on earlier parts alone
    estimator: Any = None  # the user's own model, which judges labels
    pred_probs: Array | None = None  # ready-made probabilities, (n, classes)

    @classmethod
    def of(cls, n: int, p: int, n_outputs: int, jobs: int | None, seed: int) -> Plan:
        """The plan for n rows of p features.

        Parameters
        ----------
        n, p : int
            Rows and features.
        n_outputs : int
            Scores per row.
        jobs : int or None
            Parts fitted at a time.
        seed : int
            The same seed gives the same audit.
        """
        numbers = (p + 1) * n_outputs
        return cls(
            folds=5 if n * numbers <= 2e7 else 3 if n * numbers <= 1e8 and n <= 200_000 else 2,
            m_rows=min(_SAMPLE, max(2000, int(_TUNED_ON / numbers))),
            penalty_rows=min(_SAMPLE, max(1000, int(_PENALTY_ON / numbers))),
            jobs=jobs,
            seed=seed,
        )

    def rng(self, *stream: int) -> np.random.Generator:
        """A generator of its own for each part of the work, so that parts do not depend on each other's order."""
        return np.random.default_rng([self.seed, *stream])

    def train_of(self, test: Array) -> Array:
        """The rows that the fit which judges a part may see; the first part in time has only the second to judge it."""
        if not self.forward or self.fold_of is None:
            return np.flatnonzero(~test)
        part = int(self.fold_of[np.flatnonzero(test)[0]])
        return np.flatnonzero(self.fold_of < part if part else self.fold_of == 1)

    def blocks(self, rows: Any = slice(None)) -> Array | None:
        """What a choice of m or C on these rows must not tear apart: groups, or parts along time; None for only one."""
        together = self.fold_of if self.groups is None else self.groups
        found = None if together is None else together[rows]
        return None if found is None or (found == found[0]).all() else found

    def each(self, work: Callable[..., Any], items: Any) -> Iterator[Any]:
        """`work` on all items, in threads (X is shared, the time goes into matrix products), results in order."""
        return iter(
            Parallel(n_jobs=self.jobs, prefer="threads", return_as="generator")(delayed(work)(*item) for item in items)
        )


def choose_penalty(objective: Objective, plan: Plan, rows: Array | None = None) -> float:
    """scikit-learn's C of the fit that predicts best, chosen on some of the rows if there are many.

    `rows` says which rows of the table those of the objective are; None is all of them.
    """
    rng, rows = plan.rng(1), np.arange(objective.design.n) if rows is None else rows
    if len(rows) > plan.penalty_rows:
        some = np.sort(rng.choice(len(rows), plan.penalty_rows, replace=False))
        objective, rows = objective.rows(some, 0, 1), rows[some]
    objective = replace(objective, design=Design(spanned(objective.design.X), objective.design.fit_intercept))
    tests = split(objective, objective.strata, rng, (1, 5, 5 if len(rows) < 20_000 else 1), plan.blocks(rows))
    return CrossFit(objective, tests).C


def fit_robust(
    kind: type[Any], X: Array, y: Array, penalty: float, plan: Plan, stream: int, groups: Array | None = None
) -> Any:
    """The AoRR fit with m on auto; on many rows m is chosen on a sample of them.

    Parameters
    ----------
    kind : type
        AoRRClassifier or AoRRRegressor.
    X, y : ndarray
        The training rows.
    penalty : float
        scikit-learn's C.
    plan : Plan
        How many rows m is chosen on.
    stream : int
        Which fit this is: each has random numbers of its own.
    groups : ndarray or None
        What the choice of m must not tear apart (`Plan.blocks`).
    """
    seed = int(plan.rng(2, stream).integers(2**31))
    if len(y) <= plan.m_rows:
        return kind(C=penalty, random_state=seed).fit(X, y, groups=groups)
    some = np.sort(plan.rng(3, stream).choice(len(y), plan.m_rows, replace=False))
    tuned = kind(C=penalty, random_state=seed).fit(X[some], y[some], groups=None if groups is None else groups[some])
    share = float(tuned.m_) / len(some)
    # Random starts find the basin where two classes or numbers have far outliers; with more classes they find the same
    # minimum as the ordinary start, at more than twice the time.
    starts = 2 if hasattr(tuned, "classes_") and len(tuned.classes_) > 2 else 10
    settings = {"C": penalty, "n_starts": starts, "tol": 1e-3, "random_state": seed}
    fitted = kind(m=share, k=1.0, **settings).fit(X, y)
    fitted.tuning_ = tuned.tuning_
    return fitted


def fit_ordinary(kind: type[AoRRClassifier] | type[AoRRRegressor], X: Array, y: Array, penalty: float) -> Any:
    """The fit in which all rows count alike: logistic or ridge regression."""
    return kind(m=0, k=1.0, C=penalty, random_state=0).fit(X, y)


def fold_masks(strata: Array, plan: Plan) -> Array:
    """Masks (folds, n) of the rows that each fold leaves out, dealt out within each class."""
    fold = deal(strata, plan.folds, plan.rng(4)) if plan.fold_of is None else plan.fold_of
    return np.array([fold == f for f in range(plan.folds)])
