"""What the three tasks share: how much work is planned, folds, the penalty, the choice of m, scores with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from ..core.arrays import Array
from ..core.flips import LIKELY
from ..core.objective import Design, Objective
from ..core.row_space import spanned
from ..crossfit.folds import CrossFit, deal, split
from ..estimators import AoRRClassifier, AoRRRegressor

Tell = Callable[[str], None]
# At most this many numbers in X, times scores per row, are read to choose m, and to choose C.
_TUNED_ON, _PENALTY_ON = 2e7, 1e7
# Rows that tell the share to cut to a fraction of a percent; more would take longer and say the same.
_SAMPLE = 50_000
_NORMAL = 1.96


@dataclass(frozen=True)
class Plan:
    """How an audit of n rows goes: fewer folds on more rows, m and C chosen on a sample of them."""

    folds: int
    m_rows: int
    penalty_rows: int
    jobs: int | None
    seed: int
    models: str = "all"  # which kinds judge labels: "linear", "trees" or "all"
    fold_of: Array | None = None  # the part of each row, where groups or time decide it
    groups: Array | None = None  # the group of each row, where groups decide the parts
    forward: bool = False  # whether a part is judged by fits on earlier parts alone
    estimator: Any = None  # the user's own model, which judges labels
    pred_probs: Array | None = None  # ready-made probabilities, (n, classes)

    @classmethod
    def of(cls, n: int, p: int, n_outputs: int, jobs: int | None, seed: int) -> Plan:
        """The plan for n rows of p features.

        Parameters
        ----------
        n, p : int
            Rows and features.
        n_outputs : int
            Scores per row.
        jobs : int or None
            Parts fitted at a time.
        seed : int
            The same seed gives the same audit.
        """
        numbers = (p + 1) * n_outputs
        return cls(
            folds=5 if n * numbers <= 2e7 else 3 if n * numbers <= 1e8 and n <= 200_000 else 2,
            m_rows=min(_SAMPLE, max(2000, int(_TUNED_ON / numbers))),
            penalty_rows=min(_SAMPLE, max(1000, int(_PENALTY_ON / numbers))),
            jobs=jobs,
            seed=seed,
        )

    def rng(self, *stream: int) -> np.random.Generator:
        """A generator of its own for each part of the work, so that parts do not depend on each other's order."""
        return np.random.default_rng([self.seed, *stream])

    def train_of(self, test: Array) -> Array:
        """The rows that the fit which judges a part may see; the first part in time has only the second to judge it."""
        if not self.forward or self.fold_of is None:
            return np.flatnonzero(~test)
        part = int(self.fold_of[np.flatnonzero(test)[0]])
        return np.flatnonzero(self.fold_of < part if part else self.fold_of == 1)

    def blocks(self, rows: Any = slice(None)) -> Array | None:
        """What a choice of m or C on these rows must not tear apart: groups, or parts along time; None for only one."""
        together = self.fold_of if self.groups is None else self.groups
        found = None if together is None else together[rows]
        return None if found is None or (found == found[0]).all() else found

    def each(self, work: Callable[..., Any], items: Any) -> Iterator[Any]:
        """`work` on all items, in threads (X is shared, the time goes into matrix products), results in order."""
        return iter(
            Parallel(n_jobs=self.jobs, prefer="threads", return_as="generator")(delayed(work)(*item) for item in items)
        )


@dataclass(frozen=True)
class Interval:
    """A value and its 95% interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of_mean(cls, values: Array) -> Interval:
        """The mean of some values with its 95% interval."""
        mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
        return cls(mean, mean - _NORMAL * error, mean + _NORMAL * error)

    def without(self, share: float) -> Interval:
        """What is left of a share of wrong targets when so many of them were mended."""
        return Interval(*(max(0.0, end - share) for end in (self.value, self.low, self.high)))

    def within(self, low: float, high: float) -> Interval:
        """The same value, with the ends of the interval brought into [low, high]."""
        return Interval(self.value, max(low, self.low), min(high, self.high))


@dataclass(frozen=True)
class Measure:
    """One score of both models on rows that neither has seen, and what the robust one gains (positive is better)."""

    name: str
    percent: bool
    higher_is_better: bool
    ordinary: Interval
    robust: Interval
    gain: Interval

    @classmethod
    def of_rows(
        cls, name: str, ordinary: Array, robust: Array, *, percent: bool = False, higher: bool = True
    ) -> Measure:
        """A score that is a mean over the rows.

        Parameters
        ----------
        name : str
            What it is called on the page.
        ordinary, robust : ndarray of shape (n,)
            What each row adds, under both models.
        percent : bool
            Whether it is a share.
        higher : bool
            Whether more is better.
        """
        sign = 1.0 if higher else -1.0
        both = [Interval.of_mean(np.asarray(v, dtype=np.float64)) for v in (ordinary, robust)]
        both = [i.within(0.0, 1.0) if percent else i.within(0.0, np.inf) for i in both]
        gain = Interval.of_mean(sign * (np.asarray(robust, dtype=np.float64) - np.asarray(ordinary, dtype=np.float64)))
        return cls(name, percent, higher, both[0], both[1], gain)


@dataclass(frozen=True)
class Group:
    """Rows of one class, with one label, or in one range of the target: how many were cut, how many are suspect."""

    name: str
    rows: int
    cut: int
    suspects: int


@dataclass(frozen=True)
class Judgement:
    """What a task finds about the rows that have a target; arrays have one entry per row.

    Attributes
    ----------
    losses : ndarray
        From models that have not seen the row: for classes from the mean of those that `wrong` is made of, else from
        the robust one.
    wrong : ndarray
        The probability that the target is wrong.
    order, actions : ndarray
        The suspects, worst first, and what to do about each.
    against : ndarray of shape (suspects, features)
        How much each feature speaks against the target as given.
    """

    task: str
    ordinary_name: str
    robust_name: str
    model: Any
    m: int
    k: int
    fold_m: list[int]  # of the robust fit without each part, which the scores come from
    lam: float
    lam_hat: float
    C: float
    measures: list[Measure]
    losses: Array
    wrong: Array
    dropped: Array
    order: Array
    actions: Array
    suggested: list[str]
    expected: list[str]
    against: Array
    groups: list[Group]
    noise: Interval
    loss_name: str
    residuals: Array | None = None  # of numbers: the target less what the robust model expects, in the target's unit
    top_k: int = 0
    blind: str = ""  # why nothing can be said about single rows, where that is so; there are no suspects then
    notes: list[str] = field(default_factory=list)


def facts_of(model: Any, fold_m: list[int]) -> dict[str, Any]:
    """What a `Judgement` holds of the fitted model."""
    return {
        "m": int(model.m_),
        "k": int(model.k_),
        "fold_m": fold_m,
        "lam": float(model.lam_),
        "lam_hat": float(model.lam_hat_),
        "C": float(model.C_),
        "dropped": model.dropped_,
    }


def blinded(judgement: Judgement, chance: float, measure: Measure, judges: Interval | None = None) -> Judgement:
    """Take the suspects out of a judgement where no model predicts better than chance.

    There every row would look wrong.

    Parameters
    ----------
    judgement : Judgement
        As the task found it.
    chance : float
        What `measure` would be without any knowledge.
    measure : Measure
        The score that is compared with chance.
    judges : Interval, optional
        The same score of whatever judges the rows besides the two models of the measure.
    """
    scores = [measure.ordinary, measure.robust, *([] if judges is None else [judges])]
    if max(score.low for score in scores) > chance:
        return judgement
    best = max(scores, key=lambda score: score.value)
    value, low, high, by_chance = (f"{100 * v:.0f}%" for v in (best.value, best.low, best.high, chance))
    shares = f"{value}, {low} to {high}, where chance gives {by_chance}"
    return replace(
        judgement,
        blind=f"the other columns do not predict the target better than chance ({measure.name}: {shares})",
        wrong=np.zeros_like(judgement.wrong),
        order=judgement.order[:0],
        actions=judgement.actions[:0],
        suggested=[],
        expected=[],
        against=judgement.against[:0],
        groups=[replace(group, suspects=0) for group in judgement.groups],
        measures=[m for m in judgement.measures if "without likely wrong" not in m.name],
        noise=Interval(0.0, 0.0, 1.0),
    )


def lost_groups(groups: list[Group]) -> list[str]:
    """A note for each class of which the model ignores more than half."""
    return [
        f"The model ignores {100 * g.cut / g.rows:.0f}% of the rows of '{g.name}': they may be rare, not wrong."
        for g in groups
        if g.rows and g.cut > 0.5 * g.rows
    ]


def choose_penalty(objective: Objective, plan: Plan, rows: Array | None = None) -> float:
    """scikit-learn's C of the fit that predicts best, chosen on some of the rows if there are many.

    `rows` says which rows of the table those of the objective are; None is all of them.
    """
    rng, rows = plan.rng(1), np.arange(objective.design.n) if rows is None else rows
    if len(rows) > plan.penalty_rows:
        some = np.sort(rng.choice(len(rows), plan.penalty_rows, replace=False))
        objective, rows = objective.rows(some, 0, 1), rows[some]
    objective = replace(objective, design=Design(spanned(objective.design.X), objective.design.fit_intercept))
    tests = split(objective, objective.strata, rng, (1, 5, 5 if len(rows) < 20_000 else 1), plan.blocks(rows))
    return CrossFit(objective, tests).C


def fit_robust(
    kind: type[Any], X: Array, y: Array, penalty: float, plan: Plan, stream: int, groups: Array | None = None
) -> Any:
    """The AoRR fit with m on auto; on many rows m is chosen on a sample of them.

    Parameters
    ----------
    kind : type
        AoRRClassifier or AoRRRegressor.
    X, y : ndarray
        The training rows.
    penalty : float
        scikit-learn's C.
    plan : Plan
        How many rows m is chosen on.
    stream : int
        Which fit this is: each has random numbers of its own.
    groups : ndarray or None
        What the choice of m must not tear apart (`Plan.blocks`).
    """
    seed = int(plan.rng(2, stream).integers(2**31))
    if len(y) <= plan.m_rows:
        return kind(C=penalty, random_state=seed).fit(X, y, groups=groups)
    some = np.sort(plan.rng(3, stream).choice(len(y), plan.m_rows, replace=False))
    tuned = kind(C=penalty, random_state=seed).fit(X[some], y[some], groups=None if groups is None else groups[some])
    share = float(tuned.m_) / len(some)
    # Random starts find the basin where two classes or numbers have far outliers; with more classes they find the same
    # minimum as the ordinary start, at more than twice the time.
    starts = 2 if hasattr(tuned, "classes_") and len(tuned.classes_) > 2 else 10
    settings = {"C": penalty, "n_starts": starts, "tol": 1e-3, "random_state": seed}
    fitted = kind(m=share, k=1.0, **settings).fit(X, y)
    fitted.tuning_ = tuned.tuning_
    return fitted


def fit_ordinary(kind: type[AoRRClassifier] | type[AoRRRegressor], X: Array, y: Array, penalty: float) -> Any:
    """The fit in which all rows count alike: logistic or ridge regression."""
    return kind(m=0, k=1.0, C=penalty, random_state=0).fit(X, y)


def fold_masks(strata: Array, plan: Plan) -> Array:
    """Masks (folds, n) of the rows that each fold leaves out, dealt out within each class."""
    fold = deal(strata, plan.folds, plan.rng(4)) if plan.fold_of is None else plan.fold_of
    return np.array([fold == f for f in range(plan.folds)])


def actions_of(wrong: Array) -> Array:
    """What to do where a target cannot be suggested with confidence: drop what is likely wrong, look at the rest."""
    return np.where(wrong >= LIKELY, "drop", "look")
