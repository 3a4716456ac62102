"""Held-out scores of linear fits, and the choice of C.

C minimises the out-of-fold loss of the ordinary fits; for numeric targets and an l1 penalty the mean of the smaller 70%
of the losses, of fits that drop 0, 10 or 20% of the rows, because outliers would make the strongest penalty the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from joblib import Parallel, delayed
from scipy.special import ndtri

from ..core.aggregates import Stratified
from ..core.arrays import Array
from ..core.objective import Objective
from ..core.transition import predicted_codes
from ..outliers import OUTLYING
from ..solvers.concentration import concentrate
from .folds import PENALTIES, Folds, draw_folds
from .path import dropping, ordinary_fit, out_of_fold, part_of, robust_distances, upwards, walk, with_C

# Fewer rows than this are uninformative about m.
_MIN_ROWS = 20
# Up to this many rows folds are drawn twice: with 345 rows, one draw missed gains of 8 points.
_TWICE_UP_TO = 500
# Fits use at most this many rows of a training set: the gain of m hardly depends on their number.
_FITTED_ROWS = 1600
# The maximum of many scores is biased upwards, more so with few rows: with n rows the gain must be 1 + 40/n standard
# errors.
_SMALL_SAMPLE = 40.0
# An l1 path: the number of penalties, and the largest C over the smallest, at which all coefficients are zero.
_L1_PENALTIES, _L1_RANGE = 50, 50.0
# Robust losses for the choice of C: the shares that fits drop, and that of the largest losses that is left out.
_C_SHARES, _C_TRIM = (0.0, 0.1, 0.2), 0.3


@dataclass
class HeldOut:
    """The rows on which m and C are chosen, with their folds; C is relative to the mass of these rows.

    `fitted` are rows of each training set, a sample drawn by `rng` if there are many, and `tested` the rows that a fold
    tests. `n_jobs` is the number of threads.
    """

    objective: Objective
    folds: Folds
    rng: np.random.Generator
    n_jobs: int = 1
    fitted: list[Array] = field(init=False)
    tested: Array = field(init=False)

    def __post_init__(self) -> None:
        present = self.objective.mass > 0
        self.fitted = [self._some(np.flatnonzero(train & present)) for train in self.folds.train]
        self.tested = np.flatnonzero(self.folds.tested)

    @classmethod
    def drawn(cls, objective: Objective, rng: np.random.Generator, groups: Array | None, n_jobs: int) -> HeldOut:
        """The rows in five folds, or as many as there are groups, drawn twice if they are few; C and k are kept."""
        objective, groups = _repeated(objective.ranked(0, objective.k), groups)
        n, n_folds = objective.design.n, 5 if groups is None else min(5, len(np.unique(groups)))
        n_repeats = 2 if n <= _TWICE_UP_TO else 1
        folds = draw_folds(n, rng, strata=objective.strata, groups=groups, n_folds=n_folds, n_repeats=n_repeats)
        return cls(objective, folds, rng, n_jobs)

    def _some(self, rows: Array) -> Array:
        few = len(rows) <= _FITTED_ROWS
        return rows if few else np.sort(self.rng.choice(rows, _FITTED_ROWS, replace=False))

    def sample(self) -> Objective:
        """The objective on the rows that start the fit to all rows."""
        return part_of(self.objective, self._some(np.arange(self.objective.design.n)))

    def each(self, fit: Callable[..., Array], *starts: Array) -> Array:
        """The results (..., r, p) of `fit` on the training rows of each fold, stacked: (..., F, r, p).

        `starts` (F, ...) have further arguments of `fit` for each fold.
        """
        run = Parallel(n_jobs=self.n_jobs, prefer="threads")
        found = run(
            delayed(fit)(part_of(self.objective, rows), *start)
            for rows, *start in zip(self.fitted, *starts, strict=True)
        )
        return np.stack(list(found), axis=-3)

    @property
    def rows(self) -> Objective:
        """The objective on the tested rows."""
        return part_of(self.objective, self.tested)

    @property
    def mass(self) -> Array:
        """The masses of the tested rows."""
        return self.objective.mass[self.tested].astype(np.float64)

    def predicted(self, W: Array) -> Array:
        """Scores (R, M, r, rows) of the tested rows by the fits W (M, F, r, p), in each of R draws of the folds."""
        repeats = self.folds.repeats
        found = np.zeros((repeats[-1] + 1, len(W), W.shape[2], self.objective.design.n))
        for repeat, (rows, Z) in zip(repeats, out_of_fold(self.objective, self.folds, W), strict=True):
            found[repeat][:, :, rows] = Z
        return found[..., self.tested]

    def losses(self, Z: Array) -> Array:
        """The losses (M, rows) at the scores Z (R, M, r, rows) of the tested rows, averaged over the draws."""
        rows = self.rows
        return np.mean([[rows.losses(z) for z in draw] for draw in Z], axis=0)

    def quality(self, Z: Array) -> Array:
        """How well (M, rows) each tested row is predicted by the scores Z (R, M, r, rows), averaged over the draws."""
        quality = _closeness if self.objective.loss.targets == "numbers" else _correctness
        return np.mean([quality(self.rows, draw) for draw in Z], axis=0)


def _correctness(rows: Objective, Z: Array) -> Array:
    """0 for wrong predictions, a class weight for correct ones, which is 1 if each class drops the same share."""
    mass = np.bincount(rows.strata, weights=rows.mass.astype(np.float64))
    weight = np.divide(mass.sum() / np.count_nonzero(mass), mass, out=np.zeros_like(mass), where=mass > 0)
    if isinstance(rows.aggregate, Stratified) and np.array_equal(rows.aggregate.groups, rows.strata):
        weight = np.ones_like(mass)
    return (predicted_codes(Z, axis=1) == rows.strata) * weight[rows.strata]


def _closeness(rows: Objective, Z: Array) -> Array:
    """1 - min(1, (residual / 3 sigma)^2), where sigma is the smallest robust scale of the fits.

    It comes from the median of absolute residuals, or from their 70% quantile if the median is 0 (repeated targets).
    """
    residuals = np.abs(Z[:, 0] - rows.y)
    scales = [np.quantile(residuals, share, axis=1).min() / ndtri(0.5 + 0.5 * share) for share in (0.5, 0.7)]
    least = max(1e-9 * float(np.abs(rows.y).max()), 1e-300)
    sigma = max(scales[0] if scales[0] > least else scales[1], least)
    return 1.0 - np.minimum(1.0, (residuals / (OUTLYING * sigma)) ** 2)


def _repeated(objective: Objective, groups: Array | None) -> tuple[Objective, Array | None]:
    """Integer weights as repeated rows, unless these are many: folds split a row of weight 2 like two rows."""
    mass, n = objective.sample_weight, objective.design.n
    if mass is None or (mass != np.floor(mass)).any() or mass.sum() > max(2 * n, 4000):
        return objective, groups
    rows = np.repeat(np.arange(n), mass.astype(np.intp))
    repeated = replace(objective.rows(rows, objective.m, objective.k), sample_weight=None)
    return repeated, None if groups is None else groups[rows]


def too_few(objective: Objective, groups: Array | None) -> str:
    """Why nothing can be chosen on these rows; an empty text if it can."""
    one_group = groups is not None and len(np.unique(groups)) < 2
    few = objective.total < _MIN_ROWS or one_group
    return f"fewer than {_MIN_ROWS} rows, or one group of rows" if few else ""


def gate(scores: Array, mass: Array, shares: Array, allowed: Array, tie: float) -> tuple[int, dict[str, Array], str]:
    """The index of the best candidate, or 0 if it gains less than a standard error; the table; and the reason.

    With few rows it must gain more. The first candidate within `tie` standard errors of the best counts as the best.
    """
    allowed = allowed.copy()
    allowed[0] = True
    gain, error = _gains(scores, mass, 0)
    best = int(np.where(allowed, gain, -np.inf).argmax())
    if tie and best:
        worse, spread = _gains(scores, mass, best)
        best = int(np.flatnonzero(allowed & (-worse <= tie * spread) & (np.arange(len(gain)) > 0))[0])
    table = {"score": float(mass @ scores[0] / mass.sum()) + gain, "gain": gain, "error": error}
    if gain[best] > error[best] * (1.0 + _SMALL_SAMPLE / mass.sum()):
        return best, table, f"m = {shares[best]:.3g} n scores best"
    return 0, table, "no m scores better than m = 0 by one standard error"


def _gains(scores: Array, mass: Array, candidate: int) -> tuple[Array, Array]:
    """The mean scores (M,) minus that of one candidate, exactly 0 up to rounding errors, and their standard errors."""
    difference, total = scores - scores[candidate], mass.sum()
    gain = np.round(difference @ mass / total, 12)
    return gain, np.sqrt(((difference - gain[:, None]) ** 2) @ mass) / total


def choose_C(
    objective: Objective,
    rng: np.random.Generator,
    n_jobs: int = 1,
    groups: Array | None = None,
    total: float | None = None,
) -> tuple[float, dict[str, Array]]:
    """Choose scikit-learn's C for an objective at its m and k, by cross-validation as in `choose_m`.

    For m > 0 it is larger than the best C of ordinary fits if its score is better by more than one standard error. With
    fewer than 20 rows or a single group it is 1. Also returns the table of the values compared.
    """
    if too_few(objective, groups):
        return 1.0, {}
    scale = (objective.total if total is None else total) / objective.total
    held_out, share = HeldOut.drawn(objective, rng, groups, n_jobs), objective.m / objective.total
    table: dict[str, Array] = {}
    C = cheapest_C(held_out, table)
    if share:
        held_out.objective = with_C(held_out.objective, C)
        W = held_out.each(lambda part: walk(part, (0.0, 0.5 * share, share)))
        C = weaker_penalty(held_out, table["C"], share, W[-1])
    return C / scale, table


def penalties_of(objective: Objective) -> Array:
    """Increasing candidates for C: `PENALTIES`, or for an l1 penalty a path from the largest C without coefficients.

    One outlier could change the latter arbitrarily, so only the nearer 70% of the rows count.
    """
    if not objective.l1_ratio:
        return np.asarray(PENALTIES)
    distances = robust_distances(objective)
    part = part_of(objective, np.flatnonzero(distances <= np.quantile(distances, 1.0 - _C_TRIM)))
    empty = with_C(replace(part, l1_ratio=0.0), 1e-30)  # only the intercept is fitted
    W = ordinary_fit(empty)
    slopes = empty.at(W).gradient - empty.penalty_gradient(W)
    largest = float(np.abs(slopes[:, : part.design.d]).max())
    first = objective.l1_ratio / largest / objective.total if largest > 0 else 1.0
    return first * np.geomspace(1.0, _L1_RANGE, _L1_PENALTIES)


def best_C(objective: Objective, folds: Folds, rng: np.random.Generator, Cs: Array | None = None) -> float:
    """scikit-learn's C, of `Cs` if given, with the lowest out-of-fold loss on the given folds."""
    return cheapest_C(HeldOut(objective.ranked(0, objective.k), folds, rng), {}, Cs)


def cheapest_C(held_out: HeldOut, table: dict[str, Array], Cs: Array | None = None) -> float:
    """The smallest C with nearly the lowest out-of-fold loss.

    For numeric targets and for an l1 penalty, unless `Cs` are given, the loss is the trimmed one, and an l1 penalty
    takes the smallest C within one standard error.
    """
    plain = Cs is not None or (held_out.objective.loss.targets != "numbers" and not held_out.objective.l1_ratio)
    Cs = penalties_of(held_out.objective) if Cs is None else Cs
    held_out.objective = objective = with_C(held_out.objective, 1.0)
    shares = (0.0,) if plain else _C_SHARES
    W = held_out.each(partial(_penalty_paths, Cs=Cs, shares=shares))
    losses = held_out.losses(held_out.predicted(W))
    found = [_trimmed_mean(row, held_out.mass, 0.0 if plain else _C_TRIM) for row in losses]
    cost, error = np.array(found).reshape(len(shares), len(Cs), 2).transpose(2, 0, 1)
    row = np.unravel_index(int(cost.argmin()), cost.shape)[0]
    cost, error = cost[row], error[row]
    best = int(cost.argmin())
    limit = cost[best] + error[best] if objective.l1_ratio and not plain else cost[best] * (1.0 + 1e-4)
    table.update({"C": Cs, "loss": cost, "loss_error": error})
    return float(Cs[np.flatnonzero(cost <= limit)[0]])


def _penalty_paths(objective: Objective, Cs: Array, shares: Sequence[float]) -> Array:
    """Fits (shares * penalties, r, p) of increasing C, each from the one before; the first of a share from the last."""
    paths: list[list[Array]] = [[] for _ in shares]
    scale = objective.C_of_sum
    for C in Cs:
        here = with_C(objective, scale * C)
        last = ordinary_fit(here, paths[0][-1] if paths[0] else None)
        paths[0].append(last)
        for share, path in zip(shares[1:], paths[1:], strict=True):
            [(_, last)] = upwards(here, [share], path[-1] if path else last)
            path.append(last)
    return np.array([fit for path in paths for fit in path])


def _trimmed_mean(losses: Array, mass: Array, trim: float) -> tuple[float, float]:
    """The mean of the losses without the share `trim` of the largest, and its standard error."""
    order = np.argsort(losses, kind="stable")
    kept = np.clip((1.0 - trim) * mass.sum() - (np.cumsum(mass[order]) - mass[order]), 0.0, mass[order])
    mean = float(kept @ losses[order] / kept.sum())
    return mean, float(np.sqrt(kept @ (losses[order] - mean) ** 2) / kept.sum())


def weaker_penalty(held_out: HeldOut, Cs: Array, share: float, W: Array) -> float:
    """The C of the objective, or a larger one whose score at this share is better by more than a standard error.

    If outliers bias the ordinary fit, its best penalty is too strong. The loss of the kept rows cannot choose C,
    because a weaker penalty always lowers it. W (F, r, p) are the fits at the C of the objective.
    """
    given = held_out.objective.C_of_sum
    larger = Cs[Cs > 1.01 * given][:: max(1, len(Cs) // len(PENALTIES))]
    found = [W]
    for C in larger:
        held_out.objective = with_C(held_out.objective, C)
        found.append(held_out.each(lambda part, last: concentrate(dropping(part, share), last)[0], found[-1]))
    held_out.objective = with_C(held_out.objective, given)
    quality = held_out.quality(held_out.predicted(np.array(found)))
    best = gate(quality, held_out.mass, np.zeros(len(found)), np.ones(len(found), dtype=bool), 0.0)[0]
    return float([given, *larger][best])


def follow_penalties(objective: Objective, W: Array, Cs: Array) -> Array:
    """The slopes (C, r, d) of fits for these values of scikit-learn's C, each from the next one; W is the fit at C."""
    chosen = int(np.abs(np.log(Cs / objective.C_of_sum)).argmin())
    fits = {chosen: W}
    for indices in (range(chosen - 1, -1, -1), range(chosen + 1, len(Cs))):
        last = W
        for i in indices:
            last = fits[i] = concentrate(with_C(objective, Cs[i]), last)[0]
    return np.array([fits[i][:, : objective.design.d] for i in range(len(Cs))])
