"""`find_label_issues` for shards: label issues in tables larger than memory.

A hash of the row number determines the fold of a row. For each fold, an ordinary and a trimmed linear model are fitted
to all other rows; these fits share their passes over the data. Trees are fitted to the sampled rows outside each fold.
The label-noise model is fitted to the out-of-fold predictions of the sample. One last pass computes the posterior of
all rows from out-of-fold predictions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from ..core.arrays import Array
from ..core.objective import Objective
from ..core.row_space import RowSpace
from ..crossfit import predictions
from ..crossfit.folds import Folds
from ..crossfit.trees import FoldTrees
from ..estimators import AoRRClassifier
from ..issues.out_of_fold import IGNORED, check_settings
from ..issues.suspects import LabelIssues
from ..label_noise import LIKELY, Costs, LabelNoiseModel, LabelNoisePosterior, actions
from .engine import LazyRows, Shard, Shards
from .fit import _Data, _first_pass, _Passes
from .fold_fits import fit_folds
from .fold_models import FoldModels, InferenceTask, Predicted, dense, predict_rows
from .row_blocks import aligned_blocks, as_rows, one_thread
from .shard_kernels import fold_numbers

# Each fold has two linear fits, and eight fits can share a pass.
MAX_FOLDS = 4
# The largest number of entries, zeros included, of a sparse sample that is converted to a dense array for trees.
_WRITTEN_OUT = 5e7
# The number of further rows in the ranking after the suspects.
_RANKED = 100


def find_on_shards(
    shards: Shards,
    *,
    estimator: Any = None,
    cv: Any = MAX_FOLDS,
    trees: bool = True,
    costs: Costs | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> LabelIssues:
    """Find the rows whose labels are probably wrong, in data that do not fit into memory.

    Parameters
    ----------
    shards : Shards
        The rows with their labels, for example a `rankrange.scan`.
    estimator : AoRRClassifier, optional
        Gives C, `fit_intercept` and `class_weight`; its loss must be logistic. By default C is chosen on the sample.
    cv : int, default=4
        The number of folds, 2 to 4: each needs two linear fits, and eight of them share a pass. 5, the default of
        `find_label_issues`, means 4. Other values are an error.
    trees : bool, default=True
        Whether boosted trees and a forest, grown on the sample, are members of the ensemble. Sparse samples that would
        be too large as dense arrays get no trees.
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
    found = issues_in_shards(shards, estimator, cv, trees, random_state, verbose, costs=costs)
    return found.issues(shards)


def issues_in_shards(
    shards: Shards,
    estimator: Any,
    cv: Any,
    trees: bool,
    random_state: Any,
    verbose: int,
    every_row: bool = False,
    cut: float | None = None,
    costs: Costs | None = None,
) -> ShardIssues:
    """Fit all folds, then the label-noise model, and find the suspects; arguments as of `find_on_shards`.

    With `every_row` the result has p_wrong and the loss of each row, 8 bytes per row. `cut` is the share that the
    trimmed fits drop; by default the share of wrong labels, estimated on the sample.
    """
    model = _checked(estimator)
    # 5 is the default of find_label_issues.
    n_folds = min(int(cv), MAX_FOLDS) if isinstance(cv, int | np.integer) and cv <= MAX_FOLDS + 1 else 0
    if n_folds < 2:
        raise ValueError(f"cv must be a number of folds from 2 to {MAX_FOLDS} for shards, got cv={cv!r}; leave it out")
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    with one_thread():
        passes = _Passes(verbose)
        data = _first_pass(shards, model, int(rng.integers(2**63)), passes, n_folds)
        sample = _Sample.of(data, n_folds, bool(model.fit_intercept))
        starts, share, C = sample.searched(None if model.C == "auto" else float(model.C))
        share = share if cut is None else cut
        parts = [sample.without(number) for number in range(n_folds)]
        ends = fit_folds(shards, data, parts, starts, share, C, passes)
        grown = sample.trees(rng) if trees else None
        members = FoldModels(data.model, ends, sample.seed, n_folds, grown)
        task = InferenceTask(members, sample.posterior(members), costs or Costs(), every_row)
        passes("labels")
        suspects = shards.reduce(infer_labels, task)
    return ShardIssues(data, task, suspects, share, C, passes.count)


def _checked(estimator: Any) -> Any:
    if estimator is None:
        return AoRRClassifier(C="auto")
    if not isinstance(estimator, AoRRClassifier) or estimator.loss != "logistic":
        raise ValueError(
            "find_label_issues on shards needs an AoRRClassifier with loss='logistic', which takes a few passes, got "
            f"{type(estimator).__name__}; leave estimator out, or load the rows into memory"
        )
    check_settings(estimator, IGNORED)
    return estimator


class _Sample(NamedTuple):
    """The sampled rows (their objective, the codes of their labels and their folds), and the fits to them."""

    objective: Objective
    codes: Array
    fold: Array
    n_folds: int
    seed: int
    data: _Data

    @classmethod
    def of(cls, data: _Data, n_folds: int, fit_intercept: bool) -> _Sample:
        rows, y, weight = data.sample
        codes, n_classes = data.model.codes(y), data.model.n_classes
        objective = predictions.logistic_objective(rows, codes, n_classes, fit_intercept, weight)
        objective = replace(objective, k=objective.total)
        seed = data.sampling.seed
        numbers = np.concatenate(data.description.numbers)
        fold = fold_numbers(seed, n_folds, numbers, len(numbers))
        return cls(objective, codes, fold, n_folds, seed, data)

    @property
    def folds(self) -> Folds:
        test = self.fold == np.arange(self.n_folds)[:, None]
        return Folds(~test, test)

    def searched(self, C: float | None) -> tuple[Array, float, float]:
        """Parameters (2, folds, r, p) of the ordinary and the trimmed fits of the sample, the dropped share, and C.

        If C is None, it is chosen.
        """
        share = self.objective.total / self.data.total
        fits, _ = predictions.trimmed_fits(self.objective, self.codes, self.folds, None if C is None else C / share)
        found = fits.C if C is None else C
        return self._of_columns(fits.W[[0, 2]]), float(fits.shares[2]), found

    def _of_columns(self, W: Array) -> Array:
        """Convert parameters in the row space, which `trimmed_fits` uses if it has few rows, to the columns.

        Otherwise they are returned unchanged.
        """
        space = RowSpace.of(self.objective.design.X)
        if space is None:
            return W
        d = space.X.shape[1]
        return np.concatenate([space.coefficients(W[..., :d]), W[..., d:]], axis=-1)

    def without(self, number: int) -> Objective:
        """The sample without the rows of one fold."""
        return self.objective.rows(np.flatnonzero(self.fold != number), 0, 1)

    def trees(self, rng: np.random.Generator) -> FoldTrees | None:
        """Fit trees to the sample; None if a dense copy would be too large."""
        X = self.objective.design.X
        if sp.issparse(X) and X.shape[0] * X.shape[1] > _WRITTEN_OUT:
            return None
        return FoldTrees.fit(dense(X), self.codes, self.data.model.n_classes, self.folds, rng)

    def posterior(self, members: FoldModels) -> LabelNoisePosterior:
        """The label-noise posterior without arrays of rows, which is small enough to send to workers."""
        predictions = members.predictions(self.fold, self.objective.design.X)
        return LabelNoiseModel().fit(predictions, self.codes, self.objective.sample_weight).without_rows()


SUSPECT = np.dtype(
    [
        ("row", np.int64),
        ("given", np.int32),
        ("suggested", np.int32),  # the most probable class other than the given one
        ("p_wrong", np.float64),
        ("p_suggested", np.float64),  # the posterior probability that it is the true class
        ("predicted", np.float32),  # its probability by the mixture of the members
        ("score", np.float64),
        ("loss", np.float32),
    ]
)


@dataclass
class Suspects:
    """Suspects of consecutive shards, sums over rows by class, and optionally p_wrong and loss of each row.

    `table` has the suspects of each block, and `rest` the first rows of the ranking after all suspects. `rows` has an
    array (2, n) of p_wrong and losses for each block, if they were requested. `sums` is an array (13, K) of sums over
    the rows of positive weight with each label: rows; likely wrong rows; rows that the ordinary linear model, the
    robust one, or exactly one of them predicts correctly; the same three without likely wrong rows; log losses of both
    models, their squares, and the squares of their differences.
    """

    table: list[Array] = field(default_factory=list)
    rest: Array = field(default_factory=lambda: np.empty(0, dtype=SUSPECT))
    sums: Array | None = None
    rows: list[Array] = field(default_factory=list)

    def copy(self) -> Suspects:
        """A copy that can be merged into."""
        return Suspects(list(self.table), self.rest, None if self.sums is None else self.sums.copy(), list(self.rows))

    def merge(self, later: Suspects) -> None:
        """Add the results of a later shard."""
        self.table += later.table
        self.rest = by_score(np.concatenate([self.rest, later.rest]))[:_RANKED]
        self.rows += later.rows
        if later.sums is not None:
            self.sums = later.sums if self.sums is None else self.sums + later.sums


def by_score(table: Array) -> Array:
    """The rows, most suspect first."""
    return table[np.lexsort((table["row"], -table["score"]))]


def infer_labels(shard: Shard, message: InferenceTask) -> Suspects:
    """The kernel of the last pass: the suspects of a shard, and the sums of `Suspects` over its rows."""
    found = Suspects()
    for first_row, present, rows in _predicted(shard, message):
        listed = (rows.p_wrong >= message.costs.review_from) & present
        table, other = _entries(rows, first_row, np.flatnonzero(listed)), _first(rows.score, ~listed & present)
        found.merge(Suspects([table], _entries(rows, first_row, other), _sums(rows, present)))
        if message.every_row:
            found.rows.append(np.stack([rows.p_wrong, rows.losses], dtype=np.float32))
    return found


def _first(score: Array, mask: Array) -> Array:
    rows = np.flatnonzero(mask)
    return rows[np.argsort(-score[rows], kind="stable")[:_RANKED]]


def _entries(rows: Predicted, first_row: int, chosen: Array) -> Array:
    table = np.empty(len(chosen), dtype=SUSPECT)
    suggested = rows.suggested[chosen]
    table["row"], table["given"], table["suggested"] = first_row + chosen, rows.codes[chosen], suggested
    table["p_wrong"], table["p_suggested"] = rows.p_wrong[chosen], rows.p_true[chosen, suggested]
    table["predicted"], table["loss"] = rows.mean[chosen, suggested], rows.losses[chosen]
    table["score"] = rows.score[chosen]
    return table


def _sums(rows: Predicted, present: Array) -> Array:
    """The sums of `Suspects` over rows of positive weight."""
    n = len(rows.codes)
    log_losses = -np.log(np.maximum(rows.linear[:, np.arange(n), rows.codes], 1e-30))
    right = rows.linear.argmax(axis=2) == rows.codes
    likely, apart = rows.p_wrong >= LIKELY, right[0] != right[1]
    gain = log_losses[0] - log_losses[1]
    columns = [
        np.ones(n),
        likely,
        *right,
        apart,
        *(right & ~likely),
        apart & ~likely,
        *log_losses,
        *log_losses**2,
        gain**2,
    ]
    classes = rows.mean.shape[1]
    return np.stack([np.bincount(rows.codes, weights=column * present, minlength=classes) for column in columns])


def _predicted(shard: Shard, message: InferenceTask) -> Iterator[tuple[int, Array, Predicted]]:
    """Yield for each block the number of its first row, which rows have a positive weight, and the posterior."""
    model = message.members.model
    with one_thread():
        for batch in aligned_blocks(shard.batches()):
            y = model.encoded(batch.y)
            present = np.ones(len(y), dtype=bool) if batch.weight is None else batch.weight > 0
            yield batch.first_row, present, predict_rows(message, batch.first_row, as_rows(batch.X, model.dtype), y)


def row_values(shard: Shard, message: tuple[str, InferenceTask]) -> Array:
    """The kernel of lazy values: one value per row, named in the message ("p_wrong", "score", "given", "suggested").

    Classes are codes. The suggested class is the most probable one, which may be the given one. p_wrong and score are 0
    for rows of weight 0.
    """
    name, task = message
    values = []
    for _, present, rows in _predicted(shard, task):
        if name in ("given", "suggested"):
            values.append((rows.codes if name == "given" else rows.p_true.argmax(axis=1)).astype(np.int32))
        else:
            values.append((rows.p_wrong if name == "p_wrong" else rows.score) * present)
    return np.concatenate(values) if values else np.empty(0)


@dataclass(frozen=True)
class ShardIssues:
    """The results of the passes; `issues` converts them to `LabelIssues`.

    `share` is the share that the trimmed fits drop, and C is scikit-learn's.
    """

    data: _Data
    task: InferenceTask
    suspects: Suspects
    share: float
    C: float
    n_passes: int

    @property
    def posterior(self) -> LabelNoisePosterior:
        """The label-noise posterior, without values of single rows."""
        return self.task.posterior

    @property
    def ordered(self) -> Array:
        """The suspects, worst first."""
        return by_score(np.concatenate([np.empty(0, dtype=SUSPECT), *self.suspects.table]))

    @property
    def ranked(self) -> Array:
        """The suspects and the next rows of the ranking, worst first."""
        return by_score(np.concatenate([*self.suspects.table, self.suspects.rest]))

    def issues(self, shards: Any) -> LabelIssues:
        """The result of `find_label_issues`; values of all rows are lazy."""
        classes = self.data.model.classes
        assert classes is not None
        n = self.data.description.n
        lazy: dict[str, Any] = {
            name: LazyRows(shards, row_values, (name, self.task), n, np.float64) for name in ("score", "p_wrong")
        }
        for name in ("given", "suggested"):
            lazy[name] = LazyRows(shards, row_values, (name, self.task), n, classes.dtype, classes)
        return LabelIssues(
            table=self._public(self.ordered),
            noise_estimate=self.posterior.share,
            noise_interval=self.posterior.interval,
            contradicted=self.posterior.contradicted,
            ranked=self._public(self.ranked),
            no_error=self.posterior.no_error,
            transition=self.posterior.transition,
            **lazy,
        )

    def _public(self, found: Array) -> Array:
        """The rows as a table with the columns of `LabelIssues.table`, except "distance" and "cut"."""
        classes, wrong = self.data.model.classes, found["p_wrong"]
        assert classes is not None
        kinds = [("row", np.intp), ("given", classes.dtype), ("suggested", classes.dtype), ("p_wrong", np.float64)]
        table = np.zeros(len(found), dtype=[*kinds, ("loss", np.float64), ("fdr", np.float64), ("action", "U7")])
        table["row"], table["p_wrong"], table["loss"] = found["row"], wrong, found["loss"]
        table["given"], table["suggested"] = classes[found["given"]], classes[found["suggested"]]
        table["fdr"] = np.cumsum(1.0 - wrong) / np.arange(1, len(wrong) + 1)
        table["action"] = actions(wrong, found["p_suggested"], self.task.costs)
        return table
