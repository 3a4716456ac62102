"""Cross-fitting of any model, for classes or numeric targets, with features of any kind and sample weights.

X is only indexed by rows, so it may be anything that the model accepts.
"""

from __future__ import annotations

import difflib
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import has_fit_parameter

from ..compatibility import check_method_params, num_samples, safe_indexing
from ..core.arrays import Array
from ..errors import UserError
from .folds import Folds

# Integer weights become repeated rows up to this total, or up to the second number for models without sample weights.
_REPEATED_UP_TO, _REPEATED_AT_MOST = 5000, 1_000_000


@dataclass(frozen=True)
class Task:
    """The data of a fit: rows of X, targets y, the classes (None for a numeric target), weights, further arguments.

    `mass` is a weight per row, or None; `params` go to the `fit` of each model, sliced if they have one value per row.
    """

    X: Any
    y: Array
    classes: Array | None = None
    mass: Array | None = None
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def codes(self) -> Array | None:
        """The class code of each row; None for a numeric target."""
        return None if self.classes is None else np.searchsorted(self.classes, self.y)

    @property
    def numbered(self) -> bool:
        """Whether the classes are 0, 1, 2 and so on."""
        return self.classes is not None and np.array_equal(self.classes, np.arange(len(self.classes)))

    def repeated_for(self, model: Any) -> bool:
        """Whether weights are applied by repeating rows: integers whose sum is not too large."""
        if self.mass is None or not (self.mass == np.floor(self.mass)).all():
            return False
        total, few = self.mass.sum(), max(len(self.y), _REPEATED_UP_TO)
        return bool(total <= few or (total <= _REPEATED_AT_MOST and not _takes_weights(model)))


@dataclass(frozen=True)
class FittedFolds:
    """The fitted models, and their predictions of their test rows: probabilities (rows, classes), or values (rows,)."""

    models: list[Any]
    parts: list[Array]
    folds: Folds

    @property
    def out_of_fold(self) -> Array:
        """The mean prediction, (n, classes) or (n,), of the models fitted without the row; NaN if there is none."""
        return self.folds.average(self.parts)


def fit_folds(
    model: Any,
    task: Task,
    folds: Folds,
    *,
    keep: Array | None = None,
    seeds: Any = None,
    n_jobs: int | None = None,
) -> FittedFolds:
    """Copies of the model, with a seed each, fitted to the training rows of each fold that are in `keep`."""
    seeds = [None] * len(folds) if seeds is None else seeds
    kept = np.ones(len(task.y), dtype=bool) if keep is None else keep
    found = Parallel(n_jobs=n_jobs)(
        delayed(_fit_and_predict)(model, task, np.flatnonzero(train & kept), np.flatnonzero(test), seed)
        for train, test, seed in zip(folds.train, folds.test, seeds, strict=True)
    )
    return FittedFolds([fitted for fitted, _ in found], [part for _, part in found], folds)


def _fit_and_predict(model: Any, task: Task, rows: Array, test_rows: Array, seed: int | None) -> tuple[Any, Array]:
    fitted = fit_rows(model, task, rows, seed)
    return fitted, predict_with(fitted, safe_indexing(task.X, test_rows), task.classes)


def fit_rows(model: Any, task: Task, rows: Array, seed: int | None = None, *, keep_states: bool = False) -> Any:
    """A copy of the model fitted to these rows of positive weight; if they are of one class, a constant classifier.

    If the classes are 0, 1, 2 and so on, and the rows lack some of them, it is a `Renumbered` model. `seed` sets the
    random states of the copy; with `keep_states`, only those that the user has not set.
    """
    if task.mass is not None:
        rows = rows[task.mass[rows] > 0]
    if not len(rows):
        raise ValueError("a fit needs at least one row, got none; use fewer folds, or drop fewer rows")
    params = check_method_params(task.X, task.params, indices=rows)
    weight = None
    if task.repeated_for(model):
        assert task.mass is not None
        rows = np.repeat(rows, task.mass[rows].astype(np.intp))
        params = check_method_params(task.X, task.params, indices=rows)
    elif task.mass is not None:
        weight = task.mass[rows]
    y = task.y[rows]
    if task.classes is not None and (y == y[0]).all():
        return DummyClassifier(strategy="prior").fit(np.zeros((len(y), 1)), y)
    if weight is not None:
        params = {**params, weight_name(model): weight}
    copy, X, present = seeded(fresh(model), seed, keep_states), safe_indexing(task.X, rows), np.unique(y)
    if task.numbered and not np.array_equal(present, np.arange(len(present))):
        return Renumbered(copy.fit(X, np.searchsorted(present, y), **params), present)
    return copy.fit(X, y, **params)


class Renumbered:
    """A classifier of rows that lack some of the classes 0..K-1, fitted to 0, 1, ... without gaps, as XGBoost needs."""

    def __init__(self, model: Any, classes: Array) -> None:
        self.model, self.classes_ = model, classes

    def predict(self, X: Any) -> Array:
        return np.asarray(self.classes_[np.asarray(self.model.predict(X)).ravel().astype(np.intp)])

    @available_if(lambda self: hasattr(self.model, "predict_proba"))
    def predict_proba(self, X: Any) -> Array:
        return np.asarray(self.model.predict_proba(X))

    @available_if(lambda self: hasattr(self.model, "decision_function"))
    def decision_function(self, X: Any) -> Array:
        return np.asarray(self.model.decision_function(X))


def fresh(model: Any) -> Any:
    """An unfitted copy: a clone, or a deep copy of models that scikit-learn cannot clone, such as some of CatBoost."""
    try:
        return clone(model)
    except (RuntimeError, TypeError):
        return deepcopy(model)


def seeded(model: Any, seed: int | None, keep_states: bool = False) -> Any:
    """Set every random state inside the model from the seed and return it; with `keep_states`, only those not set."""
    if seed is None or not hasattr(model, "get_params"):
        return model
    rng, params = np.random.RandomState(seed), model.get_params()
    names = [name for name in sorted(params) if name == "random_state" or name.endswith("__random_state")]
    drawn = {name: int(rng.randint(2**31 - 1)) for name in names}
    return model.set_params(**{name: drawn[name] for name in names if not keep_states or params[name] is None})


def weight_name(model: Any) -> str:
    """The name of the model's `fit` argument for sample weights; in a pipeline that of its last step."""
    if not _takes_weights(model):
        raise ValueError(
            "sample_weight needs a model whose fit takes it, unless the weights are whole and at most "
            f"{_REPEATED_AT_MOST:,} in all, got {type(_last_step(model)[1]).__name__}; pass smaller whole "
            "weights, which repeat rows, or another estimator"
        )
    return f"{_last_step(model)[0]}sample_weight"


def _takes_weights(model: Any) -> bool:
    inner = _last_step(model)[1]
    return hasattr(inner, "fit") and has_fit_parameter(inner, "sample_weight")


def _last_step(model: Any) -> tuple[str, Any]:
    """The last step of a (nested) pipeline with the prefix of its arguments; otherwise the model itself."""
    prefix, inner = "", model
    while hasattr(inner, "steps"):
        name, inner = inner.steps[-1]
        prefix += f"{name}__"
    return prefix, inner


def predict_with(fitted: Any, X: Any, classes: Array | None) -> Array:
    """Probabilities (n, classes) in the order of `classes`, or values (n,) if `classes` is None.

    Classes that the model was not fitted to have probability 0.
    """
    if classes is None:
        return np.asarray(fitted.predict(X), dtype=np.float64).reshape(num_samples(X))
    fitted_classes = fitted.classes_ if hasattr(fitted, "classes_") else classes
    P = np.zeros((num_samples(X), len(classes)))
    P[:, np.searchsorted(classes, fitted_classes)] = _probabilities(fitted, X, fitted_classes)
    return P


def _probabilities(fitted: Any, X: Any, fitted_classes: Array) -> Array:
    """Probabilities (n, classes), from predict_proba, the decision function as logits, or the predicted labels."""
    if hasattr(fitted, "predict_proba"):
        P = np.asarray(fitted.predict_proba(X), dtype=np.float64)
        return P / P.sum(axis=1, keepdims=True)
    if hasattr(fitted, "decision_function"):
        Z = np.asarray(fitted.decision_function(X), dtype=np.float64)
        return np.stack([expit(-Z), expit(Z)], axis=1) if Z.ndim == 1 else np.asarray(softmax(Z, axis=1))
    return np.asarray(np.asarray(fitted.predict(X)).ravel()[:, None] == np.asarray(fitted_classes), dtype=np.float64)


def by_rows(X: Any) -> Any:
    """X in a form that can be indexed by rows: unchanged if possible, otherwise as CSR or array."""
    if sp.issparse(X):
        return X.tocsr()
    return np.asarray(X) if hasattr(X, "__array__") and not hasattr(X, "shape") else X


def classifier_named(name: str) -> Any:
    """A scikit-learn classifier with `predict_proba` by name, with default settings and random_state=0.

    Other classes are not allowed, so no other code can run.
    """
    from sklearn.utils import all_estimators

    kinds = {key: kind for key, kind in all_estimators("classifier") if hasattr(kind, "predict_proba")}
    if name not in kinds:
        near = difflib.get_close_matches(name, kinds, n=1, cutoff=0.0)[0]
        raise UserError(
            f"estimator names a classifier of scikit-learn that has predict_proba, got {name!r}; did you mean {near}?"
        )
    try:
        model = kinds[name]()
    except TypeError:  # for example VotingClassifier, which needs other estimators
        raise UserError(f"estimator must work with its default settings, {name} does not; use another one") from None
    return model.set_params(random_state=0) if "random_state" in model.get_params() else model
