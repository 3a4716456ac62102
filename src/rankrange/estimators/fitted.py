"""Base class of the linear models: the rows of a fit, what the fit stores, and what it reports."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ..core.arrays import Array
from ..core.cuts import cuts_of
from ..core.ranges import RankedRange
from ..solvers import Result

# Of validated rows: float32 stays, and other numbers become float64.
FORMATS: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
Method = TypeVar("Method", bound=Callable[..., Any])
PER_CLASS = "ndarray of shape (n_samples, n_classes): One column per class, in the order of `classes_`."
# What a fit stores, beside the attributes that end with an underscore.
_PRIVATE = ("_noise", "_training", "_finished", "_saved", "_ordinary_line")


def forget(estimator: BaseEstimator) -> None:
    """Remove all that an earlier fit stored, because the next one may not store the same."""
    for name in [name for name in vars(estimator) if name.endswith("_") or name in _PRIVATE]:
        delattr(estimator, name)


def of_rows(
    returned: str, X: str = "array_like or sparse matrix of shape (n_samples, n_features)"
) -> Callable[[Method], Method]:
    """Complete the docstring of a method by the rows X that it takes and by what it returns, "type: meaning"."""
    shape, _, meaning = returned.partition(": ")
    sections = f"Parameters\n----------\nX : {X}\n    The rows.\n\nReturns\n-------\n{shape}\n    {meaning}\n"

    def documented(method: Method) -> Method:
        method.__doc__ = f"{inspect.getdoc(method)}\n\n{sections}"
        return method

    return documented


class LogProbabilities:
    """Mixin: the logarithms of the probabilities of a classifier, if it has probabilities."""

    @available_if(lambda self: hasattr(self, "predict_proba"))
    @of_rows(PER_CLASS, "rows, as for `predict_proba`")
    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of `predict_proba`; -inf for probability 0."""
        P = self.predict_proba(X)  # type: ignore[attr-defined]
        with np.errstate(divide="ignore"):
            return P.log() if hasattr(P, "log") else np.log(P)


class LinearModel(BaseEstimator):
    """Base class of AoRRClassifier, AoRRRegressor, TKMLClassifier and PartialAUCClassifier."""

    def _checked(self, X: Any) -> Any:
        """The rows of X, validated for a prediction."""
        check_is_fitted(self, "coef_")
        return validate_data(self, X, reset=False, **FORMATS)

    def _store_coefficients(self, W: Array, dtype: Any) -> None:
        """Store the parameters W (r, p) of r scores, with an intercept of 0 if they have none."""
        d: int = self.n_features_in_
        self.coef_: Any = W[:, :d].astype(dtype)
        self.intercept_: Any = (W[:, d] if W.shape[1] > d else np.zeros(len(W))).astype(dtype)

    def _store_result(self, result: Result, factor: float) -> None:
        """Store the result of a solver; `factor` times its objective is the documented one."""
        self.objective_ = float(result.value) * factor
        self.n_iter_: Any = max(1, int(result.n_iter))  # certifying an optimal start counts as one iteration
        self.converged_ = bool(result.converged)
        self.certificate_ = float(result.certificate)
        self.message_ = result.message
        self.history_ = {
            "phase": np.array([phase for phase, _ in result.history]),
            "objective": np.array([value for _, value in result.history]) * factor,
        }

    def _store_cuts(self, losses: Array, m: float, k: float, mass: Array | None) -> None:
        """Store the cuts and the dropped rows. Rows that tie at the upper cut and are partly kept are not dropped."""
        lower, upper = cuts_of(losses, m, k, mass)
        self.lam_, self.lam_hat_ = float(lower.value), float(upper.value)
        self.dropped_ = upper.takes(losses)

    def _warn_unless_converged(self, tol: float, stacklevel: int) -> None:
        if not self.converged_:
            warnings.warn(
                f"the fit did not reach tol={tol:g}: {self.message_}; raise max_iter, scale the features, or lower C",
                ConvergenceWarning,
                stacklevel=stacklevel + 1,
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def range_of(m: Any, k: Any, *, k_given: bool) -> RankedRange:
    """The range of m and k; m may be a range that defines both, and an error says so if k is given as well.

    A warning names k=1, which looks like a share of 1.0.
    """
    if not isinstance(m, RankedRange):
        if isinstance(k, Integral) and k == 1:
            warnings.warn(
                "k=1 is a count: it keeps one loss, the largest. k=1.0 keeps all; for the largest loss pass "
                "m=RankedRange.maximum()",
                UserWarning,
                stacklevel=6,
            )
        return RankedRange(m, k)
    if k_given:
        raise TypeError(f"{m!r} already defines k, got k={k!r} as well; leave k out")
    return m
