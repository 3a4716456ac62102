"""`find_label_issues` out of core: members and posterior from a sample of the rows, then one pass of predictions.

If the sample holds all rows, the issues are those found in memory. Otherwise the members of the ensemble are fitted to
the sample in folds, and the label-noise model to their out-of-fold predictions. A row of the sample is predicted by the
models of its fold, any other row by those of a fold that a hash of its number chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.lib.recfunctions import drop_fields
from sklearn.utils import check_random_state

from ..core.arrays import Array
from ..core.row_space import RowSpace
from ..core.threads import one_thread
from ..core.transition import probabilities_of
from ..crossfit import predictions
from ..crossfit.folds import Folds
from ..crossfit.models import Task, predict_with
from ..crossfit.trees import fit_trees
from ..estimators import AoRRClassifier
from ..issues.find import add_fdr, as_dense, find_label_issues, ranking_score
from ..issues.out_of_fold import IGNORED, check_settings
from ..issues.suspects import LabelIssues
from ..label_noise import Costs, LabelNoiseModel, LabelNoisePosterior, actions
from .evaluation import Passes
from .fit import Data, first_pass
from .inputs import as_rows
from .kernels import Model, blocks, hashed
from .rows import Chunk, Rows

# The number of further rows in the ranking after the suspects.
_RANKED = 100


def find(
    X: Any,
    y: Any = None,
    *,
    estimator: Any,
    cv: Any,
    trees: bool,
    neighbours: bool,
    costs: Costs,
    random_state: Any,
    verbose: int,
) -> LabelIssues:
    """`find_label_issues` for a scan or Dask collections; nearest neighbours are used only in memory."""
    rows, model = as_rows(X, y), _checked(estimator)
    if isinstance(cv, bool) or not isinstance(cv, int | np.integer) or cv < 2:
        raise ValueError(f"cv must be a number of folds from 2 on for a scan, got cv={cv!r}; leave it out")
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    passes = Passes(rows, verbose)
    data = first_pass(passes, model, int(rng.integers(2**63)))
    if data.chunk.X.shape[0] == rows.n_rows and data.mass is None:
        return find_label_issues(
            data.chunk.X,
            rows.named(data.chunk.y),
            estimator=estimator,
            cv=int(cv),
            trees=trees,
            neighbours=neighbours,
            review_cost=costs.review,
            drop_cost=costs.drop,
            random_state=random_state,
        )
    with one_thread():
        task = _fitted(data, rows, model, int(cv), trees, costs, rng)
    return task.issues(passes(infer_labels, task), rows)


def _checked(estimator: Any) -> Any:
    if estimator is None:
        return AoRRClassifier(C="auto")
    if not isinstance(estimator, AoRRClassifier):
        raise ValueError(
            "find_label_issues of a scan needs an AoRRClassifier with loss='logistic', got "
            f"{type(estimator).__name__}; leave estimator out, or load the rows into memory"
        )
    check_settings(estimator, IGNORED)
    return estimator


def _fitted(
    data: Data, rows: Rows, model: Any, n_folds: int, trees: bool, costs: Costs, rng: np.random.Generator
) -> Inference:
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
    dense = as_dense(data.X) if trees else None
    grown = {} if dense is None else fit_trees(Task(dense, codes, np.arange(n_classes)), folds, rng)
    members = Members(data.model, W, {name: fits.models for name, fits in grown.items()})
    posterior = LabelNoiseModel().fit(members.predictions(fold, data.X), codes, data.mass)
    assert data.model.classes is not None
    names = rows.named(data.model.classes)
    return Inference(members, posterior.without_rows(), costs, sampling.seed, n_folds, names)


def fold_numbers(seed: int, n_folds: int, numbers: Array) -> Array:
    return (hashed(seed ^ 0x5851F42D4C957F2D, numbers) % np.uint64(n_folds)).astype(np.intp)


@dataclass(frozen=True)
class Members:
    """The members of the ensemble for each fold: linear models, ordinary and robust (2, folds, r, p), and trees."""

    model: Model
    linear: Array
    trees: dict[str, list[Any]]

    def predictions(self, fold: Array, X: Any) -> dict[str, Array]:
        """Probabilities (n, classes) by name of the member, from models fitted without the fold of the row."""
        names = ["ordinary", "robust", *self.trees]
        found = {name: np.empty((len(fold), self.model.n_classes)) for name in names}
        for number in range(self.linear.shape[1]):
            rows = np.flatnonzero(fold == number)
            if not len(rows):
                continue
            part = X[rows]
            scores = [self.model.scores(W[number], part) for W in self.linear]
            of_fold = dict(zip(names, (probabilities_of(Z.T.astype(np.float64)) for Z in scores), strict=False))
            dense, classes = (
                part.toarray() if self.trees and sp.issparse(part) else part,
                np.arange(self.model.n_classes),
            )
            of_fold |= {name: predict_with(models[number], dense, classes) for name, models in self.trees.items()}
            for name, P in of_fold.items():
                found[name][rows] = P
        return found


class Suspects(NamedTuple):
    """The suspects of consecutive rows, and the first rows of the ranking after all suspects."""

    tables: tuple[Array, ...]
    rest: Array

    def __add__(self, later: Any) -> Suspects:
        return Suspects(self.tables + later.tables, _by_score(np.concatenate([self.rest, later.rest]))[:_RANKED])


def _by_score(table: Array) -> Array:
    return table[np.lexsort((table["row"], -table["score"]))]


@dataclass(frozen=True)
class Inference:
    """What workers need to compute the posterior of the labels from the predictions of the members."""

    members: Members
    posterior: LabelNoisePosterior
    costs: Costs
    seed: int
    n_folds: int
    names: Array  # the classes

    def table(self, chunk: Chunk) -> Array:
        """The rows of a chunk with columns of `LabelIssues.table`, the score and "likely", the most probable class.

        p_wrong and score are 0 for rows of weight 0.
        """
        return np.concatenate([self._rows(block) for block in blocks(chunk)])

    def _rows(self, block: Chunk) -> Array:
        model, n = self.members.model, block.X.shape[0]
        label, number = self.names.dtype, np.float64
        columns = [("row", np.intp), ("given", label), ("suggested", label), ("p_wrong", number), ("loss", number)]
        table = np.zeros(n, dtype=[*columns, ("fdr", number), ("action", "U7"), ("score", number), ("likely", label)])
        if not n:
            return table
        rows, codes = np.arange(n), model.codes(model.encoded(block.y))
        table["row"] = block.first_row + rows
        found = self.members.predictions(fold_numbers(self.seed, self.n_folds, table["row"]), model.features(block.X))
        mean: Any = sum(self.posterior.weights[name] * P for name, P in found.items())
        p_given = mean[rows, codes]
        mean[rows, codes] = -1.0
        p_wrong, p_true = self.posterior.predict(found, codes)
        table["likely"] = self.names[p_true.argmax(axis=1)]
        p_true[rows, codes] = -1.0
        table["given"], table["suggested"] = self.names[codes], self.names[p_true.argmax(axis=1)]
        table["action"] = actions(p_wrong, p_true.max(axis=1), self.costs)
        table["loss"] = -np.log(np.maximum(p_given, 1e-30))
        score = ranking_score(p_wrong, p_given, mean.max(axis=1))
        present = 1.0 if block.weight is None else block.weight > 0
        table["p_wrong"], table["score"] = p_wrong * present, score * present
        return table

    def issues(self, found: Suspects, rows: Rows) -> LabelIssues:
        """The result of `find_label_issues`; values of all rows are lazy."""
        lazy = {name: rows.per_row(column, (name, self), np.float64) for name in ("score", "p_wrong")}
        for name, source in (("given", "given"), ("suggested", "likely")):
            lazy[name] = rows.per_row(column, (source, self), self.names.dtype)
        table, posterior = np.concatenate([found.rest[:0], *found.tables]), self.posterior
        return LabelIssues(
            table=_public(table),
            noise_estimate=posterior.share,
            noise_interval=posterior.interval,
            contradicted=posterior.contradicted,
            ranked=_public(np.concatenate([table, found.rest])),
            no_error=posterior.no_error,
            transition=posterior.transition,
            **lazy,
        )


def _public(table: Array) -> Array:
    """The rows, most suspect first, with the columns that users see."""
    table = _by_score(table)
    add_fdr(table)
    return drop_fields(table, ["score", "likely"], usemask=False)


def infer_labels(chunk: Chunk, message: Inference) -> Suspects:
    """The kernel of the last pass: the suspects of a chunk, and the next rows of the ranking."""
    table = message.table(chunk)
    table = table if chunk.weight is None else table[chunk.weight > 0]
    listed = table["p_wrong"] >= message.costs.review_from
    return Suspects((table[listed],), _by_score(table[~listed])[:_RANKED])


def column(chunk: Chunk, message: tuple[str, Inference]) -> Array:
    """The kernel of lazy values: a column of the table of each chunk."""
    name, task = message
    return task.table(chunk)[name]
