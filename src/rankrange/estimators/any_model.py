"""Shared by RankedRangeClassifier and RankedRangeRegressor: the ranked range for any model.

Out-of-fold predictions give each row a probability of being wrong, the rows that are probably wrong are dropped, and an
ensemble is fitted to the others. The probabilities come from `label_noise` (classes) and `outliers` (numeric targets).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_consistent_length, check_is_fitted, has_fit_parameter

from ..compatibility import (
    check_feature_names,
    check_n_features,
    check_sample_weight,
    num_features,
    routing_enabled,
)
from ..core.arrays import Array
from ..core.ranges import RankedRange
from ..core.select import thresholds
from ..crossfit.alternate import alternate
from ..crossfit.folds import Folds, draw_folds, given_folds, whole_number
from ..crossfit.models import FittedFolds, Task, by_rows, fit_folds, fit_rows, predict_with
from ..label_noise import LIKELY
from .weights import as_count, is_whole, scale_of, unit_of

# Out-of-fold predictions from fewer rows than this are uninformative.
_MIN_ROWS = 20
# A given m needs at least this many rows.
_MIN_RANKED = 4
_ROUNDS = 5
# With at least this many independent rows (a group counts as 25), a fit to half of the rows is accurate enough: boosted
# trees need 20 rows in a leaf.
MIN_TO_HALVE = 200
# If less than this share is dropped, there is little noise to average out, and larger training sets are better.
_FEW = 0.01
# Weight of the model of all kept rows in that case. 1/2 is best for boosted trees, 1 for forests, which average
# already.
_WHOLE = 0.75
# Weight of the models fitted before rows were dropped. Some dropped rows are hard, not wrong, and models that were
# never trained on hard rows are overconfident.
_BEFORE = 0.25
# Attributes that exist only with some settings.
_STORED = (
    "estimator_",
    "estimators_",
    "estimator_weights_",
    "losses_",
    "lam_",
    "lam_hat_",
    "p_wrong_",
    "noise_estimate_",
    "noise_interval_",
    "residuals_",
)


class WrongRows(NamedTuple):
    """p_wrong (n,), the share of wrong rows with its 95% interval, and whether fits without these rows are better.

    `no_error` is the probability that no label is wrong; regression has no use for it.
    """

    p_wrong: Array
    share: float
    interval: tuple[float, float]
    harm: bool = True
    no_error: float = 0.0


@dataclass(frozen=True)
class Plan:
    """The folds, a seed for the model of each fold and one for the model of all rows, the generator, and the groups."""

    folds: Folds
    seeds: list[int]
    last_seed: int
    rng: np.random.Generator
    groups: Any = None
    per_repeat: int = 0  # folds in each repeat; 0 if the folds were given

    @property
    def free(self) -> bool:
        """Whether a row may be predicted from any other row: no groups, and no given folds."""
        return self.per_repeat > 0 and self.groups is None

    def independent(self, n: int) -> int:
        """The effective number of independent rows among n: all, or 25 for each group."""
        return n if self.groups is None else 25 * len(np.unique(self.groups))

    def _draw(self, strata: Array | None, n: int, n_folds: int, repeats: int) -> Folds:
        """Draw folds of n rows: this many, or as many as there are groups."""
        n_folds = n_folds if self.groups is None else min(n_folds, len(np.unique(self.groups)))
        return draw_folds(n, self.rng, strata=strata, groups=self.groups, n_folds=n_folds, n_repeats=repeats)

    def first(self, repeats: int) -> Plan:
        """The plan with the first `repeats` repeats only; with all folds if they were given."""
        count = repeats * self.per_repeat or len(self.folds)
        return replace(self, folds=self.folds.first(count), seeds=self.seeds[:count])

    def larger(self, task: Task) -> Plan:
        """A plan with about half as many fits, but at least five, each to four fifths of the rows.

        With fewer than five groups, there is a fold for each group.
        """
        drawn = self._draw(task.codes, len(task.y), 5, max(1, len(self.folds) // 10))
        return replace(self, folds=drawn, seeds=self.rng.integers(2**31 - 1, size=len(drawn)).tolist())

    def quarters(self, strata: Array, repeats: int) -> Plan:
        """A plan of fits to a quarter of the rows, or to one of fewer than four groups, which predict the others."""
        drawn = self._draw(strata, len(strata), 4, repeats)
        seeds = self.rng.integers(2**31 - 1, size=len(drawn)).tolist()
        return replace(self, folds=Folds(drawn.test, drawn.train), seeds=seeds)


class RankedRangeModel(MetaEstimatorMixin, BaseEstimator):
    """Base class of the classifier and the regressor: folds, weights, the alternation for a given m, final fits."""

    def __init__(
        self,
        estimator: Any = None,
        m: Any = "auto",
        *,
        k: Any = 1.0,
        refit: str = "ensemble",
        n_repeats: int = 5,
        cv: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.m = m
        self.k = k
        self.refit = refit
        self.n_repeats = n_repeats
        self.cv = cv
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # Whether the models of the ensemble are fitted to four fifths of the kept rows or to halves of them.
    _learns_from_fifths = False

    def _base(self) -> Any:
        raise NotImplementedError

    def _losses(self, fit: FittedFolds, task: Task) -> Array:
        """Array (n,): the out-of-fold loss of each row; NaN for rows without a prediction."""
        raise NotImplementedError

    def _find_wrong(self, task: Task, mass: Array, plan: Plan) -> tuple[WrongRows, FittedFolds | None]:
        """The posterior of wrong rows, and the fits to four fifths of the rows; None if there are no such fits."""
        raise NotImplementedError

    # ---- fitting

    def _fit(self, X: Any, y: Array, classes: Array | None, sample_weight: Any, groups: Any, params: Any) -> None:
        self._check_settings()
        mass = mass_of_rows(sample_weight, len(y))
        if classes is not None:
            _check_classes(self, y, mass)
        weighted, params = self._routed(sample_weight, groups, params)
        scale = scale_of(mass) if isinstance(self.m, str) else 1.0
        task = Task(X, y, classes, mass / scale if weighted else None, params)
        for name in _STORED:
            self.__dict__.pop(name, None)  # left from an earlier fit with other settings
        plan = self._plan(task, groups)
        if plan is None:
            self._fit_few(task, mass)
        elif isinstance(self.m, str):
            self._fit_auto(task, mass, plan)
        else:
            self._fit_ranked(task, mass, plan)

    def _check_settings(self) -> None:
        base, wanted = self._base(), self.__sklearn_tags__().estimator_type
        if isinstance(base, type) or not hasattr(base, "fit"):
            example = "GaussianNB()" if wanted == "classifier" else "Ridge()"
            remedy = f"for example {example}"
            if isinstance(base, type) and hasattr(base, "fit"):
                remedy = f"an instance of it, {base.__name__}()"
            raise ValueError(f"estimator must have a method fit, got {base!r}; pass {remedy}")
        kind = getattr(_tags_of(base), "estimator_type", None)
        if {kind, wanted} == {"classifier", "regressor"}:
            raise ValueError(f"{type(self).__name__} needs a {wanted}, got the {kind} {type(base).__name__}")
        if isinstance(self.m, str) and self.m != "auto":
            raise ValueError(f"m must be 'auto', an int (a count) or a float in [0, 1], got {self.m!r}")
        if isinstance(self.m, str) and self.k != 1.0:
            raise ValueError(f"k below n needs a given m, got m='auto' and k={self.k!r}; pass for example m=0.1")
        if self.refit not in ("ensemble", "single"):
            raise ValueError(f"refit must be 'ensemble' or 'single', got {self.refit!r}")
        whole_number("n_repeats", self.n_repeats, 1)

    def _routed(self, sample_weight: Any, groups: Any, params: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Whether `fit` of the model gets weights, and its further arguments, which include groups if it takes them."""
        if not routing_enabled():
            if groups is not None and has_fit_parameter(self._base(), "groups"):
                params = {**params, "groups": np.asarray(groups)}
            return sample_weight is not None, params
        given = {name: v for name, v in (("sample_weight", sample_weight), ("groups", groups)) if v is not None}
        routed = dict(process_routing(self, "fit", **given, **params).estimator.fit)
        return routed.pop("sample_weight", None) is not None, routed

    def _plan(self, task: Task, groups: Any) -> Plan | None:
        """The folds and seeds of the fits; None if there are too few rows for out-of-fold predictions.

        That is fewer than 20 rows, with a given m fewer than 4. The folds of a splitter or a list are always used.
        """
        n, rng = len(task.y), np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        if groups is not None:
            check_consistent_length(task.y, groups)
        if self.cv is None or (isinstance(self.cv, int | np.integer) and not isinstance(self.cv, bool)):
            n_folds = 2 if self.cv is None else whole_number("cv", self.cv, 2)
            if n < (_MIN_ROWS if isinstance(self.m, str) else _MIN_RANKED):
                return None
            repeats = int(self.n_repeats)
            folds = draw_folds(n, rng, strata=task.codes, groups=groups, n_folds=n_folds, n_repeats=repeats)
        else:
            folds, n_folds = given_folds(self.cv, task.X, task.y, groups), 0
        *seeds, last_seed = rng.integers(2**31 - 1, size=len(folds) + 1).tolist()
        return Plan(folds, seeds, last_seed, rng, groups, n_folds)

    def _cross_fit(self, task: Task, plan: Plan, keep: Array | None = None) -> FittedFolds:
        return fit_folds(self._base(), task, plan.folds, keep=keep, seeds=plan.seeds, n_jobs=self.n_jobs)

    def _fit_few(self, task: Task, mass: Array) -> None:
        """Fit the model to all rows and drop none, because there are too few rows for out-of-fold predictions.

        A given m above 0 is an error.
        """
        if not isinstance(self.m, str) and self._ranks(mass)[0] > 0:
            raise ValueError(
                f"dropping rows by their out-of-fold loss needs at least {_MIN_RANKED} rows, got "
                f"n_samples = {len(task.y)}; pass m='auto' or m=0"
            )
        self.p_wrong_ = np.zeros(len(task.y))
        self.dropped_ = np.zeros(len(task.y), dtype=bool)
        self.m_: float = 0
        self.k_: float = as_count(mass.sum())
        self.noise_estimate_, self.noise_interval_ = 0.0, (0.0, 1.0)
        self.tuning_: dict[str, Array] = {}
        self._keep(task, None, self.dropped_, check_random_state(self.random_state).randint(2**31 - 1))

    def _fit_auto(self, task: Task, mass: Array, plan: Plan) -> None:
        given, mass = mass, mass / unit_of(mass)
        found, fifths = self._find_wrong(task, mass, plan)
        self.p_wrong_ = found.p_wrong
        self.dropped_ = self._cut(task, found, mass) & (mass > 0)
        self.m_, self.k_ = as_count(given[self.dropped_].sum()), as_count(given.sum())
        low, high = found.interval
        self.noise_estimate_, self.noise_interval_ = float(found.share), (float(low), float(high))
        self._report(f"{int(self.dropped_.sum())} of {len(mass)} rows are probably wrong and were dropped")
        small = plan.independent(len(mass)) < MIN_TO_HALVE
        hardly_trimmed = self.cv is None and (small or self.dropped_.mean() < _FEW)
        single = self.refit == "single"
        fit = before = None
        if not single or self._gives_probabilities():
            if self.cv is None and fifths is not None and not self.dropped_.any():
                fit = fifths  # no row was dropped, so these fits are still valid
            else:
                large = self.cv is None and (hardly_trimmed or single or self._learns_from_fifths)
                fit = self._cross_fit(task, plan.larger(task) if large else plan, ~self.dropped_)
                before = None if hardly_trimmed or single else fifths
            predicted = fit.out_of_fold
            if before is not None:
                predicted = (1.0 - _BEFORE) * predicted + _BEFORE * before.out_of_fold
            self._calibrate(task, predicted, found, mass)
        self._keep(task, fit, self.dropped_, plan.last_seed, whole=hardly_trimmed, before=before)

    def _gives_probabilities(self) -> bool:
        return False

    def _calibrate(self, task: Task, predicted: Array, found: WrongRows, mass: Array) -> None:
        """Fit the temperature of the probabilities to out-of-fold predictions; a regressor has none."""

    def _cut(self, task: Task, found: WrongRows, mass: Array) -> Array:
        return np.asarray(found.p_wrong >= LIKELY) & found.harm

    def _ranks(self, mass: Array) -> tuple[float, float]:
        return RankedRange(self.m, self.k).masses(float(mass.sum()), whole=is_whole(mass))

    def _fit_ranked(self, task: Task, mass: Array, plan: Plan) -> None:
        """Fit with a given m and k: alternate between fitting and ranking."""
        predicted_mass = np.where(plan.folds.tested, mass, 0.0)
        m, k = self._ranks(predicted_mass)

        def fit(keep: Array) -> FittedFolds:
            return self._cross_fit(task, plan, keep)

        end = alternate(fit, lambda found: self._losses(found, task), m, k, predicted_mass, _ROUNDS, self._report)
        predicted = np.isfinite(end.losses) & (predicted_mass > 0)
        weight = None if (mass == 1.0).all() else predicted_mass[predicted]
        cuts = m / predicted_mass.sum(), k / predicted_mass.sum()
        self.lam_, self.lam_hat_ = (
            float(cut) for cut in thresholds(end.losses[predicted], *cuts, sample_weight=weight)
        )
        self.losses_, self.dropped_ = end.losses, end.dropped
        self.m_, self.k_ = as_count(m), as_count(k)
        self.tuning_ = {"round": np.arange(len(end.values)), "objective": end.values}
        self._keep(task, end.last, end.dropped | end.easy, plan.last_seed)

    def _keep(
        self,
        task: Task,
        fit: FittedFolds | None,
        left_out: Array,
        seed: int,
        whole: bool = False,
        before: FittedFolds | None = None,
    ) -> None:
        """Store the models to predict with: those of the folds, or one model of all kept rows.

        `whole` adds a model of all kept rows with most of the weight. It keeps the random state it was given, so it
        equals the user's model exactly if nothing is dropped. Models fitted `before` rows were dropped get a small
        weight.
        """
        single = self.refit == "single"
        parts = [] if single or fit is None else list(fit.models)
        if whole or not parts:
            parts.append(fit_rows(self._base(), task, np.flatnonzero(~left_out), seed, keep_states=True))
        if single:
            self.estimator_ = parts[0]
            return
        self.estimators_ = parts
        self.estimator_weights_ = np.full(len(parts), 1.0 / len(parts))
        if whole and len(parts) > 1:
            self.estimator_weights_[:] = (1.0 - _WHOLE) / (len(parts) - 1)
            self.estimator_weights_[-1] = _WHOLE
        if before is not None:
            self.estimators_ = parts + before.models
            shares = (1.0 - _BEFORE, len(parts)), (_BEFORE, len(before.models))
            self.estimator_weights_ = np.concatenate([np.full(count, share / count) for share, count in shares])

    def _report(self, message: str) -> None:
        if self.verbose:
            print(message)

    # ---- scikit-learn's interface

    def _take(self, X: Any) -> Any:
        """Return X in a form that can be indexed by rows, and store the number and names of its columns, if any."""
        X = by_rows(X)
        check_feature_names(self, X, reset=True)
        try:
            num_features(X)
        except (TypeError, ValueError):
            self.__dict__.pop("n_features_in_", None)  # lists of texts have no columns
        else:
            check_n_features(self, X, reset=True)
        return X

    def _mean_prediction(self, X: Any, classes: Array | None) -> Array:
        check_is_fitted(self, ["estimators_"])
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


def mass_of_rows(sample_weight: Any, n: int) -> Array:
    """Validate the weights of n rows and return them; ones if `sample_weight` is None."""
    if sample_weight is None:
        return np.ones(n)
    return np.asarray(check_sample_weight(sample_weight, np.zeros((n, 1)), dtype=np.float64, ensure_non_negative=True))


def _check_classes(model: Any, y: Array, mass: Array) -> None:
    present = np.unique(y[mass > 0])
    if len(present) < 2:
        raise ValueError(
            f"{type(model).__name__} needs at least two classes with positive weight, got one class: "
            f"{present.tolist()}; check y"
        )
