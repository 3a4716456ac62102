"""Out-of-fold predictions of trees: boosting with early stopping, and two kinds of forests.

`tree_predictions` has boosting and a forest, in which each tree leaves out about two fifths of the folds and predicts
them, with small leaves and with large ones. `smooth_forests` has extra trees with large leaves; without folds their
predictions are out of bag. Large leaves average out wrong labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from ..core.arrays import Array
from .folds import Folds

# Boosting may stop at one of these rounds, earlier if labels are wrong. If the last is the best, a larger model is
# tried.
_ROUNDS, _MORE_ROUNDS = (3, 5, 10, 20, 35, 50), (50, 100, 150)
# This learning rate needs half as many rounds as scikit-learn's .1 for the same accuracy. The numbers of leaves for two
# classes, and for more, which have one tree each.
_STEP, _FEW_LEAVES, _FEWER_LEAVES = 0.2, 15, 8
# The largest numbers of rows for boosted trees, for larger ones, for each tree of a forest, and for choosing the stop.
_BOOSTED_ON, _LARGER_ON, _FOREST_ON, _STOP_ON = 40_000, 150_000, 5_000, 4_000
# With fewer rows, the larger model is not tried.
_LARGER_FROM = 5_000
_MIN_GAIN = 0.01
# Trees of a forest, the share of the folds that each leaves out and predicts, and the minimum leaf sizes of both
# predictions.
_TREES, _LEFT_OUT, _FOREST_LEAVES = 60, 0.4, (3, 30)
# Forests with large leaves, which average out wrong labels: the number of trees (each on half of the rows), the minimum
# leaf sizes of both predictions, and the largest number of columns per split, which is high because informative columns
# would often be missed otherwise.
_SMOOTH_TREES, _LEAVES, _COLUMNS = 32, (10, 40), 100

# The members of `tree_predictions`.
TREE_MEMBERS = ("boosting", "forest", "coarse_forest")


def tree_predictions(X: Any, codes: Array, n_classes: int, folds: Folds, rng: np.random.Generator) -> dict[str, Array]:
    """Out-of-fold probabilities (n, n_classes) of boosted trees and of a forest by leaf size.

    Each fit uses a limited number of rows and predicts all test rows of its fold. Boosting stops at the round with the
    largest held-out likelihood, because later rounds learn wrong labels. If the last round is the best and there are
    many rows, a larger model is tried, and used if it is clearly better. Otherwise labels that only a larger model
    explains would be flagged.
    """
    task = _TreeTask(X, codes, n_classes, folds, int(rng.integers(2**31)))
    return {"boosting": task.out_of_fold(task.best_boosted()), **task.forest()}


class Boosted(NamedTuple):
    """Boosted trees of each fold, stopped at the same round; `gaining` is whether the last round was the best."""

    fits: list[Any]
    n_classes: int
    stop: int
    gaining: bool

    def predict(self, fold: int, X: Array) -> Array:
        """Probabilities (n, n_classes) of the trees that were not fitted to this fold."""
        fit = self.fits[fold]
        stages = fit.staged_predict_proba(X)
        for _ in range(self.stop - 1):
            next(stages)
        return _all_classes(fit, next(stages), self.n_classes)


class FoldTrees(NamedTuple):
    """The fitted trees of `tree_predictions`, which can predict new rows.

    `forest` is a list of pairs: the folds that a tree leaves out, and the tree.
    """

    boosted: Boosted
    forest: list[tuple[Array, Any]]

    def predict(self, fold: int, X: Array) -> dict[str, Array]:
        """Probabilities (n, n_classes) of rows of one fold, from trees that were not fitted to it."""
        K, rows = self.boosted.n_classes, np.ascontiguousarray(X, dtype=np.float32)
        found = np.mean([_shares(tree, rows, _FOREST_LEAVES, K) for left, tree in self.forest if fold in left], axis=0)
        return {"boosting": self.boosted.predict(fold, X), **_by_leaves(found)}


def fold_trees(X: Any, codes: Array, n_classes: int, folds: Folds, rng: np.random.Generator) -> FoldTrees:
    """Fit the trees of `tree_predictions` and keep them; each row must be in one test fold."""
    task = _TreeTask(X, codes, n_classes, folds, int(rng.integers(2**31)))
    return FoldTrees(task.best_boosted(), list(task.forest_trees()))


@dataclass(frozen=True)
class _TreeTask:
    X: Any
    codes: Array
    n_classes: int
    folds: Folds
    seed: int

    def best_boosted(self) -> Boosted:
        """The boosted trees; the larger ones if their out-of-fold likelihood is clearly better."""
        boosted = self.boosted(_ROUNDS, rich=False)
        if boosted.gaining and len(self.codes) >= _LARGER_FROM:
            larger = self.boosted(_MORE_ROUNDS, rich=True)
            if self.log_likelihood(larger) - self.log_likelihood(boosted) > _MIN_GAIN:
                return larger
        return boosted

    def boosted(self, rounds: tuple[int, ...], rich: bool) -> Boosted:
        """Boosted trees of each fold, with the best of these rounds by held-out likelihood as `stop`.

        `rich` is the larger model; with fewer than 5,000 rows all trees have few leaves.
        """
        leaves = {"max_leaf_nodes": 63, "min_samples_leaf": 10} if rich else {}
        if len(self.codes) < _LARGER_FROM:
            leaves = {"max_leaf_nodes": _FEW_LEAVES if self.n_classes == 2 else _FEWER_LEAVES}
        settings = {"learning_rate": _STEP, "early_stopping": False, "random_state": self.seed, **leaves}
        fits, gains = [], np.zeros(len(rounds))
        for train, test in zip(self.folds.train, self.folds.test, strict=True):
            rows = self._some_of(train, _LARGER_ON if rich else _BOOSTED_ON)
            fit = HistGradientBoostingClassifier(max_iter=rounds[-1], **settings).fit(self.X[rows], self.codes[rows])
            fits.append(fit)
            gains += self._by_round(fit, test, rounds)
        best = int(gains.argmax())
        return Boosted(fits, self.n_classes, rounds[best], best == len(rounds) - 1)

    def out_of_fold(self, boosted: Boosted) -> Array:
        """The out-of-fold probabilities (n, n_classes) of boosted trees."""
        return self.folds.average([boosted.predict(fold, self.X[test]) for fold, test in enumerate(self.folds.test)])

    def forest(self) -> dict[str, Array]:
        """Probabilities (n, n_classes) of a forest by leaf size; NaN for rows that no tree leaves out."""
        X = np.ascontiguousarray(self.X, dtype=np.float32)

        def parts() -> Iterator[tuple[Array, Array]]:
            for left, tree in self.forest_trees():
                test_rows = np.flatnonzero(self.folds.test[left].any(axis=0))
                yield test_rows, _shares(tree, X[test_rows], _FOREST_LEAVES, self.n_classes)

        return _by_leaves(_mean(parts(), (len(self.codes), len(_FOREST_LEAVES), self.n_classes)))

    def forest_trees(self) -> Iterator[tuple[Array, Any]]:
        """Yield pairs: the folds that a tree leaves out, and the tree, which is fitted to a few thousand rows.

        Three of five folds have about as many distinct rows as a bootstrap sample of four folds, and each tree predicts
        twice as many rows.
        """
        rng, F = np.random.default_rng(self.seed), len(self.folds)
        out = max(1, round(_LEFT_OUT * F))
        X = np.ascontiguousarray(self.X, dtype=np.float32)
        order = np.concatenate([rng.permutation(F) for _ in range(-(-_TREES * out // F))])
        for left in order[: _TREES * out].reshape(_TREES, out):
            kept = self.folds.train[left].all(axis=0)
            if kept.any():  # not all folds of a series have earlier rows in common
                rows, seed = self._some_of(kept, _FOREST_ON, rng), int(rng.integers(2**31))
                settings = {"min_samples_leaf": _FOREST_LEAVES[0], "max_features": "sqrt", "random_state": seed}
                yield left, DecisionTreeClassifier(**settings).fit(X[rows], self.codes[rows], check_input=False)

    def log_likelihood(self, boosted: Boosted) -> float:
        """The mean log likelihood of the test labels."""
        tested = np.flatnonzero(self.folds.tested)
        return float(np.log(np.maximum(self.out_of_fold(boosted)[tested, self.codes[tested]], 1e-4)).mean())

    def _some_of(self, train: Array, most: int, rng: np.random.Generator | None = None) -> Array:
        """The rows of a fit; if there are more than `most`, a sample of this many."""
        rows = np.flatnonzero(train)
        if len(rows) <= most:
            return rows
        return np.sort((rng or np.random.default_rng(self.seed)).choice(rows, most, replace=False))

    def _by_round(self, fit: Any, test: Array, rounds: tuple[int, ...]) -> Array:
        """Array (rounds,): the log likelihood of the test labels, or of a sample, after each of these rounds."""
        rows = self._some_of(test, _STOP_ON)
        found = np.zeros(len(rounds))
        for i, P in enumerate(fit.staged_predict_proba(self.X[rows]), start=1):
            if i in rounds:
                of_given = _all_classes(fit, P, self.n_classes)[np.arange(len(rows)), self.codes[rows]]
                found[rounds.index(i)] = np.log(np.maximum(of_given, 1e-4)).sum()
        return found


def _all_classes(fit: Any, P: Array, n_classes: int) -> Array:
    """P with a column for each class; 0 for classes that do not occur in the training rows of `fit`."""
    full = np.zeros((len(P), n_classes))
    full[:, fit.classes_] = P
    return full


# ---- large leaves ----------------------------------------------------------------------------------------------------


def smooth_forests(
    X: Any, codes: Array, n_classes: int, seed: int, folds: Folds | None = None, mass: Array | None = None
) -> tuple[Array, ...]:
    """Two predictions (n, n_classes) by extra trees with large leaves, out of bag or out of fold.

    They still work if 40% of the labels are wrong, because each leaf averages at least ten labels and the trees differ.
    The second prediction merges leaves with fewer than forty rows into their parents. These models are coarse and get
    little weight if the labels are correct.
    """
    sparse = sp.issparse(X)
    X = sp.csr_matrix(X, dtype=np.float32) if sparse else np.ascontiguousarray(X, dtype=np.float32)

    def parts() -> Iterator[tuple[Array, Array]]:
        for rows, test_rows, random_state in _rows_of_trees(len(codes), seed, folds, mass):
            weight = None if mass is None else mass[rows]
            least = min(0.5, (_LEAVES[0] - 0.5) / (len(rows) if weight is None else weight.sum()))
            columns = min(X.shape[1], _COLUMNS)
            tree = ExtraTreeClassifier(
                max_features=columns, min_weight_fraction_leaf=least, random_state=random_state
            ).fit(X[rows], codes[rows], sample_weight=weight, check_input=sparse)
            yield test_rows, _shares(tree, X[test_rows], _LEAVES, n_classes)

    return tuple(_mean(parts(), (len(codes), len(_LEAVES), n_classes)).transpose(1, 0, 2))


def _rows_of_trees(n: int, seed: int, folds: Folds | None, mass: Array | None) -> Iterator[tuple[Array, Array, int]]:
    """For each tree its training rows, the rows that it predicts, and its seed.

    Without folds, a tree is trained on half of the rows and predicts the others, with folds on the training rows of a
    fold; both on at most 5,000 rows. Rows of mass 0 are not trained on.
    """
    rng, usable = np.random.default_rng(seed), np.ones(n, dtype=bool) if mass is None else mass > 0
    pairs = [(usable, None)] if folds is None else list(zip(folds.train & usable, folds.test, strict=True))
    for train, test in pairs * _SMOOTH_TREES:
        rows = np.flatnonzero(train)
        most = min(len(rows) if test is not None else -(-len(rows) // 2), _FOREST_ON)
        if most < len(rows):
            rows = np.sort(rng.choice(rows, most, replace=False))
        test_rows = np.delete(np.arange(n), rows) if test is None else np.flatnonzero(test)
        yield rows, test_rows, int(rng.integers(2**31))


def _shares(tree: Any, X: Any, sizes: tuple[int, ...], n_classes: int) -> Array:
    """Array (n, sizes, n_classes): the class shares in the smallest subtree of each row that has at least `size` rows.

    If even the whole tree has fewer, it is the subtree. X must be float32.
    """
    inner, parent = tree.tree_, np.zeros(tree.tree_.node_count, dtype=np.intp)
    for children in (inner.children_left, inner.children_right):
        parent[children[children >= 0]] = np.flatnonzero(children >= 0)
    leaf, node = inner.apply(X), np.arange(inner.node_count)
    share = inner.value[:, 0] / inner.value[:, 0].sum(axis=1, keepdims=True)
    found = np.zeros((len(leaf), len(sizes), n_classes))
    for place, size in enumerate(sizes):
        for _ in range(inner.max_depth):
            small = (inner.weighted_n_node_samples[node] < size - 0.5) & (node > 0)
            node = np.where(small, parent[node], node)
        found[:, place, tree.classes_] = share[node][leaf]
    return found


def _by_leaves(found: Array) -> dict[str, Array]:
    """The two members of a forest, from predictions (n, sizes, classes)."""
    return dict(zip(TREE_MEMBERS[1:], found.transpose(1, 0, 2), strict=True))


def _mean(parts: Iterable[tuple[Array, Array]], shape: tuple[int, ...]) -> Array:
    """The mean over trees, each of which predicts some of the rows; NaN for rows that no tree predicts."""
    total, times = np.zeros(shape), np.zeros((shape[0], *[1] * (len(shape) - 1)))
    for rows, predicted in parts:
        total[rows] += predicted
        times[rows] += 1.0
    return np.divide(total, times, out=np.full(shape, np.nan), where=times > 0)
