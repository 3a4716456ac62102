"""Grid search over m, k and C by cross-validation, along paths of m.

`RangeSearchCV` is like scikit-learn's GridSearchCV, with the same tables and attributes. All m of a grid that share k,
C and other parameters are one task: the largest m is searched from many starts, and each smaller m from few starts, one
of which is the previous solution. `paper_grid` is the grid of the paper.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, get_routing_for_object

__all__ = ["RangeSearchCV", "paper_grid"]

Group = tuple[dict[str, Any], tuple[Any, ...]]
# The number of starts of fits that follow another.
_FEW_STARTS = 2
_ENOUGH = 1e-3


def paper_grid(n: int, *, k: Iterable[float] = (), m: Iterable[float] = (), C: Iterable[float] = ()) -> list[Any]:
    """The grid of the paper, as a param_grid for a grid search.

    Parameters
    ----------
    n : int
        The number of rows of a training fold.
    k : iterable of float, optional
        Values of k to try, as shares of n, besides 1/n; by default 0.1, 0.2, ..., 1.
    m : iterable of float, optional
        Values of m to try, as shares of k, besides 0 (which is AT_k) and 1/k; by default 0.05 to 0.8. For k = 1/n only
        m = 0 is tried.
    C : iterable of float, optional
        Values of C to try, on scikit-learn's scale; by default 1/n, 10/n, ..., 10^5/n. The paper's values, 1 to 10^5,
        are relative to the mean of the kept losses; for k = n and m = 0 they give the same fits.

    Returns
    -------
    list of dict
        One grid per k, with k and m as counts; k = n is the fraction 1.0.

    Examples
    --------
    >>> from rankrange.crossfit.grid import paper_grid
    >>> paper_grid(100, k=[0.5], m=[0.1], C=[1.0])
    [{'k': [1], 'm': [0], 'C': [1.0]}, {'k': [50], 'm': [0, 1, 5], 'C': [1.0]}]
    """
    ks = sorted({1, *(round(share * n) for share in tuple(k) or np.arange(1, 11) / 10)} - {0})
    shares = tuple(m) or (0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
    Cs = [float(c) for c in tuple(C) or 10.0 ** np.arange(6) / n]
    grid = []
    for count in ks:
        ms = sorted({1, *(round(share * count) for share in shares)} - {0, count}) if count > 1 else []
        grid.append({"k": [count if count < n else 1.0], "m": [0, *ms], "C": Cs})
    return grid


class RangeSearchCV(GridSearchCV):
    """Grid search for AoRRClassifier and AoRRRegressor, with warm starts from one m to the next within each fold.

    Parameters, attributes and methods are those of GridSearchCV, with one metric. The fits of a fold that differ only
    in m are one task for `n_jobs`. After its first m, a path has at most two random starts and a tolerance of at least
    0.001, and UserWarnings of the fits of a path are suppressed. The refit at the end searches from many starts, as
    usual.

    Parameters
    ----------
    estimator : AoRRClassifier, AoRRRegressor or PartialAUCClassifier
        The model to fit.
    param_grid : dict or list of dict
        Values to try; each grid must contain m if the estimator has it. `paper_grid` is the grid of the paper. A
        PartialAUCClassifier has no m, and its fits are not warm-started.
    scoring, n_jobs, refit, cv, verbose, pre_dispatch, error_score, return_train_score : object
        As in GridSearchCV.

    Attributes
    ----------
    best_params_, best_score_, best_estimator_, best_index_, cv_results_, n_splits_, refit_time_, scorer_
        As in GridSearchCV.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from rankrange import AoRRClassifier
    >>> from rankrange.crossfit.grid import RangeSearchCV
    >>> X, y = make_classification(80, 4, flip_y=0.2, random_state=0)
    >>> search = RangeSearchCV(AoRRClassifier(random_state=0), {"m": [0, 0.1, 0.2], "k": [1.0]}, cv=2).fit(X, y)
    >>> len(search.cv_results_["params"]), sorted(search.best_params_)
    (3, ['k', 'm'])
    """

    def fit(self, X: Any, y: Any = None, **params: Any) -> RangeSearchCV:
        """Search the grid, then fit the best parameters to all rows (unless refit=False).

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n_samples, n_features)
            The rows.
        y : array_like of shape (n_samples,)
            Their targets.
        **params
            As in GridSearchCV: `groups` for the folds, others for the estimator's `fit` or, with metadata routing, for
            the objects that request them.

        Returns
        -------
        RangeSearchCV
            The search itself.
        """
        if not isinstance(self.scoring, str | None) and not callable(self.scoring):
            raise ValueError(f"RangeSearchCV takes one metric: a name or a function; got scoring={self.scoring!r}")
        scorer = check_scoring(self.estimator, self.scoring)
        if "m" not in self.estimator.get_params(deep=False):
            super().fit(X, y, **params)
            return self
        groups = _paths(self.param_grid)
        inner = GridSearchCV(
            _Path(self.estimator, {}, ()),
            [{"fixed": [fixed], "ms": [ms]} for fixed, ms in groups],
            scoring=_OfEach(scorer, max(len(ms) for _, ms in groups)),
            n_jobs=self.n_jobs,
            refit=False,
            cv=self.cv,
            verbose=self.verbose,
            pre_dispatch=self.pre_dispatch,
            error_score=self.error_score,
            return_train_score=self.return_train_score,
        ).fit(X, y, **params)
        self.scorer_, self.multimetric_, self.n_splits_ = scorer, False, inner.n_splits_
        self.cv_results_ = _rows(groups, inner.cv_results_, self.n_splits_)
        self._take_best(X, y, self._get_routed_params_for_fit(params).estimator.fit)
        return self

    def _take_best(self, X: Any, y: Any, params: dict[str, Any]) -> None:
        if not self.refit:
            return
        ranks = self.cv_results_["rank_test_score"]
        self.best_index_ = int(self.refit(self.cv_results_) if callable(self.refit) else ranks.argmin())
        self.best_params_ = self.cv_results_["params"][self.best_index_]
        if not callable(self.refit):
            self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.best_estimator_ = clone(self.estimator).set_params(**self.best_params_)
        start = time.time()
        self.best_estimator_.fit(X, y, **params)
        self.refit_time_ = time.time() - start
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_


def _paths(param_grid: Any) -> list[Group]:
    """Candidates grouped by all parameters except m: (the shared parameters, all m)."""
    groups: list[tuple[dict[str, Any], list[Any]]] = []
    grids = [param_grid] if isinstance(param_grid, Mapping) else param_grid
    for grid in grids:
        if "m" not in grid:
            raise ValueError(f"RangeSearchCV follows paths of m, got a param_grid without m: {sorted(grid)}; add m")
        others = {name: values for name, values in grid.items() if name != "m"}
        groups += [(fixed, list(grid["m"])) for fixed in ParameterGrid(others)]
    return [(fixed, tuple(ms)) for fixed, ms in groups]


class _Path(BaseEstimator):
    """An estimator that fits a model for each m, the largest first; `path_` has them in the order of `ms`."""

    def __init__(self, estimator: Any, fixed: dict[str, Any], ms: tuple[Any, ...]) -> None:
        self.estimator = estimator
        self.fixed = fixed
        self.ms = ms

    def __sklearn_tags__(self) -> Any:
        return get_tags(self.estimator)  # folds are stratified for a classifier

    def get_metadata_routing(self) -> MetadataRouter:
        """Arguments of `fit` are passed to the fits of the estimator."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=type(self).__name__).add(estimator=self.estimator, method_mapping=mapping)

    def fit(self, X: Any, y: Any, **params: Any) -> _Path:
        with warnings.catch_warnings():
            # Candidates may drop a class or stop early. Only the refitted model warns.
            warnings.simplefilter("ignore", UserWarning)
            self.path_ = self._follow(X, y, params)
        return self

    def _follow(self, X: Any, y: Any, params: dict[str, Any]) -> list[Any]:
        found: dict[int, Any] = {}
        last = None
        sizes = [_size(m, len(y)) for m in self.ms]
        for index in sorted(range(len(self.ms)), key=lambda i: -sizes[i]):
            model = clone(self.estimator).set_params(**self.fixed, m=self.ms[index])
            if last is not None:
                few = min(_FEW_STARTS, model.n_starts)
                model.set_params(warm_start=True, n_starts=few, tol=max(model.tol, _ENOUGH))
                model.coef_, model.intercept_ = last.coef_, last.intercept_
            found[index] = model.fit(X, y, **params)
            last = model if np.isfinite(sizes[index]) else None
        return [found[index] for index in range(len(self.ms))]


def _size(m: Any, n: int) -> float:
    """m in rows of n; infinite for "auto" and ranges, which are fitted first, each without a start from another."""
    if isinstance(m, int | float | np.number):
        return float(m) if isinstance(m, int | np.integer) else float(m) * n
    return np.inf


class _OfEach:
    """A scorer that returns a dict with the score of each fit of a path; shorter paths are padded with unused zeros."""

    def __init__(self, scorer: Any, longest: int) -> None:
        self.scorer = scorer
        self.longest = longest

    def get_metadata_routing(self) -> Any:
        """The routing of the scorer."""
        return get_routing_for_object(self.scorer)

    def _accept_sample_weight(self) -> bool:
        """Whether the scorer takes sample weights; GridSearchCV asks this if metadata routing is off."""
        if hasattr(self.scorer, "_accept_sample_weight"):
            return bool(self.scorer._accept_sample_weight())
        return "sample_weight" in signature(self.scorer).parameters

    def __call__(self, path: _Path, X: Any, y: Any, **params: Any) -> dict[str, float]:
        scores = [float(self.scorer(model, X, y, **params)) for model in path.path_]
        return {f"m{i}": scores[i] if i < len(scores) else 0.0 for i in range(self.longest)}


def _rows(groups: list[Group], results: dict[str, Any], n_splits: int) -> dict[str, Any]:
    """`cv_results_` in the format of GridSearchCV, with a row for each m of each group.

    The time of a path is divided equally among its m.
    """
    params = [{**fixed, "m": m} for fixed, ms in groups for m in ms]
    positions = [(group, index) for group, (_, ms) in enumerate(groups) for index in range(len(ms))]
    table: dict[str, Any] = {}
    for name in ("mean_fit_time", "std_fit_time", "mean_score_time", "std_score_time"):
        table[name] = np.array([results[name][group] / len(groups[group][1]) for group, _ in positions])
    for name in sorted({key for row in params for key in row}):
        column = np.ma.masked_all(len(params), dtype=object)
        for i, row in enumerate(params):
            if name in row:
                column[i] = row[name]
        table[f"param_{name}"] = column
    table["params"] = params
    for kind in ("test", "train"):
        if f"split0_{kind}_m0" not in results:
            continue
        scores = np.array([[results[f"split{s}_{kind}_m{p}"][g] for s in range(n_splits)] for g, p in positions])
        table.update({f"split{s}_{kind}_score": scores[:, s] for s in range(n_splits)})
        table[f"mean_{kind}_score"], table[f"std_{kind}_score"] = scores.mean(axis=1), scores.std(axis=1)
    mean = np.nan_to_num(table["mean_test_score"], nan=-np.inf)
    table["rank_test_score"] = np.array([1 + int((mean > value).sum()) for value in mean], dtype=np.int32)
    return table
