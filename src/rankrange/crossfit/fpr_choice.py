"""Partial AUC on held-out rows: the choice of the training range, calibration and thresholds.

A pair loss on the few hardest negatives has few rows to learn from, and it is minimal at w = 0 if no linear model ranks
the mean positive above them. Cross-validation therefore compares, at several C, wider ranges, one without the lowest
positives, and a logistic fit to all rows, which is chosen unless another candidate is better by more than a standard
error. The held-out scores of the chosen candidate give probabilities and thresholds. Equal rows of a class stay in one
fold, so a weight of 2 equals the row twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from ..core.arrays import Array
from ..core.losses import Logistic
from ..core.objective import Design, Objective
from ..core.pairs import Masses, PairObjective
from ..metrics import roc_area
from ..solvers import Result, Settings, solve
from ..solvers.pairwise import solve_pairs
from .folds import Folds, deal, deal_groups, row_keys

Rates = tuple[float, float]
# Training ranges end at these multiples of the rate of interest, and at 1. One range also uses only this share of the
# positives with the highest scores. The multiples of C to try.
_WIDER, _REACHED, _OF_C = (1.0, 4.0), 0.5, (0.1, 1.0, 10.0)
# Candidates are fitted to about this many training rows of a fold.
_FITTED_ROWS = 6000
# With fewer negatives in the range of interest, or fewer positives, differences are not measurable and the logistic fit
# is used.
MIN_TO_COMPARE = 10
# The tolerance of fits that are only compared.
_ROUGH = 1e-3
# The smallest slope of a calibration per standard deviation of the scores: probabilities must increase with scores.
_MIN_SLOPE = 1e-3


class Candidate(NamedTuple):
    """A candidate: ranges of the two rates, or a logistic fit to all rows (`fpr` is None), and a C."""

    fpr: Rates | None
    tpr: Rates
    C: float


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows X of two classes: whether each is positive (n,), and its mass (n,), above 0."""

    X: Any
    positive: Array
    mass: Array

    def take(self, mask: Array) -> LabelledRows:
        """The rows of a mask."""
        rows = np.flatnonzero(mask)
        return LabelledRows(self.X[rows], self.positive[rows], self.mass[rows])

    def equal_rows(self, seed: int = 0) -> Array:
        """The number (n,) of each row, the same for equal rows of a class, in an order that depends on contents."""
        keys = row_keys(self.X, seed) ^ self.positive.astype(np.uint64)
        return np.unique(keys, return_inverse=True)[1]

    def merged(self) -> LabelledRows:
        """Equal rows of a class as one row, in an order that depends on the contents alone."""
        number = self.equal_rows()
        first = np.unique(number, return_index=True)[1]
        return LabelledRows(self.X[first], self.positive[first], np.bincount(number, weights=self.mass))

    def has_both(self, mask: Array) -> bool:
        """Whether the rows of a mask are of both classes."""
        return len(np.unique(self.positive[mask])) == 2

    def mass_of(self, positive: bool) -> float:
        """The mass of one class."""
        return float(self.mass[self.positive == positive].sum())


class Task(NamedTuple):
    """The task: the rates of interest, and the tolerance and iteration limit of fits."""

    fpr: Rates
    tpr: Rates
    tol: float = 1e-6
    max_iter: int = 200


class HeldOut(NamedTuple):
    """Held-out rows: their scores, standardised by those of the training negatives, their classes and masses."""

    score: Array
    positive: Array
    mass: Array


class Chosen(NamedTuple):
    """The chosen candidate, its coefficients in the first fold, its held-out scores, and the table of `_compared`.

    Without folds, they are those of a fit to all rows. The table is None if nothing was compared.
    """

    candidate: Candidate
    start: Array
    held_out: HeldOut
    table: dict[str, Array] | None


def candidates_of(task: Task, train_fpr: Any, C: Any) -> list[Candidate]:
    """The candidates: logistic fits, then ranges, at several C, for train_fpr="auto"; otherwise the given range."""
    middle = 1.0 if C == "auto" else float(C)
    Cs = [middle * factor for factor in _OF_C]
    if train_fpr != "auto":
        return [Candidate(train_fpr, task.tpr, c) for c in (Cs if C == "auto" else [middle])]
    (lo, hi), (below, above) = task.fpr, task.tpr
    highest = sorted({min(1.0, hi * factor) for factor in _WIDER} | {1.0})
    reached = (below, below + _REACHED * (above - below))
    ranges = [(None, task.tpr), *(((lo, top), task.tpr) for top in highest), ((lo, min(1.0, hi * _WIDER[-1])), reached)]
    return [Candidate(fpr, tpr, c) for fpr, tpr in ranges for c in Cs]


def fit(rows: LabelledRows, candidate: Candidate, task: Task, start: Array | None = None) -> Result:
    """Fit a candidate; the coefficients `w` (1, p) of the result have no intercept.

    A fit to pairs starts at `start` (p,), by default at a rough logistic fit.
    """
    rows = rows.merged()  # a weight of 2 is exactly the row twice
    if candidate.fpr is None:
        return _logistic(rows, candidate.C, task)
    objective = _pair_objective(rows, candidate)
    if start is None:
        start = _logistic(rows, candidate.C, task._replace(tol=_ROUGH)).w[0]
    return solve_pairs(objective, start, tol=task.tol, max_iter=task.max_iter)


def _pair_objective(rows: LabelledRows, candidate: Candidate) -> PairObjective:
    """The objective of a candidate on these rows; a range may be narrower than one negative."""
    sides = [np.flatnonzero(rows.positive), np.flatnonzero(~rows.positive)]
    positives, negatives = (Design(rows.X[each], False) for each in sides)
    a, b = (rows.mass[each] for each in sides)
    assert candidate.fpr is not None
    lo, hi = candidate.fpr
    of_positives = _masses(1.0 - candidate.tpr[1], 1.0 - candidate.tpr[0], float(a.sum()))
    of_negatives = _masses(lo, hi, float(b.sum()))
    return PairObjective(positives, negatives, candidate.C, a, b, of_positives, of_negatives)


def _masses(lo: float, hi: float, total: float) -> Masses:
    return Masses(lo * total, total if hi == 1.0 else hi * total)


def _logistic(rows: LabelledRows, C: float, task: Task) -> Result:
    total = float(rows.mass.sum())
    y = np.where(rows.positive, 1.0, -1.0).astype(rows.X.dtype)
    objective = Objective(Design(rows.X, True), y, Logistic(), C * total, 1, m=0, k=total, sample_weight=rows.mass)
    result = solve(objective, None, Settings(tol=task.tol, max_iter=task.max_iter))
    return replace(result, w=result.w[:, :-1], value=result.value * C * total)


def choose(rows: LabelledRows, candidates: list[Candidate], task: Task, folds: Folds) -> Chosen:
    """Choose the best candidate on held-out rows, with a preference for logistic fits.

    Another candidate must be better than the best one by more than the standard error of the difference over the test
    sets. Without folds, the first candidate is taken and scores its own training rows.
    """
    if not len(folds):  # too few rows of a class: use the training rows themselves
        rows = rows.merged()
        w = fit(rows, candidates[0], task).w[0]
        return Chosen(candidates[0], w, _scored(rows, rows, w), None)
    rough = task if len(candidates) == 1 else task._replace(tol=max(task.tol, _ROUGH))
    # Merged, so that a weight of 2 is exactly the row twice also for the calibration.
    parts = [(rows.take(a).merged(), rows.take(b).merged()) for a, b in zip(folds.train, folds.test, strict=True)]
    fitted = [_coefficients(train, candidates, rough) for train, _ in parts]
    held = [[_scored(train, test, w) for w in ws] for ws, (train, test) in zip(fitted, parts, strict=True)]
    # The test sets of repeated folds are not independent.
    independent = len(folds) / folds.test.sum(axis=0).max()
    table = None if len(candidates) == 1 else _compared(held, candidates, task, independent)
    best = 0 if table is None else int(table["chosen"].argmax())
    pooled = HeldOut(*(np.concatenate(columns) for columns in zip(*(each[best] for each in held), strict=True)))
    return Chosen(candidates[best], fitted[0][best], pooled, table)


def folds_of(rows: LabelledRows, cv: int, seed: int, groups: Array | None = None) -> Folds:
    """Stratified folds; none if a class has fewer than two distinct rows or groups.

    There are `cv` folds, or as many as the smaller class has distinct rows or groups. Equal rows of a class, or rows of
    a group, are in the same fold. Folds that lack a class are left out. Many training rows are a sample.
    """
    n, side, rng = len(rows.positive), rows.positive.astype(np.intp), np.random.default_rng(seed)
    unit = rows.equal_rows(seed) if groups is None else np.unique(groups, return_inverse=True)[1]
    n_folds = min(cv, *(len(np.unique(unit[side == code])) for code in (0, 1)))
    if n_folds < 2:
        return Folds(*np.empty((2, 0, n), dtype=bool))
    if groups is None:
        first = np.unique(unit, return_index=True)[1]
        fold = deal(side[first], n_folds, rng)[unit]
    else:
        fold = deal_groups(n, side, groups, n_folds, seed)
    test = fold == np.arange(n_folds)[:, None]
    fitted = rng.random(unit.max() + 1)[unit] < _FITTED_ROWS * n_folds / ((n_folds - 1) * n)
    train = ~test & fitted
    both = np.array([rows.has_both(train[f]) and rows.has_both(test[f]) for f in range(n_folds)])
    return Folds(train[both], test[both])


def _coefficients(train: LabelledRows, candidates: list[Candidate], task: Task) -> list[Array]:
    """The coefficients of each candidate; a range starts from those of the candidate before it."""
    found: list[Array] = []
    for candidate in candidates:
        found.append(fit(train, candidate, task, found[-1] if found else None).w[0])
    return found


def _scored(train: LabelledRows, test: LabelledRows, w: Array) -> HeldOut:
    centre, spread = negative_scale(train, w)
    return HeldOut((scores_of(test.X, w) - centre) / spread, test.positive, test.mass)


def scores_of(X: Any, w: Array) -> Array:
    """w . x of each row, in float64."""
    return np.asarray(X @ w.astype(X.dtype), dtype=np.float64)


def negative_scale(rows: LabelledRows, w: Array) -> tuple[float, float]:
    """Weighted mean and standard deviation of the scores of the negatives; the latter is 1 if all are equal."""
    z, mass = scores_of(rows.X[np.flatnonzero(~rows.positive)], w), rows.mass[~rows.positive]
    centre = float(np.average(z, weights=mass))
    spread = float(np.sqrt(np.average((z - centre) ** 2, weights=mass)))
    return centre, spread if spread > 1e-12 * max(1.0, abs(centre)) else 1.0


def _compared(
    held: list[list[HeldOut]], candidates: list[Candidate], task: Task, independent: float
) -> dict[str, Array]:
    """The table of candidates: partial AUC, gain over the best logistic fit, its standard error, and which is chosen.

    Without logistic fits, the gain is that over the best candidate. `independent` test sets are independent.
    """
    areas = np.array(
        [[roc_area(each.positive, each.score, each.mass, task.fpr, task.tpr) for each in tests] for tests in held]
    )
    score = areas.mean(axis=0)
    logistic = np.array([candidate.fpr is None for candidate in candidates])
    base = int(np.where(logistic, score, -np.inf).argmax()) if logistic.any() else int(score.argmax())
    gain = areas - areas[:, [base]]
    error = gain.std(axis=0, ddof=1) / np.sqrt(independent) if len(areas) > 1 else np.full(len(score), np.inf)
    best = int(score.argmax())
    if logistic.any() and gain[:, best].mean() <= error[best]:
        best = base
    chosen = np.arange(len(candidates)) == best
    fpr = np.array([candidate.fpr or (np.nan, np.nan) for candidate in candidates])
    tpr, C = np.array([candidate.tpr for candidate in candidates]), np.array([each.C for each in candidates])
    return {"fpr": fpr, "tpr": tpr, "C": C, "score": score, "gain": gain.mean(axis=0), "error": error, "chosen": chosen}


def calibrate(held: HeldOut) -> tuple[float, float]:
    """Slope and intercept of the log odds as a function of the score (Platt scaling).

    The slope is at least 0.001; at this bound, the intercept is the log odds of the share of positives.
    """
    fitted = LogisticRegression(tol=1e-8).fit(held.score[:, None], held.positive, held.mass)
    slope, intercept = float(fitted.coef_[0, 0]), float(fitted.intercept_[0])
    if slope < _MIN_SLOPE:
        share = float(held.mass[held.positive].sum() / held.mass.sum())
        return _MIN_SLOPE, float(np.log(share / (1.0 - share)))
    return slope, intercept


def threshold_at(z: Array, mass: Array, rate: float) -> float:
    """The score that a new negative exceeds with at most the probability `rate`.

    `z` and `mass` are the scores and masses of n held-out negatives. A new negative exceeds the r-th highest of them
    with probability r / (n + 1), because all n + 1 are exchangeable; r is at least 1.
    """
    order = np.argsort(-z, kind="stable")
    reached = np.cumsum(mass[order])
    rank = max(np.floor(rate * (reached[-1] + 1.0) * (1.0 + 1e-12)), 1.0)
    index = min(int(np.searchsorted(reached, rank * (1.0 - 1e-12))), len(z) - 1)
    return float(z[order[index]])
