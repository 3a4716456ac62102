"""RankedRangeClassifier: any classifier, trained without the rows whose labels are probably wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from ..compatibility import check_y
from ..core.arrays import Array
from ..core.transition import temperature, tempered
from ..crossfit.members import simple_predictions
from ..crossfit.models import FittedFolds, Task
from ..label_noise import LIKELY, LabelNoiseModel, LabelNoisePosterior
from .any_model import ANY_ROWS, RankedRangeModel, Splits, WrongRows
from .fitted import PER_CLASS, LogProbabilities, of_rows

# At least this many rows of each class are kept, those with the smallest p_wrong, so that folds have some of each.
_MIN_OF_CLASS = 5
# If more than this share of all rows would be dropped, none are: the labels are then too noisy to learn from.
_MAX_CUT = 0.5


class RankedRangeClassifier(LogProbabilities, ClassifierMixin, RankedRangeModel):
    """Any classifier, trained without the rows whose labels are probably wrong.

    Copies of the model are fitted to four fifths of the rows and predict the labels of the other fifth. If X can be
    converted to numeric columns, the predictions of simple models are added: a linear fit, a trimmed linear fit,
    nearest neighbours (up to 20,000 rows), and extra trees. From these predictions `LabelNoiseModel` estimates how
    many labels of each class are wrong, and for each row the probability that its label is wrong. Rows with a
    probability of at least one half are dropped, unless these are more than half of all rows. At least five rows of
    each class are kept, and with fewer than 20 rows in all none is dropped. The model is then fitted to the rows that
    are kept.

    Parameters
    ----------
    estimator : classifier, default=HistGradientBoostingClassifier()
        Anything with `fit(X, y)` and one of `predict_proba`, `decision_function` and `predict`: forests, boosting of
        any package, pipelines, `AoRRClassifier`. X is passed on unchanged. Each fit to a subset of the rows gets its
        own random state; the model fitted to all rows keeps the one that you set.
    m : "auto", int or float
        How many rows to drop: an int is a count, a float in [0, 1] a share. "auto" drops the rows whose labels are
        wrong with a probability of at least one half. A given m drops the m rows with the largest out-of-fold loss; see
        Notes.
    k : int or float, default=1.0
        The last rank to keep, with a given m. Rows of higher rank, which are fitted easily, are dropped as well.
    cv : int, splitter, or list of (train, test)
        The folds; an int is the number of stratified folds. A splitter such as TimeSeriesSplit may leave rows without a
        prediction; these are never dropped.
    ensemble : bool, default=True
        Whether to predict with the mean of the models of the folds (more accurate) or with one model fitted to all kept
        rows (faster). With m="auto" the models fitted before rows were dropped have a total weight of 1/4: some dropped
        rows are hard, not wrong. If less than 1% of the rows are dropped, one model fitted to all kept rows has weight
        3/4 instead.
    random_state, n_jobs : object
        As in scikit-learn. The result does not depend on n_jobs.

    Attributes
    ----------
    dropped_ : ndarray of bool of shape (n,)
        The training rows that were dropped. A warning names a class that lost more than half of its rows.
    p_wrong_ : ndarray of shape (n,)
        The posterior probability that each label is wrong, from out-of-fold predictions (m="auto").
    m_, k_ : int or float
        The number (or weight) of the dropped rows, and the last rank that was kept.
    noise_estimate_, noise_interval_ : float and pair of float
        The estimated share of wrong labels and its 95% interval (m="auto").
    tuning_ : dict of arrays
        With m="auto": for each member of the ensemble its name ("source"), its "weight", and its "gain" in log
        likelihood over the class frequencies. With a given m: for each "round" the "objective", the ranked range of
        the out-of-fold losses.
    losses_, lam_, lam_hat_ : ndarray of shape (n,), float and float
        With a given m: the out-of-fold losses that were ranked (NaN for rows without a prediction), and the lower and
        the upper cut.
    estimators_, estimator_weights_, estimator_ : list, ndarray and classifier
        The fitted models and their weights, or without `ensemble` the fitted model.
    temperature_ : float
        m="auto": `predict_proba` raises the probabilities of the models to the power 1 / temperature_ and makes them
        sum to 1 again, because trimming makes the remaining rows look easier. It is 1 with a given m and with fewer
        than 20 rows.
    classes_, n_features_in_, feature_names_in_ : object
        As in scikit-learn.

    Notes
    -----
    A given m alternates: the out-of-fold losses of all rows are ranked; the model is fitted to the ranks m+1..k; its
    out-of-fold losses are ranked again. This continues while the ranked range of these losses decreases, for at most
    five rounds. `dropped_` marks exactly the m rows with the largest `losses_` (the first of tied rows), and the models
    of the ensemble were fitted without them. The ranked range need not be minimal, because the model minimises its own
    objective on the kept rows.

    An integer weight is repetition: weight 2 is the row twice, both in the same fold. Rows with integer weights are
    repeated if their sum is at most 5,000 or the number of rows (a million for a model whose `fit` takes no
    sample_weight). Other weights are passed to the model, whose `fit` must take them. They are relative: with m="auto"
    multiplying all by a constant changes nothing, because the model gets them scaled to average one.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from rankrange import RankedRangeClassifier, noise
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> given = noise.symmetric(y, 0.2, random_state=0)
    >>> model = RankedRangeClassifier(random_state=0).fit(X, given)
    >>> bool(model.dropped_[given != y].mean() > 0.8), bool(model.dropped_[given == y].mean() < 0.1)
    (True, True)
    """

    _before = 0.25

    def _base(self) -> Any:
        return HistGradientBoostingClassifier() if self.estimator is None else self.estimator

    def _targets(self, y: Any) -> tuple[Array, Array | None]:
        y = np.asarray(check_y(y, multi_output=False, estimator=self))
        check_classification_targets(y)
        self.classes_, self.temperature_ = np.unique(y), 1.0
        return y, self.classes_

    def _losses(self, fit: FittedFolds, task: Task) -> Array:
        P = fit.out_of_fold[np.arange(len(task.y)), task.codes]
        return np.asarray(-np.log(np.maximum(P, 1e-12)))

    def _find_wrong(self, task: Task, mass: Array, splits: Splits) -> tuple[WrongRows, FittedFolds]:
        codes = np.searchsorted(self.classes_, task.y)
        weight = None if (mass == 1.0).all() else mass
        folds = None if splits.free else splits.folds
        fits = self._cross_fit(task, splits)
        simple = simple_predictions(task.X, codes, len(self.classes_), splits.rng, folds, weight)
        predictions = {"folds": fits.out_of_fold} | simple
        found: LabelNoisePosterior = LabelNoiseModel().fit(predictions, codes, weight)
        self.tuning_ = {
            "source": np.array(list(predictions)),
            "weight": np.array([found.weights[name] for name in predictions]),
            "gain": np.array([found.gains[name] for name in predictions]),
        }
        dropped = self._cut(task, found.p_wrong, mass)
        return WrongRows(found.p_wrong, dropped, found.share, found.interval, found.no_error, found.transition), fits

    def _cut(self, task: Task, p_wrong: Array, mass: Array) -> Array:
        """The rows that are probably wrong, but for those that a class needs."""
        cut = p_wrong >= LIKELY
        if mass[cut].sum() > _MAX_CUT * mass.sum():
            return np.zeros(len(cut), dtype=bool)
        order = np.argsort(p_wrong, kind="stable")
        for label in self.classes_:
            rows = order[task.y[order] == label]
            cut[rows[np.cumsum(mass[rows]) - mass[rows] < _MIN_OF_CLASS]] = False
        return cut

    def _gives_probabilities(self) -> bool:
        return hasattr(self._base(), "predict_proba")

    def _calibrate(self, task: Task, predicted: Array, found: WrongRows, mass: Array) -> None:
        """Set `temperature_` from out-of-fold predictions, including those of dropped rows.

        Its logarithm is the mean of those for the estimated share of wrong labels and for clean labels, weighted by the
        probability that no label is wrong.
        """
        rows = np.flatnonzero(np.isfinite(predicted).all(axis=1) & (mass > 0))
        assert found.transition is not None
        P, codes, weight = predicted[rows], np.searchsorted(self.classes_, task.y[rows]), mass[rows]
        clean, noisy = (temperature(P, codes, T, weight) for T in (np.eye(P.shape[1]), found.transition))
        self.temperature_ = float(clean**found.no_error * noisy ** (1.0 - found.no_error))

    @available_if(lambda self: hasattr(self._base(), "predict_proba"))
    @of_rows(PER_CLASS, ANY_ROWS)
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities: the mean over the models, at the temperature `temperature_`."""
        P = self._mean_prediction(X)
        return P if self.temperature_ == 1.0 else tempered(P, self.temperature_)
