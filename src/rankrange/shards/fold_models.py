"""The members of the ensemble for each fold, and the label-noise posterior of rows from their predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.transition import probabilities_of
from ..crossfit.trees import TREE_MEMBERS, FoldTrees
from ..label_noise import Costs, LabelNoisePosterior
from .shard_kernels import Model, fold_numbers


def dense(X: Any) -> Array:
    """The rows as a dense array for trees."""
    return np.asarray(X.toarray() if sp.issparse(X) else X)


@dataclass(frozen=True)
class FoldModels:
    """The members of the ensemble for each fold: linear models, ordinary and robust, and optionally trees.

    `linear` are the parameters (2, folds, r, p), and `seed` determines the fold of each row.
    """

    model: Model
    linear: Array
    seed: int
    n_folds: int
    trees: FoldTrees | None = None

    def predictions(self, fold: Array, X: Any) -> dict[str, Array]:
        """Probabilities (n, classes) by name of the member, from models fitted without the fold of the row."""
        names = ["ordinary", "robust", *(TREE_MEMBERS if self.trees is not None else ())]
        found = {name: np.empty((len(fold), self.model.n_classes)) for name in names}
        for number in range(self.n_folds):
            rows = np.flatnonzero(fold == number)
            for name, P in self._of_fold(number, X[rows]).items() if len(rows) else ():
                found[name][rows] = P
        return found

    def _of_fold(self, number: int, X: Any) -> dict[str, Array]:
        scores = [self.model.scores(W[number], X) for W in self.linear]
        found = {
            name: probabilities_of(Z.T.astype(np.float64))
            for name, Z in zip(("ordinary", "robust"), scores, strict=True)
        }
        return found if self.trees is None else {**found, **self.trees.predict(number, dense(X))}


@dataclass(frozen=True)
class InferenceTask:
    """The message for workers that compute the posterior of the labels from the predictions of the members.

    `costs` determine the suspects. With `every_row` workers return p_wrong and loss of all rows.
    """

    members: FoldModels
    posterior: LabelNoisePosterior
    costs: Costs
    every_row: bool = False


class Predicted(NamedTuple):
    """Predictions for n rows and K classes.

    These are the codes of the labels (n,), the probabilities of the ordinary and the robust linear model (2, n, K), the
    posterior of the true class (n, K), and the weighted mean of the probabilities of all members (n, K).
    """

    codes: Array
    linear: Array
    p_true: Array
    mean: Array

    @property
    def p_wrong(self) -> Array:
        """The probability that each label is wrong."""
        return 1.0 - self._given(self.p_true)

    @property
    def losses(self) -> Array:
        """The log loss of each label under the weighted mean of the members."""
        return -np.log(np.maximum(self._given(self.mean), 1e-30))

    @property
    def score(self) -> Array:
        """The score that ranks the suspects: 0.8 p_wrong + 0.2 (1 - weighted mean probability of the label)."""
        return np.asarray((4.0 * self.p_wrong + 1.0 - self._given(self.mean)) / 5.0)

    @property
    def suggested(self) -> Array:
        """The code of the most probable class other than the given one."""
        other = self.p_true.copy()
        other[np.arange(len(other)), self.codes] = -1.0
        return other.argmax(axis=1)

    def _given(self, P: Array) -> Array:
        return np.asarray(P[np.arange(len(self.codes)), self.codes])


def predict_rows(message: InferenceTask, first_row: int, X: Any, y: Array) -> Predicted:
    """The predictions for consecutive rows, out of fold, and their posterior; y is encoded (`Model.encoded`)."""
    members, posterior = message.members, message.posterior
    codes = members.model.codes(y)
    fold = fold_numbers(members.seed, members.n_folds, first_row, len(codes))
    found = members.predictions(fold, X)
    mean = np.asarray(sum(posterior.weights[name] * P for name, P in found.items()))
    linear = np.stack([found["ordinary"], found["robust"]])
    return Predicted(codes, linear, posterior.predict(found, codes).p_true, mean)
