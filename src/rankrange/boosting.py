"""The ranked range as a custom objective and metric for XGBoost, LightGBM and CatBoost.

Each round ranks the losses of all rows, and gradients and second derivatives of the log loss are multiplied by the
weights of `range_weights`, so only the ranks m+1 to k count. The first rounds use all rows instead, because losses are
uninformative before the model has learnt anything. CatBoost passes rows in blocks, so its objective keeps the losses
between the cuts of the last pass over the data. This module imports none of the three libraries. May import: `core`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from .core.arrays import Array
from .core.losses import Logistic, Softmax, softmax
from .core.ranges import Rank, RankedRange
from .core.select import range_weights, ranked_range, thresholds

__all__ = ["CatBoost", "LightGBM", "XGBoost", "labels_of_scores", "probabilities_of_scores"]

# A lower bound for second derivatives, because leaf values are quotients with their sum as the denominator.
_MIN_HESSIAN = 1e-16


class _RankedLogLoss:
    """Value and derivatives of the ranked range of log losses, at the raw scores of a boosting round."""

    def __init__(self, m: Rank, k: Rank = 1.0, *, warm_up: int = 10) -> None:
        if isinstance(warm_up, bool) or not isinstance(warm_up, int) or warm_up < 0:
            raise ValueError(f"warm_up must be an int of at least 0, got {warm_up!r}; try warm_up=10")
        self.range = RankedRange(m, k)
        self.warm_up = warm_up
        self.round = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(m={self.range.m}, k={self.range.k}, warm_up={self.warm_up})"

    def derivatives(self, scores: Array, y: Array, sample_weight: Array | None = None) -> tuple[Array, Array]:
        """First and second derivatives of the sum of the kept losses with respect to the scores, of their shape.

        Each call counts as one round; in the first `warm_up` rounds all losses are kept.
        """
        self.round = 0 if (scores == scores[:1]).all() else self.round + 1
        losses, gradient, hessian = log_loss_derivatives(scores, y)
        if self.round < self.warm_up:
            weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        else:
            weights = range_weights(losses, self.range, sample_weight=sample_weight)
        weights = weights if scores.ndim == 1 else weights[:, None]
        return weights * gradient, np.maximum(weights * hessian, _MIN_HESSIAN)

    def value(self, scores: Array, y: Array, sample_weight: Array | None = None) -> float:
        """The mean of the log losses ranked m+1 to k, also in the first rounds; `metric` reports it."""
        return float(ranked_range(log_loss_derivatives(scores, y)[0], self.range, sample_weight=sample_weight))


def log_loss_derivatives(scores: Array, y: Array) -> tuple[Array, Array, Array]:
    """Log losses (n,) of all rows, and their first and second derivatives, of the shape of `scores`.

    For scores (n, classes) the second derivatives are the diagonal of the Hessian, times classes / (classes - 1).
    Scores that are not finite, and labels other than 0 to classes - 1, are a ValueError.
    """
    scores, y = np.asarray(scores, dtype=float), np.asarray(y)
    classes = 2 if scores.ndim == 1 else scores.shape[1]
    codes = y.astype(np.int64)
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite, got NaN or infinity; lower the learning rate")
    if (codes != y).any() or codes.min() < 0 or codes.max() >= classes:
        raise ValueError(
            f"labels must be 0 to {classes - 1} for scores of shape {scores.shape}, got {y.min()} to {y.max()}; encode "
            "them, or set the number of classes"
        )
    if scores.ndim == 1:
        signs = 2.0 * codes - 1.0
        return *Logistic().value_and_derivative(signs, scores), Logistic().curvature(signs, scores)
    p = softmax(scores)
    # The diagonal of the Hessian, scaled as in LightGBM's own softmax objective.
    return *Softmax().value_and_derivative(codes, scores), classes / (classes - 1.0) * p * (1.0 - p)


class XGBoost(_RankedLogLoss):
    """The ranked range as the objective and the metric of XGBoost.

    Parameters
    ----------
    m, k : int or float
        Ranks to drop and the last rank to keep: a count, or a fraction in [0, 1] of the rows (of their weight, if rows
        have weights).
    warm_up : int, default=10
        The number of first rounds that use all rows. A round in which all rows have the same score starts a new run
        and restarts the count.

    Notes
    -----
    `objective` is for `xgboost.train(params, data, obj=...)`, with raw scores as predictions (log odds, or one score
    per class with `num_class`), or for `XGBClassifier(objective=...)`, which predicts labels as usual. `metric` is for
    `xgboost.train(custom_metric=...)` together with this objective: with a built-in one XGBoost passes probabilities to
    it instead of raw scores.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.boosting import XGBoost
    >>> ranked = XGBoost(1, warm_up=0)
    >>> gradient, hessian = ranked.objective(np.array([1, 0, 0]), np.array([2.0, -1.0, 3.0]))
    >>> gradient.round(2)  # the third row has the largest loss and does not count
    array([-0.12,  0.27,  0.  ])
    """

    def objective(self, first: Any, second: Any, sample_weight: Any = None) -> tuple[Array, Array]:
        """Gradient and second derivative, of the shape of the scores.

        The arguments are scores and data set, as the `train` functions pass them, or y, scores and weights of the rows,
        as scikit-learn estimators do.
        """
        scores, y, weight = _arguments(first, second, sample_weight)
        return self.derivatives(scores, y, weight)

    def metric(self, scores: Any, data: Any) -> tuple[str, float]:
        """The mean of the log losses ranked m+1 to k, as ("ranked_range", value); smaller is better.

        `scores` are raw scores; the labels and weights are those of the DMatrix `data`.
        """
        return "ranked_range", self.value(*_arguments(scores, data, None))


class LightGBM(_RankedLogLoss):
    """The ranked range as the objective and the metric of LightGBM.

    Parameters
    ----------
    m, k : int or float
        Ranks to drop and the last rank to keep, as in `XGBoost`.
    warm_up : int, default=10
        The number of first rounds that use all rows.

    Notes
    -----
    `objective` is for `lightgbm.train({"objective": ...}, data)` or `LGBMClassifier(objective=...)`, whose `predict`
    and `predict_proba` then return raw scores: log odds, or one score per class with `num_class`. `labels_of_scores`
    and `probabilities_of_scores` convert them. Bagging and GOSS work as usual: all rows are ranked, and each round
    samples from them. `metric` is for `lightgbm.train(feval=...)` and `eval_metric=`, together with this objective.

    Examples
    --------
    >>> from rankrange.boosting import LightGBM
    >>> name, value, larger_is_better = LightGBM(1).metric([1, 0, 0], [2.0, -1.0, 3.0])
    >>> name, round(value, 2), larger_is_better
    ('ranked_range', 0.22, False)
    """

    objective = XGBoost.objective

    def metric(self, first: Any, second: Any, sample_weight: Any = None) -> tuple[str, float, bool]:
        """The mean of the log losses ranked m+1 to k, as ("ranked_range", value, False); smaller is better.

        Arguments are those of `objective`.
        """
        return "ranked_range", self.value(*_arguments(first, second, sample_weight)), False


def _arguments(first: Any, second: Any, sample_weight: Any) -> tuple[Array, Array, Array | None]:
    """Scores, labels and weights, from (scores, data set) or (labels, scores, weights)."""
    if not hasattr(second, "get_label"):
        return np.asarray(second), np.asarray(first), sample_weight
    weight = second.get_weight()
    return np.asarray(first), np.asarray(second.get_label()), None if weight is None or not len(weight) else weight


class CatBoost:
    """The ranked range as the objective of CatBoost, for two classes, and as its metric, for any number of classes.

    CatBoost calls the objective with blocks of 500 to 1,000 rows, so one call cannot rank all rows. Each pass over the
    rows keeps the losses between the cuts of the pass before, including those equal to the lower one. A round has two
    passes: leaf values use the cuts of the same round, and splits those of the round before.

    Parameters
    ----------
    m, k : int or float
        Ranks to drop and the last rank to keep, as counts or fractions.
    n_rows : int, optional
        The number of training rows, which the objective needs.
    warm_up : int, default=10
        The number of first rounds that use all rows.

    Attributes
    ----------
    objective : object
        For `CatBoostClassifier(loss_function=..., eval_metric="Logloss", boosting_type="Plain",
        leaf_estimation_iterations=1)`. These settings are needed: others change the number of passes per round, and the
        fit ends with an error. Labels must be 0 and 1, because CatBoost accepts no others with a custom objective.
    metric : object
        For `CatBoostClassifier(eval_metric=...)`, also with CatBoost's own objectives; smaller is better. It ranks all
        rows of a data set, because CatBoost evaluates them in one call.

    Examples
    --------
    >>> from rankrange.boosting import CatBoost
    >>> objective = CatBoost(1, n_rows=3, warm_up=0).objective
    >>> _ = objective.calc_ders_range([2.0, -1.0, 3.0], [1, 0, 0], None)  # the pass that finds the cut
    >>> derivatives = objective.calc_ders_range([2.0, -1.0, 3.0], [1, 0, 0], None)
    >>> [round(first, 2) for first, second in derivatives]
    [0.12, -0.27, -0.0]
    """

    def __init__(self, m: Rank, k: Rank = 1.0, *, n_rows: int | None = None, warm_up: int = 10) -> None:
        self.objective = _InBlocks(m, k, n_rows=n_rows, warm_up=warm_up)
        self.metric = RankedRangeMetric(_RankedLogLoss(m, k))

    def __repr__(self) -> str:
        range_ = self.objective.range
        return f"CatBoost(m={range_.m}, k={range_.k}, n_rows={self.objective.n_rows}, warm_up={self.objective.warm_up})"


class _InBlocks(_RankedLogLoss):
    """The objective for CatBoost, which passes one block of rows at a time, and maximises: signs are opposite."""

    def __init__(self, m: Rank, k: Rank, *, n_rows: int | None, warm_up: int) -> None:
        super().__init__(m, k, warm_up=warm_up)
        self.n_rows = n_rows
        self._reset()

    def _reset(self) -> None:
        """Start a new training run."""
        self.passes, self.cuts = 0, (-np.inf, np.inf)
        self._rows_at_zero, self._trained = 0, False  # rows with a score of 0 so far, and whether others followed
        self._losses: list[Array] = []
        self._weights: list[Array] = []

    def calc_ders_range(self, approxes: Any, targets: Any, weights: Any) -> list[tuple[float, float]]:
        """Return minus the first and second derivatives of the losses of a block, for CatBoost; 0 for dropped rows."""
        if self.n_rows is None:
            raise ValueError(
                "the objective must know the number of training rows, got n_rows=None; pass CatBoost(n_rows=len(y))"
            )
        scores, y = (np.array([values[i] for i in range(len(values))]) for values in (approxes, targets))
        weight = np.ones(len(y)) if weights is None else np.array([weights[i] for i in range(len(weights))])
        self._check_start(scores)
        losses, gradient, hessian = log_loss_derivatives(scores, y)
        lam, lam_hat = self.cuts if self.passes >= 2 * self.warm_up else (-np.inf, np.inf)
        kept = weight * ((losses >= lam) & (losses < lam_hat))
        self._collect(losses, weight)
        return list(zip((-kept * gradient).tolist(), (-kept * hessian).tolist(), strict=True))

    def calc_ders_multi(self, approxes: Any, target: Any, weight: Any) -> Any:
        """Raise an error. CatBoost calls this method for more than two classes, which are not supported."""
        raise ValueError(
            f"CatBoost(m).objective is for two classes, got {len(approxes)}; use LightGBM, XGBoost or "
            "RankedRangeClassifier"
        )

    def _check_start(self, scores: Array) -> None:
        """Recognise the first round of a run by its scores of 0, and raise an error unless it has two passes."""
        if (scores == 0.0).all():
            if self._trained:
                self._reset()
            self._rows_at_zero += len(scores)
        elif not self._trained:
            self._trained = True
            if self.n_rows is not None and self._rows_at_zero not in (0, 2 * self.n_rows):
                raise ValueError(
                    f"the first round must make two passes over n_rows={self.n_rows} rows, got {self._rows_at_zero:,} "
                    "rows in all; pass the number of training rows as n_rows, and set boosting_type='Plain' and "
                    "leaf_estimation_iterations=1"
                )

    def _collect(self, losses: Array, weight: Array) -> None:
        """Collect the losses of a block. After the last block of a pass, compute the cuts for the next pass."""
        self._losses.append(losses)
        self._weights.append(weight)
        if self.n_rows is not None and sum(map(len, self._losses)) >= self.n_rows:
            values, mass = np.concatenate(self._losses), np.concatenate(self._weights)
            if self._trained:  # in the first round all losses are equal, so there are no cuts
                lam, lam_hat = thresholds(values, self.range, sample_weight=mass)
                self.cuts = (float(lam), float(lam_hat))
            self.passes += 1
            self._losses, self._weights = [], []


class RankedRangeMetric:
    """The metric for CatBoost, with the methods that it calls. CatBoost's logs name this class."""

    def __init__(self, objective: _RankedLogLoss) -> None:
        self.objective = objective

    def __repr__(self) -> str:
        return f"CatBoost(m={self.objective.range.m}, k={self.objective.range.k}).metric"

    def is_max_optimal(self) -> bool:
        """Return False: smaller values are better."""
        return False

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        """The mean of the losses ranked m+1 to k, and 1 as its weight; `approxes` has one array of scores per class."""
        scores = np.asarray(approxes[0]) if len(approxes) == 1 else np.stack(approxes, axis=1)
        mass = None if weight is None or not len(weight) else np.asarray(weight, dtype=float)
        return self.objective.value(scores, np.asarray(target), mass), 1.0

    def get_final_error(self, error: float, weight: float) -> float:
        """The final value of the metric: the error divided by the weight, which is 1."""
        return error / weight


# ---- from scores to predictions --------------------------------------------------------------------------------------


def probabilities_of_scores(scores: Any) -> Array:
    """Class probabilities from the raw scores that LightGBM and XGBoost return with a custom objective.

    Parameters
    ----------
    scores : array_like of shape (n,), (n, 1) or (n, classes)
        Log odds of the second class, or one score per class: `model.predict(X, raw_score=True)` of LightGBM,
        `booster.predict(data, output_margin=True)` of XGBoost.

    Returns
    -------
    ndarray of shape (n, classes)
        Probabilities, more extreme than those of an ordinary fit, because dropped rows do not pull them towards 0.5.

    Examples
    --------
    >>> from rankrange.boosting import probabilities_of_scores
    >>> probabilities_of_scores([0.0, 2.0]).round(2)
    array([[0.5 , 0.5 ],
           [0.12, 0.88]])
    """
    z = _checked_scores(scores)
    return np.stack([expit(-z[:, 0]), expit(z[:, 0])], axis=1) if z.shape[1] == 1 else softmax(z)


def labels_of_scores(scores: Any, classes: Any = None) -> Array:
    """The most probable class of each row, from the raw scores of LightGBM and XGBoost with a custom objective.

    Parameters
    ----------
    scores : array_like
        As in `probabilities_of_scores`.
    classes : array_like, optional
        The classes in order, `model.classes_`; by default 0, 1, ...

    Returns
    -------
    ndarray of shape (n,)
        The predicted classes. If scores tie (log odds of exactly 0), the first class is predicted.

    Examples
    --------
    >>> from rankrange.boosting import labels_of_scores
    >>> labels_of_scores([-0.3, 2.0], ["no", "yes"]).tolist()
    ['no', 'yes']
    """
    scores = _checked_scores(scores)
    codes = (scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)
    if classes is None:
        return codes
    n_classes = max(2, scores.shape[1])
    if len(classes) != n_classes:
        raise ValueError(f"scores of shape {scores.shape} need {n_classes} classes, got {len(classes)}")
    return np.asarray(classes)[codes]


def _checked_scores(scores: Any) -> Array:
    """The scores as (n, classes), or (n, 1) for two classes; another shape or NaN or infinity is a ValueError."""
    array = np.asarray(scores, dtype=float)
    if array.ndim not in (1, 2) or not np.isfinite(array).all():
        raise ValueError(f"scores must be finite and of shape (n,) or (n, classes), got shape {array.shape}")
    return array[:, None] if array.ndim == 1 else array
