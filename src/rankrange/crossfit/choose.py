"""Choosing m and k: without clean data (`choose_m`), the default, or with some (`rankrange.validation`).

Without clean data. Fits at a grid of m are scored by cross-validation against the labels as they are. For classes the
score is balanced accuracy: where labels of one class are wrong more often than those of another, it is still an
increasing function of the balanced accuracy on clean labels, which accuracy is not. The best m must beat m = 0 by one
standard error (more on few rows), or nothing is cut. For numbers the score is a squared error that stops growing at
three robust standard deviations, so that an outlier that is not fitted costs the same however far out it is.

On many rows the scores around the best m are flat, and the share of errors can be estimated well: there m is that share
if it scores as well as the best, within two standard errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ..core.flips import wrong_labels
from ..core.objective import Objective
from ..core.select import cuts_of
from ..solvers import Result
from . import fits as paths

Array = NDArray[Any]
Report = Callable[[str], None]
# Shares that are tried. More than half of the labels can be wrong only where there are more than two.
SHARES = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6])
# On many rows the estimated share of errors is tried too, so that fewer of these are enough.
_COARSE = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
# Fewer rows than this say nothing about m.
_LEAST_ROWS = 20
# One score a row: five folds twice up to this many rows; then, and with many scores, five folds; then one hold-out.
_TWICE_UP_TO = 4000
_FOLDS_UP_TO = 20_000
# Numbers in X times scores: a larger set chooses m on some of its rows.
_LARGEST = 6e8
_RANDOM_STARTS = 6
_OUTLYING = 3.0
# The best of many scores is the luckier the fewer rows there are: with n rows it must gain 1 + 40/n standard errors.
_CAUTION = 40.0


def silent(message: str) -> None:
    """Progress that nobody asked for."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what it was chosen from.

    `m` is a mass, or a count where the masses are counts. `start` is a fit at that m from which to go on; None where
    nothing is cut. `table` has a row for each fit compared. `noise` is the
    estimated share of wrong labels, or of outliers, with its interval: not m, which is what trains best. `k` is None
    where it stays what it was.
    """

    m: float
    start: Array | None
    table: dict[str, Array]
    reason: str
    noise: tuple[float, float, float]
    k: float | None = None


def choose_m(objective: Objective, rng: np.random.Generator, report: Report = silent) -> Choice:
    """The m for `objective`, whose own m does not matter, and whose k stays."""
    k_share = objective.k / objective.total
    shares = SHARES if objective.design.n <= _FOLDS_UP_TO else _COARSE
    shares = shares[shares < min(k_share, 0.5 if objective.n_outputs == 1 else 1.0)]
    if objective.total < _LEAST_ROWS or not len(shares):
        return Choice(0, None, {}, f"fewer than {_LEAST_ROWS} rows: nothing is cut", (0.0, 0.0, 1.0))
    part = _some_rows(objective, rng)
    strata = strata_of(part)
    tests = split(part, strata, rng, plan_of(part))
    fits = Fits.on(part, tests, shares, k_share, rng, _RANDOM_STARTS, report)
    parts = fits.out_of_fold(part, tests)
    chosen, table, reason = _gate(row_scores(part, strata, parts, tests), part, fits)
    noise = _noise(part, strata, parts, tests, chosen)
    if chosen and part.design.n > _TWICE_UP_TO:  # on fewer rows the estimate is too rough to follow
        fits = fits.beside(chosen, min(noise[0], 0.9 * k_share), k_share)
        report(f"{len(tests)} more fits, at the estimated share of errors, m = {fits.shares[-1]:.3f} n")
        parts = fits.out_of_fold(part, tests)
        chosen, table, reason = _gate(row_scores(part, strata, parts, tests), part, fits, len(fits.shares) - 1)
    if chosen == 0:
        return Choice(0, None, table, reason, noise)
    start = fits.W[chosen, 0] if len(tests) == 1 else None  # a hold-out leaves enough rows to find the minimum
    m, start = on_all_rows(objective, fits, chosen, shares, k_share, start, rng)
    return Choice(m, start, table, reason, noise)


def on_all_rows(
    objective: Objective,
    fits: Fits,
    chosen: int,
    shares: Array,
    k_share: float,
    start: Array | None,
    rng: np.random.Generator,
) -> tuple[float, Array]:
    """m and the chosen fit on all rows, made as on the folds: a deeper search finds minima that were not scored."""
    sets = paths.Sets.of(objective, mass_of(objective)[None])
    shares = np.union1d(shares, fits.shares[chosen])
    m, k = paths.masses_of(sets, shares, k_share)
    level = int(np.flatnonzero(shares == fits.shares[chosen])[0])
    if start is None and fits.names[chosen] == "up":
        start = paths.upward(sets, paths.ordinary(sets), m[: level + 1], k)[-1, 0]
    elif start is None:
        start = paths.searched(sets, m, k, rng, _RANDOM_STARTS if objective.n_outputs == 1 else 0)[level, 0]
    return float(m[level, 0]), start


def mass_of(objective: Objective) -> Array:
    if objective.sample_weight is None:
        return np.ones(objective.design.n, dtype=bool)
    return objective.sample_weight


def strata_of(objective: Objective) -> Array:
    """The class of each row; one class for numbers."""
    if objective.loss.targets == "numbers":
        return np.zeros(objective.design.n, dtype=np.intp)
    return (objective.y > 0).astype(np.intp) if objective.loss.targets == "binary" else objective.y


def _some_rows(objective: Objective, rng: np.random.Generator) -> Objective:
    n, numbers = objective.design.n, objective.design.p * objective.n_outputs
    most = max(int(_LARGEST / numbers), _TWICE_UP_TO)
    if n <= most:
        return objective
    return objective.rows(np.sort(rng.choice(n, most, replace=False)), 0, 1)


def plan_of(objective: Objective) -> tuple[int, int, int]:
    """(repeats, folds, folds used): five folds twice on few rows, one hold-out on many."""
    repeats = 2 if objective.design.n <= _TWICE_UP_TO and objective.n_outputs == 1 else 1
    return repeats, 5, 5 if objective.design.n <= _FOLDS_UP_TO else 1


def split(objective: Objective, strata: Array, rng: np.random.Generator, plan: tuple[int, int, int]) -> Array:
    """Masses (F, n) of the test parts, dealt out within each class.

    A row that stands for several (a whole weight) is dealt out one by one, so that a weight is the same as repetition;
    one of a fractional weight goes into one part.
    """
    n = objective.design.n
    mass = mass_of(objective)
    whole = bool((mass == np.floor(mass)).all()) and mass.sum() <= max(2 * n, _TWICE_UP_TO)
    rows = np.repeat(np.arange(n), mass.astype(np.intp)) if whole else np.arange(n)
    repeats, folds, used = plan
    tests = []
    for _ in range(repeats):
        fold = deal(strata[rows], folds, rng)
        for f in range(used):
            count = np.bincount(rows[fold == f], minlength=n)
            tests.append(count if whole else count * mass)
    result = np.array(tests)
    return result.astype(bool) if mass.dtype == bool else result


def deal(strata: Array, folds: int, rng: np.random.Generator) -> Array:
    """A fold for each row: as even as can be within each class, and over all."""
    order = np.lexsort((rng.permutation(len(strata)), strata))
    fold = np.empty(len(strata), dtype=np.intp)
    fold[order] = np.arange(len(strata)) % folds
    return fold


def training_sets(objective: Objective, tests: Array) -> paths.Sets:
    mass = mass_of(objective)
    train = ~tests if mass.dtype == bool else mass - tests
    if len(train) == 1:  # a hold-out: no need to carry its rows along
        rows = np.flatnonzero(train[0])
        objective, train = objective.rows(rows, 0, 1), train[:, rows]
    return paths.Sets.of(objective, train)


@dataclass(frozen=True)
class Fits:
    """The fits that are compared: candidate 0 is the ordinary one. W (candidates, F, r, p)."""

    sets: paths.Sets
    shares: Array
    names: list[str]
    W: Array

    @classmethod
    def on(
        cls,
        objective: Objective,
        tests: Array,
        shares: Array,
        k_share: float,
        rng: np.random.Generator,
        n_random: int,
        report: Report = silent,
    ) -> Fits:
        sets = training_sets(objective, tests)
        m, k = paths.masses_of(sets, shares, k_share)
        plain = paths.ordinary(sets)
        report(f"{len(tests)} ordinary fits to choose m")
        zero = paths.upward(sets, plain, np.zeros((1, len(tests))), k) if k_share < 1 else plain[None]
        up = paths.upward(sets, zero[0], m, k)
        report(f"{len(tests) * len(shares)} fits that cut more and more")
        found = paths.searched(sets, m, k, rng, n_random if objective.n_outputs == 1 else 0)
        report(f"{len(tests) * len(shares)} searches")
        names = ["none"] + ["up"] * len(shares) + ["search"] * len(shares)
        return cls(sets, np.concatenate([[0.0], shares, shares]), names, np.concatenate([zero, up, found]))

    def beside(self, chosen: int, share: float, k_share: float) -> Fits:
        """With one more candidate on the path of `chosen`: this share, from the nearest fit that there is."""
        path = [0, *(i for i, name in enumerate(self.names) if name == self.names[chosen])]
        near = min(path, key=lambda i: abs(self.shares[i] - share))
        m, k = paths.masses_of(self.sets, np.array([share]), k_share)
        W, _ = self.sets.fit(self.W[near], np.arange(len(self.sets.masses)), m[0], k, max_iter=40)
        names = [*self.names, self.names[chosen]]
        return Fits(self.sets, np.append(self.shares, share), names, np.concatenate([self.W, W[None]]))

    def cuts(self, candidate: int) -> Array:
        """(F,): the cut s_[m] among the losses of each training set."""
        m, _ = paths.masses_of(self.sets, self.shares[[candidate]], 1.0)
        found = []
        for mass, level, W in zip(self.sets.masses, m[0], self.W[candidate], strict=True):
            s = self.sets.model.losses(self.sets.model.design.scores(W))
            rows = np.flatnonzero(mass)
            weight = None if mass.dtype == bool else mass[rows]
            found.append(float(cuts_of(s[rows], 0, level, weight)[0].value) if level else np.inf)
        return np.array(found)

    def out_of_fold(self, objective: Objective, tests: Array) -> list[tuple[Array, Array]]:
        """For each test part its rows and their scores (candidates, r, rows)."""
        parts = []
        for f, test in enumerate(tests):
            rows = np.flatnonzero(test)
            design = objective.design.take(rows)
            flat = design.scores(self.W[:, f].reshape(-1, design.p))
            parts.append((rows, np.ascontiguousarray(flat).reshape(len(self.W), -1, len(rows))))
        return parts


def row_scores(objective: Objective, strata: Array, parts: list[tuple[Array, Array]], tests: Array) -> Array:
    """(candidates, n): what each row adds to the score, averaged over its appearances; the score is the mean."""
    gains = _right if objective.loss.targets != "numbers" else _close
    total = np.zeros((len(parts[0][1]), objective.design.n))
    seen = np.zeros(objective.design.n)
    for (rows, _), value, test in zip(parts, gains(objective, strata, parts), tests, strict=True):
        total[:, rows] += value * test[rows]
        seen[rows] += test[rows]
    return np.divide(total, seen, out=np.full_like(total, np.nan), where=seen > 0)


def _noise(
    objective: Objective, strata: Array, parts: list[tuple[Array, Array]], tests: Array, chosen: int
) -> tuple[float, float, float]:
    """The share of wrong labels, or of outliers, with its 95% interval, from the out-of-fold scores of one fit."""
    total, seen = np.zeros((objective.n_outputs, objective.design.n)), np.zeros(objective.design.n)
    for (rows, Z), test in zip(parts, tests, strict=True):
        total[:, rows] += Z[chosen] * test[rows]
        seen[rows] += test[rows]
    rows = np.flatnonzero(seen)
    scores, mass = (total[:, rows] / seen[rows]).T, mass_of(objective)[rows].astype(np.float64)
    if objective.loss.targets == "numbers":
        return outlier_share(scores[:, 0] - objective.y[rows], mass)
    found = wrong_labels(scores[:, 0] if objective.n_outputs == 1 else scores, strata[rows], mass)
    return found.rate, *found.interval


def outlier_share(residual: Array, mass: Array) -> tuple[float, float, float]:
    """Residuals beyond three robust standard deviations, less those that a normal error would have there."""
    n = float(mass.sum())
    order = np.argsort(np.abs(residual), kind="stable")
    middle = order[np.searchsorted(np.cumsum(mass[order]), 0.7 * n)]
    sigma = abs(float(residual[middle])) / ndtri(0.85)
    beyond = 2.0 * ndtr(-_OUTLYING)
    share = float(mass[np.abs(residual) > _OUTLYING * sigma].sum()) / n
    spread = 1.96 * np.sqrt(share * (1.0 - share) / n)
    low, mid, high = ((s - beyond) / (1.0 - beyond) for s in (share - spread, share, share + max(spread, 3.0 / n)))
    return max(0.0, mid), max(0.0, low), min(1.0, max(0.0, high))


def _right(objective: Objective, strata: Array, parts: list[tuple[Array, Array]]) -> list[Array]:
    """1 where the class is predicted, in units that make the mean over rows the mean over classes."""
    mass = np.bincount(strata, weights=mass_of(objective).astype(np.float64))
    present = mass > 0
    worth = np.divide(mass.sum() / present.sum(), mass, out=np.zeros_like(mass), where=present)
    found = []
    for rows, Z in parts:
        guess = (Z[:, 0] > 0).astype(np.intp) if objective.n_outputs == 1 else Z.argmax(axis=1)
        found.append((guess == strata[rows]) * worth[strata[rows]])
    return found


def _close(objective: Objective, strata: Array, parts: list[tuple[Array, Array]]) -> list[Array]:
    """1 - min(1, (residual / 3 sigma)^2), sigma from the candidate that has most of its residuals small.

    "Most" is 70%: a half could be fitted exactly where targets repeat, as in counts with many zeros.
    """
    residuals = [np.abs(Z[:, 0] - objective.y[rows]) for rows, Z in parts]
    spread = np.quantile(np.concatenate(residuals, axis=1), 0.7, axis=1).min()
    sigma = max(float(spread) / ndtri(0.85), 1e-9 * float(np.abs(objective.y).max()), 1e-300)
    return [1.0 - np.minimum(1.0, (residual / (_OUTLYING * sigma)) ** 2) for residual in residuals]


def _gate(
    scores: Array, objective: Objective, fits: Fits, preferred: int | None = None
) -> tuple[int, dict[str, Array], str]:
    """The best candidate if it beats the ordinary fit by a standard error, else the ordinary fit.

    A candidate that is `preferred` counts as best where it scores worse by less than two standard errors.
    """
    seen = ~np.isnan(scores[0])
    mass = mass_of(objective)[seen].astype(np.float64)
    value = scores[:, seen]
    mean = value @ mass / mass.sum()

    def error(gain: Array) -> Array:
        return np.sqrt(((gain - gain @ mass[:, None] / mass.sum()) ** 2) @ mass) / mass.sum()

    best = int(mean.argmax())
    if preferred is not None and mean[best] - mean[preferred] <= 2.0 * error(value[[best]] - value[preferred])[0]:
        best = preferred
    errors = error(value - value[0])
    table = {"m": fits.shares, "path": np.array(fits.names), "score": mean, "gain": mean - mean[0], "error": errors}
    if mean[best] - mean[0] > errors[best] * (1.0 + _CAUTION / mass.sum()):
        how = "is the estimated share of errors and scores as well as the best" if best == preferred else "scores best"
        return best, table, f"m = {fits.shares[best]:.3g} n {how}"
    return 0, table, "no m scores better than m = 0 by one standard error"


# Section 4.3: k = n / divisor once the training accuracy reaches the level.
ADAPTIVE = ((0.7, 2), (0.8, 4), (0.9, 8), (0.95, 16), (0.995, 32))


def adapt_k(
    objective: Objective, result: Result, solve: Callable[[Objective, Array], Result]
) -> tuple[Objective, Result]:
    """The paper's schedule: fit at k = n, then at the k that the training accuracy allows, until that does not fall.

    k never rises, and never falls to m or below: there the schedule ends.
    """
    while True:
        accuracy = _training_accuracy(objective, result.w)
        divisor = max([1] + [divisor for level, divisor in ADAPTIVE if accuracy >= level])
        k = objective.total / divisor if objective.sample_weight is not None else objective.total // divisor
        if k >= objective.k or k <= objective.m:
            return objective, result
        objective = replace(objective, k=k)
        result = solve(objective, result.w)


def _training_accuracy(objective: Objective, W: Array) -> float:
    Z = objective.design.scores(W)
    guess = (Z[0] > 0).astype(np.intp) if objective.n_outputs == 1 else Z.argmax(axis=0)
    mass = mass_of(objective).astype(np.float64)
    return float(mass @ (guess == strata_of(objective)) / mass.sum())
