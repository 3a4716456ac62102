"""Shared by RankedRangeClassifier and RankedRangeRegressor: the ranked range for any model.

Out-of-fold predictions give each row a probability of being wrong, the rows that are probably wrong are dropped, and an
ensemble is fitted to the others, on the same folds. The probabilities come from `label_noise` (classes) and `outliers`
(numeric targets).
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_consistent_length, check_is_fitted, has_fit_parameter

from ..compatibility import StrOptions, check_feature_names, check_n_features, routing_enabled
from ..core.arrays import Array
from ..core.ranges import RankedRange
from ..core.select import thresholds
from ..crossfit.alternate import alternate
from ..crossfit.folds import Folds, draw_folds, given_folds, whole_number
from ..crossfit.models import FittedFolds, Task, by_rows, fit_folds, fit_rows, predict_with
from .fitted import forget, of_rows
from .linear import check_present, seed_of, warn_of_lost_class, weights_of
from .weights import as_count, is_whole, scale_of, unit_of

# Out-of-fold predictions from fewer rows than this are uninformative.
_MIN_ROWS = 20
_ROUNDS = 5
# If less than this share is dropped, there is little noise to average out, and a model of all kept rows gets this
# weight. 1/2 is best for boosted trees, 1 for forests, which average already.
_FEW_DROPPED, _WHOLE = 0.01, 0.75

ANY_ROWS = "array_like, data frame, or any other X that the model accepts"


class WrongRows(NamedTuple):
    """p_wrong (n,), the rows to drop (n,), the share of wrong rows with its 95% interval.

    `no_error` is the probability that no label is wrong, `transition` (true, given) the transition matrix of labels;
    regression has no use for them.
    """

    p_wrong: Array
    dropped: Array
    share: float
    interval: tuple[float, float]
    no_error: float = 0.0
    transition: Array | None = None


class Splits(NamedTuple):
    """The folds, a seed for the model of each fold and one for the model of all rows, and the generator.

    `free` is whether a row may be predicted from any other row: no groups, and no given folds.
    """

    folds: Folds
    seeds: list[int]
    last_seed: int
    rng: np.random.Generator
    free: bool


class RankedRangeModel(MetaEstimatorMixin, BaseEstimator):
    """Base class of the classifier and the regressor: folds, weights, the alternation for a given m, final fits."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "m": [Real, StrOptions({"auto"})],
        "ensemble": ["boolean"],
        "random_state": ["random_state"],
    }
    classes_: Array
    # Weight of the models fitted before rows were dropped.
    _before: ClassVar[float]

    def __init__(
        self,
        estimator: Any = None,
        m: Any = "auto",
        *,
        k: Any = 1.0,
        cv: Any = 5,
        ensemble: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.m = m
        self.k = k
        self.cv = cv
        self.ensemble = ensemble
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _base(self) -> Any:
        raise NotImplementedError

    def _targets(self, y: Any) -> tuple[Array, Array | None]:
        """The validated targets and, of a classifier, the classes."""
        raise NotImplementedError

    def _losses(self, fit: FittedFolds, task: Task) -> Array:
        """Array (n,): the out-of-fold loss of each row; NaN for rows without a prediction."""
        raise NotImplementedError

    def _find_wrong(self, task: Task, mass: Array, splits: Splits) -> tuple[WrongRows, FittedFolds]:
        """The posterior of wrong rows, and the fits to all rows."""
        raise NotImplementedError

    def _gives_probabilities(self) -> bool:
        return False

    def _calibrate(self, task: Task, predicted: Array, found: WrongRows, mass: Array) -> None:
        """Fit the temperature of the probabilities to out-of-fold predictions; a regressor has none."""

    # ---- fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, **fit_params: Any) -> Any:
        """Fit the model to training data.

        Parameters
        ----------
        X : array_like, data frame, or any other X that the model accepts
            Training data.
        y : array_like of shape (n_samples,)
            Class labels or target values.
        sample_weight : array_like of shape (n_samples,), optional
            Weights of the rows; see the Notes of RankedRangeClassifier.
        groups : array_like of shape (n_samples,), optional
            The group of each row. Folds never split a group.
        **fit_params
            Further arguments of the `fit` of the model.

        Returns
        -------
        object
            The fitted estimator.
        """
        self._check_settings()
        forget(self)
        X = by_rows(X)
        check_feature_names(self, X, reset=True)
        check_n_features(self, X, reset=True)
        y, classes = self._targets(y)
        check_consistent_length(X, y)
        weight = weights_of(sample_weight, y)
        mass = np.ones(len(y)) if weight is None else weight
        weighted, params = self._routed(sample_weight, groups, fit_params)
        scale = scale_of(mass) if isinstance(self.m, str) else 1.0
        task = Task(X, y, classes, mass / scale if weighted else None, params)
        if task.codes is not None:
            check_present(self, task.codes[mass > 0])
        splits = self._splits(task, groups)
        if splits is None:
            self._fit_few(task, mass)
        elif isinstance(self.m, str):
            self._fit_auto(task, mass, splits)
        else:
            self._fit_ranked(task, mass, splits)
        if task.codes is not None:
            advice = "the class may be rare or hard, not mislabelled; look at its rows, or pass a smaller m"
            warn_of_lost_class(self.classes_, task.codes, mass, self.dropped_, advice, 2)
        return self

    def _check_settings(self) -> None:
        self._validate_params()
        base, wanted = self._base(), self.__sklearn_tags__().estimator_type
        if isinstance(base, type) or not hasattr(base, "fit"):
            example = "GaussianNB()" if wanted == "classifier" else "Ridge()"
            raise ValueError(f"estimator must be an instance with a method fit, got {base!r}; for example {example}")
        kind = getattr(_tags_of(base), "estimator_type", None)
        if {kind, wanted} == {"classifier", "regressor"}:
            raise ValueError(f"{type(self).__name__} needs a {wanted}, got the {kind} {type(base).__name__}")
        if isinstance(self.m, str) and self.k != 1.0:
            raise ValueError(f"k below n needs a given m, got m='auto' and k={self.k!r}; pass for example m=0.1")

    def _routed(self, sample_weight: Any, groups: Any, params: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Whether `fit` of the model gets weights, and its further arguments, which include groups if it takes them."""
        if not routing_enabled():
            if groups is not None and has_fit_parameter(self._base(), "groups"):
                params = {**params, "groups": np.asarray(groups)}
            return sample_weight is not None, params
        given = {name: v for name, v in (("sample_weight", sample_weight), ("groups", groups)) if v is not None}
        routed = dict(process_routing(self, "fit", **given, **params).estimator.fit)
        return routed.pop("sample_weight", None) is not None, routed

    def _splits(self, task: Task, groups: Any) -> Splits | None:
        """The folds and seeds of the fits; None if there are too few rows for out-of-fold predictions.

        That is fewer than 20 rows, with a given m one row. The folds of a splitter or a list are always used.
        """
        n, rng = len(task.y), np.random.default_rng(seed_of(self.random_state))
        check_consistent_length(task.y, groups)
        drawn = isinstance(self.cv, Integral)
        if drawn:
            n_folds = whole_number("cv", self.cv, 2)
            if n < (_MIN_ROWS if isinstance(self.m, str) else 2):
                return None
            n_folds = min(n_folds, n if groups is None else max(2, len(np.unique(groups))))
            folds = draw_folds(n, rng, strata=task.codes, groups=groups, n_folds=n_folds, n_repeats=1)
        else:
            folds = given_folds(self.cv, task.X, task.y, groups)
        *seeds, last_seed = rng.integers(2**31 - 1, size=len(folds) + 1).tolist()
        return Splits(folds, seeds, last_seed, rng, drawn and groups is None)

    def _cross_fit(self, task: Task, splits: Splits, keep: Array | None = None) -> FittedFolds:
        return fit_folds(self._base(), task, splits.folds, keep=keep, seeds=splits.seeds, n_jobs=self.n_jobs)

    def _fit_few(self, task: Task, mass: Array) -> None:
        """Fit the model to all rows and drop none, because there are too few rows for out-of-fold predictions."""
        if not isinstance(self.m, str):
            self._ranks(mass)  # an error unless m < k
        self.tuning_: dict[str, Array] = {}
        nothing = np.zeros(len(task.y))
        self._store_wrong(WrongRows(nothing, nothing > 0, 0.0, (0.0, 1.0)), mass)
        self._keep([], self._fit_whole(task, seed_of(self.random_state)), 1.0)

    def _store_wrong(self, found: WrongRows, mass: Array) -> None:
        self.p_wrong_, self.dropped_ = found.p_wrong, found.dropped & (mass > 0)
        self.m_, self.k_ = as_count(mass[self.dropped_].sum()), as_count(mass.sum())
        low, high = found.interval
        self.noise_estimate_, self.noise_interval_ = float(found.share), (float(low), float(high))

    def _fit_auto(self, task: Task, mass: Array, splits: Splits) -> None:
        given, mass = mass, mass / unit_of(mass)
        found, first = self._find_wrong(task, mass, splits)
        self._store_wrong(found, given)
        few = self.dropped_.mean() < _FEW_DROPPED
        before, last = 0.0 if few else self._before, first
        if self.dropped_.any() and (self.ensemble or self._gives_probabilities()):
            last = self._cross_fit(task, splits, ~self.dropped_)
        predicted = last.out_of_fold if not before else (1 - before) * last.out_of_fold + before * first.out_of_fold
        self._calibrate(task, predicted, found, mass)
        whole = self._fit_whole(task, splits.last_seed) if few or not self.ensemble else None
        parts = [(last.models, 1.0 - before), (first.models, before)]
        self._keep(parts, whole, _WHOLE if self.ensemble else 1.0)

    def _ranks(self, mass: Array) -> tuple[float, float]:
        return RankedRange(self.m, self.k).masses(float(mass.sum()), whole=is_whole(mass))

    def _fit_ranked(self, task: Task, mass: Array, splits: Splits) -> None:
        """Fit with a given m and k: alternate between fitting and ranking."""
        predicted_mass = np.where(splits.folds.tested, mass, 0.0)
        m, k = self._ranks(predicted_mass)

        def fit(keep: Array) -> FittedFolds:
            return self._cross_fit(task, splits, keep)

        end = alternate(fit, lambda found: self._losses(found, task), m, k, predicted_mass, _ROUNDS)
        predicted = np.isfinite(end.losses) & (predicted_mass > 0)
        weight = None if (mass == 1.0).all() else predicted_mass[predicted]
        cuts = m / predicted_mass.sum(), k / predicted_mass.sum()
        self.lam_, self.lam_hat_ = (
            float(cut) for cut in thresholds(end.losses[predicted], *cuts, sample_weight=weight)
        )
        self.losses_, self.dropped_ = end.losses, end.dropped
        self.m_, self.k_ = as_count(m), as_count(k)
        self.tuning_ = {"round": np.arange(len(end.values)), "objective": end.values}
        left_out = end.dropped | end.easy
        whole = None if self.ensemble else self._fit_whole(task, splits.last_seed, left_out)
        self._keep([(end.last.models, 1.0)], whole, 1.0)

    def _fit_whole(self, task: Task, seed: int, left_out: Array | None = None) -> Any:
        """A model of all kept rows, with the random state it was given: if nothing is dropped, the user's model."""
        left_out = self.dropped_ if left_out is None else left_out
        return fit_rows(self._base(), task, np.flatnonzero(~left_out), seed, keep_states=True)

    def _keep(self, parts: list[tuple[list[Any], float]], whole: Any, share: float) -> None:
        """Store the models to predict with: those of `parts`, with their weights, and `whole` with this share.

        If `whole` is None, it has no share. Without an ensemble it is the only model.
        """
        if not self.ensemble:
            self.estimator_ = whole
            return
        share = 0.0 if whole is None else share
        parts = [*((models, (1.0 - share) * weight) for models, weight in parts), ([whole], share)]
        models = [(model, weight / len(models)) for models, weight in parts if weight > 0 for model in models]
        self.estimators_ = [model for model, _ in models]
        self.estimator_weights_ = np.array([weight for _, weight in models])

    # ---- scikit-learn's interface

    @of_rows("ndarray of shape (n_samples,): The predicted classes or targets.", ANY_ROWS)
    def predict(self, X: Any) -> Array:
        """Predict the class or the target of each row of X, by the mean over the models."""
        check_is_fitted(self)
        if not self.ensemble:
            return np.asarray(self.estimator_.predict(X)).ravel()  # CatBoost predicts a column
        mean = self._mean_prediction(X)
        return mean if mean.ndim == 1 else np.asarray(self.classes_[mean.argmax(axis=1)])

    def _mean_prediction(self, X: Any) -> Array:
        """The mean over the models of their predictions (n,), of a classifier of the probabilities (n, classes)."""
        check_is_fitted(self)
        classes = getattr(self, "classes_", None)
        if not self.ensemble:
            return np.asarray(predict_with(self.estimator_, X, classes))
        X = by_rows(X)
        parts = zip(self.estimator_weights_, self.estimators_, strict=True)
        return np.asarray(sum(weight * predict_with(model, X, classes) for weight, model in parts))

    def get_metadata_routing(self) -> MetadataRouter:
        """Routing of metadata: `fit` uses weights and groups itself and passes on what the model requests."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        return router.add(estimator=self._base(), method_mapping=mapping)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimators_") or hasattr(self, "estimator_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        base = _tags_of(self._base())
        if base is not None:
            tags.input_tags = base.input_tags
        return tags


def _tags_of(model: Any) -> Any:
    """The scikit-learn tags of the model; None if it has none."""
    try:
        return get_tags(model)
    except (AttributeError, TypeError):
        return None
