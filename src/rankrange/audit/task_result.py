"""The result of a task: scores of both models with intervals, p(wrong), and the suspects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..issues.sentences import SURPRISING as SURPRISING
from ..label_noise import LIKELY, POSSIBLE
from ..pages.text import number
from .plan import Plan
from .target import Target

# At least this many rows are listed, however small their p_wrong.
LISTED = 20


@dataclass(frozen=True)
class Interval:
    """A value and its 95% interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of_mean(cls, values: Array) -> Interval:
        """The mean of some values with its 95% interval, which has no width for a single value."""
        mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
        return cls(mean, mean - 1.96 * error, mean + 1.96 * error)

    def without(self, share: float) -> Interval:
        """The remaining share of wrong targets, at least 0, after this share was corrected."""
        return Interval(*(max(0.0, end - share) for end in (self.value, self.low, self.high)))

    def within(self, low: float, high: float) -> Interval:
        """The same value, with the interval clipped to [low, high]."""
        return Interval(self.value, max(low, self.low), min(high, self.high))


@dataclass(frozen=True)
class Measure:
    """One out-of-fold score of both models, and the gain of the robust one (positive is better).

    `percent`: whether the score is a share, shown in percent.
    """

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
        """A score that is a mean over rows, given the values of both models (n,); `higher`: whether more is better."""
        one, other = (np.asarray(values, dtype=np.float64) for values in (ordinary, robust))
        before, after = (Interval.of_mean(v).within(0.0, 1.0 if percent else np.inf) for v in (one, other))
        return cls(name, percent, higher, before, after, Interval.of_mean(other - one if higher else one - other))

    @classmethod
    def without(
        cls, kept: Array, name: str, both: Array, *, percent: bool = False, higher: bool = True
    ) -> list[Measure]:
        """The score over the kept rows only, given the values (2, n) of both models; [] if all rows are kept."""
        return [] if kept.all() else [cls.of_rows(name, *both[:, kept], percent=percent, higher=higher)]

    def text(self, value: float) -> str:
        """A score as text, in percent or with four significant digits, from 1,000 on with separators."""
        return f"{100 * value:.1f}%" if self.percent else _separated(value, 4)

    def gain_text(self, value: float) -> str:
        """A gain as text, with its sign; without digits that the score itself does not show."""
        finest = 10.0 ** (np.floor(np.log10(max(abs(self.robust.value), 1e-300))) - 3)
        value = finest * round(value / finest)
        text = f"{100 * value:+.1f}" if self.percent else ("+" if value >= 0 else "") + _separated(value, 3)
        return text.replace("-", "\N{MINUS SIGN}")

    @property
    def gain_range(self) -> str:
        """The 95% interval of the gain as text."""
        return f"{self.gain_text(self.gain.low)} to {self.gain_text(self.gain.high)}"

    @property
    def unit(self) -> str:
        """The unit of a gain: " points" for a score in percent, otherwise ""."""
        return " points" if self.percent else ""


def _separated(value: float, digits: int) -> str:
    text = f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.{digits}g}"
    return number(value, digits) if abs(value) < 1e3 else text


@dataclass(frozen=True)
class Group:
    """A class, a label, a range of the target, or a value of the column `group`."""

    name: str
    rows: int
    cut: int  # rows that the robust model ignores
    suspects: int  # rows that are likely wrong
    wrong: float = 0.0  # the expected share of wrong targets
    loss: float = 0.0  # the mean out-of-fold loss

    @property
    def ignored(self) -> float:
        """The share of the rows that the robust model ignores."""
        return self.cut / self.rows


def groups_of(names: Sequence[str], codes: Array, dropped: Array, wrong: Array, losses: Array) -> list[Group]:
    """The groups with these names; `codes` has the group of each row, and the other arrays a value of each row."""
    values = (np.ones(len(codes)), dropped, wrong >= LIKELY, wrong, losses)
    sums = [np.bincount(codes, weights=np.asarray(v, dtype=np.float64), minlength=len(names)) for v in values]
    means = [total / np.maximum(sums[0], 1.0) for total in sums[3:]]
    return [
        Group(name, *(int(count[c]) for count in sums[:3]), *(float(mean[c]) for mean in means))
        for c, name in enumerate(names)
    ]


@dataclass(frozen=True)
class TaskResult:
    """The result for the n rows that have a target. The suspects are all listed rows (`Audit.suspects`)."""

    task: str  # "classes", "numbers" or "labels"
    ordinary_name: str
    robust_name: str
    model: Any  # the robust model, fitted to all rows; m, k, lam, lam_hat and C are its fitted values
    m: int
    k: int
    fold_m: list[int]  # m of the robust fit without each fold; the scores come from these fits
    lam: float
    lam_hat: float
    C: float
    measures: list[Measure]  # the scores of both models
    # (n,): out-of-fold losses, of the ensemble mean for classes and of the robust model for a multi-label target; for a
    # numeric target the squares of the scaled residuals
    losses: Array
    wrong: Array  # (n,): the probability that the target is wrong; 0 for observed outcomes
    # (n,): the out-of-fold probability of the given class, of the least probable label, or of a residual as large
    probability: Array
    dropped: Array  # (n,): mask of the rows that the robust model ignores
    order: Array  # (listed,): the positions of the listed rows among the n rows, worst first
    actions: Array  # (listed,): the action for each; "" if it is only listed because there are few suspects
    suggested: list[str]  # for each listed row the suggested target; for observed outcomes the expected one
    expected: list[str]  # what the models predict for each listed row, in words
    # (listed, features): contributions to the linear score relative to the mean row, so that it does not matter which
    # of two texts has the 0/1 column; positive if they favour another target
    against: Array
    groups: list[Group]  # the classes, the labels, or up to five ranges of a numeric target
    noise: Interval  # the share of wrong targets; for a multi-label target, of wrong cells
    contradicted: float  # the share of targets that the predictions contradict, with or without confidence
    loss_name: str
    posterior: Any = None  # for classes: the members of the ensemble and the posterior of wrong labels
    expected_surprises: float = 0.0  # the number of targets with a probability below 5% if predictions are calibrated
    residuals: Array | None = None  # for numeric targets: the target minus its out-of-fold prediction
    top_k: int = 0  # of the top-k loss of a multi-label target
    blind: str = ""  # that no model predicts the target better than chance, with the scores
    notes: list[str] = field(default_factory=list)


def facts_of(model: Any, share: float, plan: Plan) -> dict[str, Any]:
    """The attributes of the fitted model that a `TaskResult` has; `share` is the share of the rows that it ignores."""
    values = {name: float(getattr(model, f"{name}_")) for name in ("lam", "lam_hat", "C")}
    fold_m = [round(share * int(rows.sum())) for rows in plan.folds.once().train]
    return {**values, "m": int(model.m_), "k": int(model.k_), "fold_m": fold_m, "dropped": model.dropped_}


def without_decided(wrong: Array, noise: Interval, target: Target, plan: Plan) -> tuple[Array, Interval]:
    """p(wrong) and the share of wrong targets after rows were relabelled; both are 0 for observed outcomes."""
    if plan.observed:
        return np.zeros_like(wrong), Interval(0.0, 0.0, 0.0)
    decided = target.relabelled if wrong.ndim == 1 else target.relabelled[:, None]
    return np.where(decided, 0.0, wrong), noise.without(float((target.original != target.y).mean()))


def ranking(score: Array, wrong: Array, probability: Array, least: int, *, observed: bool) -> Array:
    """The listed rows, highest score first: the suspects, and the first `least` whose score is not negative.

    Observed outcomes are ranked by their probability, and at least 20 are listed.
    """
    if observed:
        score, least = -np.log(np.maximum(probability, 1e-300)), LISTED
    flagged = probability < SURPRISING if observed else wrong >= POSSIBLE
    order = np.argsort(-score, kind="stable")
    return np.asarray(order[flagged[order] | ((np.arange(len(order)) < least) & (score[order] >= 0))])


def at_chance(result: TaskResult, chance: float, measure: Measure, ensemble: Interval | None = None) -> TaskResult:
    """Set `blind` to the reason if no model predicts better than chance.

    `chance` is the value of `measure` for uninformative predictions, and `ensemble` that for the ensemble behind
    `wrong`.
    """
    scores = [measure.ordinary, measure.robust, *([] if ensemble is None else [ensemble])]
    if max(score.low for score in scores) > chance:
        return result
    best = max(scores, key=lambda score: score.value)
    value, low, high, by_chance = (f"{100 * v:.0f}%" for v in (best.value, best.low, best.high, chance))
    shares = f"{value}, {low} to {high}, against {by_chance} by chance"
    return replace(
        result, blind=f"the other columns do not predict the target better than chance ({measure.name}: {shares})"
    )
