"""RankedRangeRegressor: any regressor, trained without the rows whose targets are probably wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor

from ..compatibility import check_y
from ..core.arrays import Array
from ..crossfit.models import FittedFolds, Task
from ..label_noise import LIKELY
from ..outliers import outlier_posterior, sizes
from .any_model import RankedRangeModel, Splits, WrongRows
from .linear import numeric_target

# If many targets are wrong, fits without the worst of them find more. The largest number of further rounds, and the
# growth of the share of outliers that starts a second one.
_MAX_REPEATS, _GROWN = 2, 0.02
# Fits without the outliers must predict the other rows better by this many standard errors.
_BETTER = 2.0


class RankedRangeRegressor(RegressorMixin, RankedRangeModel):
    """Any regressor, trained without the rows whose targets are probably wrong.

    Copies of the model, fitted to four fifths of the rows, predict the other fifth. A second model predicts the size of
    the residuals, which are divided by it, so noise that grows with the target or with a feature is not mistaken for
    errors. If there are more large residuals than normal noise explains, the excess is dropped, and residuals are
    computed again without these rows, at most twice. Rows are dropped only if the fits without them predict the other
    rows better: rows that a model cannot fit, such as those at the edge of the data for trees, look like outliers but
    are needed. No row is dropped if more than 30% look like outliers, or with fewer than 20 rows.

    Parameters
    ----------
    estimator : regressor, default=HistGradientBoostingRegressor()
        Anything with `fit(X, y)` and `predict(X)`.
    m : "auto", int or float
        How many rows to drop. "auto" drops the rows whose target is more likely wrong than right, given the residual. A
        given m drops the m rows with the largest absolute out-of-fold residual, as described for
        `RankedRangeClassifier`.
    k, cv : object
        As in `RankedRangeClassifier`.
    ensemble, random_state, n_jobs : object
        As in `RankedRangeClassifier`, but models fitted before rows were dropped have no weight.

    Attributes
    ----------
    dropped_, m_, k_, tuning_, losses_, lam_, lam_hat_, estimators_, estimator_weights_, estimator_ : object
        As in `RankedRangeClassifier`; the loss is the absolute residual. With m="auto" `tuning_` holds for each "round"
        the share of outliers ("rate").
    p_wrong_ : ndarray of shape (n,)
        The probability that each target is wrong: the share of residuals of this size that normal noise does not
        explain (m="auto").
    noise_estimate_, noise_interval_ : float and pair of float
        The estimated share of outliers and its 95% interval (m="auto"), which starts at 0 if dropping the outliers does
        not improve predictions.
    residuals_ : ndarray of shape (n,)
        The out-of-fold residuals in local robust standard deviations (m="auto"); 0 for rows without a prediction.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import RankedRangeRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(300, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=300)
    >>> y[:15] += 5.0
    >>> model = RankedRangeRegressor(random_state=0).fit(X, y)
    >>> bool(model.dropped_[:15].all()), bool(model.dropped_[15:].mean() < 0.05)
    (True, True)
    """

    _before = 0.0

    def _base(self) -> Any:
        return HistGradientBoostingRegressor() if self.estimator is None else self.estimator

    def _targets(self, y: Any) -> tuple[Array, Array | None]:
        return np.asarray(check_y(numeric_target(y), y_numeric=True, estimator=self), dtype=np.float64), None

    def _losses(self, fit: FittedFolds, task: Task) -> Array:
        return np.abs(task.y - fit.out_of_fold)

    def _find_wrong(self, task: Task, mass: Array, splits: Splits) -> tuple[WrongRows, FittedFolds]:
        first = self._cross_fit(task, splits)
        residual = of_all = task.y - first.out_of_fold
        expected = self._cross_fit(replace(task, y=sizes(residual)), splits).out_of_fold
        found = outlier_posterior(residual, mass, expected=expected)
        rates = [found.rate]
        for _ in range(_MAX_REPEATS):
            if not (found.p_wrong >= LIKELY).any() or (len(rates) > 1 and rates[-1] < rates[-2] + _GROWN):
                break
            residual = task.y - self._cross_fit(task, splits, found.p_wrong < LIKELY).out_of_fold
            found = outlier_posterior(residual, mass, expected=expected)
            rates.append(found.rate)
        dropped, interval = found.p_wrong >= LIKELY, found.interval
        if len(rates) > 1 and not _better(residual, of_all, np.where(dropped, 0.0, mass)):
            dropped, interval = np.zeros_like(dropped), (0.0, interval[1])
        self.residuals_ = found.standardised
        self.tuning_ = {"round": np.arange(len(rates)), "rate": np.array(rates)}
        return WrongRows(found.p_wrong, dropped, found.rate, interval), first


def _better(residual: Array, of_all: Array, mass: Array) -> bool:
    """Whether absolute residuals are smaller than those of the fits to all rows, by two standard errors.

    `mass` weights the rows; rows without a residual are ignored.
    """
    predicted = np.flatnonzero((mass > 0) & np.isfinite(residual) & np.isfinite(of_all))
    change, weight = np.abs(residual[predicted]) - np.abs(of_all[predicted]), mass[predicted] / mass[predicted].sum()
    mean = float(weight @ change)
    return mean < -_BETTER * float(np.sqrt(weight @ (change - mean) ** 2 / mass[predicted].sum()))
