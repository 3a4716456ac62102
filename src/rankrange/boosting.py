"""The ranked range as a custom objective for XGBoost, LightGBM and CatBoost.

Each round ranks the losses of all rows, and gradients and second derivatives of the log loss are multiplied by the
weights of `range_weights`, so only the ranks m+1 to k count. The first rounds use all rows instead, because losses are
uninformative before the model has learnt anything. CatBoost passes rows in blocks, so `catboost_objective` keeps the
losses between the cuts of the last pass over the data. This module imports none of the three libraries. May import:
`core`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .core.arrays import Array
from .core.losses import Logistic, Softmax, softmax
from .core.ranges import Rank, RankedRange
from .core.select import range_weights, ranked_range, thresholds
from .core.transition import predicted_codes, probabilities_of

__all__ = [
    "BoostingObjective",
    "catboost_metric",
    "catboost_objective",
    "labels_of_scores",
    "lightgbm_metric",
    "lightgbm_objective",
    "probabilities_of_scores",
    "xgboost_metric",
    "xgboost_objective",
]

# A lower bound for second derivatives, because leaf values are quotients with their sum as the denominator.
_MIN_HESSIAN = 1e-16
WARM_UP = 10


class BoostingObjective:
    """Gradient and second derivative of the ranked range of log losses, at the raw scores of a boosting round.

    Parameters
    ----------
    m, k : int or float
        Ranks to drop and the last rank to keep: a count, or a fraction in [0, 1] of the rows (of their weight, if rows
        have weights).
    warm_up : int, default=10
        The number of first rounds that use all rows. A round in which all rows have the same score starts a new run
        and restarts the count.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.boosting import BoostingObjective
    >>> objective = BoostingObjective(1, 1.0, warm_up=0)
    >>> gradient, hessian = objective.derivatives(np.array([2.0, -1.0, 3.0]), np.array([1, 0, 0]))
    >>> gradient.round(2)  # the third row has the largest loss and does not count
    array([-0.12,  0.27,  0.  ])
    """

    name = "BoostingObjective"

    def __init__(self, m: Rank, k: Rank = 1.0, *, warm_up: int = WARM_UP) -> None:
        if isinstance(warm_up, bool) or not isinstance(warm_up, int) or warm_up < 0:
            raise ValueError(f"warm_up must be an int of at least 0, got {warm_up!r}; try warm_up=10")
        self.range = RankedRange(m, k)
        self.warm_up = warm_up
        self.round = 0

    def __repr__(self) -> str:
        return f"{self.name}(m={self.range.m}, k={self.range.k}, warm_up={self.warm_up})"

    def derivatives(self, scores: Array, y: Array, sample_weight: Array | None = None) -> tuple[Array, Array]:
        """First and second derivatives of the sum of the kept losses with respect to the scores.

        Each call counts as one round. In the first `warm_up` rounds all losses are kept.

        Parameters
        ----------
        scores : ndarray of shape (n,) or (n, classes)
            Raw scores: log odds of class 1, or one score per class.
        y : ndarray of shape (n,)
            Labels 0 and 1, or 0 to classes - 1.
        sample_weight : ndarray of shape (n,), optional
            Weights of the rows; weight 2 equals the row twice.

        Returns
        -------
        gradient, hessian : ndarray of the shape of `scores`
            The gradient of a dropped row is 0. Second derivatives are at least 1e-16; for several classes they are the
            scaled diagonal of the Hessian (see `log_loss_derivatives`).
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
        """The mean of the log losses ranked m+1 to k, also in the first rounds; the module's metrics report it."""
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


class _OfData(BoostingObjective):
    """An objective for XGBoost and LightGBM.

    Their `train` functions call it with (scores, data set), and their scikit-learn estimators with (y, scores) or
    (y, scores, weight).
    """

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> tuple[Array, Array]:
        scores, y, weight = _arguments(first, second, sample_weight)
        return self.derivatives(scores, y, weight)


class _OfXGBoost(_OfData):
    name = "xgboost_objective"


class _OfLightGBM(_OfData):
    name = "lightgbm_objective"


def _arguments(first: Any, second: Any, sample_weight: Any) -> tuple[Array, Array, Array | None]:
    if not hasattr(second, "get_label"):
        return np.asarray(second), np.asarray(first), sample_weight
    weight = second.get_weight()
    return np.asarray(first), np.asarray(second.get_label()), None if weight is None or not len(weight) else weight


def xgboost_objective(m: Rank, k: Rank = 1.0, *, warm_up: int = WARM_UP) -> BoostingObjective:
    """The ranked range as the objective of XGBoost.

    Parameters
    ----------
    m, k : int or float
        Ranks to drop and the last rank to keep, as counts or fractions.
    warm_up : int, default=10
        The number of first rounds that use all rows.

    Returns
    -------
    callable
        The objective for `xgboost.train(params, data, obj=...)`. The booster's `predict(data, output_margin=True)` then
        returns raw scores: log odds, or one score per class with `num_class` in the parameters. `labels_of_scores` and
        `probabilities_of_scores` convert them. With `XGBClassifier(objective=...)`, `predict` and `predict_proba`
        return labels and probabilities as usual.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.boosting import xgboost_objective
    >>> gradient, hessian = xgboost_objective(1, warm_up=0)(np.array([1, 0, 0]), np.array([2.0, -1.0, 3.0]))
    >>> gradient.round(2)
    array([-0.12,  0.27,  0.  ])
    """
    return _OfXGBoost(m, k, warm_up=warm_up)


def lightgbm_objective(m: Rank, k: Rank = 1.0, *, warm_up: int = WARM_UP) -> BoostingObjective:
    """The ranked range as the objective of LightGBM.

    Parameters
    ----------
    m, k : int or float
        Ranks to drop and the last rank to keep, as counts or fractions.
    warm_up : int, default=10
        The number of first rounds that use all rows.

    Returns
    -------
    callable
        The objective for `lightgbm.train({"objective": ...}, data)` or `LGBMClassifier(objective=...)`. Their `predict`
        and `predict_proba` then return raw scores: log odds, or one score per class with `num_class` in the parameters.
        `labels_of_scores` and `probabilities_of_scores` convert them. Bagging and GOSS work as usual: all rows are
        ranked, and each round samples from them.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.boosting import lightgbm_objective
    >>> gradient, hessian = lightgbm_objective(1, warm_up=0)(np.array([1, 0, 0]), np.array([2.0, -1.0, 3.0]))
    >>> gradient.round(2)
    array([-0.12,  0.27,  0.  ])
    """
    return _OfLightGBM(m, k, warm_up=warm_up)


def catboost_objective(m: Rank, k: Rank = 1.0, *, n_rows: int, warm_up: int = WARM_UP) -> BoostingObjective:
    """The ranked range as the objective of CatBoost, for two classes.

    CatBoost calls the objective with blocks of 500 to 1,000 rows, so one call cannot rank all rows. The objective
    collects the losses of a whole pass over the rows and computes the two cuts, the k-th and the m-th largest loss. The
    next pass keeps the losses between these cuts, including those equal to the lower one. A round has two passes, one
    for the splits and one for the leaf values: leaf values use the cuts of the same round, and splits those of the
    round before.

    Parameters
    ----------
    m, k : int or float
        Ranks to drop and the last rank to keep, as counts or fractions.
    n_rows : int
        The number of training rows.
    warm_up : int, default=10
        The number of first rounds that use all rows.

    Returns
    -------
    object
        The objective for `CatBoostClassifier(loss_function=..., eval_metric="Logloss", boosting_type="Plain",
        leaf_estimation_iterations=1)`. These settings are needed: others change the number of passes per round. Labels
        must be 0 and 1, because CatBoost accepts no others with a custom objective. More than two classes are not
        supported, because CatBoost then calls the objective row by row.

    Raises
    ------
    ValueError
        During the fit, and CatBoost reports it as a CatBoostError: if the first round does not make two passes over
        `n_rows` rows, or if there are more than two classes.

    Examples
    --------
    >>> from rankrange.boosting import catboost_objective
    >>> objective = catboost_objective(1, n_rows=3, warm_up=0)
    >>> _ = objective.calc_ders_range([2.0, -1.0, 3.0], [1, 0, 0], None)  # the pass that finds the cut
    >>> derivatives = objective.calc_ders_range([2.0, -1.0, 3.0], [1, 0, 0], None)
    >>> [round(first, 2) for first, second in derivatives]
    [0.12, -0.27, -0.0]
    """
    return _OfCatBoost(m, k, n_rows=n_rows, warm_up=warm_up)


class _OfCatBoost(BoostingObjective):
    """An objective for CatBoost.

    It gets one block of rows at a time. Its derivatives have the opposite sign, because CatBoost maximises.
    """

    name = "catboost_objective"

    def __init__(self, m: Rank, k: Rank, *, n_rows: int, warm_up: int) -> None:
        super().__init__(m, k, warm_up=warm_up)
        self.n_rows = n_rows
        self._reset()

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, n_rows={self.n_rows})"

    def _reset(self) -> None:
        """Start a new training run."""
        self.passes, self.cuts = 0, (-np.inf, np.inf)
        self._rows_at_zero, self._trained = 0, False  # rows with a score of 0 so far, and whether others followed
        self._losses: list[Array] = []
        self._weights: list[Array] = []

    def calc_ders_range(self, approxes: Any, targets: Any, weights: Any) -> list[tuple[float, float]]:
        """Return minus the first and second derivatives of the losses of a block, for CatBoost; 0 for dropped rows."""
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
            f"catboost_objective is for two classes, got {len(approxes)}; use lightgbm_objective, xgboost_objective or "
            "RankedRangeClassifier"
        )

    def _check_start(self, scores: Array) -> None:
        """Recognise the first round of a run by its scores of 0, and raise an error unless it has two passes.

        A run whose first scores are not 0 is not checked.
        """
        if (scores == 0.0).all():
            if self._trained:
                self._reset()
            self._rows_at_zero += len(scores)
        elif not self._trained:
            self._trained = True
            if self._rows_at_zero not in (0, 2 * self.n_rows):
                raise ValueError(
                    f"the first round must make two passes over n_rows={self.n_rows} rows, got {self._rows_at_zero:,} "
                    "rows in all; pass the number of training rows as n_rows, and set boosting_type='Plain' and "
                    "leaf_estimation_iterations=1"
                )

    def _collect(self, losses: Array, weight: Array) -> None:
        """Collect the losses of a block. After the last block of a pass, compute the cuts for the next pass.

        After a pass of the first round, whose losses are all equal, the cuts stay infinite.
        """
        self._losses.append(losses)
        self._weights.append(weight)
        if sum(map(len, self._losses)) >= self.n_rows:
            values, mass = np.concatenate(self._losses), np.concatenate(self._weights)
            if self._trained:  # in the first round all losses are equal, so there are no cuts
                lam, lam_hat = thresholds(values, self.range, sample_weight=mass)
                self.cuts = (float(lam), float(lam_hat))
            self.passes += 1
            self._losses, self._weights = [], []


# ---- the matching metric ---------------------------------------------------------------------------------------------


def xgboost_metric(m: Rank, k: Rank = 1.0) -> Any:
    """The mean of the log losses ranked m+1 to k, for `xgboost.train(custom_metric=...)`.

    Parameters
    ----------
    m, k : int or float
        Ranks to drop and the last rank to keep, as counts or fractions.

    Returns
    -------
    callable
        It returns ("ranked_range", value); smaller is better. Use it together with `xgboost_objective`: with a built-in
        objective XGBoost passes probabilities to it instead of raw scores.

    Examples
    --------
    >>> from rankrange.boosting import xgboost_metric
    >>> class Data:  # like xgboost.DMatrix
    ...     get_label = staticmethod(lambda: [1, 0, 0])
    ...     get_weight = staticmethod(lambda: [])
    >>> name, value = xgboost_metric(1)([2.0, -1.0, 3.0], Data)
    >>> name, round(value, 2)
    ('ranked_range', 0.22)
    """
    objective = BoostingObjective(m, k)
    return lambda scores, data: ("ranked_range", objective.value(*_arguments(scores, data, None)))


def lightgbm_metric(m: Rank, k: Rank = 1.0) -> Any:
    """The mean of the log losses ranked m+1 to k, for `lightgbm.train(feval=...)` and `eval_metric=` of its estimators.

    Parameters
    ----------
    m, k : int or float
        Ranks to drop and the last rank to keep, as counts or fractions.

    Returns
    -------
    callable
        It returns ("ranked_range", value, False); False means that smaller is better. Use it together with
        `lightgbm_objective`: with a built-in objective LightGBM passes probabilities to it instead of raw scores.

    Examples
    --------
    >>> from rankrange.boosting import lightgbm_metric
    >>> name, value, larger_is_better = lightgbm_metric(1)([1, 0, 0], [2.0, -1.0, 3.0])
    >>> name, round(value, 2), larger_is_better
    ('ranked_range', 0.22, False)
    """
    objective = BoostingObjective(m, k)

    def metric(first: Any, second: Any, sample_weight: Any = None) -> tuple[str, float, bool]:
        return "ranked_range", objective.value(*_arguments(first, second, sample_weight)), False

    return metric


def catboost_metric(m: Rank, k: Rank = 1.0) -> Any:
    """The mean of the log losses ranked m+1 to k, for `CatBoostClassifier(eval_metric=...)`.

    Parameters
    ----------
    m, k : int or float
        Ranks to drop and the last rank to keep, as counts or fractions.

    Returns
    -------
    object
        A metric for which smaller is better. It ranks all rows of a data set, because CatBoost evaluates them in one
        call. It works for two or more classes and with CatBoost's own objectives.

    Examples
    --------
    >>> from rankrange.boosting import catboost_metric
    >>> metric = catboost_metric(1)
    >>> total, weight = metric.evaluate([[2.0, -1.0, 3.0]], [1, 0, 0], None)
    >>> round(metric.get_final_error(total, weight), 2)
    0.22
    """
    return RankedRangeMetric(BoostingObjective(m, k))


class RankedRangeMetric:
    """The result of `catboost_metric`, with the methods that CatBoost calls. CatBoost's logs name this class."""

    def __init__(self, objective: BoostingObjective) -> None:
        self.objective = objective

    def __repr__(self) -> str:
        return f"catboost_metric(m={self.objective.range.m}, k={self.objective.range.k})"

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
        Probabilities that sum to 1 in each row. They are more extreme than those of an ordinary fit, because the
        dropped rows do not pull them towards 0.5.

    Examples
    --------
    >>> from rankrange.boosting import probabilities_of_scores
    >>> probabilities_of_scores([0.0, 2.0]).round(2)
    array([[0.5 , 0.5 ],
           [0.12, 0.88]])
    """
    return probabilities_of(_checked_scores(scores))


def labels_of_scores(scores: Any, classes: Any = None) -> Array:
    """The most probable class of each row, from the raw scores of LightGBM and XGBoost with a custom objective.

    Parameters
    ----------
    scores : array_like of shape (n,), (n, 1) or (n, classes)
        Log odds of the second class, or one score per class, as in `probabilities_of_scores`.
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
    codes = predicted_codes(scores, axis=1)
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
