"""Fits with an l1 penalty (`l1_ratio` above 0): validation of parameters, and the fitted attributes."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ..core.aggregates import Stratified
from ..core.arrays import Array
from ..core.losses import Huber, Logistic, Softmax, Squared
from ..core.objective import Design, Objective
from ..solvers.descent import Log, finish, relative
from ..solvers.sparse import Cut, ElasticNet, trimmed_net
from .aggregated import is_per_class
from .weights import as_count, canonical_rows, is_whole, product_of

_LOSSES = (Logistic, Softmax, Squared, Huber)


def check_l1_ratio(estimator: Any) -> None:
    """Raise an error if l1_ratio is not in [0, 1], or if another parameter does not support an l1 penalty."""
    ratio = estimator.l1_ratio
    if isinstance(ratio, bool) or not isinstance(ratio, numbers.Real) or not 0.0 <= float(ratio) <= 1.0:
        raise ValueError(f"l1_ratio must be a number in [0, 1], got {ratio!r}; 0 is the l2 penalty, 1 the l1 penalty")
    if ratio == 0:
        return
    if estimator.aggregate is not None and not is_per_class(estimator.aggregate):
        _refuse(estimator, "aggregate", "leave aggregate out")
    if getattr(estimator, "step", None) is not None:
        _refuse(estimator, "step", "leave step out")
    of_class = "AoRRClassifierCV" if is_classifier(estimator) else "AoRRRegressorCV"
    for name in ("m", "C"):
        if isinstance(getattr(estimator, name), str):
            _refuse(estimator, name, f"pass a number, or use {of_class}, which chooses m and C together")
    if isinstance(estimator.k, str) and estimator.k == "adaptive":
        _refuse(estimator, "k", "pass a number")


def _refuse(estimator: Any, name: str, remedy: str) -> None:
    raise ValueError(
        f"l1_ratio={estimator.l1_ratio!r} does not support {name}={getattr(estimator, name)!r}; {remedy}, or use "
        "l1_ratio=0"
    )


def fit_sparse(
    estimator: Any, X: Any, y: Array, weight: Array | None, factor: Array | None, loss: Any, n_outputs: int, seed: int
) -> None:
    """Fit an estimator with an l1 penalty and store the fitted attributes."""
    if not isinstance(loss, _LOSSES):
        raise ValueError(
            f"l1_ratio={estimator.l1_ratio!r} needs loss='logistic' in a classifier and 'squared' or "
            f"'huber' in a regressor, got loss={estimator.loss!r}; change it, or use l1_ratio=0"
        )
    estimator._forget()
    estimator._training = None
    rows, targets, mass = canonical_rows(X, y, weight, factor)
    total = len(targets) if mass is None else float(mass.sum())
    m, k = estimator._range().masses(total, whole=is_whole(mass))
    C = float(estimator.C)
    intercept = bool(estimator.fit_intercept)
    net = ElasticNet(
        as_float64(rows), _plain(targets, n_outputs), loss, n_outputs, float(estimator.l1_ratio), intercept
    )
    log = Log()
    unit = C * (k - m)  # solvers use the objective relative to the mean of the kept losses
    plain = _plain(targets, n_outputs)
    by_class = is_per_class(estimator.aggregate)
    classes = Stratified(np.unique(plain, return_inverse=True)[1]) if by_class else None
    found = trimmed_net(
        net,
        Cut(m, mass, C, classes, k if k < total else None),
        None,
        n_starts=int(estimator.n_starts),
        rng=np.random.default_rng(seed),
        tol=float(estimator.tol),
        max_iter=int(estimator.max_iter),
        report=lambda phase, value: log(phase, value / unit),
    )
    found = found._replace(coef=_without_rounding(found.coef, net.X))
    W = np.column_stack([found.coef, found.intercept]) if intercept else found.coef
    certificate = relative(found.gap, max(found.value, 1e-9 * unit))  # rows may be fitted exactly
    budget = found.rounds, certificate, float(estimator.tol), int(estimator.max_iter)
    result = finish(W, found.value / unit, *budget, log)
    given = Design(X, intercept)
    objective = Objective(given, y, loss, unit, n_outputs, m=m, k=k, sample_weight=product_of(weight, factor))
    objective = estimator._by_class(objective)
    estimator.C_, estimator.m_, estimator.k_ = C, as_count(m), as_count(k)
    estimator._store(result, objective)
    estimator._store_cuts(objective.losses(given.scores(W)), objective)
    if not result.converged:
        warnings.warn(
            f"the elastic net did not reach tol={estimator.tol:g}: the relative duality gap is {certificate:.1e}; "
            "raise max_iter, scale the features, or lower C",
            ConvergenceWarning,
            stacklevel=4,
        )


class SparseCoef:
    """Mixin with `sparsify()` and `densify()` of scikit-learn's linear classifiers, and `sparse_coef_` of its Lasso."""

    coef_: Any

    def sparsify(self) -> Any:
        """Convert `coef_` to a sparse matrix (outputs, n_features), which saves memory if most coefficients are zero.

        Returns
        -------
        object
            The model itself.
        """
        self.coef_ = self.sparse_coef_
        return self

    def densify(self) -> Any:
        """Undo `sparsify`.

        Returns
        -------
        object
            The model itself.
        """
        coef = self._dense_coef()
        self.coef_ = coef if is_classifier(self) else coef[0]
        return self

    @property
    def sparse_coef_(self) -> Any:
        """The coefficients (outputs, n_features) as a sparse matrix."""
        check_is_fitted(self, "coef_")
        return sp.csr_matrix(self.coef_)

    def _dense_coef(self) -> Array:
        """The coefficients (outputs, n_features)."""
        check_is_fitted(self, "coef_")
        return np.atleast_2d(self.coef_.toarray() if sp.issparse(self.coef_) else self.coef_)


def as_float64(X: Any) -> Any:
    """The rows in float64; sparse rows in CSC format."""
    return sp.csc_matrix(X, dtype=np.float64) if sp.issparse(X) else np.asarray(X, dtype=np.float64)


def _without_rounding(coef: Array, X: Any) -> Array:
    """Set coefficients to zero that change scores only by rounding errors, as happens with two equal columns."""
    used = np.flatnonzero(coef.any(axis=0))
    if not len(used):
        return coef
    largest = abs(X[:, used]).max(axis=0)
    size = np.zeros_like(coef)
    size[:, used] = np.abs(coef[:, used]) * np.ravel(largest.toarray() if sp.issparse(X) else largest)
    return np.where(size > 64 * np.finfo(np.float64).eps * size.max(), coef, 0.0)


def _plain(y: Array, n_outputs: int) -> Array:
    return np.asarray(y, dtype=np.float64 if n_outputs == 1 else np.intp)
