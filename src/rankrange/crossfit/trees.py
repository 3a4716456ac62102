"""Out-of-fold predictions of trees: boosting with early stopping, and a forest with small and with large leaves.

Leaves of three rows learn wrong labels; larger ones average them out, and predict worse if the labels are right. The
weights of the members decide between them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from ..core.arrays import Array
from .folds import Folds

# Boosting may stop at one of these rounds, earlier if labels are wrong. With at least so many rows, a larger model is
# tried if the last round is the best; it must increase the mean log likelihood by .01.
_ROUNDS, _MORE_ROUNDS, _LARGER_FROM, _MIN_GAIN = (3, 5, 10, 20, 35, 50), (50, 100, 150), 5_000, 0.01
# The largest numbers of rows for boosting and for each tree of a forest.
_BOOSTED_ROWS, _TREE_ROWS = 40_000, 5_000
# The number of trees of a forest, and the minimum leaf sizes of its two predictions.
_TREES, _LEAVES, _LARGE_LEAVES = 60, (3, 30), (10, 40)

# The members of `tree_predictions`; those of the forest are in the order of the leaf sizes.
TREE_MEMBERS = ("boosting", "forest", "coarse_forest")


class Boosted(NamedTuple):
    """Boosted trees of each fold, stopped after the same round; `gain` is the mean log likelihood of test labels."""

    fits: list[Any]
    n_classes: int
    stop: int
    gain: float

    @classmethod
    def fit(cls, X: Any, codes: Array, n_classes: int, folds: Folds, seed: int) -> Boosted:
        """Fit the small model, and the larger one if the small one improves up to its last round.

        Labels that only a larger model explains would be flagged otherwise.
        """
        if len(codes) < _LARGER_FROM:
            return cls._stopped(X, codes, n_classes, folds, seed, _ROUNDS, max_leaf_nodes=15 if n_classes == 2 else 8)
        small = cls._stopped(X, codes, n_classes, folds, seed, _ROUNDS)
        if small.stop < _ROUNDS[-1]:
            return small
        larger = cls._stopped(X, codes, n_classes, folds, seed, _MORE_ROUNDS, max_leaf_nodes=63, min_samples_leaf=10)
        return larger if larger.gain > small.gain + _MIN_GAIN else small

    @classmethod
    def _stopped(
        cls, X: Any, codes: Array, n_classes: int, folds: Folds, seed: int, rounds: tuple[int, ...], **leaves: int
    ) -> Boosted:
        """Boosted trees that stop at the round with the largest held-out likelihood: later ones learn wrong labels."""
        # This learning rate needs half as many rounds as scikit-learn's .1 for the same accuracy.
        model = {"max_iter": rounds[-1], "learning_rate": 0.2, "early_stopping": False, "random_state": seed, **leaves}
        fits, likelihood = [], np.zeros(len(rounds))
        for train, test in zip(folds.train, folds.test, strict=True):
            rows, test_rows = _sample(train, _BOOSTED_ROWS, np.random.default_rng(seed)), np.flatnonzero(test)
            fit = HistGradientBoostingClassifier(**model).fit(X[rows], codes[rows])
            fits.append(fit)
            for i, P in enumerate(fit.staged_predict_proba(X[test_rows]), start=1):
                if i in rounds:
                    of_given = _all_classes(fit, P, n_classes)[np.arange(len(test_rows)), codes[test_rows]]
                    likelihood[rounds.index(i)] += np.log(np.maximum(of_given, 1e-4)).sum()
        best = int(likelihood.argmax())
        return cls(fits, n_classes, rounds[best], float(likelihood[best] / folds.test.sum()))

    def predict(self, fold: int, X: Array) -> Array:
        """Probabilities (n, n_classes) of the trees that were not fitted to this fold."""
        stages = self.fits[fold].staged_predict_proba(X)
        for _ in range(self.stop - 1):
            next(stages)
        return _all_classes(self.fits[fold], next(stages), self.n_classes)


class Forest(NamedTuple):
    """A forest: for each tree the folds that it leaves out, and the tree."""

    trees: list[tuple[Array, Any]]
    n_classes: int
    leaves: tuple[int, int]

    @classmethod
    def fit(
        cls,
        X: Any,
        codes: Array,
        n_classes: int,
        folds: Folds,
        rng: np.random.Generator,
        mass: Array | None = None,
        large: bool = False,
    ) -> Forest:
        """Fit trees to a few thousand rows each; `mass` (n,) are row weights.

        With `large`, trees are extra trees with large leaves: they still work if 40% of the labels are wrong. Their
        splits consider many columns, because informative ones would often be missed otherwise.

        Each leaves out half of the folds. Three of five folds have about as many distinct rows as a bootstrap sample of
        four folds, and each tree predicts twice as many rows.
        """
        X, F = _single(X), len(folds)
        kind, leaves, columns = DecisionTreeClassifier, _LEAVES, "sqrt"
        if large:
            kind, leaves, columns = ExtraTreeClassifier, _LARGE_LEAVES, min(X.shape[1], 100)
        out = max(1, F // 2)
        order = np.concatenate([rng.permutation(F) for _ in range(-(-_TREES * out // F))])
        usable, trees = np.ones(len(codes), dtype=bool) if mass is None else mass > 0, []
        for left in order[: _TREES * out].reshape(_TREES, out):
            kept = folds.train[left].all(axis=0) & usable
            if kept.any():  # not all folds of a series have earlier rows in common
                rows = _sample(kept, _TREE_ROWS, rng)
                weight = np.ones(len(rows)) if mass is None else mass[rows]
                least, seed = min(0.5, (leaves[0] - 0.5) / weight.sum()), int(rng.integers(2**31))
                tree = kind(min_weight_fraction_leaf=least, max_features=columns, random_state=seed)
                trees.append((left, tree.fit(X[rows], codes[rows], weight, check_input=sp.issparse(X))))
        return cls(trees, n_classes, leaves)

    def predict(self, fold: int, X: Any) -> Array:
        """Probabilities (leaf sizes, n, n_classes) of the trees that leave out this fold; NaN if there are none."""
        X, total, count = _single(X), np.zeros((len(self.leaves), X.shape[0], self.n_classes)), 0
        for left, tree in self.trees:
            if fold in left:
                total += _shares(tree, X, self.leaves, self.n_classes)
                count += 1
        return total / (count or np.nan)

    def out_of_fold(self, X: Any, folds: Folds) -> Array:
        """Probabilities (leaf sizes, n, n_classes) of all rows; NaN for rows that no tree leaves out."""
        X, total, count = _single(X), np.zeros((len(self.leaves), X.shape[0], self.n_classes)), np.zeros(X.shape[0])
        for left, tree in self.trees:
            rows = np.flatnonzero(folds.test[left].any(axis=0))
            total[:, rows] += _shares(tree, X[rows], self.leaves, self.n_classes)
            count[rows] += 1
        return total / np.where(count > 0, count, np.nan)[:, None]


class FoldTrees(NamedTuple):
    """Boosted trees and a forest, which can predict new rows of a fold."""

    boosted: Boosted
    forest: Forest

    @classmethod
    def fit(cls, X: Any, codes: Array, n_classes: int, folds: Folds, rng: np.random.Generator) -> FoldTrees:
        """Fit both. Each row must be in one test fold."""
        boosted = Boosted.fit(X, codes, n_classes, folds, int(rng.integers(2**31)))
        return cls(boosted, Forest.fit(X, codes, n_classes, folds, rng))

    def predict(self, fold: int, X: Array) -> dict[str, Array]:
        """Probabilities (n, n_classes) of rows of one fold, from trees that were not fitted to it."""
        return dict(zip(TREE_MEMBERS, [self.boosted.predict(fold, X), *self.forest.predict(fold, X)], strict=True))


def tree_predictions(X: Any, codes: Array, n_classes: int, folds: Folds, rng: np.random.Generator) -> dict[str, Array]:
    """Out-of-fold probabilities (n, n_classes) of boosted trees and of a forest by leaf size."""
    trees = FoldTrees.fit(X, codes, n_classes, folds, rng)
    boosted = folds.average([trees.boosted.predict(fold, X[test]) for fold, test in enumerate(folds.test)])
    return dict(zip(TREE_MEMBERS, [boosted, *trees.forest.out_of_fold(X, folds)], strict=True))


def _single(X: Any) -> Any:
    """X in float32, as trees need it."""
    return sp.csr_matrix(X, dtype=np.float32) if sp.issparse(X) else np.ascontiguousarray(X, dtype=np.float32)


def _sample(mask: Array, most: int, rng: np.random.Generator) -> Array:
    """The rows of the mask; if there are more than `most`, a sample of this many."""
    rows = np.flatnonzero(mask)
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))


def _all_classes(fit: Any, P: Array, n_classes: int) -> Array:
    """P with a column for each class; 0 for classes that do not occur in the training rows of `fit`."""
    full = np.zeros((len(P), n_classes))
    full[:, fit.classes_] = P
    return full


def _shares(tree: Any, X: Any, leaves: tuple[int, ...], n_classes: int) -> Array:
    """Array (leaf sizes, n, n_classes): the class shares in the smallest subtree of each row with that many rows.

    If even the whole tree has fewer, it is the subtree. X must be float32.
    """
    inner, parent = tree.tree_, np.zeros(tree.tree_.node_count, dtype=np.intp)
    for children in (inner.children_left, inner.children_right):
        parent[children[children >= 0]] = np.flatnonzero(children >= 0)
    leaf, node = inner.apply(X), np.arange(inner.node_count)
    share = inner.value[:, 0] / inner.value[:, 0].sum(axis=1, keepdims=True)
    found = np.zeros((len(leaves), len(leaf), n_classes))
    for P, size in zip(found, leaves, strict=True):
        for _ in range(inner.max_depth):
            small = (inner.weighted_n_node_samples[node] < size - 0.5) & (node > 0)
            node = np.where(small, parent[node], node)
        P[:, tree.classes_] = share[node][leaf]
    return found
