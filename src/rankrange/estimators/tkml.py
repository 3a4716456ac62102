"""TKMLClassifier: a linear multi-label model trained to rank the true labels of a row highest."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..compatibility import Interval, StrOptions
from ..core.arrays import Array
from ..core.losses import TKML
from ..core.objective import Design
from ..core.ranges import RankedRange
from ..core.threads import threads_for
from ..crossfit.folds import PENALTIES, draw_folds, hold_out
from ..metrics import rows_in_order
from ..solvers.descent import Result
from ..solvers.label_ranking import Blocks, LabelObjective, Watch, logistic_per_label, minimise, quasi_newton
from .fitted import range_of
from .linear import group_codes, seed_of
from .targets import LabelRanker
from .weights import as_count, canonical_rows, is_whole, unit_of

# The relative duality gap at which a fit without early stopping ends.
_TOL = 1e-3
# Patience: a path ends after this many steps without a better held-out accuracy.
_PATIENCE = 40


class TKMLClassifier(LabelRanker):
    """Linear multi-label classifier trained so that the top_k labels with the highest scores are the true ones.

    The objective is C times the sum of the TKML losses of the training rows ranked m+1 to k, plus ||coef||^2 / 2;
    intercepts are not penalised. m=0 is the paper's TKML-Average or, with k below the number of rows, TKML-AT_k; m > 0
    is TKML-AoRR, which ignores the rows it fits worst. With one class per row the model is a multi-class classifier.

    Parameters
    ----------
    top_k : int, default=1
        How many labels to predict; it must be below the number of labels.
    m, k : int or float, default=0 and 1.0
        How many of the largest losses to drop, and the last rank to keep: a count, or a fraction of the rows. If m is a
        RankedRange, it defines both.
    C : float or "auto", default="auto"
        Inverse of regularization strength, as in scikit-learn. "auto" tries 0.001 to 100 and keeps the C with the best
        accuracy on held-out rows (`validation`, or a fifth of the rows if that is None).
    loss : {"two_sided", "paper"}, default="two_sided"
        "paper" requires all true labels to be among the top_k, which is impossible for a row with more than top_k true
        labels. For such a row "two_sided" requires that the top_k labels are all true (docs/paper.md, item 10).
    validation : float, int or None, default=0.2
        Early stopping: a float is the share of rows to hold out, an int the number of cross-validation folds, None
        means no early stopping. The number of steps, which may be 0, is chosen by the top-k multi-label accuracy on
        held-out rows; steps are taken only if the gain exceeds its standard error. The model is then fitted to all rows
        with that many steps, and its coefficients are the mean over the start and these steps.
    n_starts : int, default=3
        Number of starts without early stopping: logistic regressions of each label with other penalties, then with
        random weights of the rows. The lowest end is continued by majorisation: fix which labels of each row are
        compared and which rows are dropped, solve this convex problem, and repeat; no step increases the objective.
    max_iter, random_state : int, and int, RandomState or None
        Maximum number of quasi-Newton steps from each start, and the seed for held-out rows and random starts.

    Attributes
    ----------
    coef_, intercept_, classes_ : ndarray of shape (n_labels, n_features), (n_labels,) and (n_labels,)
        One row per label, and the labels: column names of a data frame, column numbers of another indicator matrix.
    m_, k_, C_, lam_, lam_hat_, dropped_, objective_, n_iter_, converged_, message_, history_
        As in `AoRRClassifier`. `converged_` is always True with early stopping.
    certificate_ : float
        A proved upper bound on (objective_ - best) / objective_, where best is the minimum with the same pairs of
        labels compared and the same rows dropped (a local minimum). Infinite if nothing is proved, for example after
        early stopping.
    stopped_at_start_ : bool
        True if no step from the start, one logistic regression per label, improved the held-out accuracy.
    stop_scores_, stop_score_ : ndarray and float
        Top-k multi-label accuracy on held-out rows after 0, 1, 2, ... steps, and at the chosen number of steps; None
        and NaN without early stopping.
    n_without_labels_, n_with_all_labels_ : int
        Number of rows with no true label, and with all labels true. The former always have a loss of 0, the latter
        with loss="two_sided". Every prediction counts as correct for both.

    References
    ----------
    Hu, Ying, Wang and Lyu, "Sum of Ranked Range Loss for Supervised Learning", JMLR 23 (2022), sections 5 and 6.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from rankrange import TKMLClassifier
    >>> X, Y = make_multilabel_classification(200, 10, n_classes=5, random_state=0)
    >>> model = TKMLClassifier(top_k=2, C=1.0, random_state=0).fit(X, Y)
    >>> model.predict_top_k(X[:3]).shape, model.score(X, Y) > 0.7
    ((3, 2), True)
    """

    def __init__(
        self,
        top_k: int = 1,
        *,
        m: Any = 0,
        k: Any = 1.0,
        C: Any = "auto",
        loss: str = "two_sided",
        validation: Any = 0.2,
        n_starts: int = 3,
        max_iter: int = 200,
        random_state: Any = None,
    ) -> None:
        self.top_k = top_k
        self.m = m
        self.k = k
        self.C = C
        self.loss = loss
        self.validation = validation
        self.n_starts = n_starts
        self.max_iter = max_iter
        self.random_state = random_state

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "top_k": [Interval(Integral, 1, None, closed="left")],
        "m": [RankedRange, Real],
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "loss": [StrOptions({"two_sided", "paper"})],
        "validation": [None, Interval(Real, 0, 1, closed="neither"), Interval(Integral, 2, None, closed="left")],
        "n_starts": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> TKMLClassifier:
        """Fit the model to training data.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n_samples, n_features)
            Training data.
        y : indicator matrix, lists of labels, or classes of shape (n_samples,)
            The true labels of each row. NaN in an indicator matrix marks a label that nobody looked at: it is neither
            ranked nor counted.
        sample_weight : array_like of shape (n_samples,), optional
            Weights of the rows, as in `AoRRClassifier.fit`.
        groups : array_like of shape (n_samples,), optional
            The group of each row. Held-out rows are whole groups; with a single group there is no early stopping, and
            C="auto" is 1.

        Returns
        -------
        TKMLClassifier
            The fitted estimator.
        """
        self._validate_params()
        X, targets, weight = self._read(X, y, sample_weight)
        rng = np.random.default_rng(seed_of(self.random_state))
        named = group_codes(groups, X)
        *rows, together = canonical_rows(X, targets.true, weight, groups=None if named is None else named[1])
        objective = self._objective(*rows)
        mean = _Mean()
        with threads_for(X):
            chosen, steps = self._choose(objective.in_units(unit_of(weight)), rng, together)
            objective = replace(objective, C=chosen.C)  # relative to the mean, so C has no unit
            result = self._run(objective, steps, rng, mean)
            if self.validation is not None and steps:
                result = replace(result, w=mean.W, value=objective.value(mean.W), certificate=np.inf)
            given = LabelObjective(Design(X, True), targets.true, objective.loss, objective.C)
            losses = given.losses_of(result.w)
        self.C_ = objective.C_of_sum
        self.stopped_at_start_ = steps == 0
        self._store_coefficients(result.w, X.dtype)
        self._store_result(replace(result, converged=result.converged or self.validation is not None), objective.C)
        self._store_cuts(losses, self.m_, self.k_, weight)
        self._warn_unless_converged(_TOL, 2)
        return self

    def _objective(self, X: Any, true: Any, mass: Array | None) -> LabelObjective:
        keep = range_of(self.m, self.k, k_given=type(self.k) is not float or self.k != 1.0)
        m, k = keep.masses(X.shape[0] if mass is None else float(mass.sum()), whole=is_whole(mass))
        self.m_: float = as_count(m)
        self.k_: float = as_count(k)
        loss = TKML(int(self.top_k), two_sided=self.loss == "two_sided")
        design = Design(X, True)
        C = (1.0 if self.C == "auto" else float(self.C)) * (k - m)
        return LabelObjective(design, true, loss, C, true.shape[1], m=m, k=k, sample_weight=mass)

    def _run(self, objective: LabelObjective, steps: int, rng: np.random.Generator, watch: Watch) -> Result:
        """Take up to `steps` steps from one logistic regression per label; `watch` gets this start and every new W."""
        start, _, _ = logistic_per_label(objective.design, objective.blocks, objective.C, objective.sample_weight)
        watch(start)
        if steps == 0:
            value = objective.value(start)
            return Result(start, value, 0, True, "stayed at the start", [("start", value)])
        if self.validation is None:
            n_starts = int(self.n_starts)
            return minimise(objective, start, n_starts=n_starts, tol=_TOL, max_iter=steps, rng=rng)
        return quasi_newton(objective, start, tol=_TOL, max_iter=steps, watch=watch)

    def _choose(
        self, objective: LabelObjective, rng: np.random.Generator, groups: Array | None
    ) -> tuple[LabelObjective, int]:
        """The objective with the C, and the number of steps, that are best on held-out rows.

        Without early stopping the number is `max_iter`; if nothing can be held out, C is unchanged as well.
        """
        self.stop_scores_, self.stop_score_ = None, np.nan
        choose_C, no_stopping = self.C == "auto", self.validation is None
        together = groups is not None and len(np.unique(groups)) < 2  # nothing can be held out
        if objective.design.n < 2 or together or (no_stopping and not choose_C):
            return objective, int(self.max_iter)
        held = _held_out(objective.design.n, 0.2 if no_stopping else self.validation, rng, groups)
        tried = [replace(objective, C=C * objective.kept) for C in PENALTIES] if choose_C else [objective]
        best, stop = max(((each, self._stop(each, held, rng)) for each in tried), key=lambda found: found[1].score)
        if not no_stopping:
            self.stop_scores_, self.stop_score_ = stop.scores, stop.score
        return best, stop.steps

    def _stop(self, objective: LabelObjective, held: list[Array], rng: np.random.Generator) -> _Stop:
        """The accuracy on held-out rows, an array of them per fold, and the number of steps after which it is best.

        The number is 0 unless the gain exceeds its standard error. Without early stopping it is `max_iter`.
        """
        recorded = []
        for rows in held:
            recorded.append(_Accuracy(objective, rows))
            with contextlib.suppress(_NoImprovement):
                end = self._run(_without(objective, rows), int(self.max_iter), rng, _Mean(recorded[-1]))
                if self.validation is None:
                    recorded[-1](end.w)
        longest = max(len(path.right) for path in recorded)
        right = np.concatenate([path.padded(longest) for path in recorded], axis=1)
        weight = np.concatenate([path.weight for path in recorded])
        scores = right @ (weight / weight.sum())
        if self.validation is None:
            return _Stop(int(self.max_iter), float(scores[-1]), scores)
        steps = int(np.argmax(scores))
        change = right[steps].astype(float) - right[0]
        gain = float(np.average(change, weights=weight))
        error = float(np.sqrt(np.average((change - gain) ** 2, weights=weight) / weight.sum()))
        steps = steps if gain > error else 0
        return _Stop(steps, float(scores[steps]), scores)


class _Stop(NamedTuple):
    """Early stopping: the number of steps, the held-out accuracy there, and the accuracy after every step."""

    steps: int
    score: float
    scores: Array


class _NoImprovement(Exception):
    """Raised to end a path early: further steps do not improve the held-out accuracy."""


class _Mean:
    """Callback that passes the running mean of the iterates to another callback.

    Steps on a non-smooth function oscillate; the mean of the iterates oscillates less than the last one.
    """

    def __init__(self, watch: Watch | None = None) -> None:
        self.watch, self.count = watch, 0

    def __call__(self, W: Array) -> None:
        self.count += 1
        self.W: Array = W.copy() if self.count == 1 else self.W + (W - self.W) / self.count
        if self.watch is not None:
            self.watch(self.W)


class _Accuracy:
    """Callback that records which held-out rows each W predicts correctly.

    After 40 steps without improvement it raises `_NoImprovement`, which ends the path.
    """

    def __init__(self, objective: LabelObjective, held: Array) -> None:
        self.blocks = Blocks(objective.design.take(held), objective.y[held])
        self.top_k = objective.loss.top_k
        weight = objective.sample_weight
        self.weight = np.ones(len(held)) if weight is None else weight[held]
        self.right: list[Array] = []
        self.best, self.best_at = -1.0, 0

    def __call__(self, W: Array) -> None:
        parts = []
        for block in self.blocks:
            parts.append(rows_in_order(block.true, block.scores(W), self.top_k))
        self.right.append(np.concatenate(parts))
        score = float(self.weight @ self.right[-1])
        if score > self.best:
            self.best, self.best_at = score, len(self.right)
        if len(self.right) - self.best_at > _PATIENCE:
            raise _NoImprovement

    def padded(self, length: int) -> Array:
        """The record as (length, rows); a shorter path is extended by its last entry."""
        return np.array(self.right + self.right[-1:] * (length - len(self.right)))


def _held_out(n: int, validation: Any, rng: np.random.Generator, groups: Array | None) -> list[Array]:
    """The held-out rows, one array per fold; groups are not split, and some rows always remain for training."""
    if not isinstance(validation, Integral):
        return [np.sort(hold_out(n, round(float(validation) * n), rng.permutation(n), groups))]
    n_folds = min(int(validation), n if groups is None else len(np.unique(groups)))
    return [np.flatnonzero(test) for test in draw_folds(n, rng, groups=groups, n_folds=n_folds, n_repeats=1).test]


def _without(objective: LabelObjective, held: Array) -> LabelObjective:
    """The objective without the held-out rows; m and k stay the same shares of the mass."""
    rows = np.setdiff1d(np.arange(objective.design.n), held)
    weight = objective.sample_weight
    mass = float(len(rows)) if weight is None else float(weight[rows].sum())
    m, k = objective.m * mass / objective.total, objective.k * mass / objective.total
    if weight is None:
        k = max(1, round(k))
        m = min(round(m), k - 1)
    return objective.rows(rows, m, k)
