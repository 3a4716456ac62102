"""The result of a task: scores of both models with intervals, p(wrong), and the suspects."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..issues.sentences import SURPRISING as SURPRISING
from ..pages.text import number

# The half-width of a 95% interval in standard errors.
_WIDTH = 1.96
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
        return cls(mean, mean - _WIDTH * error, mean + _WIDTH * error)

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
        """A score that is a mean over the rows; `ordinary` and `robust` (n,) are the values that are averaged.

        `higher`: whether higher values are better. The intervals of the scores are clipped to [0, 1] if `percent`, and
        to numbers of at least 0 otherwise.
        """
        sign = 1.0 if higher else -1.0
        both = [Interval.of_mean(np.asarray(v, dtype=np.float64)) for v in (ordinary, robust)]
        both = [i.within(0.0, 1.0) if percent else i.within(0.0, np.inf) for i in both]
        gain = Interval.of_mean(sign * (np.asarray(robust, dtype=np.float64) - np.asarray(ordinary, dtype=np.float64)))
        return cls(name, percent, higher, both[0], both[1], gain)


@dataclass(frozen=True)
class Group:
    """A class, label or range of the target: the number of rows, of ignored rows (`cut`) and of likely wrong rows."""

    name: str
    rows: int
    cut: int
    suspects: int


@dataclass(frozen=True)
class TaskResult:
    """The result for the n rows that have a target. The suspects are all listed rows (`Audit.suspects`).

    Attributes
    ----------
    task : str
        "classes", "numbers" or "labels".
    ordinary_name, robust_name, loss_name : str
        The two models and the loss in words.
    model : estimator
        The robust model, fitted to all rows; `m`, `k`, `lam`, `lam_hat` and `C` are its fitted values (`m_` and so on).
    fold_m : list of int
        m of the robust fit without each fold.
    measures : list of Measure
        The scores of both models.
    losses : ndarray of shape (n,)
        Out-of-fold losses: of the ensemble mean for classes, of the robust model for a multi-label target, and for a
        numeric target the squares of the scaled `residuals`.
    wrong : ndarray of shape (n,)
        The probability that the target is wrong; 0 for observed outcomes.
    probability : ndarray of shape (n,)
        The out-of-fold probability of the given target: of the given class, of the least probable label, or of a
        residual at least as large.
    dropped : ndarray of shape (n,)
        Mask of the rows that the robust model ignores.
    order, actions : ndarray of shape (suspects,)
        The positions of the listed rows among the n rows, worst first, and the action for each; "" if they are only
        listed because there are few suspects.
    suggested, expected : list of str
        For each suspect, the suggested target (for observed outcomes, the expected one), and what the models predict,
        in words.
    against : ndarray of shape (suspects, features)
        The evidence of each feature against the given target: its contribution to the linear score, positive if it
        favours another target.
    groups : list of Group
        The classes, the labels, or up to five ranges of a numeric target.
    noise : Interval
        The share of wrong targets; for a multi-label target, of wrong cells.
    contradicted : float
        The share of targets that the predictions contradict, with or without confidence.
    posterior : LabelIssues or None
        For classes: the members of the ensemble and the posterior of wrong labels.
    residuals : ndarray of shape (n,) or None
        For a numeric target: the target minus its out-of-fold prediction.
    top_k : int
        k of the top-k loss of a multi-label target; otherwise 0.
    blind : str
        That no model predicts the target better than chance, with the scores; otherwise "".
    notes : list of str
        Further remarks for the reader.
    """

    task: str
    ordinary_name: str
    robust_name: str
    model: Any
    m: int
    k: int
    fold_m: list[int]  # m of the robust fit without each fold; the scores come from these fits
    lam: float
    lam_hat: float
    C: float
    measures: list[Measure]
    losses: Array
    wrong: Array
    probability: Array
    dropped: Array
    order: Array
    actions: Array
    suggested: list[str]
    expected: list[str]
    against: Array
    groups: list[Group]
    noise: Interval
    contradicted: float
    loss_name: str
    posterior: Any = None
    expected_surprises: float = 0.0  # the number of targets with a probability below 5% if predictions are calibrated
    residuals: Array | None = None  # for numeric targets: the target minus its out-of-fold prediction
    top_k: int = 0
    blind: str = ""  # that no model predicts the target better than chance, with the scores
    notes: list[str] = field(default_factory=list)


def facts_of(model: Any, fold_m: list[int]) -> dict[str, Any]:
    """The attributes of the fitted model that a `TaskResult` has, and `fold_m`, by name."""
    return {
        "m": int(model.m_),
        "k": int(model.k_),
        "fold_m": fold_m,
        "lam": float(model.lam_),
        "lam_hat": float(model.lam_hat_),
        "C": float(model.C_),
        "dropped": model.dropped_,
    }


def ranking(score: Array, flagged: Array, least: int) -> Array:
    """The listed rows, highest score first: the flagged ones, and the first `least` of the ranking."""
    order = np.argsort(-score, kind="stable")
    return np.asarray(order[flagged[order] | ((np.arange(len(order)) < least) & (score[order] >= 0))])


def at_chance(result: TaskResult, chance: float, measure: Measure, ensemble: Interval | None = None) -> TaskResult:
    """Set `blind` to the reason if no model predicts better than chance.

    `chance` is the value of `measure` for uninformative predictions, and `ensemble` that for the ensemble behind
    `wrong`, if there is one.
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


def show(measure: Any, value: float) -> str:
    """A score as text, in percent or with four significant digits."""
    return f"{100 * value:.1f}%" if measure.percent else number(value, 4)


def show_gain(measure: Any, value: float) -> str:
    """A gain as text, with its sign."""
    text = f"{100 * value:+.1f}" if measure.percent else ("+" if value >= 0 else "") + number(value, 3)
    return text.replace("-", "\N{MINUS SIGN}")


def show_range(measure: Any) -> str:
    """The 95% interval of a gain as text."""
    return f"{show_gain(measure, measure.gain.low)} to {show_gain(measure, measure.gain.high)}"


def unit(measure: Any) -> str:
    """The unit of a gain: " points" for a score in percent, otherwise ""."""
    return " points" if measure.percent else ""
