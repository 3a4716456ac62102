"""Folds: stratified by class, keeping groups together, or given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, check_cv

from ..core.arrays import Array
from ..core.hashing import splitmix64

Report = Callable[[str], None]  # called with a short text before each stage of the work
# Candidates for scikit-learn's C, from a strong to a weak penalty.
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
# Up to this many rows, folds for two classes are drawn twice, because one draw is noisy.
_TWICE_UP_TO = 4000


def silent(message: str) -> None:
    """Ignore a progress message."""


def deal(strata: Array, folds: int, rng: np.random.Generator) -> Array:
    """Assign a fold, from 0 to folds - 1, to each row (n,), balanced within each class and overall."""
    order = np.lexsort((rng.permutation(len(strata)), strata))
    fold = np.empty(len(strata), dtype=np.intp)
    fold[order] = np.arange(len(strata)) % folds
    return fold


def row_keys(X: Any, seed: int) -> Array:
    """A 64-bit hash (n,) of each row, the same for equal rows in dense or sparse format.

    It is the sum of the hashes of the entries, to which a zero adds nothing.
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

    def once(self) -> Folds:
        """The folds of the first repeat."""
        count = int((self.repeats == 0).sum())
        return Folds(self.train[:count], self.test[:count])

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
    unchanged. `n_repeats` is how often folds are drawn; None means `default_repeats`.
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
    given = given_folds(cv, np.zeros((n, 1)), codes)
    times = given.test.sum(axis=0)
    if not (given.train ^ given.test).all():
        raise ValueError("a fold of cv must train on exactly the rows that it does not test; use for example KFold")
    if times.min() == 0 or times.min() != times.max():
        raise ValueError(
            f"cv must leave out each row equally often, got {times.min()} to {times.max()} times; use KFold"
        )
    before = np.cumsum(given.test, axis=0) - given.test
    repeat = np.where(given.test, before, 0).max(axis=1)
    order = np.argsort(repeat, kind="stable")
    return Folds(given.train[order], given.test[order], repeat[order])


def default_repeats(n: int, n_classes: int) -> int:
    """The default number of repeats: 2 for two classes and up to 4,000 rows, because one is noisy; otherwise 1."""
    return 2 if n_classes == 2 and n <= _TWICE_UP_TO else 1


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
    """The fold (n,) of each row: the same for all rows of a group, and balanced within strata as far as possible."""
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


def given_folds(cv: Any, X: Any, y: Array, groups: Any = None) -> Folds:
    """The folds of a splitter or of a list of (train, test) rows. They need not test every row, nor equally often."""
    if isinstance(cv, str | float | bool):
        raise ValueError(f"cv must be a number of folds, a splitter or pairs of (train, test) rows, got {cv!r}; use 5")
    n, pairs = len(y), list(check_cv(cv).split(X, y, groups))
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
