"""The plan of an audit: its folds, the number of rows for choosing C and m, and the ordinary and the robust fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from ..core.arrays import Array
from ..core.objective import Design, Objective
from ..core.row_space import spanned
from ..crossfit.folds import FOLDS_UP_TO, CrossFit, Folds, default_repeats, draw_folds
from ..errors import UserError
from ..estimators import AoRRClassifier, AoRRRegressor

Progress = Callable[[str], None]
MODELS = ("all", "linear", "trees")
# The largest number of cells of X, times scores per row, for choosing m and for choosing C.
_TUNED_ON, _PENALTY_ON = 2e7, 1e7
# This many rows estimate the share to cut to a fraction of a percent.
_SAMPLE = 50_000


@dataclass(frozen=True)
class Plan:
    """The plan for n rows. Large tables get fewer folds, and m and C are chosen on a sample."""

    n_folds: int
    m_rows: int  # the largest number of rows on which m is chosen
    penalty_rows: int  # the same for C
    jobs: int | None
    seed: int
    models: str = "all"  # kinds of members of the label-noise ensemble: "linear", "trees" or "all"
    folds: Folds | None = None  # drawn once and used for C, the scores and the suspects
    together: Array | None = None  # the group or the time period of each row, which folds must not split
    forward: bool = False  # whether each fold is predicted from the earlier ones (the first from the second)
    estimator: Any = None  # the user's own model, which replaces the linear members of the ensemble
    pred_probs: Array | None = None  # given probabilities (n, classes)

    @classmethod
    def of(cls, n: int, p: int, n_outputs: int, jobs: int | None, seed: int) -> Plan:
        """The plan for n rows of p features with n_outputs scores each; `jobs` folds are fitted in parallel."""
        numbers = (p + 1) * n_outputs
        return cls(
            n_folds=5 if n * numbers <= 2e7 else 3 if n * numbers <= 1e8 and n <= 200_000 else 2,
            m_rows=min(_SAMPLE, max(2000, int(_TUNED_ON / numbers))),
            penalty_rows=min(_SAMPLE, max(1000, int(_PENALTY_ON / numbers))),
            jobs=jobs,
            seed=seed,
        )

    def rng(self, *stream: int) -> np.random.Generator:
        """A separate random generator for each stage (`stream`), so stages do not depend on their order."""
        return np.random.default_rng([self.seed, *stream])

    def draw(self, strata: Array) -> Plan:
        """The plan with its folds: the given ones, or folds stratified by `strata` (n,).

        With two strata and at most 4,000 rows, folds are drawn twice; the first `n_folds` are those of the scores.
        """
        if self.folds is not None:
            return self
        repeats = default_repeats(len(strata), int(strata.max()) + 1)
        drawn = draw_folds(len(strata), self.rng(4), strata=strata, n_folds=self.n_folds, n_repeats=repeats)
        return replace(self, folds=drawn)

    def of_fold(self, f: int) -> tuple[Array, Array]:
        """The training rows and the test rows of one fold."""
        assert self.folds is not None
        return np.flatnonzero(self.folds.train[f]), np.flatnonzero(self.folds.test[f])

    def folds_among(self, rows: Array, rng: np.random.Generator, strata: Array | None = None) -> Folds:
        """The folds of the first repeat, restricted to some rows.

        If fewer than two remain, five new folds are drawn by `rng`, stratified by `strata`.
        """
        assert self.folds is not None
        found = self.folds.once().among(rows)
        return found if len(found) > 1 else draw_folds(len(rows), rng, strata=strata, n_folds=5, n_repeats=1)

    def blocks(self, rows: Any = slice(None)) -> Array | None:
        """The groups or time periods of these rows, which the choice of m must not split; None if fewer than two."""
        found = None if self.together is None else self.together[rows]
        return None if found is None or (found == found[0]).all() else found

    def fit_both(self, fold: Callable[..., Any], rows: tuple[Any, ...], out: Array, progress: Progress) -> list[int]:
        """Fit both models for each fold, in threads, and write their out-of-fold predictions to `out` (2, n, ...).

        `fold(*rows, plan, f)` returns the predictions (2, test rows, ...) and m. The result is the m of each fold.
        """
        tasks = (delayed(fold)(*rows, self, f) for f in range(self.n_folds))
        found = Parallel(n_jobs=self.jobs, prefer="threads", return_as="generator")(tasks)
        fold_m = []
        for f in range(self.n_folds):
            progress(f"fitting both models without fold {f + 1} of {self.n_folds}")
            out[:, self.of_fold(f)[1]], m = next(found)
            fold_m.append(m)
        return fold_m


def choose_penalty(objective: Objective, plan: Plan, rows: Array | None = None) -> float:
    """The C with the best out-of-fold predictions, chosen on a sample if there are many rows.

    From 20,000 rows on, only one fold is predicted. `rows` are the positions in the table of the rows of the objective;
    None means all rows.
    """
    rng, rows = plan.rng(1), np.arange(objective.design.n) if rows is None else rows
    if len(rows) > plan.penalty_rows:
        sample = np.sort(rng.choice(len(rows), plan.penalty_rows, replace=False))
        objective, rows = objective.rows(sample, 0, 1), rows[sample]
    objective = replace(objective, design=Design(spanned(objective.design.X), objective.design.fit_intercept))
    folds = plan.folds_among(rows, rng, objective.strata)
    folds = folds if len(rows) < FOLDS_UP_TO else folds.first(1)
    return CrossFit(objective, folds.test).C  # also with a time column: all of these rows are training rows


def fit_robust(
    kind: type[Any], X: Array, y: Array, penalty: float, plan: Plan, stream: int, groups: Array | None = None
) -> Any:
    """The AoRR fit with automatic m, chosen on a sample if there are many rows.

    `kind` is AoRRClassifier or AoRRRegressor, and `penalty` scikit-learn's C. Each fit has its own random generator,
    numbered by `stream`; numbers below `plan.n_folds` are the fits of folds, which do not estimate the label noise. The
    choice of m does not split `groups` (`Plan.blocks`).
    """
    seed = int(plan.rng(2, stream).integers(2**31))
    tuned = kind(C=penalty, random_state=seed)
    if stream < plan.n_folds:  # the fit of a fold is only scored
        tuned._estimates_noise = False
    if len(y) <= plan.m_rows:
        return tuned.fit(X, y, groups=groups)
    sample = np.sort(plan.rng(3, stream).choice(len(y), plan.m_rows, replace=False))
    tuned.fit(X[sample], y[sample], groups=None if groups is None else groups[sample])
    share = float(tuned.m_) / len(sample)
    # Random starts find a better minimum if two classes or a numeric target have outliers. With more classes they find
    # the same minimum as the ordinary start and take more than twice the time.
    starts = 2 if hasattr(tuned, "classes_") and len(tuned.classes_) > 2 else 10
    settings = {"C": penalty, "n_starts": starts, "tol": 1e-3, "random_state": seed}
    fitted = kind(m=share, k=1.0, **settings).fit(X, y)
    fitted.tuning_ = tuned.tuning_
    return fitted


def fit_ordinary(kind: type[AoRRClassifier] | type[AoRRRegressor], X: Array, y: Array, penalty: float) -> Any:
    """The ordinary fit to all rows: logistic or ridge regression."""
    return kind(m=0, k=1.0, C=penalty, random_state=0).fit(X, y)


def check_models(models: str) -> None:
    """Raise an error unless `models` is a valid name."""
    if models not in MODELS:
        raise UserError(f"models is one of {', '.join(MODELS)}, got {models!r}; leave it out for all")
