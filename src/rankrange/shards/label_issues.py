"""Which labels are wrong, over rows that do not fit into memory: what `find_label_issues` does with shards.

Rows belong to folds by the hash of their number. For each fold two models are fitted to all rows outside it, an
ordinary one and one that cuts as many rows as seem wrong; all these fits share their passes over the data. The model
of flips is learnt from the sample's rows, each scored by the fits that have not seen it, and one last pass judges all
rows. Trees grown on the sample give a second opinion where they predict its labels better.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax
from sklearn.utils import check_random_state

from ..core.arrays import Array
from ..core.flips import LIKELY, POSSIBLE, SURE, WrongLabels, wrong_labels
from ..core.objective import Design, Objective
from ..crossfit import opinions
from ..crossfit.folds import Folds
from ..estimators import AoRRClassifier
from ..issues.suspects import LabelIssues
from .fit import _Data, _first_pass, _Passes
from .fold_fits import fit_folds
from .row_blocks import aligned_blocks, as_rows, one_thread
from .seam import LazyRows, Shard, Shards
from .shard_kernels import Model, fold_numbers

# Each fold has two fits, and a pass takes eight of them at not much more than half of their price one by one.
MOST_FOLDS = 4
# Rows of the sample that trees are grown on, and how much better they must predict, in standard errors.
_TREE_ROWS, _CLEARLY = 60_000, 2.0


def find_on_shards(
    shards: Shards,
    *,
    estimator: Any = None,
    cv: Any = MOST_FOLDS,
    trees: bool = True,
    random_state: Any = None,
    verbose: int = 0,
) -> LabelIssues:
    """Find the rows whose labels are probably wrong, in rows that do not fit into memory.

    Parameters
    ----------
    shards : Shards
        The rows with their labels, as of `rankrange.scan`.
    estimator : AoRRClassifier, optional
        Where C and the intercept come from; C is chosen on the sample without one.
    cv : int, default=4
        Folds, at most 4: each needs two fits, and eight of them share a pass.
    trees : bool, default=True
        Whether trees grown on the sample may judge as well; they do only where they predict better.
    random_state : int, RandomState or None, default=None
        A seed for the sample and the folds.
    verbose : int, default=0
        1 prints each pass over the data.

    Returns
    -------
    LabelIssues
        Suspects by their number among all rows. What it holds of every row is computed when it is asked for.
    """
    found = judge_shards(shards, estimator, cv, trees, random_state, verbose)
    return found.issues(shards)


def judge_shards(
    shards: Shards,
    estimator: Any,
    cv: Any,
    trees: bool,
    random_state: Any,
    verbose: int,
    every_row: bool = False,
    cut: float | None = None,
) -> ShardJudgement:
    """Fit all folds, learn the model of flips, and judge every row once; arguments as of `find_on_shards`.

    With `every_row` the judgement keeps p(wrong) and the loss of each row, 8 bytes per row. `cut` is the share that the
    robust fits cut; what seems wrong without it.
    """
    model = _checked(estimator)
    # 5 is the default of find_label_issues.
    n_folds = min(int(cv), MOST_FOLDS) if isinstance(cv, int | np.integer) and cv <= MOST_FOLDS + 1 else 0
    if n_folds < 2:
        raise ValueError(
            f"cv must be a number of folds from 2 to {MOST_FOLDS} for rows beyond memory, got cv={cv!r}; leave it out"
        )
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    with one_thread():
        passes = _Passes(verbose)
        data = _first_pass(shards, model, int(rng.integers(2**63)), passes, n_folds)
        sample = _Sample.of(data, n_folds, bool(model.fit_intercept))
        starts, share, C = sample.searched(None if model.C == "auto" else float(model.C))
        share = share if cut is None else cut
        parts = [sample.without(number) for number in range(n_folds)]
        ends = fit_folds(shards, data, parts, starts, share, C, passes)
        judging = sample.learn(ends, trees, int(rng.integers(2**31)))
        passes("judge")
        suspects = shards.reduce(judge, replace(judging.slim(), every_row=every_row))
    return ShardJudgement(data, judging, suspects, share, C, passes.count)


def _checked(estimator: Any) -> Any:
    if estimator is None:
        return AoRRClassifier(C="auto")
    if not isinstance(estimator, AoRRClassifier) or estimator.loss != "logistic":
        raise ValueError(
            "find_label_issues on shards needs an AoRRClassifier with loss='logistic', which takes a few passes, got "
            f"{type(estimator).__name__}; leave estimator out, or judge rows in memory"
        )
    return estimator


class _Sample(NamedTuple):
    """The sample's rows with their folds: what is fitted before the passes, and learnt after them."""

    objective: Objective
    codes: Array
    fold: Array
    n_folds: int
    seed: int
    data: _Data

    @classmethod
    def of(cls, data: _Data, n_folds: int, fit_intercept: bool) -> _Sample:
        rows, y, weight = data.sample
        classes = data.model.classes
        assert classes is not None
        codes = (y > 0).astype(np.intp) if len(classes) == 2 else y
        objective = opinions.logistic_objective(rows, codes, len(classes), fit_intercept, weight)
        objective = replace(objective, k=objective.total)
        seed = data.sampling.seed
        numbers = np.concatenate(data.description.numbers)
        fold = fold_numbers(seed, n_folds, numbers, len(numbers))
        return cls(objective, codes, fold, n_folds, seed, data)

    @property
    def folds(self) -> Any:
        test = self.fold == np.arange(self.n_folds)[:, None]
        return Folds(~test, test)

    def searched(self, C: float | None) -> tuple[Array, float, float]:
        """Parameters (2, folds, r, p) of the ordinary and the trimmed fits of the sample, the share cut, and C."""
        share = self.objective.total / self.data.total
        fits, _, _ = opinions.trimmed_fits(self.objective, self.codes, self.folds, None if C is None else C / share)
        found = fits.sets.C / self.objective.total if C is None else C
        return fits.W[[0, 2]], float(fits.shares[2]), found

    def without(self, number: int) -> Objective:
        """The sample without the rows of one fold."""
        return self.objective.rows(np.flatnonzero(self.fold != number), 0, 1)

    def logs(self, ends: Array) -> Array:
        """Out-of-fold log probabilities (2, n, classes) of the sample's rows."""
        found = np.empty((2, len(self.codes), len(self.data.model.classes)))  # type: ignore[arg-type]
        for number in range(self.n_folds):
            rows = np.flatnonzero(self.fold == number)
            part = Design(self.objective.design.X[rows], self.objective.design.fit_intercept)
            for v in (0, 1):
                found[v, rows] = log_probabilities(part.scores(ends[v, number]))
        return found

    def learn(self, ends: Array, trees: bool, seed: int) -> Judging:
        """What judges the rows: the linear fits with their models of flips, and trees where they predict better."""
        logs = self.logs(ends)
        worth = 1.0 / np.bincount(self.codes)[self.codes]
        right = [float(worth @ (log.argmax(axis=1) == self.codes)) for log in logs]
        useful = (0, 1) if right[1] > right[0] else (0,)
        flips = tuple(wrong_labels(logs[v], self.codes, self.objective.sample_weight) for v in useful)
        grown, tree_flips = (), None
        if trees:
            grown, tree_flips = self._grown(logs[useful[-1]], seed)
        return Judging(self.data.model, ends, self.seed, self.n_folds, useful, flips, grown, tree_flips)

    def _grown(self, linear: Array, seed: int) -> tuple[tuple[Any, ...], WrongLabels | None]:
        """Trees for each fold, where they predict the sample's labels better than the linear fit by far enough."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        X = self.objective.design.X
        X = X.toarray() if self.objective.design.sparse else X
        few = np.arange(0, len(self.codes), 1 + len(self.codes) // _TREE_ROWS)
        logs, grown = np.empty_like(linear[few]), []
        for number in range(self.n_folds):
            train, test = few[self.fold[few] != number], np.flatnonzero(self.fold[few] == number)
            trees = HistGradientBoostingClassifier(max_iter=60, early_stopping=False, random_state=seed)
            if len(np.unique(self.codes[train])) < linear.shape[1]:
                return (), None
            trees.fit(X[train], self.codes[train])
            logs[test] = np.log(np.maximum(trees.predict_proba(X[few[test]]), 1e-12))
            grown.append(trees)
        own = self.codes[few]
        gain = (logs - np.log(self._calibrated(linear)[few]))[np.arange(len(few)), own]
        if gain.mean() <= _CLEARLY * gain.std() / np.sqrt(len(gain)):
            return (), None
        return tuple(grown), wrong_labels(logs, own)

    def _calibrated(self, logs: Array) -> Array:
        return np.maximum(wrong_labels(logs, self.codes).expected, 1e-12)


def log_probabilities(Z: Array) -> Array:
    """(rows, classes) from scores (1 or classes, rows)."""
    full = np.stack([np.zeros_like(Z[0]), Z[0]]) if len(Z) == 1 else Z
    return np.asarray(log_softmax(full.astype(np.float64), axis=0).T)


@dataclass(frozen=True)
class Judging:
    """All that a worker needs to judge a row: parameters (2, folds, r, p), models of flips, trees of each fold."""

    model: Model
    ends: Array
    seed: int
    n_folds: int
    useful: tuple[int, ...]
    flips: tuple[WrongLabels, ...]
    trees: tuple[Any, ...] = ()
    tree_flips: WrongLabels | None = None
    every_row: bool = False

    def slim(self) -> Judging:
        """The same without what the models of flips say of the sample's rows, so that it travels light."""
        none = np.empty(0)

        def bare(one: WrongLabels) -> WrongLabels:
            return replace(one, wrong=none, true=none, expected=none)

        trees = None if self.tree_flips is None else bare(self.tree_flips)
        return replace(self, flips=tuple(map(bare, self.flips)), tree_flips=trees)


class Opinion(NamedTuple):
    """What is found of some rows: codes, log probabilities (2, n, K), p(true class) (n, K), the mean probabilities."""

    codes: Array
    logs: Array
    true: Array
    mean: Array

    @property
    def wrong(self) -> Array:
        """The probability that each label is wrong."""
        return 1.0 - self.true[np.arange(len(self.codes)), self.codes]

    @property
    def losses(self) -> Array:
        """The log loss of each label under the mean of those that judge it."""
        own = self.mean[np.arange(len(self.codes)), self.codes]
        return -np.log(np.maximum(own, 1e-30))

    def others(self, rows: Array) -> tuple[Array, Array]:
        """The most probable class but the given one of these rows, and its probability."""
        other = self.mean[rows].copy()
        other[np.arange(len(rows)), self.codes[rows]] = -1.0
        return other.argmax(axis=1), other.max(axis=1, initial=0.0)

    @property
    def score(self) -> Array:
        """What suspects are ranked by: the higher, the worse."""
        soft = 1.0 - np.exp(self.logs[0][np.arange(len(self.codes)), self.codes])
        return np.asarray((2.0 * self.wrong + soft) / 3.0)


def opinion_of(message: Judging, first_row: int, X: Any, y: Array) -> Opinion:
    """Judge rows by the fits of their own fold."""
    model = message.model
    codes = (y > 0).astype(np.intp) if model.n_outputs == 1 else y
    n, K = len(codes), message.flips[0].transition.shape[0]
    logs, true, mean = np.empty((2, n, K)), np.zeros((n, K)), np.zeros((n, K))
    folds = fold_numbers(message.seed, message.n_folds, first_row, n)
    for number in range(message.n_folds):
        rows = np.flatnonzero(folds == number)
        if not len(rows):
            continue
        own, here = X[rows], codes[rows]
        for v in (0, 1):
            logs[v, rows] = log_probabilities(model.scores(message.ends[v, number], own))
        judges = [(flip, logs[v, rows]) for v, flip in zip(message.useful, message.flips, strict=True)]
        weights = [1.0 / len(judges)] * len(judges)
        if message.tree_flips is not None:
            dense = own.toarray() if hasattr(own, "toarray") else own
            seen = np.log(np.maximum(message.trees[number].predict_proba(dense), 1e-12))
            judges.append((message.tree_flips, seen))
            weights = [0.5 / (len(judges) - 1)] * (len(judges) - 1) + [0.5]
        for (flip, scores), weight in zip(judges, weights, strict=True):
            true[rows] += weight * flip.posterior(scores, here)
            mean[rows] += weight * np.exp(scores)
    return Opinion(codes, logs, true, mean)


SUSPECT = np.dtype(
    [
        ("row", np.int64),
        ("given", np.int32),
        ("suggested", np.int32),
        ("other", np.int32),  # the most probable class but the given one
        ("p_other", np.float32),
        ("p_wrong", np.float32),
        ("best", np.float32),
        ("score", np.float32),
        ("loss", np.float32),
    ]
)


@dataclass
class Suspects:
    """Suspects of consecutive shards, sums over all rows by class, and where asked for p(wrong) and loss of each row.

    The sums are: rows; likely wrong ones; rows that the ordinary model gets right, the robust one, one of the two; the
    same three without likely wrong rows; log losses of both, their squares, and the squares of their differences.
    """

    table: list[Array] = field(default_factory=list)
    sums: Array | None = None
    rows: list[Array] = field(default_factory=list)

    def copy(self) -> Suspects:
        """One that can be merged into."""
        return Suspects(list(self.table), None if self.sums is None else self.sums.copy(), list(self.rows))

    def merge(self, later: Suspects) -> None:
        """Add what a later shard found."""
        self.table += later.table
        self.rows += later.rows
        if later.sums is not None:
            self.sums = later.sums if self.sums is None else self.sums + later.sums


def judge(shard: Shard, message: Judging) -> Suspects:
    """The suspects of this shard, and what both models score on its rows."""
    found = Suspects()
    for first_row, present, opinion in _opinions(shard, message):
        n, wrong = len(opinion.codes), opinion.wrong
        suspect = np.flatnonzero((wrong >= POSSIBLE) & present)
        table = np.empty(len(suspect), dtype=SUSPECT)
        table["row"], table["given"] = first_row + suspect, opinion.codes[suspect]
        table["suggested"], table["best"] = opinion.true[suspect].argmax(axis=1), opinion.true[suspect].max(axis=1)
        table["p_wrong"], table["score"] = wrong[suspect], opinion.score[suspect]
        losses = opinion.losses
        table["loss"] = losses[suspect]
        table["other"], table["p_other"] = opinion.others(suspect)
        found.table.append(table)
        if message.every_row:
            found.rows.append(np.stack([wrong, losses], dtype=np.float32))
        own = -opinion.logs[:, np.arange(n), opinion.codes]
        right = opinion.logs.argmax(axis=2) == opinion.codes
        gain = own[0] - own[1]
        likely, apart = wrong >= LIKELY, right[0] != right[1]
        columns = [np.ones(n), likely, *right, apart, *(right & ~likely), apart & ~likely, *own, *own**2, gain**2]
        sums = _per_class(opinion.codes, columns, present, len(message.flips[0].transition))
        found.sums = sums if found.sums is None else found.sums + sums
    return found


def _per_class(codes: Array, columns: list[Array], present: Array, classes: int) -> Array:
    return np.stack([np.bincount(codes, weights=column * present, minlength=classes) for column in columns])


def _opinions(shard: Shard, message: Judging) -> Any:
    model = message.model
    with one_thread():
        for batch in aligned_blocks(shard.batches()):
            y = model.encoded(batch.y)
            present = np.ones(len(y), dtype=bool) if batch.weight is None else batch.weight > 0
            yield batch.first_row, present, opinion_of(message, batch.first_row, as_rows(batch.X, model.dtype), y)


def row_values(shard: Shard, message: tuple[str, Judging]) -> Array:
    """One value per row: "p_wrong", "score", "given" or "suggested" (codes)."""
    name, judging = message
    values = []
    for _, present, opinion in _opinions(shard, judging):
        if name in ("given", "suggested"):
            values.append((opinion.codes if name == "given" else opinion.true.argmax(axis=1)).astype(np.int32))
        else:
            worth = opinion.wrong if name == "p_wrong" else opinion.score
            values.append((worth * present).astype(np.float32))
    return np.concatenate(values) if values else np.empty(0, dtype=np.float32)


@dataclass(frozen=True)
class ShardJudgement:
    """What the passes found; `issues` makes the public table of it."""

    data: _Data
    judging: Judging
    suspects: Suspects
    share: float
    C: float
    n_passes: int

    @property
    def ordered(self) -> Array:
        """The suspects, worst first."""
        table = np.concatenate([np.empty(0, dtype=SUSPECT), *self.suspects.table])
        return table[np.lexsort((table["row"], -table["score"]))]

    @property
    def noise(self) -> tuple[float, tuple[float, float]]:
        """The share of wrong labels, and its 95% interval: the mean over those that judge."""
        flips = [*self.judging.flips[-1:], *([self.judging.tree_flips] if self.judging.tree_flips else [])]
        low, high = (float(np.mean([flip.interval[i] for flip in flips])) for i in (0, 1))
        return float(np.mean([flip.rate for flip in flips])), (low, high)

    def issues(self, shards: Any) -> LabelIssues:
        """The suspects as `find_label_issues` gives them; values of all rows are lazy."""
        found, classes = self.ordered, self.data.model.classes
        assert classes is not None
        wrong = found["p_wrong"].astype(np.float64)
        sure = (wrong >= SURE) & (found["suggested"] == found["other"]) & (found["best"] >= SURE)
        kinds = [("row", np.intp), ("given", classes.dtype), ("suggested", classes.dtype), ("p_wrong", np.float64)]
        table = np.zeros(len(found), dtype=[*kinds, ("loss", np.float64), ("fdr", np.float64), ("action", "U7")])
        table["row"], table["p_wrong"], table["loss"] = found["row"], wrong, found["loss"]
        table["given"], table["suggested"] = classes[found["given"]], classes[found["other"]]
        table["fdr"] = np.cumsum(1.0 - wrong) / np.arange(1, len(wrong) + 1)
        table["action"] = np.where(sure, "relabel", np.where(wrong >= LIKELY, "drop", "look"))
        n, light = self.data.description.n, self.judging.slim()
        lazy: dict[str, Any] = {
            name: LazyRows(shards, row_values, (name, light), n, np.float32) for name in ("score", "p_wrong")
        }
        for name in ("given", "suggested"):
            lazy[name] = LazyRows(shards, row_values, (name, light), n, classes.dtype, classes)
        rate, interval = self.noise
        return LabelIssues(table=table, noise_estimate=rate, noise_interval=interval, neighbour_weight=0.0, **lazy)
