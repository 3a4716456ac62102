"""Automatic m and C without clean data; `with_clean` uses a clean validation set.

Fits along one path of m (`path`) are scored on held-out rows against the given targets. For classes the score is
balanced accuracy, which under class-conditional label noise increases with that on clean labels; if the same share of
each class is dropped it is accuracy, because dropping then shifts the boundary. For numeric targets it is a squared
error capped at three robust standard deviations, and the smallest m within one standard error of the best counts as the
best. The best m must beat m = 0 by one standard error, with few rows by more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from ..core.transition import WIDTH, predicted_codes, probabilities_of
from ..label_noise import LabelNoiseModel
from ..outliers import outlier_share
from ..solvers import Result
from .folds import draw_folds
from .held_out import HeldOut, cheapest_C, gate, too_few, weaker_penalty
from .models import Task
from .path import dropping, walk, with_C
from .trees import fit_extra_trees, out_of_fold

# Candidate shares of labels and of outliers. More than half of the labels can be wrong only if there are more than two
# classes. Dropping 2% of the rows never gained more than dropping 5%, unless a few extreme outliers shift a regression.
_OF_LABELS = np.array([0.0, 0.05, 0.1, 0.15, 0.25, 0.35, 0.45, 0.6])
_OF_OUTLIERS = np.array([0.0, 0.02, 0.05, 0.1, 0.15, 0.25, 0.35, 0.4, 0.45])
# The largest share of a class that may be cut.
_MAX_OF_CLASS = 0.5
# The share of wrong labels comes from at most this many rows, which estimate it to half a percent.
_SHARE_ROWS = 4_000

Noise = Callable[[], tuple[float, float, float]]


@dataclass(frozen=True)
class Choice:
    """The chosen m, k and scikit-learn's C (None if they are not chosen here), and the reason.

    `fits` has the values of m that score better than m = 0, as masses or as counts, each with a fit (r, p) to continue
    from: the best first, then smaller ones in case that the final fit drops most of a class. `table` has an entry per
    candidate or per evaluation on a clean validation set. `noise` computes the estimated share of wrong labels or of
    outliers and its 95% interval, (0, 0, 1) with too few rows.
    """

    fits: list[tuple[float, Array]]
    table: dict[str, Array]
    reason: str
    noise: Noise
    k: float | None = None
    C: float | None = None

    @property
    def m(self) -> float:
        """The chosen m."""
        return self.fits[0][0] if self.fits else 0


def unknown_share() -> tuple[float, float, float]:
    """The share of errors and its interval if nothing is known about it."""
    return 0.0, 0.0, 1.0


def choose_m(
    objective: Objective,
    rng: np.random.Generator,
    *,
    C: float | None = None,
    n_jobs: int = 1,
    groups: Array | None = None,
    total: float | None = None,
) -> Choice:
    """Choose m, and C if it is not given, by cross-validation against the given targets.

    C is scikit-learn's. It is chosen first, on the same folds; if m > 0, weaker penalties are tried again for the
    chosen m. With fewer than 20 rows, a single group or a k below all candidates m is 0, and C is 1 unless it is given.
    The k of the objective is kept. Folds never split `groups`. If the rows are a sample, `total` is the mass of all
    rows, to which C refers.
    """
    k_share, numeric = objective.k / objective.total, objective.loss.targets == "numbers"
    shares = _OF_OUTLIERS if numeric else _OF_LABELS
    shares = shares[shares < min(k_share, 1.0 if objective.n_outputs > 1 else 0.5 if numeric else 0.39)]
    few = too_few(objective, groups)
    if few or len(shares) < 2:
        reason = few or f"k = {k_share:.3g} n is not above any candidate for m"
        return Choice([], {}, f"{reason}: nothing is cut", unknown_share, C=1.0 if C is None else C)
    scale = (objective.total if total is None else total) / objective.total
    held_out = HeldOut.drawn(objective, rng, groups, n_jobs)
    table: dict[str, Array] = {}
    chosen_C = C * scale if C is not None else cheapest_C(held_out, table)
    held_out.objective = with_C(held_out.objective, chosen_C)
    W = held_out.each(partial(walk, shares=shares))
    Z = held_out.predicted(W)
    allowed = _allowed(held_out, shares, Z)
    # Scores of numeric targets are flat in m once all outliers are cut.
    best, candidates, reason = gate(held_out.quality(Z), held_out.mass, shares, allowed, float(numeric))
    fits: list[tuple[float, Array]] = []
    if best:
        if C is None:
            chosen_C = weaker_penalty(held_out, table["C"], float(shares[best]), W[best])
            held_out.objective = with_C(held_out.objective, chosen_C)
        full = walk(held_out.sample(), shares[: best + 1])
    for i in reversed(range(1, best + 1)):
        m = dropping(objective, float(shares[i])).m
        enough = candidates["gain"][i] > candidates["error"][i]
        if allowed[i] and enough and not loses_a_class(objective, full[i], m):
            fits.append((m, full[i]))
    noise = partial(_noise, held_out, Z, best)
    return Choice(fits, {"m": shares, **candidates, **table}, reason, noise, C=chosen_C / scale)


def _allowed(held_out: HeldOut, shares: Array, Z: Array) -> Array:
    """Array (M,): the candidates that do not drop more than half of a class, or more than outliers.

    With peaked noise, dropping a third of correct rows would improve the score of a regression. The smallest share is
    always allowed. Others are at most the upper limit of the share of outliers, or half more than a symmetric one.
    """
    rows = held_out.rows
    if rows.loss.targets == "numbers":
        found = [outlier_share(z[0] - rows.y, held_out.mass) for z in Z.mean(axis=0)]
        most = np.array([max(high, 1.5 * (2.0 * share - low)) for share, low, high in found])
        return np.asarray(shares <= np.maximum(most, float(shares[1])))
    losses = held_out.losses(Z)
    return np.array([not _cuts_a_class(rows, s, dropping(rows, m).m) for m, s in zip(shares, losses, strict=True)])


def loses_a_class(objective: Objective, W: Array, m: float) -> bool:
    """Whether dropping the mass m of the largest losses at W (r, p) drops more than half of a class.

    Such a class is probably rare or hard to predict, not mislabelled. False for numeric targets.
    """
    if objective.loss.targets == "numbers":
        return False
    return _cuts_a_class(objective, objective.losses(objective.design.scores(W)), m)


def _cuts_a_class(objective: Objective, s: Array, m: float) -> bool:
    if m <= 0:
        return False
    kept = objective.ranked(m, objective.total).select(s).weights
    sizes, left = (np.bincount(objective.strata, weights=weight) for weight in (objective.mass, kept))
    return bool((left < (1.0 - _MAX_OF_CLASS) * sizes).any())


def _noise(held_out: HeldOut, Z: Array, chosen: int) -> tuple[float, float, float]:
    """The share of wrong labels, or of outliers, with its 95% interval, from the out-of-fold scores Z (R, M, r, rows).

    Labels use the predictions of the ordinary and of the chosen fit, and forests; residuals those of the chosen
    fit, and the fits that drop most for the upper limit.
    """
    rows, Z = held_out.rows, Z.mean(axis=0)
    if rows.loss.targets == "numbers":
        residuals = Z[:, 0] - rows.y
        return outlier_share(residuals[chosen], held_out.mass, residuals[-1:])
    return share_of_wrong_labels(rows, Z[sorted({0, chosen})].transpose(0, 2, 1), held_out.rng)


def share_of_wrong_labels(objective: Objective, scores: Array, rng: np.random.Generator) -> tuple[float, float, float]:
    """The estimated share of wrong labels, and the lower and upper limit of its 95% interval.

    `scores` (fits, n, r) are out-of-fold scores of linear fits for the rows of the objective; at most 4,000 are used.
    Forests are added, because linear fits alone take non-linear boundaries for wrong labels (20% in clean XOR data).
    Labels that no model predicts may be wrong or hard, so the interval covers both cases.
    """
    rows = np.arange(objective.design.n)
    if len(rows) > _SHARE_ROWS:
        rows = np.sort(rng.choice(rows, _SHARE_ROWS, replace=False))
    codes, mass = objective.strata[rows], None
    if objective.mass.dtype != bool:
        mass = objective.mass[rows].astype(np.float64)
    linear = {f"linear {i}": probabilities_of(Z[rows]) for i, Z in enumerate(scores)}
    folds = draw_folds(len(rows), rng, strata=codes, n_folds=5, n_repeats=1)
    task = Task(objective.design.X[rows], codes, np.arange(linear["linear 0"].shape[1]), mass)
    found = LabelNoiseModel().fit(linear | out_of_fold(fit_extra_trees(task, folds, rng)), codes, mass)
    weight = np.ones(len(rows)) if mass is None else mass
    missed = float(weight @ (found.mean.argmax(axis=1) != codes) / weight.sum())
    most = missed + WIDTH * float(np.sqrt(missed * (1.0 - missed) / weight.sum()))
    return found.share, found.interval[0], min(1.0, max(found.interval[1], most))


# Section 4.3: k = n / divisor once the training accuracy reaches the level.
ADAPTIVE = ((0.7, 2), (0.8, 4), (0.9, 8), (0.95, 16), (0.995, 32))


def adapt_k(
    objective: Objective, result: Result, solve: Callable[[Objective, Array], Result]
) -> tuple[Objective, Result]:
    """The paper's schedule for k: fit at k = n, then at the k for this training accuracy (`ADAPTIVE`), and repeat.

    `result` is the solution at k = n, and `solve` fits an objective from a start. The schedule ends if k would not
    decrease, or would not exceed m. Returns the last objective and its solution.
    """
    for _ in ADAPTIVE:
        accuracy = _training_accuracy(objective, result.w)
        divisor = max([1] + [divisor for level, divisor in ADAPTIVE if accuracy >= level])
        k = objective.total / divisor if objective.sample_weight is not None else objective.total // divisor
        if k >= objective.k or k <= objective.m:
            break
        objective = objective.ranked(objective.m, k)
        result = solve(objective, result.w)
    return objective, result


def _training_accuracy(objective: Objective, W: Array) -> float:
    mass, predicted = objective.mass.astype(np.float64), predicted_codes(objective.design.scores(W))
    return float(mass @ (predicted == objective.strata) / mass.sum())
