"""Folds, and cross-fitting of linear models on them: the penalty and the out-of-fold scores.

Folds are stratified by class, keep groups together, or are given. `CrossFit` is used by m="auto", `find_label_issues`
and audits. The penalty is scikit-learn's C. If it is not given, a grid of C is compared by the out-of-fold loss of the
ordinary fits. For numeric targets the criterion is the mean of the smaller 70% of the errors, which is robust to
outliers, minimised over fits that drop 0, 10 and 20% of the rows. The ordinary fit alone does not identify C: outliers
bias it, and more shrinkage always improves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from ..core.arrays import Array
from ..core.hashing import splitmix64
from ..core.objective import Objective
from .fits import Fits, Sets, masses_of, ordinary, upward
from .fits import Report as Report
from .held_out import RowScores, Scored, row_scores

# Five folds are used up to the second number of rows, and only one of them with more rows. With one score per row they
# are drawn twice up to the first number.
TWICE_UP_TO = 4000
FOLDS_UP_TO = 20_000
# With one score per row and more than this many rows, fits use a part of the rows and all others are test rows. The
# gain of m hardly depends on the size of the training set, and many test rows measure it accurately.
PART_FROM = 10_000
_MIN_FITTED = 4000
_FITTED_PER_COLUMN = 60


def silent(message: str) -> None:
    """Ignore a progress message."""


def plan_of(objective: Objective) -> tuple[int, int, int]:
    """The numbers of repeats, of folds, and of folds used, for `split`: several folds for few rows, one for many.

    A negative number of folds exchanges the roles: one fold is the training set, all others are test rows.
    """
    n = objective.design.n
    if objective.n_outputs == 1 and n > PART_FROM:
        return 1, -max(2, n // max(_MIN_FITTED, _FITTED_PER_COLUMN * objective.design.p)), 1
    return (2 if n <= TWICE_UP_TO and objective.n_outputs == 1 else 1), 5, 5 if n <= FOLDS_UP_TO else 1


def split(
    objective: Objective,
    strata: Array,
    rng: np.random.Generator,
    plan: tuple[int, int, int],
    groups: Array | None = None,
) -> Array:
    """Split the rows into test folds, stratified by class, without splitting groups: masses (F, n) of the test rows.

    `plan` is that of `plan_of`; with fewer groups than folds there are as many folds as groups, and their roles are not
    exchanged. If all weights are integers with a sum of at most 2 n or 4,000, and there are no groups, a row of weight
    w is split like w rows; otherwise each row is in one fold. Masses are bool if there are no weights.
    """
    n = objective.design.n
    mass = objective.mass
    whole = bool((mass == np.floor(mass)).all()) and mass.sum() <= max(2 * n, TWICE_UP_TO)
    rows = np.repeat(np.arange(n), mass.astype(np.intp)) if whole else np.arange(n)
    repeats, folds, used = plan
    if groups is not None and len(np.unique(groups)) < abs(folds):
        folds = len(np.unique(groups))
        used = min(used, folds)
    tests = []
    for _ in range(repeats):
        if groups is None:
            fold = deal(strata[rows], abs(folds), rng)
        else:
            fold = deal_groups(n, strata, groups, abs(folds), int(rng.integers(2**31)))[rows]
        for f in range(used):
            count = np.bincount(rows[(fold == f) == (folds > 0)], minlength=n)
            tests.append(count if whole else count * mass)
    result = np.array(tests)
    return result.astype(bool) if mass.dtype == bool else result


def deal(strata: Array, folds: int, rng: np.random.Generator) -> Array:
    """Assign a fold, from 0 to folds - 1, to each row (n,), balanced within each class and overall."""
    order = np.lexsort((rng.permutation(len(strata)), strata))
    fold = np.empty(len(strata), dtype=np.intp)
    fold[order] = np.arange(len(strata)) % folds
    return fold


def row_keys(X: Any, seed: int) -> Array:
    """A 64-bit hash (n,) of each row, the same for equal rows in dense or sparse format.

    It is the sum of the hashes of the entries. Sums of integers do not depend on the order, unlike those of floats, and
    a zero adds nothing.
    """
    columns = np.random.default_rng(seed).integers(2**64, size=X.shape[1], dtype=np.uint64)
    if hasattr(X, "toarray"):
        rows = csr_matrix(X)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(rows.data, columns[rows.indices]))])
        return np.asarray(np.diff(ends[rows.indptr]))
    step = max(1, 1_000_000 // max(1, X.shape[1]))
    parts = [_mixed(np.asarray(X[i : i + step]), columns).sum(axis=1) for i in range(0, len(X), step)]
    return np.concatenate(parts)


def _mixed(values: Array, keys: Array) -> Array:
    """A hash of each value and its key; 0 if the value is 0."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.uint64) ^ keys
    return np.where(values != 0, splitmix64(bits), np.uint64(0))


def hold_out(n: int, count: int, order: Array, groups: Array | None) -> Array:
    """The first `count` of n rows in this order; with groups, whole groups in this order, up to `count` rows.

    At least one row or one group is taken, and never all; so none is taken if there is only one.
    """
    count = min(max(1, count), n - 1)
    if groups is None:
        return order[:count]
    _, first, size = np.unique(groups[order], return_index=True, return_counts=True)
    by_order = np.argsort(first)
    taken = np.cumsum(size[by_order]) <= max(count, size[by_order[0]])
    taken[-1] = False
    return order[np.isin(groups[order], groups[order[first[by_order[taken]]]])]


def whole_number(name: str, value: Any, least: int) -> int:
    """Return a value as an int; raise a ValueError unless it is an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an int of at least {least}, got {value!r}")
    return int(value)


@dataclass(frozen=True)
class Folds:
    """Masks (F, n) of the training rows and of the test rows of each fold. No row is in both.

    A row may be in no test set, like the first rows of a split by time. `repeat` (F,) is the number of the repeat of
    each fold, from 0 and never decreasing; None means one repeat.
    """

    train: Array
    test: Array
    repeat: Array | None = None

    @classmethod
    def from_numbers(cls, part: Array) -> Folds:
        """Folds from the fold number (n,) of each row, from 0; the training set of a fold is all other rows."""
        test = np.arange(int(part.max()) + 1)[:, None] == part
        return cls(~test, test)

    @classmethod
    def forward(cls, part: Array) -> Folds:
        """Folds in the order of time: each is predicted from the folds before it, and the first from the second.

        `part` (n,) has the fold number of each row, from 0; there must be at least two folds.
        """
        number = np.arange(int(part.max()) + 1)[:, None]
        return cls(np.where(number > 0, part < number, part == 1), number == part)

    def __len__(self) -> int:
        return len(self.train)

    @property
    def repeats(self) -> Array:
        """Array (F,): the number of the repeat of each fold, from 0."""
        return np.zeros(len(self), dtype=np.intp) if self.repeat is None else self.repeat

    def first(self, count: int) -> Folds:
        """The first `count` folds."""
        return Folds(self.train[:count], self.test[:count], None if self.repeat is None else self.repeat[:count])

    def once(self) -> Folds:
        """The folds of the first repeat."""
        return self.first(int((self.repeats == 0).sum()))

    def among(self, rows: Array) -> Folds:
        """The folds restricted to some rows, without folds that lose all training or test rows."""
        train, test = self.train[:, rows], self.test[:, rows]
        kept = train.any(axis=1) & test.any(axis=1)
        return Folds(train[kept], test[kept], None if self.repeat is None else self.repeat[kept])

    def without(self, rows: Array) -> Folds:
        """The folds without the rows of this mask in the training sets."""
        return Folds(self.train & ~rows, self.test, self.repeat)

    @property
    def tested(self) -> Array:
        """Array (n,): whether each row is in a test set."""
        return np.asarray(self.test.any(axis=0))

    def average(self, parts: list[Array]) -> Array:
        """Array (n, ...): the mean of the predictions of each row over its test folds; NaN if it is never tested.

        `parts` has the predictions of the test rows of each fold.
        """
        total = np.zeros((self.test.shape[1], *parts[0].shape[1:]))
        for test, part in zip(self.test, parts, strict=True):
            total[test] += part
        times = self.test.sum(axis=0).reshape(-1, *[1] * (total.ndim - 1))
        return np.divide(total, times, out=np.full_like(total, np.nan), where=times > 0)


def label_folds(codes: Array, cv: Any, n_repeats: int | None, rng: np.random.Generator) -> Folds:
    """Folds that test each row equally often and train on all other rows.

    `cv` is a number of folds to draw, a splitter, a list of (train, test) rows, or a `Folds` object, which is returned
    unchanged. `n_repeats` is how often folds are drawn; None means `default_repeats`. Given folds that do not test each
    row equally often raise a ValueError.
    """
    n = len(codes)
    if isinstance(cv, Folds):
        return cv
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        repeats = default_repeats(n, int(codes.max()) + 1) if n_repeats is None else n_repeats
        folds, repeats = whole_number("cv", cv, 2), whole_number("n_repeats", repeats, 1)
        if folds > n:
            raise ValueError(f"cv must be at most the number of rows, {n}, got {folds}; 5 is usual")
        return draw_folds(n, rng, strata=codes, n_folds=folds, n_repeats=repeats)
    pairs = _pairs(cv, np.zeros((n, 1)), codes)
    tests = np.zeros((len(pairs), n), dtype=bool)
    for mask, (train, test) in zip(tests, pairs, strict=True):
        mask[test] = True
        if mask[train].any() or len(train) + len(test) != n:
            raise ValueError("a fold of cv must train on exactly the rows that it does not test; use for example KFold")
    times = tests.sum(axis=0)
    if times.min() == 0 or times.min() != times.max():
        raise ValueError(
            f"cv must leave out each row equally often, got {times.min()} to {times.max()} times; use KFold"
        )
    before = np.cumsum(tests, axis=0) - tests
    repeat = np.array([int(before[f][tests[f]].max()) for f in range(len(tests))])
    order = np.argsort(repeat, kind="stable")
    return Folds(~tests[order], tests[order], repeat[order])


def default_repeats(n: int, n_classes: int) -> int:
    """The default number of repeats: 2 for two classes and up to 4,000 rows, because one is noisy; otherwise 1."""
    return 2 if n_classes == 2 and n <= TWICE_UP_TO else 1


def draw_folds(
    n: int,
    rng: np.random.Generator,
    *,
    strata: Array | None = None,
    groups: Any = None,
    n_folds: int = 2,
    n_repeats: int = 5,
) -> Folds:
    """Draw folds of n rows `n_repeats` times, stratified as far as groups allow."""
    tests = []
    for _ in range(n_repeats):
        if groups is None:
            fold = deal(np.zeros(n, dtype=np.intp) if strata is None else strata, n_folds, rng)
        else:
            fold = deal_groups(n, strata, np.asarray(groups), n_folds, int(rng.integers(2**31)))
        tests += [fold == f for f in range(n_folds)]
    test = np.array(tests)
    return Folds(~test, test, np.repeat(np.arange(n_repeats), n_folds))


def deal_groups(n: int, strata: Array | None, groups: Array, n_folds: int, seed: int) -> Array:
    """The fold (n,) of each row: the same for all rows of a group, and balanced within strata as far as possible.

    A ValueError is raised if there are fewer groups than folds.
    """
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

    found = len(np.unique(groups))
    if found < n_folds:
        raise ValueError(
            f"folds of whole groups need at least {n_folds} groups, got {found}; use fewer folds, or leave groups out"
        )
    # StratifiedGroupKFold needs a class with members in every fold.
    even = strata is not None and np.bincount(strata).max() >= n_folds
    kind = (StratifiedGroupKFold if even else GroupKFold)(n_folds, shuffle=True, random_state=seed)
    fold = np.empty(n, dtype=np.intp)
    for f, (_, test) in enumerate(kind.split(fold, strata, groups)):
        fold[test] = f
    return fold


def _pairs(cv: Any, X: Any, y: Array, groups: Any = None) -> list[tuple[Array, Array]]:
    """A list of the (train, test) rows of each fold, from a splitter or from an iterable of such pairs."""
    if isinstance(cv, str | float | bool):
        raise ValueError(f"cv must be a number of folds, a splitter or pairs of (train, test) rows, got {cv!r}; use 5")
    return list(cv.split(X, y, groups) if hasattr(cv, "split") else cv)


def given_folds(cv: Any, X: Any, y: Array, groups: Any = None) -> Folds:
    """The folds of a splitter or of a list of (train, test) rows. They need not test every row, nor equally often."""
    n = len(y)
    pairs = _pairs(cv, X, y, groups)
    if not pairs:
        raise ValueError("cv must have at least one pair of (train, test) rows, got none; use for example KFold(5)")
    train, test = np.zeros((2, len(pairs), n), dtype=bool)
    for fold, (train_rows, test_rows) in enumerate(pairs):
        train[fold, train_rows], test[fold, test_rows] = True, True
    if (train & test).any():
        raise ValueError(
            f"training and test rows of a fold must not overlap, got {int((train & test).any(axis=0).sum())} rows in "
            "both; use for example KFold(5) or TimeSeriesSplit(5)"
        )
    return Folds(train, test)


# Candidates for scikit-learn's C, from a strong to a weak penalty; the loss first decreases, then increases.
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
# Shares to drop while the penalty of a regression is chosen.
_CUTS = np.array([0.1, 0.2])
_ENOUGH = 1e-4  # tolerance of fits for choosing the penalty


def training_sets(objective: Objective, tests: Array, C: float) -> Sets:
    """The training sets for test folds, given by the masses (F, n) of the test rows; C is relative to the mean loss.

    If there is only one fold, the result has only its training rows.
    """
    mass = objective.mass
    train = ~tests if mass.dtype == bool else mass - tests
    if len(train) == 1:  # a hold-out: its test rows are not needed for the fits
        rows = np.flatnonzero(train[0])
        objective, train = objective.rows(rows, 0, 1), train[:, rows]
    return Sets.of(objective, train, C)


class CrossFit:
    """Out-of-fold fits of one linear model.

    Parameters
    ----------
    objective : Objective
        The model and its rows; its m, k and C are ignored.
    tests : ndarray of shape (F, n)
        Masses of the test rows of each fold; bool if a fold tests the whole mass of its rows.
    C : float or None
        scikit-learn's C; None chooses it.
    train : ndarray of shape (F, n) or None
        Masses of the training rows of each fold; by default all rows that it does not test.
    n_jobs : int
        The number of threads; the result does not depend on it.
    total : float or None
        The mass of all rows, if these rows are a sample: the sample gets the same penalty as all rows.
    """

    def __init__(
        self,
        objective: Objective,
        tests: Array,
        C: float | None = None,
        train: Array | None = None,
        n_jobs: int = 1,
        total: float | None = None,
    ) -> None:
        self.objective = objective
        self.total = objective.total if total is None else total
        self.tests = tests
        self._given = C
        self._train = train
        self._n_jobs = n_jobs

    @cached_property
    def sets(self) -> Sets:
        """The training sets, with the given or the weakest penalty."""
        C = PENALTIES[-1] if self._given is None else self._given
        if self._train is None:
            sets = training_sets(self.objective, self.tests, C * self.total)
        else:
            sets = Sets.of(self.objective, self._train, C * self.total)
        return replace(sets, n_jobs=self._n_jobs)

    @cached_property
    def ordinary(self) -> Fits:
        """The ordinary fits at the given C; by default the smallest C whose out-of-fold loss is nearly the lowest.

        C increases along `PENALTIES` until this loss increases.
        """
        if self._given is not None:
            return self._fits(self.sets, ordinary(self.sets, tol=_ENOUGH))
        W: Array | None = None
        found: list[tuple[float, Fits]] = []
        for C in PENALTIES:
            # The metric depends only on the rows, not on the penalty.
            sets = replace(self.sets, C=C * self.total)
            W = ordinary(sets, W, tol=_ENOUGH)
            fits = self._fits(sets, W)
            found.append((self._cost(fits), fits))
            if len(found) > 1 and found[-1][0] > found[-2][0]:
                break
        enough = min(cost for cost, _ in found) * (1.0 + _ENOUGH)
        return next(fits for cost, fits in found if cost <= enough)

    @property
    def C(self) -> float:
        """scikit-learn's C of all fits."""
        return self._given if self._given is not None else self.ordinary.sets.C / self.total

    def trimmed(self, shares: Array) -> Fits:
        """The ordinary fits, and fits that drop these increasing shares of the rows, each starting from the last."""
        return _cutting(self.ordinary, shares)

    def candidates(
        self, shares: Array, k_share: float, rng: np.random.Generator, n_random: int, report: Report = silent
    ) -> Fits:
        """All candidates for the choice of m, by `Fits.on`: paths of increasing m, and searches."""
        sets = replace(self.sets, C=self.C * self.total)
        return Fits.on(sets, shares, k_share, rng, n_random, report)

    def scores(self, fits: Fits) -> list[tuple[Array, Array]]:
        """For each test fold its rows, and their out-of-fold scores (candidates, r, rows)."""
        return fits.out_of_fold(self.objective, self.tests)

    def scored(self, fits: Fits) -> Scored:
        """The scores of the candidates on the test rows."""
        model = self.objective
        return RowScores(row_scores(model, model.strata, self.scores(fits), self.tests), model.mass)

    def _fits(self, sets: Sets, W: Array) -> Fits:
        return Fits(sets, np.zeros(1), ["none"], W[None])

    @property
    def _test_masses(self) -> Array:
        """The mass (F, n) of each row in each test fold; folds that are given as bool test the whole mass of a row."""
        mass = self.objective.mass if self.tests.dtype == bool else 1.0
        return np.asarray(self.tests * mass, dtype=np.float64)

    def _cost(self, fits: Fits) -> float:
        if self.objective.loss.targets == "numbers":
            return self._middle_error(fits)
        return sum(
            float(mass[rows] @ replace(self.objective, y=self.objective.y[rows]).losses(Z[0]))
            for (rows, Z), mass in zip(self.scores(fits), self._test_masses, strict=True)
        )

    def _middle_error(self, fits: Fits) -> float:
        """The mean of the smaller 70% of the out-of-fold errors, by mass, minimised over the shares to drop."""
        parts = self.scores(_cutting(fits, _CUTS))
        errors = np.concatenate([np.abs(self.objective.y[rows] - Z.reshape(len(Z), -1)) for rows, Z in parts], axis=1)
        mass = np.concatenate([test[rows] for (rows, _), test in zip(parts, self._test_masses, strict=True)])
        order = np.argsort(errors, axis=1)
        mass, errors = mass[order], np.take_along_axis(errors, order, axis=1)
        limit = 0.7 * mass[0].sum()
        kept = np.clip(limit - (np.cumsum(mass, axis=1) - mass), 0.0, mass)
        return float(((kept * errors).sum(axis=1) / limit).min())


def _cutting(fits: Fits, shares: Array) -> Fits:
    """The ordinary fits, and a path of fits with increasing m that starts at them."""
    m, k = masses_of(fits.sets, shares, 1.0)
    W = np.concatenate([fits.W, upward(fits.sets, fits.W[0], m, k)])
    return Fits(fits.sets, np.array([0.0, *shares]), ["none", *["up"] * len(shares)], W)
