"""Helpers of the multi-label experiments: splits, models chosen on held-out rows, paired comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.preprocessing import StandardScaler

from ... import TKMLClassifier
from ...core.arrays import Array
from ...datasets import load
from ...estimators import LogisticPerLabel, LSEPClassifier
from ...estimators.baselines import lsep as pairwise_losses
from ...metrics import top_k_multilabel_accuracy
from .cells import Results, scikit_learns_C, splits_needed

KS = (1, 2, 3, 4, 5)
METRIC = "top-k accuracy %"


@dataclass(frozen=True)
class Parts:
    """Training and test rows, standardised by the mean and standard deviation of the training rows.

    Y and Y_test are indicator matrices.
    """

    X: Array
    Y: Array
    X_test: Array
    Y_test: Array

    def accuracy(self, scores: Array, k: int) -> float:
        """Top-k accuracy in percent, from scores of the test rows."""
        return 100.0 * float(top_k_multilabel_accuracy(self.Y_test, scores, k))

    def constant(self) -> Array:
        """The same scores for every test row: the frequency of each label in the training rows."""
        return np.tile(self.Y.mean(axis=0), (len(self.Y_test), 1))


def parts(name: str, seed: int, share: float) -> Parts:
    """Split a data set at random: a share of the rows for training, and the others for testing.

    These splits differ from those on which the rules that choose C, m and k were developed.
    """
    data = load(name)
    order = np.random.default_rng((seed, len(data.target))).permutation(len(data.target))
    return cut(data.data[order], data.target[order], int(share * len(order)))


def cut(X: Array, Y: Array, first: int) -> Parts:
    """The first `first` rows for training, and the others for testing."""
    scale = StandardScaler().fit(X[:first]).transform
    return Parts(scale(X[:first]), Y[:first], scale(X[first:]), Y[first:])


def folds(validation: Any, seed: int) -> KFold | ShuffleSplit:
    """Held-out rows as in `TKMLClassifier`: an int is the number of folds, a float the share of a hold-out set."""
    if isinstance(validation, int):
        return KFold(validation, shuffle=True, random_state=seed)
    return ShuffleSplit(1, test_size=validation, random_state=seed)


def log_loss(Y: Array, f: Array) -> float:
    """The sum of the log losses of all labels of all rows."""
    return float(np.logaddexp(0.0, (1.0 - 2.0 * Y) * f).sum())


def lsep_loss(Y: Array, f: Array) -> float:
    """The sum of the log-sum-exp pairwise losses; it is 0 for rows without a true or without a false label."""
    return float(pairwise_losses(Y == 1, f)[0].sum())


def by_own_loss(make: Callable[[float], Any], loss: Any, Cs: Iterable[float], X: Array, Y: Array, how: Any) -> Any:
    """The model with the C that has the smallest loss on held-out rows, fitted to all rows.

    `make` is a function of scikit-learn's C, `loss` a function of targets and scores, and `how` a splitter. `Cs` are
    in the paper's scale, in which C multiplies the mean of the losses instead of their sum.
    """
    held_out = dict.fromkeys(Cs, 0.0)
    for C in held_out:
        for train, held in how.split(X):
            held_out[C] += loss(Y[held], make(C / len(train)).fit(X[train], Y[train]).decision_function(X[held]))
    return make(min(held_out, key=lambda C: held_out[C]) / len(X)).fit(X, Y)


def logistic(Cs: Iterable[float], X: Array, Y: Array, how: Any) -> Any:
    """One logistic regression per label, with the C that has the smallest log loss on held-out rows."""
    return by_own_loss(lambda C: LogisticPerLabel(C=C, tol=1e-6), log_loss, Cs, X, Y, how)


def lsep(Cs: Iterable[float], X: Array, Y: Array, how: Any) -> Any:
    """The log-sum-exp pairwise loss, with the C that has the smallest loss on held-out rows."""
    return by_own_loss(lambda C: LSEPClassifier(C=C, tol=1e-5), lsep_loss, Cs, X, Y, how)


def stopped(top_k: int, C: float, X: Array, Y: Array, **settings: Any) -> TKMLClassifier:
    """A TKML fit with early stopping on held-out rows, after at most 80 steps; C is the paper's."""
    C = scikit_learns_C(C, len(X), settings.get("m", 0), settings.get("k", 1.0))
    return TKMLClassifier(top_k, C=C, max_iter=80, **settings).fit(X, Y)


def best_C(fits: dict[tuple[int, float], TKMLClassifier], Cs: Iterable[float], ks: Iterable[int]) -> float:
    """The C with the best mean accuracy over `ks` on held-out rows; a separate C for each k would overfit.

    `fits` are fits with early stopping, by (k, C).
    """
    ks = tuple(ks)
    return max(Cs, key=lambda C: sum(fits[k, C].stop_score_ for k in ks))


def paired(
    results: Results, one: str, other: str, pairs: Iterable[tuple[str, str]], metric: str = METRIC
) -> dict[tuple[str, str], tuple[float, float]]:
    """Mean and standard error of one - other over splits, by pair (dataset, setting).

    Pairs for which fewer than two splits have both methods are left out.
    """
    found = {pair: results.paired(pair[0], one, other, pair[1], metric) for pair in pairs}
    return {pair: (difference, error) for pair, (difference, error, n) in found.items() if n > 1}


def power(
    results: Results,
    one: str,
    other: str,
    pairs: Iterable[tuple[str, str]],
    metric: str = METRIC,
    bar: float = 0.0,
) -> str:
    """A sentence with the number of splits that would decide the comparisons that are still undecided.

    A comparison is decided if one - other is two standard errors from `bar`. Other parameters are those of `paired`.
    """
    found = {" ".join(pair): results.paired(pair[0], one, other, pair[1], metric) for pair in pairs}
    return splits_needed({name: each for name, each in found.items() if each[2] > 1}, bar)


def listed(differences: dict[tuple[str, str], tuple[float, float]]) -> str:
    """The result of `paired` as text: each pair with its difference and, in parentheses, its standard error."""
    return "; ".join(
        f"{dataset} {setting} {difference:+.2f} ({error:.2f})"
        for (dataset, setting), (difference, error) in differences.items()
    )
