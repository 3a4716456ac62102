"""Automatic m, k and C without clean data (`choose_m`); `with_clean` uses a clean validation set.

Fits on a grid of m are scored by cross-validation against the given targets. For classes the score is balanced
accuracy. Under class-conditional label noise it is an increasing function of the balanced accuracy on clean labels,
which accuracy is not. If the same share of each class is dropped, the score is accuracy, because dropping then shifts
the boundary, which balanced accuracy rewards even if all labels are right. For numeric targets the score is based on a
squared error capped at three robust standard deviations, which limits the influence of outliers, and the smallest m
within one standard error of the best score counts as the best. In both cases the best m must beat m = 0 by one standard
error, with few rows by more.

With many rows, the scores near the best m are flat, but the share of errors is estimated accurately. If m is not 0, it
is then this share, provided that its score is within two standard errors of the best. `adapt_k` is the paper's schedule
for k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from ..core.transition import predicted_codes
from ..outliers import outlier_share
from ..solvers import Result
from . import fits as paths
from .fits import Fits
from .folds import FOLDS_UP_TO, PART_FROM, PENALTIES, TWICE_UP_TO, CrossFit, Report, plan_of, silent, split
from .held_out import Scored
from .label_share import share_of_wrong_labels

# Candidate shares. More than half of the labels can be wrong only if there are more than two classes.
SHARES = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6])
# With many rows the estimated share of errors is also a candidate, so fewer of these are enough.
_COARSE = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
# Fewer rows than this are uninformative about m.
_MIN_ROWS = 20
# If X times scores per row is larger, m is chosen on a sample of the rows.
_LARGEST = 6e8
_RANDOM_STARTS = 6
# The maximum of many scores is biased upwards, more so with few rows: with n rows the gain must be 1 + 40/n standard
# errors.
_SMALL_SAMPLE = 40.0
# The largest share of a class that may be cut.
_MAX_OF_CLASS = 0.5
# For numeric targets, m is at most this multiple of the upper bound of the share of outliers. With peaked noise, such
# as Laplace noise, dropping a third of correct rows would improve the score.
_NO_MORE = 1.5


@dataclass(frozen=True)
class Choice:
    """The chosen m, k and C, and the table of candidates.

    Attributes
    ----------
    m : float
        The chosen m as a mass, or as a count if masses are counts.
    start : ndarray of shape (r, p) or None
        A fit at this m to continue from; None if `choose_m` chose m = 0.
    table : dict of ndarray
        Arrays with one entry per candidate, or per evaluation on a clean validation set; empty if nothing was compared.
    reason : str
        The reason for the choice.
    noise : tuple of float or None
        The estimated share of wrong labels or of outliers, and the lower and upper limit of its 95% interval; (0, 0, 1)
        with too few rows, None if it was not needed. It may differ from m, which has the best score.
    k, C : float or None
        The k of `choose_with_validation` and the scikit-learn C of `choose_m`, whether chosen or given; otherwise None.
    """

    m: float
    start: Array | None
    table: dict[str, Array]
    reason: str
    noise: tuple[float, float, float] | None
    k: float | None = None
    C: float | None = None


def choose_m(
    objective: Objective,
    rng: np.random.Generator,
    report: Report = silent,
    *,
    C: float | None = None,
    n_jobs: int = 1,
    groups: Array | None = None,
    largest: float = _LARGEST,
    total: float | None = None,
    cross_fit: type[CrossFit] | Callable[..., CrossFit] = CrossFit,
    with_noise: bool = True,
) -> Choice:
    """Choose m, and C if it is not given, by cross-validation against the given targets.

    C is scikit-learn's. It is chosen first, on the same folds, for the ordinary fits. If m > 0, weaker penalties are
    tried again for the chosen m. If more than half of a class would be dropped in the fit to all rows, only smaller m
    are compared. With fewer than 20 rows, a single group or a k below all candidates, nothing is chosen: m is 0, and C
    is 1 unless it is given. The m of the objective is ignored, its k is kept. Folds never split `groups`. If the number
    of entries of X times the scores per row exceeds `largest`, m is chosen on a sample of the rows. If the rows of the
    objective are themselves a sample, `total` is the mass of all rows, to which C refers. `cross_fit` makes the
    `CrossFit`; an engine may pass one that scores rows on a device. Without `with_noise` the share of errors is
    estimated only if the choice depends on it.
    """
    k_share = objective.k / objective.total
    shares = SHARES if objective.design.n <= (PART_FROM if objective.n_outputs == 1 else FOLDS_UP_TO) else _COARSE
    shares = shares[shares < min(k_share, 0.5 if objective.n_outputs == 1 else 1.0)]
    too_few = objective.total < _MIN_ROWS or _one_group(groups)
    if too_few or not len(shares):
        few = f"fewer than {_MIN_ROWS} rows, or one group of rows"
        reason = few if too_few else f"k = {k_share:.3g} n is not above any candidate for m"
        return Choice(0, None, {}, f"{reason}: nothing is cut", (0.0, 0.0, 1.0), C=1.0 if C is None else C)
    part, groups = _some_rows(objective, rng, groups, largest)
    strata = part.strata
    total = objective.total if total is None else total
    # A sample gets the same penalty as all rows.
    cross = cross_fit(part, split(part, strata, rng, plan_of(part), groups), C, n_jobs=n_jobs, total=total)
    candidates = cross.candidates(shares, k_share, rng, _RANDOM_STARTS, report)
    most = np.inf
    for _ in candidates.shares:
        fits, chosen, table, reason, noise = _best(cross, strata, candidates, k_share, rng, report, most, with_noise)
        if C is None and chosen:
            fits = weaker_penalty(cross, fits, chosen, k_share)
        found = fits.sets.C / total if C is None else C
        if chosen == 0:
            return Choice(0, None, table, reason, noise, C=found)
        start = fits.W[chosen, 0] if len(cross.tests) == 1 else None  # a hold-out has enough rows for the least share
        m, start = on_all_rows(objective, fits, chosen, shares, k_share, start, found * total, rng)
        if not loses_a_class(objective, start, m):
            return Choice(m, start, table, reason, noise, C=found)
        most = 0.99 * float(fits.shares[chosen])
    return Choice(0, None, table, "no m keeps half of each class in the fit to all rows", noise, C=found)


def _best(
    cross: CrossFit,
    strata: Array,
    fits: Fits,
    k_share: float,
    rng: np.random.Generator,
    report: Report,
    most: float = np.inf,
    with_noise: bool = True,
) -> tuple[Fits, int, dict[str, Array], str, tuple[float, float, float] | None]:
    """The fits, the index of the chosen one, the table of candidates, the reason, and the estimated share of errors.

    The share is None if it is not needed. Candidates that drop a share of at least `most`, or more than half of a
    class, are excluded; for numeric targets also those above 1.5 times the upper limit of the share of outliers. With
    more than 4,000 rows the estimated share is a further candidate, under the same limits.
    """
    part, tests = cross.objective, cross.tests
    parts = cross.scores(fits)
    allowed = (fits.shares < most) & ~_lose_a_class(fits)
    scores = cross.scored(fits)
    chosen, table, reason = _gate(scores, part, fits, allowed)
    many = part.design.n > TWICE_UP_TO
    if not (with_noise or many or part.loss.targets == "numbers"):
        return fits, chosen, table, reason, None
    noise = _noise(part, strata, parts, tests, chosen, fits.shares, rng)
    # The smallest candidate is always allowed, because dropping a few extreme outliers is worthwhile.
    limit = max(_NO_MORE * noise[2], float(SHARES[0]))
    if part.loss.targets == "numbers" and fits.shares[chosen] > limit:
        chosen, _, reason = _gate(scores, part, fits, allowed & (fits.shares <= limit))
        noise = _noise(part, strata, parts, tests, chosen, fits.shares, rng)
    # With fewer rows the estimate is too inaccurate, and an estimate below the smallest share is not a candidate.
    if chosen and many and noise[0] >= SHARES[0]:
        more = fits.with_candidate(chosen, min(noise[0], 0.9 * k_share), k_share)
        report(f"{len(tests)} more fits, at the estimated share of errors, m = {more.shares[-1]:.3f} n")
        if more.shares[-1] < min(most, limit) and not _lose_a_class(more)[-1]:
            fits = more
            allowed = np.append(allowed, True)
            chosen, table, reason = _gate(cross.scored(more), part, fits, allowed, preferred=len(allowed) - 1)
    return fits, chosen, table, reason, noise


def loses_a_class(objective: Objective, W: Array, m: float) -> bool:
    """Whether dropping the mass m of the largest losses at W (r, p) drops more than half of a class.

    Such a class is probably rare or hard to predict, not mislabelled. False for numeric targets.
    """
    if objective.loss.targets == "numbers" or m <= 0:
        return False
    s = objective.losses(objective.design.scores(W))
    return bool(_lost(objective, s[None], objective.mass[None], np.array([m]))[0])


def _lose_a_class(fits: Fits) -> Array:
    """Array (candidates,): which ones drop more than half of a class in at least half of the training sets.

    None do for numeric targets.
    """
    model, found = fits.sets.model, np.zeros(len(fits.shares), dtype=bool)
    if model.loss.targets == "numbers":
        return found
    m, _ = paths.masses_of(fits.sets, fits.shares, 1.0)
    for i in np.flatnonzero(fits.shares):
        s = np.stack([model.losses(Z) for Z in fits.sets.scores(fits.W[i])])
        found[i] = _lost(model, s, fits.sets.masses, m[i]).mean() >= 0.5
    return found


def _lost(model: Objective, s: Array, mass: Array, m: Array) -> Array:
    """Array (S,): whether the largest losses s (S, n), up to the masses m (S,), contain more than half of a class."""
    cut, strata = model.aggregate.top(s, mass, m), model.strata
    classes = [strata == c for c in np.unique(strata)]
    return np.any([cut[:, rows].sum(axis=1) > _MAX_OF_CLASS * mass[:, rows].sum(axis=1) for rows in classes], axis=0)


def choose_C(
    objective: Objective,
    rng: np.random.Generator,
    n_jobs: int = 1,
    groups: Array | None = None,
    total: float | None = None,
    cross_fit: type[CrossFit] | Callable[..., CrossFit] = CrossFit,
) -> float:
    """Choose scikit-learn's C for an objective at its m and k, by cross-validation as in `choose_m`.

    It is the best C of ordinary fits, whatever k is; for m > 0, a larger one if `weaker_penalty` finds it. With fewer
    than 20 rows or a single group it is 1.
    """
    if objective.total < _MIN_ROWS or _one_group(groups):
        return 1.0
    part, groups = _some_rows(objective, rng, groups)
    total = objective.total if total is None else total
    cross = cross_fit(part, split(part, part.strata, rng, plan_of(part), groups), n_jobs=n_jobs, total=total)
    share = objective.m / objective.total
    if share == 0:
        return cross.C
    fits = cross.trimmed(np.array([0.5 * share, share]))
    return weaker_penalty(cross, fits, 2, objective.k / objective.total).sets.C / total


def weaker_penalty(cross: CrossFit, fits: Fits, chosen: int, k_share: float) -> Fits:
    """Try weaker penalties at the chosen m, and keep one that scores better by more than a standard error.

    Returns the fits with this penalty and the chosen candidate refitted; the other candidates are not refitted.

    If wrong or high-leverage rows bias the ordinary fit, its best penalty is too strong; without these rows a weaker
    one may be better. The loss of the kept rows cannot choose C, because a weaker penalty always lowers it.
    """
    objective = cross.objective
    m, k = paths.masses_of(fits.sets, fits.shares[[chosen]], k_share)
    every, found, W = np.arange(len(fits.sets.masses)), [(fits.sets, fits.W[chosen])], fits.W[chosen]
    for C in [C for C in PENALTIES if 1.01 * fits.sets.C / cross.total < C]:
        sets = replace(fits.sets, C=C * cross.total)
        W, _ = sets.fit(W, every, m[0], k, max_iter=40)
        found.append((sets, W))
    both = Fits(fits.sets, np.zeros(len(found)), ["C"] * len(found), np.stack([W for _, W in found]))
    best, _, _ = _gate(cross.scored(both), objective, both)
    moved = fits.W.copy()
    moved[chosen] = found[best][1]
    return replace(fits, sets=found[best][0], W=moved)


def on_all_rows(
    objective: Objective,
    fits: Fits,
    chosen: int,
    shares: Array,
    k_share: float,
    start: Array | None,
    C: float,
    rng: np.random.Generator,
) -> tuple[float, Array]:
    """The chosen m as a mass, and the chosen fit on all rows.

    If `start` is given, it is returned as the fit. Otherwise the fit is computed like those on the folds, because a
    deeper search would find minima that were not scored. C is relative to the mean loss of all rows.
    """
    sets = paths.Sets.of(objective, objective.mass[None], C)
    shares = np.union1d(shares, fits.shares[chosen])
    m, k = paths.masses_of(sets, shares, k_share)
    level = int(np.flatnonzero(shares == fits.shares[chosen])[0])
    if start is None and fits.names[chosen] == "up":
        start = paths.upward(sets, paths.ordinary(sets), m[: level + 1], k)[-1, 0]
    elif start is None:
        start = paths.searched(sets, m, k, rng, _RANDOM_STARTS if objective.n_outputs == 1 else 0)[level, 0]
    return float(m[level, 0]), start


def _some_rows(
    objective: Objective, rng: np.random.Generator, groups: Array | None, largest: float = _LARGEST
) -> tuple[Objective, Array | None]:
    """The objective on the rows on which m is chosen, all or a random sample, and the groups of these rows."""
    n, numbers = objective.design.n, objective.design.p * objective.n_outputs
    most = max(int(largest / numbers), TWICE_UP_TO)
    if n <= most:
        return objective, groups
    sample = np.sort(rng.choice(n, most, replace=False))
    return objective.rows(sample, 0, 1), None if groups is None else groups[sample]


def _one_group(groups: Array | None) -> bool:
    """Whether all rows belong to one group, so that no rows can be held out; False without groups."""
    return groups is not None and len(np.unique(groups)) < 2


def _noise(
    objective: Objective,
    strata: Array,
    parts: list[tuple[Array, Array]],
    tests: Array,
    chosen: int,
    shares: Array,
    rng: np.random.Generator,
) -> tuple[float, float, float]:
    """The share of wrong labels, or of outliers, with its 95% interval, from the out-of-fold scores of the chosen fit.

    `parts` and `tests` are the scores and the test rows of the `CrossFit`; rows that no fold tests are ignored. For
    labels, the predictions of the ordinary fit and of a smooth model are used as well; for numeric targets, the upper
    limit also includes what the fits that drop the most rows contradict. `shares` are those of all candidates.
    """
    numeric, n = objective.loss.targets == "numbers", objective.design.n
    # The fits that drop the most rows may contradict rows that the chosen fit accommodates.
    candidates = sorted({0, chosen, *(np.flatnonzero(shares == shares.max()).tolist() if numeric else ())})
    total, times = np.zeros((len(candidates), objective.n_outputs, n)), np.zeros(n)
    for (rows, Z), test in zip(parts, tests, strict=True):
        total[:, :, rows] += Z[candidates] * test[rows]
        times[rows] += test[rows]
    scores = (total / np.where(times > 0, times, 1.0)).transpose(0, 2, 1)
    if numeric:
        rows = np.flatnonzero(times)
        residuals = scores[:, rows, 0] - objective.y[rows]
        chosen_at = candidates.index(chosen)
        return outlier_share(residuals[chosen_at], objective.mass[rows].astype(np.float64), residuals)
    return share_of_wrong_labels(objective, strata, scores, times > 0, rng)


def _gate(
    scores: Scored, objective: Objective, fits: Fits, allowed: Array | None = None, preferred: int | None = None
) -> tuple[int, dict[str, Array], str]:
    """The index of the best candidate, or 0 (the ordinary fit) if it gains too little; the table; and the reason.

    Only candidates that are `allowed` (a mask, by default all) are compared. The gain must exceed one standard error,
    with few rows more. For numeric targets, the candidate with the smallest m within one standard error of the best
    counts as the best. The `preferred` candidate does if its score is within two standard errors of the best.
    """
    compared = np.arange(len(fits.shares)) if allowed is None else np.flatnonzero(allowed)
    gain = _gains(scores, 0)
    best = int(compared[gain[compared].argmax()])
    if objective.loss.targets == "numbers" and best and fits.shares.any():
        # Scores are flat in m once all outliers are cut, and the maximum is random: cut no more than needed.
        worse = -_gains(scores, best) > scores.errors(best)
        best = min((i for i in compared[1:].tolist() if not worse[i]), key=lambda i: (fits.shares[i], -gain[i]))
    if preferred is not None and -_gains(scores, best)[preferred] <= 2.0 * scores.errors(best)[preferred]:
        best = preferred
    errors = scores.errors(0)
    score = scores.mean[0] + gain
    table = {"m": fits.shares, "path": np.array(fits.names), "score": score, "gain": gain, "error": errors}
    if gain[best] > errors[best] * (1.0 + _SMALL_SAMPLE / scores.mass):
        how = "is the estimated share of errors and scores as well as the best" if best == preferred else "scores best"
        return best, table, f"m = {fits.shares[best]:.3g} n {how}"
    return 0, table, "no m scores better than m = 0 by one standard error"


def _gains(scores: Scored, candidate: int) -> Array:
    """Array (candidates,): the score minus that of one candidate, exactly 0 if they differ only by rounding errors.

    The standard error of equal scores is 0, so any difference would count as significant.
    """
    return np.round(scores.mean - scores.mean[candidate], 12)


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
