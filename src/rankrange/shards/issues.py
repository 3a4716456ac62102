"""`find_label_issues` out of core: members and posterior from a sample of the rows, then one pass of predictions.

If the sample holds all rows, the issues are those found in memory. Otherwise the members of the ensemble are fitted to
the sample in folds, and the label-noise model to their out-of-fold predictions. A row of the sample is predicted by the
models of its fold, any other row by those of a fold that a hash of its number chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from ..core.arrays import Array
from ..core.row_space import RowSpace
from ..core.threads import one_thread
from ..core.transition import probabilities_of
from ..crossfit import predictions
from ..crossfit.folds import Folds
from ..crossfit.trees import TREE_MEMBERS, FoldTrees
from ..estimators import AoRRClassifier
from ..issues.find import P_WRONG_IN_SCORE, find_label_issues
from ..issues.out_of_fold import IGNORED, check_settings
from ..issues.suspects import LabelIssues
from ..label_noise import Costs, LabelNoiseModel, LabelNoisePosterior, actions
from .evaluation import Passes
from .fit import Data, first_pass
from .inputs import as_rows
from .kernels import Model, Sampling, blocks, hashed
from .rows import Chunk, Rows

# The largest number of entries, zeros included, of a sparse sample that is converted to a dense array for trees.
_WRITTEN_OUT = 5e7
# The number of further rows in the ranking after the suspects.
_RANKED = 100


def find(
    X: Any,
    y: Any = None,
    *,
    estimator: Any = None,
    cv: Any = 5,
    trees: bool = True,
    neighbours: bool = True,
    costs: Costs | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> LabelIssues:
    """Find the rows whose labels are probably wrong, in a scan or in Dask collections.

    Parameters
    ----------
    X : scan or dask array or dataframe
        The rows; a scan contains the labels.
    y : dask array or series, optional
        The labels of Dask collections.
    estimator : AoRRClassifier, optional
        Gives C, `fit_intercept` and `class_weight`; its loss must be logistic. By default C is chosen on the sample.
    cv : int, default=5
        The number of folds of the sample.
    trees : bool, default=True
        Whether boosted trees and a forest are members of the ensemble. Sparse samples that would be too large as dense
        arrays get no trees.
    neighbours : bool, default=True
        Whether to add nearest neighbours, if the sample holds all rows.
    costs : Costs, optional
        The costs that determine the suspects and their actions.
    random_state : int, RandomState or None, default=None
        A seed for the sample, the folds and the trees.
    verbose : int, default=0
        1 prints each pass over the data.

    Returns
    -------
    LabelIssues
        The suspects with their row numbers. Values of all rows are computed lazily.
    """
    rows, costs = as_rows(X, y), costs or Costs()
    model = _checked(estimator)
    if isinstance(cv, bool) or not isinstance(cv, int | np.integer) or cv < 2:
        raise ValueError(f"cv must be a number of folds from 2 on for a scan, got cv={cv!r}; leave it out")
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    passes = Passes(rows, verbose)
    data = first_pass(passes, model, int(rng.integers(2**63)))
    if data.chunk.X.shape[0] == rows.n_rows and data.mass is None:
        labels = data.chunk.y if rows.labels is None else rows.labels[data.chunk.y]
        return find_label_issues(
            data.chunk.X,
            labels,
            estimator=estimator,
            cv=int(cv),
            trees=trees,
            neighbours=neighbours,
            review_cost=costs.review,
            drop_cost=costs.drop,
            random_state=random_state,
        )
    with one_thread():
        task = _fitted(data, model, int(cv), trees, costs, rng)
    return task.issues(passes(infer_labels, task), rows)


def _checked(estimator: Any) -> Any:
    if estimator is None:
        return AoRRClassifier(C="auto")
    if not isinstance(estimator, AoRRClassifier) or estimator.loss != "logistic":
        raise ValueError(
            "find_label_issues of a scan needs an AoRRClassifier with loss='logistic', got "
            f"{type(estimator).__name__}; leave estimator out, or load the rows into memory"
        )
    check_settings(estimator, IGNORED)
    return estimator


def _fitted(data: Data, model: Any, n_folds: int, trees: bool, costs: Costs, rng: np.random.Generator) -> Inference:
    """Fit the members to the sample, and the label-noise model to their out-of-fold predictions."""
    codes, n_classes = data.model.codes(data.y), data.model.n_classes
    sampling = data.sampling
    fold = fold_numbers(sampling.seed, n_folds, data.numbers)
    test = fold == np.arange(n_folds)[:, None]
    folds = Folds(~test, test)
    objective = predictions.logistic_objective(data.X, codes, n_classes, data.model.fit_intercept, data.mass)
    share = objective.mass.sum() / data.total
    fits, _ = predictions.trimmed_fits(objective, codes, folds, None if model.C == "auto" else float(model.C) / share)
    W, space = fits.W, RowSpace.of(data.X)
    if space is not None:  # with few rows the fits are in coordinates of their span
        d = space.X.shape[1]
        W = np.concatenate([space.coefficients(W[..., :d]), W[..., d:]], axis=-1)
    grown = None
    if trees and not (sp.issparse(data.X) and np.prod(data.X.shape) > _WRITTEN_OUT):
        grown = FoldTrees.fit(_dense(data.X), codes, n_classes, folds, rng)
    members = Members(data.model, W, grown)
    posterior = LabelNoiseModel().fit(members.predictions(fold, data.X), codes, data.mass)
    return Inference(members, posterior.without_rows(), costs, sampling, n_folds)


def _dense(X: Any) -> Array:
    return np.asarray(X.toarray() if sp.issparse(X) else X)


def fold_numbers(seed: int, n_folds: int, numbers: Array) -> Array:
    """The fold of each of the rows with these numbers."""
    return (hashed(seed ^ 0x5851F42D4C957F2D, numbers) % np.uint64(n_folds)).astype(np.intp)


@dataclass(frozen=True)
class Members:
    """The members of the ensemble for each fold: linear models, ordinary and robust (2, folds, r, p), and trees."""

    model: Model
    linear: Array
    trees: FoldTrees | None = None

    def predictions(self, fold: Array, X: Any) -> dict[str, Array]:
        """Probabilities (n, classes) by name of the member, from models fitted without the fold of the row."""
        names = ["ordinary", "robust", *(TREE_MEMBERS if self.trees is not None else ())]
        found = {name: np.empty((len(fold), self.model.n_classes)) for name in names}
        for number in range(self.linear.shape[1]):
            rows = np.flatnonzero(fold == number)
            if not len(rows):
                continue
            part = X[rows]
            scores = [self.model.scores(W[number], part) for W in self.linear]
            of_fold = dict(zip(names, (probabilities_of(Z.T.astype(np.float64)) for Z in scores), strict=False))
            for name, P in {**of_fold, **(self.trees.predict(number, _dense(part)) if self.trees else {})}.items():
                found[name][rows] = P
        return found


class Predicted(NamedTuple):
    """For n rows and K classes the codes of the labels (n,), the posterior of the true class and the weighted mean of

    the probabilities of all members (n, K), and whether the weight of a row is positive (n,).
    """

    codes: Array
    p_true: Array
    mean: Array
    present: Array

    def value(self, name: str) -> Array:
        """One value per row: "given" and "suggested" codes, "p_wrong", "loss" or "score".

        The suggested class is the most probable one, which may be the given one. p_wrong and score are 0 for rows of
        weight 0.
        """
        rows = np.arange(len(self.codes))
        given, p_wrong = self.mean[rows, self.codes], 1.0 - self.p_true[rows, self.codes]
        score = P_WRONG_IN_SCORE * p_wrong + (1.0 - P_WRONG_IN_SCORE) * (1.0 - given)
        return {
            "given": self.codes,
            "suggested": self.p_true.argmax(axis=1),
            "p_wrong": p_wrong * self.present,
            "loss": -np.log(np.maximum(given, 1e-30)),
            "score": score * self.present,
        }[name]


SUSPECT = np.dtype(
    [
        ("row", np.int64),
        ("given", np.int32),
        ("suggested", np.int32),  # the most probable class other than the given one
        ("p_wrong", np.float64),
        ("p_suggested", np.float64),  # the posterior probability that it is the true class
        ("score", np.float64),
        ("loss", np.float64),
    ]
)


class Suspects(NamedTuple):
    """The suspects of consecutive rows, and the first rows of the ranking after all suspects."""

    table: tuple[Array, ...]
    rest: Array

    def __add__(self, later: Any) -> Suspects:
        return Suspects(self.table + later.table, _by_score(np.concatenate([self.rest, later.rest]))[:_RANKED])


def _by_score(table: Array) -> Array:
    """The rows, most suspect first."""
    return table[np.lexsort((table["row"], -table["score"]))]


@dataclass(frozen=True)
class Inference:
    """What workers need to compute the posterior of the labels from the predictions of the members."""

    members: Members
    posterior: LabelNoisePosterior
    costs: Costs
    sampling: Sampling
    n_folds: int

    def predicted(self, chunk: Chunk) -> Iterator[tuple[int, Predicted]]:
        """Yield for each block the number of its first row, and the predictions of its rows."""
        model = self.members.model
        for block in blocks(chunk):
            codes = model.codes(model.encoded(block.y))
            numbers = block.first_row + np.arange(len(codes))
            found = self.members.predictions(
                fold_numbers(self.sampling.seed, self.n_folds, numbers), model.features(block.X)
            )
            mean = np.asarray(sum(self.posterior.weights[name] * P for name, P in found.items()))
            present = np.ones(len(codes), dtype=bool) if block.weight is None else block.weight > 0
            yield block.first_row, Predicted(codes, self.posterior.predict(found, codes).p_true, mean, present)

    def issues(self, found: Suspects, rows: Rows) -> LabelIssues:
        """The result of `find_label_issues`; values of all rows are lazy."""
        classes = self.members.model.classes
        assert classes is not None
        names = classes if rows.labels is None else rows.labels[classes]
        lazy = {name: rows.per_row(row_values, (name, self), np.float64) for name in ("score", "p_wrong")}
        for name in ("given", "suggested"):
            lazy[name] = rows.per_row(row_values, (name, self), names.dtype, names)
        table, posterior = np.concatenate([np.empty(0, dtype=SUSPECT), *found.table]), self.posterior
        return LabelIssues(
            table=self._public(_by_score(table), names),
            noise_estimate=posterior.share,
            noise_interval=posterior.interval,
            contradicted=posterior.contradicted,
            ranked=self._public(_by_score(np.concatenate([table, found.rest])), names),
            no_error=posterior.no_error,
            transition=posterior.transition,
            **lazy,
        )

    def _public(self, found: Array, names: Array) -> Array:
        """The rows as a table with the columns of `LabelIssues.table`, except "distance" and "cut"."""
        kinds = [("row", np.intp), ("given", names.dtype), ("suggested", names.dtype), ("p_wrong", np.float64)]
        table = np.zeros(len(found), dtype=[*kinds, ("loss", np.float64), ("fdr", np.float64), ("action", "U7")])
        for name in ("row", "p_wrong", "loss"):
            table[name] = found[name]
        table["given"], table["suggested"] = names[found["given"]], names[found["suggested"]]
        table["fdr"] = np.cumsum(1.0 - found["p_wrong"]) / np.arange(1, len(found) + 1)
        table["action"] = actions(found["p_wrong"], found["p_suggested"], self.costs)
        return table


def infer_labels(chunk: Chunk, message: Inference) -> Suspects:
    """The kernel of the last pass: the suspects of a chunk, and the next rows of the ranking."""
    found = Suspects((), np.empty(0, dtype=SUSPECT))
    for first_row, rows in message.predicted(chunk):
        score, listed = rows.value("score"), rows.value("p_wrong") >= message.costs.review_from
        others = np.flatnonzero(~listed & rows.present)
        others = others[np.argsort(-score[others], kind="stable")[:_RANKED]]
        tables = (_entries(rows, first_row, which) for which in (np.flatnonzero(listed & rows.present), others))
        table, rest = tables
        found = found + Suspects((table,), rest)
    return found


def _entries(rows: Predicted, first_row: int, chosen: Array) -> Array:
    table = np.empty(len(chosen), dtype=SUSPECT)
    other = rows.p_true[chosen]
    other[np.arange(len(chosen)), rows.codes[chosen]] = -1.0
    table["row"], table["suggested"] = first_row + chosen, other.argmax(axis=1)
    table["p_suggested"] = np.maximum(other.max(axis=1, initial=-1.0), 0.0)
    for name in ("given", "p_wrong", "score", "loss"):
        table[name] = rows.value(name)[chosen]
    return table


def row_values(chunk: Chunk, message: tuple[str, Inference]) -> Array:
    """The kernel of lazy values: the value of each row with the name in the message."""
    name, task = message
    return np.concatenate([np.empty(0), *(rows.value(name) for _, rows in task.predicted(chunk))]).astype(
        np.int32 if name in ("given", "suggested") else np.float64
    )
